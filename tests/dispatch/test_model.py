"""The values of a dispatch: what they take, what they refuse, what they are equal to."""

from __future__ import annotations

import ast
import copy
import datetime
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import hypothesis
import hypothesis.strategies as st
import pytest

import lardon.dispatch
from lardon.dispatch import (
    EPOCH_BOUND,
    HOLD_BASE,
    Action,
    CallMeta,
    Capability,
    Cause,
    Cessation,
    Declarations,
    HoldMeta,
    InvalidError,
    JobSpec,
    NativePolicy,
    Observation,
    RecoveryPolicy,
    RecoveryRule,
    Ref,
    Source,
    State,
    Support,
    Tristate,
    epoch,
    errors,
    new_ulid,
)
from lardon.dispatch.enums import ClosedEnum, Shape
from lardon.errors import LardonError
from tests.dispatch.jobs import JOB, spec

NOON = datetime.datetime(2026, 5, 4, 12, tzinfo=datetime.UTC)
REF = Ref("dj-x", 7, NOON)

VALUES: list[Any] = [
    spec(environment={"A": "1"}, extensions={"slurm": {"partition": "gpu"}}),
    REF,
    CallMeta(NOON),
    HoldMeta(1, NOON, placed_by="ops", until=NOON, reason="why"),
    Observation(ref=REF, state=State.RUNNING, nodes=["n1"]),
    Cessation(ceased=True),
    Support(Tristate.YES),
    Declarations(
        adapter="memory",
        call_bound_s=25,
        capabilities={Capability.ACCOUNTING_HISTORY: Support(Tristate.YES)},
    ),
    RecoveryPolicy([RecoveryRule(Cause.PREEMPTED, Action.RESTART)]),
    NativePolicy(),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda one: type(one).__name__)
def test_a_value_is_frozen_hashed_copied_and_pickled(value: Any) -> None:
    """dispatch.md, decisions: value types are attrs.frozen."""
    name = type(value).__attrs_attrs__[0].name

    assert hash(value) == hash(copy.deepcopy(value))
    assert pickle.loads(pickle.dumps(value)) == value  # noqa: S301  our own
    assert copy.copy(value) == value
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        object.__getattribute__(value, "__setattr__")(name, None)


def test_a_mapping_of_a_value_cannot_be_changed_from_either_side() -> None:
    given = {"A": "1"}
    job = spec(environment=given)
    given["A"] = "2"

    assert job.environment == copy.copy(job.environment) == {"A": "1"}
    environment: Any = job.environment
    changes: list[Callable[[], object]] = [
        lambda: environment.update(A="3"),
        lambda: environment.__setitem__("A", "3"),
        lambda: environment.pop("A"),
        lambda: environment.clear(),
    ]
    for change in changes:
        with pytest.raises(TypeError, match="cannot be changed"):
            change()


