"""What is attacked: one scheme whose plan is fixed, who of its clients are canaries, and a pair of worlds. Host."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from otafl.core.arrays import Array
from otafl.core.messages import Clients, Seed
from otafl.core.plan import Events, Link, Message
from otafl.core.uplink import ANALOG, Uplink
from otafl.privacy import participation
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


def certified(accounting: str) -> str:
    """Accountings that are no certificates are attacked as if every round had been charged in full."""
    return accounting if accounting in participation.CERTIFIED else "none"


def squares(target: Target) -> Array:
    """(T, K) 1/z^2 that was charged."""
    return participation.charged(target.events, certified(target.accounting))


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


def chosen(target: Target, width: int) -> np.ndarray:
    """Clients that are attacked: all if they are few, else the dearest and those that are heard loudest for it."""
    charged = squares(target).sum(0)
    count = int(min(MOST, len(charged), max(1, min(width - 1, MOST_NUMBERS // width))))
    with np.errstate(divide="ignore", invalid="ignore"):
        size, variance = loudness(target)
        heard = np.nansum(size**2 / variance[:, None], axis=0)
        ratio = np.where(heard > 0, heard / charged, 0.0)
    order = [*np.argsort(-charged, kind="stable")[: -(-count // 2)], *np.argsort(-ratio, kind="stable")]
    return np.array(list(dict.fromkeys(int(k) for k in order))[:count])


class Cast(NamedTuple):
    """The clients that are simulated."""

    ids: Array  # their numbers
    canaries: Array  # where the canaries are among them
    link: Link
    seed: Seed


def cast(target: Target, who: Array) -> Cast:
    """All clients, or canaries alone: the others send along one more direction, the same in both worlds, and along the
    canaries' own a plain sum tells nothing of them."""
    link, seed, count = target.link, target.seed, target.link.weight.shape[-1]
    plain = target.gain is not None or (target.uplink.combine is ANALOG.combine and adds_noise(target))
    if count <= MOST_PLAYED or not plain:
        return Cast(np.arange(count), who, link, seed)
    extra = link.extra if target.gain is None else link.extra._replace(weight=link.extra.weight[..., who])
    link = link._replace(weight=link.weight[..., who], max_norm=link.max_norm[..., who], extra=extra)
    return Cast(who, np.arange(len(who)), link, seed._replace(rows=seed.rows[who], sizes=seed.sizes[who]))


def patterns(sends: Array) -> dict[str, Array]:
    """(T, K) signs. Noise that is used again hides a constant sign better, and cancels where the signs add to zero.

    The Thue-Morse sequence adds to zero over each two rounds in a row, and over every second, fourth, ... of them.
    """
    number = np.cumsum(sends, axis=0)
    turns = 1.0 - 2.0 * (np.bitwise_count(np.maximum(number, 1) - 1) % 2)
    odd = (number == number[-1]) & (number[-1] % 2 == 1)  # the last one has no partner
    one = {"constant": np.ones(sends.shape)}
    return one | ({"balanced": np.where(odd, 0.0, turns)} if np.any(number[-1] >= 2) else {})
