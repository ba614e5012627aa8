"""Tables and summaries against slow, plain versions."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otafl.core.plan import Events
from otafl.privacy import Budget, Ledger, Release, eps_curve
from otafl.privacy.events import pick
from otafl.runs.folder.results import Devices, Evaluations, Rounds, summarise, value_at_eps

FINITE = st.floats(0.01, 10, allow_nan=False)


def made_events(rounds: int, clients: int, seed: int) -> Events:
    rng = np.random.default_rng(seed)
    shape = (rounds, clients)
    live = np.arange(rounds) < rng.integers(1, rounds + 1)
    return Events(
        amp=rng.uniform(0.1, 1, shape),
        artificial_var=rng.uniform(0, 0.1, shape),
        possible=rng.random(shape) < 0.8,
        send_prob=rng.uniform(0.1, 1, shape),
        receiver_var=rng.uniform(0.5, 1, rounds),
        live=live,
        rate=np.ones(clients),
        sensitivity=rng.uniform(0.1, 1, clients),
    )


def test_the_curve_of_pld_ends_where_its_ledger_ends() -> None:
    """It used to be Renyi's to the end, so that a run within its target seemed to pass it."""
    events = made_events(6, 3, 5)._replace(rate=np.full(3, 0.2))
    budget = Budget(np.inf, 1e-5, "pld")
    curve = eps_curve(events, np.array([2, 6]), budget)
    ledger = Ledger(budget, 3)
    ledger.spend(events)
    assert curve[-1] == pytest.approx(float(ledger.spent().worst), rel=1e-9)
    assert curve[0] <= curve[-1] <= eps_curve(events, np.array([6]), Budget(np.inf, 1e-5, "rdp"))[0]


def test_the_curve_of_many_noise_levels_ends_where_its_ledger_ends() -> None:
    """More than are integrated one by one: chords lie above the curve, and those of the parts a little lower."""
    events = made_events(80, 40, 5)._replace(
        rate=np.full(40, 0.2), live=np.ones(80, bool), possible=np.ones((80, 40), bool)
    )
    budget = Budget(np.inf, 1e-5, "rdp")
    curve, ledger = eps_curve(events, np.arange(8, 81, 8), budget), Ledger(budget, 40)
    ledger.spend(events)
    assert curve[-1] == float(ledger.spent().worst) and np.all(np.diff(curve) >= 0)


def test_the_curve_at_one_renyi_order_ends_where_its_ledger_ends() -> None:
    """It used to end with the best of all orders: less than the ledger counts, so that the run was called damaged."""
    budget, events = Budget(np.inf, 1e-5, "rdp", order=4.0), made_events(6, 3, 5)
    curve, ledger = eps_curve(events, np.array([2, 6]), budget), Ledger(budget, 3)
    ledger.spend(events)
    assert curve[-1] == ledger.worst() and curve[0] <= curve[-1]


@pytest.mark.parametrize("accountant", ["zcdp", "gaussian", "rdp", "pld"])
def test_the_curve_counts_what_an_earlier_run_has_spent(accountant: str) -> None:
    budget, events = Budget(np.inf, 1e-5, accountant), made_events(6, 3, 5)
    before, ledger = Ledger(budget, 3), Ledger(budget, 3)
    for one in (before, ledger):
        one.spend(made_events(4, 3, 7)._replace(sensitivity=events.sensitivity))
        one.release(Release("a noisy count", 1.0, 2.0))
    ledger.spend(events)
    curve = eps_curve(events, np.array([0, 6]), budget, before=before)
    assert curve[1] == pytest.approx(float(ledger.spent().worst), rel=1e-9) and curve[1] > curve[0] > 0


@pytest.mark.parametrize("accountant", ["zcdp", "zcdp-optimal", "gaussian", "rdp"])
@pytest.mark.parametrize("accounting", ["none", "realised"])
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_eps_curve_is_the_ledger_after_each_evaluation(accountant: str, accounting: str, seed: int) -> None:
    events = made_events(6, 3, seed)
    budget = Budget(np.inf, 1e-5, accountant, accounting)
    rounds = np.array([1, 2, 4, 6])
    curve = eps_curve(events, rounds, budget)
    for after, eps in zip(rounds, curve):
        ledger = Ledger(budget, 3)
        ledger.spend(pick(events, slice(int(after))))
        assert eps == pytest.approx(float(ledger.spent().worst), rel=1e-9)
    assert np.all(np.diff(curve) >= 0)


