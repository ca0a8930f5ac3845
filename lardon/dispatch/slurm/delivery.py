"""
How a script reaches a shell: whole or not at all, and with its output told from other output.

Source: the page "The deadline wrapper and the landing bound" of go/dispatch ("delivered whole,
and over ssh carried base64 encoded"), and the dispatch design, section 4.1.
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Mapping
from typing import Any, Final

from lardon.dispatch.errors import InvalidError
from lardon.dispatch.frozen_map import FrozenMap
from lardon.governor.checks import refuse

MOST_BYTES: Final = 95 * 1024
"""
Linux takes 128 KiB in one argument, base64 makes four bytes of three, and over ssh the same
argument holds the command that decodes them.
"""

# What a user may have set for tools that people read, and what a submission would take up
# without being told: an array, another cluster, waiting, a second kind of memory request, CPUs
# that are shared, a job that outlives its node.
AMBIENT: Final = (
    *("SLURM_CLUSTERS", "SLURM_TIME_FORMAT", "SLURM_JSON", "SLURM_YAML", "SLURM_BITSTR_LEN"),
    *("SCONTROL_ALL", "SCONTROL_FEDERATION", "SCONTROL_FUTURE", "SCONTROL_LOCAL"),
    *("SCONTROL_SIBLING", "SACCT_FEDERATION", "SACCT_FORMAT", "SACCT_LOCAL"),
    *("SINFO_ALL", "SINFO_FORMAT", "SINFO_PARTITION", "SINFO_SORT"),
    *("SQUEUE_ACCOUNT", "SQUEUE_ALL", "SQUEUE_ARRAY", "SQUEUE_FEDERATION", "SQUEUE_FORMAT"),
    *("SQUEUE_FORMAT2", "SQUEUE_LICENSES", "SQUEUE_LOCAL", "SQUEUE_NAMES", "SQUEUE_PARTITION"),
    *("SQUEUE_PRIORITY", "SQUEUE_QOS", "SQUEUE_SIBLING", "SQUEUE_SORT", "SQUEUE_STATES"),
    *("SQUEUE_USERS", "SCANCEL_ACCOUNT", "SCANCEL_BATCH", "SCANCEL_CRON", "SCANCEL_CTLD"),
    *("SCANCEL_FULL", "SCANCEL_HURRY", "SCANCEL_INTERACTIVE", "SCANCEL_JOB_NAME"),
    *("SCANCEL_NAME", "SCANCEL_PARTITION", "SCANCEL_QOS", "SCANCEL_STATE", "SCANCEL_USER"),
    *("SCANCEL_VERBOSE", "SCANCEL_WCKEY", "SBATCH_ARRAY_INX", "SBATCH_CLUSTERS"),
    *("SBATCH_CPUS_PER_GPU", "SBATCH_EXCLUSIVE", "SBATCH_GPUS", "SBATCH_GPUS_PER_NODE"),
    *("SBATCH_GPUS_PER_TASK", "SBATCH_GRES", "SBATCH_JOB_NAME", "SBATCH_MEM_PER_CPU"),
    *("SBATCH_MEM_PER_GPU", "SBATCH_MEM_PER_NODE", "SBATCH_NO_REQUEUE", "SBATCH_REQUEUE"),
    *("SBATCH_TIMELIMIT", "SBATCH_WAIT"),
    *("SBATCH_BATCH", "SBATCH_CORE_SPEC", "SBATCH_DEBUG", "SBATCH_DELAY_BOOT", "SBATCH_HINT"),
    *("SBATCH_INPUT", "SBATCH_NO_KILL", "SBATCH_OVERCOMMIT", "SBATCH_SPREAD_JOB"),
    *("SBATCH_THREAD_SPEC", "SBATCH_USE_MIN_NODES", "SLURM_EXIT_ERROR", "SLURM_HINT"),
    # Who submits from inside a job has its variables; the new job would inherit those that
    # Slurm does not set for it, and take another job's restarts and memory for its own.
    *("SLURM_RESTART_COUNT", "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU", "SLURM_MEM_PER_NODE"),
    *("SLURM_CPUS_ON_NODE", "SLURM_CPUS_PER_GPU", "SLURM_CPUS_PER_TASK", "SLURM_NTASKS"),
    *("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_CPUS_PER_NODE", "SLURM_JOB_GPUS"),
    *("SLURM_GPUS", "SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK"),
    *("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_ID"),
    *("SLURM_ARRAY_TASK_MAX", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_STEP"),
    *("SLURM_HET_SIZE", "SLURM_JOB_DEPENDENCY", "SLURM_STEP_ID", "SLURM_STEPID"),
)
"""Variables that change what Slurm's commands or their jobs do; every script unsets them."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def environment(value: Any) -> Mapping[str, str]:
    """Return *value* as variables of a shell, or raise `InvalidError` with the wrong one."""
    if not isinstance(value, Mapping):
        raise refuse(InvalidError, "environment", value, "a mapping of names to texts")
    for name, text in value.items():
        path = f"environment.{name}"
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise refuse(InvalidError, path, text, "named as a shell names a variable")
        if not isinstance(text, str) or "\0" in text:
            raise refuse(InvalidError, path, text, "a text that holds no NUL")
    return FrozenMap(value)


def marked(script: str, token: str, variables: Mapping[str, str]) -> str:
    """
    Return the text that runs *script* behind a mark on stdout and on stderr.

    Banners and login scripts print before the marks, and what is not behind them is not
    read. The text is one group: a shell parses all of it before it runs any.
    """
    exports = [f"export {name}={shlex.quote(text)}" for name, text in variables.items()]
    mark = f"printf '\\036begin {token}\\n'"
    lines = ["{", mark, f"{mark} >&2", f"unset {' '.join(AMBIENT)}", *exports, script.rstrip(), "}"]
    text = "\n".join(lines) + "\n"
    if len(text.encode()) > MOST_BYTES:
        rule = f"short enough for a script of at most {MOST_BYTES} bytes"
        raise refuse(InvalidError, "script", f"{len(text.encode())} bytes", rule)
    return text


def behind_mark(stream: str, token: str) -> str | None:
    """Return what *stream* holds behind its mark, None when the mark is not there."""
    _, mark, rest = stream.partition(f"\x1ebegin {token}\n")
    return rest if mark else None


def as_remote_command(text: str) -> str:
    """
    Return the one command that makes a login shell of any kind run *text* in sh.

    One argument carries all of it; the decoder reads it to its end before sh sees any.
    """
    encoded = base64.b64encode(text.encode()).decode()
    return f'exec sh -c \'eval "$(printf %s "$1" | base64 -d)"\' sh {encoded}'
