"""`--watch`: in place in a terminal, one below the other elsewhere, and a clean end."""

from __future__ import annotations

import io
import json
import os
import signal
from typing import TYPE_CHECKING

import pytest

from lardon.cli.sections import Section
from lardon.cli.watching import watch, watch_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Program


def counting() -> Callable[[], list[Section]]:
    numbers = iter(range(1, 100))
    return lambda: [Section(title=f"look {next(numbers)}")]


def ctrl_c_after(count: int) -> Callable[[float], None]:
    """Return a sleep that takes no time, and ends in a Ctrl-C."""
    left = [count]

    def sleep(seconds: float) -> None:
        assert seconds == 1.0
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    return sleep


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_without_a_terminal_each_look_is_below_the_last() -> None:
    stream = io.StringIO()

    watch(counting(), stream, ctrl_c_after(3))

    assert stream.getvalue() == "look 1\n\nlook 2\n\nlook 3\n\n"


def test_a_terminal_is_refreshed_in_place_and_put_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()

    watch(counting(), stream, ctrl_c_after(2))

    text = stream.getvalue()
    assert text.index("\x1b[?1049h") < text.index("look 1") < text.index("look 2")
    # The other screen is left, and the cursor is back.
    assert text.index("look 2") < text.index("\x1b[?1049l")
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_puts_the_terminal_right_too(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    before = signal.getsignal(number)

    with pytest.raises(SystemExit) as ended:
        watch(counting(), stream, lambda _: os.kill(os.getpid(), number))

    assert ended.value.code == 128 + number
    assert "\x1b[?1049l" in stream.getvalue()
    assert signal.getsignal(number) is before


def test_json_is_one_line_for_each_look() -> None:
    stream = io.StringIO()
    numbers = iter(range(5))

    watch_lines(lambda: json.dumps({"look": next(numbers)}), stream, ctrl_c_after(2))

    assert stream.getvalue() == '{"look": 0}\n{"look": 1}\n'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)], ids=["INT", "TERM"]
)
def test_a_watching_program_ends_cleanly(
    program: Program, number: signal.Signals, status: int
) -> None:
    process = program.start("info", "--watch", "--json")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["snapshot"]["cpus"] == 8

    process.send_signal(number)
    _, err = process.communicate(timeout=15)

    assert (process.returncode, err) == (status, "")


@pytest.mark.slow
def test_each_look_is_a_new_one(program: Program) -> None:
    """What changes between two looks is seen, and a reader that leaves ends it silently."""
    process = program.start("info", "--watch", "--json")
    assert process.stdout is not None
    assert process.stderr is not None
    assert json.loads(process.stdout.readline())["snapshot"]["ram_total_bytes"] == 16 << 30
    program.root.memory(total_bytes=8 << 30, available_bytes=1 << 30)
    seen = [json.loads(process.stdout.readline())["snapshot"]["ram_total_bytes"] for _ in range(2)]
    process.stdout.close()

    assert seen[-1] == 8 << 30
    assert process.wait(timeout=15) == 141
    assert process.stderr.read() == ""
