"""The ring modes: one channel each, some sound, some insecure, some that must fail.

A grid mode is nothing but the integer weights and the receiver noise that each of the four transmissions meets (key,
c0, c1, share). The sound ones give (key, share) one set of weights and (c0, c1) one set; the failing controls break
exactly that.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.crypto import ring as rings
from otafl.crypto.parameters import Parameters
from otafl.crypto.ring import Ring
from otafl.crypto.scaling import grid_weights, quantise_channel, scaled_residues

PHASES = ("key", "c0", "c1", "share")
PILOT_ERROR = 0.1  # std of the channel estimate that zf and mmse invert
RLWE = "RLWE, semi-honest server and clients, all shares needed"

NO_SECRECY = (
    "NO SECRECY in mode 'lifted': nothing is reduced mod q, so anyone who hears the public keys divides them by a and "
    "has every secret key, hence every client's scalars"
)
SHARED_KEY = (
    "NO SECRECY AMONG CLIENTS in mode 'single-key': all hold one key, so each opens every ciphertext it hears, and so "
    "does the server once a single client hands the key over; whoever opens the sums must be trusted with every scalar"
)


def named(mode: Any, allowed: Collection[str]) -> str:
    """A mode's name, or a refusal."""
    if type(mode) is not str or mode not in allowed:
        said = f"mode={mode!r}" if type(mode) is str else "mode"
        raise InputError(f"{said} must be one of {', '.join(allowed)}")
    return mode


def secrecy(name: str, p: Parameters) -> str:
    """Against whom this mode hides scalars with these parameters; none outside the security table."""
    stated = MODES[name].secrecy
    if stated.startswith(RLWE) and p.security_bits == 0:
        return "none: n, q and the widths of the noise are outside the security table"
    return stated


class InsecureModeWarning(UserWarning):
    """The mode that was asked for hides nothing."""


class Mode(NamedTuple):
    name: str
    secrecy: str
    sound: bool  # decodes, honestly run
    meaning: str
    alarm: str = ""  # said aloud wherever a result of this mode is shown


MODES = {
    mode.name: mode
    for mode in (
        Mode("fixed-point", RLWE, True, "four phases over a channel on the grid 2^-f Z, exact mod q (default)"),
        Mode("digital", RLWE + "; keys and c1 checked by clients", True, "error-free links, weights 1; usable today"),
        Mode("hybrid", RLWE + "; keys checked by clients", True, "only the ciphertexts over the air"),
        Mode("single-key", "none against clients: they share one key", True, "one key, no phases 1 and 3", SHARED_KEY),
        Mode("analytic", "not applicable: no ring", True, "adds noise of the exact variance given h"),
        Mode("digital-analytic", "not applicable: no ring", True, "error-free links; noise of the exact variance"),
        Mode("lifted", "none: dividing b_i by a returns s_i", True, "real channel, no reduction mod q", NO_SECRECY),
        Mode("literal", "-", False, "real channel, reduced mod q: must fail"),
        Mode("naive-reuse", "-", False, "key aggregated once through another channel: must fail"),
        Mode("zf", "-", False, "digital key, zero-forcing on a pilot estimate: must fail"),
        Mode("mmse", "-", False, "digital key, MMSE on a pilot estimate: must fail"),
    )
}
GRID_MODES = ("fixed-point", "digital", "hybrid", "naive-reuse", "zf", "mmse")


@dataclass(frozen=True)
class Air:
    """Weights (N, L, 1) and noise (L, n), both residues, of each phase."""

    ring: Ring
    weights: dict[str, np.ndarray]
    noise: dict[str, np.ndarray]

    def __call__(self, phase: str, x: np.ndarray, kept: np.ndarray | slice = slice(None)) -> np.ndarray:
        """What the server has after superposition, scaling by 2^f, rounding and reduction: (N, L, k) -> (L, k)."""
        with jax.enable_x64(True):
            return np.asarray(_superpose(self.ring, self.weights[phase], x, self.noise[phase][..., kept]))


