"""AdaScale's extensions: skipped fades, devices' own odometers, the hard budget. What is charged is what was sent."""

import numpy as np
import pytest

from otafl.core.errors import InputError
from otafl.core.plan import Context, Trace
from otafl.core.rounds import plan_ahead
from otafl.core.uplink import lower
from otafl.privacy.events import events
from otafl.privacy.rdp import total_rdp
from otafl.systems.adascale import policy as ours
from otafl.systems.adascale import tuning, variables
from otafl.systems.adascale.design import Setting, draw
from otafl.systems.adascale.odometer import Odometer, admit, guard, round_cost
from otafl.systems.adascale.online import adascale_rule, capped_rule, cut_to_budget, play
from otafl.systems.adascale.refusals import with_odometer

SETTING = Setting(M=5, T=60, d=1000, n=[600, 600, 500, 400, 300], B=[20, 20, 30, 10, 10], G=1.0)
DEPLOYMENT, MESSAGE = SETTING.deployment(), SETTING.message()


def trace_of(seed=0, setting=SETTING) -> Trace:
    channels = draw(setting, seed)
    rms = np.broadcast_to(channels.rms, channels.gain.shape)
    return Trace(channels.gain, channels.gain, rms, rms, rms, rms, np.zeros(channels.gain.shape))


def planned(trace, setting=SETTING, deployment=DEPLOYMENT, **options):
    """Plans (T, K), infos, and the policy's last state."""
    config = ours.Config(**{"nu": 0.05, "tuning": "given", "V": 1.0} | options)
    policy = ours.adascale(config, deployment, setting.message(), Context(rounds=setting.T, seed=4))
    state, plan, info = plan_ahead(policy, policy.init(None), trace)
    return plan, info, state


def ledger_rdp(plan, trace, order, deployment=DEPLOYMENT, message=MESSAGE):
    """What the ledger's events cost each device at one order, by the accountant's own code: (K,)."""
    from otafl.privacy.events import noise_multiplier

    found = events(plan, trace, deployment, message)
    return total_rdp(found.rate, noise_multiplier(found), [order])[:, 0]


@pytest.mark.parametrize("case", range(12))
def test_the_odometer_never_passes_its_cap_and_equals_the_ledger(case):
    """Random channels, caps, orders and channel errors; the ledger counts events, the odometer what it was asked."""
    rng = np.random.default_rng(case)
    trace, order = trace_of(case), int(rng.choice([2, 3, 8, 32]))
    deployment = DEPLOYMENT._replace(gain_error=float(rng.choice([0.0, 0.1])))
    free = ledger_rdp(planned(trace, deployment=deployment)[0], trace, order, deployment)
    cap = float(rng.uniform(0.1, 1.1) * free.max())
    plan, info, state = planned(trace, deployment=deployment, device_rdp=cap, device_order=order)
    counted = ledger_rdp(plan, trace, order, deployment)
    np.testing.assert_allclose(state.spent, counted, rtol=1e-11)
    assert np.all(counted <= cap) and np.all(state.spent <= cap)
    np.testing.assert_array_equal(info.silent, (plan.max_norm < 0).sum(-1))
    assert info.silent.any() == bool(np.any(free > cap))


def test_a_refusing_device_misses_only_what_it_cannot_afford():
    """Greedy, device by device: every refused round would have passed the cap at that moment."""
    trace = trace_of(1)
    free, _, _ = planned(trace)
    cost = round_cost(3, np.abs(trace.estimate * free.tx), DEPLOYMENT, MESSAGE)
    cap = 0.3 * cost.sum(0).max()
    plan, _, _ = planned(trace, device_rdp=cap)
    spent = np.zeros(5)
    for t in range(SETTING.T):
        sends = plan.max_norm[t] >= 0
        np.testing.assert_array_equal(sends, spent + cost[t] <= cap)
        spent += np.where(sends, cost[t], 0.0)
    assert 0 < (plan.max_norm >= 0).mean() < 1


def test_a_silent_device_sends_nothing_and_the_others_keep_their_weight():
    trace = trace_of(2)
    free, _, _ = planned(trace)
    cost = round_cost(3, np.abs(trace.estimate * free.tx), DEPLOYMENT, MESSAGE).sum(0)
    plan, _, _ = planned(trace, device_rdp=float(np.sort(cost)[-1] * 0.9))  # only the worst device runs out
    link = lower(plan, trace.gain, DEPLOYMENT)
    sends = plan.max_norm >= 0
    assert not plan.tx[~sends].any() and not link.weight[~sends].any() and (~sends).any()
    np.testing.assert_allclose(link.weight[sends], 1 / 5, rtol=1e-12)


def test_a_device_refuses_more_than_its_power():
    """A server that asks for twice the amplitude that the limit allows gets nothing from that device."""
    trace = trace_of()
    tx = np.sqrt(DEPLOYMENT.energy / MESSAGE.mean_square) * np.array([1.0, 2.0, 0.5, 1.0 + 1e-9, 0.0])
    odometer = Odometer.checked(1e9, 3)
    willing, spent = admit(odometer, np.zeros(5), tx, trace.estimate[0], DEPLOYMENT, MESSAGE)
    assert willing.tolist() == [True, False, True, False, True]
    whole = guard(odometer, tx[None], trace.estimate[:1], DEPLOYMENT, MESSAGE)
    assert np.array_equal(whole[0][0], willing) and np.array_equal(whole[1], spent)
    assert spent[1] == spent[3] == spent[4] == 0 < spent[0]


