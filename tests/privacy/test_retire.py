"""Clients that retire at their own cap: the ledger never passes it, and nobody leaves a round too early."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otafl.core.errors import InputError
from otafl.core.plan import Events, Plan
from otafl.privacy import Budget, Ledger, Release
from otafl.privacy.events import pick
from otafl.privacy.retire import certified_where, retired, rounds_in

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


@pytest.mark.parametrize("short", [1e-4, -1e-4])
def test_a_round_that_renyis_cap_is_hardly_short_of_is_not_sent(short: float) -> None:
    one = np.ones((15, 1))
    even = Events(one, 0 * one, one > 0, one, one[:, 0], one[:, 0] > 0, one[0], one[0])
    ten = Ledger(Budget(np.inf, 1e-5, "rdp"), 1)
    ten.spend(pick(even, slice(10)))
    cap = float(ten.spent().worst) * (1 - short)
    assert rounds_in(Ledger(Budget(cap, 1e-5, "rdp"), 1), even).sum() == (9 if short > 0 else 10)


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


@pytest.mark.parametrize("accountant", ["zcdp", "rdp"])
def test_the_cap_is_on_all_that_the_ledger_counts(accountant: str) -> None:
    """Earlier rounds and releases, noise without that of colluders, and only rounds in which a client may send."""
    rng, budget = np.random.default_rng(1), Budget(6.0, 1e-5, accountant, "realised", colluders=(1,))
    events = run(40, 3, 4)._replace(possible=rng.random((40, 3)) < 0.5, live=np.arange(40) % 7 != 5)
    events = events._replace(amp=0.4 * events.amp, artificial_var=5 * events.artificial_var)

    def spent_before(cap: Budget) -> Ledger:
        ledger = Ledger(cap, 3)
        ledger.spend(pick(events, slice(4)))
        ledger.release(Release("a noisy count", 1.0, 2.0))
        return ledger

    inside = rounds_in(spent_before(budget), events)
    last = inside.sum(0)
    assert np.all((last > 0) & (last < events.live.sum()))
    assert np.array_equal(
        rounds_in(spent_before(replace(budget, eps=1e6)), events), events.live[:, None] & np.ones(3, bool)
    )
    spent_before(budget).spend(masked(events, inside, True))  # raises where any cap is passed
    for k in range(3):
        longer = inside.copy()
        sends = events.live & events.possible[:, k]
        longer[: np.flatnonzero(sends & ~inside[:, k])[0] + 1, k] = True
        uncapped = spent_before(replace(budget, eps=np.inf))
        uncapped.spend(masked(events, longer & events.live[:, None], True))
        assert uncapped.spent().eps[k] > 6.0


@pytest.mark.parametrize("accountant", ["zcdp", "rdp"])
def test_nobody_stays_for_noise_alone_once_a_client_has_retired(accountant: str) -> None:
    """The second client is never heard and never reaches a cap."""
    events = run(30, 2, 0)
    events = events._replace(amp=np.stack([np.ones(30), np.zeros(30)], 1))
    for eps, rounds in ((6.0, 0), (1e6, 30)):
        quiet = events._replace(amp=events.amp * (np.arange(30) < 28)[:, None])
        inside = rounds_in(Ledger(Budget(eps, 1e-5, accountant), 2), quiet)
        last = int(inside[:, 0].sum())
        assert (last == rounds if rounds else 0 < last < 28) and np.array_equal(inside[:, 0], inside[:, 1])


def test_noise_that_leaves_with_its_device_needs_costs_that_add():
    with pytest.raises(InputError, match="costs add"):
        rounds_in(Ledger(Budget(6.0, 1e-5, "pld"), 2), run(3, 2, 0), keep_noise=False)


def test_who_has_retired_sends_nothing_and_is_expected_to() -> None:
    ones, live = np.ones((3, 2)), np.ones(3, bool)
    plan = Plan(0.5 * ones, 0.1 * ones, 2 * ones, np.ones(3), 0.9 * ones, live)
    inside = np.array([[True, True], [False, True], [False, False]])
    for keep in (True, False):
        found = retired(plan, inside, keep)
        assert found.tx.tolist() == (0.5 * inside).tolist() and found.send_prob.tolist() == (0.9 * inside).tolist()
        assert found.max_norm.tolist() == np.where(inside, 2.0, -1.0).tolist()
        assert found.noise.tolist() == (0.1 * (ones if keep else inside)).tolist()
        assert found.live.tolist() == [True, True, False]


class Kept(NamedTuple):
    certified: Any


@pytest.mark.parametrize("xp", [np, jnp])
def test_who_would_have_been_silent_anyway_ends_no_certificate(xp: Any) -> None:
    """Of three rounds two are certified; the client who has retired is missed in the first alone."""
    one, sends = xp.ones((3, 2)), xp.asarray([[True, True], [True, False], [True, True]])
    wanted = Plan(sends * 1.0 + 0j, one + 0j, xp.where(sends, np.inf, -1.0), one[:, 0], 1.0 * sends, one[:, 0] > 0)
    played = retired(wanted, xp.asarray([[True, False]] * 3))
    info = certified_where(Kept(xp.asarray([True, True, False])), wanted, played)
    assert info.certified.tolist() == [False, True, False] and type(info.certified) is type(one)
    assert certified_where((), wanted, played) == ()
