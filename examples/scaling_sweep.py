"""Accuracy against privacy for one family of schemes: a sweep over the receive scaling, paired over seeds.

Usage: `python examples/scaling_sweep.py [FOLDER]`
"""

import sys
from pathlib import Path

import pandas as pd

from otafl.runs.runner import start
from otafl.runs.schema import Experiment

SCALINGS = (0.1, 0.2, 0.4)


def main(folder: Path) -> None:
    experiment = Experiment(
        title="Receive scaling, no cap",
        rounds=40,
        seeds=3,
        channel="cares",
        task={"data": "digits", "clients": 6, "model": {"name": "logistic"}},
        server={"step_size": 0.5},
        scheme=[{"name": "constant", "label": f"{scale:g}", "rx_scale": scale} for scale in SCALINGS],
    )
    run = start(experiment, folder)
    files = {label: run / "schemes" / label / "evaluations.parquet" for label in experiment.labels}
    table = pd.concat(pd.read_parquet(file).assign(scaling=label) for label, file in files.items())
    last = table.groupby(["scaling", "seed"]).last()
    print(last.groupby("scaling")[["accuracy", "worst_client", "eps"]].agg(["mean", "std"]).round(3))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/scaling"))
