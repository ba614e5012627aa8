"""The best plans of an advice, trained: accuracy with its interval, on the user's own task or on a stand-in."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from otafl.core.interval import half_width
from otafl.runs import runner
from otafl.runs.advice.value import Advice
from otafl.runs.comparing.statistics import numbers
from otafl.runs.folder.summaries import summaries
from otafl.runs.progress import Reporter
from otafl.runs.schema import load

BEST = 3


class Trained(NamedTuple):
    """One scheme, mean over seeds with the half width of its 95 % interval."""

    scheme: str
    accuracy: float
    half_width: float
    seeds: int
    predicted_lift: float


def simulate(advice: Advice, folder: Path, reporter: Reporter) -> tuple[Path, list[Trained]]:
    """Train the best three in `folder`/simulated; returns the run folder and what came out, best plan first."""
    (path,) = advice.save_best(folder, BEST)
    run = runner.run_in(folder / "simulated", load(path), reporter)
    lifts = {o.name: o.merit.lift for o in advice.options if o.merit is not None}
    found = {}
    for entry in summaries(run):
        values = numbers(entry["final_accuracy"])
        name = entry["scheme"]
        found[name] = Trained(name, float(np.nanmean(values)), half_width(values), len(values), lifts[name])
    return run, [found[o.name] for o in advice.options if o.name in found]
