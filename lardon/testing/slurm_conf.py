"""The slurm.conf of a cluster that lives in one folder, quick enough to test with."""

from __future__ import annotations

import getpass
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

CREDENTIAL_TTL_S = 8
"""
How long the controller takes a request that waited: munge's own 300 s make a test of the
landing bound take half an hour.
"""
LAUNCH_CREDENTIAL_S = 5
"""
A requeued job waits for a second more; with less than this, Slurm 22.05 takes its default of
two minutes.
"""
MESSAGE_TIMEOUT_S = 4
"""After so long a client gives up; the bound of a call must exceed it."""


def configuration(
    folder: Path,
    *,
    nodes: Sequence[str],
    cpus: int,
    ram_mib: int,
    ports: Sequence[int],
    settings: Mapping[str, str],
    lines: Sequence[str] = (),
) -> str:
    """
    Return the text of slurm.conf.

    Args:
        folder: Where everything lies.
        nodes: Their names; every one is this machine.
        cpus: CPUs of each node.
        ram_mib: MiB of each node.
        ports: The controller's, then each node's.
        settings: Values that replace the ones chosen here, by their key.
        lines: What comes at the end, such as further partitions.

    """
    user = getpass.getuser()
    host = platform.node().partition(".")[0]
    info = (
        f"socket={folder}/run/munge.socket,cred_expire={LAUNCH_CREDENTIAL_S},ttl={CREDENTIAL_TTL_S}"
    )
    chosen = {
        "ClusterName": "lardon",
        "SlurmctldHost": f"{host}(127.0.0.1)",
        "SlurmctldPort": str(ports[0]),
        "SlurmUser": user,
        "SlurmdUser": user,
        "AuthType": "auth/munge",
        "CredType": "cred/munge",
        "AuthInfo": info,
        "StateSaveLocation": f"{folder}/state",
        "SlurmdSpoolDir": f"{folder}/spool/%n",
        "SlurmctldPidFile": f"{folder}/run/slurmctld.pid",
        "SlurmdPidFile": f"{folder}/run/slurmd-%n.pid",
        "PlugStackConfig": f"{folder}/plugstack.conf",
        "MailProg": "/bin/true",
        "MpiDefault": "none",
        "SwitchType": "switch/none",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        # Memory is looked at once a second, and a job that takes more than it asked for ends.
        "JobAcctGatherType": "jobacct_gather/linux",
        "JobAcctGatherFrequency": "task=1",
        "JobAcctGatherParams": "OverMemoryKill",
        "AccountingStorageType": "accounting_storage/none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        "SlurmdParameters": "config_overrides",
        "PriorityType": "priority/basic",
        # A job starts within a second of being opened.
        "SchedulerType": "sched/backfill",
        "SchedulerParameters": "batch_sched_delay=0,sched_interval=1,sched_min_interval=0,"
        "bf_interval=1",
        "ReturnToService": "2",
        "MessageTimeout": str(MESSAGE_TIMEOUT_S),
        "SlurmctldTimeout": "10",
        "SlurmdTimeout": "30",
        "KillWait": "1",
        "MinJobAge": "300",
        "InactiveLimit": "0",
        "Waittime": "0",
        **settings,
    }
    text = [f"{key}={value}" for key, value in chosen.items()]
    for name, port in zip(nodes, ports[1:], strict=True):
        text.append(
            f"NodeName={name} NodeHostName={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} "
            f"Boards=1 SocketsPerBoard=1 CoresPerSocket={cpus} ThreadsPerCore=1 "
            f"RealMemory={ram_mib} State=UNKNOWN"
        )
    text.append(
        "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP DefMemPerCPU=100"
    )
    return "\n".join([*text, *lines]) + "\n"
