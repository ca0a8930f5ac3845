"""Finding NVML without starting a thread or waiting for a driver."""

from __future__ import annotations

import sys
from typing import Any, Final

_LIBRARY: Final = "libnvidia-ml.so.1"


class NvmlAbsentError(Exception):
    """There is no NVML on this machine, or no binding to it."""


def find_nvml() -> Any:
    """
    Return the module `pynvml`.

    Only looks for the library, which tells a machine without an NVIDIA driver from one
    whose driver has to be asked.

    Raises:
        NvmlAbsentError: with the reason, for people to read.

    """
    if not sys.platform.startswith("win"):
        _check_library()
    try:
        import pynvml
    except Exception as error:  # a broken installation may raise anything
        message = f"the module pynvml cannot be imported: {error}"
        raise NvmlAbsentError(message) from error
    return pynvml


def _check_library() -> None:
    # Not every machine that imports lardon has a GPU, and ctypes is not cheap to import.
    import ctypes

    try:
        ctypes.CDLL(_LIBRARY)
    except OSError as error:
        message = f"NVML Shared Library Not Found: {error}"
        raise NvmlAbsentError(message) from error
