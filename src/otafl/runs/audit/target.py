"""What is attacked: one scheme whose plan is fixed, who of its clients are canaries, and a pair of worlds. Host."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from otafl.core.arrays import Array
from otafl.core.messages import Clients, Seed
from otafl.core.plan import Events, Link, Message
from otafl.core.uplink import ANALOG, Uplink
from otafl.privacy import participation
from otafl.privacy.events import effective_noise_var, join
from otafl.runs.audit import canaries

MOST = 16  # canaries at a time
MOST_NUMBERS = 2**26  # in all their directions
MOST_PLAYED = 1024  # clients; of more, canaries alone are played where a plain sum is heard


class Records(NamedTuple):
    """How a record gets into its client's message, where single records are clipped."""

    clip_norm: float
    poisson: bool


class Target(NamedTuple):
    """One scheme as it is attacked: what is played in every round, and what was charged for it."""

    label: str
    clients: Clients  # for `records`: those of the model `canaries.gradient_is_x(width)`
    template: Any  # shapes of one message
    uplink: Uplink
    link: Link  # (T, K) float64, live rounds alone
    message: Message
    events: Events  # (T, K) of the same rounds
    seed: Seed  # who holds how many records
    eps: Array  # (K,) charged, by the run's accountant
    delta: float
    accounting: str = "none"
    records: Records | None = None  # None: whole messages are clipped
    gain: Array = None  # (T, R, K) and (T, R, R): what an observer of everything gets; None: the server's sum
    noise: Array = None
    notes: tuple[str, ...] = ()
    ids: Array = None  # (K,) numbers of the clients, where others are left out


class Trial(NamedTuple):
    """Two worlds and how to tell them apart."""

    pattern: str
    stage: canaries.Stage
    absent: canaries.World
    present: canaries.World
    score: Callable[[Array], Array]  # (runs, T, R, m) -> (runs, m)
    normal: Array  # (m,) bool: scores are normal


def width_of(target: Target) -> int:
    """D: real numbers in one message."""
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(target.template))


def adds_noise(target: Target) -> bool:
    """Whether what is received is the sum under Gaussian noise; votes, energies and rings decode to something else."""
    return target.gain is not None or target.uplink.decode is ANALOG.decode


def squares(target: Target) -> Array:
    """(T, K) 1/z^2 that was charged."""
    return participation.charged(target.events, participation.certified(target.accounting))


def heard(target: Target) -> tuple[Array, Array]:
    """(T, R, K) what a unit message becomes in the R numbers per coordinate that the observer gets, and the covariance
    (T, R, R) of their noise."""
    if target.gain is None:
        return target.link.weight[:, None], (target.link.noise_std**2)[:, None, None]
    return target.gain, target.noise


def loudness(target: Target) -> tuple[Array, Array]:
    """(T, K) what a unit message becomes in the best scalar that the observer can form, and its variance (T,).

    With R numbers per coordinate that scalar is g' C^-1 y / sqrt(g' C^-1 g), of variance one (`filtered`).
    """
    if target.gain is None:
        return target.link.weight, target.link.noise_std**2
    whitened = np.einsum("trk,trk->tk", target.gain, _matched(target))
    return np.sqrt(whitened), np.ones(len(whitened))


def filtered(target: Target, seen: Array, who: Array) -> Array:
    """(runs, T, m) that scalar of each canary, from what was received (runs, T, R, m)."""
    if target.gain is None:
        return seen[:, :, 0]
    size = loudness(target)[0][:, who]
    score = np.einsum("ntrm,trm->ntm", seen, _matched(target)[..., who])
    return score / np.where(size > 0, size, 1.0)


def _matched(target: Target) -> Array:
    """C^-1 g, (T, R, K); zero where nothing arrives."""
    quiet = ~np.any(target.gain, axis=(1, 2))
    safe = np.where(quiet[:, None, None], np.eye(target.noise.shape[-1]), target.noise)
    return np.linalg.solve(safe, target.gain)


def totals(target: Target, before: tuple[Array, Array] = (0.0, 0.0)) -> tuple[Array, Array]:
    """(K,) 1/z^2 that was charged and that was heard, after all rounds: one by one, so that blocks do not matter."""
    charged, heard = before
    size, variance = loudness(target)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = size**2 / variance[:, None]
    for paid, loud in zip(squares(target), np.where(np.isnan(ratio), 0.0, ratio)):
        charged, heard = charged + paid, heard + loud
    return charged, heard


def chosen(charged: Array, heard: Array, width: int) -> np.ndarray:
    """Clients that are attacked, of `totals`: all if few, else the dearest and those that are heard loudest for it."""
    count = int(min(MOST, len(charged), max(1, min(width - 1, MOST_NUMBERS // width))))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(heard > 0, heard / charged, 0.0)
    order = [*np.argsort(-charged, kind="stable")[: -(-count // 2)], *np.argsort(-ratio, kind="stable")]
    return np.array(list(dict.fromkeys(int(k) for k in order))[:count])


def canaries_do(target: Target) -> bool:
    """Whether canaries alone are played: of very many clients in a plain sum, the others send along one more direction,
    the same in both worlds, and along the canaries' own it tells nothing of them."""
    return target.uplink.combine is ANALOG.combine and adds_noise(target) and len(target.seed.sizes) > MOST_PLAYED


def kept_of(clients: int) -> int:
    """Of how many clients all rounds are kept where rounds go by in blocks."""
    return MOST if clients > MOST_PLAYED else clients


def narrowed(target: Target, who: Array) -> Target:
    """These clients alone, under the noise of all; those of `chosen` are chosen again, in this order."""
    link, events, seed = target.link, target.events, target.seed
    extra = link.extra if target.gain is None else link.extra._replace(weight=link.extra.weight[..., who])
    own = {name: getattr(events, name)[..., who] for name in ("amp", "possible", "send_prob", "rate", "sensitivity")}
    own |= {"artificial_var": np.zeros_like(own["amp"]), "receiver_var": effective_noise_var(events)}
    return target._replace(
        link=link._replace(weight=link.weight[..., who], max_norm=link.max_norm[..., who], extra=extra),
        events=events._replace(**own, leak_angle=0.0),
        seed=seed._replace(rows=seed.rows[who], sizes=seed.sizes[who]),
        gain=None if target.gain is None else target.gain[..., who],
        ids=who,
    )


def joined(parts: Sequence[Target]) -> Target:
    """Blocks of rounds as one."""

    def along(*blocks: Any) -> Any:
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *blocks)

    together = {name: along(*(getattr(part, name) for part in parts)) for name in ("link", "gain", "noise")}
    return parts[0]._replace(**together, events=join([part.events for part in parts]))


def patterns(sends: Array) -> dict[str, Array]:
    """(T, K) signs. Noise that is used again hides a constant sign better, and cancels where the signs add to zero.

    The Thue-Morse sequence adds to zero over each two rounds in a row, and over every second, fourth, ... of them.
    """
    number = np.cumsum(sends, axis=0)
    turns = 1.0 - 2.0 * (np.bitwise_count(np.maximum(number, 1) - 1) % 2)
    odd = (number == number[-1]) & (number[-1] % 2 == 1)  # the last one has no partner
    one = {"constant": np.ones(sends.shape)}
    return one | ({"balanced": np.where(odd, 0.0, turns)} if np.any(number[-1] >= 2) else {})
