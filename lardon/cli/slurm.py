"""`lardon slurm`: what a cluster is like, before the first job is sent to it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from lardon.cli.documents import written
from lardon.cli.durations import format_duration, parse_duration
from lardon.cli.screen import complain, show, write
from lardon.cli.sections import Section
from lardon.cli.statuses import ExitStatus

if TYPE_CHECKING:
    from lardon.dispatch.slurm.backend import SlurmBackend

slurm_app: Final = typer.Typer(
    name="slurm",
    help="Look at a Slurm cluster; nothing is changed on it.",
    no_args_is_help=False,
    rich_markup_mode=None,
)


@slurm_app.callback()
def slurm() -> None:
    """Look at a Slurm cluster; nothing is changed on it."""


@slurm_app.command()
def check(
    *,
    host: Annotated[
        str | None, typer.Option("--host", metavar="HOST", help="Login node to reach over ssh.")
    ] = None,
    ssh_option: Annotated[
        list[str] | None,
        typer.Option(
            "--ssh-option", metavar="OPTION", help="As in ssh -o OPTION; may be repeated."
        ),
    ] = None,
    bound: Annotated[
        str, typer.Option("--bound", metavar="DURATION", help="After so long a call is killed.")
    ] = "25s",
    ttl: Annotated[
        str | None,
        typer.Option("--ttl", metavar="DURATION", help="Life of a credential, if it is known."),
    ] = None,
    skew: Annotated[
        str, typer.Option("--skew", metavar="DURATION", help="Between login node and controller.")
    ] = "2s",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, with exact figures.")
    ] = False,
) -> None:
    """
    Measure how far a cluster's clock is off, and how late a call to it can land.

    Exit status: 0 it can be used, 1 it cannot be read or used, 2 bad input.
    """
    # Who only asks about this machine does not load the dispatch.
    from lardon.dispatch.errors import DispatchError, InvalidError

    durations = {"--bound": bound, "--ttl": ttl, "--skew": skew}
    settings = {
        f"{option[2:]}_s": _seconds(option, text)
        for option, text in durations.items()
        if text is not None
    }
    try:
        backend = _backend(host, ssh_option or [], settings)
    except InvalidError as error:
        raise typer.BadParameter(str(error)) from None
    try:
        found = _found(backend)
    except DispatchError as error:
        complain(sys.stderr, str(error))
        raise typer.Exit(ExitStatus.FAILED) from None
    finally:
        backend.close()
    if as_json:
        write(sys.stdout, f"{written(found)}\n")
    else:
        show(sys.stdout, _sections(found))


def _seconds(option: str, text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _backend(
    host: str | None, ssh_options: Sequence[str], settings: dict[str, Any]
) -> SlurmBackend:
    from lardon.dispatch.slurm import LocalTransport, SlurmBackend, SshTransport

    if host is None:
        if ssh_options:
            message = "nothing is reached over ssh without --host"
            raise typer.BadParameter(message, param_hint="--ssh-option")
        return SlurmBackend(LocalTransport(), **settings)
    options = [part for one in ssh_options for part in ("-o", one)]
    return SlurmBackend(SshTransport(host, options=tuple(options)), **settings)


def _found(backend: SlurmBackend) -> dict[str, Any]:
    """Return what was measured, as JSON has it; the terms are in the order of their sum."""
    facts = backend.facts()
    terms = backend.landing_terms()
    declared = backend.declarations()
    return {
        "cluster": facts.cluster,
        "version": facts.version,
        "user_id": facts.user_id,
        "auth_type": facts.auth_type,
        "ttl_s": terms.ttl_s,
        "message_timeout_s": facts.message_timeout_s,
        "min_job_age_s": facts.min_job_age_s,
        "clock_offset_s": terms.offset_s,
        "round_trip_s": terms.rtt_s,
        "call_bound_s": declared.call_bound_s,
        "terms": dict(terms.parts()),
        "capabilities": {
            name.value: {"value": one.value.value, "source": one.source.value}
            for name, one in declared.capabilities.items()
        },
    }


def _sections(found: dict[str, Any]) -> list[Section]:
    """Return the tables for people."""
    offset_s, rtt_s = found["clock_offset_s"], found["round_trip_s"]
    clock = "this machine's own"
    if offset_s is not None and rtt_s is not None:
        clock = f"{offset_s:+.3f} s from ours, read in a round trip of {rtt_s:.3f} s"
    timeout_s, age_s = found["message_timeout_s"], found["min_job_age_s"]
    about = (
        ("cluster", found["cluster"]),
        ("Slurm", found["version"]),
        ("credentials", f"{found['auth_type']}, good for {found['ttl_s']:g} s"),
        ("clock", clock),
        ("MessageTimeout", "unknown" if timeout_s is None else f"{timeout_s:g} s"),
        ("MinJobAge", "unknown" if age_s is None else f"{age_s:g} s"),
    )
    terms = [(name, f"{seconds:.3f} s") for name, seconds in found["terms"].items()]
    bound_s = found["call_bound_s"]
    capabilities = [
        (name, one["value"], one["source"]) for name, one in found["capabilities"].items()
    ]
    return [
        Section(title="Cluster", rows=about),
        Section(
            title="Landing bound",
            rows=(*terms, ("in all", f"{bound_s:.3f} s")),
            lines=(
                f"a call has landed, or never will, {format_duration(bound_s)} after its deadline",
            ),
        ),
        Section(title="Capabilities", rows=tuple(capabilities)),
    ]
