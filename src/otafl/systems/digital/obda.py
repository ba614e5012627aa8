"""OBDA (Zhu et al.): every device sends the signs of its gradient at once, and the server takes the majority's.

    x_k -> s_k = sign(x_k);   y = c sum_k s_k + n;   update = sign(y) G / sqrt(D)

Devices invert their channel and are silent where that costs too much. One vote each, whatever the weights. An entry
that is exactly zero abstains. In plans, messages are the votes at the norm of the clients' bound, s_k G / sqrt(D), so
that amplitudes, energies and noise mean what they mean elsewhere; the signs arrive with c = amplitude G / sqrt(D).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.plan import (
    Context,
    Deployment,
    Events,
    Link,
    Message,
    Obs,
    Plan,
    Policy,
    Trace,
    check_bound,
    silent_by_bound,
    stateless,
)
from otafl.core.uplink import ANALOG, FLOAT32_SLACK, Uplink, add_noise, lower, weighted_sum
from otafl.privacy.events import events
from otafl.systems.digital.rates import energy_at, uses_of
from otafl.systems.digital.votes import vote_sensitivity

REMARK = "votes: the server is charged for the sum it receives, not for the signs it keeps of it"


@dataclass(frozen=True)
class Config:
    """`vote` is c over the receiver's noise: how loud one client's sign is, per coordinate."""

    vote: float = 0.1


class Info(NamedTuple):
    """Per round."""

    voters: Array  # clients that vote


def obda(config: Config, deployment: Deployment, message: Message, context: Context) -> Policy:
    """Receiver noise is the only privacy noise. Sensitivity is that of all signs, at record level too."""
    validate.positive("vote", config.vote)
    validate.positive("noise_var", deployment.noise_var)
    check_bound(message)
    unit = message.bound / np.sqrt(message.dim)
    amplitude = config.vote * np.sqrt(deployment.noise_var) / unit  # of a message of norm `bound`
    energy = np.asarray(deployment.energy, float)

    def step(state: tuple[()], obs: Obs) -> tuple[tuple[()], Plan, Info]:
        faded = obs.estimate == 0
        tx = np.where(faded, 0, amplitude / np.where(faded, 1, obs.estimate))
        max_norm = np.where(faded, -1.0, silent_by_bound(tx, energy, message.bound))
        send_prob = np.exp(-((amplitude * message.bound / np.sqrt(energy) / obs.rms) ** 2))  # Rayleigh
        shape = tx.shape[:-1]
        scale = np.full(shape, np.sqrt(deployment.noise_var) / unit)  # a sign that is all noise has this deviation
        plan = Plan(tx, np.zeros_like(tx), max_norm, scale, send_prob, np.ones(shape, bool))
        return state, plan, Info(np.sum(max_norm >= 0, axis=-1))

    uplink = votes(message.bound, message.dim)
    return Policy("obda", stateless, step, loop="open", csi="own", gate="bound", uplink=uplink)


def votes(bound: float, dim: int) -> Uplink:
    """The analog sum of signs of norm `bound`, of which the server keeps the sign."""
    unit = bound / np.sqrt(dim)
    sign = np.float32(unit * (1 - FLOAT32_SLACK))  # rounded down: its norm is charged as `bound`

    def lowered(plan: Plan, gain: Array, deployment: Deployment) -> Link:
        """`extra` has the amplitudes. The weights are those of the update: the mean of sign(y) is sqrt(2/pi) of y where
        noise prevails, and no vote moves it further than its own norm."""
        link = lower(plan, gain, deployment)
        linear = np.sqrt(2 / np.pi) * link.weight
        most = np.maximum(1.0, np.sum(np.abs(linear), axis=-1, keepdims=True))
        return link._replace(weight=linear / most, extra=link.weight.astype(np.float32))

    def combine(link: Link, ids: Array, sent: Array, factor: Array, messages: Any) -> Any:
        signs = jax.tree.map(lambda leaf: sign * jnp.sign(leaf), messages)
        return weighted_sum(jnp.where(sent, link.extra[ids], np.float32(0)), signs)

    def decode(total: Any, link: Link, key: Array) -> tuple[Any, Array]:
        heard = add_noise(key, total, link.noise_std)
        return jax.tree.map(lambda leaf: sign * jnp.sign(leaf), heard), jnp.zeros((), bool)

    def release(plans: Plan, trace: Trace, deployment: Deployment, message: Message, colluders: Array) -> Events:
        flip = unit * vote_sensitivity(dim, message.unit, message.adjacency)
        return events(plans, trace, deployment, message._replace(sensitivity=np.full(len(deployment.weights), flip)))

    def uses(plan: Plan, trace: Trace, deployment: Deployment) -> Array:
        return np.full(np.shape(plan.live), float(uses_of("votes", dim, len(deployment.weights))))

    return ANALOG._replace(
        name="votes", lower=lowered, combine=combine, decode=decode, release=release, uses=uses,
        energy=energy_at(bound), remarks=(REMARK,),
    )  # fmt: skip
