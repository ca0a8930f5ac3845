"""Contracts applied: thread pools and children keep to what was granted, and it is undone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

import attrs
import numpy as np
import pytest
import threadpoolctl

from lardon import Contract, Decision, ResourceEstimate, SystemProbe, TaskContext, TaskQueue
from lardon.environment import VISIBLE_DEVICES, gpus_for_children, outer_environ
from lardon.queue import applied as applied_module
from lardon.queue.applied import applied
from lardon.testing import FakeGpu, FakeNvml, ScriptedGovernor, start

PATIENCE_S: Final = 10.0
ANY: Final = ResourceEstimate(max_batch=4)
ONE_CPU: Final = Contract(batch_size=1, ram_bytes=0, cpus=1)
ON_A_GPU: Final = Contract(batch_size=1, ram_bytes=0, cpus=1, gpus=("GPU-a", "GPU-b"))


def granting(contract: Contract) -> Decision:
    return attrs.evolve(start(), contract=contract)


class FakeController:
    """Stands for threadpoolctl's: one pool of four threads and one of one."""

    user_api = "blas"

    def __init__(self) -> None:
        self.sizes = {"libbig": 4, "libsmall": 1}
        self.log: list[str] = []
        self.chosen: list[str] = []

    def info(self) -> list[dict[str, Any]]:
        return [
            {"filepath": name, "num_threads": size, "user_api": self.user_api}
            for name, size in self.sizes.items()
        ]

    def select(self, *, filepath: list[str]) -> FakeController:
        self.chosen = filepath
        return self

    @contextmanager
    def limit(self, *, limits: int) -> Iterator[None]:
        before = dict(self.sizes)
        self.sizes.update(dict.fromkeys(self.chosen, limits))
        self.log.append(f"limited {sorted(self.chosen)}")
        try:
            yield
        finally:
            self.sizes = before
            self.log.append("undone")


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch) -> FakeController:
    fake = FakeController()
    monkeypatch.setattr(applied_module._pools, "controller", lambda: fake)
    return fake


def test_larger_pools_are_limited_and_it_is_undone(controller: FakeController) -> None:
    with applied(attrs.evolve(ONE_CPU, cpus=2)):
        assert controller.sizes == {"libbig": 2, "libsmall": 1}

    assert controller.sizes == {"libbig": 4, "libsmall": 1}


@pytest.mark.parametrize("first_to_end", [0, 1])
def test_of_two_threads_that_overlap_the_first_limits_what_they_share(
    first_to_end: int, controller: FakeController
) -> None:
    """As two queues do. In whatever order they end, nothing of it is left behind."""
    limits = [applied(attrs.evolve(ONE_CPU, cpus=count)) for count in (2, 1)]
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        threads = [one, other]
        for thread, limit in zip(threads, limits, strict=True):
            thread.submit(limit.__enter__).result(PATIENCE_S)
        assert controller.sizes["libbig"] == 2
        for place in (first_to_end, 1 - first_to_end):
            threads[place].submit(limits[place].__exit__, None, None, None).result(PATIENCE_S)

        assert controller.sizes["libbig"] == 4
        # And the turn is free again.
        with applied(ONE_CPU):
            assert controller.sizes["libbig"] == 1


def test_threads_that_have_limits_of_their_own_all_get_them(controller: FakeController) -> None:
    controller.user_api = "openmp"
    with ThreadPoolExecutor(1) as other, applied(attrs.evolve(ONE_CPU, cpus=2)):
        within = applied(ONE_CPU)
        other.submit(within.__enter__).result(PATIENCE_S)
        assert controller.sizes["libbig"] == 1
        other.submit(within.__exit__, None, None, None).result(PATIENCE_S)


def test_the_smaller_of_two_in_one_another_is_in_force(controller: FakeController) -> None:
    with applied(attrs.evolve(ONE_CPU, cpus=3)):
        with applied(attrs.evolve(ONE_CPU, cpus=2)):
            assert controller.sizes["libbig"] == 2
        assert controller.sizes["libbig"] == 3


