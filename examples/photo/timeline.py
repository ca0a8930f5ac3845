"""A picture of a run: the machine's memory, lardon's part of it, and the batches."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lardon.units import GiB, MiB
from photo.results import written_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from photo.recorder import Batch, Sample, Wait

FORMATS: Final = frozenset({".png", ".svg", ".pdf"})

# Colours that colour-blind people can tell apart (Okabe and Ito, 2008).
TASK_COLOURS: Final = ("#0072B2", "#E69F00", "#009E73")
AVAILABLE_COLOUR: Final = "#56B4E9"
RESERVED_COLOUR: Final = "#CCCCCC"
USED_COLOUR: Final = "#D55E00"
# Room above the highest value, for the figures on the bars.
HEADROOM: Final = 1.15


def draw(
    path: Path,
    samples: Sequence[Sample],
    batches: Sequence[Batch],
    waits: Sequence[Wait],
    limit_bytes: int | None = None,
) -> None:
    """Write the picture to *path*, in the format that its suffix names; raises OSError."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7), layout="constrained")
    machine, process, sizes = figure.subplots(3, sharex=True, height_ratios=(2, 4, 3))
    _draw_available(machine, samples)
    _draw_process(process, samples, limit_bytes)
    _draw_batches(sizes, batches)
    for axes in (machine, process, sizes):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.3)
        axes.set_ylim(0, HEADROOM * axes.dataLim.y1)
        for number, wait in enumerate(waits):
            ended_s = wait.ended_s if wait.ended_s is not None else samples[-1].at_s
            label = "waiting" if number == 0 else None
            axes.axvspan(wait.started_s, ended_s, color="black", alpha=0.12, lw=0, label=label)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    sizes.set_xlabel("seconds since the queue started")
    sizes.set_xlim(0, samples[-1].at_s)
    with written_whole(path) as file:
        figure.savefig(file, format=path.suffix[1:].lower(), dpi=110)


def _draw_available(axes: Axes, samples: Sequence[Sample]) -> None:
    at_s = [sample.at_s for sample in samples]
    available = [sample.available_bytes / GiB for sample in samples]
    axes.plot(at_s, available, color=AVAILABLE_COLOUR, label="available")
    axes.set_ylabel("machine, GiB")


def _draw_process(axes: Axes, samples: Sequence[Sample], limit_bytes: int | None) -> None:
    at_s = [sample.at_s for sample in samples]
    most = max(max(sample.reserved_bytes, sample.used_bytes) for sample in samples)
    unit, name = (GiB, "GiB") if most >= GiB else (MiB, "MiB")
    reserved = [sample.reserved_bytes / unit for sample in samples]
    used = [sample.used_bytes / unit for sample in samples]
    axes.fill_between(at_s, reserved, step="post", color=RESERVED_COLOUR, lw=0, label="reserved")
    axes.plot(at_s, used, color=USED_COLOUR, lw=1.5, label="used")
    if limit_bytes is not None:
        axes.axhline(limit_bytes / unit, color="black", ls="--", lw=1, label="limit")
    axes.set_ylabel(f"this process, {name}")


def _draw_batches(axes: Axes, batches: Sequence[Batch]) -> None:
    names = list(dict.fromkeys(batch.task for batch in batches))
    for name, colour in zip(names, cycle(TASK_COLOURS), strict=False):
        mine = [batch for batch in batches if batch.task == name]
        bars = axes.bar(
            [batch.started_s for batch in mine],
            [batch.size for batch in mine],
            [batch.ended_s - batch.started_s for batch in mine],
            align="edge",
            color=colour,
            edgecolor="white",
            label=name,
        )
        axes.bar_label(bars, fontsize=8)
    axes.set_ylabel("photographs or\npairs in a batch")
