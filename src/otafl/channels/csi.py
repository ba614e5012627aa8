"""Imperfect knowledge of the own gain, never worse than declared. Host, NumPy, complex128.

Devices invert `estimate`, the air applies `gain`. The ledger charges amplitudes times 1 + gain_error and counts
artificial noise times (1 - gain_error)^2; both are safe because the errors are built to satisfy

    |gain / estimate| <= 1 + gain_error      and      Re(gain / estimate) >= 1 - gain_error.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy

from otafl.core import validate
from otafl.core.arrays import Complexes, Floats
from otafl.core.errors import InputError

_ROUNDING = 8 * np.finfo(float).eps  # keeps the bounds true after rounding


@dataclass(frozen=True)
class CsiError:
    """Declared bounds of the estimation error, and its law within them.

    The ratio |gain / estimate| and the phase error (rad) are uniform between their bounds, or normal around 1 and 0
    with `gain_std`, `phase_std`, truncated at the bounds. Errors are new in every round, independent per device.
    """

    gain_error: float
    phase_error: float = 0.0
    gain_std: float | None = None
    phase_std: float | None = None

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    def __post_init__(self) -> None:
        validate.in_closed("gain_error", self.gain_error, 1e-12, 0.999)
        validate.in_closed("phase_error", self.phase_error, 0, 1.57)
        for name in ("gain_std", "phase_std"):
            if getattr(self, name) is not None:
                validate.positive(name, getattr(self, name))
        if 1 - np.cos(self.phase_error) > self.gain_error:
            raise InputError(
                f"gain_error={self.gain_error!r} must be >= 1 - cos(phase_error) = {1 - np.cos(self.phase_error):.6g}: "
                "a rotated signal arrives weaker than declared"
            )


def truncated(uniform: Floats, mean: float, std: float | None, low: float, high: float) -> Floats:
    """Map uniforms to [low, high]: uniform where `std` is None, else normal truncated there."""
    if std is None:
        value = low + (high - low) * uniform
    else:
        below, above = scipy.special.ndtr((low - mean) / std), scipy.special.ndtr((high - mean) / std)
        value = mean + std * scipy.special.ndtri(below + (above - below) * uniform)
    return np.clip(value, low, high)  # against rounding and against a std far wider or narrower than the bounds


def estimates(error: CsiError, gain: Complexes, rng: np.random.Generator) -> Complexes:
    """What devices measure (T, K): gain * (1 + gain error) * exp(j phase error)."""
    uniform = rng.random((*gain.shape, 2))
    phase = truncated(uniform[..., 1], 0.0, error.phase_std, -error.phase_error, error.phase_error)
    weakest = min(1.0, (1 - error.gain_error) / np.cos(error.phase_error) + _ROUNDING)
    strongest = max(1.0, 1 + error.gain_error - _ROUNDING)
    ratio = truncated(uniform[..., 0], 1.0, error.gain_std, weakest, strongest)
    return np.asarray(gain / ratio * np.exp(1j * phase))
