"""One exact sum per client: the eps of a ledger that keeps every round, to the bit, whatever the blocks."""

import json
import math
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otafl.core.errors import BudgetExceeded, InputError
from otafl.core.plan import Events, Message
from otafl.privacy import Budget, Ledger, Release, attack_success, make_card
from otafl.privacy import accountants as table
from otafl.privacy.events import pick
from otafl.privacy.sums import grown, no_rounds

Make = Callable[..., Events]
ADDITIVE = ("zcdp", "zcdp-optimal", "gaussian")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.floats(0, 1e100), min_size=2, max_size=2), min_size=1, max_size=30))
def test_terms_add_up_exactly(rows: list[list[float]]) -> None:
    terms = np.zeros((1, 2))
    for row in rows:
        terms = grown(terms, np.array(row))
    for k in range(2):
        assert sum(map(Fraction, terms[:, k].tolist())) == sum(Fraction(row[k]) for row in rows)


def test_costs_of_one_magnitude_need_two_terms(make_events: Make) -> None:
    run = make_events(np.random.default_rng(0).uniform(1, 30, (200, 50)))
    assert len(no_rounds(run.rate, run.sensitivity).add(run).terms) == 2


def both(run: Events, budget: Budget, releases: tuple[Release, ...] = (), at: tuple[int, ...] = ()) -> list[Ledger]:
    """The same run in a ledger of rounds and in one of sums that came in blocks."""
    whole, summed = Ledger(budget, run.amp.shape[1]), Ledger(budget, run.amp.shape[1])
    whole.spend(run, releases)
    sums = summed.opening(run.rate, run.sensitivity)
    for first, stop in pairwise([0, *at, len(run.live)]):
        sums = sums.add(pick(run, slice(first, stop)), budget.accounting)
    summed.charge(sums, releases)
    return [whole, summed]