WRONG: dict[str, tuple[str, Callable[[], object]]] = {
    "a job without a ULID": ("id", lambda: spec("job-1")),
    "a ULID with a letter that is none": ("id", lambda: spec(JOB[:-1] + "U")),
    "a ULID of more than 128 bits": ("id", lambda: spec("8" + JOB[1:])),
    "a ULID that is too short": ("id", lambda: spec(JOB[1:])),
    "submission 0": ("submission", lambda: spec(submission=0)),
    "a submission at the bound": ("submission", lambda: spec(submission=EPOCH_BOUND)),
    "a command that is a text": ("command", lambda: spec(command="python train.py")),
    "no command": ("command", lambda: spec(command=[])),
    "a program without a name": ("command", lambda: spec(command=["", "x"])),
    "an argument that is a number": ("command[1]", lambda: spec(command=["x", 1])),
    "an argument with NUL": ("command[1]", lambda: spec(command=["x", "a\0b"])),
    "no node": ("nodes", lambda: spec(nodes=0)),
    "no CPU": ("cpus", lambda: spec(cpus=0)),
    "a fraction of a CPU": ("cpus", lambda: spec(cpus=1.5)),
    "True CPUs": ("cpus", lambda: spec(cpus=True)),
    "less than no GPU": ("gpus", lambda: spec(gpus=-1)),
    "no memory": ("ram_bytes", lambda: spec(ram_bytes=0)),
    "no time": ("time_limit_s", lambda: spec(time_limit_s=0)),
    "time without end": ("time_limit_s", lambda: spec(time_limit_s=float("inf"))),
    "an empty directory": ("directory", lambda: spec(directory="")),
    "a variable of the backend's": (
        "environment.DISPATCH_EPOCH",
        lambda: spec(environment={"DISPATCH_EPOCH": "1"}),
    ),
    "a variable with =": ("environment.A=B", lambda: spec(environment={"A=B": "1"})),
    "a variable that is a number": ("environment.A", lambda: spec(environment={"A": 1})),
    "an environment that is a list": ("environment", lambda: spec(environment=["A=1"])),
    "a job's extensions in a list": ("extensions", lambda: spec(extensions=["slurm"])),
    "the reserved namespace": (
        "extensions.dispatch",
        lambda: spec(extensions={"dispatch": {"x": "1"}}),
    ),
    "an extension that is a text": (
        "extensions.slurm",
        lambda: spec(extensions={"slurm": "--partition=gpu"}),
    ),
    "an extension of a number": (
        "extensions.slurm.nice",
        lambda: spec(extensions={"slurm": {"nice": 5}}),
    ),
    "a ref without a name": ("name", lambda: Ref("", 1, NOON)),
    "a ref with a negative id": ("id", lambda: Ref("x", -1, NOON)),
    "a ref with an empty id": ("id", lambda: Ref("x", "", NOON)),
    "a ref with a fraction of a second": (
        "submitted_at",
        lambda: Ref("x", 1, NOON.replace(microsecond=1)),
    ),
    "a ref with a naive time": ("submitted_at", lambda: Ref("x", 1, NOON.replace(tzinfo=None))),
    "a deadline that is a number": ("deadline", lambda: CallMeta(5)),  # type: ignore[arg-type]
    "a naive deadline": ("deadline", lambda: CallMeta(NOON.replace(tzinfo=None))),
    "hold 0": ("instance", lambda: HoldMeta(0, NOON)),
    "a hold at the bound": ("instance", lambda: HoldMeta(EPOCH_BOUND, NOON)),
    "a hold by nobody": ("placed_by", lambda: HoldMeta(1, NOON, placed_by=None)),  # type: ignore[arg-type]
    "a hold until a naive time": (
        "until",
        lambda: HoldMeta(1, NOON, until=NOON.replace(tzinfo=None)),
    ),
    "an unknown state": ("state", lambda: Observation(ref=REF, state="Gone")),  # type: ignore[arg-type]
    "an unknown cause": (
        "cause",
        lambda: Observation(ref=REF, state=State.ENDED, cause="Boredom"),  # type: ignore[arg-type]
    ),
    "less than no restart": (
        "restarts",
        lambda: Observation(ref=REF, state=State.ENDED, restarts=-1),
    ),
    "nodes that are a text": (
        "nodes",
        lambda: Observation(ref=REF, state=State.ENDED, nodes="n1"),
    ),
    "a bit that is 1": (
        "requeue_bit",
        lambda: Observation(ref=REF, state=State.ENDED, requeue_bit=1),  # type: ignore[arg-type]
    ),
    "a native yes without its rule": (
        "native.stop",
        lambda: Declarations(
            adapter="x", call_bound_s=1, native={Action.STOP: Support(Tristate.YES)}
        ),
    ),
    "a capability that is a text": (
        "capabilities.RequeueEnded",
        lambda: Declarations(
            adapter="x",
            call_bound_s=1,
            capabilities={Capability.REQUEUE_ENDED: "yes"},  # type: ignore[dict-item]
        ),
    ),
    "capabilities that are a list": (
        "capabilities",
        lambda: Declarations(adapter="x", call_bound_s=1, capabilities=[]),  # type: ignore[arg-type]
    ),
    "a negative bound": ("call_bound_s", lambda: Declarations(adapter="x", call_bound_s=-1)),
    "a rule for a success": ("cause", lambda: RecoveryRule(Cause.COMPLETED, Action.RESTART)),
    "less memory": (
        "ram_factor",
        lambda: RecoveryRule(Cause.OUT_OF_MEMORY, Action.RESTART, ram_factor=0.5),
    ),
    "a delay that no calendar can tell": (
        "delay_s",
        lambda: RecoveryRule(Cause.PREEMPTED, Action.RESTART, delay_s=1e12, max_delay_s=1e12),
    ),
    "a time limit that no calendar can tell": ("time_limit_s", lambda: spec(time_limit_s=1e300)),
    "an observation of a text": ("ref", lambda: Observation("job 1", State.RUNNING)),  # type: ignore[arg-type]
    "two rules for one cause": (
        "rules",
        lambda: RecoveryPolicy([RecoveryRule(Cause.PREEMPTED, Action.RESTART)] * 2),
    ),
    "a rule that is a text": ("rules", lambda: RecoveryPolicy(["restart"])),  # type: ignore[list-item]
    "a policy without executions": (
        "max_executions",
        lambda: RecoveryPolicy([], max_executions=0),
    ),
    "an epoch of a negative execution": ("execution", lambda: epoch(1, -1)),
    "an epoch at the bound": ("execution", lambda: epoch(1, EPOCH_BOUND)),
    "an epoch of a submission at the bound": ("submission", lambda: epoch(EPOCH_BOUND, 0)),
    "a ULID of a naive time": ("at", lambda: new_ulid(NOON.replace(tzinfo=None), lambda _: 0)),
    "a ULID before 1970": ("at", lambda: new_ulid(NOON.replace(year=1969), lambda _: 0)),
}


