"""Small-scale fading: complex gains around a given rms. Host, NumPy, float64 and complex128.

Every law takes a generator and `rms_gain` (T, K) = sqrt(E|gain|^2) and returns `gain` (T, K). Rows are drawn in
order, so more rounds extend fewer. `coherence_rounds` holds one draw over that many rounds (block fading); `ar1` and
`jakes` remember from round to round (`memory`).
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from otafl.channels import memory
from otafl.channels.memory import Law
from otafl.core import validate
from otafl.core.arrays import Complexes, Floats
from otafl.core.errors import InputError

Kind = Literal["rayleigh", "rician", "real_gaussian", "constant", "ar1", "jakes", "38.901"]
SKIPPED = 1 << 20  # draws passed over at a time

FADING_LAWS: dict[str, str] = {
    "rayleigh": "no line of sight: circular complex normal gains",
    "rician": "line of sight k_factor_db above the scattered power, its phase fixed or uniform",
    "real_gaussian": "real normal gains of given mean and std (EEZOFL)",
    "constant": "no fading: every gain equals its rms",
    "ar1": "Rayleigh with memory: correlation rho^n after n rounds",
    "jakes": "Rayleigh with memory: correlation J0(2 pi f_D T_round n) after n rounds",
    "38.901": "rician with a drawn K factor where a 38.901 site has line of sight, rayleigh elsewhere",
}
MOVING = ("speed_m_s", "carrier_ghz", "round_s")
REMEMBER = ("ar1", "jakes")


@dataclass(frozen=True)
class Fading:
    """One law of `FADING_LAWS`. `mean` and `std` are for real_gaussian, one number or one per device.

    ar1 and jakes: `rho`, the correlation from one round to the next, or `speed_m_s`, `carrier_ghz` and `round_s` (the
    time from round to round), which give rho = J0(2 pi f_D T_round) with f_D = speed * carrier / c. A `k_factor_db`
    per device may be -inf: no line of sight.
    """

    kind: Kind = "rayleigh"
    coherence_rounds: int = 1
    k_factor_db: float | tuple[float, ...] | None = None
    phase_rad: float | None = None  # of the line of sight; None: uniform, new in every block
    mean: float | tuple[float, ...] | None = None
    std: float | tuple[float, ...] | None = None
    rho: float | None = None
    speed_m_s: float | None = None
    carrier_ghz: float | None = None
    round_s: float | None = None

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
                validate.finite(name, np.where(np.isneginf(value), 0, value) if name == "k_factor_db" else value)
        if self.kind == "real_gaussian":
            validate.not_negative("std", self.std)
            validate.positive("mean^2 + std^2", self.second_moment)
        self._check_memory()

    def _check_memory(self) -> None:
        given = [name for name in ("rho", *MOVING) if getattr(self, name) is not None]
        if self.kind not in REMEMBER:
            if given:
                raise InputError(f"{given[0]} has no meaning for fading kind={self.kind!r}; it is for ar1 and jakes")
            return
        if given != ["rho"] and given != list(MOVING):
            got = ", ".join(given) or "nothing"
            raise InputError(f"fading kind={self.kind!r} needs rho, or {', '.join(MOVING)} together; given: {got}")
        if self.coherence_rounds != 1:
            raise InputError(f"coherence_rounds={self.coherence_rounds} must be 1: {self.kind} remembers by itself")
        for name in MOVING:
            if getattr(self, name) is not None:
                validate.positive(name, getattr(self, name))
        memory.check_rho(self.rho if self.rho is not None else self.correlation(1))
        if self.kind == "jakes" and self.rho is not None:
            memory.check_jakes(self.rho)

    @property
    def turns(self) -> float:
        """f_D T_round of jakes, and of an ar1 that was given a speed."""
        if self.rho is not None:
            return memory.turns_of(self.rho)
        assert self.speed_m_s is not None and self.carrier_ghz is not None and self.round_s is not None
        return memory.doppler_hz(self.speed_m_s, self.carrier_ghz) * self.round_s

    def correlation(self, rounds: int) -> float:
        """E gain_t conj(gain_{t-n}) / rms^2 of the laws that remember, n = `rounds`.

        >>> round(Fading("ar1", rho=0.9).correlation(2), 4), round(Fading("jakes", rho=0.9).correlation(2), 4)
        (0.81, 0.6298)
        """
        if self.kind not in REMEMBER:
            raise InputError(f"fading kind={self.kind!r} has no correlation from round to round; use ar1 or jakes")
        if self.kind == "jakes":
            return float(memory.jakes_correlation(self.turns, rounds))
        rho = float(memory.jakes_correlation(self.turns, 1)) if self.rho is None else self.rho
        return rho**rounds

    @property
    def second_moment(self) -> Any:
        """E|gain|^2 at mean power gain 1: 1 for all laws but real_gaussian, whose mean and std set the scale."""
        if self.kind != "real_gaussian":
            return 1.0
        return np.square(self.mean) + np.square(self.std)  # type: ignore[arg-type]


class Held:
    """One row per block of rounds, drawn when its first round is asked for; rounds are asked for in order."""

    def __init__(self, sample: Callable[..., NDArray[Any]], coherence_rounds: int):
        self._sample, self._held, self._done = sample, coherence_rounds, 0
        self._last: NDArray[Any] | None = None  # (1, K) of a block whose rounds are not over

    def take(self, shape: tuple[int, ...]) -> NDArray[Any]:
        """The next shape[0] rounds; how many are taken at a time changes no number."""
        rounds, num_clients = shape
        first, stop = self._done, self._done + rounds
        open_block = int(first % self._held > 0)
        blocks = -(-stop // self._held) - first // self._held - open_block
        drawn = self._sample((blocks, num_clients))
        if open_block and self._last is not None:
            drawn = np.concatenate([self._last, drawn])
        self._done, self._last = stop, drawn[-1:].copy()
        return drawn[np.arange(first, stop) // self._held - first // self._held]


def by_parts_law(rng: np.random.Generator, count: int) -> Law:
    """Rayleigh gains of `count` draws in all, every real part drawn before any imaginary one: another count is another
    trace. The second generator starts where the first will end."""
    later = deepcopy(rng)
    for start in range(0, count, SKIPPED):
        later.standard_normal(min(SKIPPED, count - start))

    def law(rms_gain: Floats) -> Complexes:
        normal = rng.standard_normal(rms_gain.shape) + 1j * later.standard_normal(rms_gain.shape)
        return np.asarray(rms_gain * (normal / np.sqrt(2)))

    return law


def rayleigh(rng: np.random.Generator, rms_gain: Floats, coherence_rounds: int = 1) -> Complexes:
    """|gain|^2 exponential with mean rms_gain^2, uniform phase."""
    return _rayleigh(rng, coherence_rounds)(rms_gain)


def _rayleigh(rng: np.random.Generator, held: int) -> Law:
    normal = Held(lambda shape: memory.circular_normal(rng, shape), held)
    return lambda rms_gain: rms_gain * normal.take(rms_gain.shape)


def rician(
    rng: np.random.Generator,
    rms_gain: Floats,
    k_factor: ArrayLike,
    phase_rad: float | None = None,
    coherence_rounds: int = 1,
) -> Complexes:
    """A line of sight with `k_factor` () or (K,) times the scattered power; 0 gives the very draws of `rayleigh`."""
    return _rician(rng, np.asarray(k_factor, float), phase_rad, coherence_rounds)(rms_gain)


def _rician(rng: np.random.Generator, k_factor: Floats, phase_rad: float | None, held: int) -> Law:
    turns = Held(rng.spawn(1)[0].random, held)
    normal = Held(lambda shape: memory.circular_normal(rng, shape), held)

    def law(rms_gain: Floats) -> Complexes:
        scattered = normal.take(rms_gain.shape)
        if phase_rad is None:
            sight = np.exp(2j * np.pi * turns.take(rms_gain.shape))
        else:
            sight = np.exp(1j * phase_rad) * np.ones(rms_gain.shape)
        return np.asarray(rms_gain * (np.sqrt(k_factor) * sight + scattered) / np.sqrt(1 + k_factor))

    return law


def real_gaussian(
    rng: np.random.Generator, rms_gain: Floats, mean: ArrayLike, std: ArrayLike, coherence_rounds: int = 1
) -> Complexes:
    """Real gains N(mean, std^2), scaled to rms_gain; rms_gain^2 = mean^2 + std^2 leaves them as they are."""
    return _real_gaussian(rng, mean, std, coherence_rounds)(rms_gain)


def _real_gaussian(rng: np.random.Generator, mean: ArrayLike, std: ArrayLike, held: int) -> Law:
    mean, std = np.asarray(mean, float), np.asarray(std, float)
    normal = Held(rng.standard_normal, held)

    def law(rms_gain: Floats) -> Complexes:
        drawn = rms_gain * (mean + std * normal.take(rms_gain.shape)) / np.hypot(mean, std)
        return np.asarray(drawn, np.complex128)

    return law


def constant(rng: np.random.Generator, rms_gain: Floats, coherence_rounds: int = 1) -> Complexes:
    """No fading. Takes a generator only to be called like the other laws."""
    return rms_gain.astype(np.complex128)


def law_of(fading: Fading, rng: np.random.Generator) -> Law:
    """The law that `fading` names, for rounds that are asked for in order, some at a time."""
    held = fading.coherence_rounds
    if fading.kind == "rayleigh":
        return _rayleigh(rng, held)
    if fading.kind == "rician":
        assert fading.k_factor_db is not None
        return _rician(rng, 10 ** (np.asarray(fading.k_factor_db, float) / 10), fading.phase_rad, held)
    if fading.kind == "ar1":
        return memory.ar1_law(rng, fading.correlation(1))
    if fading.kind == "jakes":
        return memory.jakes_law(rng, fading.turns)
    if fading.kind == "38.901":
        raise InputError("fading kind='38.901' needs devices of a 38.901 path loss, which draws their K factors")
    if fading.kind == "real_gaussian":
        assert fading.mean is not None and fading.std is not None
        return _real_gaussian(rng, fading.mean, fading.std, held)
    return lambda rms_gain: constant(rng, rms_gain)


def gains(fading: Fading, rng: np.random.Generator, rms_gain: Floats) -> Complexes:
    """Draw `gain` (T, K) of the law that `fading` names.

    >>> gains(Fading("constant"), np.random.default_rng(0), np.array([[0.5, 2.0]]))
    array([[0.5+0.j, 2. +0.j]])
    """
    return law_of(fading, rng)(rms_gain)


class PilotLaw(NamedTuple):
    """sum over N pilots of |gain|^2 / rms_gain^2 is `scale` times a noncentral chi-square; scale 0: exactly N."""

    degrees: int
    noncentrality: Any  # () or (K,)
    scale: Any


def pilot_law(fading: Fading, count: int) -> PilotLaw:
    """The exact law of N independent pilots' energy, the shape of the fading (K factor, mean : std) being known."""
    if fading.kind in ("rayleigh", *REMEMBER):
        return PilotLaw(2 * count, 0.0, 0.5)
    if fading.kind == "rician":
        assert fading.k_factor_db is not None
        k_factor = 10 ** (np.asarray(fading.k_factor_db) / 10)
        return PilotLaw(2 * count, 2 * count * k_factor, 0.5 / (1 + k_factor))
    if fading.kind == "real_gaussian":
        mean, std = np.asarray(fading.mean, float), np.asarray(fading.std, float)
        validate.positive("std", std)
        return PilotLaw(count, count * (mean / std) ** 2, std**2 / fading.second_moment)
    return PilotLaw(0, 0.0, 0.0)
