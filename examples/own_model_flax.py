"""A flax network and arrays of your own, record-level privacy by per-sample clipping, over the air.

python examples/own_model_flax.py          needs flax
"""

import flax.linen as nn
import jax
import numpy as np
from sklearn.datasets import load_digits

import otafl


class Net(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return nn.Dense(10)(nn.tanh(nn.Dense(16)(x)))


digits = load_digits()
x, y = digits.data / 16, digits.target
net = Net()
task = otafl.task(x, y, held_out=0.2, owner=np.arange(len(y)) % 10)
model = otafl.model(lambda key: net.init(key, x[:1]), net.apply, name="flax")
run = otafl.run(
    task=task,
    model=model,
    schemes=["fedavg-dp", otafl.constant(rx_scale=1.0)],
    channel="cares",
    clients={"kind": "per-sample", "sampling": "without-replacement", "batch": 32},
    eps=50.0,
    rounds=30,
    seeds=1,
    step_size=1.0,
)
print(run)
params = run.params("fedavg-dp")  # the pytree that net.init makes
print("outputs of the trained network:", net.apply(params, x[:1]).round(1))
