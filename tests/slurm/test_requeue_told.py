"""A requeue whose new identity is not seen is never told as one that was not made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lardon.dispatch.errors import BackendClosed, OutcomeUnknown
from lardon.dispatch.slurm.acting import Actor
from tests.slurm.jobs import within
from tests.slurm.recorded import Scripted, job
from tests.slurm.test_parts import NONCE, REF


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Scripted]:
    one = Scripted(tmp_path)
    yield one
    one.backend.close()


def put_back(slurm: Scripted, *, then: str = "true") -> Actor:
    """Return an actor on a running job, whose requeue works; nobody can wait after it."""
    slurm.queue(job("22.05.8", states=["RUNNING"]))
    requeued = f"case $* in *Requeue=0) {then};; esac; exit 0"
    slurm.command("scontrol", f'[ "$1" = show ] && cat {slurm.bin}/config; {requeued}')

    def closed(_: float) -> None:
        message = "the backend is closed"
        raise BackendClosed(message)

    return Actor(slurm.backend._cluster, slurm.clock, lambda: NONCE, closed)


@pytest.mark.parametrize("then", ["true", "echo nonsense > QUEUE"], ids=["closed", "unreadable"])
def test_a_requeue_that_was_made_is_never_told_as_none(slurm: Scripted, then: str) -> None:
    """
    docs/slurm.md says of an answer that is unreadable: "Nothing was changed".

    `close` says: "who waits for a call is told that its outcome is unknown".
    """
    actor = put_back(slurm, then=then.replace("QUEUE", str(slurm.bin / "queue")))

    with pytest.raises(OutcomeUnknown, match="was put back") as unknown:
        actor.requeue(REF, within())

    assert unknown.value.settles_at is not None
    assert slurm.calls("scontrol")[-1] == "scontrol update JobId=7 Requeue=0"
