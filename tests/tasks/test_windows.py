"""Convolutions as an accelerator computes them, against those of a CPU and against XLA's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from otafl.tasks import windows
from otafl.tasks.layers import sequence, tanh
from otafl.tasks.linear import conv
from otafl.tasks.models import build


@pytest.mark.parametrize(("size", "stride", "pad"), [(3, 1, 1), (4, 2, 1), (3, 2, 0), (2, 3, 0)])
def test_an_accelerator_lays_out_the_same_windows(size, stride, pad, monkeypatch):
    x = jax.random.normal(jax.random.key(1), (3, 8, 7, 2))
    found = []
    for backend, many in (("cpu", 0), ("tpu", windows.MANY), ("tpu", 0)):  # the last by XLA's convolution
        monkeypatch.setattr(jax, "default_backend", lambda name=backend: name)
        monkeypatch.setattr(windows, "MANY", many)
        net = sequence(conv(4, size, stride, pad), tanh, conv(3, 2))((8, 7, 2))
        params = net.init(jax.random.uniform(jax.random.key(0), (net.draws,), minval=-1))

        def summed(params, x, net=net):
            return jnp.sum(jnp.sin(net.forward(params, x, net.tap(3))[0]))

        gradients = jax.jit(jax.grad(summed, argnums=(0, 1)))(params, x)
        predicted = net.predict(params, jnp.swapaxes(x, 0, -1))
        found.append((gradients, jnp.swapaxes(predicted, 0, -1)))
    monkeypatch.undo()
    for other in found[1:]:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found[0], other)
    first, _, last = params
    y = x
    for own, step, around in ((first, stride, pad), (last, 1, 0)):
        y = jax.lax.conv_general_dilated(
            y, own["w"], (step, step), ((around, around),) * 2, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        y = jnp.tanh(y + own["b"]) if own is first else y + own["b"]
    np.testing.assert_allclose(found[1][1], y, atol=1e-5)


def test_pooling_has_the_same_gradient_on_an_accelerator(monkeypatch):
    x, y = jax.random.normal(jax.random.key(1), (4, 28, 28)), jnp.arange(4) % 10
    found = []
    for backend in ("cpu", "tpu"):
        monkeypatch.setattr(jax, "default_backend", lambda name=backend: name)
        model = build("cnn-mnist", (28, 28), 10)
        params = model.init(jax.random.key(0))
        found.append((model.logits(params, x), jax.jit(jax.grad(model.loss))(params, x, y)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), *found)
