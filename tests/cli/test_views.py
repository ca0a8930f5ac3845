"""What people read: tables, sentences, and no text that steers a terminal."""

from __future__ import annotations

import io
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from lardon import GiB, GpuSnapshot, MiB
from lardon.cli import screen
from lardon.cli.sections import Section, plain, printable
from lardon.testing import ScriptedProbe
from tests.cli.conftest import MACHINE

if TYPE_CHECKING:
    from lardon.governor.probes.cgroup_memory import LevelReading
    from tests.cli.conftest import Command

PAGE: Final = Path(__file__).parents[2] / "docs" / "cli.md"
CARD: Final = GpuSnapshot(
    index=0, uuid="GPU-a", name="H100", total_bytes=80 * GiB, free_bytes=20 * GiB
)


def without_times(text: str) -> str:
    return "\n".join(line.partition(" at 20")[0] for line in text.splitlines()).strip()


def test_the_page_shows_what_is_printed(command: Command) -> None:
    """On the machine that these tests have."""
    asked = ("--ram", "4GiB", "--ram-per-item", "200MiB", "--batch", "1:64")
    printed = command("explain", *asked).out

    page = PAGE.read_text(encoding="utf-8")
    shown = page[page.index("```text\n") + len("```text\n") :]
    assert without_times(printed) == without_times(shown[: shown.index("```")])


def test_info_says_what_the_governor_sees(command: Command) -> None:
    from lardon.governor.probes.cgroup_memory import LevelReading as Reading

    class Contained(ScriptedProbe):
        def memory_levels(self) -> tuple[LevelReading, ...]:
            return (
                Reading(6 * GiB, "/job/memory.max", 5 * GiB, "/job/memory.high", GiB, 64 * MiB),
            )

    shared = GpuSnapshot(index=1, uuid="GPU-i", name="Orin", integrated=True)
    part = GpuSnapshot(index=2, uuid="MIG-c")
    seen = attrs.evolve(
        MACHINE,
        swap_total_bytes=4 * GiB,
        swap_used_bytes=GiB,
        load1=0.5,
        memory_pressure=1.5,
        gpus=(CARD, shared, part),
        limits=("total RAM is bound by /job/memory.max: 6 GiB",),
    )
    command.use(lambda: Contained(seen))

    answer = command("info")
    rows = [line.split() for line in answer.out.splitlines()]

    assert (answer.status, answer.err) == (0, "")
    for expected in (
        "RAM total 16 GiB",
        "RAM available 11 GiB",
        "RAM reserve 2 GiB",
        "RAM capacity 14 GiB",
        "RAM on offer 9 GiB",
        "Swap used 1 GiB of 4 GiB (never counts)",
        "CPUs 8",
        "Load (1 min) 0.50",
        "CPU pressure unknown",
        "Memory pressure 1.50 %",
        "total RAM is bound by /job/memory.max: 6 GiB",
        "/job/memory.high 5 GiB 1 GiB 64 MiB 4.062 GiB",
        "0 GPU-a H100 discrete 80 GiB 20 GiB 512 MiB 79.5 GiB",
        "1 GPU-i Orin integrated as RAM as RAM 2 GiB 14 GiB",
        "2 MIG-c unknown MIG unknown unknown 512 MiB unknown",
        "ram_reserve_bytes an eighth of the RAM, at most 2 GiB (2 GiB here)",
        "max_memory_pressure 10",
        "max_cpu_pressure no limit",
    ):
        assert expected.split() in rows, expected


def test_the_policy_that_is_asked_for_is_shown(command: Command) -> None:
    printed = command("info", "--policy", "interactive", "--ram-limit", "3G").out

    rows = [line.split() for line in printed.splitlines()]
    assert ["max_load_ratio", "0.9"] in rows
    assert ["ram_limit_bytes", "3", "GiB"] in rows
    assert "RAM capacity 3 GiB".split() in rows