def test_guard_of_a_whole_run_is_the_policys_odometer():
    trace = trace_of(3)
    free, _, _ = planned(trace)
    cap = 0.02
    part, spent = guard(Odometer.checked(cap, 3), free.tx, trace.estimate, DEPLOYMENT, MESSAGE)
    plan, _, state = planned(trace, device_rdp=cap)
    np.testing.assert_array_equal(part, plan.max_norm >= 0)
    np.testing.assert_array_equal(spent, state.spent)


def test_deep_fades_are_skipped_and_cost_nothing():
    trace = trace_of(4)
    plan, info, _ = planned(trace)
    limit = float(np.quantile(info.floor, 0.8))
    skipping, seen, _ = planned(trace, max_floor=limit)
    skipped = info.floor > limit
    assert skipped.sum() == 12
    np.testing.assert_array_equal(seen.silent, np.where(skipped, 5, 0))
    assert np.all(skipping.rx_scale[skipped] == np.inf) and np.all(skipping.live) and not seen.excess[skipped].any()
    link = lower(skipping, trace.gain, DEPLOYMENT)
    assert not link.weight[skipped].any() and not link.noise_std[skipped].any()  # such a round changes nothing
    sent = Trace(*(leaf[~skipped] for leaf in trace))
    kept = type(plan)(*(leaf[~skipped] for leaf in skipping))
    np.testing.assert_allclose(ledger_rdp(skipping, trace, 3), ledger_rdp(kept, sent, 3), rtol=1e-13)
    assert np.all(np.asarray(info.floor)[~skipped] <= limit)


def test_a_threshold_above_all_floors_changes_nothing():
    trace = trace_of(5)
    plain, skipping = planned(trace)[0], planned(trace, max_floor=1e9)[0]
    for one, two in zip(plain, skipping):
        np.testing.assert_array_equal(one, two)


def test_skipped_rounds_let_the_queue_drain():
    floors = np.array([0.02, 5.0, 0.02, 5.0, 0.03])
    leakage = variables.leakage_of(DEPLOYMENT, MESSAGE)
    excess, states = play(adascale_rule(leakage, 3.0, 0.02, max_floor=1.0), floors)
    assert excess[1] == excess[3] == 0 and excess[0] > 0.02
    assert states[2].queue == pytest.approx(max(states[1].queue - 0.02, 0))


def test_calibration_spends_the_cap_although_rounds_are_skipped():
    trace = trace_of(6)
    limit = float(np.quantile(planned(trace)[1].floor, 0.5))
    config = ours.Config(0.05, tuning="hindsight", max_floor=limit)
    policy = ours.adascale(config, DEPLOYMENT, MESSAGE, Context(rounds=SETTING.T, trace=trace))
    _, _, info = plan_ahead(policy, policy.init(None), trace)
    assert info.excess.mean() == pytest.approx(0.05, rel=3e-6)
    assert info.silent.sum() == 5 * 30


def test_hard_budget_holds_on_every_path_and_ends_at_full_power():
    leakage = variables.leakage_of(DEPLOYMENT, MESSAGE)
    for seed in range(4):
        floors = variables.noise_floor(trace_of(seed).gain, DEPLOYMENT, MESSAGE)
        plain, _ = play(adascale_rule(leakage, 50.0, 0.02), floors)
        capped, _ = play(capped_rule(adascale_rule(leakage, 50.0, 0.02), 0.02, SETTING.T), floors)
        assert plain.mean() > 0.02 and capped.mean() == pytest.approx(0.02, rel=1e-12)
        np.testing.assert_allclose(capped, cut_to_budget(plain, 0.02), atol=1e-15)
        end = int(np.argmax(np.cumsum(plain) > 0.02 * SETTING.T))
        np.testing.assert_array_equal(capped[:end], plain[:end])
        assert not capped[end + 1 :].any()
    assert ours.Config(0.05).hard_budget is False  # never by default


def test_hard_budget_is_an_option_of_the_policy():
    trace = trace_of(7)
    _, plain, _ = planned(trace, V=200.0)
    _, capped, _ = planned(trace, V=200.0, hard_budget=True)
    assert plain.excess.mean() > 0.05 >= capped.excess.mean() * (1 - 1e-12)


@pytest.mark.parametrize(
    "options",
    [{"max_floor": 0.0}, {"max_floor": float("nan")}, {"device_rdp": 0.0}, {"device_rdp": -1.0}, {"device_order": 3},
     {"device_rdp": 1.0, "device_order": 1}, {"device_rdp": 1.0, "device_order": 2.5},
     {"device_rdp": 1.0, "device_order": 0}],
)  # fmt: skip
def test_bad_extensions_are_refused(options):
    with pytest.raises(InputError):
        planned(trace_of(), **options)


def test_an_odometer_guards_open_loops_only():
    policy = ours.adascale(ours.Config(0.05, tuning="given", V=1.0), DEPLOYMENT, MESSAGE, Context(rounds=SETTING.T))
    with pytest.raises(InputError, match="open-loop"):
        with_odometer(policy._replace(loop="round"), Odometer.checked(1.0, 3), DEPLOYMENT, MESSAGE)


@pytest.mark.parametrize("points", [1, 1001, 10**12])
def test_a_grid_of_weights_has_a_size_that_ends(points):
    with pytest.raises(InputError, match="points"):
        tuning.tune_lyapunov(np.ones((1, 4)), 1.0, lambda noise: noise.sum((-1, -2)), points)
