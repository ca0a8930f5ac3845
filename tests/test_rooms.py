"""The rooms of the library: imports point downwards, modules stay small, names stay free."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = ROOT / "lardon"
MODULES: Final = sorted(PACKAGE.rglob("*.py"))

# What each room may import, itself included. `lardon/__init__.py` may import everything; a
# room that is missing here fails the test, so that a new one gets its line.
ROOT_MODULES: Final = frozenset(
    path.stem for path in PACKAGE.glob("*.py") if path.stem not in {"__init__", "__main__"}
)
BELOW: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(ROOT_MODULES, ROOT_MODULES),
    "governor": ROOT_MODULES | {"governor"},
    "queue": ROOT_MODULES | {"governor", "queue"},
    "testing": ROOT_MODULES | {"governor", "queue", "testing"},
    "locality": ROOT_MODULES | {"governor", "queue", "locality"},
    "dispatch": ROOT_MODULES | {"governor", "queue", "locality", "dispatch"},
    # A simulator is made of fakes.
    "dispatch/sim": ROOT_MODULES | {"governor", "queue", "locality", "dispatch", "testing"},
    "cli": ROOT_MODULES | {"governor", "queue", "locality", "dispatch", "cli"},
    "__main__": ROOT_MODULES | {"governor", "queue", "locality", "dispatch", "cli"},
}
MAX_LINES: Final = 400
CATCH_ALLS: Final = frozenset({"utils", "util", "helpers", "helper", "common", "misc"})
# Directories of tools, not of this project.
TOOLS: Final = ("build", "dist", "htmlcov")


def room_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    inner = "/".join(parts[:2])
    return inner if inner in BELOW else parts[0].removesuffix(".py")


def imported(source: str, *, at_run_time: bool) -> list[tuple[int, str]]:
    """Return line and full name of every import, those under TYPE_CHECKING included or not."""
    found: list[tuple[int, str]] = []

    def visit(node: ast.AST) -> None:
        if at_run_time and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for statement in node.orelse:
                visit(statement)
            return
        if isinstance(node, ast.Import):
            found.extend((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            found.extend((node.lineno, f"{base}.{alias.name}") for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(source))
    return found


def violations(source: str, room: str) -> list[str]:
    """Return what *source*, a module of *room*, imports and may not."""
    # Root modules may name a type from above for the type checker; a room may not even that.
    at_run_time = room in ROOT_MODULES
    wrong = []
    for line, name in imported(source, at_run_time=at_run_time):
        if name.startswith("."):
            wrong.append(f"line {line}: {name} is relative; imports are by full path")
            continue
        top, _, rest = name.partition(".")
        if top == "lardon" and rest.partition(".")[0] not in BELOW[room]:
            wrong.append(f"line {line}: {room} imports {name}")
    return wrong


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_imports_point_downwards(path: Path) -> None:
    if path == PACKAGE / "__init__.py":
        return
    assert violations(path.read_text(encoding="utf-8"), room_of(path)) == []


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("governor", "from lardon.queue.task import Task"),
        ("governor", "import lardon.queue"),
        ("governor", "from lardon import TaskQueue"),
        ("governor", "def f() -> None:\n    from lardon.testing import ManualClock"),
        ("governor", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import lardon.cli"),
        ("governor", "from ..queue import task"),
        ("queue", "from lardon.locality import placement"),
        ("queue", "from lardon.testing import ManualClock"),
        ("errors", "from lardon.governor.decision import Decision"),
        ("units", "import lardon.queue.task as task"),
    ],
)
def test_an_import_that_points_upwards_is_found(room: str, source: str) -> None:
    assert len(violations(source, room)) == 1


def test_a_root_module_may_name_a_type_of_a_room() -> None:
    source = (
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n"
        "    from lardon.governor.decision import Decision\n"
    )

    assert violations(source, "errors") == []


@pytest.mark.parametrize("adapter", ["memory", "slurm"])
def test_an_adapter_knows_no_other_adapter(adapter: str) -> None:
    """What two of them share stands beside them, in `lardon/dispatch`."""
    rooms = {path.name for path in (PACKAGE / "dispatch").iterdir() if path.is_dir()}
    others = {f"lardon.dispatch.{room}." for room in rooms - {adapter}}
    wrong = [
        f"{path.name}, line {line}: {name}"
        for path in sorted((PACKAGE / "dispatch" / adapter).glob("*.py"))
        for line, name in imported(path.read_text(encoding="utf-8"), at_run_time=False)
        if name.startswith(tuple(others))
    ]

    assert wrong == []


def test_every_module_holds_one_idea() -> None:
    """A module of more than 400 lines is two, and a module of leftovers is none."""
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}

    assert {path.name: count for path, count in lines.items() if count > MAX_LINES} == {}
    assert [path for path in MODULES if path.stem in CATCH_ALLS] == []


def test_nothing_shadows_the_standard_librarys_queue() -> None:
    """`import queue` is the standard library's, from every folder that Python could look in."""
    named = [
        path.relative_to(ROOT)
        for path in ROOT.rglob("*")
        if path.name in {"queue", "queue.py"} and path != PACKAGE / "queue" and _is_ours(path)
    ]

    assert named == []
    assert not list((ROOT / "tests").rglob("__init__.py"))


def _is_ours(path: Path) -> bool:
    folders = path.relative_to(ROOT).parts[:-1]
    return not any(part.startswith(".") or part in TOOLS for part in folders)


@pytest.mark.slow
def test_import_lardon_stays_light() -> None:
    """`import lardon` loads no GPU binding, no event loop and no NumPy."""
    heavy = ("pynvml", "asyncio", "numpy", "lardon.testing", "multiprocessing")
    # What the interpreter's own start-up loads (coverage does, when it measures) is not ours.
    code = (
        "import sys; before = set(sys.modules); import lardon;"
        f"print([name for name in {heavy!r} if name in set(sys.modules) - before])"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=15,
        check=False,
    )

    assert (done.stdout.strip(), done.stderr) == ("[]", "")
