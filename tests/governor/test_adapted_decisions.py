"""
Decisions under what was learned, forecast and held back, against a plain search.

Every batch on every choice of cards is tried; figures are small, so that the edges come up.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

import attrs
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from lardon.governor.admission import evaluate
from lardon.governor.decision import Contract, Decision, DecisionKind
from lardon.governor.envelope import Envelope
from lardon.governor.estimate import ResourceEstimate
from lardon.governor.ledger import Booking, Ledger
from lardon.governor.lesson import MICROSECONDS, Lesson
from lardon.governor.offers import Outlook
from lardon.governor.policy import Policy
from lardon.governor.reason import ReasonCode
from lardon.governor.snapshot import GpuSnapshot, ResourceSnapshot
from lardon.governor.zones import Pressure, Zone

NOW: Final = 100.0
BY_EXPERIENCE: Final = {ReasonCode.LEARNED, ReasonCode.FORECAST, ReasonCode.ZONE}


@attrs.frozen(kw_only=True)
class Question:
    """Everything that such a decision follows from."""

    estimate: ResourceEstimate
    snapshot: ResourceSnapshot
    policy: Policy
    held: int
    credit: int
    outlook: Outlook

    def ledger(self) -> Ledger:
        ledger = Ledger()
        if self.held:
            ledger.book(Booking(1, "other", Contract(batch_size=1, ram_bytes=self.held, cpus=1)))
        return ledger

    def answer(self, outlook: Outlook | None = None) -> Decision:
        known = self.outlook if outlook is None else outlook
        return evaluate(self.estimate, self.snapshot, self.policy, self.ledger(), NOW, known)

    def plain(self) -> Decision:
        """Answer as if nothing had been learned, and the machine were calm."""
        return self.answer(Outlook(ram_credit_bytes=self.credit))


class Search:
    """What `adaptive.md` says, one batch after the other."""

    def __init__(self, asked: Question) -> None:
        self.asked, self.estimate = asked, asked.estimate
        self.least, self.most = asked.estimate.min_batch, asked.estimate.max_batch
        self.outlook, self.policy = asked.outlook, asked.policy
        lesson = asked.outlook.lesson
        self.ram = lesson.ram if lesson is not None else None
        self.gpu = lesson.gpu if lesson is not None and self.estimate.asks_gpu_memory else None
        self.duration = lesson.duration_us if lesson is not None else None
        self.measured = asked.policy.trust == "measured"
        shot = asked.snapshot
        reserve = asked.policy.ram_reserve_bytes or 0
        self.capacity = max(0, shot.ram_total_bytes - reserve)
        available = min(shot.ram_available_bytes + asked.credit, shot.ram_total_bytes)
        self.live = available - reserve - asked.held
        self.found = max(0, min(self.live, self.capacity - asked.held))

    def amount(self, declared: int, learned: Envelope | None, batch: int) -> int:
        if learned is None:
            return declared
        return learned.need(batch) if self.measured else max(declared, learned.need(batch))

    def floor(self, declared: int, learned: Envelope | None) -> int:
        """Return what the smallest batch can never do without."""
        if learned is None or not self.measured:
            return declared
        return min(declared, learned.need(self.least))

    @property
    def ram_floor(self) -> int:
        return self.floor(self.estimate.ram_need(self.least), self.ram)

    @property
    def gpu_floor(self) -> int:
        return self.floor(self.estimate.gpu_need(self.least), self.gpu)

    def needs(self, batch: int, chosen: tuple[GpuSnapshot, ...]) -> tuple[int, int]:
        ram = self.amount(self.estimate.ram_need(batch), self.ram, batch)
        gpu = self.amount(self.estimate.gpu_need(batch), self.gpu, batch)
        if batch > self.least:
            return ram, gpu
        # Of the smallest batch history may say at most that it takes all there is.
        if any(card.integrated for card in chosen):
            spare = ram + gpu - self.capacity
            never = self.ram_floor + self.gpu_floor > self.capacity
            if spare > 0 and not never and (self.ram is not None or self.gpu is not None):
                cut = min(spare, gpu - self.gpu_floor)
                return ram - (spare - cut), gpu - cut
            return ram, gpu
        if self.ram is not None:
            ram = min(ram, max(self.ram_floor, self.capacity))
        sizes = sorted(
            (card.total_bytes or 0 for card in self.asked.snapshot.gpus if not card.integrated),
            reverse=True,
        )
        if self.gpu is not None and sizes:
            room = sizes[: self.estimate.gpus][-1]
            gpu = min(gpu, max(self.gpu_floor, room))
        return ram, gpu

    def loss(self, batch: int) -> int:
        if self.duration is None:
            return 0
        return self.outlook.growth_bytes_s // MICROSECONDS * self.duration.need(batch)

    def choices(self) -> list[tuple[GpuSnapshot, ...]]:
        return [
            chosen
            for chosen in itertools.combinations(self.asked.snapshot.gpus, self.estimate.gpus)
            if len(chosen) <= 1 or not any(card.integrated for card in chosen)
        ]

    def fits(self, batch: int, chosen: tuple[GpuSnapshot, ...]) -> bool:
        ram, gpu = self.needs(batch, chosen)
        if any(card.integrated for card in chosen):
            ram, gpu = ram + gpu, 0
        return (
            ram <= self.found
            and (not ram or ram + self.loss(batch) <= self.live)
            and all(gpu <= (card.free_bytes or 0) for card in chosen if not card.integrated)
        )

    def cap(self) -> int:
        caps = [self.most]
        lesson = self.outlook.lesson
        if self.measured:
            caps.append(2 * lesson.largest if lesson is not None else 0)
        if lesson is not None and lesson.ceiling is not None:
            caps.append(lesson.ceiling)
        if self.outlook.zone_cap is not None:
            caps.append(self.outlook.zone_cap)
        limit = self.policy.max_batch_s
        if limit is not None and self.outlook.growth_bytes_s and self.duration is not None:
            short = [
                batch
                for batch in range(1, self.most + 1)
                if self.duration.need(batch) <= int(limit * MICROSECONDS)
            ]
            caps.append(max(short, default=0))
        return max(self.least, min(caps))

    def impossible(self) -> bool:
        if self.ram_floor > self.capacity:
            return True
        if not self.estimate.gpus:
            return False

        def able(card: GpuSnapshot) -> bool:
            if card.integrated:
                return self.ram_floor + self.gpu_floor <= self.capacity
            return self.gpu_floor <= (card.total_bytes or 0)

        return not any(all(map(able, chosen)) for chosen in self.choices())

    def batch(self) -> int:
        for batch in range(self.cap(), self.least - 1, -1):
            if any(self.fits(batch, chosen) for chosen in self.choices()):
                return batch
        return 0


def envelopes(fixed: int, per_item: int) -> st.SearchStrategy[Envelope | None]:
    return st.one_of(
        st.none(),
        st.builds(Envelope, st.integers(0, fixed), st.integers(0, per_item), st.integers(1, 20)),
    )


LESSONS: Final = st.builds(
    Lesson,
    batches=st.just(3),
    ram=envelopes(60, 12),
    gpu=envelopes(40, 10),
    duration_us=envelopes(6, 3),
    largest=st.integers(0, 12),
    ceiling=st.one_of(st.none(), st.none(), st.integers(1, 9)),
)


@st.composite
def questions(draw: st.DrawFn, *, with_gpus: bool) -> Question:
    least = draw(st.integers(1, 4))
    fields: dict[str, Any] = {
        "ram_bytes": draw(st.integers(0, 40)),
        "ram_bytes_per_item": draw(st.integers(0, 9)),
        "min_batch": least,
        "max_batch": draw(st.integers(least, 24)),
    }
    cards: list[GpuSnapshot] = []
    if with_gpus:
        gpu = draw(st.tuples(st.integers(0, 30), st.integers(0, 6)))
        count = draw(st.sampled_from([1, 1, 2]))
        fields.update(gpu_bytes=gpu[0], gpu_bytes_per_item=gpu[1], gpus=count)
        for index in range(draw(st.integers(0, 3))):
            total = draw(st.integers(1, 90))
            free = draw(st.integers(0, total))
            cards.append(
                GpuSnapshot(index=index, uuid=f"{index}", total_bytes=total, free_bytes=free)
            )
        if draw(st.booleans()) or not cards:
            cards.append(GpuSnapshot(index=9, uuid="i", integrated=True))
    total = draw(st.integers(20, 200))
    credit = draw(st.sampled_from([0, 0, 15]))
    lesson = draw(st.one_of(st.none(), LESSONS, LESSONS, LESSONS))
    zone_cap = draw(st.one_of(st.none(), st.none(), st.integers(least, 12)))
    policy = Policy.unlimited(
        ram_reserve_bytes=draw(st.sampled_from([0, 0, 10])),
        trust=draw(st.sampled_from(["declared", "measured"])),
        max_batch_s=draw(st.one_of(st.none(), st.integers(1, 40).map(lambda us: us / 10**6))),
    )
    if policy.trust == "measured" and lesson is None:
        lesson = draw(LESSONS)
    return Question(
        estimate=ResourceEstimate(**fields),
        snapshot=ResourceSnapshot(
            taken_at=NOW,
            ram_total_bytes=total,
            ram_available_bytes=draw(st.integers(0, total)),
            gpus=tuple(cards),
            cpus=2,
        ),
        policy=policy,
        held=draw(st.sampled_from([0, 0, 20])),
        credit=credit,
        outlook=Outlook(
            ram_credit_bytes=credit,
            lesson=lesson,
            zone_cap=zone_cap,
            pressure=Pressure(Zone.YELLOW) if zone_cap is not None else Pressure(),
            growth_bytes_s=draw(st.sampled_from([0, 0, 1, 2, 5])) * MICROSECONDS,
        ),
    )


def check_answer(asked: Question) -> None:
    search, decision = Search(asked), asked.answer()
    event(f"{decision.kind} {decision.reason.code}")
    if search.impossible():
        assert decision.kind is DecisionKind.REJECT
        return
    batch = search.batch()
    if not batch:
        assert decision.kind is DecisionKind.WAIT
        return
    contract = decision.contract
    assert contract is not None
    assert contract.batch_size == batch
    full = batch == asked.estimate.max_batch
    assert decision.kind is (DecisionKind.START if full else DecisionKind.REDUCE_BATCH)
    chosen = tuple(card for card in asked.snapshot.gpus if card.uuid in contract.gpus)
    assert search.fits(batch, chosen)
    needs = search.needs(batch, chosen)
    assert (contract.ram_bytes, contract.gpu_bytes) == needs
    charged = contract.ram_bytes
    if any(card.integrated for card in chosen):
        charged += contract.gpu_bytes
    assert charged <= max(0, search.capacity - asked.held)


def check_reason(asked: Question) -> None:
    """The figures hold, and whatever experience changed is said."""
    decision, plain = asked.answer(), asked.plain()
    facts, code = decision.reason.facts, decision.reason.code
    assert decision.reason.text
    if decision.kind in {DecisionKind.WAIT, DecisionKind.REDUCE_BATCH}:
        if facts["resource"] == "batch":
            assert decision.contract is not None
            granted = decision.contract.batch_size
            assert facts["found"] == facts["limit"] == granted
            assert facts["asked"] == asked.estimate.max_batch > granted
        elif code is not ReasonCode.GPU_MEMORY_UNKNOWN:
            assert float(facts["asked"]) + float(facts.get("forecast", 0)) > float(facts["found"])
    if code is ReasonCode.FORECAST:
        assert facts["growth_bytes_s"] == asked.outlook.growth_bytes_s
        assert float(facts["duration_s"]) > 0
        assert float(facts.get("forecast", 1)) > 0
    if DecisionKind.REJECT in {decision.kind, plain.kind}:
        return
    if batch_of(decision) != batch_of(plain):
        assert code in BY_EXPERIENCE or "learned" in facts
    if decision.contract is not None:
        contract, estimate = decision.contract, asked.estimate
        declared = (
            estimate.ram_need(contract.batch_size),
            estimate.gpu_need(contract.batch_size),
        )
        if (contract.ram_bytes, contract.gpu_bytes) != declared:
            assert "learned" in facts
            assert "declared" in decision.reason.text
            # In a shared memory more of one kind may make up for less of the other.
            assert facts["learned"] != facts["declared"] or contract.gpus == ("i",)


def batch_of(decision: Decision) -> int:
    return decision.contract.batch_size if decision.contract is not None else 0


@pytest.mark.slow
@settings(max_examples=80)
@given(questions(with_gpus=False))
def test_the_batch_is_the_largest_that_fits(asked: Question) -> None:
    check_answer(asked)


@pytest.mark.slow
@settings(max_examples=100)
@given(questions(with_gpus=True))
def test_the_batch_is_the_largest_that_fits_on_any_card(asked: Question) -> None:
    check_answer(asked)


@pytest.mark.slow
@settings(max_examples=80)
@given(st.one_of(questions(with_gpus=False), questions(with_gpus=True)))
def test_the_reason_holds_and_says_what_experience_changed(asked: Question) -> None:
    check_reason(asked)


@pytest.mark.slow
@settings(max_examples=100)
@given(st.one_of(questions(with_gpus=False), questions(with_gpus=True)))
def test_history_makes_nothing_impossible(asked: Question) -> None:
    """What the core's rules admit on an idle machine is admitted there whatever was learned."""
    cards = tuple(attrs.evolve(card, free_bytes=card.total_bytes) for card in asked.snapshot.gpus)
    idle = attrs.evolve(
        asked,
        held=0,
        snapshot=attrs.evolve(
            asked.snapshot, ram_available_bytes=asked.snapshot.ram_total_bytes, gpus=cards
        ),
        outlook=asked.outlook._replace(growth_bytes_s=0),
    )

    if idle.plain().admitted:
        assert idle.answer().admitted
    assert (asked.plain().kind is DecisionKind.REJECT) >= (
        asked.answer().kind is DecisionKind.REJECT
    )


@pytest.mark.slow
@settings(max_examples=80)
@given(st.one_of(questions(with_gpus=False), questions(with_gpus=True)))
def test_history_never_enlarges_a_batch_that_is_declared(asked: Question) -> None:
    asked = attrs.evolve(asked, policy=attrs.evolve(asked.policy, trust="declared"))

    assert batch_of(asked.answer()) <= batch_of(asked.plain())


@pytest.mark.slow
@settings(max_examples=100)
@given(questions(with_gpus=True))
def test_the_red_zone_starts_nothing_and_hides_no_reject(asked: Question) -> None:
    red = asked.outlook._replace(pressure=Pressure(Zone.RED, doublings=0))

    decision = asked.answer(red)

    if asked.answer().kind is DecisionKind.REJECT:
        assert decision == asked.answer()
    else:
        assert decision.kind is DecisionKind.WAIT
        assert decision.reason.code in {ReasonCode.ZONE, ReasonCode.GPUS_BUSY, ReasonCode.CPUS_BUSY}
