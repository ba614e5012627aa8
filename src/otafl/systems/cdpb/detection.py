"""Is participation hidden? The energy of y tells who was there once d is of the order of (K p)^2 (CDPB E3).

A client that takes part adds its own noise, so the variance per coordinate is r > 1 times that of its absence. The
adversary compares "its update was x" with "its update was 0" (zero-out): two mixtures over its presence. The coordinate
along x and the energy of the d - 1 others are sufficient, so the Renyi divergence is a two-dimensional integral.
Float64, host.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from otafl.core import validate
from otafl.core.errors import InputError
from otafl.privacy.participation import visible_rdp
from otafl.systems.cdpb.accounting import hidden_rdp
from otafl.systems.cdpb.model import IDLE, ExpGain, Params, Scheme, stats


class Detection(NamedTuple):
    d: int
    eps: float  # true RDP of one round, the energy of y being seen
    hidden: float  # what hidden accounting would charge
    visible: float  # what visible accounting charges
    auc: float  # of telling presence from the energy of y alone: 1/2 is a guess, 1 is certainty
    advantage: float  # TPR - FPR of the best threshold on that energy: how far apart its two laws are


def energy_auc(d: int, variance_ratio: float) -> float:
    """Pr[energy when present > energy when absent] = Pr[F(d, d) > 1 / r]."""
    from scipy import stats as laws  # slow to import, and few ask

    return float(laws.f.sf(1 / variance_ratio, d, d))


def energy_advantage(d: int, variance_ratio: float) -> float:
    """Total variation between the energies of presence and absence: two chi-square laws that cross once.

    >>> round(energy_advantage(10_000, 1.05), 3)
    0.915
    """
    from scipy import stats as laws

    if variance_ratio == 1:
        return 0.0
    crossing = d * np.log1p(variance_ratio - 1) / (1 - 1 / variance_ratio)  # in units of the variance of absence
    return float(laws.chi2.cdf(crossing, d) - laws.chi2.cdf(crossing / variance_ratio, d))


def _divergence(p: float, shift: float, ratio: float, d: int, alpha: float, toward_zero: bool) -> float:
    """D_alpha of the two mixtures; `toward_zero`: the update x is the first argument."""
    from scipy import stats as laws

    y = np.linspace(-10 - alpha * shift, 10 + alpha * shift, 1201)[:, None]  # coordinate along x
    if d > 1:
        energy = np.linspace(0, 1, 1601)[1:-1]
        low, high = laws.chi2.ppf(1e-13, d - 1), ratio * laws.chi2.isf(1e-13, d - 1)
        rest = (low + (high - low) * energy)[None, :]
        width = rest[0, 1] - rest[0, 0]
        away, there = laws.chi2.logpdf(rest, d - 1), laws.chi2.logpdf(rest / ratio, d - 1) - np.log(ratio)
    else:
        width, away, there = 1.0, np.zeros((1, 1)), np.zeros((1, 1))
    scale = np.sqrt(ratio)
    absent = np.log1p(-p) + laws.norm.logpdf(y) + away
    with_x = np.logaddexp(absent, np.log(p) + laws.norm.logpdf(y, shift, scale) + there)
    with_0 = np.logaddexp(absent, np.log(p) + laws.norm.logpdf(y, 0, scale) + there)
    first, second = (with_x, with_0) if toward_zero else (with_0, with_x)
    cell = np.log(y[1, 0] - y[0, 0]) + np.log(width)
    return float(logsumexp(alpha * first + (1 - alpha) * second + cell) / (alpha - 1))


def renyi_with_energy(p: float, shift: float, variance_ratio: float, d: int, alpha: float) -> float:
    """RDP of one round when presence also shows in the noise level; the larger of both directions.

    shift: norm of the arriving update over the noise std without the client; variance_ratio >= 1: noise variance with
    the client over that without it.
    """
    validate.in_open("p", p, 0, 1)
    validate.positive("shift", shift)
    validate.whole("d", d)
    if not variance_ratio >= 1:
        raise InputError(f"variance_ratio={variance_ratio!r} must be >= 1")
    return max(_divergence(p, shift, variance_ratio, d, alpha, way) for way in (True, False))


def energy_detection(
    p: float, shift: float, variance_ratio: float, dims: list[int], alpha: float = 2.0
) -> list[Detection]:
    """How hidden participation turns visible as d grows at a fixed shift."""
    hidden = float(hidden_rdp(alpha, p, shift**2))
    visible = float(visible_rdp(p, [alpha * shift**2 / variance_ratio / 2], [alpha])[0])
    return [
        Detection(
            d,
            renyi_with_energy(p, shift, variance_ratio, d, alpha),
            hidden,
            visible,
            energy_auc(d, variance_ratio),
            energy_advantage(d, variance_ratio),
        )
        for d in dims
    ]


def detection_of_design(params: Params, u: float, dims: list[int], scheme: Scheme = IDLE) -> list[Detection]:
    """The demonstration for a client of a given design, all d at the shift that its own d gives."""
    at = stats(params, u, scheme)
    power, sigma2, _ = params.groups
    threshold = at.rho * params.W**2 / power[0]
    gain = ExpGain(sigma2[0])
    p = gain.tail(threshold)
    present = power[0] * gain.mean  # mean left-over noise of a reliable client
    absent = scheme.portion * power[0] * gain.below(threshold) / -np.expm1(-threshold / gain.mean)
    others = at.v - p * present - (1 - p) * absent + params.d * params.sz2
    ratio = float((others + present) / (others + absent))
    base = float((others + absent) / params.d)
    shift = float(np.sqrt(at.rho) * params.W / np.sqrt(base))
    return energy_detection(float(at.p_top), shift, ratio, dims, params.alpha)
