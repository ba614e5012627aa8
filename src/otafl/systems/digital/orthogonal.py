"""The digital reference: every device sends its quantised message on its own channel, at capacity, without errors.

    x_k -> q_k = quantise(x_k + noise_k), D bits / log2(1 + SNR_k) channel uses;   update = sum_k p_k q_k

Nothing is superposed, so the server has every message apart: only a device's own noise hides it, and without noise of
its own epsilon is infinite. Power is the analog uplink's, E_k over D channel uses; a message that takes longer takes
more energy, and the round's limit is what that power comes to. See `rates`.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.draws import in_a_row
from otafl.core.plan import Context, Deployment, Events, Link, Message, Obs, Plan, Policy, Trace, check_bound, stateless
from otafl.core.uplink import ANALOG, Uplink, weighted_sum
from otafl.privacy import Budget, calibrate
from otafl.privacy.events import events
from otafl.systems.apart import keep_apart, keys_for
from otafl.systems.digital.rates import channel_uses, energy_at, snr

WIDE = 8.0  # half the quantiser's range, in deviations of a message that is spread evenly, noise included
REMARK = "digital and orthogonal: the server has every message apart, and only a device's own noise hides it"


@dataclass(frozen=True)
class Config:
    """`noise_std` of the noise that a device adds to every number before it quantises; None: for the privacy target."""

    bits: int = 8
    noise_std: float | None = None


class Info(NamedTuple):
    """Per round."""

    uses: Array  # channel uses of all devices
    slowest: Array  # of the device with the worst channel


def own_noise(deployment: Deployment, message: Message, context: Context) -> float:
    """Standard deviation per number at which a device alone meets the target over the horizon; 0 without a target."""
    if not np.isfinite(context.eps):
        return 0.0
    budget = Budget(context.eps, context.delta, context.accountant, adjacency=message.adjacency)
    multiplier = calibrate(budget, context.rounds, message, np.ones(len(deployment.weights)))
    return multiplier * float(np.max(message.sensitivity))


def step_of(bits: int, bound: float, dim: int, noise_std: float) -> float:
    """Distance of two levels of the quantiser."""
    return float(2 * WIDE * np.hypot(bound / np.sqrt(dim), noise_std) / 2**bits)


def orthogonal(config: Config, deployment: Deployment, message: Message, context: Context) -> Policy:
    """Local privacy: noise of the device's own, added before quantising. Devices know their rate."""
    validate.whole("bits", config.bits, 1, 24)
    validate.positive("noise_var", deployment.noise_var)
    check_bound(message)
    if config.noise_std is not None:
        validate.not_negative("noise_std", config.noise_std)
    noise = own_noise(deployment, message, context) if config.noise_std is None else config.noise_std
    energy = np.asarray(deployment.energy, float)

    def step(state: tuple[()], obs: Obs) -> tuple[tuple[()], Plan, Info]:
        found = channel_uses(snr(obs.estimate, energy, message.dim, deployment.noise_var), message.dim, config.bits)
        reached = np.isfinite(found.each)
        spent = np.where(reached, energy * found.each / message.dim, 0.0)
        tx = np.sqrt(spent) / message.bound + 0j
        one = np.ones(tx.shape[:-1])
        plan = Plan(tx, np.full(tx.shape, noise + 0j), np.where(reached, np.inf, -1.0), one, np.ones(tx.shape), one > 0)
        each = np.where(reached, found.each, 0.0)
        return state, plan, Info(each.sum(-1), each.max(-1))

    uplink = slots(config.bits, message.bound, message.dim, noise, energy, deployment.noise_var)
    return Policy("orthogonal", stateless, step, loop="open", csi="own", gate="bound", uplink=uplink)


def slots(bits: int, bound: float, dim: int, noise_std: float, energy: Array, noise_var: float) -> Uplink:
    """Error-free channels of their own for all devices; `energy` (K,) of D channel uses."""
    width, levels = step_of(bits, bound, dim, noise_std), 2**bits

    def site(trace: Trace, deployment: Deployment) -> tuple[Trace, Deployment]:
        """The limit is on power: a round's energy is that of its longest transmission."""
        each = channel_uses(snr(trace.estimate, energy, dim, noise_var), dim, bits).each
        longest = np.max(np.where(np.isfinite(each), each, 0.0), axis=-2)
        return trace, deployment._replace(energy=energy * np.maximum(longest, dim) / dim)

    def lowered(plan: Plan, gain: Array, deployment: Deployment) -> Link:
        allowed = plan.max_norm >= 0
        weight = np.where(allowed, np.broadcast_to(np.asarray(deployment.weights, float), allowed.shape), 0.0)
        variance = np.sum(weight**2, axis=-1) * (noise_std**2 + width**2 / 12)
        return Link(weight, plan.max_norm, np.sqrt(variance), plan.live)

    def decode(total: Any, link: Link, key: Array) -> tuple[Any, Array]:
        leaves, tree = jax.tree.flatten(total)
        read = []
        for leaf, own in zip(leaves, keys_for(key, leaves)):
            noisy = leaf + np.float32(noise_std) * in_a_row(jax.random.normal, own, leaf.shape, jnp.float32)
            level = jnp.clip(jnp.floor(noisy / np.float32(width)), -(levels // 2), (levels - 1) // 2)
            read.append((level + np.float32(0.5)) * np.float32(width))
        silent = jnp.where(link.max_norm >= 0, link.weight, np.float32(0))
        return weighted_sum(silent, jax.tree.unflatten(tree, read)), jnp.zeros((), bool)

    def release(plans: Plan, trace: Trace, deployment: Deployment, message: Message, colluders: Array) -> Events:
        """Each message as it is, under its own device's noise, which is entered in K equal parts because events count
        their sum: against colluders this errs on the safe side."""
        shape = np.shape(plans.tx)
        part = noise_std / np.sqrt(shape[-1])
        apart = plans._replace(tx=np.ones(shape, complex), noise=np.full(shape, part + 0j))
        known = trace._replace(estimate=np.ones(shape, complex))
        alone = deployment._replace(trusted_noise_var=0.0, gain_error=0.0, phase_error=0.0)
        return events(apart, known, alone, message)

    def uses(plan: Plan, trace: Trace, deployment: Deployment) -> Array:
        each = np.abs(plan.tx) ** 2 * bound**2 * dim / energy
        return np.asarray(np.sum(np.where(plan.max_norm >= 0, each, 0.0), axis=-1))

    return ANALOG._replace(
        name="orthogonal", site=site, lower=lowered, combine=keep_apart, decode=decode, release=release,
        energy=energy_at(bound), uses=uses, remarks=(REMARK,),
    )  # fmt: skip
