"""Pytrees of NumPy, JAX or torch leaves as flat float32 vectors, and back. Host; nothing is copied that need not be.

torch is never imported here: where one of its tensors exists, torch is already loaded.
"""

import hashlib
import sys
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from otafl.core.errors import InputError
from otafl.core.validate import masked

Flat = list[NDArray[np.float32]]  # the leaves of one message, each raveled

# Numbers at a time. BLAS starts no threads for so few: its threads wait by
# spinning, which costs more than the work wherever somebody else has a core, and they would change the last bits.
BLOCK = 2**13
ROW = 2**6  # squares that are added in float32: at most 2e-6 of a norm is lost, in whichever order they are added


class Form(NamedTuple):
    """What two messages must share to be added: structure and shapes."""

    tree: Any
    shapes: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        return int(sum(np.prod(shape, dtype=np.int64) for shape in self.shapes))


def flatten(message: Any) -> tuple[Form, Flat, list[Any]]:
    """Form, flat leaves and the leaves themselves; InputError where a leaf is no array of real numbers."""
    try:
        # torch's `state_dict()` keeps an order, to which its entries in a plain dict would be another form.
        leaves, tree = jax.tree.flatten(dict(message) if isinstance(message, OrderedDict) else message)
    except Exception:  # a cycle, too deep, keys that have no order, or whatever a node of somebody's own says
        raise InputError("holds tables or lists that are no pytree (keys of one kind, no cycles)") from None
    arrays = [_array(leaf) for leaf in leaves]
    if not arrays:
        raise InputError("holds no arrays")
    return Form(tree, tuple(array.shape for array in arrays)), [array.reshape(-1) for array in arrays], leaves


def _array(leaf: Any) -> NDArray[np.float32]:
    if _is_tensor(leaf) and not leaf.is_floating_point():
        raise InputError(f"holds numbers of type {leaf.dtype}, expected floating point; leave such buffers out")
    if masked(leaf):  # NumPy would take what lies under the mask
        raise InputError("holds masked values; fill them")
    try:
        array = np.asarray(leaf.detach().cpu().float().numpy() if _is_tensor(leaf) else leaf)
    except Exception as error:
        raise InputError(f"holds a {type(leaf).__name__} that is no array ({type(error).__name__})") from None
    floating = array.dtype.kind == "f" or array.dtype.name == "bfloat16"
    if not floating:
        raise InputError(f"holds numbers of type {array.dtype}, expected floating point")
    with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite, and is found as such
        return np.ascontiguousarray(array, np.float32).reshape(array.shape)  # it makes (1,) of a number


def _is_tensor(leaf: Any) -> bool:
    """Whether it is torch's, and does not only look so."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(leaf, torch.Tensor)


def unflatten(form: Form, flat: Sequence[NDArray[np.float32]], like: Sequence[Any]) -> Any:
    """Flat leaves as a pytree of the form, every leaf of the kind and type of its model in `like`."""
    shaped = (leaf.reshape(shape) for leaf, shape in zip(flat, form.shapes))
    return jax.tree.unflatten(form.tree, [_kind_of(model, leaf) for model, leaf in zip(like, shaped)])


def _kind_of(model: Any, leaf: NDArray[np.float32]) -> Any:
    if isinstance(model, jax.Array):
        return jax.device_put(leaf.astype(model.dtype), model.sharding)
    if _is_tensor(model):
        return sys.modules["torch"].from_numpy(leaf).to(device=model.device, dtype=model.dtype)
    if type(model) is np.ndarray:
        return leaf.astype(model.dtype, copy=False)
    if isinstance(model, np.generic):
        return model.dtype.type(leaf)
    return float(leaf) if isinstance(model, float) else leaf


def square_norm(flat: Flat) -> float:
    """Sum of squares: single precision within rows, double across them. inf or NaN where float32 has no norm."""
    total = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for leaf in flat:
            whole = leaf.size - leaf.size % ROW
            rows, rest = leaf[:whole].reshape(-1, ROW), leaf[whole:]
            total += float(np.sum(np.vecdot(rows, rows), dtype=np.float64)) + float(np.dot(rest, rest))
    return total if total <= np.finfo(np.float32).max else total * np.inf


def digest(form: Form | None, messages: dict[int, Flat]) -> str:
    """SHA-256 of what enters the air."""
    found = hashlib.sha256(repr(form).encode())
    for client in sorted(messages):
        found.update(f"\n{client}\n".encode())
        for leaf in messages[client]:
            found.update(leaf.data)
    return found.hexdigest()
