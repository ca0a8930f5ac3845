"""Where the command comes from: the extra, the script, and nothing at `import lardon`."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

from lardon import __main__ as entry

ROOT: Final = Path(__file__).parents[2]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=15,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_it_says_how_to_get_it(tmp_path: Path, missing: str) -> None:
    """A package of that name that cannot be imported stands for one that is not there."""
    (tmp_path / f"{missing}.py").write_text(
        f"raise ModuleNotFoundError('there is none', name={missing!r})\n"
    )

    done = run("-m", "lardon", "info", PYTHONPATH=str(tmp_path))

    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        f"lardon: the command needs {missing}, which is not installed; "
        "its extra brings it: python -m pip install 'lardon[cli]'\n"
    )


def test_a_fault_of_our_own_is_not_taken_for_a_missing_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "lardon.cli.main", None)

    with pytest.raises(ImportError, match=r"lardon\.cli\.main"):
        entry.main()


@pytest.mark.slow
def test_import_lardon_loads_nothing_of_the_command() -> None:
    code = (
        "import sys, lardon; print([name for name in sys.modules"
        " if name.startswith(('lardon.cli', 'typer', 'rich', 'click', 'pydantic'))])"
    )

    done = run("-c", code)

    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_script_and_the_extra_are_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert project["scripts"] == {"lardon": "lardon.__main__:main"}
    extras = project["optional-dependencies"]
    assert {text.partition(">")[0] for text in extras["cli"]} == {"rich", "typer"}
    assert set(extras["cli"]) <= set(extras["test"])


@pytest.mark.slow
def test_the_module_is_the_command() -> None:
    done = run("-m", "lardon", "--version")

    assert done.returncode == 0
    assert done.stdout.startswith("lardon ")
    assert done.stderr == ""
