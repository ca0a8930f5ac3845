"""Recognising that memory ran out, whoever says so, and making room."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Final

from lardon.errors import BatchOutOfMemory
from lardon.events import logger
from lardon.governor.checks import described
from lardon.units import format_bytes

if TYPE_CHECKING:
    from lardon.queue.context import TaskContext

# torch.OutOfMemoryError (torch.cuda.OutOfMemoryError before 2.5) is a RuntimeError; CuPy's
# and RMM's, like NumPy's, are MemoryErrors. The name is enough: nothing has to be imported.
_NAME: Final = "OutOfMemoryError"
# What torch says when the host's memory is short: a plain RuntimeError from its allocator.
_TORCH_HOST: Final = "DefaultCPUAllocator: "
_SHORT: Final = ("can't allocate memory", "not enough memory")
# So do JAX and others on XLA, in the words of its status code.
_XLA: Final = "RESOURCE_EXHAUSTED"
# torch before 1.13, and libraries that pass on the text of the driver.
_CUDA: Final = ("CUDA out of memory", "CUDA error: out of memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether *error* says that memory, of the host or of a GPU, ran out."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_out_of_memory(one) for one in error.exceptions)
    if isinstance(error, MemoryError):
        return True
    names = [kind.__name__ for kind in type(error).__mro__]
    if _NAME in names:
        return True
    return isinstance(error, RuntimeError) and _says_so(described(error), names)


def _says_so(text: str, names: list[str]) -> bool:
    """Return whether a RuntimeError of such a type says in words that memory ran out."""
    if "XlaRuntimeError" in names or "JaxRuntimeError" in names:
        return _XLA in text
    if any(words in text for words in _CUDA):
        return True
    return _TORCH_HOST in text and any(words in text for words in _SHORT)


def make_room() -> None:
    """Give back what garbage and torch's cache hold; takes as long as a collection does."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is None:
        return
    try:
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
    except Exception:  # noqa: BLE001  another library may raise anything
        logger.exception("lardon: torch's cache could not be emptied")


def no_smaller(context: TaskContext, error: BaseException, items: int) -> BatchOutOfMemory:
    """Return the error of a batch that cannot be made smaller, with what was granted for it."""
    contract, reason = context.contract, context._task._reason
    granted = f"{format_bytes(contract.ram_bytes)} of RAM"
    if contract.gpu_bytes:
        granted += f" and {format_bytes(contract.gpu_bytes)} on each of {len(contract.gpus)} GPUs"
    message = (
        f"task {context.task_id} ({context.name}) ran out of memory on a batch of {items}, "
        f"which cannot be made smaller; granted were {granted} ({reason}): {described(error)}"
    )
    return BatchOutOfMemory(
        message, task_id=context.task_id, items=items, contract=contract, reason=reason
    )
