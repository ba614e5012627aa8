"""Where kernels of our own pay: steps that XLA makes many of, on a GPU that they can be compiled for.

They are written with Pallas, which is slow to import and in jax's experimental part, and is imported only there. Every
other machine computes the same by plain JAX, and the tests interpret the kernels.
"""

import jax

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
