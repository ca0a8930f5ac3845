"""What the cluster of a simulated run is like, as the seed has it."""

from __future__ import annotations

import random
from typing import Final

from lardon.dispatch.enums import Capability, Shape, Tristate
from lardon.dispatch.model import Support

# Short, so that a run of few steps sees calls settle and records being purged.
_CALL_BOUND_S: Final = 20.0
_MIN_JOB_AGE_S: Final = 90.0
_SLURMD_TIMEOUT_S: Final = 40.0
_EVIDENCE_WINDOW_S: Final = 60.0


def cluster_settings(shape: Shape, rng: random.Random) -> dict[str, object]:
    """Return the settings of a backend in memory."""
    settings: dict[str, object] = {
        "shape": shape,
        "call_bound_s": _CALL_BOUND_S,
        "min_job_age_s": _MIN_JOB_AGE_S,
        "slurmd_timeout_s": _SLURMD_TIMEOUT_S,
        "evidence_window_s": _EVIDENCE_WINDOW_S,
        # Small enough that streams end now and then.
        "watch_buffer": rng.choice([1, 100]),
    }
    if shape is Shape.SLURM:
        settings["max_job_id"] = rng.choice([12, 1000])
        resets = settings["requeue_resets_submit_time"] = rng.choice([False, True])
        settings["capabilities"] = {
            Capability.REQUEUE_ENDED: Support(rng.choice([Tristate.YES, Tristate.NO])),
            # Else an object that was put back, and purged before anybody looked, would be
            # one that nobody has ever heard of: its old identity names nothing.
            Capability.ACCOUNTING_HISTORY: Support(Tristate.YES if resets else Tristate.NO),
        }
    return settings