@partial(jax.jit, static_argnums=0)
def _superpose(ring: Ring, weights: Array, x: Array, noise: Array) -> Array:
    return rings.add(ring, rings.total(ring, rings.pointwise(ring, weights, x)), noise)


def receiver_noise(p: Parameters, rng: np.random.Generator) -> Array:
    """W = round(2^f w): one integer per coefficient, reduced mod every prime (L, n). Simulation randomness."""
    return scaled_residues(p.ring, rng.normal(0.0, p.sigma_w, p.ring.n), p.f)


def equalised(mode: str, h: np.ndarray, rng: np.random.Generator, pilot_error: float) -> np.ndarray:
    """Effective gains of devices that invert h^ = h + pilot_error N(0, 1)."""
    estimate = h + pilot_error * rng.normal(size=h.shape)
    return h / estimate if mode == "zf" else h * estimate / (estimate**2 + pilot_error**2)


def grid_air(
    mode: str,
    p: Parameters,
    h: np.ndarray,
    rng: np.random.Generator,
    *,
    setup_h: np.ndarray | None = None,
    key_h: np.ndarray | None = None,
    pilot_error: float = PILOT_ERROR,
) -> Air:
    """The air of one round. `h` (N,) on the grid; `setup_h` is the channel of the key in `naive-reuse`;
    `key_h` that of phases 1 and 3 in `fixed-point` where these use another coherence block.
    """
    h = np.asarray(h, dtype=np.float64)
    build: dict[str, Callable[[], tuple[dict[str, np.ndarray], tuple[str, ...]]]] = {
        "fixed-point": lambda: (_two(p, h if key_h is None else key_h, h), PHASES),
        "digital": lambda: (_spread(_constant(p, h.size, 1)), ()),
        "hybrid": lambda: (_pair(_constant(p, h.size, 1), grid_weights(p.ring, h, p.f)), ("c0", "c1")),
        "naive-reuse": lambda: (_reused(p, h, setup_h), PHASES),
        "zf": lambda: (_preequalised(p, equalised("zf", h, rng, pilot_error)), PHASES[1:]),
        "mmse": lambda: (_preequalised(p, equalised("mmse", h, rng, pilot_error)), PHASES[1:]),
    }
    weights, noisy = build[named(mode, build)]()
    silent = np.zeros((p.ring.limbs, p.ring.n), dtype=np.uint32)
    return Air(p.ring, weights, {phase: receiver_noise(p, rng) if phase in noisy else silent for phase in PHASES})


def _constant(p: Parameters, devices: int, value: int) -> np.ndarray:
    one = np.array([value % prime for prime in p.ring.primes], dtype=np.uint32)
    return np.broadcast_to(one[:, None], (devices, p.ring.limbs, 1)).copy()


def _spread(weights: np.ndarray) -> dict[str, np.ndarray]:
    return dict.fromkeys(PHASES, weights)


def _pair(keys: np.ndarray, ciphertexts: np.ndarray) -> dict[str, np.ndarray]:
    return {"key": keys, "share": keys, "c0": ciphertexts, "c1": ciphertexts}


def _two(p: Parameters, key_h: np.ndarray, h: np.ndarray) -> dict[str, np.ndarray]:
    return _pair(grid_weights(p.ring, key_h, p.f), grid_weights(p.ring, h, p.f))


def _reused(p: Parameters, h: np.ndarray, setup_h: np.ndarray | None) -> dict[str, np.ndarray]:
    if setup_h is None:
        raise InputError("naive-reuse needs setup_h, the channel through which the key was aggregated")
    return _spread(grid_weights(p.ring, h, p.f)) | {"key": grid_weights(p.ring, setup_h, p.f)}


def _preequalised(p: Parameters, gains: np.ndarray) -> dict[str, np.ndarray]:
    """Key scaled by 2^f, so that perfect pilots decode; gains put on the grid, so that only the mismatch is shown."""
    on_grid = quantise_channel(gains, p.f).h
    return _spread(grid_weights(p.ring, on_grid, p.f)) | {"key": _constant(p, gains.size, 1 << p.f)}