@pytest.mark.parametrize(("path", "make"), WRONG.values(), ids=WRONG)
def test_a_wrong_field_is_refused_with_its_path(path: str, make: Callable[[], object]) -> None:
    """dispatch.md, section 1.6: the error names the field, the value and the rule."""
    with pytest.raises(InvalidError) as caught:
        make()

    assert caught.value.path == caught.value.field == path
    assert caught.value.rule
    assert caught.value.rule in str(caught.value)


def test_a_job_has_a_constant_name_and_one_for_each_submission() -> None:
    """dispatch.md, rules 9 and 18: dj-<ULID> and dj-<ulid>-s<N>."""
    job = spec(JOB.lower(), submission=3)

    assert job.id == JOB
    assert (job.name, job.submission_name) == (f"dj-{JOB}", f"dj-{JOB.lower()}-s3")
    assert job.command == ("python", "train.py")
    with pytest.raises(TypeError):
        JobSpec(*[JOB])  # type: ignore[call-arg]  # keyword-only


def test_times_are_kept_in_utc() -> None:
    """dispatch.md, decisions: aware UTC datetimes."""
    east = datetime.timezone(datetime.timedelta(hours=5))

    assert Ref("x", 1, NOON.astimezone(east)).submitted_at.tzinfo is datetime.UTC
    assert CallMeta(NOON.astimezone(east)) == CallMeta(NOON)


def test_a_ref_is_all_three_and_not_the_sluid() -> None:
    """dispatch.md, decisions: identity is name, id and submit time; a SLUID comes beside it."""
    later = NOON + datetime.timedelta(seconds=1)

    assert Ref("x", 1, NOON) != Ref("x", 1, later)
    assert Ref("x", 1, NOON) != Ref("x", 2, NOON)
    assert Ref("x", 1, NOON) != Ref("y", 1, NOON)
    assert Ref("x", 1, NOON) == Ref("x", 1, NOON, sluid="sABC")
    assert len({Ref("x", 1, NOON), Ref("x", 1, NOON, sluid="sABC")}) == 1


def test_a_hold_carries_a_deadline_as_every_call_does() -> None:
    """dispatch.md, section 1.5: HoldMeta is a CallMeta with more."""
    meta = HoldMeta(2, NOON)

    assert isinstance(meta, CallMeta)
    assert (meta.instance, meta.deadline) == (2, NOON)
    assert meta == HoldMeta(instance=2, deadline=NOON, placed_by="", until=None, reason="")


