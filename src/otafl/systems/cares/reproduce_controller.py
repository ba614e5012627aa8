"""CARES' controller over the settings that the paper leaves open: does it do what the paper says for any of them?"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from otafl.core.interval import half_width
from otafl.reports.tables import METRICS, footer
from otafl.reproductions.claims import ahead, would_decide
from otafl.reproductions.findings import FAILS, HOLDS, UNDECIDED, Grid, Record, Verdict
from otafl.reproductions.pictures import Panel, Point, point
from otafl.reproductions.reproduction import Reproduction
from otafl.runs.comparing.statistics import Gap, from_zero, holm, mean_sd, numbers, paired
from otafl.runs.folder.summaries import by_seed, summaries
from otafl.systems.cares.reproduce_figures import read_curves
from otafl.systems.cares.reproduce_scalings import correlations

ASKED = {  # of the controller against both rivals: the paper's words, and its lead over the static rule
    "best_accuracy": ("CARES adaptive achieves the highest peak accuracy", 0.804 - 0.798),
    "worst_client_at_eps": ("and the strongest worst-client accuracy", 0.738 - 0.726),
}
PLACE = "Appendix H"
LEAST = 0.001  # the paper prints accuracies to a tenth of a per cent: no smaller lead counts


class Tried(NamedTuple):
    """One setting of the controller: leads over both rivals by metric, and rank correlations by seed."""

    label: str
    entry: Record
    leads: dict[str, list[Gap]]
    following: list[float]


def scan(job: Reproduction) -> None:
    """All settings on the same seeds; a claim holds if some setting gives it, corrected for how many were tried."""
    run = job.run(job.experiment())
    found = summaries(run)
    rivals = [job.preset.settings["static"], job.preset.settings["fixed"]]
    known = {entry["label"]: entry for entry in found}
    tried = [_tried(run, entry, [known[rival] for rival in rivals]) for entry in found if entry["label"] not in rivals]
    verdicts = [any_of(text, [one.leads[metric] for one in tried], [one.label for one in tried], METRICS[metric], LEAST)
                for metric, (text, _) in ASKED.items()]  # fmt: skip
    low = [[from_zero([-value for value in one.following])] for one in tried]
    verdicts.append(any_of("when channels degrade, the controller reduces η_t", low, [one.label for one in tried],
                           "−rank correlation of η with the channel's badness"))  # fmt: skip
    job.publish([_grid(tried)], verdicts, [footer(found).splitlines()[0]], _panels(tried))


def _tried(run: Path, entry: Record, rivals: list[Record]) -> Tried:
    leads = {metric: [paired(by_seed(entry, metric), by_seed(rival, metric)) for rival in rivals] for metric in ASKED}
    return Tried(entry["label"], entry, leads, correlations(read_curves(run, entry["label"])))


def any_of(text: str, gaps: Sequence[Sequence[Gap]], labels: Sequence[str], metric: str,
           least: float = 0.0) -> Verdict:  # fmt: skip
    """Holds if one setting leads every rival, by Holm over all settings; fails if none leads them all by `least`.

    Settings that end before the budget on more than half of the seeds are left out: they have no accuracy there.
    """
    most = max(gap.pairs for own in gaps for gap in own)
    measured = [n for n, own in enumerate(gaps) if all(gap.pairs > 1 and 2 * gap.pairs >= most for gap in own)]
    gaps, labels = [gaps[n] for n in measured], [labels[n] for n in measured]
    if not gaps:
        return Verdict(text, UNDECIDED, "no setting was measured; more rounds would decide it", PLACE, metric)
    weakest = [max((gap.p if gap.mean > 0 else 1.0) for gap in own) for own in gaps]
    sure = [p < 0.05 for p in holm(weakest)]
    hardest = [min(own, key=lambda gap: gap.mean) for own in gaps]  # the rival that is furthest ahead
    lost = [any(ahead(gap, least=least).verdict == FAILS for gap in own) for own in gaps]
    word = HOLDS if any(sure) else FAILS if all(lost) else UNDECIDED
    open_ones = [ahead(gap, least=least).needs for gap, gone in zip(hardest, lost) if not gone]
    needs = None if word != UNDECIDED or None in open_ones else max(count for count in open_ones if count is not None)
    best = int(np.argmax([gap.mean for gap in hardest]))
    worst = hardest[best]
    told = f"best of {len(gaps)} settings, {labels[best]}: {worst.mean:+.4f} ± {worst.half_width:.4f}"
    told += f"; {would_decide(needs)}" if word == UNDECIDED else ""
    rule = f"{metric}: mean lead over every rival > 0 for some setting, Holm over {len(gaps)} settings"
    rule += f"; less than {least:g} is no lead" if least else ""
    return Verdict(text, word, told, PLACE, rule, needs)


def _grid(tried: Sequence[Tried]) -> Grid:
    rows = []
    for one in tried:
        leads = [f"{gap.mean:+.4f} ± {gap.half_width:.4f}" for metric in ASKED for gap in one.leads[metric]]
        turn = f"{np.mean(one.following):+.2f} ± {half_width(one.following):.2f}" if one.following else "–"
        stops = ", ".join(sorted(set(one.entry["stopped_by"])))
        rows.append([one.label, mean_sd(numbers(one.entry["mean_rx_scale"])),
                     mean_sd(numbers(one.entry["accuracy_at_eps"])), *leads, turn, stops])  # fmt: skip
    heads = [f"{METRICS[metric]} − {rival}" for metric in ASKED for rival in ("static", "fixed")]
    return Grid("settings of the controller", ("setting", "mean η", "acc@ε*", *heads, "η follows", "ended by"), rows)


def _panels(tried: Sequence[Tried]) -> list[Panel]:
    """Leads over the static rule beside the paper's, and how η follows the channel."""
    panels = [Panel(f"{METRICS[metric]}: controller − static", "", "difference", points=[
        Point(one.label, gap.mean, gap.mean - gap.half_width, gap.mean + gap.half_width, said if n == 0 else None)
        for n, one in enumerate(tried) for gap in one.leads[metric][:1] if gap.pairs > 1])
        for metric, (_, said) in ASKED.items()]  # fmt: skip
    turning = [point(one.label, one.following) for one in tried if one.following]
    return [*panels, Panel("η against the channel's badness", "", "rank correlation", points=turning)]
