"""An equinox network and arrays of your own, over the air.

python examples/own_model_equinox.py          needs equinox
"""

import equinox as eqx
import jax
import numpy as np
from sklearn.datasets import load_digits

import otafl

digits = load_digits()
x, y = digits.data / 16, digits.target
task = otafl.task(x, y, held_out=0.2, owner=np.arange(len(y)) % 10)
model = otafl.model(
    lambda key: eqx.nn.MLP(64, 10, width_size=16, depth=1, key=key),  # its activations are no arrays: they stay
    lambda net, x: jax.vmap(net)(x),
    name="equinox",
)
run = otafl.run(
    task=task,
    model=model,
    schemes=["fedavg-dp", otafl.constant(rx_scale=0.3)],
    channel="cares",
    eps=200.0,
    rounds=30,
    seeds=1,
    step_size=0.5,
)
print(run)
net = run.params("constant")  # an eqx.nn.MLP
print("outputs of the trained network:", net(x[0]).round(1))
