"""What is asked of `sbatch` for a job, and which id it answered with."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping
from typing import Any, Final

import attrs

from lardon.dispatch.errors import InvalidError
from lardon.dispatch.frozen_map import FrozenMap
from lardon.dispatch.model import EPOCH_BOUND, JobSpec
from lardon.dispatch.slurm.delivery import environment
from lardon.dispatch.slurm.faults import UnreadableAnswer
from lardon.dispatch.slurm.wrapper import Call
from lardon.governor.checks import refuse
from lardon.units import MiB

NAMESPACE: Final = "slurm"
"""The extensions of a `JobSpec` that this adapter reads."""

OPTIONS: Final = frozenset(
    {"account", "constraint", "exclude", "gpu-bind", "licenses", "mail-type", "mail-user", "nice"}
    | {"nodelist", "partition", "prefer", "qos", "reservation", "signal", "tmp", "wckey"}
)
"""What may be set there: none of these changes what is gated, held or requeued."""

# A job's environment is the caller's, with the zone that the wrapper has set for its call.
_PREAMBLE: Final = '[ "${TZ-}" = UTC0 ] && unset TZ\n'
_NOTE: Final = re.compile(r"lardon:([1-9]\d{0,5}):([0-9a-f]{32})", re.ASCII)
# `--parsable`: the id, and behind a semicolon the cluster where there is more than one.
_PARSABLE: Final = re.compile(r"([1-9]\d{0,9})(?:;([A-Za-z0-9._-]+))?", re.ASCII)


@attrs.frozen
class Note:
    """What a job says about itself in its comment, for the one who finds it later."""

    submission: int
    attempt: str


def write_note(submission: int, attempt: str) -> str:
    """Return the comment of a job."""
    return f"lardon:{submission}:{attempt}"


def read_note(comment: str) -> Note | None:
    """Return what the comment says, or None when it is no note of ours."""
    found = _NOTE.fullmatch(comment)
    return Note(int(found[1]), found[2]) if found else None


def options(value: Any, name: str = "options") -> Mapping[str, str]:
    """Return *value* as options for `sbatch`, or raise `InvalidError` with the wrong one."""
    if not isinstance(value, Mapping):
        raise refuse(InvalidError, name, value, "a mapping of options to texts")
    for key, text in value.items():
        path = f"{name}.{key}"
        if key not in OPTIONS:
            raise refuse(InvalidError, path, text, f"one of {', '.join(sorted(OPTIONS))}")
        if not isinstance(text, str) or not text or "\0" in text:
            raise refuse(InvalidError, path, text, "a text that is not empty and holds no NUL")
    return FrozenMap(value)


def submit_call(
    spec: JobSpec, *, attempt: str, defaults: Mapping[str, str], output_folder: str | None
) -> Call:
    """
    Return the call that submits *spec*: gated, and never restarted by Slurm itself.

    Memory is rounded up to MiB and time to seconds (Slurm rounds it up to minutes).

    Args:
        spec: The job.
        attempt: 32 hex digits; with the number of the restart they name an execution.
        defaults: Options for jobs that do not set them.
        output_folder: Where output goes; None is where the job starts.

    """
    _check_texts(spec)
    own = options(dict(spec.extensions.get(NAMESPACE, {})), f"extensions.{NAMESPACE}")
    output = f"{output_folder}/{spec.name}" if output_folder else _where_it_starts(spec)
    argv = [
        "sbatch",
        "--parsable",
        "--hold",
        "--no-requeue",
        f"--job-name={spec.name}",
        f"--comment={write_note(spec.submission, attempt)}",
        f"--nodes={spec.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={spec.cpus}",
        f"--output={output}.%j.out",
        f"--error={output}.%j.err",
        "--open-mode=append",
    ]
    if spec.ram_bytes is not None:
        argv.append(f"--mem={math.ceil(spec.ram_bytes / MiB)}M")
    if spec.gpus:
        argv.append(f"--gres=gpu:{spec.gpus}")
    if spec.time_limit_s is not None:
        argv.append(f"--time={_clock(spec.time_limit_s)}")
    if spec.directory is not None:
        argv.append(f"--chdir={spec.directory}")
    argv += [f"--{name}={text}" for name, text in sorted({**defaults, **own}.items())]
    argv.append(f"--wrap={job_script(spec, attempt)}")
    return Call(tuple(argv))


def _check_texts(spec: JobSpec) -> None:
    """Refuse what no script can hold: the halves of characters that an odd file name becomes."""
    texts = {f"command[{place}]": text for place, text in enumerate(spec.command)}
    texts |= {f"environment.{name}": text for name, text in spec.environment.items()}
    texts["directory"] = spec.directory or ""
    for path, text in texts.items():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise refuse(InvalidError, path, text, "a text that UTF-8 can write") from None


def _where_it_starts(spec: JobSpec) -> str:
    """
    Return the beginning of the paths that a job writes to when no folder is set for them.

    Slurm puts the folder before the pattern and expands both. `%%` stands for a percent sign,
    and nothing for a backslash: it ends the expansion, and the job then fails as it starts.
    """
    folder = spec.directory or ""
    if "\\" in folder:
        rule = "without a backslash, unless there is an output folder"
        raise refuse(InvalidError, "directory", folder, rule)
    if folder.startswith("/") and "%" in folder:
        return f"{folder.replace('%', '%%')}/{spec.name}"
    return spec.name


def job_script(spec: JobSpec, attempt: str) -> str:
    """
    Return what the job runs: its command, with the identity of this execution.

    A requeued job runs the same text again, so what differs is worked out there.
    """
    first = spec.submission * EPOCH_BOUND
    exports = {
        "DISPATCH_JOB": spec.id,
        "DISPATCH_ATTEMPT": f'"{attempt}.${{SLURM_RESTART_COUNT:-0}}"',
        "DISPATCH_EPOCH": f'"$(({first} + ${{SLURM_RESTART_COUNT:-0}}))"',
        **{name: shlex.quote(text) for name, text in environment(spec.environment).items()},
    }
    lines = [f"export {name}={text}" for name, text in exports.items()]
    if (spec.directory or "").startswith("/"):
        # Where it is not there, Slurm starts the script in /tmp instead.
        lines.append(f"cd -- {shlex.quote(str(spec.directory))} || exit")
    return f"{_PREAMBLE}{chr(10).join(lines)}\nexec {shlex.join(spec.command)}"


def output_file(name: str, job_id: int | str, which: str) -> str:
    """Return the file, in the folder of the output, that a job writes *which* stream to."""
    return f"{name}.{job_id}.{'out' if which == 'stdout' else 'err'}"


def submitted_id(stdout: str) -> int:
    """
    Return the id that `sbatch --parsable` printed: one line, and nothing else.

    Raises:
        UnreadableAnswer: anything else was printed; an id is never guessed out of it.

    """
    lines = [line.strip() for line in stdout.splitlines() if line.strip()]
    found = _PARSABLE.fullmatch(lines[0]) if len(lines) == 1 else None
    if found is None:
        message = f"no id that can be read in what sbatch printed: {stdout[:200]!r}"
        raise UnreadableAnswer(message)
    return int(found[1])


def _clock(seconds: float) -> str:
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
