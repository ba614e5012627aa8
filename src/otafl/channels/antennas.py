"""Receive beams of a server with M antennas: unit vectors f that turn gains h_k in C^M into scalars f^H h_k. Host.

All clients are to be heard at once, so a beam is judged by its weakest client,

    min_k |f^H h_k| / t_k,        t_k = weight_k / sqrt(energy_k)  (times the norm bound, which all share)

and can never pass min_k |h_k| / t_k. `fixed`, the first antenna, ignores the fading; the others follow it, so that the
law of f^H h_k is no longer that of one antenna. What the array tells the server besides is `privacy.antennas`.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array, Complexes, Floats
from otafl.core.errors import InputError
from otafl.core.plan import ArrayTrace, Deployment, Trace

STEPS = 200  # of `iterated`; it ends long before
SETTLED = 1e-12  # relative gain of a step

BEAMS: dict[str, str] = {
    "fixed": "the first antenna, whatever the fading: f^H h keeps the law of one antenna",
    "best_antenna": "each round the antenna whose weakest client is heard best",
    "matched": "each round along the client with the least |h_k| / t_k",
    "iterated": "each round from the best antenna on by least-norm steps: never below it, about twice as good",
}


def best_antenna(array: Array, demand: Array) -> Complexes:
    """The unit vector (M,) of the antenna whose weakest client is heard best; `array` (K, M), `demand` t (K,) >= 0."""
    gains, need = _checked(array, demand)
    chosen = int(np.argmax(np.min(np.abs(gains) / need[:, None], axis=0)))
    return np.asarray(np.eye(gains.shape[1], dtype=np.complex128)[chosen])


def matched(array: Array, demand: Array) -> Complexes:
    """Along the channel (M,) of the client with the least |h_k| / t_k."""
    gains, need = _checked(array, demand)
    weakest = gains[int(np.argmin(np.linalg.norm(gains, axis=1) / need))]
    size = np.linalg.norm(weakest)
    return weakest / size if size > 0 else best_antenna(gains, need)


def iterated(array: Array, demand: Array) -> Complexes:
    """From the best antenna: keep every client's phase, take the shortest f that hears all of them, and again.

    Each step is least-distance programming, exact by non-negative least squares; the beam before it is feasible, so
    the weakest client is never heard worse.

    >>> gains = np.array([[1.0, 1.0j], [1.0j, 1.0]])
    >>> beam = iterated(gains, np.ones(2))
    >>> bool(np.abs(gains @ beam.conj()).min() > 1.0 - 1e-9)
    True
    """
    gains, need = _checked(array, demand)
    beam = best_antenna(gains, need)
    heard = np.linalg.norm(gains, axis=1) > 0  # nobody can be heard whose gain is zero; the others still are
    if not np.any(heard):
        return beam
    rows = gains[heard] / need[heard, None]
    rows = rows / np.max(np.abs(rows))
    level = _weakest(rows, beam)
    for _ in range(STEPS):
        better = _shortest(rows * np.exp(-1j * np.angle(rows @ beam.conj()))[:, None])
        reached = _weakest(rows, better)
        if not reached > level:
            break
        settled, beam, level = reached <= level * (1 + SETTLED), better, reached
        if settled:
            break
    return beam


def channel_sum(array: Array, demand: Array = None) -> Complexes:
    """Along sum_k h_k (M,): maximum-ratio combining of equal transmitters (Amiri et al., arXiv 2010.10030)."""
    total = np.asarray(array, np.complex128).sum(0)
    size = np.linalg.norm(total)
    return np.asarray(total / size if size > 0 else np.eye(len(total), dtype=np.complex128)[0])


KINDS: dict[str, Callable[[Array, Array], Complexes]] = {
    "fixed": lambda array, demand: np.eye(np.shape(array)[1], dtype=np.complex128)[0],
    "best_antenna": best_antenna, "matched": matched, "iterated": iterated, "sum": channel_sum,
}  # fmt: skip


def beams(kind: str, array: Array, demand: Array) -> Complexes:
    """One beam per round, (T, M), for gains (T, K, M) and demands t (K,)."""
    validate.one_of("beam", kind, KINDS)
    return np.stack([KINDS[kind](gains, demand) for gains in np.asarray(array)])


def demand_of(deployment: Deployment) -> Floats:
    """t_k = weight_k / sqrt(energy_k), (K,), up to a factor that all share; a weight of 0 asks for nothing."""
    energy = np.asarray(deployment.energy, np.float64)
    return np.asarray(np.asarray(deployment.weights, np.float64) / np.sqrt(energy))


def receive(trace: Trace, deployment: Deployment) -> tuple[Trace, Deployment]:
    """The site as the server's beam hears it: gain = f^H h, estimate = f^H h_estimated; f from the estimates alone.

    Noise is as before because |f| = 1. The law of f^H h is known where f ignores the fading, and NaN elsewhere; what is
    known of one antenna goes into `deployment.receiver`.
    """
    receiver, known = deployment.receiver, trace.rms_estimate
    if receiver.antenna_rms is None and np.all(known == known[0]):
        deployment = deployment._replace(receiver=receiver._replace(antenna_rms=known[0]))
    if not isinstance(trace, ArrayTrace) or receiver.beam == "fixed":
        return trace, deployment
    beam = beams(receiver.beam, trace.array_estimate, demand_of(deployment))
    heard = [np.einsum("tm,tkm->tk", beam.conj(), gains) for gains in (trace.array, trace.array_estimate)]
    unknown = np.full_like(trace.rms_gain, np.nan)
    formed = trace._replace(
        gain=heard[0], estimate=heard[1],
        rms_gain=unknown, rms_estimate=unknown, rms_low=unknown, rms_high=unknown,
    )  # fmt: skip
    return formed, deployment


class BlindMoments(NamedTuple):
    """First two moments of the weights w_k of blind combining."""

    mean: Floats  # (K,)
    covariance: Floats  # (K, K)


def blind_moments(mean_power_gain: Sequence[float] | Floats, antennas: int, tx: float, rx_scale: float) -> BlindMoments:
    """Moments over the fading of w_k = Re(tx f^H h_k) / rx_scale, f = sum_j h_j, h_k ~ CN(0, mean_power_gain_k I) (A5).

    E w_k = tx M s_k / rx, Var w_k = (tx^2 M / rx^2)(s_k^2 + s_k sum_{j != k} s_j / 2), Cov = tx^2 M s_k s_l / (2 rx^2).

    >>> blind_moments([1.0, 1.0], antennas=4, tx=1.0, rx_scale=4.0).mean.tolist()
    [1.0, 1.0]
    """
    power = np.asarray(mean_power_gain, np.float64)
    validate.whole("antennas", antennas)
    scale = tx**2 * antennas / rx_scale**2
    covariance = scale * np.outer(power, power) / 2
    variance = scale * (power**2 + power * (power.sum() - power) / 2)
    np.fill_diagonal(covariance, variance)
    return BlindMoments(tx * antennas * power / rx_scale, covariance)


def blind_error(
    squared_norms: Array, squared_sum: float, antennas: int, dim: int, noise_var: float, tx: float, mean_power: float
) -> float:
    """E |received - sum_k x_k|^2 of blind combining at equal mean power gains and rx_scale = tx M mean_power (A5).

    (K sum_k |x_k|^2 + |sum_k x_k|^2) / (2 M) + D v0 K / (M tx^2 mean_power).
    """
    norms = np.asarray(squared_norms, np.float64)
    fading = (len(norms) * norms.sum() + squared_sum) / (2 * antennas)
    return float(fading + dim * noise_var * len(norms) / (antennas * tx**2 * mean_power))


def _checked(array: Array, demand: Array) -> tuple[Complexes, Floats]:
    gains, need = np.asarray(array, np.complex128), np.asarray(demand, np.float64)
    validate.shape("demand", need, gains.shape[:1])
    validate.not_negative("demand", need)
    asks = need > 0  # a client that asks for nothing has no say
    if not np.any(asks):
        raise InputError("demand: all are 0, so that there is nobody to hear")
    return gains[asks], need[asks]


def _weakest(rows: Complexes, beam: Complexes) -> float:
    return float(np.min(np.abs(rows @ beam.conj())))


def _shortest(turned: Complexes) -> Complexes:
    """argmin |f| with Re(f^H row_k) >= 1 for all rows, normalised: least-distance programming by `nnls`."""
    from scipy.optimize import nnls  # slow to import, and few ask

    constraints = np.concatenate([turned.real, turned.imag], axis=1)  # of (Re f, Im f)
    system = np.concatenate([constraints.T, np.ones((1, len(turned)))])
    target = np.eye(len(system))[-1]
    solution, _ = nnls(system, target)
    residual = system @ solution - target
    if residual[-1] == 0:
        return np.zeros(turned.shape[1], np.complex128)  # infeasible; heard worse than what there was
    flat = -residual[:-1] / residual[-1]
    beam = flat[: turned.shape[1]] + 1j * flat[turned.shape[1] :]
    size = np.linalg.norm(beam)
    return np.asarray(beam / size if size > 0 else beam)
