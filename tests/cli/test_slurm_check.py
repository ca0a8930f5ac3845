"""`lardon slurm check`, on commands that a test has put on PATH."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.recorded import Scripted

Call = Callable[..., Any]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    one = Scripted(tmp_path)
    one.backend.close()
    monkeypatch.setenv("PATH", f"{one.bin}:{os.environ['PATH']}")
    return one


def test_it_says_how_late_a_call_can_land_and_why(cluster: Scripted, command: Call) -> None:
    cluster.configure(info="ttl=8")

    answer = command("slurm", "check", "--skew", "4s")

    assert (answer.status, answer.err) == (0, "")
    words = [line.split() for line in answer.out.splitlines()]
    assert ["Slurm", "22.05.8"] in words
    assert "auth/munge, good for 8 s" in answer.out
    for term in ("B 25.000 s", "TTL 8.000 s", "whole second 1.000 s", "skew 4.000 s"):
        assert term.split() in words
    assert "a call has landed, or never will, 41 s after its deadline" in answer.out
    assert ["AccountingHistory", "no", "probed"] in words


def test_the_same_as_json(cluster: Scripted, command: Call) -> None:
    cluster.configure(storage="slurmdbd")
    cluster.command("sacct", "exit 0")

    found = json.loads(command("slurm", "check", "--json", "--ttl", "1m").out)

    assert found["call_bound_s"] == sum(found["terms"].values()) == 25 + 60 + 1 + 2 + 3
    assert found["capabilities"]["AccountingHistory"] == {"value": "yes", "source": "probed"}
    assert found["clock_offset_s"] is None


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (["--bound", "9s"], 1, "more than the cluster's MessageTimeout, which is 10 s"),
        (["--bound", "soon"], 2, "not a duration"),
        (["--bound", "0s"], 2, "bound_s must be"),
        (["--host=-x"], 2, "host must be"),
        (["--host", "there", "--ssh-option", "ProxyCommand=false"], 1, "cannot be read"),
        (["--ssh-option", "Port=22"], 2, "nothing is reached over ssh without --host"),
    ],
)
def test_what_cannot_be_used_says_why(
    cluster: Scripted, command: Call, options: list[str], status: int, said: str
) -> None:
    answer = command("slurm", "check", *options)

    assert (answer.status, answer.out) == (status, "")
    assert said in answer.err


def test_without_slurm_it_says_so(
    command: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "timeout").write_text("#!/bin/sh\necho 'scontrol: not found' >&2\nexit 127\n")
    (tmp_path / "timeout").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    answer = command("slurm", "check")

    assert answer.status == 1
    assert "scontrol: not found" in answer.err
