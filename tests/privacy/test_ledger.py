import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import dp_accounting
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archives import harmed
from otafl.core.errors import BudgetExceeded, InputError
from otafl.privacy import ACCOUNTANTS, Budget, Ledger, Release, account, export, horizon, pld_eps, rdp_to_eps
from otafl.privacy.events import pick
from otafl.privacy.ledger import PLANNING_MARGIN

ADDITIVE = sorted(name for name, entry in ACCOUNTANTS.items() if entry.additive)
ALL = [*ADDITIVE, "rdp", "pld"]


def cut(run, *at):
    edges = [0, *at, len(run.live)]
    return [run._replace(**{n: getattr(run, n)[a:b] for n in run._fields[:6]}) for a, b in pairwise(edges)]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), eps=st.floats(0.3, 50), name=st.sampled_from([*ADDITIVE, "rdp"]))
def test_no_sequence_of_requests_passes_the_cap(make_events, seed, eps, name):
    rng = np.random.default_rng(seed)
    ledger = Ledger(Budget(eps, 1e-5, name), clients=3)
    for _ in range(12):
        run = make_events(rng.uniform(1, 30, (int(rng.integers(1, 5)), 3)))
        try:
            if rng.random() < 0.2:
                ledger.release(Release("extra", float(rng.random()), 5.0, int(rng.integers(1, 4))))
            else:
                ledger.spend(run)
        except BudgetExceeded:
            pass
    assert ledger.spent().worst <= eps * (1 + 1e-9)
    if name in ADDITIVE:
        assert np.all(ledger.zcdp() <= ledger.budget.zcdp)
        assert np.all(ledger.zcdp_left() >= 0)


