"""What a GPU has of its own: kernels for steps that XLA makes many of, and one launch for all rounds of a call.

Kernels are written with Pallas, which is slow to import and in jax's experimental part, and is imported only where they
can be compiled. Every other machine computes the same by plain JAX, and the tests interpret the kernels.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

LEAST_SIDE = 16  # of a product


def compiled_here() -> bool:
    return jax.default_backend() == "gpu" and tensor_cores(str(jax.devices()[0].compute_capability))


def tensor_cores(capability: str) -> bool:
    """Whether a GPU of this compute capability has those that such kernels are compiled for (Ampere and later)."""
    major, _, minor = capability.partition(".")
    return major.isdigit() and minor.isdigit() and int(major) >= 8


def padded(size: int) -> int:
    """The power of two that an axis of a kernel's arrays has."""
    return max(LEAST_SIDE, 1 << (size - 1).bit_length())


def interpreted() -> bool:
    """Whether a kernel can only be tried out: there is no GPU."""
    return jax.default_backend() != "gpu"


# No convolutions: in a program from the cache they failed (cuDNN status 5003), as cuDNN seems to load a kernel at its
# first call, which a graph that is recorded does not allow. A program that was just compiled has tried them before.
IN_A_GRAPH = ("FUSION", "CUBLAS", "CUBLASLT", "CUSTOM_CALL", "DYNAMIC_SLICE_FUSION", "WHILE")


@functools.cache
def as_one_graph() -> dict[str, Any]:
    """A GPU takes all rounds of a call in one launch, and kernels that do not wait for each other may overlap.

    Of this what can be asked for: nothing on other machines.
    """
    if interpreted():
        return {}
    kinds = [kind for kind in IN_A_GRAPH if _accepted("xla_gpu_enable_command_buffer", kind)]
    wishes = {
        "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
        "xla_gpu_enable_command_buffer": ",".join(kinds),
        "xla_gpu_command_buffer_unroll_loops": True,
    }
    return {name: value for name, value in wishes.items() if _accepted(name, value)}


def _accepted(name: str, value: Any) -> bool:
    try:
        jax.jit(lambda: jnp.zeros(()), compiler_options={name: value}).lower().compile()
    except Exception:  # an XLA that knows no such option says so in several ways
        return False
    return True
