"""The photo job's follower on a cluster in memory: what it knows again, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("cv2", reason="the extra 'examples' is not installed")

from lardon.dispatch import Cessation, JobSpec, NotFoundError, OutcomeUnknown, Ref
from lardon.dispatch.memory import MemoryBackend
from lardon.testing import ManualClock
from photo import samples
from slurm_photo import follow, plan
from slurm_photo.work import work

ULID: Final = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
PART: Final = plan.Part(ULID, plan.FEATURES, ())


class Cluster:
    """A cluster in memory, with what the follower asks of the one for Slurm besides."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, output: Path) -> None:
        self.clock = ManualClock()
        self.memory = MemoryBackend(shape="slurm", clock=self.clock, slurmd_timeout_s=40)
        self.played = self.memory.env()
        self.output = output
        self.started: list[JobSpec] = []
        self.opened = 0
        self.openings_lost = 0
        self.script: Iterator[Any] = iter(())
        self.said: list[str] = []
        monkeypatch.setattr("slurm_photo.follow.time.sleep", self._sleep)
        monkeypatch.setattr("slurm_photo.follow.time.monotonic", self.clock.monotonic)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.memory, name)

    def start(self, job: JobSpec) -> Ref:
        self.started.append(job)
        return self.memory.start(job)

    def open(self, ref: Ref) -> None:
        self.opened += 1
        self.memory.open(ref)
        if self.opened <= self.openings_lost:
            message = "no answer"
            raise OutcomeUnknown(message)

    def stop_many(self, refs: Iterable[Ref]) -> None:
        for ref in refs:
            self.memory.stop(ref)

    def read_output(self, ref: Ref, **_: Any) -> bytes:
        raise NotFoundError("none", ref=ref)

    @property
    def newest(self) -> Ref:
        return self.memory.find_all(ULID)[-1].ref

    def done(self) -> None:
        plan.result_file(self.output, PART).write_text("{}")
        self.played.finish(self.newest, 0)

    def out_of_memory(self) -> None:
        self.played.run(self.newest)
        self.played.out_of_memory(self.newest)

    def run(self) -> None:
        self.played.run(self.newest)

    def _sleep(self, seconds: float) -> None:
        self.clock.advance(seconds)
        next(self.script)()

    def follow(self, *events: Any) -> None:
        """Bring the part to its end, while *events* happen one by one, whenever it sleeps."""
        self.script = iter(events)
        backend: Any = self
        follower = follow.Follower(
            backend, self.output, lambda _: ["x"], 1, 15, say=self.said.append
        )  # fmt: skip
        follower.bring_to_end([PART])


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cluster:
    (tmp_path / "results").mkdir()
    return Cluster(monkeypatch, tmp_path)


class Killed(BaseException):
    """The program ends here, as by kill -9."""


def killed() -> None:
    raise Killed


def test_a_part_that_ran_out_of_memory_keeps_its_larger_share(cluster: Cluster) -> None:
    """Over another failure, and over a restart of the program."""
    with pytest.raises(Killed):
        cluster.follow(cluster.out_of_memory, killed)
    cluster.follow(
        cluster.run,
        lambda: cluster.played.finish(cluster.newest, 1),
        cluster.run,
        cluster.done,
    )

    first, *later = [job.ram_bytes for job in cluster.started]
    assert first is not None
    assert later == [2 * first, 2 * first]


def test_a_lost_node_may_run_its_part_still_so_nothing_is_submitted(cluster: Cluster) -> None:
    """docs/slurm.md: no part is done twice; `ceased` is no until the node answers again."""
    (node,) = _run_and_lose(cluster)

    def recover() -> None:
        assert len(cluster.started) == 1
        cluster.played.recover_node(node)

    cluster.follow(*[lambda: None] * 5, recover, cluster.run, cluster.done)

    assert [job.submission for job in cluster.started] == [1, 2]
    assert sum("may run still" in line for line in cluster.said) == 1


def _run_and_lose(cluster: Cluster) -> tuple[str, ...]:
    def lose() -> None:
        cluster.run()
        cluster.played.lose_node(cluster.newest)
        raise Killed

    with pytest.raises(Killed):
        cluster.follow(lose)
    nodes = cluster.memory.observe_many([cluster.newest])[cluster.newest].nodes
    cluster.clock.advance(60)
    assert cluster.memory.ceased(cluster.newest) != Cessation(ceased=True, detail="")
    return tuple(nodes)


def test_an_opening_without_an_answer_is_asked_again(cluster: Cluster) -> None:
    cluster.openings_lost = 2

    cluster.follow(lambda: None, lambda: None, cluster.run, cluster.done)

    assert (cluster.opened, len(cluster.started)) == (3, 1)


def test_what_the_cluster_has_forgotten_keeps_its_number(cluster: Cluster) -> None:
    """docs/dispatch.md: an epoch is above that of every earlier execution of the job."""
    plan.log_file(cluster.output).write_text(f"{ULID} a.0\nanother b.0\n{ULID} c.0\n")

    cluster.follow(cluster.run, cluster.done)

    assert [job.submission for job in cluster.started] == [3]


def test_two_runs_never_use_one_folder(tmp_path: Path) -> None:
    """Both would submit the same parts, and each would open its own."""
    with plan.alone(tmp_path), pytest.raises(plan.InUseError, match="another run"):
        plan.alone(tmp_path).__enter__()
    with plan.alone(tmp_path):
        pass


def test_a_photograph_that_cannot_be_read_is_left_out_and_told(tmp_path: Path) -> None:
    """It would be as broken for the next job; the others of its part have their features."""
    for name in ("features", "matches", "results", "photographs"):
        (tmp_path / name).mkdir()
    good = [str(path) for path in samples.write(tmp_path / "photographs", 2, 600, 400)]
    bad = tmp_path / "photographs" / "bad.jpg"
    bad.write_bytes(b"no photograph")
    items = (good[0],), (str(bad),), (good[1],)
    part = plan.Part(ULID, plan.FEATURES, items)
    pairs = plan.Part(f"{ULID[:-1]}W", plan.MATCHES, ((good[0], str(bad)), (good[0], good[1])))

    for one in (part, pairs):
        work(tmp_path, one, 2)

    assert len(list((tmp_path / "features").iterdir())) == 2
    assert len(list((tmp_path / "matches").iterdir())) == 1
    assert "its format is not recognised" in plan.result_file(tmp_path, part).read_text()
    assert "bad.jpg: one of them was left out" in plan.result_file(tmp_path, pairs).read_text()


def test_a_photograph_that_is_not_there_is_no_broken_one(tmp_path: Path) -> None:
    """Another node may see it; leaving it out would be final."""
    (tmp_path / "results").mkdir()
    part = plan.Part(ULID, plan.FEATURES, ((str(tmp_path / "gone.jpg"),),))

    with pytest.raises(Exception, match=r"gone\.jpg"):
        work(tmp_path, part, 1)

    assert not plan.result_file(tmp_path, part).exists()
