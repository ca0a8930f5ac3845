"""What a Slurm job was given, for clusters that enforce it without cgroups."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from lardon.governor.probes.files import Warnings
from lardon.units import MiB

# "24" or "24(x2)": the same count on each node. "16,8(x2)" differs from node to node, and
# the job does not say here which of them this one is.
_SAME_EVERYWHERE: Final = re.compile(r"(\d{1,9})(?:\(x\d{1,9}\))?", re.ASCII)
_PLAIN: Final = re.compile(r"\d{1,18}", re.ASCII)


class JobLimits(NamedTuple):
    """What the job may use on this node, and which variable says so; None is no limit."""

    ram_bytes: int | None = None
    ram_source: str = ""
    """Empty for a job that was not given a certain amount."""
    cpus: int | None = None
    cpus_source: str = ""
    ram_per_cpu_bytes: int | None = None
    """For a job that was given RAM per CPU and does not say how many CPUs."""


NO_JOB: Final = JobLimits()


def job_limits(environ: Mapping[str, str], warnings: Warnings) -> JobLimits:
    """Return the limits of the Slurm job that *environ* belongs to, `NO_JOB` outside of one."""
    if not environ.get("SLURM_JOB_ID"):
        return NO_JOB
    cpus, cpus_source = _cpus(environ, warnings)
    # 0 stands for "all the memory of the node".
    per_node = _plain(environ, "SLURM_MEM_PER_NODE", warnings)
    if per_node:
        return JobLimits(per_node * MiB, "SLURM_MEM_PER_NODE", cpus, cpus_source)
    per_cpu = _plain(environ, "SLURM_MEM_PER_CPU", warnings)
    if not per_cpu:
        return JobLimits(cpus=cpus, cpus_source=cpus_source)
    source = "SLURM_MEM_PER_CPU"
    if cpus is None:
        return JobLimits(None, source, None, "", per_cpu * MiB)
    return JobLimits(per_cpu * cpus * MiB, f"{source} x {cpus_source}", cpus, cpus_source)


def _cpus(environ: Mapping[str, str], warnings: Warnings) -> tuple[int | None, str]:
    if count := _plain(environ, "SLURM_CPUS_ON_NODE", warnings):
        return count, "SLURM_CPUS_ON_NODE"
    name = "SLURM_JOB_CPUS_PER_NODE"
    text = environ.get(name, "").strip()
    if not text:
        return None, ""
    found = _SAME_EVERYWHERE.fullmatch(text)
    if found is None or not int(found[1]):
        if "," not in text:
            warnings.warn(name, f"ignored, because {text[:40]!r} is not understood")
        return None, ""
    return int(found[1]), name


def _plain(environ: Mapping[str, str], name: str, warnings: Warnings) -> int | None:
    text = environ.get(name, "").strip()
    if not text:
        return None
    if _PLAIN.fullmatch(text) is None:
        warnings.warn(name, f"ignored, because {text[:40]!r} is not a plain integer")
        return None
    return int(text)