def test_an_unknown_object_neither_ended_nor_is_known() -> None:
    """dispatch.md, section 1.6: absent everywhere is unknown, never completed."""
    unknown = Observation(ref=REF, state=State.UNKNOWN)
    ended = Observation(ref=REF, state=State.ENDED, cause=Cause.COMPLETED, exit_code=0)
    held = Observation(ref=REF, state=State.PENDING, hold_instance=1)

    assert (unknown.known, unknown.ended) == (False, False)
    assert (ended.known, ended.ended, ended.held) == (True, True, False)
    assert held.held


@hypothesis.given(
    st.tuples(st.integers(0, EPOCH_BOUND - 1), st.integers(0, EPOCH_BOUND - 1)),
    st.tuples(st.integers(0, EPOCH_BOUND - 1), st.integers(0, EPOCH_BOUND - 1)),
)
def test_an_epoch_orders_executions_and_fits_a_double(
    one: tuple[int, int], other: tuple[int, int]
) -> None:
    """dispatch.md, section 1.5: N times the bound plus R, below 10^12, exact as a double."""
    assert (epoch(*one) < epoch(*other)) == (one < other)
    assert epoch(*one) < 10**12
    assert int(float(epoch(*one))) == epoch(*one)
    assert (HOLD_BASE, EPOCH_BOUND) == (315_576_000, 1_000_000)


@pytest.mark.parametrize("kind", [State, Cause, Capability, Action, Source, Tristate, Shape])
def test_a_word_is_its_text_and_another_one_is_refused(kind: type[ClosedEnum]) -> None:
    """dispatch.md, section 1.1: every enum is text on the wire, and refuses an unknown name."""
    for member in kind:
        assert kind(str(member)) is member
        assert kind(member.value) is member
    wrong: Any
    for wrong in ("", "nothing", None, 0, [], kind):
        with pytest.raises(InvalidError, match="must be one of"):
            kind(wrong)


def test_the_closed_sets_are_those_of_the_document() -> None:
    """dispatch.md, decisions: capabilities, actions, sources and tristates."""
    assert set(Capability) == {"AccountingHistory", "RequeueEnded"}
    assert set(Action) == {"restart", "requeue", "stop"}
    assert set(Source) == {"probed", "configured", "assumed"}
    assert set(Tristate) == {"yes", "no", "unknown"}
    assert Support("yes").source is Source.CONFIGURED  # type: ignore[arg-type]  # as text
    assert set(Cause) == {
        "Preempted", "NodeLost", "OutOfMemory", "NonZeroExit", "Timeout", "NoCapacity", "Held",
        "Requeued", "Unknown", "Completed", "Cancelled", "BootFail", "AdminHeld",
    }  # fmt: skip


def test_a_capability_that_is_not_declared_is_unknown() -> None:
    """dispatch.md, section 1.1: support is reported per cluster, and silence is no no."""
    promised = Declarations(
        adapter="x",
        call_bound_s=1,
        capabilities={Capability.REQUEUE_ENDED: Support(Tristate.NO, Source.PROBED)},
    )

    assert promised.supports(Capability.REQUEUE_ENDED) is Tristate.NO
    assert promised.supports(Capability.ACCOUNTING_HISTORY) is Tristate.UNKNOWN


@hypothesis.given(
    st.lists(
        st.datetimes(
            min_value=datetime.datetime(1970, 1, 1),  # noqa: DTZ001  a bound of the strategy
            timezones=st.just(datetime.UTC),
        ),
        min_size=2,
        max_size=5,
    )
)
def test_ulids_sort_by_time_and_name_a_job(times: list[datetime.datetime]) -> None:
    """Each is taken by a job as it is; the same bits give the same name."""
    made = [new_ulid(at, random.Random(3).getrandbits) for at in sorted(times)]

    assert made == sorted(made)
    assert all(spec(one).id == one for one in made)