def test_nothing_is_touched_where_all_pools_are_small(controller: FakeController) -> None:
    with applied(attrs.evolve(ONE_CPU, cpus=4)):
        pass

    assert controller.log == []


def test_every_call_of_map_batches_runs_under_the_contract(controller: FakeController) -> None:
    sizes: list[int] = []

    def callback(context: TaskContext) -> None:
        context.map_batches(lambda _: sizes.append(controller.sizes["libbig"]), range(8))
        sizes.append(controller.sizes["libbig"])

    with TaskQueue(ScriptedGovernor([granting(attrs.evolve(ONE_CPU, batch_size=4))])) as queue:
        queue.submit(callback, estimate=ANY).result(PATIENCE_S)

    assert sizes == [1, 1, 4]


def test_it_is_undone_after_an_error_too(controller: FakeController) -> None:
    def callback(context: TaskContext) -> None:
        with context.applied():
            raise ValueError("in the middle")

    with TaskQueue(ScriptedGovernor([granting(ONE_CPU)])) as queue:
        assert isinstance(queue.submit(callback, estimate=ANY).exception(PATIENCE_S), ValueError)

    assert controller.log == ["limited ['libbig']", "undone"]


def test_the_real_threadpoolctl_limits_the_real_pools() -> None:
    _ = np.ones((4, 4)) @ np.ones((4, 4))
    with threadpoolctl.threadpool_limits(4):
        with applied(ONE_CPU):
            within = [pool["num_threads"] for pool in threadpoolctl.threadpool_info()]
        after = [pool["num_threads"] for pool in threadpoolctl.threadpool_info()]

    assert within
    assert set(within) == {1}
    assert max(after) > 1


def test_of_two_libraries_with_one_name_only_the_larger_pool_is_limited() -> None:
    """NumPy and SciPy each bring an OpenBLAS; threadpoolctl knows both by the same prefix."""
    pytest.importorskip("scipy.linalg")
    controller = threadpoolctl.ThreadpoolController().select(user_api="blas")
    sizes = (1, 4)
    with controller.limit(limits=1):
        own, *others = controller.lib_controllers
        if not others or others[0].prefix != own.prefix:
            pytest.skip("they share one library here, or have names of their own")
        others[0].set_num_threads(4)
        with applied(attrs.evolve(ONE_CPU, cpus=2)):
            within = own.get_num_threads(), others[0].get_num_threads()
        after = own.get_num_threads(), others[0].get_num_threads()

    assert within == (1, 2)
    assert after == sizes


def test_without_threadpoolctl_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    monkeypatch.setattr(applied_module, "_pools", applied_module._Pools())

    with applied(ONE_CPU):
        pass


def test_a_library_that_answers_oddly_costs_no_task(
    controller: FakeController, caplog: pytest.LogCaptureFixture
) -> None:
    controller.info = lambda: [{}]  # type: ignore[method-assign]

    with applied(ONE_CPU):
        pass

    assert "could not be limited" in caplog.text


def test_the_libraries_are_looked_for_again_after_an_import(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pools = applied_module._Pools()
    first = pools.controller()
    assert pools.controller() is first
    monkeypatch.setitem(sys.modules, "a_new_module", sys)

    assert pools.controller() is not first


def test_the_environment_of_a_child_has_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "yes")
    made: list[dict[str, str]] = []

    with TaskQueue(ScriptedGovernor([granting(ON_A_GPU)])) as queue:
        queue.submit(lambda context: made.append(context.environ), estimate=ANY).result(PATIENCE_S)

    (environ,) = made
    assert environ["KEPT"] == "yes"
    assert environ["OMP_NUM_THREADS"] == "1"
    assert environ[VISIBLE_DEVICES] == "GPU-a,GPU-b"
    assert environ["LARDON_BATCH_SIZE"] == "1"


