"""Reading the machine truthfully: containers, pressure, GPUs."""

from lardon.governor.probes.system import SystemProbe

__all__ = ["SystemProbe"]
