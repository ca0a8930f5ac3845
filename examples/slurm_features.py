"""
The photo job on a Slurm cluster: governed jobs, adopted by name after a crash.

    python examples/slurm_features.py                      # 8 sample photographs
    python examples/slurm_features.py FOLDER --output /shared/survey
    python examples/slurm_features.py FOLDER --output /shared/survey --host login.example

The photographs are divided among jobs that find features, and one more job compares each
photograph with the next. What a job asks the cluster for and what its governor works with is
one estimate: inside the job, `map_batches` takes as many photographs at once as the job's own
limits hold.

Kill this program at any time and start it again with the same output folder: it finds its jobs
on the cluster by the names in `plan.json`, keeps one of each, and does no part twice.

Where no Slurm is set up, it starts a small cluster of its own in a temporary folder, for which
Debian's packages slurmctld, slurmd, slurm-client, slurm-wlm-basic-plugins and munge are needed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

try:
    from lardon.dispatch import DispatchError
    from lardon.dispatch.slurm import LocalTransport, SlurmBackend, SshTransport
    from lardon.testing.slurm_cluster import missing_packages, temporary_cluster
    from photo import samples
    from photo.pictures import find
    from slurm_photo.follow import Follower, GivenUpError
    from slurm_photo.plan import (
        FEATURES,
        MATCHES,
        InUseError,
        Part,
        Plan,
        alone,
        load_plan,
        make_plan,
        result_file,
        save_plan,
    )
    from slurm_photo.work import work
except ModuleNotFoundError as missing:
    print(
        f"slurm_features.py needs the package of {missing.name!r}, which is not installed.\n"
        f"In a checkout of lardon:  pip install -e '.[examples]'",
        file=sys.stderr,
    )
    sys.exit(2)

SAMPLE_COUNT: Final = 8
SAMPLE_SIZE: Final = (1200, 800)
# One question is the whole queue: a real cluster is not asked more often than it likes.
POLL_S: Final = 15.0
OWN_POLL_S: Final = 0.5
# Above the MessageTimeout of a small cluster, which is 4 s.
OWN_BOUND_S: Final = 6.0
DONE, FAILED, UNUSABLE = 0, 1, 2


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="slurm_features.py", description=__doc__.splitlines()[1])
    made.add_argument("folder", metavar="FOLDER", nargs="?", type=Path, help="photographs")
    made.add_argument(
        "--output", metavar="DIR", type=Path, default=Path("slurm_features_output"),
        help="where everything goes; the nodes must see it too (default: %(default)s)",
    )  # fmt: skip
    made.add_argument("--host", help="login node to reach over ssh (default: this machine)")
    made.add_argument("--partition", help="where the jobs go (default: what the cluster takes)")
    made.add_argument("--per-job", metavar="N", type=int, default=4, help="photographs of a job")
    made.add_argument("--at-once", metavar="N", type=int, default=2, help="most in memory at once")
    made.add_argument("--count", metavar="N", type=int, default=SAMPLE_COUNT, help="samples")
    made.add_argument(
        "--poll", metavar="SECONDS", type=float, default=POLL_S,
        help="how often to ask the cluster about all jobs (default: %(default)s)",
    )  # fmt: skip
    made.add_argument("--work", metavar="ID", help=argparse.SUPPRESS)
    return made


@contextlib.contextmanager
def backend_for(options: argparse.Namespace) -> Iterator[tuple[SlurmBackend, float]]:
    """Return a backend for the user's cluster, or for one of our own; and how often to ask it."""
    settings = {"partition": options.partition} if options.partition else {}
    if options.host is not None:
        backend = SlurmBackend(SshTransport(options.host), options=settings)
        with contextlib.closing(backend):
            yield backend, options.poll
    elif shutil.which("sbatch") is not None and _has_cluster():
        with contextlib.closing(SlurmBackend(LocalTransport(), options=settings)) as backend:
            yield backend, options.poll
    else:
        print("No Slurm is set up here: starting a cluster of two nodes in a temporary folder.")
        with temporary_cluster() as cluster:
            transport = LocalTransport(environment=cluster.environment)
            backend = SlurmBackend(transport, options=settings, bound_s=OWN_BOUND_S)
            with contextlib.closing(backend):
                yield backend, OWN_POLL_S


def _has_cluster() -> bool:
    return "SLURM_CONF" in os.environ or Path("/etc/slurm/slurm.conf").exists()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit status."""
    options = parser().parse_args(arguments)
    output: Path = options.output.resolve()
    if options.work is not None:
        return work_on(output, options.work, options.at_once)
    if options.host is None and not _has_cluster() and (absent := missing_packages()):
        print(f"No Slurm is set up here, and packages are missing: {' '.join(absent)}")
        return UNUSABLE

    def command(part: Part) -> Sequence[str]:
        program = [sys.executable, str(Path(__file__).resolve()), "--work", part.id]
        return [*program, "--output", str(output), "--at-once", str(options.at_once)]

    def say(text: str) -> None:
        print(text, flush=True)

    try:
        for name in ("features", "matches", "results"):
            (output / name).mkdir(parents=True, exist_ok=True)
        with alone(output), backend_for(options) as (backend, poll_s):
            plan = plan_for(options, output)
            bound_s = backend.declarations().call_bound_s
            say(f"Slurm {backend.facts().version}; a call lands within {bound_s:g} s or never.")
            follower = Follower(backend, output, command, options.at_once, poll_s, say)
            for step in (FEATURES, MATCHES):
                follower.bring_to_end(plan.step(step))
    except (DispatchError, GivenUpError, InUseError, OSError) as error:
        print(f"slurm_features.py: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        say("The jobs run on. Start this again to adopt them.")
        return 130
    for reason in left_out(plan, output):
        say(f"left out: {reason}")
    say(f"All {len(plan.parts)} parts are done; the results are in {output}.")
    return DONE


def left_out(plan: Plan, output: Path) -> list[str]:
    """Return why photographs or pairs have no result, as their jobs have written it."""
    results = [json.loads(result_file(output, part).read_text()) for part in plan.parts]
    return [reason for result in results for reason in result.get("left_out", ())]


def plan_for(options: argparse.Namespace, output: Path) -> Plan:
    """Return the plan that is there, or a new one, which is written down first."""
    plan = load_plan(output)
    if plan is not None:
        return plan
    if options.folder is not None:
        photographs = find(options.folder)[0]
    else:
        photographs = list(samples.write(output / "photographs", options.count, *SAMPLE_SIZE))
    plan = make_plan(photographs, options.per_job)
    save_plan(output, plan)
    return plan


def work_on(output: Path, part_id: str, at_once: int) -> int:
    """Do one part: this is what the jobs run."""
    plan = load_plan(output)
    assert plan is not None
    work(output, next(part for part in plan.parts if part.id == part_id), at_once)
    return DONE


if __name__ == "__main__":
    sys.exit(main())
