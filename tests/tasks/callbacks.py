"""What tests of the end of a task share: an estimate, a patience, a callback that raises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lardon import ResourceEstimate

if TYPE_CHECKING:
    from collections.abc import Callable

    from lardon import TaskContext

PATIENCE_S: Final = 10.0
ANY: Final = ResourceEstimate(max_batch=4)


def raising(error: BaseException) -> Callable[[TaskContext], None]:
    def callback(_context: TaskContext) -> None:
        raise error

    return callback
