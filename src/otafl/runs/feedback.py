"""What a policy inside the loop is told about the model, and what that costs: `plan.Feedback` carried out.

The noise that is drawn here and the noise that is charged are one number, the policy's `feedback.noise_std`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.core.messages import Data, Seed
from otafl.core.plan import Feedback
from otafl.core.rounds import Measure
from otafl.privacy import Release, noisy_accuracy
from otafl.runs.folder.chunks import Evaluation
from otafl.tasks.losses import right
from otafl.tasks.models import Model, sample_outputs

BLOCK = 1000  # samples that are evaluated at once, so that memory stays bounded


def public_accuracy(evaluate: Callable[[Any, Any], Evaluation]) -> Measure:
    """Accuracy on public data: post-processing of the model."""

    def measure(params: Any, data: Data, public: Any, seed: Seed, key: Array) -> Array:
        seen = evaluate(params, public)
        return jnp.sum(seen.right).astype(jnp.float64) / jnp.sum(seen.total)

    return measure


def private_accuracy(model: Model, noise_std: float) -> Measure:
    """sum_k weight_k accuracy_k on all of each client's own data, plus N(0, noise_std^2); weights as in the round."""

    def measure(params: Any, data: Data, public: Any, seed: Seed, key: Array) -> Array:
        sizes = seed.sizes.astype(jnp.float64)
        weights = sizes / jnp.sum(sizes)
        own = jnp.arange(seed.rows.shape[1], dtype=jnp.int32) < seed.sizes[:, None]
        share = jnp.where(own, (weights / sizes)[:, None], 0.0)  # of one decision in the sum

        def right_share(block: tuple[Array, Array]) -> Array:
            index, worth = block
            x, y = data.at(index)
            return jnp.sum(jnp.where(right(sample_outputs(model, params, x), y), worth, 0.0))

        size, rows = min(BLOCK, own.size), seed.rows[jnp.arange(len(sizes))]
        blocks = tuple(jnp.pad(x.reshape(-1), (0, -own.size % size)).reshape(-1, size) for x in (rows, share))
        accuracy = jnp.sum(jax.lax.map(right_share, blocks))
        return accuracy + noise_std * jax.random.normal(key, (), jnp.float64)

    return measure


def measure_of(feedback: Feedback, model: Model, evaluate: Callable[[Any, Any], Evaluation]) -> Measure:
    """The function that the engine calls before every round."""
    return private_accuracy(model, feedback.noise_std) if feedback.data == "private" else public_accuracy(evaluate)


def check_public(label: str, feedback: Feedback, samples: int, metric: str) -> None:
    """An accuracy of no samples is no number, and other metrics are no accuracies."""
    if metric != "accuracy":
        raise InputError(f"{label}: its rewards are accuracies, but this task is told in {metric}")
    if feedback.data == "public" and samples == 0:
        raise InputError(f"{label}: rewards come from public data, but task.data.reward_fraction leaves no sample")


def releases_of(site: Any, sizes: np.ndarray) -> tuple[Release, ...]:
    """What accompanies every live round of one seed, for its ledger."""
    wanted = site.policy.feedback
    if site.policy.loop != "round" or wanted.data != "private":
        return ()
    if site.message.adjacency == "add-remove":
        raise InputError("adjacency='add-remove' with private rewards is false: their weights tell sizes; use zero-out")
    if not np.allclose(site.deployment.weights, sizes / np.sum(sizes), rtol=1e-12, atol=0):
        raise InputError("private rewards weigh clients by their sizes: task.weights must be 'samples'")
    return (noisy_accuracy(site.message.unit, site.deployment.weights, sizes, wanted.noise_std),)


def in_words(site: Any, releases: tuple[Release, ...], rounds: int) -> str:
    """For the privacy card: where the reward data come from and whether they were charged; empty for an open loop."""
    if site.policy.loop != "round":
        return ""
    if not releases:
        return (
            "accuracy on public data that are neither trained nor reported on; post-processing of the model, "
            "nothing was charged for it"
        )
    (release,) = releases
    cost = float(np.max(release.square(len(site.deployment.weights)))) / 2
    return (
        f"private: {release.name}, standard deviation {release.noise_std:g}, released {rounds} times, once before "
        f"every round; charged to the ledger with zCDP {cost:.4g} each for the worst client. Clients' accuracies "
        "must be added up and the noise drawn where no adversary looks"
    )
