"""The settings of a backend are taken as the document writes them, and no other way."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from lardon.dispatch import registry
from lardon.dispatch.decoding import Seconds, decode
from lardon.dispatch.enums import Action, Capability, Cause, Shape, Source, Tristate
from lardon.dispatch.errors import DispatchError, InvalidError, MissingExtra, UnsupportedError
from lardon.dispatch.memory import MemoryBackend, MemorySettings
from lardon.dispatch.model import Cessation, Support
from lardon.dispatch.recovery import RecoveryPolicy, RecoveryRule
from lardon.dispatch.registry import create, register
from lardon.testing import ManualClock

ROOT: Final = Path(__file__).parents[2]
# As the document has it.
EXAMPLE: Final = """
{
  "shape": "slurm",
  "maxJobId": 100,
  "minJobAge": "5m",
  "callBound": "25s",
  "slurmdTimeout": "40s",
  "watchBuffer": 64,
  "capabilities": {"AccountingHistory": {"value": "yes", "source": "probed"}},
  "rules": {"restart": {"value": "yes"}},
  "native": {"restart": {"value": "yes"}},
  "cessation": {"ceased": true, "detail": "node fenced"}
}
"""
SAID: Final[Mapping[str, Any]] = {
    "shape": Shape.SLURM,
    "max_job_id": 100,
    "min_job_age_s": 300.0,
    "call_bound_s": 25.0,
    "slurmd_timeout_s": 40.0,
    "watch_buffer": 64,
    "capabilities": {
        Capability.ACCOUNTING_HISTORY: Support(Tristate.YES, Source.PROBED),
    },
    "rules": {Action.RESTART: Support(Tristate.YES)},
    "native": {Action.RESTART: Support(Tristate.YES)},
    "cessation": Cessation(ceased=True, detail="node fenced"),
}


def test_the_example_of_the_document_configures_the_backend(clock: ManualClock) -> None:
    """Seed 000, C3: as text, as bytes and as what JSON makes of it."""
    for document in (EXAMPLE, EXAMPLE.encode(), json.loads(EXAMPLE)):
        backend = create("memory", document, clock=clock)

        assert isinstance(backend, MemoryBackend)
        assert backend.settings == MemorySettings(**SAID)
        promised = backend.declarations()
        assert promised.call_bound_s == 25
        assert promised.supports(Capability.ACCOUNTING_HISTORY) is Tristate.YES
        assert promised.native == {Action.RESTART: Support(Tristate.YES)}


def test_the_constructor_takes_the_same_settings(clock: ManualClock) -> None:
    """Seed 000, C5: in snake_case, with seconds."""
    backend = MemoryBackend(clock=clock, **SAID)

    assert backend.settings == MemoryBackend.from_settings(EXAMPLE).settings
    fenced = {"ceased": True, "detail": "node fenced"}
    plain = {**SAID, "rules": {"restart": {"value": "yes"}}, "cessation": fenced}
    assert MemoryBackend(**plain).settings == backend.settings
    wrong: Mapping[str, Any] = {
        "cessation": {"cessation": "yes"},
        "cessation.node": {"cessation": {"ceased": True, "node": "n1"}},
        "cessation.ceased": {"cessation": {"ceased": 1}},
        "rules.stop": {"rules": {"stop": {}}},
        "rules.stop.value": {"rules": {"stop": {"value": "maybe"}}},
        "rules.explode": {"rules": {"explode": {"value": "yes"}}},
    }
    for path, settings in wrong.items():
        with pytest.raises(InvalidError) as caught:
            MemoryBackend(**settings)
        assert caught.value.path == path
    with pytest.raises(InvalidError, match="max_job_ids must be one of the settings"):
        MemoryBackend(max_job_ids=3)


def test_a_view_says_what_it_was_made_with(clock: ManualClock) -> None:
    """dispatch.md, rule 6: all views share one cluster, and its settings."""
    backend = MemoryBackend(clock=clock, **SAID)

    assert backend.view(read_only=True).settings is backend.settings
    with pytest.raises(InvalidError, match="spec must be a JobSpec"):
        backend.start("a job")  # type: ignore[arg-type]  # that is what is refused


def test_a_policy_is_divided_as_rules_and_native_say() -> None:
    """dispatch.md, section 1.4: what the scheduler enforces, what is left, what is no rule."""
    declared = {
        "rules": {"restart": {"value": "yes"}, "requeue": {"value": "no"}},
        "native": {"restart": {"value": "yes"}},
    }
    backend = MemoryBackend.from_settings(declared)
    restart = RecoveryRule(Cause.PREEMPTED, Action.RESTART)
    stop = RecoveryRule(Cause.TIMEOUT, Action.STOP)

    divided = backend.compile_policy(RecoveryPolicy([restart, stop]))

    assert (divided.native, divided.supervised) == ((restart,), (stop,))
    with pytest.raises(UnsupportedError, match="the rule for NodeLost asks for requeue") as caught:
        backend.compile_policy(RecoveryPolicy([RecoveryRule(Cause.NODE_LOST, Action.REQUEUE)]))
    assert caught.value.operation == "compile_policy(requeue)"


def test_no_settings_are_the_defaults() -> None:
    """dispatch.md, rule 2: the figures of slurm.conf, and one hour for Kubernetes' events."""
    settings = MemoryBackend.from_settings().settings

    assert settings == MemorySettings()
    assert (settings.shape, settings.max_job_id) == (Shape.SLURM, 67_043_328)
    assert (settings.min_job_age_s, settings.slurmd_timeout_s) == (300, 300)
    assert (settings.call_bound_s, settings.evidence_window_s) == (25, 3600)
    assert not settings.requeue_resets_submit_time


