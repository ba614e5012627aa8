"""A power control of your own beside published ones: same data, channels, seeds and ledger.

python examples/own_scheme.py
"""

import numpy as np

import otafl


@otafl.scheme("power-share", csi="own")
def power_share(obs, deployment, message, *, share: float = 0.01):
    """Every device spends the same share of its energy; phases are aligned, magnitudes are not inverted."""
    level = np.sqrt(share * deployment.energy) / message.bound  # (K,) transmit amplitude
    arrives = level * np.abs(obs.estimate)
    return {
        "tx": level * np.exp(-1j * np.angle(obs.estimate)),
        "rx_scale": np.sum(level * obs.rms, axis=-1) * np.sqrt(np.pi) / 2,  # the mean weight under Rayleigh fading
        "imbalance": arrives.max(-1) / arrives.min(-1),  # a column of the rounds table
    }


run = otafl.run(
    task={"data": "digits", "clients": 6},
    model="logistic",
    schemes=["fedavg-dp", otafl.constant(rx_scale=0.3), power_share(share=0.002)],
    channel="cares",
    eps=200.0,
    rounds=40,
    seeds=2,
    step_size=0.5,
)
print(run)
print(run.frame("rounds").groupby("scheme")[["rx_scale", "noise_std", "info_imbalance"]].mean())