def test_a_delay_grows_up_to_its_limit() -> None:
    """dispatch.md, rules of recovery: policies are data, and say how long to wait."""
    rule = RecoveryRule(Cause.NODE_LOST, Action.RESTART, delay_s=10, max_delay_s=60)
    steady = RecoveryRule(Cause.TIMEOUT, Action.RESTART, delay_s=5, delay_factor=1)

    assert [rule.delay_before(time) for time in (1, 2, 3, 4, 5, 10**9)] == [10, 20, 40, 60, 60, 60]
    assert steady.delay_before(1000) == 5
    policy = RecoveryPolicy([rule, steady])
    assert policy.rule_for(Cause.TIMEOUT) is steady
    assert policy.rule_for(Cause.HELD) is None
    assert policy.rule_for(None) is None


# Errors

ERRORS = [
    getattr(errors, name)
    for name in dir(errors)
    if isinstance(getattr(errors, name), type)
    and issubclass(getattr(errors, name), errors.DispatchError)
]
FACTS: dict[str, dict[str, Any]] = {
    "InvalidError": {"field": "a.b", "value": 1, "rule": "2"},
    "OutcomeUnknown": {"settles_at": NOON},
    "CrashedError": {"settles_at": NOON},
    "RequeueBitMaybeSet": {"settles_at": NOON},
    "ExpiredError": {"deadline": NOON, "started_at": NOON},
    "RefusedError": {"reason": "what was asked and found"},
    "DuplicateError": {"reason": "what was asked and found", "name": "dj-x"},
    "FinishedError": {"ref": REF},
    "NotFoundError": {"ref": REF},
    "UnsupportedError": {"operation": "requeue"},
    "MissingExtra": {"extra": "dispatch"},
}


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_keeps_its_facts_through_a_pickle(kind: type[errors.DispatchError]) -> None:
    """dispatch.md, section 1.6: facts are attributes; each can be made without."""
    facts = FACTS.get(kind.__name__, {})
    given = {name: value for name, value in facts.items() if name != "reason"}
    error = kind("what was asked and found", **given)

    assert isinstance(error, LardonError)
    for again in (error, pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301  our own
        assert type(again) is kind
        assert str(again) == "what was asked and found"
        for name, value in facts.items():
            assert getattr(again, name) == value
    assert str(kind()) == ""


def test_the_errors_of_an_unknown_outcome_are_one_family() -> None:
    """dispatch.md, section 5: what may have happened is told from what has not."""
    assert issubclass(errors.CrashedError, errors.OutcomeUnknown)
    assert issubclass(errors.RequeueBitMaybeSet, errors.OutcomeUnknown)
    for kind in (errors.RefusedError, errors.ExpiredError, errors.FinishedError):
        assert not issubclass(kind, errors.OutcomeUnknown)
    assert issubclass(InvalidError, ValueError)


def test_the_package_re_exports_the_model() -> None:
    """dispatch.md, section 1.1: `lardon.dispatch` re-exports the model's types."""
    from lardon.dispatch import model

    for name in model.__all__:
        assert getattr(lardon.dispatch, name) is getattr(model, name)
        assert name in lardon.dispatch.__all__
    for kind in ERRORS:
        assert kind.__name__ in lardon.dispatch.__all__


def test_the_model_imports_nothing_that_acts() -> None:
    """dispatch.md, section 1.1: stored records cannot form a cycle with a backend."""
    root = Path(lardon.dispatch.__file__).parent
    seen, todo = set(), ["model", "recovery"]
    while todo:
        name = todo.pop()
        seen.add(name)
        tree = ast.parse((root / f"{name}.py").read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lardon"):
                assert node.module is not None
                room, _, rest = node.module.removeprefix("lardon.").partition(".")
                if room == "dispatch" and rest not in seen:
                    todo.append(rest)
                assert room == "dispatch" or node.module in {
                    "lardon.errors",
                    "lardon.governor.checks",
                }

    reached = {"enums", "errors", "frozen_map", "names", "rules", "ulid"}
    assert seen == {"model", "recovery"} | reached
