"""kappa and L by measurement at one point of the model: N gradients and a few Hessian-vector products. JAX, lazily.

Both are estimates of constants that Theorem 1 wants for all points. kappa^2 = sum w ||g_m||^2 - ||sum w g_m||^2 holds
at this point; L is the largest Hessian eigenvalue of the mean loss here, hence a lower estimate. A low L gives a high
rho, and that is the cheap side to err on (E19).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from otafl.core import validate

Loss = Callable[[Any, Any], Any]  # (params, data of one device) -> mean loss


class Probe(NamedTuple):
    """What the probe saw."""

    kappa: float  # gradient dissimilarity
    kappa_upper: float  # sqrt(sum w ||g_m||^2): needs N norms only, not the mean gradient; use this over the air
    L: float
    grad_norms: np.ndarray  # (N,) a guide for G
    mean_grad_norm: float


def probe_kappa_L(
    loss: Loss, params: Any, data: Any, weights: ArrayLike | None = None, power_iterations: int = 10, seed: int = 0
) -> Probe:
    """Measure at `params`. `data`: pytree whose leaves lead with the device axis; `loss` takes one device's slice.

    Never take the received aggregate for the mean gradient: it contains receiver noise, and kappa^2 would come out
    negative. The mean here is computed from the gradients themselves.
    """
    import jax
    import jax.numpy as jnp
    from jax.flatten_util import ravel_pytree

    validate.whole("power_iterations", power_iterations)
    start, unravel = ravel_pytree(params)
    n = jax.tree.leaves(data)[0].shape[0]
    w = np.full(n, 1 / n) if weights is None else np.asarray(weights, float)
    validate.shape("weights", w, (n,))
    validate.sums_to_one("weights", w, 1e-9)

    def device_grad(flat: Any, one: Any) -> Any:
        return jax.grad(lambda x: loss(unravel(x), one))(flat)

    def mean_grad(flat: Any) -> Any:  # one gradient in memory at a time
        def add(total: Any, device: Any) -> tuple[Any, None]:
            share, one = device
            return total + share * device_grad(flat, one), None

        return jax.lax.scan(add, flat * 0, (jnp.asarray(w, start.dtype), data))[0]

    def squares(one: Any) -> tuple[Any, Any]:
        grad = device_grad(start, one)
        return grad @ grad, jnp.sum((grad - mean) ** 2)

    mean = jax.jit(mean_grad)(start)
    norm2, apart2 = (np.asarray(x, float) for x in jax.lax.map(squares, data))
    validate.finite("gradient norms", norm2)
    product = jax.jit(lambda v: jax.jvp(mean_grad, (start,), (v,))[1])
    image = jax.random.normal(jax.random.key(seed), start.shape, start.dtype)
    for _ in range(power_iterations):
        image = product(image / jnp.linalg.norm(image))
    curvature, mean_norm = float(jnp.linalg.norm(image)), float(jnp.linalg.norm(mean))
    return Probe(float(w @ apart2) ** 0.5, float(w @ norm2) ** 0.5, curvature, np.sqrt(norm2), mean_norm)


def minibatch_variance(loss: Loss, params: Any, samples: Any, batch_size: int) -> float:
    """sigma_m^2 of one device for batches without replacement; leaves of `samples` lead with its D samples.

    sigma^2 = (1 - B/D) / B * sum_i ||g_i - g||^2 / (D - 1); `loss` takes a batch, here of one sample.
    """
    import jax
    from jax.flatten_util import ravel_pytree

    start, unravel = ravel_pytree(params)
    count = jax.tree.leaves(samples)[0].shape[0]
    validate.whole("batch_size", batch_size)
    validate.in_closed("batch_size", batch_size, 1, count)
    if batch_size == count:
        return 0.0

    def add(carry: Any, one: Any) -> tuple[Any, None]:
        total, square = carry
        grad = jax.grad(lambda x: loss(unravel(x), jax.tree.map(lambda leaf: leaf[None], one)))(start)
        return (total + grad, square + grad @ grad), None

    (total, square), _ = jax.lax.scan(add, (start * 0, start[0] * 0), samples)
    mean = np.asarray(total, float) / count
    spread = float(square) - count * float(mean @ mean)
    return float((1 - batch_size / count) / batch_size * max(spread, 0.0) / (count - 1))
