"""The negacyclic number-theoretic transform, exact, batched over everything that stands before (limb, coefficient).

Products in Z_p[X]/(X^n+1) become pointwise products. Residues are uint32 below primes p < 2^28; a product of two is
formed in uint64, so all of this runs inside `jax.enable_x64(True)` (checked). Two habits make it fast on a CPU:

* a butterfly is a reshape and a stack, never a gather; halfway the array is transposed once, so that the last axis
  stays long. The order of the transformed values is therefore our own, which pointwise products do not mind;
* 2^32 >= 16 p leaves room to let sums grow and to reduce only when the next stage could overflow (`bound`, in
  multiples of p, is known while tracing). Constants carry Shoup's companion floor(w 2^32 / p): the product with any
  32-bit x costs one high and two low words and lies below 2p.
"""

from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from otafl.core.arrays import Array
from otafl.core.errors import InputError

WORD = 32
ROOM = 16  # 2^32 / p for p < 2^28


class Stage(NamedTuple):
    """Twiddles of one butterfly stage, shaped to meet the halves (..., limb, block, [inner,] lane)."""

    twiddle: np.ndarray
    companion: np.ndarray
    blocks: int
    transposed: bool


class Tables(NamedTuple):
    forward: tuple[Stage, ...]
    inverse: tuple[Stage, ...]
    degree_inverse: np.ndarray  # (L, 1) n^-1 mod p
    degree_companion: np.ndarray
    rows: int  # stages with fewer blocks than this run before the transposition
    primes: np.ndarray  # (L,) uint32


