"""What a governor has seen so far that bears on its next answer."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from lardon.governor.growth import NO_GROWTH, observed
from lardon.governor.history import MAX_KINDS, History
from lardon.governor.zones import CALM, Zone, step

if TYPE_CHECKING:
    from lardon.governor.batch_record import BatchRecord
    from lardon.governor.estimate import ResourceEstimate
    from lardon.governor.growth import Growth
    from lardon.governor.lesson import Lesson
    from lardon.governor.offers import Outlook
    from lardon.governor.policy import Policy
    from lardon.governor.snapshot import OwnUse, ResourceSnapshot
    from lardon.governor.zones import Pressure

# A minute of a queue that asks twice a second, as it does by default while it waits.
OFFERS_KEPT: Final = 128


class Experience:
    """
    Batches by kind, the pressure zone, the growth of foreign use.

    Not thread-safe: the governor's lock guards it. Moves at `observe`, `record` and
    `granted` alone; `outlook` only reads.
    """

    def __init__(self) -> None:
        self.history = History()
        self.pressure: Pressure = CALM
        self.growth: Growth = NO_GROWTH
        # Digested when somebody asks, and again after the next batch of the kind.
        self._lessons: dict[str, Lesson] = {}
        # The batch that each kind was granted last.
        self._granted: dict[str, int] = {}
        # What the readings left beside the reserve, newest last.
        self._offered: deque[int] = deque(maxlen=OFFERS_KEPT)

    def observe(
        self,
        snapshot: ResourceSnapshot,
        policy: Policy,
        own: OwnUse | None = None,
        credit_bytes: int = 0,
    ) -> None:
        """Take in one reading, with what this process and who asks use, where known."""
        self.pressure = step(self.pressure, snapshot, policy, credit_bytes)
        available = min(snapshot.ram_available_bytes + credit_bytes, snapshot.ram_total_bytes)
        self._offered.append(available - policy.ram_terms(snapshot.ram_total_bytes)[1])
        if own is not None:
            used = snapshot.ram_total_bytes - snapshot.ram_available_bytes
            self.growth = observed(self.growth, snapshot.taken_at, used - own.ram_bytes)

    def record(self, kind: str, record: BatchRecord) -> None:
        """Add a batch."""
        forgotten = self.history.add(kind, record)
        self._lessons.pop(kind, None)
        if forgotten is not None:
            self._lessons.pop(forgotten, None)

    def replace_history(self, history: History) -> None:
        """Forget all batches, and remember these."""
        self.history = history
        self._lessons.clear()

    def granted(self, kind: str, batch: int) -> None:
        """Note what a batch of *kind* was granted."""
        granted = self._granted
        if kind not in granted and len(granted) >= MAX_KINDS:
            del granted[next(iter(granted))]
        granted[kind] = batch

    def lesson(self, kind: str, *, timed: bool = True) -> Lesson | None:
        """Return what the batches of *kind* taught, None without any; durations if *timed*."""
        lesson = self._lessons.get(kind)
        if lesson is None or (timed and lesson.duration_us is None):
            window = self.history.batches(kind)
            if not window:
                return None
            # Who never reports a batch does not pay for this.
            from lardon.governor.lesson import learn

            lesson = self._lessons[kind] = learn(window, timed=timed)
        return lesson

    def outlook(
        self, base: Outlook | None, estimate: ResourceEstimate, policy: Policy, now: float
    ) -> Outlook | None:
        """
        Return *base* and what is known beyond it, where that may change an answer.

        Args:
            base: Measured use and credit, None for nothing.
            estimate: What is asked for.
            policy: How far measurements are trusted.
            now: Monotonic seconds of the clock that stamped the readings.

        """
        growth = self.growth.rate(now)
        # How long a batch takes is asked only where others take memory meanwhile.
        lesson = self.lesson(estimate.kind, timed=growth > 0) if self.history.known else None
        if policy.trust == "measured":
            from lardon.governor.lesson import NOTHING_LEARNED

            lesson = lesson or NOTHING_LEARNED
        elif lesson is not None and not growth and _says_no_more(lesson, estimate):
            lesson = None
        pressure = self.pressure
        if lesson is None and pressure.zone is Zone.GREEN and pressure.doublings is None:
            return base
        from lardon.governor.offers import NOTHING_KNOWN

        return (base or NOTHING_KNOWN)._replace(
            lesson=lesson,
            ram_ever_bytes=self._ever_offered(),
            pressure=pressure,
            zone_cap=pressure.cap(estimate.min_batch, self._granted.get(estimate.kind)),
            growth_bytes_s=growth,
        )

    def _ever_offered(self) -> int | None:
        """Return the most of the last `OFFERS_KEPT` readings; None as long as there are fewer."""
        # What a few readings do not show may be back with the next one.
        return max(self._offered) if len(self._offered) == OFFERS_KEPT else None


def _says_no_more(lesson: Lesson, estimate: ResourceEstimate) -> bool:
    """Return whether the declaration is at least what was measured, for every batch."""
    if lesson.ceiling is not None:
        return False
    least, most = estimate.min_batch, estimate.max_batch
    # An envelope is convex: what is below a line at both ends is below it in between.
    ram, gpu = lesson.ram, lesson.gpu
    if ram is not None and (
        ram.need(least) > estimate.ram_least or ram.need(most) > estimate.ram_most
    ):
        return False
    return (
        not estimate.asks_gpu_memory
        or gpu is None
        or (
            gpu.need(least) <= estimate.gpu_need(least)
            and gpu.need(most) <= estimate.gpu_need(most)
        )
    )
