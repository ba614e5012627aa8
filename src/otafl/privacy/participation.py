"""What random participation may save, by what the adversary sees. Host, float64. CDPB section 3

- `none`: every live round is charged as if the client had sent. Always valid; the default.
- `realised`: only rounds in which the plan let the client send. Channels and coins carry no data, so conditioning on
  them is valid; silence that looks at the message counts as sending (`possible` does not see it).
- `visible`: the adversary sees who sends, and we average over it: log(1 - p + p e^{(alpha-1) r}) / (alpha-1).
- `hidden`: the adversary does not see it: a Poisson-sampled Gaussian with rate p.

`visible` and `hidden` plug realised noise into an average over channels: they are design values, not certificates
(CDPB E13b), and `hidden` fails where energy or pilots give participation away (CDPB E3).
"""

import numpy as np
import scipy

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.core.plan import Events, Message, namespace
from otafl.privacy import gaussian, moments
from otafl.privacy.events import inverse_square
from otafl.privacy.rdp import ORDERS, sampled_gaussian_rdp, total_rdp

ACCOUNTINGS = ("none", "realised", "visible", "hidden")
CERTIFIED = frozenset({"none", "realised"})
DESIGN = "ε averages over who takes part, a design value that guarantees nothing"  # said of the others


def certified(accounting: str) -> str:
    """The accounting itself, or "none" in the place of one that is no certificate: every round is then charged in full.

    >>> certified("realised"), certified("hidden")
    ('realised', 'none')
    """
    return accounting if accounting in CERTIFIED else "none"


def charged(events: Events, accounting: str = "none", colluders: Array = None) -> Array:
    """1/z^2 that is charged, (..., T, K), for the accountings that leave every round a plain Gaussian."""
    validate.one_of("accounting", accounting, sorted(CERTIFIED))
    square = inverse_square(events, colluders)
    return namespace(square).where(events.possible, square, 0.0) if accounting == "realised" else square


def credits_coins(released: Events, message: Message) -> bool:
    """Whether less is charged because a client may have stayed silent by its private coin."""
    return bool(np.any(released.rate < message.rate))


def run_rdp(
    events: Events,
    accounting: str = "none",
    orders: Array = ORDERS,
    colluders: Array = None,
    adjacency: str = "add-remove",
) -> Array:
    """Total RDP of each client over the run, (..., K, orders)."""
    validate.one_of("accounting", accounting, ACCOUNTINGS)
    if accounting in CERTIFIED:
        return total_rdp(events.rate, _multiplier(charged(events, accounting, colluders)), orders)
    z = _multiplier(inverse_square(events, colluders))
    if accounting == "visible":

        def seen(k: int, p: Array, z: Array) -> Array:
            return visible_rdp(p, sampled_gaussian_rdp(events.rate[k], z, orders), orders)

        return _sum_rounds(events, z, orders, seen)
    if np.any(events.rate < 1):
        raise InputError(
            "accounting='hidden' with record sampling (rate < 1) has no known bound: a client's other records give its "
            "participation away; use accounting='visible' or 'realised'"
        )
    if adjacency == "replace":
        return _sum_rounds(events, z, orders, lambda k, p, z: hidden_replace_rdp(p, z, orders))
    return _sum_rounds(events, z, orders, lambda k, p, z: sampled_gaussian_rdp(p, z, orders))


def visible_rdp(send_prob: Array, rdp: Array, orders: Array = ORDERS) -> Array:
    """RDP of a round that happens with probability p, seen by the adversary; `rdp` (..., orders) if it happens.

    >>> from otafl.privacy.rdp import sampled_gaussian_rdp
    >>> float(visible_rdp(0.5, sampled_gaussian_rdp(1.0, 3.0, [3]), [3])[0].round(7))
    0.0902459
    """
    validate.in_closed("send_prob", send_prob, 0, 1)
    orders = np.asarray(orders, np.float64)
    prob = np.asarray(send_prob, np.float64)[..., None]
    moment = (orders - 1) * np.asarray(rdp, np.float64)
    return np.where(prob == 0, 0.0, moments.log_mixture(prob, moment)) / (orders - 1)


