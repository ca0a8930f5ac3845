"""Ctrl-C and the polite kill, as requests that the main loop reads when it is ready."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, Self


class Interrupts:
    """
    Counts SIGINT (Ctrl-C) and SIGTERM inside a ``with`` block, on the main thread.

    Outside `counted` they raise KeyboardInterrupt as usual, which ends a question or a
    preparation at once. A SIGINT that was ignored from the start, as in a script's
    background job, stays ignored.
    """

    def __init__(self) -> None:
        self.presses = 0
        """How often Ctrl-C was pressed; whoever has dealt with it may set it back."""
        self.terminated = False
        """Whether somebody asked the process to end (SIGTERM)."""
        self._counting = False
        self._before: dict[int, Any] = {}

    @property
    def exit_status(self) -> int:
        """What a shell shows for a program ended by such a signal: 128 and its number."""
        return 128 + (signal.SIGTERM if self.terminated else signal.SIGINT)

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Only count while the block runs, so that nothing in it is torn apart."""
        before, self._counting = self._counting, True
        try:
            yield
        finally:
            self._counting = before

    @contextlib.contextmanager
    def raised(self) -> Iterator[None]:
        """Raise KeyboardInterrupt while the block runs, although it is inside `counted`."""
        before, self._counting = self._counting, False
        try:
            yield
        finally:
            self._counting = before

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._arrived)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _arrived(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGTERM:
            self.terminated = True
        else:
            self.presses += 1
        if not self._counting:
            raise KeyboardInterrupt
