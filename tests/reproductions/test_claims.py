"""Claims are decided by intervals: checked against what many repetitions of an experiment with known means say."""

import numpy as np
import pytest
from scipy import stats

from otafl.core.errors import InputError
from otafl.reproductions import claims
from otafl.reproductions.claims import Claim, Part
from otafl.reproductions.curves import area, rounds_to
from otafl.runs.comparing.statistics import paired

RANDOM = np.random.default_rng(7)


def words(kind: dict[str, object], shift: float, pairs: int, repeats: int = 400) -> dict[str, float]:
    """Share of each verdict where the difference is normal with this mean and unit deviation."""
    claim = Claim(text="t", better="a", **kind)
    said = []
    for _ in range(repeats):
        a = dict(enumerate(RANDOM.normal(shift, 1, pairs)))
        said.append(claims.judge(claim, {"a": a, "b": dict.fromkeys(a, 0.0)}.__getitem__).verdict)
    return {word: said.count(word) / repeats for word in set(said)}


@pytest.mark.parametrize("kind", [{"than": "b"}, {"than": "b", "margin": 0.0}, {"than": ["b"]}])
def test_no_difference_is_called_one_in_a_twentieth_of_cases(kind: dict[str, object]):
    found = words(kind, 0.0, 10)
    assert found["undecided"] == pytest.approx(0.95, abs=0.035)


def test_the_promised_number_of_seeds_decides():
    """A lead of 0.3 deviations: with the seeds asked for, half of all repetitions decide, and none the wrong way."""
    needs = claims.ahead(claims.Gap(0.3, stats.t.ppf(0.975, 9) / np.sqrt(10), 10)).needs
    assert needs is not None and 40 < needs < 50
    found = words({"than": "b"}, 0.3, needs)
    assert 0.4 < found["holds"] < 0.6 and found.get("does not hold", 0) < 0.01


def test_a_rival_that_is_ahead_decides_alone():
    """One rival ahead by 0.3 deviations, one behind by 0.03: the seeds of the first are asked for, and decide."""
    values = {"a": dict(enumerate(stats.norm.ppf((np.arange(10) + 0.5) / 10)))}
    values |= {"b": {n: 2 * v + 0.3 for n, v in values["a"].items()}, "c": {n: -0.03 for n in values["a"]}}
    claim = Claim(text="t", better="a", than=["b", "c"])
    needs = claims.judge(claim, values.__getitem__).needs
    assert needs is not None and 30 < needs < 50
    decided = 0
    for _ in range(400):
        a, off = RANDOM.normal(0, 0.94, (2, needs))
        drawn = {"a": a, "b": a + 0.3 + off, "c": a * 0 - 0.03}
        drawn = {label: dict(enumerate(one)) for label, one in drawn.items()}
        decided += claims.judge(claim, drawn.__getitem__).verdict == "does not hold"
    assert 0.4 < decided / 400 < 0.65


def test_thousands_of_seeds_are_not_none():
    """0.97 ± 0.19 where 1 is the limit: more seeds than are told, but not no number."""
    part = claims.comparable(claims.Gap(0.97, 0.19, 1400), 1.0)
    assert part.needs is not None and part.needs == pytest.approx(1400 * (0.19 / 0.03) ** 2, rel=0.01)
    assert "more than 10,000 seeds" in claims.joined("t", [part]).evidence


def test_a_level_that_lies_off_is_lost_before_it_could_be_pinned_down():
    values = stats.norm.ppf((np.arange(8) + 0.5) / 8)
    part = claims.level(list(values), 0.7, 100, 0.05)
    assert part.verdict == "undecided" and part.needs is not None and part.fails
    more = stats.norm.ppf((np.arange(part.needs) + 0.5) / part.needs) * np.std(values, ddof=1)
    assert claims.level(list(more), 0.7, 100, 0.05).verdict == "does not hold"


def test_comparable_needs_the_whole_interval():
    assert words({"than": "b", "within": 1.0}, 0.0, 30)["holds"] > 0.95
    assert words({"than": "b", "within": 0.2}, 2.0, 30) == {"does not hold": 1.0}
    assert words({"than": "b", "within": 0.2}, 0.0, 10).get("undecided", 0) > 0.9


def test_a_printed_mean_is_ours_in_ninety_five_of_a_hundred_cases():
    """The paper's number is itself a mean over ten seeds of the same experiment."""
    held = [claims.level(RANDOM.normal(0, 1, 30).tolist(), float(RANDOM.normal(0, 1, 10).mean()), 10, 5.0).verdict
            for _ in range(600)]  # fmt: skip
    assert held.count("holds") / 600 == pytest.approx(0.95, abs=0.03)


def test_a_single_run_of_a_noisy_experiment_cannot_be_judged_by_any_number_of_seeds():
    found = claims.level(RANDOM.normal(90, 8, 30).tolist(), 94.56, 1, 1.0)
    assert found.verdict == "undecided" and found.needs is None
    assert "no number of seeds of ours" in claims.joined("t", [found]).evidence