def test_explain_shows_cards_slots_and_what_was_asked(command: Command) -> None:
    command.set(attrs.evolve(MACHINE, gpus=(CARD,)))

    printed = command("explain", "--gpu", "30G", "--cpus", "4", "--io", "1").out
    rows = [line.split() for line in printed.splitlines()]

    assert "gpu 0: GPU-a 30 GiB 80 GiB 512 MiB 79.5 GiB 0 B 20 GiB 19.5 GiB short".split() in rows
    assert "cpus 4 8 0 8 0 - 8 enough".split() in rows
    assert "io_slots 1 1 - 1 0 - 1 enough".split() in rows
    assert "10.5 GiB more must be on offer of GPU-a".split() in rows


def test_a_gpu_where_there_is_none_has_its_line(command: Command) -> None:
    answer = command("explain", "--gpus", "2")

    assert answer.status == 12
    rows = [line.split() for line in answer.out.splitlines()]
    assert "gpus 2 0 - 0 0 - 0 never".split() in rows


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("réduction-π-🔧", "réduction-π-🔧"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\r\nb\t", "a\\r\\nb\\t"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202egpj", "\\u202egpj"),
        ("\udcff", "\\udcff"),
        ("\u2028", "\\u2028"),
        ("👩‍💻", "👩‍💻"),
    ],
)
def test_what_steers_a_terminal_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text())
def test_nothing_that_steers_gets_through(text: str) -> None:
    shown = printable(text)

    assert all(unicodedata.category(character) not in {"Cc", "Cs"} for character in shown)
    assert printable(shown) == shown


def test_names_never_reach_the_terminal_raw(command: Command) -> None:
    evil = "\x1b]0;title\x07\x1b[2J[bold]:bomb:"
    command.set(
        attrs.evolve(MACHINE, gpus=(attrs.evolve(CARD, name=evil, uuid=evil),), limits=(evil,))
    )

    texts = [
        command("info").out,
        command("explain", "--gpu", "900G").out,
        command("run", "--gpu", "900G", "--", evil).err,
        command("explain", f"--{evil}").err,
    ]

    assert not [text for text in texts if "\x1b" in text or "\x07" in text]
    assert "[bold]:bomb:" in texts[0]


def test_columns_are_aligned_by_what_is_seen() -> None:
    section = Section(
        title="T", header=("a", "b"), rows=(("🔧🔧", "1"), ("x", "22")), lines=("so",)
    )

    assert plain([section, Section(lines=("end",))]) == (
        "T\n  a     b\n  🔧🔧  1\n  x     22\n  so\n\nend\n"
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_frames_and_whole_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        screen,
        "console_of",
        lambda stream: Console(
            file=stream, width=40, force_terminal=True, markup=False, color_system="standard"
        ),
    )
    uuid = "GPU-" + "0123456789abcdef" * 2
    stream = Terminal()

    screen.show(
        stream,
        [
            Section(title="Cards", header=("UUID", "verdict"), rows=((uuid, "short"),)),
            Section(lines=("\x1b[2J [bold]",)),
        ],
    )

    text = stream.getvalue()
    assert "\x1b[1mCards" in text
    assert "\x1b[33mshort" in text
    assert uuid in "".join(line.split()[0] for line in text.splitlines() if line.strip())
    assert "\x1b[2J" not in text
    assert "\\x1b[2J [bold]" in text


class Failing(io.StringIO):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def write(self, text: str) -> Any:
        raise self.error


def test_nobody_fails_because_a_message_is_not_read() -> None:
    screen.complain(Failing(BrokenPipeError(32, "gone")), "so")
    screen.complain(Failing(OSError(28, "full")), "so")
    screen.complain(None, "so")
    closed = io.StringIO()
    closed.close()
    screen.complain(closed, "so")
    assert not screen.is_terminal(closed)
    with pytest.raises(screen.ReaderGone):
        screen.write(Failing(BrokenPipeError(32, "gone")), "so")
    with pytest.raises(OSError, match="full"):
        screen.write(Failing(OSError(28, "full")), "so")
