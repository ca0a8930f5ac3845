"""``python -m lardon.dispatch.call CALL RESULT``: makes one call of a function, on a node."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from lardon.dispatch.remote.function import cloudpickle, write_whole

_ARGUMENTS = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Load the call from the first file, make it, and write what came of it into the second.

    Returns:
        0 when the function returned, 1 when it raised, 2 for wrong arguments.

    """
    found = sys.argv[1:] if arguments is None else list(arguments)
    if len(found) != _ARGUMENTS:
        sys.stderr.write("usage: python -m lardon.dispatch.call CALL RESULT\n")
        return 2
    call, result = map(Path, found)
    pickler = cloudpickle()
    value, error = None, None
    try:
        fn, args, kwargs = pickler.loads(call.read_bytes())
        value = fn(*args, **kwargs)
        content = pickler.dumps((value, None))
    except Exception as raised:  # noqa: BLE001  it belongs to the caller
        traceback.print_exc()
        error = raised
        content = _told(pickler.dumps, raised)
    write_whole(result, content)
    return 0 if error is None else 1


def _told(dumps: object, error: BaseException) -> bytes:
    """Return the error as it is, or in words where it cannot be pickled."""
    assert callable(dumps)
    try:
        content = dumps((None, error))
    except Exception:  # noqa: BLE001  other people's errors hold anything
        content = dumps((None, RuntimeError("".join(traceback.format_exception(error)))))
    assert isinstance(content, bytes)
    return content


if __name__ == "__main__":
    sys.exit(main())
