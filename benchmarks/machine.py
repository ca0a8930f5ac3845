"""Notes on the machine, so that a figure can be read later."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from pathlib import Path
from typing import Any

PACKAGES = ("attrs", "psutil", "joblib", "distributed")


def first_line(path: str, prefix: str = "") -> str | None:
    """Return the first line of *path* that starts with *prefix*, or None."""
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    return next((line for line in lines if line.startswith(prefix)), None)


def cpu_model() -> str:
    """Return the processor's name, as far as the system tells it."""
    line = first_line("/proc/cpuinfo", "model name")
    return line.partition(":")[2].strip() if line else platform.processor() or "unknown"


def usable_cpus() -> int:
    """Return how many CPUs this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def present() -> dict[str, Any]:
    """Return what changes from minute to minute: load and pressure."""
    notes: dict[str, Any] = {}
    if hasattr(os, "getloadavg"):
        notes["load"] = [round(value, 2) for value in os.getloadavg()]
    for kind in ("cpu", "memory", "io"):
        line = first_line(f"/proc/pressure/{kind}", "some")
        if line is not None:
            notes[f"pressure_{kind}"] = line
    return notes


def versions() -> dict[str, str | None]:
    """Return the installed version of each package that is measured, None where absent."""
    found: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def notes() -> dict[str, Any]:
    """Return everything that a reader needs to place the figures."""
    memory = first_line("/proc/meminfo", "MemTotal")
    return {
        "cpu": cpu_model(),
        "cpus": usable_cpus(),
        "memory": " ".join(memory.split()[1:]) if memory else "unknown",
        "kernel": platform.release(),
        "system": platform.system(),
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "switch_interval_s": sys.getswitchinterval(),
        "packages": versions(),
        **present(),
    }


def describe(facts: dict[str, Any]) -> str:
    """Return the notes as the lines that stand above the tables."""
    packages = ", ".join(
        f"{name} {version or 'not installed'}" for name, version in facts["packages"].items()
    )
    system = f"{facts['system']} {facts['kernel']}"
    return "\n".join(
        [
            f"machine: {facts['cpu']}, {facts['cpus']} CPUs, {facts['memory']}, {system}",
            f"python:  {facts['implementation']} {facts['python']} ({packages})",
            f"before:  {describe_present(facts)}",
        ]
    )


def describe_present(facts: dict[str, Any]) -> str:
    """Return load and pressure in one line."""
    parts = [f"load {facts['load']}"] if "load" in facts else []
    for kind in ("cpu", "memory", "io"):
        line = facts.get(f"pressure_{kind}")
        if line is not None:
            parts.append(f"PSI {kind} {line.split()[1]}")
    return ", ".join(parts) or "load and pressure unknown"
