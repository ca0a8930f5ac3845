"""
Measurements in interpreters of their own.

State that one system leaves behind (threads, caches, a grown heap) must not reach the
next one, so most figures come from a child process that measures one thing and prints
one line of JSON. `python -m benchmarks.child module:function '{"argument": …}'` runs one
by hand.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).resolve().parent.parent
RESULT = "benchmarks-result: "
UNAVAILABLE = "unavailable"
# For a child that nobody gives another limit.
CHILD_TIMEOUT_S = 30.0


class Unavailable(RuntimeError):
    """A figure that cannot be had here, with the reason as its message."""


def command(target: str, arguments: Mapping[str, Any]) -> list[str]:
    """Return the command line that runs *target* (``module:function``) in a child."""
    return [sys.executable, "-m", "benchmarks.child", target, json.dumps(arguments)]


def environment() -> dict[str, str]:
    """
    Return this process's environment with the checkout importable in the child.

    Compiled modules are kept, as those of an installed package are: a child that compiled
    lardon anew, beside libraries that pip has compiled, would measure the compiler.
    """
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**inherited, "PYTHONPATH": os.pathsep.join(paths)}


def run_child(
    target: str, *, timeout_s: float = CHILD_TIMEOUT_S, **arguments: Any
) -> dict[str, Any]:
    """
    Run *target* in a fresh interpreter and return what it returned.

    Raises:
        Unavailable: the child said so, failed, or took longer than *timeout_s*.

    """
    try:
        done = subprocess.run(
            command(target, arguments),
            cwd=ROOT,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        message = f"took longer than {timeout_s:.0f} s"
        raise Unavailable(message) from None
    return parse(done.stdout, done.stderr, done.returncode)


def parse(stdout: str, stderr: str, returncode: int) -> dict[str, Any]:
    """Return the result among a child's output, or raise `Unavailable`."""
    lines = [line for line in stdout.splitlines() if line.startswith(RESULT)]
    if returncode or not lines:
        last = (stderr.strip().splitlines() or ["no output"])[-1]
        message = f"child ended with {returncode}: {last[:200]}"
        raise Unavailable(message)
    result: dict[str, Any] = json.loads(lines[-1].removeprefix(RESULT))
    if UNAVAILABLE in result:
        raise Unavailable(result[UNAVAILABLE])
    return result


def tell(result: Mapping[str, Any]) -> None:
    """Print *result* for the parent and flush it; called in a child."""
    sys.stdout.write(RESULT + json.dumps(result) + "\n")
    sys.stdout.flush()


@contextlib.contextmanager
def held_child(target: str, **arguments: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """
    Start a child that reports and then stays as it is until the block ends.

    The target calls `tell` when it is ready and `wait_for_parent` to stay. Yields the
    child's pid and what it told.
    """
    child = subprocess.Popen(
        command(target, arguments),
        cwd=ROOT,
        env=environment(),
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert child.stdout is not None
        line = child.stdout.readline()
        if not line.startswith(RESULT):
            _, stderr = child.communicate(timeout=CHILD_TIMEOUT_S)
            parse(line, stderr, child.returncode or 1)
        yield child.pid, parse(line, "", 0)
    finally:
        try:
            # Closing its standard input is what the child waits for.
            child.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()


def wait_for_parent() -> None:
    """Sleep until the parent lets go; called in a held child, on its main thread."""
    sys.stdin.readline()


def main(arguments: list[str]) -> None:
    """Run one target; called by `python -m benchmarks.child`."""
    module, _, function = arguments[0].partition(":")
    try:
        result = getattr(importlib.import_module(module), function)(**json.loads(arguments[1]))
    except Unavailable as error:
        result = {UNAVAILABLE: str(error)}
    if result is not None:
        tell(result)


if __name__ == "__main__":
    # `-m` runs this file as `__main__`: the targets raise the Unavailable of the module.
    importlib.import_module("benchmarks.child").main(sys.argv[1:])
