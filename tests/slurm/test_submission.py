"""What a job is asked for and given: nobody else's variables, folders and texts as they are."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from lardon.dispatch.errors import InvalidError
from lardon.dispatch.model import JobSpec
from lardon.dispatch.slurm import SlurmBackend
from lardon.dispatch.slurm.delivery import MOST_BYTES, as_remote_command, marked
from lardon.dispatch.slurm.submission import job_script, submit_call
from tests.slurm.recorded import Scripted, job
from tests.slurm.test_parts import NAME, NONCE, REF, TOKEN, ULID


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Scripted]:
    one = Scripted(tmp_path)
    yield one
    one.backend.close()


def asked(**fields: Any) -> tuple[str, ...]:
    spec = JobSpec(id=ULID, **{"command": ["x"]} | fields)
    return submit_call(spec, attempt=NONCE, defaults={}, output_folder=None).argv


# What Slurm does not set for every job, and an enclosing job may have.
OF_ANOTHER_JOB: Final = {
    "SLURM_JOB_ID": "999",
    "SLURM_RESTART_COUNT": "3",
    "SLURM_MEM_PER_NODE": "77777",
    "SLURM_MEM_PER_CPU": "5555",
    "SLURM_CPUS_ON_NODE": "64",
    "SLURM_ARRAY_TASK_ID": "8",
}
# Each bends what was asked for: CPUs that are shared, a job that outlives its node, a status of
# 0 for a submission that failed, the bytes of another file on stdin.
OF_THE_USER: Final = {
    "SBATCH_OVERCOMMIT": "1",
    "SBATCH_NO_KILL": "1",
    "SLURM_EXIT_ERROR": "0",
    "SBATCH_INPUT": "/etc/hostname",
}


@pytest.mark.parametrize("set_before", [OF_ANOTHER_JOB, OF_THE_USER], ids=["job", "user"])
def test_what_stands_in_the_environment_reaches_no_submission(
    slurm: Scripted, monkeypatch: pytest.MonkeyPatch, set_before: dict[str, str]
) -> None:
    """docs/slurm.md: "what the user has set does not change it"; so for who submits from a job."""
    for name, value in set_before.items():
        monkeypatch.setenv(name, value)
    seen = slurm.bin / "environment"
    slurm.command("sbatch", f"env > {seen}; echo 7")
    slurm.queue(job("22.05.8"))

    assert slurm.backend.start(JobSpec(id=ULID, command=["true"])) == REF

    names = {line.partition("=")[0] for line in seen.read_text().splitlines()}
    assert not names & set(set_before)


def test_a_percent_sign_in_the_folder_of_a_job_is_one() -> None:
    """Slurm 22.05 expands the folder too: `%j` there named a folder that is not there."""
    argv = asked(directory="/data/100%j done")

    assert f"--output=/data/100%%j done/{NAME}.%j.out" in argv
    assert "--chdir=/data/100%j done" in argv
    assert f"--output={NAME}.%j.out" in asked(directory="/data/done")


def test_a_backslash_in_the_folder_of_a_job_is_refused() -> None:
    """With one, Slurm expands nothing, and the job fails before its command begins."""
    with pytest.raises(InvalidError, match="directory must be without a backslash"):
        asked(directory="/data/a\\b")
    with pytest.raises(InvalidError, match="output_folder"):
        SlurmBackend(output_folder="/data/a\\b")


def test_a_command_starts_in_its_folder_or_not_at_all(tmp_path: Path) -> None:
    """Where the folder is not there, Slurm starts the job in /tmp, and says so in its stderr."""

    def run(folder: Path) -> subprocess.CompletedProcess[str]:
        spec = JobSpec(id=ULID, command=["pwd"], directory=str(folder))
        script = ["sh", "-c", job_script(spec, NONCE)]
        return subprocess.run(script, cwd="/", capture_output=True, text=True, check=False)

    (there := tmp_path / "-a b'").mkdir()
    assert run(there).stdout == f"{there}\n"
    gone = run(tmp_path / "gone")
    assert (gone.returncode != 0, gone.stdout) == (True, "")


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        (r"command\[1\]", {"command": ["cat", "\udcff.jpg"]}),
        (r"environment\.PHOTO", {"environment": {"PHOTO": "\udcff.jpg"}}),
        ("directory", {"directory": "/data/\udcff"}),
    ],
)
def test_half_a_character_is_refused_by_its_field(field: str, fields: dict[str, Any]) -> None:
    """A name of a file that is no UTF-8 comes to Python with such halves in it."""
    with pytest.raises(InvalidError, match=rf"^{field} must be a text that UTF-8 can write"):
        asked(**fields)


def test_the_longest_script_goes_through_every_delivery() -> None:
    """Over ssh the script and what decodes it are one argument, of 128 KiB at most."""
    room = MOST_BYTES - len(marked(": x", TOKEN, {}).encode()) + 1
    text = marked(f": {'x' * room}", TOKEN, {})
    assert len(text.encode()) == MOST_BYTES

    for argument in (text, as_remote_command(text)):
        subprocess.run(["sh", "-c", argument], check=True, timeout=20, capture_output=True)
    with pytest.raises(InvalidError, match="short enough"):
        marked(f": {'x' * (room + 1)}", TOKEN, {})


@pytest.mark.parametrize("part", [{"offset": -1}, {"limit": -1}])
def test_a_part_of_an_output_begins_and_ends_in_it(slurm: Scripted, part: dict[str, Any]) -> None:
    with pytest.raises(InvalidError, match=f"{next(iter(part))} must be"):
        slurm.backend.read_output(REF, **part)
