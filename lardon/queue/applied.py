"""Making the libraries of this process keep to a contract."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

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

    A pool that is smaller already stays so. Needs threadpoolctl (extra ``threads``); without
    it, or without such a library loaded, nothing happens.
    """
    with ExitStack() as stack:
        limit = _limit(count)
        if limit is not None:
            stack.enter_context(limit)
        yield


def keep_to(count: int) -> None:
    """Limit the pools that the calling thread would start to *count*, until it ends."""
    # The limit takes effect as it is made; what undoes it is thrown away.
    _limit(count)


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


def _limit(count: int) -> Any:
    """Return a context manager that limits the larger pools, None when there is none."""
    try:
        controller = _pools.controller()
        if controller is None:
            return None
        # By their files: NumPy and SciPy each bring an OpenBLAS with the same prefix.
        larger = [
            pool["filepath"] for pool in controller.info() if (pool["num_threads"] or 0) > count
        ]
        return controller.select(filepath=larger).limit(limits=count) if larger else None
    except Exception:  # noqa: BLE001  another library may raise anything
        # A library that answers oddly must not cost anybody a task.
        logger.exception("lardon: the thread pools could not be limited")
        return None