def companion(value: np.ndarray, primes: np.ndarray) -> np.ndarray:
    """floor(value 2^32 / p), the constant of Shoup's product; `primes` broadcasts against `value`."""
    return ((value.astype(np.uint64) << np.uint64(WORD)) // primes.astype(np.uint64)).astype(np.uint32)


def primitive_root(n: int, prime: int) -> int:
    """An element of order 2n modulo `prime`: its n-th power is -1."""
    for base in range(2, prime):
        root = pow(base, (prime - 1) // (2 * n), prime)
        if pow(root, n, prime) == prime - 1:
            return root
    raise InputError(f"prime={prime} has no root of order {2 * n}")


def _bit_reversed(n: int) -> np.ndarray:
    order = np.zeros(1, dtype=np.int64)
    while order.size < n:
        order = np.concatenate([2 * order, 2 * order + 1])
    return order


def _powers(base: int, count: int, prime: int) -> np.ndarray:
    """base^0 .. base^(count-1) mod prime, by doubling."""
    powers = np.ones(1, dtype=np.uint64)
    while powers.size < count:
        powers = np.concatenate([powers, powers * np.uint64(pow(base, powers.size, prime)) % np.uint64(prime)])
    return powers[:count].astype(np.uint32)


def _stages(roots: np.ndarray, primes: np.ndarray, n: int, rows: int) -> tuple[Stage, ...]:
    """One `Stage` for 1, 2, 4, .. n/2 blocks; `roots` (L, n) are powers of the root in bit-reversed order."""
    stages = []
    blocks = 1
    while blocks < n:
        part, transposed = roots[:, blocks : 2 * blocks], blocks >= rows
        if transposed:  # block = lane * (blocks/rows) + b, and the lane is now the last axis
            part = part.reshape(len(primes), rows, blocks // rows).swapaxes(1, 2)[:, :, None, :]
            shaped = primes[:, None, None, None]
        else:
            part, shaped = part[:, :, None], primes[:, None, None]
        stages.append(Stage(part, companion(part, shaped), blocks, transposed))
        blocks *= 2
    return tuple(stages)


@lru_cache(maxsize=32)
def tables(n: int, primes: tuple[int, ...]) -> Tables:
    """All constants of one ring, NumPy, made once."""
    order = _bit_reversed(n)
    moduli = np.array(primes, dtype=np.uint32)
    roots = [primitive_root(n, p) for p in primes]
    ahead = np.stack([_powers(root, n, p)[order] for root, p in zip(roots, primes)])
    back = np.stack([_powers(pow(root, -1, p), n, p)[order] for root, p in zip(roots, primes)])
    rows = 1 << ((n.bit_length() - 1) // 2)
    degree = np.array([[pow(n, -1, p)] for p in primes], dtype=np.uint32)
    return Tables(
        _stages(ahead, moduli, n, rows),
        tuple(reversed(_stages(back, moduli, n, rows))),
        degree,
        companion(degree, moduli[:, None]),
        rows,
        moduli,
    )


def require_x64() -> None:
    if not jax.config.read("jax_enable_x64"):
        raise InputError("ring arithmetic needs 64-bit integers: call it inside `with jax.enable_x64(True)`")


def shoup(x: Array, constant: Array, companion_of: Array, prime: Array) -> Array:
    """x * constant mod p up to one p: any uint32 x, result below 2p."""
    high = (x.astype(jnp.uint64) * companion_of.astype(jnp.uint64)) >> WORD
    return x * constant - high.astype(jnp.uint32) * prime


def shrink(x: Array, prime: Array, bound: int, target: int = 1) -> Array:
    """Bring values below bound * p under target * p by unsigned minima: x - kp wraps to a huge number if x < kp."""
    while bound > target:
        half = max(target, (bound + 1) // 2)
        x = jnp.minimum(x, x - np.uint32(half) * prime)
        bound = half
    return x


def _halves(x: Array, stage: Stage, rows: int) -> tuple[Array, Array, int]:
    """Split into the two inputs of every butterfly; also the axis on which they are put together again."""
    *lead, n = x.shape
    if stage.transposed:
        inner = stage.blocks // rows
        y = x.reshape(*lead, inner, 2, n // (2 * stage.blocks), rows)
        return y[..., 0, :, :], y[..., 1, :, :], -3
    y = x.reshape(*lead, stage.blocks, 2, n // (2 * stage.blocks))
    return y[..., 0, :], y[..., 1, :], -2


def _prime_for(stage: Stage, primes: np.ndarray) -> np.ndarray:
    return primes.reshape(-1, *(1,) * (stage.twiddle.ndim - 1))


def forward(x: Array, table: Tables) -> Array:
    """Coefficients (..., L, n) below p -> transformed values (..., L, n) below p (Cooley-Tukey)."""
    require_x64()
    shape, bound, flipped = x.shape, 1, False
    for stage in table.forward:
        if stage.transposed and not flipped:
            x = x.reshape(*shape[:-1], table.rows, shape[-1] // table.rows).swapaxes(-1, -2).reshape(shape)
            flipped = True
        prime = _prime_for(stage, table.primes)
        upper, lower, axis = _halves(x, stage, table.rows)
        if bound + 2 > ROOM:
            upper, bound = shrink(upper, prime, bound, 2), 2
        turned = shoup(lower, stage.twiddle, stage.companion, prime)
        x = jnp.stack([upper + turned, upper - turned + np.uint32(2) * prime], axis).reshape(shape)
        bound += 2
    return shrink(x, table.primes[:, None], bound)


def inverse(x: Array, table: Tables) -> Array:
    """Transformed values (..., L, n) below p -> coefficients (..., L, n) below p (Gentleman-Sande)."""
    require_x64()
    shape, flipped = x.shape, True
    for stage in table.inverse:
        if flipped and not stage.transposed:
            x = x.reshape(*shape[:-1], shape[-1] // table.rows, table.rows).swapaxes(-1, -2).reshape(shape)
            flipped = False
        prime = _prime_for(stage, table.primes)
        upper, lower, axis = _halves(x, stage, table.rows)  # both below 2p
        total = shrink(upper + lower, prime, 4, 2)
        turned = shoup(upper - lower + np.uint32(2) * prime, stage.twiddle, stage.companion, prime)
        x = jnp.stack([total, turned], axis).reshape(shape)
    prime = table.primes[:, None]
    return shrink(shoup(x, table.degree_inverse, table.degree_companion, prime), prime, 2)