@settings(max_examples=60, deadline=None)
@given(st.floats(0.3, 300), st.floats(0.5, 20), st.sampled_from(ADDITIVE), st.integers(1, 40))
def test_exactly_the_horizon_fits_and_the_next_round_is_refused(make_events, eps, z, name, chunk):
    budget = Budget(eps, 1e-5, name)
    cost = float((1 / z) ** 2) / 2
    rounds = horizon(budget.zcdp, cost)
    if not 0 < rounds < 3000:
        return
    run = make_events(np.full((rounds, 1), z))
    ledger = Ledger(budget, clients=1)
    for part in cut(run, *range(chunk, rounds, max(chunk, rounds // 5))):
        ledger.spend(part)
    assert ledger.rounds() == rounds
    with pytest.raises(BudgetExceeded, match=f"round {rounds + 1} "):
        ledger.spend(make_events([[z]]))
    assert ledger.rounds() == rounds


def test_published_horizons(make_events):
    """CARES E2: 356 rounds at 0.40 by the classic conversion, 369 by the exact curve."""
    z = 0.05 / (2 * 0.40 * 0.09)
    run = make_events(np.full((400, 1), z))
    assert Ledger(Budget(500.0, 1e-5), 1).affordable(run).sum() == 356
    assert Ledger(Budget(500.0, 1e-5, "gaussian"), 1).affordable(run).sum() == 369


@pytest.mark.parametrize("rounds", [1, 7, 100, 600, 601])
@pytest.mark.parametrize("weight", [0.0721, 0.09, 0.128])
def test_noise_made_for_a_horizon_affords_it(make_events, rounds, weight):
    """CARES check 13: s = Delta sqrt(T/(2 budget)) (1 + 1e-12) fits exactly T rounds."""
    budget = Budget(500.0, 1e-5)
    sensitivity = 2 * weight
    std = sensitivity * math.sqrt(rounds / (2 * budget.zcdp)) * (1 + 1e-12)
    ledger = Ledger(budget, 1)
    assert ledger.affordable(make_events(np.full((rounds + 5, 1), std / sensitivity))).sum() == rounds
    ledger.spend(make_events(np.full((rounds, 1), std / sensitivity)))
    assert ledger.spent().worst <= 500.0


@pytest.mark.parametrize("name", ALL)
def test_affordable_is_what_can_be_spent(make_events, name):
    z = np.random.default_rng(8).uniform(2, 6, (40, 3))
    run = make_events(z)
    ledger = Ledger(Budget(4.0, 1e-5, name), clients=3)
    live = ledger.affordable(run)
    fit = int(live.sum())
    assert 0 < fit < 40
    assert np.all(live[:fit])
    ledger.spend(run._replace(live=live))
    assert ledger.spent().worst <= 4.0
    assert ledger.rounds() == fit
    with pytest.raises(BudgetExceeded):
        ledger.spend(cut(run, fit, fit + 1)[1])
    assert not ledger.affordable(cut(run, fit)[1]).any()


@pytest.mark.parametrize(
    ("name", "adjacency", "rate"),
    [*((name, "zero-out", 1.0) for name in ALL), ("rdp", "replace", 0.3), ("pld", "zero-out", 0.3)],
)
def test_a_run_is_cut_where_its_own_account_passes_the_cap(make_events, name, adjacency, rate):
    """Counted by the accountant alone, told who colludes, what was released besides and which worlds are neighbours."""
    run = make_events(np.full((12, 3), 2.5), rate, possible=np.arange(12)[:, None] > 0)  # silence is worth nothing
    run = run._replace(artificial_var=np.ones((12, 3)))
    beside = Release("count", 0.5, 2.0, times=3)
    told = {"adjacency": adjacency, "colluders": np.array([True, True, False]), "releases": [beside]}
    six, seven = (float(account(name, pick(run, slice(n)), 1e-5, **told).worst) for n in (6, 7))
    ledger = Ledger(Budget((six + seven) / 2, 1e-5, name, adjacency=adjacency, colluders=(0, 1)), clients=3)
    ledger.release(beside)
    assert ledger.affordable(run).sum() == 6
    ledger.spend(pick(run, slice(6)))
    assert ledger.spent().worst == pytest.approx(six, rel=1e-12)


def test_plans_stay_a_margin_below_the_cap_where_the_order_of_a_sum_matters(make_events):
    run = make_events(np.full((6, 1), 3.0))
    spent = float(account("rdp", run, 1e-5).worst)

    def fit(cap):
        return Ledger(Budget(cap, 1e-5, "rdp"), 1).affordable(run).sum()

    assert fit(spent * (1 + PLANNING_MARGIN / 2)) == 5
    assert fit(spent * (1 + 2 * PLANNING_MARGIN)) == 6


@pytest.mark.parametrize("order", [2.0, 6.5, 32.0])
def test_the_cap_at_one_order_is_where_its_conversion_reaches_eps(order):
    rho = Budget(40.0, 1e-5, "rdp", order=order).zcdp
    assert rdp_to_eps([order * rho], 1e-5, [order]).eps == pytest.approx(40.0, rel=1e-12)


@pytest.mark.parametrize(
    "forged",
    [{"budget": 3}, {"budget": {}}, {"parts": 2}, {"parts": "x"}, {"clients": 7}, {"clients": []}, {"releases": [1]},
     {"payload": b""}, {"payload": b"PK"}],
)  # fmt: skip
def test_a_checksum_around_nonsense_is_one_line(forged, make_events):
    ledger = Ledger(Budget(100.0, 1e-5), 3)
    ledger.spend(make_events(np.full((4, 3), 2.0)))
    line, _, whole = ledger.to_bytes().partition(b"\n")
    head = json.loads(line) | forged
    payload = head.pop("payload", whole)
    del head["sha256"]
    head["sha256"] = export._checksum(head, payload)
    with pytest.raises(InputError, match=r"^[^\n]+$"):
        Ledger.from_bytes(json.dumps(head, sort_keys=True).encode() + b"\n" + payload)


@pytest.mark.parametrize("content", [b"[1]\n", b"[" * 100_000, b'{"a":' * 100_000, b'"a"\n', b"1" * 10_000, b""])
def test_json_of_another_thing_is_no_ledger(content):
    with pytest.raises(InputError, match=r"^not a ledger"):
        Ledger.from_bytes(content)


@pytest.mark.parametrize("harm", ["encrypted", "unknown method", "torn stream", "endless array"])
def test_a_checksum_around_an_archive_that_cannot_be_read_is_one_line(harm, make_events):
    ledger = Ledger(Budget(100.0, 1e-5), 3)
    ledger.spend(make_events(np.full((4, 3), 2.0)))
    line, _, whole = ledger.to_bytes().partition(b"\n")
    head = {name: value for name, value in json.loads(line).items() if name != "sha256"}
    payload = harmed(whole, harm)
    head["sha256"] = export._checksum(head, payload)
    with pytest.raises(InputError, match=r"^ledger is damaged: [^\n]+$"):
        Ledger.from_bytes(json.dumps(head, sort_keys=True).encode() + b"\n" + payload)


def test_affordable_counts_what_is_already_spent_and_treats_seeds_apart(make_events):
    z = np.random.default_rng(9).uniform(2, 6, (2, 60, 2))
    ledger = Ledger(Budget(4.0, 1e-5), clients=2)
    fresh = ledger.affordable(make_events(z))
    assert fresh.shape == (2, 60)
    assert np.array_equal(fresh[1], ledger.affordable(make_events(z[1])))
    ledger.spend(make_events(z[0, :5]))
    assert ledger.affordable(make_events(z)).sum() < fresh.sum()


@pytest.mark.parametrize("name", ALL)
def test_rounds_count_towards_the_cap_however_they_came_into_a_ledger(make_events, name):
    run, budget = make_events(np.full((20, 2), 4.0)), Budget(7.0, 1e-5, name)
    held = {
        "made of parts": Ledger(budget, clients=2, parts=[run]),
        "besides": Ledger(budget, clients=2).besides(run),
        "another budget": replace(Ledger(Budget(90.0, 1e-5), clients=2, parts=[run]), budget=budget),
    }
    for how, ledger in held.items():
        room = int(ledger.affordable(run).sum())
        assert 0 < room < 20, how
        with pytest.raises(BudgetExceeded):
            ledger.spend(run)
        ledger.spend(pick(run, slice(room)))
        assert ledger.spent().worst <= budget.eps, how


def test_dead_rounds_are_free_and_stay_dead(make_events):
    run = make_events(np.full((10, 1), 2.0), live=np.arange(10) < 3)
    ledger = Ledger(Budget(40.0, 1e-5), clients=1)
    assert ledger.affordable(run).tolist() == [True] * 3 + [False] * 7
    ledger.spend(run)
    assert ledger.zcdp()[0] == 3 / 8


def test_releases_each_round_shorten_the_run(make_events):
    run = make_events(np.full((200, 2), 5.0))
    ledger = Ledger(Budget(4.0, 1e-5), clients=2)
    reward = Release("reward", np.array([0.1, 0.05]), 0.5)
    alone, accompanied = ledger.affordable(run), ledger.affordable(run, each_round=[reward])
    cost = 1 / 50 + (0.1 / 0.5) ** 2 / 2
    assert alone.sum() == horizon(ledger.budget.zcdp, 1 / 50)
    assert accompanied.sum() == pytest.approx(ledger.budget.zcdp / cost, abs=1)
    ledger.spend(run._replace(live=accompanied), each_round=[reward])
    assert sum(r.times for r in ledger.releases) == accompanied.sum()
    with pytest.raises(BudgetExceeded):
        ledger.spend(make_events([[5.0, 5.0]]), each_round=[reward])


@pytest.mark.parametrize("name", ALL)
def test_what_was_spent_stays_though_its_arrays_are_filled_again(make_events, name):
    """A loop of chunks that has one set of arrays for all of them."""
    again, fresh = (Ledger(Budget(np.inf, 1e-5, name), clients=2) for _ in range(2))
    run, moved = make_events(np.full((4, 2), 3.0)), np.ones(2)
    for amp in (1.0, 0.5, 0.01):
        run.amp[:], moved[:] = amp, amp
        again.spend(run, each_round=[Release("beside", moved, 5.0)])
        again.release(Release("extra", moved, 7.0))
        fresh.spend(run._replace(amp=run.amp.copy()), each_round=[Release("beside", amp, 5.0)])
        fresh.release(Release("extra", amp, 7.0))
    assert again.spent().worst == fresh.spent().worst


def test_a_spent_ledger_refuses_and_keeps_nothing_of_the_refused(make_events):
    ledger = Ledger(Budget(1.0, 1e-5), clients=1)
    with pytest.raises(BudgetExceeded):
        ledger.spend(make_events([[0.5]]))
    assert ledger.rounds() == 0
    ledger.release(Release("all of it", math.sqrt(2 * ledger.budget.zcdp) * (1 - 1e-15), 1.0))
    with pytest.raises(BudgetExceeded):
        ledger.spend(make_events([[1e6]]))
    with pytest.raises(BudgetExceeded, match="'more'"):
        ledger.release(Release("more", 1e-3, 1.0))


@pytest.mark.parametrize("name", ALL)
def test_bytes_round_trip_and_damage_is_seen(make_events, name, tmp_path):
    ledger = Ledger(Budget(40.0, 1e-5, name, colluders=(1,)), clients=2)
    ledger.spend(make_events(np.random.default_rng(1).uniform(3, 9, (4, 2))))
    ledger.spend(make_events(np.random.default_rng(2).uniform(3, 9, (3, 2))))
    ledger.release(Release("count", np.array([0.1, 0.2]), 1.0, 2))
    content = ledger.to_bytes()
    again = Ledger.from_bytes(content)
    assert again.to_bytes() == content
    assert np.array_equal(again.spent().eps, ledger.spent().eps)
    assert again.rounds() == 7
    for place in (5, content.index(b"\n") + 40, len(content) - 3):
        with pytest.raises(InputError):
            Ledger.from_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    ledger.save(tmp_path / "ledger")
    assert Ledger.load(tmp_path / "ledger").to_bytes() == content
    with pytest.raises(InputError, match="cannot be read"):
        Ledger.load(tmp_path / "nothing")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no file without end here")
def test_a_device_is_no_ledger() -> None:
    """It was read until the memory was full."""
    with pytest.raises(InputError, match=r"^/dev/zero: is no file$"):
        Ledger.load(Path("/dev/zero"))


def test_restored_ledger_refuses_where_the_first_would(make_events):
    run = make_events(np.full((30, 1), 4.0), rate=0.3)
    for name in ("gaussian", "rdp"):
        ledger = Ledger(Budget(2.0, 1e-5, name), clients=1)
        fit = int(ledger.affordable(run).sum())
        head, _ = cut(run, fit // 2)
        ledger.spend(head)
        assert Ledger.from_bytes(ledger.to_bytes()).affordable(run).sum() == ledger.affordable(run).sum()


def test_third_party_recount_agrees(make_events):
    z = np.random.default_rng(3).uniform(2, 4, (4, 2))
    possible = np.random.default_rng(4).random((4, 2)) < 0.7
    ledger = Ledger(Budget(1e3, 1e-5, "gaussian", accounting="realised"), clients=2)
    ledger.spend(make_events(z, possible=possible))
    ledger.release(Release("count", 0.5, 1.0, 2))
    for k, event in enumerate(ledger.export_dp_events()):
        recount = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-3).compose(event).get_epsilon(1e-5)
        assert ledger.spent("gaussian").eps[k] == pytest.approx(recount, rel=1e-3)
        orders = [1.5, 2.0, 3.0, 4.0, 6.0, 9.0]
        renyi = dp_accounting.rdp.RdpAccountant(orders).compose(event).get_epsilon(1e-5)
        assert renyi >= ledger.spent("rdp").eps[k] * (1 - 1e-9)


@pytest.mark.parametrize("adjacency", ["add-remove", "replace"])
def test_third_party_recount_of_sampled_rounds(make_events, adjacency):
    relation = dp_accounting.NeighboringRelation
    ledger = Ledger(Budget(1e3, 1e-5, "pld", adjacency=adjacency), clients=1)
    ledger.spend(make_events(np.full((20, 1), 1.2), rate=0.1))
    which = relation.REPLACE_ONE if adjacency == "replace" else relation.ADD_OR_REMOVE_ONE
    recount = dp_accounting.pld.PLDAccountant(which).compose(ledger.export_dp_events()[0]).get_epsilon(1e-5)
    if adjacency == "replace":  # the third party assumes a worst pair, the ledger certifies
        assert pld_eps(np.full(20, 1.2), 0.1, 1e-5, "replace") == pytest.approx(recount, rel=0.01)
        assert recount <= ledger.spent().worst <= 1.05 * recount
    else:
        assert ledger.spent().worst == pytest.approx(recount, rel=0.01)


def test_adaptive_runs_report_the_cap(make_events):
    """CARES E20."""
    fixed, adaptive = (Ledger(Budget(9.0, 1e-5, adaptive=flag), clients=1) for flag in (False, True))
    for ledger in (fixed, adaptive):
        ledger.spend(make_events([[3.0]]))
    assert adaptive.guarantee() == 9.0
    assert fixed.guarantee() == fixed.spent().worst < 9.0


def test_adaptive_renyi_holds_one_order(make_events):
    ledger = Ledger(Budget(4.0, 1e-5, "rdp", adaptive=True, order=6.0), clients=1)
    several = Ledger(Budget(4.0, 1e-5, "rdp"), clients=1)
    run = make_events(np.full((80, 1), 4.0))
    assert ledger.affordable(run).sum() <= several.affordable(run).sum()


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"eps": 0.0}, "eps=0.0"),
        ({"delta": 1.0}, "delta=1.0"),
        ({"accountant": "magic"}, "accountant='magic'"),
        ({"accountant": "pld", "adaptive": True}, "no filter"),
        ({"accountant": "rdp", "adaptive": True}, "order"),
        ({"accounting": "hidden"}, "does not support"),
    ],
)
def test_bad_budgets(options, rule):
    with pytest.raises(InputError, match=rule):
        Budget(**{"eps": 1.0, "delta": 1e-5, **options})


def test_wrong_shapes_and_changed_settings_are_refused(make_events):
    ledger = Ledger(Budget(50.0, 1e-5), clients=2)
    with pytest.raises(InputError, match="2 clients"):
        ledger.spend(make_events([[1.0]]))
    ledger.spend(make_events([[3.0, 3.0]]))
    with pytest.raises(InputError, match="rate changed"):
        ledger.spend(make_events([[3.0, 3.0]], rate=0.5))
    with pytest.raises(InputError, match="one run"):
        ledger.spend(make_events(np.full((2, 1, 2), 3.0)))
    with pytest.raises(InputError, match="colluders"):
        Ledger(Budget(1.0, 1e-5, colluders=(2,)), clients=2)
