"""The sentence of each reason, written from its facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from lardon.governor.reason import Fact, ReasonCode
from lardon.units import format_bytes


def _size(facts: Mapping[str, Fact], name: str) -> str:
    value = facts.get(name, 0)
    return format_bytes(value) if isinstance(value, int) else str(value)


def _compared(facts: Mapping[str, Fact], one: str, other: str) -> tuple[str, str]:
    """Return two sizes as texts that differ where the sizes do."""
    texts = _size(facts, one), _size(facts, other)
    if texts[0] == texts[1] and facts.get(one, 0) != facts.get(other, 0):
        return f"{facts.get(one)} B", f"{facts.get(other)} B"
    return texts


def _known(facts: Mapping[str, Fact], words: str, name: str) -> str:
    return f", {words} {_size(facts, name)}" if name in facts else ""


def _less_reserved(facts: Mapping[str, Fact]) -> str:
    """Return the term that tells where a capacity went, if anything is reserved."""
    return f" less {_size(facts, 'reserved')} reserved" if facts.get("reserved") else ""


def _held_by(facts: Mapping[str, Fact]) -> str:
    holders = facts.get("holders")
    return f"; held by {holders}" if holders else ""


def _bounds(facts: Mapping[str, Fact]) -> str:
    limits = facts.get("limits")
    return f" ({limits})" if limits else ""


def _items(facts: Mapping[str, Fact]) -> str:
    count = facts.get("batch", 1)
    return "1 item" if count == 1 else f"{count} items"


def _giver(facts: Mapping[str, Fact]) -> str:
    """Return who gives the resources that were refused."""
    return str(facts.get("giver", "this machine and policy"))


def _capacity_sentence(what: str) -> Callable[[Mapping[str, Fact]], str]:
    def write(facts: Mapping[str, Fact]) -> str:
        asked, limit = _compared(facts, "asked", "limit")
        return (
            f"a batch of {_items(facts)} needs {asked} of {what}, more than the "
            f"{limit} that {_giver(facts)} can ever give{_bounds(facts)}"
        )

    return write


def _by_experience(facts: Mapping[str, Fact]) -> str:
    """Return what batches of the kind took, if that entered the figures."""
    if "learned" not in facts:
        return ""
    count, size = facts.get("batches"), facts.get("of_batch", 1)
    rests_on = "1 batch" if count == 1 else f"{count} batches"
    need = "needs" if size == 1 else "need"
    return (
        f"; by {rests_on} of kind {facts.get('kind')!r}, {_items({'batch': size})} {need} "
        f"{_size(facts, 'learned')} of {facts.get('of')}, declared {_size(facts, 'declared')}"
    )


def _learned(facts: Mapping[str, Fact]) -> str:
    kind, cap = facts.get("kind"), _items({"batch": facts.get("found", 0)})
    if facts.get("resource") != "batch":
        return _short(facts)
    if "retry_after" in facts:
        return (
            f"a batch of kind {kind!r} ran out of memory: at most {cap}, until "
            f"{facts['retry_after']} batches went well{_by_experience(facts)}"
        )
    if not facts.get("largest"):
        unknown = f"no batch of kind {kind!r} was measured yet"
        return f"{unknown}: it starts with {cap}{_by_experience(facts)}"
    return (
        f"the largest batch of kind {kind!r} measured so far had {facts['largest']}: the next "
        f"has at most {cap}{_by_experience(facts)}"
    )


def _forecast(facts: Mapping[str, Fact]) -> str:
    grows = (
        f"others take {_size(facts, 'growth_bytes_s')} more each second, and such a batch "
        f"lasts {_seconds(facts)}"
    )
    if facts.get("resource") == "batch":
        cap = _items({"batch": facts.get("found", 0)})
        return f"{grows}: at most {cap} while that goes on{_by_experience(facts)}"
    return f"{grows}, which takes {_size(facts, 'forecast')}; {_short(facts)}"


def _seconds(facts: Mapping[str, Fact]) -> str:
    duration = facts.get("duration_s", 0.0)
    return f"{duration:.3g} s" if isinstance(duration, float) else f"{duration} s"


def _zone(facts: Mapping[str, Fact]) -> str:
    zone = facts.get("zone")
    if facts.get("resource") != "batch":
        return (
            f"the zone is {zone}: memory was all but gone, or pressure at a limit twice in a "
            f"row; {facts.get('found')} of {facts.get('asked')} healthy readings since then"
        )
    cap = _items({"batch": facts.get("found", 0)})
    if "doublings" in facts:
        recovers = "the machine recovers from the zone RED"
        return f"{recovers}: at most {cap}, more with each 3 readings{_by_experience(facts)}"
    no_growth = f"the zone is {zone}: no growth beyond the last batch of its kind"
    return f"{no_growth}, {cap}{_by_experience(facts)}"


def _ram_short(facts: Mapping[str, Fact]) -> str:
    asked, found = _compared(facts, "asked", "found")
    return (
        f"a batch of {_items(facts)} needs {asked} of RAM, "
        f"{found} on offer: {_size(facts, 'available')} available - "
        f"{_size(facts, 'reserve')} reserve - {_size(facts, 'promised')} promised, "
        f"capacity {_size(facts, 'limit')}{_less_reserved(facts)}{_held_by(facts)}{_bounds(facts)}"
        f"{_by_experience(facts)}"
    )


def _gpu_short(facts: Mapping[str, Fact]) -> str:
    asked, found = _compared(facts, "asked", "found")
    return (
        f"a batch of {_items(facts)} needs {asked} of memory on a GPU, "
        f"{found} on offer on {facts.get('device', 'the best one')}: "
        f"{_size(facts, 'available')} free - {_size(facts, 'reserve')} reserve - "
        f"{_size(facts, 'promised')} promised{_known(facts, 'in use by others', 'others')}"
        f"{_known(facts, 'capacity', 'limit')}{_less_reserved(facts)}{_held_by(facts)}"
        f"{_by_experience(facts)}"
    )


def _short(facts: Mapping[str, Fact]) -> str:
    return _gpu_short(facts) if facts.get("resource") == "gpu" else _ram_short(facts)


def _no_gpu(facts: Mapping[str, Fact]) -> str:
    if "giver" in facts:
        return _count_capacity("GPUs")(facts)
    return f"asked for {facts.get('asked')} GPUs, none is visible here{_bounds(facts)}"


def _gpu_capacity(facts: Mapping[str, Fact]) -> str:
    if "giver" in facts and not facts.get("bytes"):
        return _count_capacity("GPUs")(facts)
    need, largest = _compared(facts, "bytes", "capacity")
    return (
        f"asked for {facts.get('asked')} GPUs that can hold {need} each, "
        f"{facts.get('found')} of {facts.get('limit')} can (largest capacity {largest})"
    )


def _count_capacity(what: str) -> Callable[[Mapping[str, Fact]], str]:
    def write(facts: Mapping[str, Fact]) -> str:
        return (
            f"asked for {facts.get('asked')} {what}, more than the {facts.get('limit')} that "
            f"{_giver(facts)} can ever give"
        )

    return write


def _busy(what: str) -> Callable[[Mapping[str, Fact]], str]:
    def write(facts: Mapping[str, Fact]) -> str:
        return (
            f"needs {facts.get('asked')} {what}, {facts.get('found')} of "
            f"{facts.get('limit')} free{_held_by(facts)}"
        )

    return write


def _live(what: str, unit: str = "") -> Callable[[Mapping[str, Fact]], str]:
    def write(facts: Mapping[str, Fact]) -> str:
        found, limit = facts.get("found"), facts.get("limit")
        return f"{what} is {found}{unit}, at or above the limit {limit}{unit}"

    return write


def _ok(facts: Mapping[str, Fact]) -> str:
    return (
        f"{_items(facts)} granted: {_size(facts, 'asked')} of RAM asked, "
        f"{_size(facts, 'found')} on offer, capacity {_size(facts, 'limit')}"
        f"{_by_experience(facts)}"
    )


SENTENCES: Final[Mapping[ReasonCode, Callable[[Mapping[str, Fact]], str]]] = {
    ReasonCode.OK: _ok,
    ReasonCode.INVALID_SNAPSHOT: lambda f: f"the reading contradicts itself: {f.get('problem')}",
    ReasonCode.STALE_SNAPSHOT: lambda f: (
        f"the reading is {f.get('found')} s old, outside 0 to {f.get('limit')} s"
    ),
    ReasonCode.RAM_CAPACITY: _capacity_sentence("RAM"),
    ReasonCode.GPU_CAPACITY: _gpu_capacity,
    ReasonCode.NO_GPU: _no_gpu,
    ReasonCode.CPU_CAPACITY: _count_capacity("CPUs"),
    ReasonCode.IO_CAPACITY: _count_capacity("IO slots"),
    ReasonCode.RAM_SHORT: _ram_short,
    ReasonCode.GPU_MEMORY_SHORT: _gpu_short,
    ReasonCode.GPU_MEMORY_UNKNOWN: lambda f: (
        f"needs {f.get('asked')} GPUs with a known free figure, {f.get('found')} of "
        f"{f.get('limit')} say how much is free"
    ),
    ReasonCode.LEARNED: _learned,
    ReasonCode.FORECAST: _forecast,
    ReasonCode.ZONE: _zone,
    ReasonCode.GPUS_BUSY: _busy("GPUs with a free slot"),
    ReasonCode.CPUS_BUSY: _busy("CPUs"),
    ReasonCode.IO_SLOTS_BUSY: _busy("IO slots"),
    ReasonCode.MEMORY_PRESSURE: _live("memory pressure (PSI some avg10)", " %"),
    ReasonCode.CPU_PRESSURE: _live("CPU pressure (PSI some avg10)", " %"),
    ReasonCode.IO_PRESSURE: _live("IO pressure (PSI some avg10)", " %"),
    ReasonCode.LOAD: _live("the load average per CPU"),
    ReasonCode.PROBE_FAILED: lambda f: f"the machine could not be read: {f.get('error')}",
    ReasonCode.GOVERNOR_FAILED: lambda f: f"the governor failed: {f.get('error')}",
    ReasonCode.CALLBACK_RAISED: lambda f: f"the callback raised {f.get('error')}",
    ReasonCode.START_TIMEOUT: lambda f: (
        f"not admitted within {f.get('limit')} s: its turn did not come in time"
    ),
}
