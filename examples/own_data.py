"""What would an over-the-air uplink do to my federated model? A table of your own, regression, with and without air.

python examples/own_data.py [FOLDER]
"""

import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_diabetes

import otafl


def save_table(path: Path) -> None:
    """Your data here: numbers in columns, a target, and who holds each row."""
    frame = load_diabetes(as_frame=True, scaled=False).frame
    frame = (frame - frame.mean()) / frame.std()
    frame["clinic"] = np.array(["north", "south", "east", "west"])[np.arange(len(frame)) % 4]
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_csv(path, index=False)


def main(folder: Path) -> None:
    table = folder.parent / "diabetes.csv"
    save_table(table)
    run = otafl.run(
        task=otafl.task(table, y="target", owner="clinic", held_out=0.2),
        model=otafl.model(lambda key: {"w": jnp.zeros(10)}, lambda params, x: x @ params["w"], loss="mse"),
        schemes={"no radio": "fedavg", "weakest": "weakest", "constant": otafl.constant(rx_scale=0.3)},
        channel={"fading": {"kind": "rician", "k_factor_db": 6.0}},
        clients={"kind": "local-sgd", "steps": 5, "local_step_size": 0.05},
        clip_norm=3.0,
        step_size=0.1,
        noise_std=0.01,
        rounds=40,
        evaluate_every=2,
        seeds=2,
        out=folder,
    )
    print(run.table[["mse", "eps", "rounds", "energy_per_round"]])
    print("weights of the last model:", run.params("constant")["w"].round(2))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/own-data"))
