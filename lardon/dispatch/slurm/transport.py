"""Where the scripts run: on this machine, or over ssh on the login node of a cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, cast

import attrs

from lardon.dispatch.errors import InvalidError
from lardon.dispatch.slurm.delivery import as_remote_command, environment
from lardon.governor.checks import refuse

CONNECT_TIMEOUT_S: Final = 10
"""How long ssh tries to connect; a login node that takes longer is not used by hand either."""

# BatchMode asks nothing. ControlMaster=no: a master that ssh leaves behind would hold the
# streams open, and with them whoever waits for their end. LogLevel hides the banner.
_SSH_OPTIONS: Final = (
    "BatchMode=yes",
    f"ConnectTimeout={CONNECT_TIMEOUT_S}",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ControlMaster=no",
    "LogLevel=ERROR",
)
_HOST: Final = re.compile(r"[^\s\0-][^\s\0]*")


class Transport(Protocol):
    """Turns a script into the command that runs it; what it means is not its business."""

    @property
    def remote(self) -> bool:
        """Whether the script runs on another machine, with a clock of its own."""
        ...

    @property
    def setup_s(self) -> float:
        """How long it may take before the script begins."""
        ...

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that every script sets, such as SLURM_CONF or PATH."""
        ...

    def command(self, text: str) -> Sequence[str]:
        """Return the command line that runs *text* in sh, delivered whole."""
        ...


def checked_transport(value: Any) -> Transport:
    """Return *value* as a transport, or raise `InvalidError`."""
    facts = ("remote", "setup_s", "environment")
    able = callable(getattr(value, "command", None)) and all(hasattr(value, one) for one in facts)
    if isinstance(value, type) or not able:
        rule = "a Transport, with remote, setup_s, environment and the method command"
        raise refuse(InvalidError, "transport", value, rule)
    return cast("Transport", value)


@attrs.frozen
class LocalTransport:
    """Runs the scripts on this machine, which has Slurm's commands."""

    environment: Mapping[str, str] = attrs.field(factory=dict, converter=environment, kw_only=True)

    @property
    def remote(self) -> bool:
        """The clock is ours."""
        return False

    @property
    def setup_s(self) -> float:
        """It begins at once."""
        return 0.0

    def command(self, text: str) -> Sequence[str]:
        """Return the command line of a shell that gets all of *text* in one argument."""
        return ("sh", "-c", text)


def _host(value: Any) -> str:
    if not isinstance(value, str) or _HOST.fullmatch(value) is None:
        rule = "a host such as user@login.example, without blanks and not an option"
        raise refuse(InvalidError, "host", value, rule)
    return value


def _options(value: Any) -> tuple[str, ...]:
    rule = "a sequence of arguments for ssh, such as ['-p', '2222']"
    if isinstance(value, (str, bytes)):
        raise refuse(InvalidError, "options", value, rule)
    options = tuple(value)
    if not all(isinstance(one, str) and "\0" not in one for one in options):
        raise refuse(InvalidError, "options", value, rule)
    return options


@attrs.frozen
class SshTransport:
    """
    Runs the scripts over ssh, as the user's own configuration of ssh reaches the host.

    It asks nothing: keys must be there already.
    """

    host: str = attrs.field(converter=_host)
    """A host or an alias of ssh's configuration, with a user or without."""
    options: tuple[str, ...] = attrs.field(default=(), converter=_options, kw_only=True)
    """Further arguments, before the host; an option that stands here wins."""
    environment: Mapping[str, str] = attrs.field(factory=dict, converter=environment, kw_only=True)
    """Variables on the host: what a login shell would have set, such as PATH."""
    program: str = attrs.field(default="ssh", kw_only=True)

    @property
    def remote(self) -> bool:
        """The clock is the host's."""
        return True

    @property
    def setup_s(self) -> float:
        """Connecting, and as long again for keys and the login shell."""
        return 2.0 * CONNECT_TIMEOUT_S

    def command(self, text: str) -> Sequence[str]:
        """Return ssh's command line; ssh takes the first value that it is given for an option."""
        set_here = [part for option in _SSH_OPTIONS for part in ("-o", option)]
        encoded = as_remote_command(text)
        return (self.program, "-T", *self.options, *set_here, "--", self.host, encoded)
