"""The files that jobs write: what a user reads, and what says that memory ran out."""

from __future__ import annotations

import base64
import binascii
import re
import shlex
from collections.abc import Iterable
from typing import Final

from lardon.dispatch.slurm.faults import UnreadableAnswer
from lardon.dispatch.slurm.rows import JobRow
from lardon.dispatch.slurm.submission import output_file

# Slurm's step manager says why it ended a job at the end of the job's stderr. The state of the
# job says it only where cgroups enforce memory.
_OUT_OF_MEMORY: Final = re.compile(
    r"^slurmstepd[^:]*: error: .*"
    r"(?:exceeded memory limit|exceeded (?:job|step) memory limit|oom[-_ ]kill|out of memory)",
    re.IGNORECASE | re.MULTILINE,
)
_TAIL_BYTES: Final = 4096
_SEEN: Final = "\x1d"


def output_path(name: str, job_id: int | str, which: str, folder: str) -> str:
    """Return the file that a job writes *which* stream to, ``stdout`` or ``stderr``."""
    return f"{folder}/{output_file(name, job_id, which)}"


def reading_script(path: str, offset: int, limit: int | None) -> str:
    """Return the script that prints a part of a file, in base64 behind a word of its own."""
    file = shlex.quote(path)
    part = f"tail -c +{offset + 1} {file}" + ("" if limit is None else f" | head -c {limit}")
    return f"if [ -f {file} ]; then echo there; {part} | base64; else echo absent; fi\n"


def read_part(printed: str) -> bytes | None:
    """
    Return what `reading_script` printed, None where there is no such file.

    Raises:
        UnreadableAnswer: it printed something else.

    """
    word, _, encoded = printed.partition("\n")
    if word == "absent":
        return None
    try:
        if word == "there":
            return base64.b64decode("".join(encoded.split()), validate=True)
    except binascii.Error:
        pass
    message = f"no output that can be read: {printed[:80]!r}"
    raise UnreadableAnswer(message)


def evidence_script(rows: Iterable[JobRow], folder: str | None) -> str:
    """Return the script that prints the end of the stderr of each job, behind its id."""
    lines = []
    for row in rows:
        path = output_path(row.name, row.job_id, "stderr", folder or row.directory)
        file = shlex.quote(path)
        lines.append(f"printf '\\035%s\\n' {row.job_id}; tail -c {_TAIL_BYTES} {file} 2>/dev/null")
    return "\n".join([*lines, "true"]) + "\n"


def out_of_memory_in(printed: str) -> frozenset[int]:
    """Return the ids of the jobs whose stderr says that they took more memory than they had."""
    found = set()
    for part in printed.split(_SEEN)[1:]:
        number, _, text = part.partition("\n")
        if number.isdecimal() and _OUT_OF_MEMORY.search(text):
            found.add(int(number))
    return frozenset(found)
