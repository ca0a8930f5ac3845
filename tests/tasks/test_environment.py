"""The contract in the environment of a command."""

from __future__ import annotations

from lardon import Contract
from lardon.environment import THREAD_VARIABLES, environment_of

CONTRACT = Contract(
    batch_size=25, ram_bytes=1024, gpu_bytes=2048, gpus=("GPU-a", "MIG-b"), cpus=3, io_slots=1
)


def test_every_figure_of_the_contract_is_there() -> None:
    assert environment_of(CONTRACT, {}) == {
        "LARDON_BATCH_SIZE": "25",
        "LARDON_RAM_BYTES": "1024",
        "LARDON_GPU_BYTES": "2048",
        "LARDON_CPUS": "3",
        "CUDA_VISIBLE_DEVICES": "GPU-a,MIG-b",
        "OMP_NUM_THREADS": "3",
        "OPENBLAS_NUM_THREADS": "3",
        "MKL_NUM_THREADS": "3",
        "BLIS_NUM_THREADS": "3",
        "VECLIB_MAXIMUM_THREADS": "3",
        "NUMEXPR_NUM_THREADS": "3",
    }


def test_the_contract_wins_and_the_rest_is_kept() -> None:
    inherited = {"PATH": "/bin", "OMP_NUM_THREADS": "64", "CUDA_VISIBLE_DEVICES": "0,1"}
    before = dict(inherited)

    made = environment_of(CONTRACT, inherited)

    assert made["PATH"] == "/bin"
    assert {made[name] for name in THREAD_VARIABLES} == {"3"}
    assert made["CUDA_VISIBLE_DEVICES"] == "GPU-a,MIG-b"
    assert inherited == before


def test_without_a_gpu_in_the_contract_none_is_seen() -> None:
    made = environment_of(Contract(batch_size=1, ram_bytes=0), {"CUDA_VISIBLE_DEVICES": "0"})

    assert made["CUDA_VISIBLE_DEVICES"] == ""