WRONG: Final[Mapping[str, tuple[str, Any]]] = {
    "an unknown field": ("colour", {"colour": "red"}),
    "a field in snake_case": ("min_job_age", {"min_job_age": "5m"}),
    "a field with the unit of the constructor": ("minJobAgeS", {"minJobAgeS": "5m"}),
    "an unknown field of a capability": (
        "capabilities.AccountingHistory.since",
        {"capabilities": {"AccountingHistory": {"value": "yes", "since": 1}}},
    ),
    "an unknown field of a rule": ("rules.stop.x", {"rules": {"stop": {"value": "no", "x": 1}}}),
    "an unknown field of the cessation": (
        "cessation.node",
        {"cessation": {"ceased": True, "node": "n1"}},
    ),
    "an unknown capability": ("capabilities.Sluids", {"capabilities": {"Sluids": {"value": "no"}}}),
    "a capability in other letters": (
        "capabilities.accountinghistory",
        {"capabilities": {"accountinghistory": {"value": "no"}}},
    ),
    "an unknown action of a rule": ("rules.explode", {"rules": {"explode": {"value": "no"}}}),
    "an unknown native action": ("native.explode", {"native": {"explode": {"value": "no"}}}),
    "an unknown tristate": (
        "capabilities.AccountingHistory.value",
        {"capabilities": {"AccountingHistory": {"value": "perhaps"}}},
    ),
    "an unknown tristate of a rule": (
        "rules.restart.value",
        {"rules": {"restart": {"value": "Yes"}}},
    ),
    "a boolean for a tristate": ("rules.restart.value", {"rules": {"restart": {"value": True}}}),
    "an unknown source": (
        "rules.restart.source",
        {"rules": {"restart": {"value": "yes", "source": "guessed"}}},
    ),
    "a capability without a value": (
        "capabilities.AccountingHistory.value",
        {"capabilities": {"AccountingHistory": {}}},
    ),
    "a capability that is no object": (
        "capabilities.AccountingHistory",
        {"capabilities": {"AccountingHistory": "yes"}},
    ),
    "capabilities that are no object": ("capabilities", {"capabilities": ["AccountingHistory"]}),
    "an unknown shape": ("shape", {"shape": "pbs"}),
    "a shape that is null": ("shape", {"shape": None}),
    "a duration that is a number": ("minJobAge", {"minJobAge": 300}),
    "a duration without a unit": ("callBound", {"callBound": "25"}),
    "a duration of another unit": ("slurmdTimeout", {"slurmdTimeout": "1d"}),
    "a negative duration": ("callBound", {"callBound": "-25s"}),
    "no age at all": ("minJobAge", {"minJobAge": "0s"}),
    "a duration that is null": ("evidenceWindow", {"evidenceWindow": None}),
    "a text for a number": ("maxJobId", {"maxJobId": "100"}),
    "a fraction for a whole number": ("maxJobId", {"maxJobId": 1.5}),
    "a boolean for a whole number": ("watchBuffer", {"watchBuffer": True}),
    "no id at all": ("maxJobId", {"maxJobId": 0}),
    "no buffer at all": ("watchBuffer", {"watchBuffer": 0}),
    "a text for a boolean": ("cessation.ceased", {"cessation": {"ceased": "true"}}),
    "a number for a text": ("cessation.detail", {"cessation": {"ceased": True, "detail": 7}}),
    "a text for the parity": ("requeueResetsSubmitTime", {"requeueResetsSubmitTime": "no"}),
    "a native yes whose rule is no": (
        "native.restart",
        {"native": {"restart": {"value": "yes"}}, "rules": {"restart": {"value": "no"}}},
    ),
    "a native yes whose rule is unknown": (
        "native.restart",
        {"native": {"restart": {"value": "yes"}}, "rules": {"restart": {"value": "unknown"}}},
    ),
    "a native yes without a rule": ("native.requeue", {"native": {"requeue": {"value": "yes"}}}),
    "a list": ("settings", []),
    "nothing but null": ("settings", "null"),
    "no JSON": ("settings", "shape: slurm"),
    "an empty text": ("settings", ""),
    "something after the end": ("settings", EXAMPLE + "{}"),
    "a comma after the end": ("settings", EXAMPLE.rstrip() + ","),
    "a number that JSON has not": ("settings", '{"maxJobId": NaN}'),
    "a field that is given twice": ("shape", '{"shape": "slurm", "shape": "kubeflow"}'),
    "a field of the cessation that is given twice": (
        "cessation.ceased",
        '{"cessation": {"ceased": true, "ceased": false}}',
    ),
    "a rule that is given twice": (
        "rules.restart",
        '{"rules": {"restart": {"value": "yes"}, "restart": {"value": "no"}}}',
    ),
    "a field that is given twice in a list": (
        "shape[1].a",
        '{"shape": [0, {"a": 1, "a": 2}]}',
    ),
    "unknown fields of two types": ("1", {1: 2, "zone": 3}),
    "a duration of too many digits": ("minJobAge", {"minJobAge": "9" * 5000 + "s"}),
    "a duration of no end": ("slurmdTimeout", {"slurmdTimeout": "2562048h"}),
    "bytes that are no text": ("settings", b'{"shape": "\xff"}'),
    "brackets without end": ("settings", "[" * 100_000),
}


