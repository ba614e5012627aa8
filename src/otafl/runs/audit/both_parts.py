"""An observer at the receiver who keeps the imaginary part of what the server hears. JAX inside the round.

Before the real part is taken, client k's message arrives along the complex number g_k = gain_k tx_k and client j's
artificial noise along a_j = gain_j noise_j, one real draw per coordinate each; receiver noise has its trusted variance
in both parts. The two parts of a coordinate are therefore noisy with covariance v I + sum_j a_j a_j'.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from otafl.core.arrays import Array
from otafl.core.plan import Deployment, Link, Plan, Trace
from otafl.core.uplink import ANALOG, Uplink, add_leaves, weighted_sum


class BothLink(NamedTuple):
    """What the imaginary part adds to a link."""

    weight: Array  # (..., 2, K) real and imaginary part of what arrives of a message, over rx_scale
    root: Array  # (..., 2, 2) of the noise's covariance


class Seen(NamedTuple):
    """Both parts, each like a message."""

    real: Any
    imaginary: Any


def both_parts(plan: Plan, trace: Trace, deployment: Deployment) -> tuple[Uplink, Link, Array, Array]:
    """The observer as an uplink, its links, and what a unit message becomes (T, 2, K) under which noise (T, 2, 2)."""
    scale = np.asarray(plan.rx_scale)[..., None]
    gain = np.where(plan.max_norm >= 0, trace.gain * plan.tx, 0) / scale
    noise = trace.gain * plan.noise / scale
    heard, given = (np.stack([np.real(x), np.imag(x)], axis=-2) for x in (gain, noise))
    receiver = deployment.trusted_noise_var / scale[..., None] ** 2 * np.eye(2)
    covariance = receiver + given @ np.swapaxes(given, -1, -2)
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0))[..., None, :]
    extra = BothLink(heard.astype(np.float32), root.astype(np.float32))
    link = ANALOG.lower(plan, trace.gain, deployment)._replace(extra=extra)
    return OBSERVER, link, heard, covariance


def _combine(link: Link, ids: Array, sent: Array, factor: Array, messages: Any) -> Seen:
    weights = jnp.where(sent, link.extra.weight[:, ids] * factor, np.float32(0))
    return Seen(weighted_sum(weights[0], messages), weighted_sum(weights[1], messages))


def _decode(total: Seen, link: Link, key: Array) -> tuple[Seen, Array]:
    leaves, tree = jax.tree.flatten(total.real)
    keys = jax.random.split(key, len(leaves))
    noise = [jnp.tensordot(link.extra.root, jax.random.normal(k, (2, *leaf.shape), jnp.float32), 1)
             for k, leaf in zip(keys, leaves)]  # fmt: skip
    drawn = Seen(*(jax.tree.unflatten(tree, [part[n] for part in noise]) for n in range(2)))
    return add_leaves(total, drawn), jnp.zeros((), bool)


OBSERVER = Uplink("both parts", ANALOG.site, ANALOG.lower, _combine, add_leaves, _decode)
