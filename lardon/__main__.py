"""`python -m lardon`, and the console script `lardon`."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command with the process's own arguments; return the status to exit with."""
    try:
        from lardon.cli.main import main as run
    except ImportError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in {"", "lardon"}:
            raise
        print(  # noqa: T201  there is nothing else to tell it with
            f"lardon: the command needs {missing}, which is not installed; "
            "its extra brings it: python -m pip install 'lardon[cli]'",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        return 130
    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
