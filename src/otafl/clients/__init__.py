"""What clients compute and send. JAX, float32.

A kind of client is three functions and a promise: `draw` says which samples a few clients take, `messages` computes
what they send, `lift` turns the received sum into a gradient of the model, and a `Message` declares the norm bound and
the sensitivity that `fold` enforces. How clients are mapped (all at once, one by one, in chunks) is chosen outside.

gradient         mini-batch gradients, clipped as a whole
per_sample       every sample's gradient clipped; per_sample_promise: what that promises
local_sgd, zero_order   several local steps; scalars along shared directions
sampling, coins  batches without replacement; Poisson batches of fixed shape
in_parts         sums over batches, a few samples at a time
distinct_kernel, places_kernel   two steps of sampling on a GPU
"""

from collections.abc import Callable

from otafl.clients.gradient import Gradient, gradient
from otafl.clients.local_sgd import LocalSGD, local_sgd
from otafl.clients.per_sample import per_sample
from otafl.clients.per_sample_promise import PerSample
from otafl.clients.zero_order import ZeroOrder, zero_order
from otafl.core.messages import Clients, Data, Seed, Stats, fold

KINDS: dict[str, tuple[type, Callable[..., Clients]]] = {
    "gradient": (Gradient, gradient),
    "per-sample": (PerSample, per_sample),
    "local-sgd": (LocalSGD, local_sgd),
    "zero-order": (ZeroOrder, zero_order),
}

__all__ = [
    "KINDS", "Clients", "Data", "Gradient", "LocalSGD", "PerSample", "Seed", "Stats", "ZeroOrder", "fold", "gradient",
    "local_sgd", "per_sample", "zero_order",
]  # fmt: skip
