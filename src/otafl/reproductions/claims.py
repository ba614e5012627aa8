"""Claims of a paper and how they are judged: every rule stands in the preset, before anything is measured.

A claim is decided by an interval over seeds, never by a mean alone, and its kind follows from its keys:

    better, than            ahead: the mean of better - than is above `margin`; without than, that of better alone
    better, than, within    comparable: the mean difference is within that of zero
    better, said, within    level: the paper's number is ours, as far as means over its seeds vary
    better, than, said, within   the same of a difference

Ahead and comparable hold if the whole 95 % t interval of the paired difference says so, and fail if all of it says the
opposite; a lead that is surely below `least`, as finely as the paper can be read, is none. A level fails if ours and
the paper's are further apart than means over n and over the paper's number of seeds vary, t s sqrt(1/n + 1/seeds), and
holds if they are not and that is at most `within`. Whatever is left is undecided, with the number of seeds that would
decide it were mean and spread to stay; None if no number of ours would. Of several rivals one that is ahead decides
alone.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field
from scipy import special

from otafl.core.errors import InputError
from otafl.core.files import FileModel
from otafl.core.interval import LEVEL
from otafl.reproductions.findings import FAILS, HOLDS, UNDECIDED, Verdict
from otafl.runs.comparing.statistics import Gap, fewest, paired, seeds_needed

MOST = 10_000  # seeds, beyond which their number is not told
ENDLESS = 10**9
FEW = "two seeds at least are needed to say how many would decide it"
Values = Mapping[Any, float]  # seed (or run and seed) -> value


class Claim(FileModel):
    """One claim, in the paper's words, and the rule by which it is judged."""

    text: str  # quoted
    place: str = ""  # in the paper
    better: str  # label of a scheme
    than: str | tuple[str, ...] = ()  # one label, or several: then the claim is about each
    metric: str = "accuracy"
    measure: Literal["last", "area", "rounds"] = "last"  # of a curve: its end, its mean over rounds, rounds to `target`
    target: float | None = None
    lower: bool = False  # smaller is better
    run: str | None = None  # of several
    margin: float = 0.0
    least: float = Field(0.0, ge=0)  # the smallest lead over the margin that counts
    within: float | None = None
    said: float | None = None
    seeds: int = 1  # of the paper's number
    printed: int | None = None  # decimals of `said` as printed, where it ends in zeros: two for 90 %
    digits: int = 4

    @property
    def rivals(self) -> list[str]:
        return rivals_of(self.than)

    def rule(self, metric: str) -> str:
        """What would make it hold."""
        what = metric if self.measure == "last" else {"area": f"mean {metric} over the rounds",
                                                      "rounds": f"rounds to {self.target}"}[self.measure]  # fmt: skip
        if self.said is not None:
            difference = "difference in " if self.rivals else ""
            seeds = f"{self.seeds} seed{'s' * (self.seeds > 1)}"
            return (f"{difference}{what}: {self.said:g} ({seeds}) as close to ours as such means vary, "
                    f"and that within {self.within:g}")  # fmt: skip
        if self.within is not None:
            return f"{what}: |mean difference| < {self.within:g}"
        mean = "mean difference" if self.rivals else "mean"
        none = f"; less than {self.least:g} is no lead" if self.least else ""
        return f"{what}: {mean} {'<' if self.lower else '>'} {self.margin:g}{none}"


def rivals_of(than: str | Sequence[str]) -> list[str]:
    return [than] if isinstance(than, str) else list(than)


class Part(NamedTuple):
    """What one comparison says."""

    verdict: str
    evidence: str
    needs: int | None = None  # seeds that would decide it
    fails: bool = False  # with so many seeds
    few: bool = False  # too few for a spread


def ahead(gap: Gap, margin: float = 0.0, least: float = 0.0) -> Part:
    """Whether the mean is above margin.

    >>> ahead(Gap(0.04, 0.01, 30)).verdict, ahead(Gap(0.01, 0.02, 10))[:3:2], ahead(Gap(-0.04, 0.01, 30)).verdict
    ('holds', ('undecided', 33), 'does not hold')
    >>> ahead(Gap(0.001, 0.002, 30), least=0.01).verdict, ahead(Gap(0.009, 0.002, 30), least=0.01).verdict
    ('does not hold', 'holds')
    """
    if gap.mean - margin > gap.half_width:
        return Part(HOLDS, "")
    if margin + least - gap.mean > gap.half_width:
        return Part(FAILS, "")
    above = seeds_needed(gap, ENDLESS, margin) if gap.mean > margin else None
    below = seeds_needed(gap, ENDLESS, margin + least) if gap.mean < margin + least else None
    fails = below is not None and (above is None or below < above)
    return Part(UNDECIDED, "", below if fails else above, fails, gap.pairs < 2)


def comparable(gap: Gap, within: float) -> Part:
    """Whether the mean is within that of zero.

    >>> comparable(Gap(0.001, 0.002, 30), 0.01).verdict, comparable(Gap(0.03, 0.01, 30), 0.01).verdict
    ('holds', 'does not hold')
    >>> comparable(Gap(0.008, 0.01, 10), 0.01)[:3:2]
    ('undecided', 191)
    """
    room = within - abs(gap.mean)
    if abs(room) > gap.half_width:
        return Part(HOLDS if room > 0 else FAILS, "")
    needs = seeds_needed(gap, ENDLESS, math.copysign(within, gap.mean))
    return Part(UNDECIDED, "", needs, room < 0, gap.pairs < 2)


