"""A real sshd on loopback, in a folder: own keys, own port, nothing of the system's changed."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lardon.dispatch.slurm import SshTransport
from lardon.testing.slurm_cluster import free_ports
from tests.slurm.jobs import eventually

_PATH: Final = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
# sshd starts nothing without the empty folder that its package's service makes at boot.
_PRIVILEGE_SEPARATION: Final = Path("/run/sshd")

MISSING: Final = sorted(
    package
    for program, package in (("sshd", "openssh-server"), ("ssh", "openssh-client"))
    if shutil.which(program, path=_PATH) is None
)


class Sshd:
    """The server, and how to reach it."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port

    def transport(self, **environment: str) -> SshTransport:
        """Return a transport that logs in as whoever runs the tests."""
        options = {
            "Port": self.port,
            "IdentityFile": self.folder / "user",
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": self.folder / "known_hosts",
            "StrictHostKeyChecking": "yes",
        }
        arguments = [part for key, value in options.items() for part in ("-o", f"{key}={value}")]
        return SshTransport(
            f"{getpass.getuser()}@127.0.0.1",
            options=("-F", "/dev/null", *arguments),
            environment=environment,
        )


@contextlib.contextmanager
def sshd(folder: Path) -> Iterator[Sshd]:
    """Start a server in *folder*, which only its user can read, and end it afterwards."""
    (port,) = free_ports(1)
    for name in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)],
            check=True, timeout=20,
        )  # fmt: skip
    host_key = (folder / "host.pub").read_text()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}")
    (folder / "authorized_keys").write_text((folder / "user.pub").read_text())
    config = folder / "sshd_config"
    config.write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {folder}/host\nPidFile none\n"
        f"AuthorizedKeysFile {folder}/authorized_keys\nStrictModes no\nUsePAM no\n"
        "PasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        "PermitRootLogin prohibit-password\nPrintMotd no\nLogLevel ERROR\n"
        "AcceptEnv SLURM_CONF\n"
    )
    with _separated(), (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [str(shutil.which("sshd", path=_PATH)), "-D", "-e", "-f", str(config)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            eventually(lambda: _answers(port), bool, 15)
            yield Sshd(folder, port)
        finally:
            server.terminate()
            server.wait(15)


@contextlib.contextmanager
def _separated() -> Iterator[None]:
    made = os.geteuid() == 0 and not _PRIVILEGE_SEPARATION.exists()
    if made:
        _PRIVILEGE_SEPARATION.mkdir(mode=0o755)
    try:
        yield
    finally:
        if made:
            _PRIVILEGE_SEPARATION.rmdir()


def _answers(port: int) -> bool:
    with socket.socket() as one:
        one.settimeout(1)
        return one.connect_ex(("127.0.0.1", port)) == 0