@pytest.mark.parametrize("name", ADDITIVE)
@pytest.mark.parametrize("at", [(), (1, 2, 3), (17,)])
def test_the_eps_of_sums_is_the_eps_of_rounds_to_the_bit(make_events: Make, name: str, at: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    run = make_events(rng.uniform(2, 300, (40, 6)), live=np.arange(40) < 37)
    whole, summed = both(run, Budget(np.inf, 1e-5, name), (Release("reward", rng.random(6), 3.0),), at)
    np.testing.assert_array_equal(summed.zcdp(), whole.zcdp())
    for accountant in ADDITIVE:
        np.testing.assert_array_equal(summed.spent(accountant).eps, whole.spent(accountant).eps)
    np.testing.assert_allclose(summed.spent("rdp").eps, whole.spent("rdp").eps, rtol=1e-12)
    assert summed.rounds() == whole.rounds() == 37 and summed.guarantee() == whole.guarantee()
    np.testing.assert_allclose(attack_success(summed).mu, attack_success(whole).mu, rtol=1e-14)


def test_blocks_do_not_change_a_byte_and_a_file_reads_back(make_events: Make) -> None:
    run = make_events(np.random.default_rng(4).uniform(2, 300, (30, 5)))
    files = [both(run, Budget(8.0, 1e-5), at=at)[1].to_bytes() for at in [(), (7, 8), tuple(range(1, 30))]]
    assert files[0] == files[1] == files[2]
    again = Ledger.from_bytes(files[0])
    assert again.to_bytes() == files[0] and json.loads(files[0].split(b"\n")[0])["format"] == "otafl-ledger-3"


def test_rounds_that_become_sums_leave_out_the_noise_of_colluders(make_events: Make) -> None:
    run = make_events(np.full((3, 2), 2.0))._replace(artificial_var=np.ones((3, 2)))
    ledger = Ledger(Budget(np.inf, 1e-5, colluders=(0,)), 2)
    ledger.spend(run)
    np.testing.assert_array_equal(ledger.opening(run.rate, run.sensitivity).zcdp(), ledger.zcdp())
    np.testing.assert_allclose(ledger.zcdp(), 3 * 0.5**2 / (2 * (1 + 1)))  # receiver, and client 1


def test_a_message_that_once_arrived_bare_is_never_covered_again(make_events: Make) -> None:
    run = make_events(np.full((3, 2), 2.0))
    run = run._replace(receiver_var=np.array([0.0, 1.0, 1.0]), amp=run.amp * [[0, 1], [1, 1], [1, 1]])
    np.testing.assert_array_equal(no_rounds(run.rate, run.sensitivity).add(run).zcdp(), [0.25, np.inf])


def test_the_cap_holds_for_sums_as_for_rounds(make_events: Make) -> None:
    budget = Budget(1.0, 1e-5)
    cost = budget.zcdp / 10
    run = make_events(np.full((11, 2), math.sqrt(1 / (2 * cost))))
    fit = int(Ledger(budget, 2).affordable(run).sum())
    both(pick(run, slice(fit)), budget)
    over = no_rounds(run.rate, run.sensitivity).add(pick(run, slice(fit + 1)))
    with pytest.raises(BudgetExceeded, match=f"{fit + 1} rounds would pass"):
        Ledger(budget, 2).charge(over)


def test_a_run_goes_on_from_the_sums_of_an_earlier_one(make_events: Make) -> None:
    run = make_events(np.random.default_rng(5).uniform(5, 30, (20, 3)))
    whole, _ = both(run, Budget(50.0, 1e-5))
    _, first = both(pick(run, slice(12)), Budget(50.0, 1e-5))
    by_rounds = Ledger.from_bytes(first.to_bytes())
    by_rounds.spend(pick(run, slice(12, 20)))
    np.testing.assert_array_equal(by_rounds.zcdp(), whole.zcdp())
    assert by_rounds.spent().worst == whole.spent().worst and by_rounds.rounds() == 20
    first.charge(first.opening(run.rate, run.sensitivity).add(pick(run, slice(12, 20))))
    np.testing.assert_array_equal(first.zcdp(), whole.zcdp())


@pytest.mark.parametrize("kept", ["rounds", "sums"])
def test_sums_that_forget_what_was_spent_are_refused(make_events: Make, kept: str) -> None:
    """They took the place of all rounds before them: eps fell."""
    run = make_events(np.full((20, 2), 8.0))
    ledger = Ledger(Budget(50.0, 1e-5), 2)
    if kept == "rounds":
        ledger.spend(run)
    else:
        ledger.charge(no_rounds(run.rate, run.sensitivity).add(run))
    spent = ledger.worst()
    with pytest.raises(InputError, match="do not hold what the ledger has spent before"):
        ledger.charge(no_rounds(run.rate, run.sensitivity).add(pick(run, slice(12))))
    assert ledger.worst() == spent and ledger.rounds() == 20


def test_accountants_that_need_rounds_say_so(make_events: Make) -> None:
    run = make_events(np.full((4, 2), 5.0), rate=0.5)
    _, summed = both(run, Budget(50.0, 1e-5, "gaussian"))
    for name in ("pld", "rdp"):
        with pytest.raises(InputError, match=f"{name}.*needs every round"):
            summed.spent(name)
    assert "no amplification" in summed.spent().notes[0] and attack_success(summed).mu is None
    with pytest.raises(InputError, match="'rdp' needs every round"):
        Ledger(Budget(50.0, 1e-5, "rdp"), 2).charge(no_rounds(run.rate, run.sensitivity))


def test_a_message_without_noise_costs_everything(make_events: Make) -> None:
    run = make_events(np.full((2, 2), 5.0))._replace(receiver_var=np.zeros(2))
    _, summed = both(run, Budget(np.inf, 1e-5))
    assert summed.spent().worst == np.inf and not summed.spent().certified
    with pytest.raises(BudgetExceeded):
        Ledger(Budget(8.0, 1e-5), 2).charge(no_rounds(run.rate, run.sensitivity).add(run))


def test_a_card_of_sums_has_quantiles_and_the_same_guarantee(make_events: Make) -> None:
    run = make_events(np.random.default_rng(6).uniform(5, 300, (10, 200)))
    message = Message(4, 1.0, np.ones(200), np.ones(200), np.ones(200), "client", "replace")
    cards = [make_card(ledger, message) for ledger in both(run, Budget(8.0, 1e-9, adjacency="replace"))]
    whole, summed = (card.to_dict() for card in cards)
    assert summed["guarantee"] == whole["guarantee"] and summed["identity"] == whole["identity"]
    assert summed["assumptions"] == whole["assumptions"] and summed["trusted_noise"] == whole["trusted_noise"]
    eps = whole["spent"][0]["eps"]
    assert "eps" not in summed["spent"][0] and summed["spent"][0]["eps_quantiles"]["1"] == max(eps)
    assert summed["spent"][0]["eps_quantiles"]["0.5"] == np.quantile(eps, 0.5, method="higher")


def test_many_different_totals_are_rounded_up_and_the_worst_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    rho = np.random.default_rng(7).uniform(0.01, 2.0, 1000)
    exact = table.spend_of_sums("gaussian", rho, False, 1e-5, "none")
    monkeypatch.setattr(table, "LEVELS", 50)
    levels = table.spend_of_sums("gaussian", rho, False, 1e-5, "none")
    assert levels.worst == exact.worst and np.unique(levels.eps).size == 50
    assert np.all(levels.eps >= exact.eps)
