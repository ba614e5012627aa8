"""Clients that retire at their own cap: the ledger never passes it, and nobody leaves a round too early."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otafl.core.errors import InputError
from otafl.core.plan import Events
from otafl.privacy import Budget, Ledger
from otafl.privacy.retire import rounds_in

ACCOUNTANTS = st.sampled_from(["zcdp", "gaussian"])


def run(rounds: int, clients: int, seed: int) -> Events:
    rng = np.random.default_rng(seed)
    shape = (rounds, clients)
    return Events(
        amp=rng.exponential(size=shape), artificial_var=rng.exponential(size=shape), possible=np.ones(shape, bool),
        send_prob=np.ones(shape), receiver_var=rng.uniform(0.5, 2, rounds), live=np.ones(rounds, bool),
        rate=np.ones(clients), sensitivity=np.full(clients, 1.5),
    )  # fmt: skip


def masked(events: Events, inside: np.ndarray, keep_noise: bool) -> Events:
    noise = events.artificial_var if keep_noise else np.where(inside, events.artificial_var, 0.0)
    return events._replace(amp=np.where(inside, events.amp, 0.0), artificial_var=noise, live=inside.any(1))


@pytest.mark.parametrize("short", [1e-4, -1e-4])
def test_a_round_that_a_cap_is_hardly_short_of_is_not_sent(short: float) -> None:
    budget, one = Budget(6.0, 1e-5), np.ones((15, 1))
    amp = one * np.sqrt(2 * budget.zcdp / 10 * (1 + short))
    even = Events(amp, 0 * one, one > 0, one, one[:, 0], one[:, 0] > 0, one[0], one[0])
    assert rounds_in(Ledger(budget, 1), even).sum() == (9 if short > 0 else 10)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 2**31), st.booleans(), ACCOUNTANTS)
def test_every_client_stays_within_its_own_cap_and_leaves_no_round_too_early(rounds, clients, seed, keep, accountant):
    events, budget = run(rounds, clients, seed), Budget(6.0, 1e-5, accountant)
    inside = rounds_in(Ledger(budget, clients), events, keep)
    assert np.all(np.diff(inside.astype(int), axis=0) <= 0)  # out for good
    ledger = Ledger(budget, clients)
    ledger.spend(masked(events, inside, keep))  # raises where any cap is passed
    assert np.all(ledger.spent().eps <= 6.0)
    if keep:  # one round more would pass the cap of whoever left
        for k in range(clients):
            last = int(inside[:, k].sum())
            if last < rounds:
                longer = inside.copy()
                longer[: last + 1, k] = True
                costs = Ledger(Budget(np.inf, 1e-5, accountant), clients)
                costs.spend(masked(events, longer, True))
                assert costs.spent().eps[k] > 6.0 * (1 - 1e-9)


@pytest.mark.parametrize(("accountant", "rate"), [("rdp", 1.0), ("rdp", 0.3), ("pld", 0.5)])
def test_accountants_whose_costs_do_not_add_count_the_rounds_of_each_client(accountant, rate):
    """Each client's last round against a search, client by client, with a ledger of its own."""
    events = run(9, 3, 4)._replace(rate=np.full(3, rate))
    events = events._replace(amp=0.7 * events.amp)
    budget = Budget(5.0, 1e-5, accountant)
    inside = rounds_in(Ledger(budget, 3), events)
    counts = inside.sum(0)
    assert np.all(np.diff(inside.astype(int), axis=0) <= 0) and len(set(counts)) > 1 and np.any(counts < 9)
    for k, count in enumerate(counts):
        for rounds, fits in ((count, True), (count + 1, False)):
            alone = np.zeros((9, 3), bool)
            alone[:rounds, k] = True
            if rounds <= 9:
                assert (Ledger(budget, 3, [masked(events, alone, True)]).spent().eps[k] <= 5.0) == fits
    ledger = Ledger(budget, 3)
    charged = masked(events, inside, True)
    assert np.array_equal(ledger.affordable(charged), charged.live)
    ledger.spend(charged)


def test_noise_that_leaves_with_its_device_needs_costs_that_add():
    with pytest.raises(InputError, match="costs add"):
        rounds_in(Ledger(Budget(6.0, 1e-5, "pld"), 2), run(3, 2, 0), keep_noise=False)