@pytest.mark.parametrize("kind", [{"than": "b"}, {"than": "b", "within": 1.0}, {"said": 1.0, "within": 1.0}])
@pytest.mark.parametrize("pairs", [0, 1])
def test_less_than_two_seeds_do_not_say_that_no_number_would_do(kind: dict[str, object], pairs: int):
    values = {label: dict(enumerate([0.5] * pairs)) for label in "ab"}
    evidence = claims.judge(Claim(text="t", better="a", **kind), values.__getitem__).evidence
    assert evidence.endswith(claims.FEW) and "no number" not in evidence and "nan" not in evidence


def test_one_failing_part_fails_the_claim_and_one_open_part_opens_it():
    holds, fails, opened = Part("holds", "a"), Part("does not hold", "b"), Part("undecided", "c", 12)
    assert claims.joined("t", [holds, fails, opened]).verdict == "does not hold"
    assert claims.joined("t", [holds, opened]).needs == 12
    assert claims.joined("t", [opened, opened._replace(needs=None)]).needs is None


def test_fewer_is_better_where_the_claim_says_so():
    values = {"a": {0: 1.0, 1: 1.1, 2: 0.9}, "b": {0: 2.0, 1: 2.2, 2: 1.9}}
    assert claims.judge(Claim(text="t", better="a", than="b", lower=True), values.__getitem__).verdict == "holds"
    assert claims.judge(Claim(text="t", better="a", than="b"), values.__getitem__).verdict == "does not hold"


def test_a_claim_without_a_rule_is_refused():
    with pytest.raises(InputError, match="a level needs within"):
        claims.judge(Claim(text="t", better="a", said=1.0), {"a": {0: 1.0}}.__getitem__)


def test_a_mean_is_held_against_a_margin():
    values = {"a": {0: 501.0, 1: 502.0, 2: 503.0}}
    above = Claim(text="t", better="a", margin=499.0)
    assert claims.judge(above, values.__getitem__).verdict == "holds"
    assert claims.judge(above.model_copy(update={"lower": True}), values.__getitem__).verdict == "does not hold"


def test_speed_of_a_curve():
    rounds, values = np.array([0, 10, 20]), np.array([0.0, 0.5, 0.6])
    claim = Claim(text="t", better="a", measure="rounds", target=0.5)
    assert rounds_to(rounds, values, claim) == 10
    assert rounds_to(rounds, values, claim.model_copy(update={"target": 0.7})) == np.inf
    assert area(rounds, values, 40) == pytest.approx((2.5 + 5.5 + 12) / 40)


def test_a_printed_zero_counts_as_a_digit():
    """90 % says 0.895 to 0.905; the number 0.9 alone would leave room to 0.95."""
    ours = [0.946, 0.947, 0.948, 0.947]
    assert claims.level(ours, 0.9, 3, 0.02, printed=2).verdict == "does not hold"
    assert claims.level(ours, 0.9, 3, 0.02).verdict == "holds"


def covered(values: np.ndarray, truth: float) -> np.ndarray:
    """Whether the interval that `ahead` looks at holds the truth, row by row."""
    gaps = [paired(dict(enumerate(row)), dict.fromkeys(range(len(row)), 0.0)) for row in values - truth]
    return np.array([claims.ahead(gap).verdict == "undecided" for gap in gaps])


def test_a_second_look_keeps_its_interval_on_fresh_seeds_and_not_together_with_the_first():
    """6,000 studies, four standard errors: what the page of results says about seeds that were added."""
    rng, truth, studies = np.random.default_rng(3), 0.7, 6000
    first, fresh = rng.normal(truth, 1, (2, studies, 20))
    again = covered(first, 0.0)  # undecided: zero is within the interval
    alone, together = covered(fresh[again], truth), covered(np.hstack([first, fresh])[again], truth)
    error = 4 * np.sqrt(0.05 * 0.95 / again.sum())
    assert abs(alone.mean() - 0.95) < error and together.mean() < 0.95 - error
    decided = ~covered(first, truth) | ~covered(fresh, truth)  # wrongly, where the truth lies on the margin
    assert abs(decided.mean() - 0.0975) < 4 * np.sqrt(0.0975 * 0.9025 / studies)


def test_a_lead_below_what_can_be_read_is_none():
    """Neither a hundredth of a deviation nor none is a lead of one; one that is surely above zero stays one."""
    small = {"than": "b", "least": 1.0}
    assert words(small, 0.01, 100).get("does not hold", 0) > 0.9
    assert words(small, 0.5, 100).get("holds", 0) > 0.95
    assert words(small, 0.0, 100).get("holds", 0) < 0.06
    part = claims.ahead(claims.Gap(0.1, 2.0, 10), least=1.0)
    assert part.verdict == "undecided" and part.fails and part.needs is not None and 20 < part.needs < 60
