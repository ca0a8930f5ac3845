"""What people see: bars on a terminal, plain lines everywhere else, a table at the end."""

from __future__ import annotations

import select
import sys
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Final, Self, TypeVar

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table

from lardon import TaskSnapshot
from lardon.units import format_bytes
from photo.recorder import News

# Of the table, where no terminal says how wide it is.
PLAIN_WIDTH: Final = 100
# How long a Ctrl-C may go unnoticed at the question, at worst.
POLL_S: Final = 0.2

Step = TypeVar("Step")


def printable(text: str) -> str:
    """Return *text* without control characters, which the name of a file may hold."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _answer(question: str) -> str:
    """
    Return what somebody types, like `input`.

    A Ctrl-C that arrives in the instant before a read begins is seen only when the read
    returns. Where the terminal can be polled, nothing is read before something is there.
    """
    if sys.platform == "win32":
        return input(question)
    print(question, end="", flush=True)
    while not select.select([sys.stdin], [], [], POLL_S)[0]:
        pass
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line


class Display:
    """
    Shows a run, inside a ``with`` block; used from the main thread alone.

    On a terminal there is a bar for each task. Where standard output is a file or a pipe,
    lines are printed instead, without control characters.
    """

    def __init__(self) -> None:
        self.live = sys.stdout.isatty()
        self._console = (
            Console()
            if self.live
            else Console(force_terminal=False, color_system=None, width=PLAIN_WIDTH)
        )
        self._bars = self._new_bars()
        self._rows: dict[int, TaskID] = {}

    def _new_bars(self) -> Progress:
        return Progress(
            TextColumn("{task.description:9}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            console=self._console,
            disable=not self.live,
        )

    def __enter__(self) -> Self:
        if self.live:
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        if self.live:  # stopped elsewhere, bars print an empty line
            self._bars.stop()

    def say(self, text: str) -> None:
        """Print one line, above the bars."""
        self._console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    def tell(self, news: News) -> None:
        """Print a line that came from the work, unless a bar shows it."""
        if not (self.live and news.progress):
            self.say(news.text)

    def show(self, tasks: Iterable[TaskSnapshot]) -> None:
        """Bring the bars up to date, where there are any."""
        if self.live:
            for task in tasks:
                self._move_bar(task)

    def _move_bar(self, task: TaskSnapshot) -> None:
        if task.id not in self._rows:
            self._rows[task.id] = self._bars.add_task(task.name, total=None, note="")
        contract = task.contract
        note = str(task.state).lower()
        if task.waiting_since is not None:
            note = "waits for the governor"
        elif contract is not None and not task.state.terminal:
            ram = format_bytes(contract.ram_bytes)
            note += f", batches of {contract.batch_size}, {ram} granted"
        self._bars.update(
            self._rows[task.id],
            completed=task.progress.done,
            total=task.progress.total,
            note=note,
        )

    def track(self, steps: Iterable[Step], total: int) -> Iterator[Step]:
        """Pass *steps* through, with a bar of their own on a terminal."""
        row = self._bars.add_task("samples", total=total, note="")
        for step in steps:
            yield step
            self._bars.advance(row)
        self._bars.remove_task(row)

    @property
    def can_ask(self) -> bool:
        """Whether there is somebody to answer."""
        return self.live and sys.stdin is not None and sys.stdin.isatty()

    def ask_to_resume(self) -> bool:
        """Ask whether to resume (True) or to cancel; the bars stand still meanwhile."""
        self._bars.stop()
        try:
            while True:
                answer = _answer("Paused. [r]esume or [c]ancel? ").strip().lower()
                if answer in {"r", "resume", "c", "cancel"}:
                    return answer.startswith("r")
        except (EOFError, KeyboardInterrupt):
            self._console.print()  # the answer ended no line
            return False
        finally:
            # New ones, below the answer: the old would move up and overwrite it.
            self._bars, self._rows = self._new_bars(), {}
            self._bars.start()

    def table(self, title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print a table, once the bars have ended; all but its first column are figures."""
        self._stop()
        self.say(f"{title}:")
        table = Table(box=box.SIMPLE if self.live else box.ASCII2)
        for number, name in enumerate(header):
            table.add_column(name, justify="right" if number else "left", overflow="fold")
        for row in rows:
            table.add_row(*row)
        self._console.print(table)
