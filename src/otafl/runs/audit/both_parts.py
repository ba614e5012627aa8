"""An observer at the receiver who keeps all that is heard: both parts, of every antenna. JAX inside the round.

Before anything is combined, client k's message arrives at antenna m along the complex number array_km tx_k and client
j's artificial noise along array_jm noise_j, one real draw per coordinate each; receiver noise has its trusted variance
in both parts of every antenna. The R = 2 M real numbers of a coordinate are therefore noisy with covariance
v I + sum_j q_j q_j' (`privacy.antennas`, A2).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from otafl.core.arrays import Array
from otafl.core.draws import in_a_row
from otafl.core.plan import Deployment, Link, Plan, Trace
from otafl.core.uplink import ANALOG, Uplink, add_leaves, weighted_sum
from otafl.privacy.antennas import covariance, received


class WholeLink(NamedTuple):
    """What the observer's link has besides."""

    weight: Array  # (..., R, K) what arrives of a message, over rx_scale
    root: Array  # (..., R, R) of the noise's covariance


def both_parts(plan: Plan, trace: Trace, deployment: Deployment) -> tuple[Uplink, Link, Array, Array]:
    """The observer as an uplink, its links, and what a unit message becomes (T, R, K) under which noise (T, R, R)."""
    scale = np.asarray(plan.rx_scale)[..., None]
    tx, noise = np.where(plan.max_norm >= 0, plan.tx, 0) / scale, plan.noise / scale
    heard = np.swapaxes(received(trace.array, tx), -1, -2)
    unit = np.eye(heard.shape[-2])
    both = covariance(trace.array, noise, 0.0) + deployment.trusted_noise_var / scale[..., None] ** 2 * unit
    values, vectors = np.linalg.eigh(both)
    root = vectors * np.sqrt(np.maximum(values, 0))[..., None, :]
    extra = WholeLink(heard.astype(np.float32), root.astype(np.float32))
    link = ANALOG.lower(plan, trace.gain, deployment)._replace(extra=extra)
    return OBSERVER, link, heard, both


def _combine(link: Link, ids: Array, sent: Array, factor: Array, messages: Any) -> tuple[Any, ...]:
    """One sum like a message for every real number of a coordinate."""
    weights = jnp.where(sent, link.extra.weight[:, ids] * factor, np.float32(0))
    return tuple(weighted_sum(weight, messages) for weight in weights)


def _decode(total: tuple[Any, ...], link: Link, key: Array) -> tuple[tuple[Any, ...], Array]:
    leaves, tree = jax.tree.flatten(total[0])
    keys = jax.random.split(key, len(leaves))
    noise = [jnp.tensordot(link.extra.root, in_a_row(jax.random.normal, k, (len(total), *leaf.shape), jnp.float32), 1)
             for k, leaf in zip(keys, leaves)]  # fmt: skip
    drawn = tuple(jax.tree.unflatten(tree, [part[n] for part in noise]) for n in range(len(total)))
    return add_leaves(total, drawn), jnp.zeros((), bool)


OBSERVER = Uplink("observer", ANALOG.site, ANALOG.lower, _combine, add_leaves, _decode)
