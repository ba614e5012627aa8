"""One non-coherent uplink for all: two bins per coordinate, random phases, energies. 2 D channel uses.

Client k has one gain per round. In coordinate d it sends tx_k u_kd q_kd in the bin of the sign of x_kd, with u the root
of abs(x) (energies carry the message) or 1 (votes), and q a random phase of its own (QPSK). The server measures

    e+-_d = abs( sum_{k on +-} gain_k tx_k u_kd q_kd + n_d )^2,   Re n, Im n ~ N(0, v0)

and takes (e+ - e-) / rx_scale, or its sign at norm G. Bins are simulated as they are, phase by phase; the law (G1) of
`energies`, which needs coordinates that fade independently, is not used.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from otafl.core.arrays import Array
from otafl.core.draws import in_a_row
from otafl.core.messages import per_client
from otafl.core.plan import Deployment, Events, Link, Message, Plan, Trace
from otafl.core.uplink import ANALOG, FLOAT32_SLACK, Uplink
from otafl.privacy.events import events
from otafl.systems.apart import keep_apart, keys_for
from otafl.systems.noncoherent.energies import flips

REMARK = "non-coherent: channels and phases are taken as known to the adversary; neither fading nor votes are credited"


class Arriving(NamedTuple):
    """What the bins are made of, over the root of rx_scale."""

    real: Array  # (K,) float32, of gain_k tx_k
    imag: Array
    noise_std: Array  # () of each part


def differences(bound: float, dim: int) -> Uplink:
    """Energies carry the messages: L1 norms cost energy, and changes are charged by theirs (G3)."""

    def lowered(plan: Plan, gain: Array, deployment: Deployment) -> Link:
        """Weights are abs(gain tx)^2 / rx_scale; the noise is that of messages at the bound, evenly spread, half on
        either side: a design value, since this noise depends on the messages."""
        weight = np.abs(_received(plan, gain)) ** 2 / plan.rx_scale[..., None]
        side = 2 * deployment.noise_var / plan.rx_scale + weight.sum(-1) * bound / np.sqrt(dim) / 2
        return Link(weight, plan.max_norm, np.sqrt(2) * side, plan.live, _arriving(plan, gain, deployment))

    def decode(total: Any, link: Link, key: Array) -> tuple[Any, Array]:
        return _energies(total, link, key, lambda leaf: jnp.sqrt(jnp.abs(leaf))), jnp.zeros((), bool)

    def release(plans: Plan, trace: Trace, deployment: Deployment, message: Message, colluders: Array) -> Events:
        root = np.sqrt(np.sqrt(dim) * np.asarray(message.sensitivity, float))  # norm(u - u')^2 <= norm1(x - x')
        return events(plans, trace, deployment, message._replace(sensitivity=root))

    def energy(plan: Plan, norms: Array, sent: Array, dim: int) -> Array:
        """At most: norm1(x) <= sqrt(D) norm(x)."""
        return np.asarray(np.where(sent, np.abs(plan.tx) ** 2 * np.sqrt(dim) * np.asarray(norms, float), 0.0))

    return _uplink("energy differences", lowered, decode, release, energy)


def votes(bound: float, dim: int) -> Uplink:
    """A bin is a vote, and the louder bin wins."""
    unit = bound / np.sqrt(dim)
    sign = np.float32(unit * (1 - FLOAT32_SLACK))

    def lowered(plan: Plan, gain: Array, deployment: Deployment) -> Link:
        """Weights are those of the mean decision, (m+ - m-)/(m+ + m-), for votes at the norm of the bound."""
        received = np.abs(_received(plan, gain)) ** 2
        weight = received / (4 * deployment.noise_var + received.sum(-1, keepdims=True))
        noise = np.full(plan.rx_scale.shape, unit)
        return Link(weight, plan.max_norm, noise, plan.live, _arriving(plan, gain, deployment))

    def decode(total: Any, link: Link, key: Array) -> tuple[Any, Array]:
        apart = _energies(total, link, key, lambda leaf: (leaf != 0).astype(leaf.dtype))
        return jax.tree.map(lambda leaf: sign * jnp.sign(leaf), apart), jnp.zeros((), bool)

    def release(plans: Plan, trace: Trace, deployment: Deployment, message: Message, colluders: Array) -> Events:
        moved = np.sqrt(flips(dim, message.unit, message.adjacency))
        return events(plans, trace, deployment, message._replace(sensitivity=np.full(len(deployment.weights), moved)))

    def energy(plan: Plan, norms: Array, sent: Array, dim: int) -> Array:
        return np.asarray(np.where(sent, np.abs(plan.tx) ** 2 * dim, 0.0))

    return _uplink("energy votes", lowered, decode, release, energy)


def _uplink(name: str, lowered: Any, decode: Any, release: Any, energy: Any) -> Uplink:
    return ANALOG._replace(
        name=name, lower=lowered, combine=keep_apart, decode=decode, release=release, energy=energy, uses=_uses,
        remarks=(REMARK,),
    )  # fmt: skip


def _uses(plan: Plan, trace: Trace, deployment: Deployment) -> Array:
    return np.full(np.shape(plan.live), 2.0 * deployment.dim)


def _received(plan: Plan, gain: Array) -> Array:
    return np.where(plan.max_norm >= 0, gain * plan.tx, 0)


def _arriving(plan: Plan, gain: Array, deployment: Deployment) -> Arriving:
    """Of order one: energies in joules would leave float32."""
    received = _received(plan, gain) / np.sqrt(plan.rx_scale)[..., None]
    noise = np.sqrt(deployment.noise_var / plan.rx_scale)
    return Arriving(received.real.astype(np.float32), received.imag.astype(np.float32), noise.astype(np.float32))


def _energies(total: Any, link: Link, key: Array, amplitude: Any) -> Any:
    """e+ - e- of every coordinate, leaves (K, ...) -> (...)."""
    leaves, tree = jax.tree.flatten(total)
    found = [_one(leaf, link.extra, own, amplitude) for leaf, own in zip(leaves, keys_for(key, leaves))]
    return jax.tree.unflatten(tree, found)


def _one(leaf: Array, arriving: Arriving, key: Array, amplitude: Any) -> Array:
    phase_key, noise_key = jax.random.split(key)
    bits = in_a_row(jax.random.bits, phase_key, leaf.shape, jnp.uint8)
    half = np.float32(np.sqrt(0.5))
    cosine = jnp.where(bits & 1, half, -half)
    sine = jnp.where(bits & 2, half, -half)
    size = amplitude(leaf)
    re, im = (per_client(part, leaf) for part in (arriving.real, arriving.imag))
    real, imag = size * (re * cosine - im * sine), size * (re * sine + im * cosine)
    noise = arriving.noise_std * in_a_row(jax.random.normal, noise_key, (4, *leaf.shape[1:]), jnp.float32)
    plus = leaf > 0
    parts = [jnp.sum(jnp.where(own, part, 0), axis=0) for own in (plus, ~plus) for part in (real, imag)]
    heard = [(part + n) ** 2 for part, n in zip(parts, noise)]
    return heard[0] + heard[1] - heard[2] - heard[3]
