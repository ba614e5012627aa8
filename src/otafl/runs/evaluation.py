"""Samples that a model is evaluated on, and what is counted of it there."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from otafl.runs.folder.chunks import Evaluation
from otafl.tasks.ghost import LANES
from otafl.tasks.losses import METRICS
from otafl.tasks.models import Model, penalty


class HeldOut(NamedTuple):
    """Samples for evaluation, cut into equal blocks so that memory stays bounded."""

    x: Any  # (blocks, size, ...)
    y: Any  # (blocks, size) int32 labels, -1 for padding; (blocks, size, ...) targets
    group: Any  # (blocks, size) int32: the labels, or 0 for targets that are none; -1 for padding


def blocks(x: np.ndarray, y: np.ndarray, size: int, labelled: bool = True) -> HeldOut:
    """Blocks of at most `size` samples, as even as whole vectors allow."""
    count = max(1, -(-len(x) // size))
    size = -(-len(x) // count) if count == 1 else min(size, -(-len(x) // (count * LANES)) * LANES)
    pad = count * size - len(x)

    def padded(leaf: np.ndarray, value: int) -> np.ndarray:
        filled = np.concatenate([leaf, np.full((pad, *leaf.shape[1:]), value, leaf.dtype)])
        return filled.reshape(count, size, *leaf.shape[1:])

    group = padded(y.astype(np.int32) if labelled else np.zeros(len(y), np.int32), -1)
    targets = group if labelled else padded(y, 0)
    return HeldOut(*jax.device_put((padded(x, 0), targets, group)))


def evaluator(model: Model, classes: int, metric: str = "accuracy") -> Callable[[Any, HeldOut], Evaluation]:
    """Sums of the metric by label and the two parts of the loss on held-out data; the host forms client mixes."""
    score_of = METRICS[metric].of or model.sample_loss
    counted = jnp.int32 if metric == "accuracy" else jnp.float32

    def evaluate(params: Any, held_out: HeldOut) -> Evaluation:
        def block(parts: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            x, y, group = parts
            outputs = model.logits(params, x)
            hot = group[:, None] == jnp.arange(max(classes, 1), dtype=jnp.int32)
            score = jnp.where(group >= 0, score_of(outputs, y), 0).astype(jnp.float32)
            # A product counts fastest, and exactly: a block is far below 2^24 samples.
            counts = jnp.stack([score, jnp.ones_like(score)]) @ hot.astype(jnp.float32)
            own = model.sample_loss(outputs, y)
            return counts.astype(counted), jnp.sum(jnp.where(group >= 0, own, 0), dtype=jnp.float32)

        counts, loss = jax.lax.map(block, tuple(held_out))
        right, total = counts.sum(0, dtype=counted)
        return Evaluation(right, total, loss.sum() / jnp.sum(total).astype(jnp.float32), penalty(model, params))

    return evaluate
