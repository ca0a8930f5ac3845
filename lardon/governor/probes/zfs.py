"""The cache of ZFS, which the kernel counts as neither free nor available."""

from __future__ import annotations

from lardon.governor.probes.kernel_text import amount, field, shown
from lardon.units import format_bytes

PATH = "/proc/spl/kstat/zfs/arcstats"


def parse_arc(raw: bytes) -> tuple[str, ...]:
    """
    Return one sentence on the cache, none when it holds nothing that it could give back.

    It is told and not credited: how fast the cache shrinks under pressure is not known,
    and its target size `c` says nothing about what it holds.

    Raises:
        ValueError: the file is not the table of statistics.

    """
    size, smallest = _value(raw, b"size"), _value(raw, b"c_min")
    if size <= smallest:
        return ()
    told = (
        f"the ZFS ARC holds {format_bytes(size)}, of which {format_bytes(size - smallest)} "
        f"could shrink; none of it is counted as available ({PATH})"
    )
    return (told,)


def _value(raw: bytes, name: bytes) -> int:
    # name  type  data, in columns
    row = field(raw, name + b" ")
    columns = row.split() if row is not None else []
    if not columns:
        message = f"no {name.decode()} in {shown(raw)}"
        raise ValueError(message)
    return amount(columns[-1])