@pytest.mark.parametrize("before", [None, "0,1"])
def test_children_see_the_granted_gpus_and_it_is_undone(
    before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if before is None:
        monkeypatch.delenv(VISIBLE_DEVICES, raising=False)
    else:
        monkeypatch.setenv(VISIBLE_DEVICES, before)
    ask = f"import os; print(os.environ.get({VISIBLE_DEVICES!r}))"

    with applied(ON_A_GPU):
        told = subprocess.run(
            [sys.executable, "-c", ask], capture_output=True, text=True, timeout=15, check=True
        ).stdout.strip()

    assert told == "GPU-a,GPU-b"
    assert os.environ.get(VISIBLE_DEVICES) == before


def test_without_a_gpu_in_the_contract_the_choice_of_the_program_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VISIBLE_DEVICES, "3")

    with applied(ONE_CPU):
        assert os.environ[VISIBLE_DEVICES] == "3"


def test_two_that_overlap_put_the_first_value_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VISIBLE_DEVICES, "0")
    first = gpus_for_children(attrs.evolve(ON_A_GPU, gpus=("GPU-a",)))
    second = gpus_for_children(attrs.evolve(ON_A_GPU, gpus=("GPU-b",)))
    first.__enter__()
    second.__enter__()
    assert os.environ[VISIBLE_DEVICES] == "GPU-b"

    first.__exit__(None, None, None)
    assert os.environ[VISIBLE_DEVICES] == "GPU-b"
    second.__exit__(None, None, None)

    assert os.environ[VISIBLE_DEVICES] == "0"


@pytest.mark.parametrize("before", [None, "GPU-b"])
def test_a_contract_in_force_hides_no_gpu_from_the_probe(
    before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VISIBLE_DEVICES, raising=False)
    if before is not None:
        monkeypatch.setenv(VISIBLE_DEVICES, before)
    probe = SystemProbe(nvml=FakeNvml([FakeGpu(uuid="GPU-a"), FakeGpu(uuid="GPU-b")]))
    outside = [gpu.uuid for gpu in probe.snapshot().gpus]

    with applied(attrs.evolve(ON_A_GPU, gpus=("GPU-a",))):
        inside = [gpu.uuid for gpu in probe.snapshot().gpus]
        assert outer_environ.get(VISIBLE_DEVICES) == before
        assert (VISIBLE_DEVICES in outer_environ) is (before is not None)
        assert dict(outer_environ) == {
            **{name: value for name, value in os.environ.items() if name != VISIBLE_DEVICES},
            **({} if before is None else {VISIBLE_DEVICES: before}),
        }
        assert len(outer_environ) == len(dict(outer_environ))

    assert inside == outside


def test_threads_of_a_crew_start_pools_of_one(controller: FakeController) -> None:
    """OpenMP has a limit for each thread: every thread of `map_items` sets its own."""
    seen: list[int] = []

    def work(_item: int) -> None:
        seen.append(controller.sizes["libbig"])

    contract = attrs.evolve(ONE_CPU, cpus=2, batch_size=4)
    estimate = ResourceEstimate(max_batch=4, cpus=2)
    with TaskQueue(ScriptedGovernor([granting(contract)])) as queue:
        task = queue.submit(lambda context: context.map_items(work, range(8)), estimate=estimate)
        task.result(PATIENCE_S)

    assert seen == [1] * 8
    assert controller.sizes["libbig"] == 4


def test_any_thread_may_ask_for_the_environment() -> None:
    made: list[dict[str, str]] = []

    def callback(context: TaskContext) -> None:
        thread = threading.Thread(target=lambda: made.append(context.environ))
        thread.start()
        thread.join(PATIENCE_S)

    with TaskQueue(ScriptedGovernor([granting(ONE_CPU)])) as queue:
        queue.submit(callback, estimate=ANY).result(PATIENCE_S)

    assert made[0]["LARDON_CPUS"] == "1"
