"""How well does the figure of merit rank trainings that it was not calibrated on?

    python benchmarks/merit.py            # about three minutes on two cores
    python benchmarks/merit.py --quick    # six cells, one seed

Each cell is a question to `otafl advise` (devices, eps, size) that is not in the calibration grid; the advised plan is
trained on handwritten digits with settings and step size from plans alone, and the accuracy is set beside Q. The
agreement of the devices is guessed from their samples, as for somebody who has no data yet.
"""

import argparse
import itertools
import json
import tempfile
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from otafl.bounds import merit
from otafl.core.files import to_json
from otafl.runs import runner
from otafl.runs.advice.advise import asked, consider
from otafl.runs.advice.stand_in import prepare
from otafl.runs.progress import Reporter

DIGITS, ROUNDS, CHANCE, WITHOUT_PRIVACY = 1437, 150, 0.1, 0.962
LINEAR = list(itertools.product((60, 120, 400, 800), (1.5, 3.0, 6.0, 12.0), (650,)))
NETWORKS = list(itertools.product((120, 800), (3.0, 12.0), (2410,)))
SCHEMES = {60: "constant", 120: "cdpb", 400: "adascale", 800: "biasvar"}  # every family has its turn


def measure(devices: int, eps: float, size: int, seeds: int) -> dict[str, float | str]:
    """Q of the plan, and the accuracy that it reaches."""
    question = asked(devices, size, eps, rounds=ROUNDS, samples=max(1, DIGITS // devices))
    (option,) = consider(question, [SCHEMES[devices]])
    experiment = prepare(question, [option]).experiment
    with tempfile.TemporaryDirectory() as folder:
        site = question.site.write(Path(folder))
        changed = experiment.model_copy(update={"devices": site, "seeds": seeds, "evaluate_every": ROUNDS})
        run = runner.start(changed, Path(folder) / "run", Reporter())
        (summary,) = run.glob("schemes/*/summary.json")
        accuracy = float(np.mean(json.loads(summary.read_text())["final_accuracy"]))
    got = (accuracy - CHANCE) / (WITHOUT_PRIVACY - CHANCE)
    predicted = merit.lift(option.quality, ROUNDS)
    return {"scheme": option.name, "devices": devices, "eps": eps, "num_params": size, "Q": option.quality,
            "predicted_lift": predicted, "measured_lift": got, "accuracy": accuracy}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    cells = LINEAR[::3] if options.quick else LINEAR + NETWORKS
    rows = []
    print("scheme     devices  eps   params      Q  predicted  measured")
    for cell in cells:
        row = measure(*cell, seeds=1 if options.quick else 3)
        rows.append(row)
        print(f"{row['scheme']:10s} {row['devices']:7d} {row['eps']:5.1f} {row['num_params']:7d} {row['Q']:6.1f} "
              f"{row['predicted_lift']:9.2f} {row['measured_lift']:9.2f}", flush=True)  # fmt: skip
    q, accuracy = [row["Q"] for row in rows], [row["accuracy"] for row in rows]
    gap = np.array([row["predicted_lift"] - row["measured_lift"] for row in rows])
    right = sum(merit.verdict(float(row["Q"])) == said(float(row["measured_lift"])) for row in rows)
    print(f"{len(rows)} trainings: rank correlation {spearmanr(q, accuracy).statistic:.3f}, "
          f"rms of lift {np.sqrt(np.mean(gap**2)):.3f}, worst {np.max(np.abs(gap)):.2f}, "
          f"verdicts right {right}")  # fmt: skip
    if options.out:
        options.out.write_text(to_json(rows))


def said(lift: float) -> str:
    """The verdict that a measured lift deserves, at the lifts of Q = 25 and Q = 10."""
    useful, marginal = merit.lift(merit.USEFUL, ROUNDS), merit.lift(merit.MARGINAL, ROUNDS)
    return "useful" if lift >= useful else "marginal" if lift >= marginal else "not useful"


if __name__ == "__main__":
    main()
