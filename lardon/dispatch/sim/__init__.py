"""
A simulator of the core: seeded runs in which nearly everything goes wrong, judged at each step.

    from lardon.dispatch.sim import Setting, simulate

    report = simulate(Setting(seed=7, shape="slurm"))

The real supervisor, operator, decisions and records run on the backend in memory and a manual
clock. Between any two of their steps a supervisor may crash, an answer may be lost or land
late, time may pass, and the cluster and its people do what they do. Which of these is next
the seed says, so a run can be made again, up to any step:

    python -m lardon.dispatch.sim --seed 7 --stop-at 120 --shape slurm
"""

from lardon.dispatch.sim.agenda import Agenda, Timer
from lardon.dispatch.sim.setting import Report, Setting, Step, Violation
from lardon.dispatch.sim.simulation import Simulation, simulate

__all__ = ["Agenda", "Report", "Setting", "Simulation", "Step", "Timer", "Violation", "simulate"]
