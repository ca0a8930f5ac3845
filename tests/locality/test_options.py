"""What a scheduler and a job refuse, and what they are called."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest

import lardon.locality
from lardon.errors import LardonError
from lardon.locality import InvalidOption, Job, LocalityScheduler
from lardon.locality.options import Options

GOOD: dict[str, Any] = {"cache_timeout_s": 1, "deps_timeout_s": 2}


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("cache_timeout_s", -1, "a finite number of at least 0"),
        ("cache_timeout_s", math.nan, "a finite number of at least 0"),
        ("cache_timeout_s", "1", "a finite number of at least 0"),
        ("cache_timeout_s", 2, "less than deps_timeout_s, which is 2"),
        ("deps_timeout_s", math.inf, "a finite number of at least 0"),
        ("deps_timeout_s", None, "a finite number of at least 0"),
        ("order", "fifo", "'random' or 'local-first'"),
        ("order", 1, "'random' or 'local-first'"),
        ("cold", "never", "'wait' or 'now'"),
        ("max_age_s", 0, "a finite number above 0"),
        ("lease_s", -1, "a finite number above 0"),
        ("lease_s", True, "a finite number above 0"),
    ],
)
def test_a_bad_option_names_field_value_and_rule(field: str, value: Any, rule: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        LocalityScheduler(**{**GOOD, field: value})

    assert isinstance(caught.value, (LardonError, ValueError))
    assert (caught.value.field, caught.value.rule) == (field, rule)
    assert caught.value.value is value or caught.value.value == value
    assert field in str(caught.value)


def test_options_are_plain_numbers() -> None:
    options = Options(cache_timeout_s=0, deps_timeout_s=2, lease_s=3)

    assert (options.cache_timeout_s, options.deps_timeout_s, options.lease_s) == (0.0, 2.0, 3.0)
    assert (options.order, options.cold, options.max_age_s) == ("random", "wait", None)


def test_a_job_is_a_frozen_value() -> None:
    job = Job("a", ["x", "y", "x"], payload=[1])

    assert job.deps == ("x", "y")
    assert job == Job("a", ("x", "y"), payload=[2])
    assert repr(job) == "Job(id='a', deps=('x', 'y'))"
    with pytest.raises(AttributeError):
        job.id = "b"  # type: ignore[misc]  # the test


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([],), r"id must be hashable, not \[\]"),
        (("a", "dep"), "deps must be a collection of artifacts, not the text 'dep'"),
        (("a", b"dep"), "deps must be a collection"),
        (("a", [[]]), "unhashable"),
        (("a", 3), "not iterable"),
    ],
)
def test_a_bad_job_is_refused(arguments: tuple[Any, ...], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        Job(*arguments)


def test_one_text_is_no_list_of_artifacts() -> None:
    scheduler = LocalityScheduler(**GOOD)
    for call in (scheduler.add_artifacts, scheduler.remove_artifacts):
        with pytest.raises(TypeError, match="ids must be a collection of artifacts"):
            call("w0", "artifact")


@pytest.mark.parametrize("timeout", [-1, math.nan])
def test_a_bad_timeout_is_refused(timeout: float) -> None:
    scheduler = LocalityScheduler(**GOOD)
    scheduler.register_worker("w")
    handle = scheduler.schedule_job(Job("a"))
    for call in (
        lambda: scheduler.pick_job("w", timeout=timeout),
        lambda: handle.wait(timeout),
        lambda: scheduler.wait_parked(1, timeout),
    ):
        with pytest.raises(ValueError, match="timeout must be None or at least 0"):
            call()


def test_the_machines_clock_and_a_generator_of_its_own_are_the_defaults() -> None:
    with LocalityScheduler(cache_timeout_s=0, deps_timeout_s=0.001) as scheduler:
        scheduler.register_worker("w")
        scheduler.schedule_job(Job("a"))
        picked = scheduler.pick_job("w", timeout=10)
        assert picked is not None
        assert not scheduler.wait_parked(1, 0)


def test_the_public_names_are_there() -> None:
    assert all(hasattr(lardon.locality, name) for name in lardon.locality.__all__)
    assert len(set(lardon.locality.__all__)) == len(lardon.locality.__all__)


@pytest.mark.slow
def test_who_does_not_use_it_does_not_load_it() -> None:
    code = "import sys, lardon; print([n for n in sys.modules if n.startswith('lardon.local')])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=15, check=True
    )

    assert done.stdout.strip() == "[]"
