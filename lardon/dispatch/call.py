"""``python -m lardon.dispatch.call CALL RESULT``: makes one call of a function, on a node."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from lardon.dispatch.remote.function import Returned, cloudpickle, write_whole, written

_ARGUMENTS = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Load the call from the first file, make it, and write what came of it into the second.

    Returns:
        0 when the function returned, 1 when it raised, 2 for wrong arguments. One that exits
        has raised `SystemExit`, and the job ends with the status that it asked for, never 0:
        a job without a returned value did not complete.

    """
    found = sys.argv[1:] if arguments is None else list(arguments)
    if len(found) != _ARGUMENTS:
        sys.stderr.write("usage: python -m lardon.dispatch.call CALL RESULT\n")
        return 2
    call, result = map(Path, found)
    pickler = cloudpickle()
    epoch = _epoch()
    code = 0
    try:
        fn, args, kwargs = pickler.loads(call.read_bytes())
        content = written(Returned(fn(*args, **kwargs), epoch=epoch))
    except BaseException as raised:  # noqa: BLE001  it belongs to the caller, an exit too
        with contextlib.suppress(Exception):  # on a full disk, say: the result is what counts
            traceback.print_exc()
        code = _status_of(raised)
        content = _told(raised, epoch)
    write_whole(result, content)
    return code


def _told(error: BaseException, epoch: int | None) -> bytes:
    """Return the error as it is, or in words where it cannot be written and read again."""
    try:
        content = written(Returned(error=error, epoch=epoch))
        pickle.loads(content)  # noqa: S301  just written: one with arguments of its own may fail
    except Exception:  # noqa: BLE001  other people's errors hold anything
        words = "".join(traceback.format_exception(error))
        content = written(Returned(error=RuntimeError(words), epoch=epoch))
    return content


def _status_of(raised: BaseException) -> int:
    """Return the status of a job whose function raised this; a status has eight bits."""
    asked = raised.code if isinstance(raised, SystemExit) else None
    return asked & 0xFF or 1 if isinstance(asked, int) else 1


def _epoch() -> int | None:
    """Return the number of this execution, where the backend gives one."""
    text = os.environ.get("DISPATCH_EPOCH", "")
    return int(text) if text.isdecimal() else None


if __name__ == "__main__":
    sys.exit(main())
