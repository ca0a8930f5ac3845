"""The commands and their options, as Typer reads them."""

from __future__ import annotations

import datetime
import sys
from typing import Annotated, Final

import typer

from lardon.cli import machine
from lardon.cli.documents import document_of_explanation, document_of_machine, written
from lardon.cli.explanation_view import sections_of_explanation
from lardon.cli.machine_view import sections_of_machine
from lardon.cli.options import BadOption, PolicyName, estimate_of, policy_of, timeout_of
from lardon.cli.running import run_governed
from lardon.cli.screen import complain, show, write
from lardon.cli.slurm import slurm_app
from lardon.cli.statuses import ExitStatus, status_of
from lardon.cli.watching import watch, watch_lines
from lardon.governor.estimate import ResourceEstimate
from lardon.governor.policy import Policy

# Without Rich's panels: help and errors look the same in a terminal, a pipe and a log.
app: Final = typer.Typer(
    name="lardon",
    help="Ask the resource governor what may run on this machine now.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

app.add_typer(slurm_app)

Ram = Annotated[
    str | None, typer.Option("--ram", metavar="SIZE", help="RAM that a batch of any size needs.")
]
RamPerItem = Annotated[
    str | None,
    typer.Option("--ram-per-item", metavar="SIZE", help="RAM that each item of a batch adds."),
]
Gpu = Annotated[
    str | None, typer.Option("--gpu", metavar="SIZE", help="Memory needed on each GPU.")
]
GpuPerItem = Annotated[
    str | None,
    typer.Option("--gpu-per-item", metavar="SIZE", help="GPU memory that each item adds."),
]
Gpus = Annotated[
    str | None,
    typer.Option("--gpus", metavar="COUNT", help="GPUs; 1 when any GPU memory is asked for."),
]
Batch = Annotated[
    str | None,
    typer.Option(
        "--batch", metavar="LEAST:MOST", help="Batch sizes that make sense; 64 is exactly 64."
    ),
]
Cpus = Annotated[str | None, typer.Option("--cpus", metavar="COUNT", help="CPUs wanted.")]
MinCpus = Annotated[
    str | None,
    typer.Option("--min-cpus", metavar="COUNT", help="CPUs that will do; all that are wanted."),
]
Io = Annotated[str | None, typer.Option("--io", metavar="COUNT", help="Shares of the disk.")]
PolicyOption = Annotated[PolicyName, typer.Option("--policy", help="How much may be used.")]
RamLimit = Annotated[
    str | None,
    typer.Option("--ram-limit", metavar="SIZE", help="A budget of RAM on top of the policy."),
]
GpuLimit = Annotated[
    str | None,
    typer.Option("--gpu-limit", metavar="SIZE", help="The same for each GPU's memory."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, with exact figures.")]


def _show_version(wanted: bool) -> None:  # noqa: FBT001  Typer calls it so
    if wanted:
        write(sys.stdout, f"lardon {machine.version()}\n")
        raise typer.Exit


@app.callback()
def lardon(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Ask the resource governor what may run on this machine now."""


@app.command()
def info(
    *,
    as_json: AsJson = False,
    watching: Annotated[
        bool, typer.Option("--watch", help="Look again every second, until Ctrl-C.")
    ] = False,
    policy: PolicyOption = PolicyName.DEFAULT,
    ram_limit: RamLimit = None,
    gpu_limit: GpuLimit = None,
) -> None:
    """Show what the governor sees, and which limits bind it."""
    rules = _checked_policy(policy, ram_limit, gpu_limit)
    warnings: list[str] = []
    with machine.warnings_told_to(warnings.append):
        probe = machine.make_probe()

        def seen() -> machine.Machine:
            return machine.look(probe, rules, warnings)

        if watching and as_json:
            watch_lines(lambda: written(document_of_machine(seen()), one_line=True), sys.stdout)
        elif watching:
            watch(lambda: sections_of_machine(seen()), sys.stdout)
        else:
            found = seen()
            if as_json:
                write(sys.stdout, f"{written(document_of_machine(found))}\n")
            else:
                show(sys.stdout, sections_of_machine(found))
            if not found.readable:
                raise typer.Exit(ExitStatus.FAILED)


@app.command()
def explain(  # noqa: PLR0913  one parameter per option
    *,
    ram: Ram = None,
    ram_per_item: RamPerItem = None,
    gpu: Gpu = None,
    gpu_per_item: GpuPerItem = None,
    gpus: Gpus = None,
    batch: Batch = None,
    cpus: Cpus = None,
    min_cpus: MinCpus = None,
    io: Io = None,
    policy: PolicyOption = PolicyName.DEFAULT,
    ram_limit: RamLimit = None,
    gpu_limit: GpuLimit = None,
    as_json: AsJson = False,
) -> None:
    """
    Show what the governor would answer to such an estimate now, and why.

    Exit status: 0 START, 10 REDUCE_BATCH, 11 WAIT, 12 REJECT, 2 bad input.
    """
    estimate = _checked_estimate(
        {
            "--ram": ram,
            "--ram-per-item": ram_per_item,
            "--gpu": gpu,
            "--gpu-per-item": gpu_per_item,
            "--gpus": gpus,
            "--batch": batch,
            "--cpus": cpus,
            "--min-cpus": min_cpus,
            "--io": io,
        }
    )
    rules = _checked_policy(policy, ram_limit, gpu_limit)
    with machine.warnings_told_to(lambda text: complain(sys.stderr, f"warning: {text}")):
        explanation = machine.make_governor(rules).explain(estimate)
    at = datetime.datetime.now(datetime.UTC)
    if as_json:
        document = document_of_explanation(explanation, estimate, rules, at)
        write(sys.stdout, f"{written(document)}\n")
    else:
        show(sys.stdout, sections_of_explanation(explanation, rules, at))
    raise typer.Exit(status_of(explanation.decision))


# Everything behind the command's name belongs to the command, options too.
@app.command(context_settings={"allow_interspersed_args": False})
def run(  # noqa: PLR0913  one parameter per option
    *,
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND...", help="What to run, with its arguments.")
    ],
    ram: Ram = None,
    ram_per_item: RamPerItem = None,
    gpu: Gpu = None,
    gpu_per_item: GpuPerItem = None,
    gpus: Gpus = None,
    batch: Batch = None,
    cpus: Cpus = None,
    min_cpus: MinCpus = None,
    io: Io = None,
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", metavar="DURATION", help="Wait this long at most, as in 10m."),
    ] = None,
    policy: PolicyOption = PolicyName.DEFAULT,
    ram_limit: RamLimit = None,
    gpu_limit: GpuLimit = None,
) -> None:
    """
    Wait until COMMAND may run, then run it with its contract in the environment.

    Exit status: the command's own, 128+n when signal n ended it; 124 not admitted in
    time, 12 REJECT, 126 not executable, 127 not found, 2 bad input.
    """
    estimate = _checked_estimate(
        {
            "--ram": ram,
            "--ram-per-item": ram_per_item,
            "--gpu": gpu,
            "--gpu-per-item": gpu_per_item,
            "--gpus": gpus,
            "--batch": batch,
            "--cpus": cpus,
            "--min-cpus": min_cpus,
            "--io": io,
        }
    )
    rules = _checked_policy(policy, ram_limit, gpu_limit)
    try:
        timeout_s = timeout_of(timeout)
    except BadOption as error:
        raise _refused(error) from None
    status = run_governed(
        command, estimate, machine.make_governor(rules), timeout_s=timeout_s, messages=sys.stderr
    )
    raise typer.Exit(status)


def _checked_estimate(texts: dict[str, str | None]) -> ResourceEstimate:
    try:
        return estimate_of(texts)
    except BadOption as error:
        raise _refused(error) from None


def _checked_policy(name: PolicyName, ram_limit: str | None, gpu_limit: str | None) -> Policy:
    try:
        return policy_of(name, ram_limit, gpu_limit)
    except BadOption as error:
        raise _refused(error) from None


def _refused(error: BadOption) -> Exception:
    """Return the refusal as Typer's own, which exits with 2 and shows how to ask for help."""
    return typer.BadParameter(str(error), param_hint=error.option)
