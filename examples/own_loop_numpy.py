"""A training loop of your own, in NumPy: logistic regression of 40 devices over the air, until the budget is spent.

python examples/own_loop_numpy.py
"""

import numpy as np

import otafl

rng = np.random.default_rng(0)
truth = rng.standard_normal(31)
x = rng.standard_normal((40, 50, 31))  # 40 devices with 50 samples each
y = (x @ truth + rng.standard_normal((40, 50)) > 0).astype(float)
model = np.zeros(31)


def update_of(k: int) -> np.ndarray:
    """The gradient of device k's logistic loss. Air clips it to `clip_norm`."""
    error = 1 / (1 + np.exp(-x[k] @ model)) - y[k]
    return error @ x[k] / len(y[k])


air = otafl.Air(
    otafl.constant(rx_scale=0.3), site=40, num_params=31, clip_norm=1.0, channel="cares", eps=8.0, delta=1e-5,
    rounds=200, noise_std=0.1, seed=0,
)  # fmt: skip
history = []
for r in air:  # charged on entry
    updates = {k: update_of(k) for k in r.asked}
    model -= 0.5 * r.send(updates)  # clipped, silenced, scaled, added up, noise, decoded
    history.append((air.eps, np.mean((x @ model > 0) == y)))
print(air.card)
print(f"{air.rounds_charged} rounds, eps = {air.eps:.3f}, accuracy {history[-1][1]:.3f}")