@pytest.mark.parametrize(("path", "document"), WRONG.values(), ids=WRONG)
def test_a_wrong_setting_is_refused_with_its_path(path: str, document: Any) -> None:
    """Seed 000, C1, C4: an unknown word at any level, another type, and trailing data."""
    with pytest.raises(InvalidError) as caught:
        create("memory", document)

    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path} must be ")
    assert caught.value.rule
    assert isinstance(caught.value, (DispatchError, ValueError))


def test_what_is_wrong_in_the_example_is_found(clock: ManualClock) -> None:
    """Seed 000, C1: each field of the example, with another name."""
    example = json.loads(EXAMPLE)
    for name in example:
        wrong = {(f"{key}x" if key == name else key): value for key, value in example.items()}
        with pytest.raises(InvalidError) as caught:
            create("memory", wrong, clock=clock)
        assert caught.value.path in {f"{name}x", "native.restart"}


def test_a_native_no_needs_no_rule() -> None:
    """Seed 000, C4: it is the yes that promises something."""
    settings = MemoryBackend.from_settings({"native": {"restart": {"value": "no"}}}).settings

    assert settings.native == {Action.RESTART: Support(Tristate.NO)}


@attrs.frozen(kw_only=True)
class Outer:
    """Settings of an adapter of somebody else's."""

    poll_s: Seconds = 15.0
    grace_s: Seconds | None = None
    share: float = 1.0
    hosts: Mapping[str, Support] = attrs.field(factory=dict)
    login_host: str
    ports: tuple[int, ...] = ()


