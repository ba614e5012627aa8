"""Who wins where: the learning signal that inversion rules reach with a budget of energy, in closed form.

For like devices under Rayleigh fading S / S_max depends on one number, the energy of the run in units of what privacy
allows, `allowed = J E abs(h)^2 / (C^2 P)`, P the sum of squared amplitudes that spends the budget. The number of
devices moves S_max, and so whether anything is useful, but not who wins. A rule that has too little energy to spend its
privacy spends less of it. The energy of single rounds is not limited here.
"""

import numpy as np
from scipy.special import exp1

from otafl.core.arrays import Array
from otafl.systems.ridge.inversion import LARGEST, efficiency, energy, kappa_for_energy

THRESHOLDS = np.geomspace(1e-6, 8.0, 800)  # of truncated inversion, on abs(h)^2 / E abs(h)^2


def ridge(allowed: Array) -> Array:
    """S / S_max of the ridge.

    >>> ridge(np.array([1.45, 0.1])).round(2).tolist()
    [0.95, 0.32]
    """
    allowed = np.asarray(allowed, float)
    unspent = np.minimum(1.0, allowed / energy(LARGEST))
    return efficiency(kappa_for_energy(allowed)) * np.sqrt(unspent)


def truncated(allowed: Array, realised: bool) -> Array:
    """S / S_max of the best truncated inversion: silence charged in full, or only rounds that were sent (realised)."""
    heard = np.exp(-THRESHOLDS)
    per_privacy = exp1(THRESHOLDS) * (np.exp(THRESHOLDS) if realised else 1.0)
    gained = np.sqrt(heard) if realised else heard
    spent = np.minimum(1.0, np.asarray(allowed, float)[..., None] / per_privacy)
    return np.max(gained * np.sqrt(spent), axis=-1)


def allowed_energy(joules: Array, mu: Array, noise_var: float, clip_norm: float, sensitivity: float) -> Array:
    """The run's energy in units of what privacy allows; channels have mean square 1, P = mu^2 noise_var / sens^2."""
    return np.asarray(joules, float) * sensitivity**2 / (clip_norm**2 * np.asarray(mu, float) ** 2 * noise_var)
