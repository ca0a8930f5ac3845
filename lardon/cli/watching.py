"""Looking again every second until somebody has seen enough."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NoReturn

from rich.live import Live

from lardon.cli.screen import console_of, framed, is_terminal, show, write
from lardon.cli.statuses import status_of_signal

if TYPE_CHECKING:
    from types import FrameType
    from typing import TextIO

    from lardon.cli.sections import Section

# The kernel averages pressure over ten seconds and load over a minute: oftener would show
# the same figures.
WATCH_S: Final = 1.0


def watch(
    look: Callable[[], Sequence[Section]],
    stream: TextIO,
    sleep: Callable[[float], object] | None = None,
) -> None:
    """
    Show what *look* returns, again and again: in place in a terminal, else one below the other.

    Returns at Ctrl-C, with the terminal as it was.
    """
    sleep = threading.Event().wait if sleep is None else sleep
    with contextlib.suppress(KeyboardInterrupt), _ended_by_exception():
        if not is_terminal(stream):
            while True:
                show(stream, look())
                write(stream, "\n")
                sleep(WATCH_S)
        with Live(console=console_of(stream), screen=True, auto_refresh=False) as live:
            while True:
                live.update(framed(look()), refresh=True)
                sleep(WATCH_S)


def watch_lines(
    look: Callable[[], str],
    stream: TextIO,
    sleep: Callable[[float], object] | None = None,
) -> None:
    """Write what *look* returns as one line every second, until Ctrl-C."""
    sleep = threading.Event().wait if sleep is None else sleep
    with contextlib.suppress(KeyboardInterrupt), _ended_by_exception():
        while True:
            write(stream, f"{look()}\n")
            sleep(WATCH_S)


@contextlib.contextmanager
def _ended_by_exception() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP unwind the stack, so that the terminal is put right."""

    def end(number: int, _frame: FrameType | None) -> NoReturn:
        sys.exit(status_of_signal(number))

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    # `nohup` wants it ignored.
    numbers = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
