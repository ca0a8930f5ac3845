"""What a contract says to a program that knows nothing of lardon: its environment."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lardon.governor.decision import Contract

# How many threads the usual numeric libraries start: OpenMP, OpenBLAS, Intel's MKL, BLIS,
# Apple's Accelerate and numexpr each read a variable of their own.
THREAD_VARIABLES: Final = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
VISIBLE_DEVICES: Final = "CUDA_VISIBLE_DEVICES"


def environment_of(contract: Contract, inherited: Mapping[str, str]) -> dict[str, str]:
    """
    Return *inherited* with the contract in it, which wins over what was set before.

    Without a GPU in the contract the program sees none: what is not reserved is not used.
    """
    return {
        **inherited,
        **dict.fromkeys(THREAD_VARIABLES, str(contract.cpus)),
        VISIBLE_DEVICES: ",".join(contract.gpus),
        "LARDON_BATCH_SIZE": str(contract.batch_size),
        "LARDON_RAM_BYTES": str(contract.ram_bytes),
        "LARDON_GPU_BYTES": str(contract.gpu_bytes),
        "LARDON_CPUS": str(contract.cpus),
    }


class _OuterEnviron(Mapping[str, str]):
    """`os.environ` as it is outside of every `gpus_for_children`."""

    def __getitem__(self, name: str) -> str:
        if name == VISIBLE_DEVICES:
            found = _overrides.outer()
            if found is None:
                raise KeyError(name)
            return found
        return os.environ[name]

    def __iter__(self) -> Iterator[str]:
        return iter([name for name in (*os.environ, VISIBLE_DEVICES) if name in self])

    def __len__(self) -> int:
        return len(set(self))

    def __contains__(self, name: object) -> bool:
        if name == VISIBLE_DEVICES:
            return _overrides.outer() is not None
        return name in os.environ


class _Overrides:
    """Who has set the variable now. The newest counts; the last one puts the old value back."""

    def __init__(self) -> None:
        # Guards what follows and the variable itself; held for single assignments.
        self._lock = threading.Lock()
        self._values: dict[object, str] = {}
        self._saved: str | None = None

    def outer(self) -> str | None:
        """Return the value that was there before the first override."""
        with self._lock:
            return self._saved if self._values else os.environ.get(VISIBLE_DEVICES)

    def begin(self, value: str) -> object:
        """Put *value* in force; return what ends it."""
        token = object()
        with self._lock:
            if not self._values:
                self._saved = os.environ.get(VISIBLE_DEVICES)
            self._values[token] = value
            os.environ[VISIBLE_DEVICES] = value
        return token

    def end(self, token: object) -> None:
        """Take the value of *token* back; in a child that was forked meanwhile it stays."""
        with self._lock:
            if self._values.pop(token, None) is None:
                return
            if self._values:
                os.environ[VISIBLE_DEVICES] = next(reversed(self._values.values()))
            elif self._saved is None:
                os.environ.pop(VISIBLE_DEVICES, None)
            else:
                os.environ[VISIBLE_DEVICES] = self._saved

    def inherit(self) -> None:
        """
        Make what is in force this process's own, in a forked child.

        It sees the contract's GPUs alone, as any child does, and so do its probes. Another
        thread of the parent may have held the lock at the fork.
        """
        self._lock = threading.Lock()
        self._values = {}


_overrides: Final = _Overrides()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_overrides.inherit)
outer_environ: Final[Mapping[str, str]] = _OuterEnviron()
"""What a probe looks its variables up in: a contract in force hides no GPU from it."""


@contextmanager
def gpus_for_children(contract: Contract) -> Iterator[None]:
    """
    Let child processes that are started within see the GPUs of *contract* alone.

    Sets ``CUDA_VISIBLE_DEVICES`` of this process, and puts the old value back. Without a
    GPU in the contract nothing is set: the program's own choice stands.
    """
    if not contract.gpus:
        yield
        return
    token = _overrides.begin(",".join(contract.gpus))
    try:
        yield
    finally:
        _overrides.end(token)
