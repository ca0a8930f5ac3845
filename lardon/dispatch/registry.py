"""Backends by name, made from settings."""

from __future__ import annotations

import importlib
import threading
from typing import Final, Protocol

from lardon.clock import Clock, MachineClock
from lardon.dispatch.decoding import Document
from lardon.dispatch.errors import InvalidError
from lardon.dispatch.spi import Backend
from lardon.governor.checks import refuse


class Factory(Protocol):
    """Makes a backend; it decodes the settings strictly, see `lardon.dispatch.decoding.decode`."""

    def __call__(self, settings: Document | None, *, clock: Clock) -> Backend:
        """Return a new backend, or raise `InvalidError` with the path of a wrong setting."""
        ...


# Guards the table. Held for bookkeeping alone: factories are called with it released.
_lock: Final = threading.Lock()
_factories: Final[dict[str, Factory]] = {}
# lardon's own register themselves when their module is imported, which nobody has to do.
_OWN: Final = {"memory": "lardon.dispatch.memory", "slurm": "lardon.dispatch.slurm"}


def register(name: str, factory: Factory) -> None:
    """
    Make *factory* known under *name*; an adapter calls this when it is imported.

    Raises:
        InvalidError: *name* is empty, or another factory has it.

    """
    if not isinstance(name, str) or not name:
        raise refuse(InvalidError, "name", name, "a text that is not empty")
    if not callable(factory):
        raise refuse(InvalidError, "factory", factory, "callable")
    with _lock:
        if _factories.setdefault(name, factory) is not factory:
            raise refuse(InvalidError, "name", name, "a name that no other factory has")


def create(name: str, settings: Document | None = None, *, clock: Clock | None = None) -> Backend:
    """
    Return a new backend of the adapter *name*.

    Args:
        name: ``memory``, ``slurm``, or what somebody registered.
        settings: A JSON object, as text or as a mapping; None is an empty one.
        clock: What time it is; None is the machine's.

    Raises:
        InvalidError: no such adapter, or a setting that is wrong: the error names its path.
        MissingExtra: a package of the extra `dispatch` is not installed.

    """
    if not isinstance(name, str):
        raise refuse(InvalidError, "name", name, "a text")
    with _lock:
        factory = _factories.get(name)
    if factory is None and name in _OWN:
        importlib.import_module(_OWN[name])
        with _lock:
            factory = _factories.get(name)
    if factory is None:
        known = ", ".join(sorted({*_factories, *_OWN}))
        raise refuse(InvalidError, "name", name, f"the name of an adapter ({known})")
    return factory(settings, clock=MachineClock() if clock is None else clock)
