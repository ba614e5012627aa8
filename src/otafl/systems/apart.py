"""Contributions that stay apart until they are decoded: every client has noise or phases of its own.

The server of such an uplink draws what happens to each client in `decode`, where the round's key is.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from otafl.core.arrays import Array
from otafl.core.messages import per_client
from otafl.core.plan import Link


def keep_apart(link: Link, ids: Array, sent: Array, factor: Array, messages: Any) -> Any:
    """Leaves (K, ...) with the rows of these clients filled, clipped; a silent client's row is zero."""
    count = link.weight.shape[0]

    def rows(leaf: Array) -> Array:
        own = per_client(jnp.where(sent, factor, np.float32(0)), leaf) * leaf
        return jnp.zeros((count, *leaf.shape[1:]), leaf.dtype).at[ids].set(own)

    return jax.tree.map(rows, messages)


def keys_for(key: Array, leaves: list[Array]) -> list[Array]:
    """One key per leaf."""
    return list(jax.random.split(key, len(leaves)))
