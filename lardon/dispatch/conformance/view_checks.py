"""Checks 20 to 22: streams, read-only views, and what a backend cannot do."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from lardon.dispatch.conformance.bench import Bench, ensure, raises
from lardon.dispatch.conformance.check import Check, check
from lardon.dispatch.conformance.harness import Lacking
from lardon.dispatch.enums import Action, Cause, State, Tristate
from lardon.dispatch.errors import (
    DispatchError,
    RefusedError,
    UnsupportedError,
    WatchClosed,
)
from lardon.dispatch.model import Observation, Ref
from lardon.dispatch.recovery import RecoveryPolicy, RecoveryRule
from lardon.dispatch.spi import (
    Backend,
    Holder,
    NativePolicyCompiler,
    Requeuer,
    WatchStream,
)


@check(20)
def a_watcher_sees_every_change(bench: Bench) -> None:
    """A stream begins with every object, and then tells of each change or ends."""
    watcher = bench.watcher
    first = bench.opened()
    stream = watcher.watch()
    _begins_with(bench, stream, [first])
    second = bench.opened()
    bench.run(second)
    bench.backend.stop(second)
    wanted = [State.PENDING, State.RUNNING, State.ENDED if bench.slurm else State.UNKNOWN]
    for state in wanted:
        if not _reaches(bench, stream, second, state):
            # It fell behind, and says so: a new one tells how everything is.
            _begins_with(bench, watcher.watch(), [first])
            return


@check(20)
def a_full_buffer_ends_a_stream(bench: Bench) -> None:
    """A watcher that is too far behind is cut off, and begins again with every object."""
    watcher = bench.watcher
    room = int(bench.figure("watch_buffer"))
    stream = watcher.watch()
    refs = [bench.started() for _ in range(room + 1)]
    ensure(stream.closed, f"a stream of {room} is open after {len(refs)} changes")
    _drain(stream)
    with raises(WatchClosed, what="reading on after the end of a stream"):
        stream.get_nowait()
    _begins_with(bench, watcher.watch(), refs)


@check(20)
def nothing_comes_after_the_end(bench: Bench) -> None:
    """Closing the stream, its cancel event and closing the backend all end a stream."""
    watcher = bench.watcher
    ref = bench.started()
    cancel = threading.Event()
    closed, cancelled, left = watcher.watch(), watcher.watch(cancel), watcher.watch()
    closed.close()
    cancel.set()
    bench.backend.open(ref)
    _is_over(closed, "closing it")
    _is_over(cancelled, "its cancel event")
    ensure(not left.closed, "a stream ended with another one")
    bench.backend.close()
    _is_over(left, "closing the backend")


@check(21)
def a_read_only_view_changes_nothing(bench: Bench) -> None:
    """A read-only view refuses every change, and sees the same truth."""
    gated, running = bench.started(), bench.running()
    view = bench.harness.read_only(bench.backend)
    before = bench.backend.observe_many([gated, running])
    for what, call in _changes(bench, view, gated, running).items():
        with raises(RefusedError, UnsupportedError, what=f"{what} through a read-only view"):
            call()
    ensure(bench.backend.observe_many([gated, running]) == before, "a refused call changed it")
    ensure(view.observe_many([gated, running]) == before, "a view sees something else")
    bench.backend.stop(running)
    gone = State.ENDED if bench.slurm else State.UNKNOWN
    bench.until(running, lambda seen: seen.state is gone, f"is {gone} after a stop")
    after = bench.backend.observe_many([running])
    ensure(view.observe_many([running]) == after, "a view does not see what changed")


@check(22)
def what_is_unsupported_says_so(bench: Bench) -> None:
    """A call that this cluster cannot do raises `UnsupportedError` and does nothing."""
    backend = bench.backend
    ref = bench.running()
    before = bench.see(ref)
    calls: dict[str, Callable[[], object]] = {}
    if isinstance(backend, Requeuer) and not bench.slurm:
        requeuer = backend
        calls["requeue"] = lambda: requeuer.requeue(ref, bench.call())
        calls["restore_requeue_bit"] = lambda: requeuer.restore_requeue_bit(ref, bench.call())
    if isinstance(backend, NativePolicyCompiler):
        compiler = backend
        for action, support in backend.declarations().rules.items():
            if support.value is Tristate.NO:
                policy = _policy(action)
                calls[f"compile_policy with {action}"] = _compiling(compiler, policy)
    if not calls:
        message = "there is nothing that the backend has and this cluster does not"
        raise Lacking(message)
    for what, call in calls.items():
        with raises(UnsupportedError, what=what):
            call()
        bench.unchanged(before, f"{what}, which is not supported,")


def _policy(action: Action) -> RecoveryPolicy:
    return RecoveryPolicy([RecoveryRule(Cause.PREEMPTED, action)])


def _compiling(compiler: NativePolicyCompiler, policy: RecoveryPolicy) -> Callable[[], object]:
    return lambda: compiler.compile_policy(policy)


def _changes(
    bench: Bench, view: Backend, gated: Ref, running: Ref
) -> Mapping[str, Callable[[], object]]:
    calls: dict[str, Callable[[], object]] = {
        "start": lambda: view.start(bench.spec()),
        "open": lambda: view.open(gated),
        "stop": lambda: view.stop(running),
    }
    if isinstance(view, Holder):
        holder = view
        calls["hold"] = lambda: holder.hold(gated, bench.holding(1))
        calls["release"] = lambda: holder.release(gated, bench.holding(1))
    if isinstance(view, Requeuer):
        requeuer = view
        calls["requeue"] = lambda: requeuer.requeue(running, bench.call())
        calls["restore_requeue_bit"] = lambda: requeuer.restore_requeue_bit(running, bench.call())
    return calls


def _begins_with(bench: Bench, stream: WatchStream, refs: Iterable[Ref]) -> None:
    missing = set(refs)
    while missing:
        seen = _next(bench, stream)
        ensure(seen is not None, f"a new stream ended without telling of {missing}")
        assert seen is not None
        missing.discard(seen.ref)


def _is_over(stream: WatchStream, what: str) -> None:
    ensure(stream.closed, f"{what} must end a stream")
    with raises(WatchClosed, what=f"reading after {what}"):
        stream.get_nowait()


def _reaches(bench: Bench, stream: WatchStream, ref: Ref, state: State) -> bool:
    while True:
        seen = _next(bench, stream)
        if seen is None:
            return False
        if seen.ref == ref and seen.state is state:
            return True


def _next(bench: Bench, stream: WatchStream) -> Observation | None:
    """Return the next observation, or None at the end of the stream."""
    timings = bench.harness.timings
    left = timings.wait_s
    while True:
        try:
            return stream.get_nowait()
        except WatchClosed:
            return None
        except queue.Empty:
            ensure(left > 0, "a change was due on an open stream, and did not come")
        bench.harness.advance(timings.poll_s)
        left -= timings.poll_s


def _drain(stream: WatchStream) -> None:
    try:
        while True:
            stream.get_nowait()
    except (queue.Empty, DispatchError):
        return


CHECKS: Final[tuple[Check, ...]] = (
    a_watcher_sees_every_change,
    a_full_buffer_ends_a_stream,
    nothing_comes_after_the_end,
    a_read_only_view_changes_nothing,
    what_is_unsupported_says_so,
)