def naive_value_at_eps(rounds: list[int], eps: list[float], value: list[float], target: float, every: int) -> float:
    """Walk along the curve; the first segment that reaches the target is interpolated."""
    if eps[0] > target:
        return math.nan
    for n in range(1, len(eps)):
        if eps[n - 1] <= target <= eps[n]:
            share = (target - eps[n - 1]) / (eps[n] - eps[n - 1])
            return value[n - 1] + share * (value[n] - value[n - 1])
    if eps[-1] == target:
        return value[-1]
    last = (eps[-1] - eps[-2]) / (rounds[-1] - rounds[-2]) if len(eps) > 1 else eps[-1] / rounds[-1]
    return value[-1] if math.isfinite(target) and eps[-1] + last * every >= target else math.nan


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 20), FINITE, FINITE), min_size=1, max_size=6),
    st.floats(0.01, 40),
    st.integers(1, 20),
)
def test_value_at_eps_is_the_walk_along_the_curve(
    points: list[tuple[int, float, float]], target: float, every: int
) -> None:
    rounds, eps = np.cumsum([p[0] for p in points]), np.cumsum([p[1] for p in points])
    value = np.array([p[2] for p in points])
    expected = naive_value_at_eps(rounds.tolist(), eps.tolist(), value.tolist(), target, every)
    got, reached = value_at_eps(rounds, eps, value, target, every)
    assert got == pytest.approx(expected, nan_ok=True, rel=1e-9)
    assert reached == (eps[-1] >= target)


def test_no_target_has_no_value_at_it() -> None:
    got, reached = value_at_eps(np.array([10, 20]), np.array([1.0, 2.0]), np.array([0.5, 0.6]), np.inf, 10)
    assert math.isnan(got)
    assert not reached


def test_summarise_is_a_loop_over_seeds() -> None:
    rng = np.random.default_rng(0)
    seeds, evaluations, rounds, clients = [7, 3], 4, 8, 3
    none = np.zeros(0)
    e = Evaluations(
        seed=np.repeat(seeds, evaluations),
        round=np.tile([2, 4, 6, 8], 2),
        score=rng.random(8),
        worst_client=rng.random(8),
        loss=rng.random(8),
        penalty=np.zeros(8),
        eps=np.concatenate([np.cumsum(rng.random(4)) for _ in seeds]),
    )
    r = Rounds(*[none] * 11, info={})._replace(
        seed=np.repeat(seeds, rounds), round=np.tile(np.arange(rounds), 2), rx_scale=rng.random(16),
        sent_weight=rng.random(16), energy_share=np.tile([1.0, 0.5], 8),
    )  # fmt: skip
    d = Devices(*[none] * 9)._replace(seed=np.repeat(seeds, rounds * clients), energy=rng.random(48))
    got = summarise(e, r, d, 1.0, 2)
    assert got["seeds"] == [7, 3]
    for place, seed in enumerate(got["seeds"]):
        kept = (column[e.seed == seed].tolist() for column in e)
        mine: dict[str, Any] = dict(zip(e._fields, kept))
        own = [n for n in range(16) if r.seed[n] == seed]
        expected = {
            "final_accuracy": mine["score"][-1],
            "best_accuracy": max(mine["score"]),
            "worst_client": mine["worst_client"][-1],
            "final_loss": mine["loss"][-1],
            "final_eps": mine["eps"][-1],
            "rounds": 8,
            "mean_rx_scale": sum(r.rx_scale[n] for n in own) / 8,
            "silent_weight": 1 - sum(r.sent_weight[n] for n in own) / 8,
            "accuracy_at_eps": naive_value_at_eps(mine["round"], mine["eps"], mine["score"], 1.0, 2),
            "worst_client_at_eps": naive_value_at_eps(mine["round"], mine["eps"], mine["worst_client"], 1.0, 2),
            "full_power": 0.5,
            "energy_per_round": sum(v for v, s in zip(d.energy, d.seed) if s == seed) / 24,
        }
        for name, value in expected.items():
            assert got[name][place] == pytest.approx(value, nan_ok=True), name
