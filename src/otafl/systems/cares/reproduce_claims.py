"""CARES' claims about the methods of a table: differences between them, and every printed number."""

import math
import re
from collections.abc import Sequence
from functools import partial

import numpy as np
from scipy import special

from otafl.core.files import parse
from otafl.core.interval import LEVEL
from otafl.reports.tables import METRICS
from otafl.reproductions import claims as rules
from otafl.reproductions.claims import Claim
from otafl.reproductions.findings import UNDECIDED, Record, Verdict
from otafl.runs.comparing.statistics import Gap, mean_sd, numbers
from otafl.runs.folder.summaries import by_seed
from otafl.systems.cares.reproduce_figures import Printed

Known = dict[str, Record]
OTHER = re.compile(r" @ (\w+)")  # a label with a metric of its own


def judge(claims: Sequence[Record], found: list[Record]) -> list[Verdict]:
    """The claims of a preset about what the methods' summaries say, seed by seed."""
    known = {entry["label"]: entry for entry in found}
    out = []
    for record in claims:
        digits = {"rounds": 0, "final_eps": 0}.get(record["metric"], 4)
        claim = parse(Claim, {"digits": digits, **record}, "claim")
        verdict = rules.judge(claim, partial(_values, known, claim.metric), METRICS[claim.metric])
        out.append(verdict._replace(evidence=OTHER.sub(lambda own: f" ({METRICS[own[1]]})", verdict.evidence)))
    return out


def _values(known: Known, metric: str, label: str) -> dict[int, float]:
    """A label may name a metric of its own: "OTA-FFL† @ best_accuracy"."""
    name, _, own = label.partition(" @ ")
    return by_seed(known[name], own or metric)


# --- printed numbers -------------------------------------------------------------------------------------------------


def levels(found: list[Record], said: Printed, settings: Record) -> list[Verdict]:
    """Every printed number of a table against ours; on a subset of the data none of them can be decided."""
    out = []
    for entry in found:
        for metric, (value, _) in said.get(entry["label"], {}).items():
            seeds, within = settings["paper_seeds"], settings["within"][metric]
            text, place = f"{entry['label']}: {METRICS[metric]} {value:g}", settings["place"]
            claim = Claim(text=text, place=place, better=entry["label"], said=value, seeds=seeds, within=within,
                          digits=1 if metric == "final_eps" else 4)  # fmt: skip
            verdict = rules.judge(claim, partial(_values, {entry["label"]: entry}, metric), METRICS[metric])
            if subset := settings.get("subset"):
                ours = mean_sd(numbers(entry[metric]))
                verdict = verdict._replace(verdict=UNDECIDED, evidence=f"{ours}; {subset} does not decide it")
            out.append(verdict)
    return out


def larger_gain(found: list[Record], easier: list[Record], reference: str) -> Verdict:
    """Whether the lead of CARES static is larger here than on the easier task: means over seeds of two runs (Welch)."""
    here, there = (_lead({entry["label"]: entry for entry in one}, reference) for one in (found, easier))
    fewest, half = min(len(here), len(there)), math.inf
    if fewest > 1:  # degrees of freedom of the smaller run: a little wide
        spread = math.hypot(*(np.std(one, ddof=1) / math.sqrt(len(one)) for one in (here, there)))
        half = float(special.stdtrit(fewest - 1, (1 + LEVEL) / 2)) * spread
    means = [float(np.mean(one)) if one else math.nan for one in (here, there)]
    gap = Gap(means[0] - means[1], half, fewest)
    text = f"lead {means[0]:+.4f} here, {means[1]:+.4f} on MNIST: {gap.mean:+.4f} ± {half:.4f}"
    claim = "the improvement is larger when the task is harder and the noise sensitivity is higher"
    rule = "lead over the fixed scaling in acc@ε*: mean here − mean on MNIST > 0"
    return rules.joined(claim, [rules.ahead(gap)._replace(evidence=text)], "Appendix I", rule)


def _lead(known: Known, reference: str) -> list[float]:
    static, fixed = (by_seed(known[label], "accuracy_at_eps") for label in ("CARES static", reference))
    both = [static[seed] - fixed[seed] for seed in static if seed in fixed]
    return [value for value in both if math.isfinite(value)]