def visible_eps(send_prob: float, noise_multiplier: float, rounds: int, delta: float) -> float:
    """Exact eps at delta of equal rounds, each of which happens with probability p and is seen to.

    Who sent is independent of the data, so the curve is the average over the number J ~ Bin(rounds, p) of rounds that
    happened: delta(eps) = E[delta_G(eps; sqrt(J) / z)], J Gaussian rounds being one. J is cut where its tails hold
    1e-12 delta, on the safe side.

    >>> round(visible_eps(1.0, 2.0, 4, 1e-5), 6) == round(float(gaussian.eps(1.0, 1e-5)), 6)
    True
    """
    validate.in_closed("send_prob", send_prob, 0, 1)
    validate.whole("rounds", rounds)
    validate.in_open("delta", delta, 0, 1)
    if send_prob == 0 or noise_multiplier == np.inf:
        return 0.0
    from scipy import stats  # slow to import, and few ask

    count = stats.binom(int(rounds), float(send_prob))
    tail = 1e-12 * delta
    low, high = int(count.ppf(tail)), int(count.isf(tail))
    happened = np.arange(low, high + 1)
    log_prob = count.logpmf(happened)
    log_prob[0] = count.logcdf(low)  # fewer rounds cost no more
    if not noise_multiplier > 0:
        return float("inf") if count.sf(0) > delta else 0.0
    mu, log_target = np.sqrt(happened) / noise_multiplier, np.log(delta - tail)

    def below(eps: float) -> bool:
        return bool(scipy.special.logsumexp(log_prob + gaussian.log_delta(eps, mu)) > log_target)

    if not below(0.0):
        return 0.0
    left, right = 0.0, float(gaussian.eps(mu[-1], delta - tail))
    while right - left > 1e-12 * right:
        middle = (left + right) / 2
        left, right = (middle, right) if below(middle) else (left, middle)
    return right


def hidden_replace_rdp(send_prob: Array, noise_multiplier: Array, orders: Array = ORDERS) -> Array:
    """RDP of a hidden round under replacement, (..., orders): the antipodal pair, taken as the worst case.

    `noise_multiplier` is relative to the full replacement sensitivity, twice the norm of one contribution.

    >>> float(hidden_replace_rdp(0.5, 1.5, [3])[0].round(6))
    0.162203
    """
    prob, z = np.broadcast_arrays(np.asarray(send_prob, np.float64), np.asarray(noise_multiplier, np.float64))
    validate.in_closed("send_prob", prob, 0, 1)
    orders = np.asarray(orders, np.float64)
    out = np.zeros((*prob.shape, orders.size))
    for index in np.ndindex(prob.shape):
        p, multiplier = float(prob[index]), float(z[index])
        if p == 0 or np.isinf(multiplier):
            continue
        if multiplier == 0:
            out[index] = np.inf
        elif p == 1:
            out[index] = orders / (2 * multiplier**2)
        else:
            out[index] = moments.antipodal(p, 0.5 / multiplier, orders) / (orders - 1)
    return out


def _sum_rounds(events: Events, z: Array, orders: Array, rdp_of: Array) -> Array:
    """Add `rdp_of(client, send_prob, z)` over rounds; equal rounds are computed once."""
    *lead, _, clients = z.shape
    total = np.zeros((*lead, clients, len(orders)))
    for index in np.ndindex(*lead, clients):
        column = (*index[:-1], slice(None), index[-1])
        pairs, count = np.unique(np.stack([events.send_prob[column], z[column]]), axis=1, return_counts=True)
        rdp = rdp_of(index[-1], pairs[0], pairs[1])
        total[index] = np.sum(count[:, None] * rdp, 0)
    return total


def _multiplier(square: Array) -> Array:
    with np.errstate(divide="ignore"):
        return 1 / np.sqrt(square)