def level(
    values: Sequence[float], said: float, seeds: int, within: float, digits: int = 4, printed: int | None = None
) -> Part:
    """Whether a printed mean over `seeds` seeds is ours.

    >>> level([0.79, 0.81, 0.80, 0.80], 0.806, 10, 0.02).verdict, level([0.79, 0.81, 0.80, 0.80], 0.9, 10, 0.02).verdict
    ('holds', 'does not hold')
    >>> level([0.7, 0.9, 0.8, 0.8], 0.806, 1, 0.02)[:3:2]  # one seed of the paper's leaves more than that
    ('undecided', None)
    """
    ours = np.asarray([value for value in values if math.isfinite(value)], float)
    if ours.size < 2:
        return Part(UNDECIDED, f"{ours.size} seeds", few=True)
    spread, gap = float(np.std(ours, ddof=1)), float(np.mean(ours)) - said

    def apart(count: int) -> float:
        """How far means over `count` and over the paper's seeds may be apart."""
        return float(special.stdtrit(count - 1, (1 + LEVEL) / 2)) * spread * math.sqrt(1 / count + 1 / seeds)

    def fails(count: int) -> bool:
        return abs(gap) > apart(count) + _rounding(said, printed)

    expected = apart(ours.size)
    text = (f"{np.mean(ours):.{digits}f} against {said:g}: {gap:+.{digits}f}, where ± {expected:.{digits}f} is "
            f"expected ({ours.size} seeds)")  # fmt: skip
    if fails(ours.size):
        return Part(FAILS, text)
    if expected <= within:
        return Part(HOLDS, text)
    needs = fewest(lambda count: apart(count) <= within or fails(count), ENDLESS)
    return Part(UNDECIDED, text, needs, needs is not None and fails(needs))


def _rounding(said: float, printed: int | None) -> float:
    """Half of the last printed digit."""
    _, _, decimals = f"{said:.12g}".partition(".")
    return float(0.5 * 10.0 ** -(len(decimals) if printed is None else printed))


def judge(claim: Claim, values: Callable[[str], Values], metric: str = "") -> Verdict:
    """One verdict; `values` gives the seeds of a label, and `metric` how to call what they measure."""
    parts = [_part(claim, values, rival) for rival in claim.rivals or [""]]
    return joined(claim.text, parts, claim.place, claim.rule(metric or claim.metric.replace("_", " ")))


def _part(claim: Claim, values: Callable[[str], Values], rival: str) -> Part:
    first = values(claim.better)
    second = values(rival) if rival else dict.fromkeys(first, 0.0)
    name, sign, unit = (f"{claim.better} − {rival}:", "+", "pairs") if rival else (claim.better, "", "seeds")
    if claim.said is not None:
        if claim.within is None:
            raise InputError(f"claim '{claim.text}': a level needs within")
        both = [first[key] - second[key] for key in first if key in second]
        part = level(both, claim.said, claim.seeds, claim.within, claim.digits, claim.printed)
        return part._replace(evidence=f"{name} {part.evidence}")
    gap = paired(first, second)
    width = f" ± {gap.half_width:.{claim.digits}f}" if math.isfinite(gap.half_width) else ""
    mean = f"{gap.mean:{sign}.{claim.digits}f}{width} " if gap.pairs else ""
    text = f"{name} {mean}({gap.pairs} {unit})"
    if claim.within is not None:
        return comparable(gap, claim.within)._replace(evidence=text)
    if claim.lower:
        return ahead(gap._replace(mean=-gap.mean), -claim.margin, claim.least)._replace(evidence=text)
    return ahead(gap, claim.margin, claim.least)._replace(evidence=text)


def joined(text: str, parts: Sequence[Part], place: str = "", rule: str = "") -> Verdict:
    """A claim with several parts holds if all do and fails if one does.

    Else it needs the seeds of the first part that would fail, or those of the slowest if none would.

    >>> joined("best", [Part("holds", "a"), Part("undecided", "b", 40)])[:3]
    ('best', 'undecided', 'a; b; about 40 seeds would decide it')
    >>> joined("best", [Part("undecided", "a", 90), Part("undecided", "b", 40, fails=True)]).needs
    40
    """
    words = [part.verdict for part in parts]
    evidence = "; ".join(part.evidence for part in parts if part.evidence)
    if FAILS in words or UNDECIDED not in words:
        return Verdict(text, FAILS if FAILS in words else HOLDS, evidence, place, rule)
    open_parts = [part for part in parts if part.verdict == UNDECIDED]
    lost = [part.needs for part in open_parts if part.fails and part.needs]
    all_of_them = [part.needs or math.inf for part in open_parts]
    needs = min(lost) if lost else None if math.inf in all_of_them else int(max(all_of_them))
    told = FEW if needs is None and any(part.few for part in open_parts) else would_decide(needs)
    return Verdict(text, UNDECIDED, f"{evidence}; {told}" if evidence else told, place, rule, needs)


def would_decide(needs: int | None) -> str:
    """How many seeds, in words.

    >>> would_decide(40), would_decide(56_000)
    ('about 40 seeds would decide it', 'more than 10,000 seeds would be needed to decide it')
    """
    if needs is None:
        return "no number of seeds of ours would decide it"
    many = f"more than {MOST:,} seeds would be needed to decide it"
    return many if needs > MOST else f"about {needs} seeds would decide it"


def fact(text: str, held: bool, evidence: str, place: str = "", rule: str = "") -> Verdict:
    """A claim without chance."""
    return Verdict(text, HOLDS if held else FAILS, evidence, place, rule)
