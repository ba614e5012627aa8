"""Beyond the mean field: the law of K_t, its inverse moments, and draws of whole rounds. Float64, host."""

from typing import NamedTuple

import numpy as np

from otafl.core.arrays import Array
from otafl.systems.cdpb.model import IDLE, ExpGain, Params, Scheme


class Inverse(NamedTuple):
    """Moments given that somebody takes part; `empty` = Pr[K_t = 0]."""

    inv_K: float  # E[1 / K_t]
    inv_K2: float  # E[1 / K_t^2]
    noise: float  # E[v / K_t^2], v and K_t are dependent
    empty: float


def _per_client(params: Params, u: float, scheme: Scheme) -> tuple[Array, Array, Array]:
    """Each client's (probability of taking part, E[noise 1{in}], E[noise 1{out}]), (K,)."""
    power, sigma2, count = params.groups
    gain, threshold = ExpGain(sigma2), params.rho(u) * params.W**2 / power
    inside = scheme.artificial * scheme.keep * power * gain.excess(threshold)
    outside = scheme.portion * power * gain.below(threshold)
    fields = (scheme.keep * gain.tail(threshold), inside, outside)
    return tuple(np.repeat(field, count) for field in fields)  # type: ignore[return-value]


def inverse_moments(params: Params, u: float, scheme: Scheme = IDLE) -> Inverse:
    """Exact moments of 1 / K_t, client by client: K_t is Poisson-binomial when the clients are unlike.

    Carries law[m] = Pr[K_t = m] and noise[m] = E[v 1{K_t = m}] through one client after the other.

    >>> round(inverse_moments(Params(K=12), 0.7).inv_K, 6)
    0.187615
    """
    law, noise = np.zeros(params.K + 1), np.zeros(params.K + 1)
    law[0] = 1.0
    for p, inside, outside in zip(*_per_client(params, u, scheme)):
        up_law, up_noise = np.roll(law, 1), np.roll(noise, 1)  # the last entry is still empty, so nothing wraps
        noise = (1 - p) * noise + p * up_noise + outside * law + inside * up_law
        law = (1 - p) * law + p * up_law
    some = law[1:].sum()  # 1 - law[0] cancels where hardly anyone takes part
    if some <= 0:
        return Inverse(np.inf, np.inf, np.inf, 1.0)
    m = np.arange(1, params.K + 1)
    inv_K, inv_K2, ratio = law[1:] @ (1 / m), law[1:] @ (1 / m**2), noise[1:] @ (1 / m**2)
    return Inverse(float(inv_K / some), float(inv_K2 / some), float(ratio / some), float(law[0]))


def B_exact(params: Params, u: float, scheme: Scheme = IDLE) -> float:
    """B for the genie normaliser, given K_t > 0, without replacing K_t by its mean (CDPB E13)."""
    exact = inverse_moments(params, u, scheme)
    if np.isinf(exact.inv_K):  # nobody ever takes part
        return np.inf
    noise = exact.noise + params.d * params.sz2 * exact.inv_K2
    return float(params.A * exact.inv_K + noise / params.rho(u))


class Draw(NamedTuple):
    """Rounds drawn from the fading law."""

    good: Array  # (T, K) bool, takes part
    K_t: Array  # (T,)
    noise: Array  # (T, K) artificial noise power of each client at the receiver, summed over d
    s2: Array  # (T,) noise variance per coordinate


def draw_rounds(
    params: Params, u: float, scheme: Scheme, rounds: int, rng: np.random.Generator, mixed_mode: str = "scale"
) -> Draw:
    """Sample channels (and coins) of `rounds` rounds; mixed_mode as in the policy."""
    power, sigma2 = (np.broadcast_to(np.asarray(x, float), (params.K,)) for x in (params.P, params.sigma2))
    h = ExpGain(sigma2).draw(rng, (rounds, params.K))
    rho = params.rho(u)
    reliable = h >= rho * params.W**2 / power
    good = reliable & (rng.random(h.shape) < scheme.keep)
    level = rng.random(h.shape) < scheme.portion if mixed_mode == "coin" else scheme.portion
    left = np.where(good, scheme.artificial * (h * power - rho * params.W**2), 0.0)
    noise = np.where(reliable, left, level * h * power)
    return Draw(good, good.sum(-1), noise, noise.sum(-1) / params.d + params.sz2)
