"""What a contract says to a program that knows nothing of lardon: its environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lardon.governor.decision import Contract

# How many threads the usual numeric libraries start: OpenMP, OpenBLAS, Intel's MKL, BLIS,
# Apple's Accelerate and numexpr each read a variable of their own.
THREAD_VARIABLES: Final = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


def environment_of(contract: Contract, inherited: Mapping[str, str]) -> dict[str, str]:
    """
    Return *inherited* with the contract in it, which wins over what was set before.

    Without a GPU in the contract the program sees none: what is not reserved is not used.
    """
    return {
        **inherited,
        **dict.fromkeys(THREAD_VARIABLES, str(contract.cpus)),
        "CUDA_VISIBLE_DEVICES": ",".join(contract.gpus),
        "LARDON_BATCH_SIZE": str(contract.batch_size),
        "LARDON_RAM_BYTES": str(contract.ram_bytes),
        "LARDON_GPU_BYTES": str(contract.gpu_bytes),
        "LARDON_CPUS": str(contract.cpus),
    }
