"""What one round of CDPB costs in privacy. Float64, host.

Unit: client. Released: the received vector y_t. Sensitivity sqrt(rho) W under zero-out (the client's vector becomes 0,
its noise behaviour stays), 2 sqrt(rho) W under replace. Noise: all artificial noise, and the receiver's where trusted.
Fed with the mean noise these are plug-in values for design; a run is certified by `realised`, which averages nothing.
"""

import warnings
from typing import Any, NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.privacy.moments import sampled_gaussian_log_moment
from otafl.privacy.participation import hidden_replace_rdp, visible_eps, visible_rdp
from otafl.privacy.pld import pld_eps
from otafl.privacy.rdp import ORDERS, rdp_to_eps, sampled_gaussian_rdp
from otafl.systems.cdpb.model import IDLE, Params, Scheme, Stats, stats
from otafl.systems.cdpb.participants import Draw

ACCOUNTINGS = ("visible", "hidden", "none", "paper")
ADJACENCIES = ("zero-out", "replace")


class Charge(NamedTuple):
    """How a round is charged."""

    accounting: str = "visible"  # visible | hidden | none | paper
    adjacency: str = "zero-out"  # zero-out | replace
    trust_receiver_noise: bool = True
    assume_hidden: bool = False  # the server can tell by no means who took part (CDPB E3)

    @property
    def repaired(self) -> bool:
        return self.accounting != "paper"


VISIBLE = Charge()
SYNONYMS = {"printed": "paper", "replacement": "replace", "zero_out": "zero-out"}


def make_charge(
    accounting: str = "visible",
    adjacency: str = "zero-out",
    trust_receiver_noise: bool = True,
    assume_hidden: bool = False,
) -> Charge:
    """A checked `Charge`; "printed" is another name of "paper", "replacement" of "replace"."""
    how, adjacency = (SYNONYMS.get(word, word) for word in (accounting, adjacency))
    charge = Charge(how, adjacency, trust_receiver_noise, assume_hidden)
    check_charge(charge)
    return charge


def check_charge(charge: Charge) -> None:
    if charge.accounting == "realised":
        raise InputError(
            "accounting='realised' charges channels that were drawn, it cannot be designed for: use 'visible' (or "
            "'none'); what a run of the design realises is reported beside it"
        )
    validate.one_of("accounting", charge.accounting, ACCOUNTINGS)
    validate.one_of("adjacency", charge.adjacency, ADJACENCIES)
    if charge.accounting == "hidden" and not charge.assume_hidden:
        warnings.warn(
            "accounting='hidden' is valid only if the server cannot tell who took part, not from pilots, a count or "
            "the energy it receives (CDPB E3); say assume_hidden=True if so",
            stacklevel=3,
        )


