"""Making the libraries of this process keep to a contract."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

from lardon.environment import gpus_for_children
from lardon.events import logger

if TYPE_CHECKING:
    from lardon.governor.decision import Contract


@contextmanager
def applied(contract: Contract) -> Iterator[None]:
    """Keep thread pools to the contract's CPUs and children to its GPUs; see `TaskContext`."""
    with gpus_for_children(contract), threads(contract.cpus):
        yield


@contextmanager
def threads(count: int) -> Iterator[None]:
    """
    Limit the pools of BLAS and OpenMP libraries to *count* threads, and undo it afterwards.

    A pool that is smaller already stays so. One that all threads share has the limit of the
    thread that came first: it is left alone as long as that is in force. Needs threadpoolctl
    (extra ``threads``); without it, or without such a library loaded, nothing happens.
    """
    with ExitStack() as stack:
        shared = stack.enter_context(_turn.taken())
        limit = _limit(count, shared=shared)
        if limit is not None:
            stack.enter_context(limit)
        yield


def keep_to(count: int) -> None:
    """Limit the pools that the calling thread would start to *count*, until it ends."""
    # The limit takes effect as it is made; what undoes it is thrown away.
    _limit(count, shared=False)


class _Pools:
    """The libraries found so far; looking for them again costs a millisecond."""

    def __init__(self) -> None:
        self._controller: Any = None
        self._modules = -1

    def controller(self) -> Any:
        """Return threadpoolctl's controller, None without threadpoolctl."""
        # Libraries come with imports: no new module, no new library.
        modules = len(sys.modules)
        if modules != self._modules:
            try:
                from threadpoolctl import ThreadpoolController
            except ImportError:
                self._controller = None
            else:
                self._controller = ThreadpoolController()
            # After the import above, which counts too.
            self._modules = len(sys.modules)
        return self._controller


_pools = _Pools()


class _Turn:
    """
    Whose limit is in force on the pools that all threads share: one thread's at a time.

    Of two that overlap and end in any order each would take the other's limit for what the
    pool had before, and the last would leave that behind.
    """

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Begin anew in a forked child, where the thread whose turn it was may not be."""
        # Guards what follows. Another thread of the parent may have held it at the fork.
        self._lock = threading.Lock()
        self._thread: int | None = None
        self._depth = 0

    @contextmanager
    def taken(self) -> Iterator[bool]:
        """Take the turn if it is free or this thread's; tell whether it could be taken."""
        here = threading.get_ident()
        with self._lock:
            mine = self._thread in {None, here}
            if mine:
                self._thread = here
                self._depth += 1
        try:
            yield mine
        finally:
            if mine:
                with self._lock:
                    self._depth = max(0, self._depth - 1)
                    if not self._depth:
                        self._thread = None


_turn: Final = _Turn()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_turn.renew)


def _limit(count: int, *, shared: bool) -> Any:
    """
    Return a context manager that limits the larger pools, None when there is none.

    Args:
        count: The most threads of a pool.
        shared: Whether pools that all threads share are limited, too.

    """
    try:
        controller = _pools.controller()
        if controller is None:
            return None
        # By their files: NumPy and SciPy each bring an OpenBLAS with the same prefix.
        larger = [
            pool["filepath"]
            for pool in controller.info()
            if (pool["num_threads"] or 0) > count and (shared or _is_per_thread(pool))
        ]
        return controller.select(filepath=larger).limit(limits=count) if larger else None
    except Exception:  # noqa: BLE001  another library may raise anything
        # A library that answers oddly must not cost anybody a task.
        logger.exception("lardon: the thread pools could not be limited")
        return None


def _is_per_thread(pool: Mapping[str, Any]) -> bool:
    """Whether each thread has a limit of its own, by what threadpoolctl says of a library."""
    return "openmp" in {pool.get("user_api"), pool.get("threading_layer")}
