"""The small examples run alone, say what happens, and leave nothing behind."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Final

import pytest

EXAMPLES: Final = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.slow


def output_of(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run the example as a program, and return what it printed."""
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


def test_quickstart(capsys: pytest.CaptureFixture[str]) -> None:
    """The batch is cut to what 256 MiB hold, and nothing stays reserved."""
    printed = output_of("quickstart.py", capsys)

    assert "A batch of up to 64 blocks? REDUCE_BATCH: a batch of 64 items needs 512 MiB" in printed
    sizes = [int(size) for size in re.findall(r"batch \d+: (\d+) blocks", printed)]
    assert sum(sizes) == 100
    assert max(sizes) == 32
    assert "Task 'checksums' is COMPLETED; reserved now: 0." in printed


def test_adaptive_batches(capsys: pytest.CaptureFixture[str]) -> None:
    """The batch shrinks while the viewer holds its share, and grows again afterwards."""
    printed = output_of("adaptive_batches.py", capsys)

    assert "viewer: asks for 160 MiB. WAIT" in printed
    assert "The batches were [24, 10, 10, 24, " in printed
    order = ["batch 0: 24", "viewer: asks", "viewer: is open", "viewer: is closed", "batch 3: 24"]
    places = [printed.index(text) for text in order]
    assert places == sorted(places)


def test_pause_and_cancel(capsys: pytest.CaptureFixture[str]) -> None:
    """A running task pauses at its checkpoint and is cancelled; a waiting one is passed over."""
    printed = output_of("pause_and_cancel.py", capsys)

    assert "Started: first is RUNNING, holds 16 MiB" in printed
    assert "Paused while it ran: first is PAUSED, holds 16 MiB" in printed
    assert "Paused while it waited: second is PAUSED, holds nothing" in printed
    assert "Cancelled: first is CANCELLED, holds nothing" in printed
    assert printed.index("third ran") < printed.index("second ran")


def test_embed_in_pipeline(capsys: pytest.CaptureFixture[str]) -> None:
    """Every clip goes through a pool that holds three of them, and all frames come back."""
    printed = output_of("embed_in_pipeline.py", capsys)

    written = [int(number) for number in re.findall(r"consumer: clip (\d+) is", printed)]
    assert written == list(range(12))
    assert "12 clips done, 0 bytes of the pool still taken." in printed
    assert "failed" not in printed


def test_asyncio_app(capsys: pytest.CaptureFixture[str]) -> None:
    """Three tasks are awaited while the loop stays free, and a slow one is cancelled."""
    printed = output_of("asyncio_app.py", capsys)

    assert all(f"{blocks} blocks: " in printed for blocks in (16, 8, 24))
    assert "the loop is free" in printed
    assert re.search(r"100,000 blocks: CANCELLED after \d+ blocks", printed)


def test_fake_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    """Preempted and lost jobs are submitted again, a late hold does nothing, epochs grow."""
    printed = output_of("fake_cluster.py", capsys)

    epochs = [int(number) for number in re.findall(r"epoch (\d+)", printed)]
    assert epochs == [1_000_000, 2_000_000, 3_000_000]
    order = ["cause Preempted", "cause NodeLost", "came too late", "certain at", "cause Completed"]
    places = [printed.index(text) for text in order]
    assert places == sorted(places)
    assert "job 4 is Pending, hold 1" in printed
    assert "an hour later job 3 is Unknown" in printed


def test_remote_pool(capsys: pytest.CaptureFixture[str]) -> None:
    """Two jobs are on the cluster at a time; one is preempted, and one gets more memory."""
    printed = output_of("remote_pool.py", capsys)

    assert "2 jobs are on the cluster and hold 16 GiB, 1 waits in line." in printed
    assert "medium: Completed after 2 execution(s)." in printed
    assert "large: OutOfMemory, so it is submitted again with 16 GiB." in printed
    assert "large: Completed after 1 execution(s)." in printed
    assert "Reserved now: 0." in printed
