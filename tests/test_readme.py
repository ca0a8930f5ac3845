"""
The README and the pages of docs/ do what they say.

The ``python`` blocks of one page run in order in one namespace, as a reader would type them,
each page in an empty folder. A ``text output`` block holds what the block before it printed;
an ``…`` in it stands for any text, and alone on a line for any lines, because figures differ
from machine to machine. Shell blocks are not run, but every `make` target that a page names must
exist.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

import attrs
import pytest

import lardon
import lardon.locality
import lardon.testing
from lardon import Governor, Reservation, Task, TaskContext, TaskQueue

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
FENCE: Final = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MAKE: Final = re.compile(r"\bmake ((?:[a-z][a-z-]*|[A-Z]+=\S*)(?: (?:[a-z][a-z-]*|[A-Z]+=\S*))*)")
LINK: Final = re.compile(r"\]\(([^)\s]+)\)")

RUN_A_PAGE: Final = """
import pathlib, sys, threading
from tests.conftest import LEAK_PATIENCE_S, threads_left
from tests.test_readme import run_page
before = set(threading.enumerate())
page = pathlib.Path(sys.argv[1])
run_page(page.read_text(encoding="utf-8"), str(page))
assert not (left := threads_left(before, LEAK_PATIENCE_S)), f"threads left behind: {left}"
"""


class Block(NamedTuple):
    """One fenced block of a page: its info string, its text and the line that it opens on."""

    info: str
    text: str
    line: int


def blocks_of(markdown: str) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    return [
        Block(found[1].strip(), found[2], markdown.count("\n", 0, found.start()) + 1)
        for found in FENCE.finditer(markdown)
    ]


def matches(shown: str, printed: str) -> bool:
    """
    Whether *printed* is what a page shows.

    An ``…`` stands for any text in a line, and alone on a line for any number of lines.
    """
    pattern = "".join(
        "(?:.*\\n)*" if line == "…\n" else ".*?".join(map(re.escape, line.split("…")))
        for line in (shown.strip() + "\n").splitlines(keepends=True)
    )
    return re.fullmatch(pattern, printed.strip() + "\n") is not None


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a\n… MiB\n", "a\n5 MiB", True),
        ("a … c", "a b c", True),
        ("a … c", "a b\nb c", False),
        ("a\n…\nc", "a\nb\nb\nc", True),
        ("a\n…\nc", "a\nc", True),
        ("a\n…", "a\nb\nc", True),
        ("a\n…\nc", "a\nb\nd", False),
        ("a\nb", "a\nb\nc", False),
        ("a.", "ab", False),
    ],
)
def test_what_a_page_may_leave_out(shown: str, printed: str, *, same: bool) -> None:
    assert matches(shown, printed) is same


def run_page(markdown: str, name: str) -> None:
    """Run the page's Python blocks in one namespace, and compare what it says they print."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    printed = ""
    for block in blocks_of(markdown):
        if block.info == "python":
            # Blank lines in front make a traceback point at the line of the page.
            code = compile("\n" * block.line + block.text, name, "exec")
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(code, namespace)  # noqa: S102  the page is ours
            printed = output.getvalue()
        elif block.info == "text output":
            assert matches(block.text, printed), (
                f"{name}:{block.line} shows\n{block.text}\nand was printed:\n{printed}"
            )


def targets_of(makefile: str) -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))


def make_commands(markdown: str) -> list[str]:
    """Return the targets of every `make` command: in fenced blocks and in code spans."""
    shell = [block.text for block in blocks_of(markdown) if block.info in {"sh", "console"}]
    spans = re.findall(r"`(make [^`\n]+)`", FENCE.sub("", markdown))
    words = (
        word for text in shell + spans for found in MAKE.findall(text) for word in found.split()
    )
    return [word for word in words if "=" not in word]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    """In an interpreter of its own: what others have left in memory is measured as well."""
    if "```python" not in page.read_text(encoding="utf-8"):
        return

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN_A_PAGE, page],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    targets = targets_of((ROOT / "Makefile").read_text(encoding="utf-8"))

    assert [word for word in make_commands(text) if word not in targets] == []
    links = [link.partition("#")[0] for link in LINK.findall(text) if "://" not in link]
    assert [link for link in links if link and not (page.parent / link).exists()] == []
    known = {"python", "text output", "text", "sh", "console", "ini", "toml", ""}
    assert [block.line for block in blocks_of(text) if block.info not in known] == []


def test_the_readme_shows_code_and_its_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")

    assert any(block.info == "python" for block in blocks_of(text))
    assert {"run", "test"} <= set(make_commands(text))


def test_the_reference_names_everything_public() -> None:
    """Every public name, every field of a value, and every method of a handle."""
    words = set(re.findall(r"\w+", (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")))
    public: set[str] = {*lardon.__all__, *lardon.testing.__all__}
    for name in lardon.__all__:
        thing = getattr(lardon, name)
        if isinstance(thing, type) and attrs.has(thing):
            public.update(field.name for field in attrs.fields(thing) if field.init)
    for handle in (Governor, Reservation, TaskQueue, Task, TaskContext):
        public.update(vars(handle))

    assert sorted(name for name in public - words if not name.startswith("_")) == []


def test_the_page_on_locality_names_everything_public() -> None:
    """As above: every name of `lardon.locality`, and every method and field of its handles."""
    words = set(re.findall(r"\w+", (ROOT / "docs" / "locality.md").read_text(encoding="utf-8")))
    public: set[str] = set(lardon.locality.__all__)
    for name in lardon.locality.__all__:
        thing = getattr(lardon.locality, name)
        if isinstance(thing, type) and attrs.has(thing):
            public.update(field.name for field in attrs.fields(thing) if field.init)
    for handle in (
        lardon.locality.CurrentWorker,
        lardon.locality.LocalityScheduler,
        lardon.locality.PendingJob,
        lardon.locality.PoolTask,
        lardon.locality.ProcessContext,
        lardon.locality.WorkerPool,
    ):
        public.update(vars(handle))

    # What a part of the room asks of another.
    inside = {"wait_finished", "on_worker"}
    assert sorted(name for name in public - words - inside if not name.startswith("_")) == []


def test_a_page_that_is_wrong_is_found() -> None:
    """The blocks share names, and a wrong output, a raise or a made-up target is noticed."""
    run_page(
        "```python\na = 2\n```\n\n```python\nprint(a, 7)\n```\n```text output\n2 …\n```\n", "p"
    )
    with pytest.raises(AssertionError, match="p:4 shows"):
        run_page("```python\nprint(1)\n```\n```text output\n2\n```\n", "p")
    with pytest.raises(NameError):
        run_page("```python\nmissing\n```\n", "p")
    assert make_commands("Say `make tset ARGS=x`.\n```sh\nmake run\n```\n") == ["run", "tset"]
