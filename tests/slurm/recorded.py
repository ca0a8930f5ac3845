"""What Slurm's tools print, by version, written by hand from the forms that are documented."""

from __future__ import annotations

import datetime
import json
import stat
from pathlib import Path
from typing import Any, Final

from lardon.dispatch.slurm import LocalTransport, SlurmBackend
from lardon.testing import ManualClock

VERSIONS: Final = ("22.05.8", "23.02.7", "23.11.10", "24.05.4", "25.11.1")
# 2027-01-15T08:00:00Z.
SUBMITTED: Final = 1_800_000_000
UID: Final = 1234

CONFIG: Final = """\
Configuration data as of 2027-01-15T08:00:00
AccountingStorageType   = accounting_storage/{storage}
AuthInfo                = {info}
AuthType                = auth/munge
ClusterName             = alpha
MessageTimeout          = 10 sec
MinJobAge               = 300 sec
SLURM_VERSION           = {version}
"""


def number(version: str, value: int | None) -> Any:
    """Return a number as that version writes it: since 23.02 as an object."""
    if version.startswith("22."):
        return value
    return {"set": value is not None, "infinite": False, "number": value or 0}


def job(version: str, **fields: Any) -> dict[str, Any]:
    """Return one job as that version lists it; *fields* are in the words of 22.05."""
    old = version.startswith("22.")
    lists = not old and not version.startswith("23.02")
    states = fields.get("states", ["RUNNING"])
    status = fields.get("exit_code", 0)
    made: dict[str, Any] = {
        "job_id": fields.get("job_id", 7),
        "name": fields.get("name", "dj-01ARZ3NDEKTSV4RRFFQ69G5FAV"),
        "user_id": fields.get("user_id", UID),
        "user_name": "ada",
        # A list of the state and its flags since 23.11; before that the flag hides the state.
        "job_state": states if lists else states[-1],
        "state_reason": fields.get("reason", "None"),
        "state_description": "",
        "submit_time": number(version, SUBMITTED),
        "eligible_time": number(version, fields.get("eligible", SUBMITTED)),
        "requeue": fields.get("requeue", False),
        "restart_cnt": fields.get("restarts", 0),
        "nodes": fields.get("nodes", "n1"),
        "current_working_directory": "/home/ada",
        "comment": fields.get("comment", "lardon:1:" + "a" * 32),
        "array_job_id": number(version, fields.get("array_job_id", 0)),
        "het_job_id": number(version, 0),
    }
    if not lists:
        made["exit_code"] = number(version, status)
    else:
        made["exit_code"] = {
            "status": ["SUCCESS" if status == 0 else "ERROR"],
            "return_code": number(version, status >> 8),
            "signal": {"id": number(version, status & 127), "name": ""},
        }
    if version.startswith("24.05"):
        made["nodes"] = {"count": 1, "list": fields.get("nodes", "n1")}
    if version >= "25.11":
        made["sluid"] = "s0123456789ABCDE"
    return made


def listing(version: str, *jobs: dict[str, Any], errors: list[Any] | None = None) -> str:
    """Return what `squeue --json` prints."""
    major, minor, micro = version.split(".")
    word = "Slurm" if version < "23.11" else "slurm"
    parts: Any = {"major": int(major), "minor": int(minor), "micro": int(micro)}
    if word == "slurm":
        parts = {name: f"{value:02}" for name, value in parts.items()}
    return json.dumps(
        {"meta": {word: {"version": parts, "release": version}}, "errors": errors or [],
         "jobs": list(jobs)}
    )  # fmt: skip


OUTAGE: Final = [
    {"description": "", "error_number": 1800, "error": "Unable to contact slurm controller"}
]


class Scripted:
    """Commands that print what a test says, and a backend that runs them."""

    def __init__(self, folder: Path, version: str = "22.05.8") -> None:
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        self.log = folder / "calls"
        self.version = version
        # The deadline of a call is checked by the host, whose clock is a real one.
        self.clock = ManualClock(wall=datetime.datetime.now(datetime.UTC))
        self.command("id", f"echo {UID}")
        self.configure()
        self.queue()
        self.backend = self.new_backend()

    def new_backend(self, **settings: Any) -> SlurmBackend:
        """Return another backend on the same commands."""
        environment = {"PATH": f"{self.bin}:/usr/bin:/bin"}
        transport = LocalTransport(environment=environment)
        return SlurmBackend(transport, clock=self.clock, **settings)

    def configure(self, *, storage: str = "none", info: str = "(null)") -> None:
        """Let the cluster say that of itself."""
        text = CONFIG.format(version=self.version, storage=storage, info=info)
        (self.bin / "config").write_text(text)
        self.command("scontrol", f'[ "$1" = show ] && cat {self.bin}/config')

    def queue(self, *jobs: dict[str, Any], errors: list[Any] | None = None) -> None:
        """Let `squeue` list these."""
        self.say_queue(listing(self.version, *jobs, errors=errors))

    def say_queue(self, text: str, status: int = 0) -> None:
        """Let `squeue` print *text*."""
        new = self.bin / "queue.new"
        new.write_text(text)
        # A watcher may be reading.
        new.rename(self.bin / "queue")
        self.command("squeue", f"cat {self.bin}/queue; exit {status}")

    def command(self, name: str, body: str) -> None:
        """Put a command on PATH, which logs how it was called."""
        new = self.bin / f"{name}.new"
        new.write_text(f'#!/bin/sh\nprintf "%s\\n" "{name} $*" >> {self.log}\n{body}\n')
        new.chmod(new.stat().st_mode | stat.S_IXUSR)
        new.rename(self.bin / name)

    def calls(self, name: str) -> list[str]:
        """Return how the command was called, in order."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line for line in lines if line.split()[0] == name]
