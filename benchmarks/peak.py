"""Worker: large float32 products, the most arithmetic this machine does; a unit is a floating-point operation.

python benchmarks/peak.py numpy | jax | torch
"""

import sys
from collections.abc import Callable

import numpy as np

from arrangements import serve, threads

SIZE = 1536


def product(library: str) -> Callable[[], object]:
    a, b = np.random.default_rng(0).standard_normal((2, SIZE, SIZE), np.float32)
    if library == "numpy":
        return lambda: a @ b
    if library == "jax":
        import jax

        left, right, dot = jax.device_put(a), jax.device_put(b), jax.jit(lambda x, y: x @ y)
        return lambda: dot(left, right).block_until_ready()
    import torch

    torch.set_num_threads(threads())
    first, second = torch.from_numpy(a), torch.from_numpy(b)
    return lambda: first @ second


def main() -> None:
    multiply = product(sys.argv[1])

    def work() -> float:
        multiply()
        return 2.0 * SIZE**3

    serve(work)


if __name__ == "__main__":
    main()
