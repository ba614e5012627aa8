"""How much privacy can these radios certify, and for how many rounds? No training.

Usage: `python examples/certify_site.py [deployment.toml]`
"""

import math
import sys
from pathlib import Path

import numpy as np

from otafl.channels import load_site, to_deployment
from otafl.systems.cares.certifier import Problem, auto_grid, certify

PARAMETERS, CLASSES = 650, 10  # logistic regression on 8x8 images


def main(path: Path) -> None:
    site = load_site(path)
    radios = to_deployment(site, dim=PARAMETERS)
    print(f"{len(site.devices.names)} devices, mean gains {10 * np.log10(site.devices.mean_power_gain).round(1)} dB")
    print(f"{'eps':>6} {'rx_scale':>10} {'rounds':>6} {'noise per round':>16} {'dropped weight':>15}")
    for eps in (100.0, 300.0, 1000.0, 3000.0):
        problem = Problem(
            weights=radios.weights,
            channel_scale=np.sqrt(site.devices.mean_power_gain / 2),
            noise_std=(math.sqrt(radios.trusted_noise_var), math.sqrt(radios.noise_var)),
            num_params=PARAMETERS,
            loss_gap=math.log(CLASSES),
            eps_target=eps,
            delta=1e-5,
            max_power=radios.energy,
        )
        answer = certify(problem, auto_grid(problem))
        best, arms = answer.init, answer.arms
        if best is None:
            print(f"{eps:6g} nothing is certified")
            continue
        scale = arms.rx_scale[best]
        noise = math.sqrt(radios.noise_var * PARAMETERS) / scale  # norm of the noise on an update of norm at most 1
        print(f"{eps:6g} {scale:10.3g} {arms.horizon[best]:6d} {noise:16.3g} {arms.dropped_weight[best]:15.2%}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "deployment.toml")