def test_an_adapter_of_somebody_elses_is_decoded_the_same_way() -> None:
    """dispatch.md, section 1.2: fields that are required, optional durations, plain numbers."""
    found = decode(Outer, '{"loginHost": "a", "poll": "1m", "grace": "2s", "share": 2}')

    assert found == Outer(login_host="a", poll_s=60.0, grace_s=2.0, share=2.0)
    assert decode(Outer, {"loginHost": "a", "grace": None}).grace_s is None
    refused: Mapping[str, Mapping[str, Any]] = {
        "loginHost": {},
        "grace": {"loginHost": "a", "grace": 3},
        "share": {"loginHost": "a", "share": "2"},
        "hosts.b.value": {"loginHost": "a", "hosts": {"b": {"value": 1}}},
        "ports": {"loginHost": "a", "ports": 22},
        "ports[1]": {"loginHost": "a", "ports": [22, "23"]},
    }
    for path, wrong in refused.items():
        with pytest.raises(InvalidError) as caught:
            decode(Outer, wrong)
        assert caught.value.path == path


# The registry


def test_importing_the_package_registers_it() -> None:
    """Seed 000, I6: under the name memory; asked for by that name, it imports itself."""
    assert registry._factories["memory"] == MemoryBackend.from_settings
    done = fresh(
        "import sys; from lardon.dispatch.registry import create;"
        "assert 'lardon.dispatch.memory' not in sys.modules;"
        "print(type(create('memory')).__name__)"
    )

    assert (done.stdout.strip(), done.stderr) == ("MemoryBackend", "")


def test_an_adapter_registers_itself_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """dispatch.md, section 1.2: a name is one factory's; registering it again is harmless."""
    monkeypatch.setattr(registry, "_factories", {})

    def factory(settings: Any, *, clock: Any) -> Any:
        return settings, clock

    register("mine", factory)
    register("mine", factory)
    clock = ManualClock()

    assert create("mine", {"a": 1}, clock=clock) == ({"a": 1}, clock)
    with pytest.raises(InvalidError, match="a name that no other factory has"):
        register("mine", lambda settings, *, clock: factory(settings, clock=clock))
    for name, made in (("", factory), (7, factory), ("other", None)):
        with pytest.raises(InvalidError):
            register(name, made)  # type: ignore[arg-type]  # that is what is refused
    with pytest.raises(InvalidError, match="name must be a text"):
        create(["mine"])  # type: ignore[arg-type]  # which could not be looked up
    with pytest.raises(InvalidError, match=r"the name of an adapter .*memory, mine, slurm.*'pbs'"):
        create("pbs")


# What an import costs


def fresh(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=15,
        check=False,
    )


def test_lardon_does_not_import_dispatch_and_dispatch_no_extra() -> None:
    """dispatch.md, decisions: who does not use it does not pay for it."""
    done = fresh(
        "import sys, lardon; print([name for name in sys.modules if 'lardon.dispatch' in name]);"
        "import lardon.dispatch.memory, lardon.dispatch.conformance;"
        "print(sorted({'cattrs', 'cloudpickle', 'pytest'} & set(sys.modules)))"
    )

    assert (done.stdout.split("\n")[:2], done.stderr) == (["[]", "[]"], "")


def test_without_the_extra_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """dispatch.md, decisions: cattrs belongs to the extra `dispatch`."""
    monkeypatch.setitem(sys.modules, "cattrs", None)

    with pytest.raises(MissingExtra, match=r"pip install 'lardon\[dispatch\]'") as caught:
        create("memory", EXAMPLE)

    assert caught.value.extra == "dispatch"
    assert isinstance(caught.value, ImportError)
    assert MemoryBackend(shape="slurm").declarations().adapter == "memory"


def test_the_extra_is_declared() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]

    assert {text.partition(">")[0] for text in extras["dispatch"]} == {"cattrs", "cloudpickle"}
    assert set(extras["dispatch"]) <= set(extras["test"])
