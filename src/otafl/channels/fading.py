"""Small-scale fading: complex gains around a given rms. Host, NumPy, float64 and complex128.

Every law takes a generator and `rms_gain` (T, K) = sqrt(E|gain|^2) and returns `gain` (T, K). Rows are drawn in
order, so more rounds extend fewer. `coherence_rounds` holds one draw over that many rounds (block fading).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from otafl.core import validate
from otafl.core.arrays import Complexes, Floats
from otafl.core.errors import InputError

Kind = Literal["rayleigh", "rician", "real_gaussian", "constant"]

FADING_LAWS: dict[str, str] = {
    "rayleigh": "no line of sight: circular complex normal gains",
    "rician": "line of sight k_factor_db above the scattered power, its phase fixed or uniform",
    "real_gaussian": "real normal gains of given mean and std (EEZOFL)",
    "constant": "no fading: every gain equals its rms",
}


@dataclass(frozen=True)
class Fading:
    """One law of `FADING_LAWS`. `mean` and `std` are for real_gaussian, one number or one per device."""

    kind: Kind = "rayleigh"
    coherence_rounds: int = 1
    k_factor_db: float | None = None
    phase_rad: float | None = None  # of the line of sight; None: uniform, new in every block
    mean: float | tuple[float, ...] | None = None
    std: float | tuple[float, ...] | None = None

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    def __post_init__(self) -> None:
        validate.one_of("kind", self.kind, FADING_LAWS)
        validate.whole("coherence_rounds", self.coherence_rounds)
        owner = {"k_factor_db": "rician", "phase_rad": "rician", "mean": "real_gaussian", "std": "real_gaussian"}
        for name, kind in owner.items():
            value = getattr(self, name)
            if value is not None and kind != self.kind:
                raise InputError(f"{name}={value!r} has no meaning for fading kind={self.kind!r}")
            if value is None and kind == self.kind and name != "phase_rad":
                raise InputError(f"{name} is missing; fading kind={self.kind!r} needs it")
            if value is not None:
                validate.finite(name, value)
        if self.kind == "real_gaussian":
            validate.not_negative("std", self.std)
            validate.positive("mean^2 + std^2", self.second_moment)

    @property
    def second_moment(self) -> Any:
        """E|gain|^2 at mean power gain 1: 1 for all laws but real_gaussian, whose mean and std set the scale."""
        if self.kind != "real_gaussian":
            return 1.0
        return np.square(self.mean) + np.square(self.std)  # type: ignore[arg-type]


def _held(sample: Callable[..., NDArray[Any]], shape: tuple[int, ...], coherence_rounds: int) -> NDArray[Any]:
    """Draw one row per block and repeat it over the block's rounds."""
    rounds, num_clients = shape
    blocks = -(-rounds // coherence_rounds)
    return sample((blocks, num_clients))[np.arange(rounds) // coherence_rounds]


def circular_normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Complexes:
    """Circular complex normals of unit mean square, real and imaginary part drawn in turn."""
    parts = rng.standard_normal((*shape, 2))
    return np.asarray((parts[..., 0] + 1j * parts[..., 1]) / np.sqrt(2))


def circular_normal_by_parts(rng: np.random.Generator, shape: tuple[int, ...]) -> Complexes:
    """The same law, all real parts drawn before all imaginary ones: more rows do not extend fewer."""
    return np.asarray((rng.standard_normal(shape) + 1j * rng.standard_normal(shape)) / np.sqrt(2))


def rayleigh(rng: np.random.Generator, rms_gain: Floats, coherence_rounds: int = 1) -> Complexes:
    """|gain|^2 exponential with mean rms_gain^2, uniform phase."""
    gains: Complexes = rms_gain * _held(lambda shape: circular_normal(rng, shape), rms_gain.shape, coherence_rounds)
    return gains


def rician(
    rng: np.random.Generator,
    rms_gain: Floats,
    k_factor: float,
    phase_rad: float | None = None,
    coherence_rounds: int = 1,
) -> Complexes:
    """A line of sight with `k_factor` times the scattered power; k_factor = 0 gives the very draws of `rayleigh`."""
    phase_rng = rng.spawn(1)[0]
    scattered = _held(lambda shape: circular_normal(rng, shape), rms_gain.shape, coherence_rounds)
    if phase_rad is None:
        turns = _held(phase_rng.random, rms_gain.shape, coherence_rounds)
        sight = np.exp(2j * np.pi * turns)
    else:
        sight = np.exp(1j * phase_rad) * np.ones(rms_gain.shape)
    gains: Complexes = rms_gain * (np.sqrt(k_factor) * sight + scattered) / np.sqrt(1 + k_factor)
    return gains


def real_gaussian(
    rng: np.random.Generator, rms_gain: Floats, mean: ArrayLike, std: ArrayLike, coherence_rounds: int = 1
) -> Complexes:
    """Real gains N(mean, std^2), scaled to rms_gain; rms_gain^2 = mean^2 + std^2 leaves them as they are."""
    mean, std = np.asarray(mean, float), np.asarray(std, float)
    normal = _held(rng.standard_normal, rms_gain.shape, coherence_rounds)
    gains: Complexes = (rms_gain * (mean + std * normal) / np.hypot(mean, std)).astype(np.complex128)
    return gains


def constant(rng: np.random.Generator, rms_gain: Floats, coherence_rounds: int = 1) -> Complexes:
    """No fading. Takes a generator only to be called like the other laws."""
    return rms_gain.astype(np.complex128)


def gains(fading: Fading, rng: np.random.Generator, rms_gain: Floats) -> Complexes:
    """Draw `gain` (T, K) of the law that `fading` names.

    >>> gains(Fading("constant"), np.random.default_rng(0), np.array([[0.5, 2.0]]))
    array([[0.5+0.j, 2. +0.j]])
    """
    held = fading.coherence_rounds
    if fading.kind == "rayleigh":
        return rayleigh(rng, rms_gain, held)
    if fading.kind == "rician":
        assert fading.k_factor_db is not None
        return rician(rng, rms_gain, 10 ** (fading.k_factor_db / 10), fading.phase_rad, held)
    if fading.kind == "real_gaussian":
        assert fading.mean is not None and fading.std is not None
        return real_gaussian(rng, rms_gain, fading.mean, fading.std, held)
    return constant(rng, rms_gain, held)


class PilotLaw(NamedTuple):
    """sum over N pilots of |gain|^2 / rms_gain^2 is `scale` times a noncentral chi-square; scale 0: exactly N."""

    degrees: int
    noncentrality: Any  # () or (K,)
    scale: Any


def pilot_law(fading: Fading, count: int) -> PilotLaw:
    """The exact law of N independent pilots' energy, the shape of the fading (K factor, mean : std) being known."""
    if fading.kind == "rayleigh":
        return PilotLaw(2 * count, 0.0, 0.5)
    if fading.kind == "rician":
        assert fading.k_factor_db is not None
        k_factor = 10 ** (fading.k_factor_db / 10)
        return PilotLaw(2 * count, 2 * count * k_factor, 0.5 / (1 + k_factor))
    if fading.kind == "real_gaussian":
        mean, std = np.asarray(fading.mean, float), np.asarray(fading.std, float)
        validate.positive("std", std)
        return PilotLaw(count, count * (mean / std) ** 2, std**2 / fading.second_moment)
    return PilotLaw(0, 0.0, 0.0)
