"""Streams of the backend in memory: whatever shows is told from inside the call, until the end."""

from __future__ import annotations

import gc
import queue
import threading
from collections.abc import Callable

import pytest

from lardon.dispatch.enums import Shape, State
from lardon.dispatch.errors import BackendClosed, WatchClosed
from lardon.dispatch.memory import MemoryBackend
from lardon.testing import ManualClock
from tests.dispatch.jobs import JOB, SHAPES, holding, see, slurm, spec


@SHAPES
def test_a_stream_begins_with_every_object_and_tells_each_change(
    clock: ManualClock, shape: Shape
) -> None:
    """Seed 000, D6: it is sent before the call that changed the object returns."""
    backend = MemoryBackend(shape=shape, clock=clock)
    ref = backend.start(spec())
    stream = backend.watch()
    assert stream.get_nowait() == see(backend, ref)
    with pytest.raises(queue.Empty):
        stream.get_nowait()

    backend.env().run(ref) if shape is Shape.KUBEFLOW else backend.open(ref)

    assert stream.get_nowait() == see(backend, ref)
    backend.open(ref)
    with pytest.raises(queue.Empty):
        stream.get(timeout=0)


@SHAPES
def test_everything_that_shows_is_told(clock: ManualClock, shape: Shape) -> None:
    """Seed 000, D6: whoever changes it, the cluster and its people included."""
    backend = MemoryBackend(shape=shape, clock=clock)
    env = backend.env()
    ref = backend.start(spec())
    stream = backend.watch()
    steps: list[Callable[[], object]] = [
        lambda: env.admin_hold(ref),
        lambda: env.admin_release(ref),
        lambda: backend.hold(ref, holding(clock)),
        lambda: backend.release(ref, holding(clock)),
        lambda: backend.open(ref),
        lambda: env.run(ref),
        lambda: env.lose_node(ref),
        lambda: env.recover_node(see(backend, ref).nodes[0]),
        lambda: env.finish(ref, 3),
    ]
    stream.get_nowait()
    told = see(backend, ref)
    for step in steps:
        step()
        seen = see(backend, ref)
        if seen != told:
            assert stream.get_nowait() == seen
            told = seen
        with pytest.raises(queue.Empty):
            stream.get_nowait()
    assert told.exit_code == 3


def test_a_full_buffer_ends_a_stream_with_what_is_in_it(clock: ManualClock) -> None:
    """Seed 000, D7: the reader gets what was buffered, then the end, and begins anew."""
    backend = slurm(clock, watch_buffer=2)
    first = [backend.start(spec()) for _ in range(5)]
    stream = backend.watch()
    for ref in first[:2]:
        backend.stop(ref)
    assert not stream.closed

    backend.stop(first[2])

    assert stream.closed
    seen = [stream.get_nowait() for _ in range(7)]
    assert [one.state for one in seen] == [State.PENDING] * 5 + [State.ENDED] * 2
    with pytest.raises(WatchClosed):
        stream.get()
    again = backend.watch()
    assert [again.get().state for _ in first] == [State.ENDED] * 3 + [State.PENDING] * 2


@pytest.mark.parametrize("how", ["closed", "cancelled", "backend closed"])
def test_nothing_comes_after_the_end(clock: ManualClock, how: str) -> None:
    """Seed 000, D7: a cancelled context and a close; what was buffered goes with it."""
    backend, cancel = slurm(clock), threading.Event()
    other = backend.view()
    ref = backend.start(spec())
    stream = backend.watch(cancel)
    end: dict[str, Callable[[], None]] = {
        "closed": stream.close,
        "cancelled": cancel.set,
        "backend closed": backend.close,
    }

    end[how]()
    other.open(ref)

    assert stream.closed
    for read in (stream.get, stream.get_nowait):
        with pytest.raises(WatchClosed):
            read()
    stream.close()


def test_closing_one_view_leaves_the_streams_of_another(clock: ManualClock) -> None:
    """Seed 000, D7: each view ends its own."""
    backend = slurm(clock)
    view = backend.view()
    stream = view.watch()

    backend.close()
    backend.close()

    ref = view.start(spec())
    assert stream.get_nowait().ref == ref
    for refused in (backend.watch, lambda: backend.find(JOB), lambda: backend.start(spec())):
        with pytest.raises(BackendClosed):
            refused()


def test_a_blocked_reader_wakes_for_a_change_and_for_the_end(clock: ManualClock) -> None:
    """Seed 000, D6 and D7: no polling is needed on the reader's side."""
    backend = slurm(clock)
    stream = backend.watch()
    found: queue.Queue[object] = queue.Queue()

    def read() -> None:
        try:
            while True:
                found.put(stream.get().ref)
        except WatchClosed as error:
            found.put(error)

    reader = threading.Thread(target=read)
    reader.start()
    ref = backend.start(spec())
    assert found.get(timeout=10) == ref
    backend.close()

    assert isinstance(found.get(timeout=10), WatchClosed)
    reader.join(10)


def test_a_blocked_reader_sees_its_cancel_event(clock: ManualClock) -> None:
    """Seed 000, D7: also one that somebody sets who knows nothing of the stream."""
    cancel = threading.Event()
    stream = slurm(clock).watch(cancel)
    found: queue.Queue[BaseException] = queue.Queue()

    def read() -> None:
        try:
            stream.get()
        except WatchClosed as error:
            found.put(error)

    reader = threading.Thread(target=read)
    reader.start()
    cancel.set()

    assert isinstance(found.get(timeout=10), WatchClosed)
    reader.join(10)


@pytest.mark.parametrize("cancel", [None, threading.Event()], ids=["no event", "an event"])
def test_a_reader_waits_in_the_time_of_the_clock(cancel: threading.Event | None) -> None:
    """dispatch.md, decisions: `get(timeout)` raises `queue.Empty` when the clock says so."""
    clock = ManualClock()
    stream = slurm(clock).watch(cancel)
    found: queue.Queue[BaseException] = queue.Queue()

    def read() -> None:
        try:
            stream.get(timeout=3600)
        except queue.Empty as error:
            found.put(error)

    reader = threading.Thread(target=read)
    reader.start()
    while found.empty():
        clock.advance(3600)

    assert isinstance(found.get(), queue.Empty)
    reader.join(10)


def test_a_stream_that_nobody_reads_is_let_go(clock: ManualClock) -> None:
    """A watcher that ended is not sent to, nor kept, for as long as the cluster lives."""
    backend = slurm(clock)
    backend.watch().close()
    ref = backend.start(spec())
    backend.open(ref)

    gc.collect()
    assert backend._world._streams == []
