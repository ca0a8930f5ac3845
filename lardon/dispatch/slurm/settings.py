"""What a backend for Slurm can be told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from lardon.dispatch.decoding import Seconds
from lardon.dispatch.errors import InvalidError
from lardon.dispatch.rules import apply_rules, count, must, seconds, some_text, texts
from lardon.dispatch.slurm.bound import DEFAULT_BOUND_S, LONGEST_TTL_S
from lardon.dispatch.slurm.delivery import environment
from lardon.dispatch.slurm.submission import options
from lardon.dispatch.slurm.transport import LocalTransport, SshTransport
from lardon.dispatch.slurm.wrapper import checked_bound
from lardon.governor.checks import refuse

POLL_S: Final = 15.0
"""One `squeue --json` is the whole queue: more often is a load that sites complain about."""
SKEW_S: Final = 2.0
"""Login node and controller are kept together by NTP; munge itself forgives a whole TTL."""
APPLY_SLACK_S: Final = 3.0
"""What a controller waits for its job lock after it has read a request."""
CALL_WINDOW_S: Final = 60.0
"""How long a call of ours that was given no deadline may take to begin: ssh has to connect."""
LOST_AFTER_S: Final = 600.0
"""An object that nobody has known of for so long has ceased: twice MinJobAge's default."""
REQUEUE_WAIT_S: Final = 60.0
"""How long the end of the old execution may take: KillWait is 30 s by default."""
WATCH_BUFFER: Final = 64
MOST_IDS: Final = 100
"""Ids in one `scancel`: each is a request to the controller, one after the other."""


def _bound(_: str, value: Any) -> float:
    return checked_bound(value)


def _ttl(name: str, value: Any) -> float:
    ttl_s: float = seconds(above=0)(name, value)
    if ttl_s > LONGEST_TTL_S:
        raise refuse(InvalidError, name, value, f"at most {LONGEST_TTL_S:.0f} seconds, munge's cap")
    return ttl_s


def _options(name: str, value: Any) -> Mapping[str, str]:
    return options(value, name)


def _folder(name: str, value: Any) -> str:
    text = some_text(name, value)
    # In the pattern that Slurm expands, % stands for something else, and \ for no expansion.
    if not text.startswith("/") or set(text) & set("%\\"):
        raise refuse(InvalidError, name, value, "an absolute path on the cluster, without % or \\")
    return text.rstrip("/") or "/"


def _environment(_: str, value: Any) -> Mapping[str, str]:
    return environment(value)


@attrs.frozen(kw_only=True, field_transformer=apply_rules)
class SlurmSettings:
    """
    How a backend speaks to its cluster.

    Raises:
        InvalidError: a setting breaks its rule; the error names path, value and rule.

    """

    bound_s: Seconds = attrs.field(default=DEFAULT_BOUND_S, metadata=must(_bound))
    """B: after so long a call on the host is killed. It must exceed Slurm's MessageTimeout."""
    ttl_s: Seconds | None = attrs.field(default=None, metadata=must(_ttl, optional=True))
    """Life of a credential; None is what the cluster's own configuration says."""
    skew_s: Seconds = attrs.field(default=SKEW_S, metadata=must(seconds()))
    """How far the clocks of the login node and of the controller may differ."""
    apply_slack_s: Seconds = attrs.field(default=APPLY_SLACK_S, metadata=must(seconds()))
    call_window_s: Seconds = attrs.field(default=CALL_WINDOW_S, metadata=must(seconds(above=0)))
    """The deadline of a submission, an opening or a stop is so far ahead."""
    poll_s: Seconds = attrs.field(default=POLL_S, metadata=must(seconds(above=0)))
    """How often a watch asks; one question for all jobs and all watchers."""
    watch_buffer: int = attrs.field(default=WATCH_BUFFER, metadata=must(count(1)))
    """How many changes a watcher may be behind, besides the observations it began with."""
    lost_after_s: Seconds = attrs.field(default=LOST_AFTER_S, metadata=must(seconds()))
    """`ceased` says yes for an object that was absent for so long."""
    requeue_wait_s: Seconds = attrs.field(default=REQUEUE_WAIT_S, metadata=must(seconds()))
    """How long `requeue` waits for the identity that the job has afterwards."""
    options: Mapping[str, str] = attrs.field(factory=dict, metadata=must(_options))
    """Options of `sbatch` for jobs that do not set them, such as a partition."""
    output_folder: str | None = attrs.field(default=None, metadata=must(_folder, optional=True))
    """Where jobs write their output; None is where each of them starts."""


def _option_list(name: str, value: Any) -> tuple[str, ...]:
    return texts(name, value)


@attrs.frozen(kw_only=True, field_transformer=apply_rules)
class SlurmDocument(SlurmSettings):
    """The settings as `lardon.dispatch.registry.create("slurm", …)` takes them."""

    host: str | None = attrs.field(default=None, metadata=must(some_text, optional=True))
    """The login node, reached over ssh; None is this machine."""
    ssh_options: tuple[str, ...] = attrs.field(default=(), metadata=must(_option_list))
    environment: Mapping[str, str] = attrs.field(factory=dict, metadata=must(_environment))
    """Variables that every script sets, such as PATH or SLURM_CONF."""

    def transport(self) -> LocalTransport | SshTransport:
        """Return where the scripts run."""
        if self.host is None:
            if self.ssh_options:
                rule = "left out where there is no host"
                raise refuse(InvalidError, "sshOptions", self.ssh_options, rule)
            return LocalTransport(environment=self.environment)
        return SshTransport(self.host, options=self.ssh_options, environment=self.environment)

    def settings(self) -> dict[str, Any]:
        """Return the settings that are not about the transport."""
        return {field.name: getattr(self, field.name) for field in attrs.fields(SlurmSettings)}
