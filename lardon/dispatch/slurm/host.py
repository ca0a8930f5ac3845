"""One host that has Slurm's commands: its scripts, their answers, and its clock."""

from __future__ import annotations

import datetime
import secrets
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from lardon.clock import Clock
from lardon.dispatch.slurm.delivery import behind_mark, marked
from lardon.dispatch.slurm.detached import Ended, Runner
from lardon.dispatch.slurm.faults import ClusterUnreachable
from lardon.dispatch.slurm.reader import Outcome, read
from lardon.dispatch.slurm.transport import Transport
from lardon.dispatch.slurm.wrapper import Call, build

GRACE_S: Final = 10.0
"""What a script may take beside its calls: a shell, `date`, and a host that swaps."""
CLOCK_READINGS: Final = 3
"""The reading with the shortest round trip says most; the first one may have to connect."""

# A clock that shows whole seconds only is up to one behind what it shows.
_COARSE_S: Final = 1.0


@attrs.frozen
class HostClock:
    """How far the host's clock was ahead of ours, and the round trip of asking."""

    offset_s: float
    rtt_s: float


@attrs.frozen
class Applied:
    """A script that did all it should, with what it printed."""

    outcome: Outcome
    stdout: str


class Host:
    """
    Runs scripts through one transport; every method blocks until the script is answered.

    Args:
        transport: Where the scripts run.
        bound_s: After so long a call on the host is killed.
        clock: What time it is here.
        nonce: Gives 32 new lower-case hex digits.

    """

    def __init__(
        self,
        transport: Transport,
        *,
        bound_s: float,
        clock: Clock,
        nonce: Callable[[], str] | None = None,
    ) -> None:
        self.transport = transport
        self.bound_s = bound_s
        self._clock = clock
        self._nonce: Callable[[], str] = nonce or (lambda: secrets.token_hex(16))
        self._runner = Runner()

    def close(self) -> None:
        """Let everybody go who waits for a script; the scripts run on."""
        self._runner.close()

    def change(
        self,
        calls: Sequence[Call],
        deadline: datetime.datetime,
        settles_at: datetime.datetime,
    ) -> Applied:
        """
        Make the changing *calls* behind their deadline.

        Args:
            calls: What to run; see `wrapper.build`.
            deadline: On our clock. The check is made on the host's, and the difference of the
                two is a term of the landing bound.
            settles_at: When an unknown outcome is settled.

        Raises:
            ClusterUnreachable: the script was not even started.
            DispatchError: what the calls came to; see `reader.read`.

        """
        nonce = self._nonce()
        script = build(calls, deadline, self.bound_s, nonce)
        ended = self._run(script, len(calls))
        if not ended.began:
            raise ClusterUnreachable(ended.problem)
        stderr = ended.problem if ended.status is None else ended.stderr
        outcome = read(stderr, ended.status, nonce, calls, settles_at=settles_at)
        return Applied(outcome, ended.stdout)

    def ask(self, script: str) -> str:
        """
        Run a *script* that changes nothing, and return its stdout.

        Raises:
            ClusterUnreachable: it was not answered in time, or did not return 0.

        """
        ended = self._run(script, 1)
        if ended.status != 0:
            said = " ".join(f"{ended.problem} {ended.stderr}".split())
            message = f"the cluster cannot be read: {said or f'status {ended.status}'}"
            raise ClusterUnreachable(message)
        return ended.stdout

    def read_clock(self) -> HostClock:
        """Measure how far the host's clock is ahead of ours; three scripts."""
        return min((self._read_clock() for _ in range(CLOCK_READINGS)), key=lambda one: one.rtt_s)

    def _read_clock(self) -> HostClock:
        began_at = self._clock.wall().timestamp()
        began = self._clock.monotonic()
        shown = self.ask(f"timeout -s KILL {self.bound_s:g}s date +%s.%N").strip()
        rtt_s = self._clock.monotonic() - began
        whole, _, fraction = shown.partition(".")
        if not whole.isdecimal():
            message = f"the host's clock cannot be read: date printed {shown[:40]!r}"
            raise ClusterUnreachable(message)
        middle = began_at + rtt_s / 2
        if fraction.isdecimal():
            return HostClock(float(f"{whole}.{fraction}") - middle, rtt_s)
        return HostClock(int(whole) + _COARSE_S / 2 - middle, rtt_s + _COARSE_S)

    def _run(self, script: str, calls: int) -> Ended:
        token = self._nonce()
        text = marked(script, token, self.transport.environment)
        limit_s = calls * self.bound_s + GRACE_S + self.transport.setup_s
        ended = self._runner.run(self.transport.command(text), limit_s)
        if ended.status is None:
            return ended
        stdout, stderr = behind_mark(ended.stdout, token), behind_mark(ended.stderr, token)
        if stdout is None or stderr is None:
            said = " ".join(ended.stderr.split())
            return Ended(None, problem=f"the script did not begin (status {ended.status}): {said}")
        return Ended(ended.status, stdout, stderr)
