"""Power limits and noise levels in the units of the round: energy of the whole vector, noise per real dimension.

Papers state limits in two ways. AdaScale and the bias-variance design limit the power of every complex sample, and
one real number travels per sample: the vector of d numbers may then spend d samples' worth, `energy_from_power`.
CARES' P_max and CDPB's P already limit the whole vector: they are the energy, and nothing is to be converted.
Host, NumPy, float64.
"""

import numpy as np
from numpy.typing import ArrayLike

from otafl.core import validate
from otafl.core.arrays import Floats


def dbm_to_w(power_dbm: ArrayLike) -> Floats:
    """
    >>> float(dbm_to_w(30.0))
    1.0
    """
    return np.asarray(1e-3 * 10.0 ** (np.asarray(power_dbm, float) / 10))


def w_to_dbm(power_w: ArrayLike) -> Floats:
    """
    >>> float(w_to_dbm(1e-3))
    0.0
    """
    return np.asarray(10 * np.log10(np.asarray(power_w, float) / 1e-3))


def energy_from_power(power_w: ArrayLike, dim: int, symbol_time_s: float) -> Floats:
    """Energy in J that a vector of `dim` real numbers, one per complex sample, may spend at `power_w` per sample.

    The symbol time is 1 / bandwidth; AdaScale counts in watts throughout, which is symbol_time_s = 1.

    >>> float(energy_from_power(0.2, dim=26_010, symbol_time_s=1.0))  # AdaScale: P_max d
    5202.0
    """
    validate.positive("power_w", power_w)
    validate.whole("dim", dim)
    validate.positive("symbol_time_s", symbol_time_s)
    return np.asarray(power_w, float) * symbol_time_s * dim


def noise_var_from_power(noise_w: float, symbol_time_s: float) -> float:
    """Variance in J per real dimension of complex noise of power `noise_w`: half of its energy per sample, N_0 / 2.

    >>> noise_var_from_power(1e-12, symbol_time_s=1.0)  # AdaScale: sigma_n^2 / 2
    5e-13
    """
    validate.positive("noise_w", noise_w)
    validate.positive("symbol_time_s", symbol_time_s)
    return noise_w * symbol_time_s / 2
