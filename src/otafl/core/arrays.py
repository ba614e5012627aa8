"""The names of array types: what is a host array of doubles, and what may be on either side."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = Any  # numpy or jax array: code that runs ahead on the host or inside the compiled loop
Pytree = Any  # a tree of such arrays, as jax has it
Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]
Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]
