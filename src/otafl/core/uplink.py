"""The air: what a plan becomes once the channel has acted on it. Host NumPy or JAX, float64.

An `Uplink` is how messages get from the clients to the server. ANALOG is the sum of `plan.py`. PERFECT is the same sum
over a channel of gain one with no receiver noise and no energy limit (`ideal`), so ideal baselines need no second
mechanism. A scheme may bring its own (`crypto.uplink`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from otafl.core.arrays import Array, Pytree
from otafl.core.draws import in_a_row
from otafl.core.plan import Deployment, Events, Link, Message, Plan, Policy, Trace

Release = Callable[[Plan, Trace, Deployment, Message, Array], Events]

# Float32 sums of squares are good to about 1e-6; bounds are enforced this much below their declared value.
FLOAT32_SLACK = 4e-6
FAINTEST = float(np.finfo(np.float32).tiny)  # below, ever fewer digits are left, and then none


def product_slack() -> float:
    """The same where bounded messages are added up by a product of matrices.

    An accelerator rounds both factors, a GPU to 11 bits (TF32), others to 8 (bfloat16): a sample's part of the sum may
    come out that much longer than the sample.
    """
    rounding = {"cpu": 0.0, "gpu": 2.0**-11}.get(jax.default_backend(), 2.0**-8)
    return FLOAT32_SLACK + (1 + rounding) ** 2 - 1


def lower(plan: Plan, gain: Array, deployment: Deployment) -> Link:
    """Weights and noise that the learning sees. Leading axes of `plan` and `gain` agree; clients are the last axis."""
    xp: Any = jnp if isinstance(gain, jax.Array) else np
    allowed = plan.max_norm >= 0
    received = xp.real(gain * xp.where(allowed, plan.tx, 0))
    variance = deployment.noise_var + xp.sum(xp.real(gain * plan.noise) ** 2, axis=-1)
    # A silent round may be planned as rx_scale = inf: the update is then exactly zero.
    return Link(
        weight=received / plan.rx_scale[..., None],
        max_norm=plan.max_norm,
        noise_std=xp.sqrt(variance) / plan.rx_scale,
        live=plan.live,
    )


def to_float32(link: Link) -> Link:
    """Cast for learning; the largest norm is rounded down so that a float32 norm never passes a float64 limit."""
    return link._replace(
        weight=link.weight.astype(np.float32),
        max_norm=(link.max_norm * (1 - FLOAT32_SLACK)).astype(np.float32),
        noise_std=link.noise_std.astype(np.float32),
    )


def ideal(trace: Trace, deployment: Deployment) -> tuple[Trace, Deployment]:
    """The same site with an error-free uplink: unit gains, no receiver noise, no energy limit."""
    one = np.ones_like(trace.rms_gain)
    perfect = Trace(one + 0j, one + 0j, one, one, one, one, trace.coin)
    unlimited = np.full_like(np.asarray(deployment.energy, float), np.inf)
    exact = deployment._replace(gain_error=0.0, phase_error=0.0, least_gain=0.0, miss_prob=0.0)
    return perfect, exact._replace(energy=unlimited, noise_var=0.0, trusted_noise_var=0.0)


class Unformed(NamedTuple):
    """Messages of n clients that need not be formed one by one where they are merely added up."""

    mix: Callable[[Array], Pytree]  # weights (n,) -> sum_k weights_k messages_k; weight 0 leaves out whatever it holds
    form: Callable[[], Pytree]  # all of them after all, leading axis n


def weighted_sum(weights: Array, messages: Pytree | Unformed) -> Pytree:
    """The sum that the air forms: sum_k weights_k messages_k, leaf by leaf, no factor rounded on any machine."""
    if isinstance(messages, Unformed):
        return messages.mix(weights)
    exact = jax.lax.Precision.HIGHEST
    return jax.tree.map(lambda leaf: jnp.tensordot(weights, leaf, axes=1, precision=exact), messages)


def superpose(link: Link, ids: Array, sent: Array, factor: Array, messages: Pytree) -> Pytree:
    """What some clients contribute: silent ones nothing, the others their message times clip factor and weight."""
    weights = link.weight[ids] * factor
    # What is left of a huge message at a tiny weight is lost: rounded to a few digits, it may be louder than charged.
    whole = sent & (jnp.abs(weights) >= np.float32(FAINTEST))
    return weighted_sum(jnp.where(whole, weights, np.float32(0)), messages)


def add_noise(key: Array, total: Pytree, std: Array) -> Pytree:
    """Receiver and artificial noise: one real draw per coordinate and round, never reused."""
    leaves, tree = jax.tree.flatten(total)
    keys = jax.random.split(key, len(leaves))
    noisy = [leaf + std * in_a_row(jax.random.normal, k, leaf.shape, jnp.float32) for leaf, k in zip(leaves, keys)]
    return jax.tree.unflatten(tree, noisy)


def add_leaves(total: Pytree, part: Pytree) -> Pytree:
    """Contributions of two groups of clients add up in the air."""
    return jax.tree.map(jnp.add, total, part)


def hear(total: Pytree, link: Link, key: Array) -> tuple[Pytree, Array]:
    """The sum under all noise; an analog server has no way to tell a failed round."""
    return add_noise(key, total, link.noise_std), jnp.zeros((), bool)


def unchanged(trace: Trace, deployment: Deployment) -> tuple[Trace, Deployment]:
    return trace, deployment


def transmit_energy(plan: Plan, norms: Array, sent: Array, dim: int) -> Array:
    """Energy of the whole vector each client radiated, J, (..., K): data where sent, artificial noise always."""
    data = np.where(sent, np.abs(plan.tx) ** 2 * np.asarray(norms, float) ** 2, 0.0)
    return data + dim * np.abs(plan.noise) ** 2


def one_per_number(plan: Plan, trace: Trace, deployment: Deployment) -> Array:
    """Channel uses of every round, (..., T): the whole vector once, one real number per use."""
    return np.full(np.shape(plan.live), float(deployment.dim))


class Uplink(NamedTuple):
    """How messages travel. `site` and `lower` run before the rounds, on the host; the others inside the compiled round.

    site(trace, deployment)       the radio as this uplink meets it
    lower(plan, gain, deployment) -> Link, with whatever `combine` and `decode` need besides in `extra`
    combine(link, ids, sent, factor, messages) -> what these clients contribute; `add` joins two contributions
    decode(total, link, key) -> (received, refused): what the server uses, and whether it found that decoding failed
    release(plans, trace, deployment, message, colluders) -> Events: what an observer at the server gets of each client,
    worst case; None means `privacy.events`, one real amplitude per client under one variance. An uplink whose noise is
    not one scalar whitens: amp = 1 / (z sensitivity), receiver_var = 1, artificial_var = 0; accountants need no more.
    It leaves out the noise of `colluders` (K,) bool itself.
    energy(plan, norms, sent, dim) -> J, (..., K): what messages of these norms cost, or at most cost, to send
    uses(plan, trace, deployment) -> (..., T) channel uses of the rounds
    """

    name: str
    site: Callable[[Trace, Deployment], tuple[Trace, Deployment]]
    lower: Callable[[Plan, Array, Deployment], Link]
    combine: Callable[[Link, Array, Array, Array, Pytree], Pytree]
    add: Callable[[Pytree, Pytree], Pytree]
    decode: Callable[[Pytree, Link, Array], tuple[Pytree, Array]]
    remarks: tuple[str, ...] = ()  # what a privacy card must say about it, outside the guarantee
    assumed: tuple[str, ...] = ()  # what the guarantee rests on, besides what holds for every uplink
    alarm: str = ""  # what must be said aloud wherever results are shown; empty for most
    release: Release | None = None
    energy: Callable[[Plan, Array, Array, int], Array] = transmit_energy
    uses: Callable[[Plan, Trace, Deployment], Array] = one_per_number
    radio: bool = False  # whether energy and channel uses are those of a radio; ideal and encrypted ones have none here
    bits: Callable[[int], float] | None = None  # of so many numbers, each device and round; None: symbols on the air
    trusted: str = ""  # whose noise its charge counts, where whitened events cannot tell
    outside: bool = False  # a scheme from outside otafl brought it, be it pieced together of otafl's parts


def float_bits(dim: int) -> float:
    """Numbers as they are computed."""
    return 32.0 * dim


ANALOG = Uplink("analog", unchanged, lower, superpose, add_leaves, hear, radio=True)
PERFECT = ANALOG._replace(name="perfect", site=ideal, radio=False, bits=float_bits)


def is_analog(uplink: Uplink) -> bool:
    """Whether messages add up and are heard as those of `ANALOG`, whatever else the uplink does otherwise."""
    return uplink.combine is ANALOG.combine and uplink.decode is ANALOG.decode


def uplink_of(policy: Policy) -> Uplink:
    """The uplink that a policy names or brings."""
    return {"analog": ANALOG, "perfect": PERFECT}[policy.uplink] if isinstance(policy.uplink, str) else policy.uplink


def received_snr(plan: Plan, gain: Array, norms: Array, sent: Array, deployment: Deployment) -> Array:
    """Received signal energy over received noise energy, linear, per round: messages counted as uncorrelated."""
    signal = np.where(sent, np.real(gain * plan.tx) * np.asarray(norms, float), 0.0)
    variance = deployment.noise_var + np.sum(np.real(gain * plan.noise) ** 2, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sum(signal**2, axis=-1) / (deployment.dim * variance)
