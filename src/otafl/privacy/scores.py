"""The likelihood ratios by which an auditor tells two worlds apart, from what was received. Host, float64.

Axes: runs, T rounds, R real numbers per coordinate (2 M where the observer keeps both parts of M antennas), m
canaries; `seen` is what was received, projected on the canaries' directions.

    gaussian   s = sum_t <y_t, D_t>_{C_t^-1} / mu,   mu^2 = sum_t <D_t, D_t>_{C_t^-1}     N(-mu/2, 1) or N(+mu/2, 1)
    sampled    sum_t log(1 - q + q e^a_t),   a_t = <y_t, m_t>/v_t - m_t^2 / (2 v_t)       in the batch with chance q
    crowd      the same where the others' coins are unknown too: mixtures over how many of them were drawn

with D_t the received difference of the two contributions, C_t (v_t) the noise, y_t without the known rest.
"""

import numpy as np
from scipy import stats
from scipy.special import logsumexp

from otafl.core.arrays import Array
from otafl.privacy.moments import log_mixture

NEGLIGIBLE = 1e-13  # of a binomial


def gaussian_score(seen: Array, gain: Array, noise: Array, present: Array, absent: Array) -> Array:
    """(runs, m) scores of messages of sizes `present` and `absent` (T, m); `seen` (runs, T, R, m), `gain` (T, R, m)
    what a message of size 1 becomes, `noise` (T, R, R) its covariance."""
    change, middle = gain * (present - absent)[:, None], gain * (present + absent)[:, None] / 2
    quiet = ~np.any(change, axis=(1, 2))  # nothing arrives, and there may be no noise either
    safe = np.where(quiet[:, None, None], np.eye(noise.shape[-1]), noise)
    matched = np.linalg.solve(safe, change)  # C^-1 D
    mu = np.sqrt(np.einsum("trm,trm->m", matched, change))
    score = np.einsum("ntrm,trm->nm", seen - middle, matched)
    return score / np.where(mu > 0, mu, 1.0)


def sampled_score(seen: Array, size: Array, noise_var: Array, rate: Array) -> Array:
    """(runs, m) log likelihood ratios of a contribution `size` (T, m) with chance `rate` (m,) per round against none;
    `seen` (runs, T, m) without the rest, `noise_var` (T,)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        at = np.where(size == 0, 0.0, (seen * size - size**2 / 2) / noise_var[:, None])
    return np.sum(np.where(rate < 1, log_mixture(rate, at), at), axis=1)  # 1 + expm1(at) forgets a small e^at


def replaced_score(seen: Array, size: Array, noise_var: Array, rate: Array) -> Array:
    """A contribution against its opposite."""
    return sampled_score(seen, size, noise_var, rate) - sampled_score(seen, -size, noise_var, rate)


def crowd_score(
    seen: Array, sizes: tuple[Array, Array], noise_var: Array, rates: tuple[float, float], others: int
) -> Array:
    """(runs,) log likelihood ratio of one client's record among `others` that all oppose it; the second world has it.

    `seen` (runs, T); `sizes` (T,) of one contribution and `rates` in the world without and in the world with it.
    """
    total = []
    for world, (size, rate) in enumerate(zip(sizes, rates)):
        drawn = stats.binom(others, rate)
        low, high = int(drawn.ppf(NEGLIGIBLE)), int(drawn.isf(NEGLIGIBLE))
        number = np.arange(max(low, 0), high + 1)
        centre, log_chance = -number, drawn.logpmf(number)
        if world == 1:  # the record itself, in the batch or not
            centre = np.concatenate([centre, centre + 1])
            with np.errstate(divide="ignore"):
                log_chance = np.concatenate([log_chance + np.log1p(-rate), log_chance + np.log(rate)])
        total.append(_log_mixture(seen, size, noise_var, centre, log_chance))
    return total[1] - total[0]


def _log_mixture(seen: Array, size: Array, noise_var: Array, centre: Array, log_chance: Array) -> Array:
    """(runs,) sum over rounds of the log density of N(size * centre_j, v) with chances of j, up to a constant."""
    total = np.zeros(len(seen))
    for t in range(seen.shape[1]):
        if size[t] != 0:
            apart = seen[:, t, None] - size[t] * centre
            total += logsumexp(log_chance - apart**2 / (2 * noise_var[t]), axis=1)
    return total
