"""What would an over-the-air uplink do to my federated model? Own arrays, local SGD, with and without the air.

    python examples/own_data.py [FOLDER]
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from otafl.runs.runner import start
from otafl.runs.schema import Experiment
from otafl.runs.store import RunFolder


def save_arrays(path: Path) -> None:
    """Your data here: four arrays, uint8, images with channels last or grey."""
    digits = load_digits()
    x, y = (digits.images * 15.9).astype(np.uint8), digits.target.astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, x_train=x[:1400], y_train=y[:1400], x_test=x[1400:], y_test=y[1400:])


def main(folder: Path) -> None:
    arrays = folder.parent / "mine.npz"
    save_arrays(arrays)
    experiment = Experiment(
        rounds=40,
        seeds=2,
        channel={"fading": {"kind": "rician", "k_factor_db": 6.0}},
        task={"data": {"name": "npz", "path": str(arrays.absolute())}, "clients": 6, "model": {"name": "logistic"}},
        radio={"max_energy": 1.0, "noise_std": 0.01},
        clients={"kind": "local-sgd", "steps": 5, "local_step_size": 0.1, "clip_norm": 3.0},
        server={"step_size": 0.3},
        scheme=[{"name": "fedavg"}, {"name": "weakest"}, {"name": "constant", "rx_scale": 0.3}],
    )
    run = RunFolder.open(start(experiment, folder))
    for label in run.labels():
        summary = run.scheme(label).json("summary")
        accuracy, eps = np.mean(summary["final_accuracy"]), summary["final_eps"]
        print(f"{label:10} accuracy {accuracy:.3f}, eps per seed {eps}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/own-data"))
