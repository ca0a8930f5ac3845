"""A driver that a test controls: the names of pynvml, without a GPU."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any, ClassVar, Final, Self

import attrs

from lardon.units import GiB

NVML_ERROR_UNINITIALIZED: Final = 1
NVML_ERROR_INVALID_ARGUMENT: Final = 2
NVML_ERROR_NOT_SUPPORTED: Final = 3
NVML_ERROR_NO_PERMISSION: Final = 4
NVML_ERROR_NOT_FOUND: Final = 6
NVML_ERROR_DRIVER_NOT_LOADED: Final = 9
NVML_ERROR_LIBRARY_NOT_FOUND: Final = 12
NVML_ERROR_GPU_IS_LOST: Final = 15
NVML_ERROR_LIB_RM_VERSION_MISMATCH: Final = 18
NVML_ERROR_UNKNOWN: Final = 999

_TEXTS: Final = {
    NVML_ERROR_UNINITIALIZED: "Uninitialized",
    NVML_ERROR_INVALID_ARGUMENT: "Invalid Argument",
    NVML_ERROR_NOT_SUPPORTED: "Not Supported",
    NVML_ERROR_NO_PERMISSION: "Insufficient Permissions",
    NVML_ERROR_NOT_FOUND: "Not Found",
    NVML_ERROR_DRIVER_NOT_LOADED: "Driver Not Loaded",
    NVML_ERROR_LIBRARY_NOT_FOUND: "NVML Shared Library Not Found",
    NVML_ERROR_GPU_IS_LOST: "GPU is lost",
    NVML_ERROR_LIB_RM_VERSION_MISMATCH: "RM has detected an NVML/RM version mismatch.",
}

# A call that hangs ends by itself after this, so that a test that forgets to let it go
# does not leave a thread behind for ever.
HANG_S: Final = 60.0


class NVMLError(Exception):
    """What the driver answers in place of a figure; `value` is its code."""

    def __init__(self, value: int) -> None:
        super().__init__(_TEXTS.get(value, f"NVML Error with code {value}"))
        self.value = value


@attrs.define(eq=False, kw_only=True)
class FakeProcess:
    """A process as the driver lists it."""

    pid: int
    used_bytes: int | None
    """None where the driver cannot tell, as under WSL."""


@attrs.define(eq=False, kw_only=True)
class FakeInstance:
    """A MIG instance of a card."""

    uuid: str
    total_bytes: int
    free_bytes: int
    gpu_instance: int = 1
    compute_instance: int = 0
    processes: list[FakeProcess] = attrs.field(factory=list)

    @property
    def name(self) -> str | bytes:
        """The name of any instance."""
        return "NVIDIA MIG 1g.10gb"


@attrs.define(eq=False, kw_only=True)
class FakeGpu:
    """A card; every attribute may be changed between two readings."""

    uuid: str | bytes
    total_bytes: int = 80 * GiB
    free_bytes: int = 80 * GiB
    name: str | bytes = "NVIDIA H100 80GB HBM3"
    reserved_bytes: int = 0
    """What the driver keeps: the first record counts it as used, the second apart."""
    mig_mode: bool = False
    instances: list[FakeInstance] = attrs.field(factory=list)
    processes: list[FakeProcess] = attrs.field(factory=list)


@attrs.frozen
class _MemoryV1:
    total: int
    free: int
    used: int


@attrs.frozen
class _MemoryV2:
    version: int
    total: int
    reserved: int
    free: int
    used: int


@attrs.frozen
class _Process:
    pid: int
    usedGpuMemory: int | None  # noqa: N815  pynvml's name


@attrs.frozen
class _Handle:
    """Belongs to the process that got it: after a fork the driver does not know it."""

    device: FakeGpu | FakeInstance
    pid: int


@attrs.define(eq=False)
class _Trouble:
    function: str
    index: int | None
    error: Exception | None
    times: int | None
    """How often it still strikes; None is always."""


class FakeNvml:
    """
    Stands in for the module pynvml, for ``SystemProbe(nvml=FakeNvml([...]))``.

    Functions have pynvml's names and check what the real driver checks: that it was
    initialised, and by this very process. `calls` counts them. Any function can be made
    to raise (`fail`) or to hang (`hang`).

    Example:
        >>> nvml = FakeNvml([FakeGpu(uuid="GPU-1", free_bytes=20 * GiB)])
        >>> nvml.fail("nvmlDeviceGetMemoryInfo", NVML_ERROR_GPU_IS_LOST, index=0)

    """

    NVMLError: ClassVar = NVMLError
    nvmlMemory_v2: ClassVar = 0x02000028  # noqa: N815

    def __init__(self, devices: Iterable[FakeGpu] = ()) -> None:
        self.devices = list(devices)
        self.calls: Counter[str] = Counter()
        # Guards the attributes below and `calls`. Never held while a call hangs.
        self._lock = threading.Lock()
        self._initialised_by: dict[int, int] = {}
        self._troubles: list[_Trouble] = []
        self._let_go = threading.Event()
        self._hanging = threading.Semaphore(0)

    def fail(
        self,
        function: str,
        error: int | Exception,
        *,
        index: int | None = None,
        times: int | None = None,
    ) -> None:
        """
        Make *function* raise.

        Args:
            function: the name of one of the functions below.
            error: an NVML code, or any exception.
            index: only for the card at this place; None is all.
            times: only so often; None is until `recover`.

        """
        raised = NVMLError(error) if isinstance(error, int) else error
        with self._lock:
            self._troubles.append(_Trouble(function, index, raised, times))

    def hang(self, function: str, *, index: int | None = None) -> None:
        """Make *function* hang until `let_go`, for the card at place *index* or for all."""
        with self._lock:
            self._troubles.append(_Trouble(function, index, None, None))

    def recover(self) -> None:
        """End all that was made to raise or to hang."""
        with self._lock:
            self._troubles.clear()
        self.let_go()

    def let_go(self) -> None:
        """Let the calls that hang now return."""
        with self._lock:
            waiting, self._let_go = self._let_go, threading.Event()
        waiting.set()

    def wait_hanging(self, timeout: float) -> bool:
        """Wait until one more call hangs; return whether one does."""
        return self._hanging.acquire(timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.recover()

    def nvmlInit(self) -> None:  # noqa: N802  pynvml's names from here on
        """Initialise the driver for this process."""
        self._called("nvmlInit")
        with self._lock:
            pid = os.getpid()
            self._initialised_by[pid] = self._initialised_by.get(pid, 0) + 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        """Undo one `nvmlInit`."""
        self._called("nvmlShutdown")
        self._check_initialised()
        with self._lock:
            self._initialised_by[os.getpid()] -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        """Return how many cards there are."""
        self._called("nvmlDeviceGetCount")
        self._check_initialised()
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:  # noqa: N802
        """Return the handle of the card at *index* in bus order."""
        self._called("nvmlDeviceGetHandleByIndex", index)
        self._check_initialised()
        if not 0 <= index < len(self.devices):
            raise NVMLError(NVML_ERROR_INVALID_ARGUMENT)
        return _Handle(self.devices[index], os.getpid())

    def nvmlDeviceGetUUID(self, handle: Any) -> str | bytes:  # noqa: N802
        """Return the UUID of a card or an instance."""
        return self._device("nvmlDeviceGetUUID", handle).uuid

    def nvmlDeviceGetName(self, handle: Any) -> str | bytes:  # noqa: N802
        """Return the name of a card or an instance."""
        return self._device("nvmlDeviceGetName", handle).name

    def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int | None = None) -> Any:  # noqa: N802
        """Return total, free and used; free is the same in both versions of the record."""
        device = self._device("nvmlDeviceGetMemoryInfo", handle)
        total, free = device.total_bytes, device.free_bytes
        reserved = device.reserved_bytes if isinstance(device, FakeGpu) else 0
        if version is None:
            return _MemoryV1(total, free, total - free)
        return _MemoryV2(version, total, reserved, free, total - free - reserved)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> list[Any]:  # noqa: N802
        """Return the processes that use a card or an instance."""
        device = self._device("nvmlDeviceGetComputeRunningProcesses", handle)
        return [_Process(process.pid, process.used_bytes) for process in device.processes]

    def nvmlDeviceGetMigMode(self, handle: Any) -> list[int]:  # noqa: N802
        """Return the current and the pending mode of a card."""
        device = self._card("nvmlDeviceGetMigMode", handle)
        return [int(device.mig_mode)] * 2

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any) -> int:  # noqa: N802
        """Return how many instances a card can have; not all of them need to exist."""
        return max(7, len(self._card("nvmlDeviceGetMaxMigDeviceCount", handle).instances))

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: int) -> Any:  # noqa: N802
        """Return the handle of an instance."""
        instances = self._card("nvmlDeviceGetMigDeviceHandleByIndex", handle).instances
        if not 0 <= index < len(instances):
            raise NVMLError(NVML_ERROR_NOT_FOUND)
        return _Handle(instances[index], os.getpid())

    def nvmlDeviceGetGpuInstanceId(self, handle: Any) -> int:  # noqa: N802
        """Return the number of an instance's GPU instance."""
        return self._instance("nvmlDeviceGetGpuInstanceId", handle).gpu_instance

    def nvmlDeviceGetComputeInstanceId(self, handle: Any) -> int:  # noqa: N802
        """Return the number of an instance's compute instance."""
        return self._instance("nvmlDeviceGetComputeInstanceId", handle).compute_instance

    def _called(self, function: str, index: int | None = None) -> None:
        with self._lock:
            self.calls[function] += 1
            trouble = next(
                (
                    one
                    for one in self._troubles
                    if one.function == function and one.index in (None, index) and one.times != 0
                ),
                None,
            )
            if trouble is None:
                return
            if trouble.times is not None:
                trouble.times -= 1
            let_go = self._let_go
        if trouble.error is not None:
            raise trouble.error
        self._hanging.release()
        let_go.wait(HANG_S)

    def _check_initialised(self) -> None:
        with self._lock:
            if self._initialised_by.get(os.getpid(), 0) > 0:
                return
        raise NVMLError(NVML_ERROR_UNINITIALIZED)

    def _device(self, function: str, handle: Any) -> FakeGpu | FakeInstance:
        device: FakeGpu | FakeInstance = handle.device
        self._called(function, self._place(device))
        self._check_initialised()
        if handle.pid != os.getpid():
            raise NVMLError(NVML_ERROR_INVALID_ARGUMENT)
        return device

    def _card(self, function: str, handle: Any) -> FakeGpu:
        device = self._device(function, handle)
        if not isinstance(device, FakeGpu):
            raise NVMLError(NVML_ERROR_INVALID_ARGUMENT)
        return device

    def _instance(self, function: str, handle: Any) -> FakeInstance:
        device = self._device(function, handle)
        if not isinstance(device, FakeInstance):
            raise NVMLError(NVML_ERROR_NOT_SUPPORTED)
        return device

    def _place(self, device: FakeGpu | FakeInstance) -> int | None:
        for place, card in enumerate(self.devices):
            if device is card:
                return place
        # Trouble with a card by its place is not trouble with its instances.
        return None