def theorem1(alpha: float, p: Array, inv_noise: Array) -> Array:
    """Theorem 1 as printed, inv_noise = W^2 / sigma_q^2: no bound on anything that is sent (CDPB E1, E2, E4).

    >>> round(float(theorem1(8, 0.5, 0.02)), 6)
    0.618269
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.logaddexp(0.0, np.log(p) + (alpha - 1) * np.asarray(inv_noise, float))
        inner = np.where(np.asarray(p) > 0, inner, 0.0)
    return np.log(2) / (alpha - 1) + alpha / (alpha - 1) * inner


def inv_z2(params: Params, at: Stats, charge: Charge) -> Array:
    """1 / z^2 = Delta^2 / s^2, the squared inverse noise multiplier of a client that takes part."""
    s2 = at.s2 if charge.trust_receiver_noise else at.v / params.d
    factor = 4.0 if charge.adjacency == "replace" else 1.0  # CDPB E4c
    with np.errstate(divide="ignore"):
        return np.where(s2 > 0, factor * at.rho * params.W**2 / np.where(s2 > 0, s2, 1.0), np.inf)  # CDPB E1, E2


def hidden_rdp(alpha: float, p: Array, x: Array) -> Array:
    """Zero-out with hidden participation: the Poisson-sampled Gaussian, broadcast over p and x = 1 / z^2."""
    p, x = np.broadcast_arrays(np.asarray(p, float), np.asarray(x, float))
    if alpha != round(alpha):
        with np.errstate(divide="ignore"):
            return sampled_gaussian_rdp(p, 1 / np.sqrt(x), [alpha])[..., 0]
    finite = np.isfinite(x)
    value = sampled_gaussian_log_moment(p, np.where(finite, x, 1.0), int(alpha)).value / (alpha - 1)
    return np.where(finite | (p == 0), value, np.inf)


def eps_round(params: Params, at: Stats, charge: Charge = VISIBLE, alpha: float | None = None) -> Array:
    """RDP of order alpha of one round for the client that takes part most often; shape of `at.u`."""
    alpha = params.alpha if alpha is None else alpha
    if charge.accounting == "paper":
        if alpha != round(alpha):
            raise InputError(f"alpha={alpha!r} must be a whole number for accounting='paper'")
        with np.errstate(divide="ignore"):
            return theorem1(alpha, at.p_top, params.W**2 / (at.v + params.sz2))  # CDPB (13), Theorem 1
    x = inv_z2(params, at, charge)
    if charge.accounting == "hidden" and charge.adjacency == "replace":
        with np.errstate(divide="ignore"):
            return hidden_replace_rdp(at.p_top, 1 / np.sqrt(x), [alpha])[..., 0]
    if charge.accounting == "hidden":
        return hidden_rdp(alpha, at.p_top, x)
    p = at.p_top if charge.accounting == "visible" else np.where(at.p_top > 0, 1.0, 0.0)
    return visible_rdp(p, alpha * x[..., None] / 2, [alpha])[..., 0]


def eps(
    params: Params,
    u: Array,
    tau: Array = 1,
    scheme: Scheme = IDLE,
    *,
    alpha: float | None = None,
    **charging: Any,
) -> Array:
    """RDP after tau rounds at load u: tau times that of one round. `charging`: as `make_charge` takes it.

    >>> round(float(eps(Params(d=10_000), 0.4)), 1)
    59.3
    """
    charge = make_charge(**charging)
    validate.whole("tau", tau)
    return tau * eps_round(params, stats(params, u, scheme), charge, alpha)


class Realised(NamedTuple):
    """What drawn rounds cost: valid as it stands, since channels do not depend on the data."""

    largest: float  # over clients
    mean: float
    per_client: Array  # (K,)


def realised(params: Params, rho: float, drawn: Draw, charge: Charge = VISIBLE, alpha: float | None = None) -> Realised:
    """Client k pays alpha Delta^2 / (2 s_t^2) for each round t that it took part in."""
    alpha = params.alpha if alpha is None else alpha
    sensitivity2 = (4.0 if charge.adjacency == "replace" else 1.0) * rho * params.W**2
    s2 = drawn.s2 if charge.trust_receiver_noise else drawn.s2 - params.sz2
    with np.errstate(divide="ignore"):
        cost = alpha * sensitivity2 / (2 * s2)
    paid = np.where(drawn.good, cost[:, None], 0.0).sum(0)
    return Realised(float(paid.max()), float(paid.mean()), paid)


class EpsDelta(NamedTuple):
    """(eps, delta) after all rounds."""

    eps: float  # from RDP, best order
    order: float
    delta: float
    eps_tight: (
        float  # by the privacy loss distribution, exact for `none` and `visible`; NaN for `paper`, which has none
    )


def eps_delta(
    params: Params,
    u: float,
    tau: int,
    delta: float,
    scheme: Scheme = IDLE,
    charge: Charge = VISIBLE,
    orders: Array = ORDERS,
) -> EpsDelta:
    """(eps, delta) of tau rounds at load u, minimised over Renyi orders (CDPB E23).

    >>> round(eps_delta(Params(), 0.4, 100, 1e-5).eps, 2)
    2.85
    """
    check_charge(charge)
    validate.whole("tau", tau)
    at = stats(params, u, scheme)
    if charge.accounting == "paper":
        orders = np.unique(np.ceil(np.asarray(orders)))  # Theorem 1 is stated for whole orders
    rdp = np.array([tau * float(eps_round(params, at, charge, float(order))) for order in orders])
    best = rdp_to_eps(rdp, delta, orders, warn=False)
    return EpsDelta(float(best.eps), float(best.order), delta, _tight(params, at, tau, delta, charge))


def _tight(params: Params, at: Stats, tau: int, delta: float, charge: Charge) -> float:
    """eps without the detour over RDP, where the mechanism has one."""
    x, p = float(inv_z2(params, at, charge)), float(at.p_top)
    if not charge.repaired:
        return float("nan")
    if not 0 < x < np.inf:
        return 0.0 if x == 0 or p == 0 else float("inf")
    seen = visible_eps(1.0 if charge.accounting == "none" else p, x**-0.5, tau, delta)
    if charge.accounting != "hidden":
        return seen
    try:
        return min(seen, pld_eps(np.full(tau, x**-0.5), p, delta, charge.adjacency))
    except InputError:  # too little noise for a grid of losses; who sees participation sees more
        return seen


class Loss(NamedTuple):
    """What a design costs under one accountant."""

    eps1: float  # RDP of one round, order alpha
    eps: float  # of all rounds
    dp: EpsDelta


def losses(
    params: Params, u: float, tau: int, delta: float, scheme: Scheme = IDLE, charge: Charge = VISIBLE
) -> dict[str, Loss]:
    """The same design under every accountant, with the adjacency and the trust of `charge`."""
    at, found = stats(params, u, scheme), {}
    for name in ACCOUNTINGS:
        one = charge._replace(accounting=name, assume_hidden=True)
        if name == "paper" and params.alpha != round(params.alpha):
            continue  # Theorem 1 is stated for whole orders
        eps1 = float(eps_round(params, at, one))
        found[name] = Loss(eps1, tau * eps1, eps_delta(params, u, tau, delta, scheme, one))
    return found
