"""`lardon run`: wait for admission, run the command under its contract, pass on its status."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, TextIO, assert_never

from lardon.cli import explanation_view as view
from lardon.cli.child import CannotRun, SignalRelay, check_can_run, start
from lardon.cli.machine import warnings_told_to
from lardon.cli.screen import complain
from lardon.cli.statuses import ExitStatus, status_of_signal
from lardon.cli.waiting import Admission, Outcome, wait_for_admission
from lardon.environment import environment_of

if TYPE_CHECKING:
    from lardon.governor.estimate import ResourceEstimate
    from lardon.governor.governor import Governor
    from lardon.governor.reservation import Reservation


def run_governed(
    command: Sequence[str],
    estimate: ResourceEstimate,
    governor: Governor,
    *,
    timeout_s: float | None,
    messages: TextIO,
) -> int:
    """
    Run *command* as soon as *governor* admits *estimate*; return the status to exit with.

    Blocks until the command has ended. Only the main thread may call it, since it handles
    signals. Whatever happens, nothing stays reserved.

    Args:
        command: the program and its arguments.
        estimate: what it needs.
        governor: who admits it.
        timeout_s: seconds to wait for admission at most; None waits as long as it takes.
        messages: where it is said why the command waits.

    """
    name = PurePath(command[0]).name or command[0]

    def say(text: str) -> None:
        complain(messages, text)

    with warnings_told_to(lambda text: say(f"warning: {text}")), SignalRelay() as relay:
        try:
            check_can_run(command[0], os.environ)
            since = governor.clock.wall()
            admission = wait_for_admission(
                governor,
                estimate,
                holder=name,
                timeout_s=timeout_s,
                interrupted=lambda: bool(relay.received),
                tell=lambda decision, waited_s: say(
                    view.waiting_text(name, decision, since, waited_s)
                ),
            )
            if admission.reservation is not None:
                if admission.waited_s >= 1:
                    contract = admission.reservation.contract
                    say(view.started_text(name, contract, admission.waited_s))
                return _run(command, admission.reservation, relay)
        except CannotRun as error:
            say(str(error))
            return error.status
        return _not_started(name, admission, timeout_s, relay, messages)


def _run(command: Sequence[str], reservation: Reservation, relay: SignalRelay) -> int:
    with reservation:
        if relay.received:
            # It came between the answer and now: there is nothing to interrupt yet.
            return status_of_signal(relay.received[0])
        environment = environment_of(reservation.contract, os.environ)
        return relay.wait(start(command, environment))


def _not_started(
    name: str,
    admission: Admission,
    timeout_s: float | None,
    relay: SignalRelay,
    messages: TextIO,
) -> int:
    match admission.outcome:
        case Outcome.REJECTED:
            complain(messages, view.rejected_text(name, admission.decision))
            return ExitStatus.REJECT
        case Outcome.TIMED_OUT:
            text = view.timed_out_text(name, admission.decision, timeout_s or 0.0)
            complain(messages, text)
            return ExitStatus.TIMED_OUT
        case Outcome.INTERRUPTED | Outcome.ADMITTED:
            complain(messages, f"{name} was not started: interrupted while it waited")
            return status_of_signal(relay.received[0])
        case _:
            assert_never(admission.outcome)
