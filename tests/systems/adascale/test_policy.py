"""AdaScale and its rivals as policies: what they see, what they plan, and that energy and causality are kept."""

import math

import numpy as np
import pytest

from otafl.core.errors import InputError
from otafl.core.plan import Context, Obs, Trace, check_gate
from otafl.core.rounds import plan_ahead
from otafl.systems.adascale import policy as ours
from otafl.systems.adascale import rival_policies as rivals
from otafl.systems.adascale import variables
from otafl.systems.adascale.design import Setting, algorithm1, draw, optimal_excess

SETTING = Setting(M=5, T=60, d=1000, n=[600, 600, 500, 400, 300], B=[20, 20, 30, 10, 10], G=1.0)
DEPLOYMENT, MESSAGE = SETTING.deployment(), SETTING.message()


def trace_of(seeds=(0,), setting=SETTING) -> Trace:
    """Leaves (S, T, K), or (T, K) for one seed."""
    channels = [draw(setting, seed) for seed in seeds]
    gain = np.stack([c.gain for c in channels])
    rms = np.broadcast_to(np.stack([c.rms for c in channels])[:, None, :], gain.shape)
    leaves = Trace(gain, gain, rms, rms, rms, rms, np.zeros(gain.shape))
    return leaves if len(seeds) > 1 else Trace(*(leaf[0] for leaf in leaves))


def observe(trace: Trace, t: int) -> Obs:
    row = [leaf[..., t, :] for leaf in (trace.estimate, trace.rms_estimate, trace.rms_low, trace.rms_high, trace.coin)]
    return Obs(t, *row, np.nan)


def run(policy, trace: Trace):
    """Infos and plans, rounds on axis -1 (or -2 before the clients)."""
    state, plans, infos = policy.init(None), [], []
    for t in range(trace.gain.shape[-2]):
        state, plan, info = policy.step(state, observe(trace, t))
        plans.append(plan)
        infos.append(info)
    return plans, ours.Info(*(np.stack(column, axis=-1) for column in zip(*infos)))


def context(trace=None, **changes) -> Context:
    return Context(rounds=SETTING.T, seed=4, trace=trace)._replace(**changes)


EVERY = {
    "adascale": (ours.adascale, ours.Config(0.05)),
    "warm": (ours.adascale, ours.Config(0.05, warm_start=True)),
    "hindsight": (ours.adascale, ours.Config(0.05, tuning="hindsight")),
    "optimal": (rivals.optimal, rivals.OptimalConfig(0.05)),
    "equal": (rivals.equal, rivals.EqualConfig(0.05)),
    "estim": (rivals.estim_future, rivals.EstimConfig(0.05)),
    "literal": (rivals.estim_future, rivals.EstimConfig(0.05, "min_of_means")),
    "constant": (rivals.constant_scaling, rivals.ConstantConfig(0.1)),
    "stat-level": (rivals.stat_level, rivals.StatLevelConfig(0.05)),
    "stat-water": (rivals.stat_water, rivals.StatWaterConfig(0.05)),
    "liu-simeone": (rivals.liu_simeone, rivals.LiuSimeoneConfig(0.05)),
    "decay": (rivals.liu_simeone, rivals.LiuSimeoneConfig(0.05, decay=0.97, tuning="hindsight")),
    "lyapunov": (rivals.lyapunov, rivals.LyapunovConfig(0.05, points=5, tuning="hindsight")),
}


@pytest.mark.parametrize("name", EVERY)
def test_plans_invert_channels_within_the_energy_limit(name):
    factory, config = EVERY[name]
    trace = trace_of()
    policy = factory(config, DEPLOYMENT, MESSAGE, context(trace))
    assert (policy.loop, policy.csi, policy.gate) == ("open", "global", "open")
    check_gate(policy.gate, MESSAGE)
    plans, info = run(policy, trace)
    for t, plan in enumerate(plans):
        arriving = trace.gain[t] * plan.tx / plan.rx_scale
        np.testing.assert_allclose(arriving, np.full(5, 1 / 5), rtol=1e-12)
        energy = np.abs(plan.tx) ** 2 * MESSAGE.mean_square
        assert np.all(energy <= DEPLOYMENT.energy * (1 + 1e-12))
        if info.excess[t] == 0:
            assert energy.max() == pytest.approx(DEPLOYMENT.energy[0], rel=1e-12)  # full power means full power
        assert not plan.noise.any() and np.all(plan.max_norm == math.inf) and np.all(plan.send_prob == 1) and plan.live
        received = 2 * SETTING.d * DEPLOYMENT.noise_var / plan.rx_scale**2
        assert received == pytest.approx(info.noise[t], rel=1e-12)
    assert np.all(info.excess >= 0)


def test_policy_is_algorithm_one():
    trace = trace_of()
    policy = ours.adascale(ours.Config(0.05, tuning="given", V=2.0), DEPLOYMENT, MESSAGE, context())
    _, info = run(policy, trace)
    floors = variables.noise_floor(trace.gain, DEPLOYMENT, MESSAGE)
    expected = algorithm1(floors, 2.0, 0.05, variables.leakage_of(DEPLOYMENT, MESSAGE))
    np.testing.assert_allclose(info.excess, expected.excess, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(info.scaling, 2 * SETTING.d * DEPLOYMENT.noise_var / expected.noise, rtol=1e-12)


def test_adascale_looks_at_present_channels_alone():
    """Later rounds and other statistics change nothing that was decided; the calibration never reads the trace."""
    trace = trace_of()
    bent = trace._replace(estimate=np.where(np.arange(60)[:, None] < 20, trace.estimate, 3 * trace.estimate))
    for config in (ours.Config(0.05), ours.Config(0.05, warm_start=True), ours.Config(0.05, tuning="given", V=1.0)):
        _, one = run(ours.adascale(config, DEPLOYMENT, MESSAGE, context()), trace)
        _, two = run(ours.adascale(config, DEPLOYMENT, MESSAGE, context()), bent)
        np.testing.assert_array_equal(one.noise[:20], two.noise[:20])
        assert not np.allclose(one.noise[20:], two.noise[20:])


@pytest.mark.parametrize("name", ["adascale", "warm", "hindsight", "optimal", "estim", "stat-water", "stat-level"])
def test_seeds_side_by_side_are_seeds_alone(name):
    factory, config = EVERY[name]
    both = trace_of((0, 1))
    _, together = run(factory(config, DEPLOYMENT, MESSAGE, context(both)), both)
    assert together.noise.shape == (2, 60)
    for s in range(2):
        alone = trace_of((s,))
        _, info = run(factory(config, DEPLOYMENT, MESSAGE, context(alone)), alone)
        np.testing.assert_allclose(together.noise[s], info.noise, rtol=2e-6)


@pytest.mark.parametrize("name", ["equal", "constant", "stat-level"])
def test_stateless_rivals_plan_all_rounds_in_one_call(name):
    factory, config = EVERY[name]
    trace = trace_of((0, 1))
    policy = factory(config, DEPLOYMENT, MESSAGE, context())
    assert policy.init(None) == ()
    _, plan, info = policy.step((), Obs(np.arange(60), trace.estimate, trace.rms_estimate, *trace[4:7], np.nan))
    assert plan.tx.shape == (2, 60, 5) and plan.rx_scale.shape == (2, 60)
    _, looped = run(policy, trace)
    np.testing.assert_allclose(info.noise, looped.noise, rtol=1e-12)


def test_hindsight_tuning_spends_the_cap_and_optimal_is_optimal():
    trace = trace_of()
    floors = variables.noise_floor(trace.gain, DEPLOYMENT, MESSAGE)
    for name in ("hindsight", "decay", "lyapunov"):
        factory, config = EVERY[name]
        _, info = run(factory(config, DEPLOYMENT, MESSAGE, context(trace)), trace)
        assert info.excess.mean() == pytest.approx(0.05, rel=3e-6), name
    _, info = run(rivals.stat_water(rivals.StatWaterConfig(0.05), DEPLOYMENT, MESSAGE, context()), trace)
    assert info.excess.mean() == pytest.approx(0.05, rel=1e-9)  # it knows how many rounds are left
    _, info = run(rivals.optimal(rivals.OptimalConfig(0.05), DEPLOYMENT, MESSAGE, context(trace)), trace)
    np.testing.assert_allclose(info.excess, optimal_excess(floors, 0.05), atol=1e-14)


def test_no_cap_means_full_power():
    trace = trace_of()
    for policy in (
        ours.adascale(ours.Config(0.0), DEPLOYMENT, MESSAGE, context()),
        ours.adascale(ours.Config(0.0, warm_start=True), DEPLOYMENT, MESSAGE, context()),
        rivals.optimal(rivals.OptimalConfig(0.0), DEPLOYMENT, MESSAGE, context(trace)),
        rivals.equal(rivals.EqualConfig(0.0), DEPLOYMENT, MESSAGE, context()),
        rivals.stat_level(rivals.StatLevelConfig(0.0), DEPLOYMENT, MESSAGE, context()),
        rivals.stat_water(rivals.StatWaterConfig(0.0), DEPLOYMENT, MESSAGE, context()),
        rivals.estim_future(rivals.EstimConfig(0.0), DEPLOYMENT, MESSAGE, context()),
        rivals.liu_simeone(rivals.LiuSimeoneConfig(0.0), DEPLOYMENT, MESSAGE, context()),
        rivals.lyapunov(rivals.LyapunovConfig(0.0), DEPLOYMENT, MESSAGE, context()),
    ):
        assert not run(policy, trace)[1].excess.any(), policy.name


def test_calibration_is_reproducible_and_seeded():
    trace = trace_of()
    same = [run(ours.adascale(ours.Config(0.05), DEPLOYMENT, MESSAGE, context()), trace)[1].noise for _ in range(2)]
    np.testing.assert_array_equal(*same)
    other = run(ours.adascale(ours.Config(0.05), DEPLOYMENT, MESSAGE, context(seed=9)), trace)[1].noise
    assert not np.array_equal(same[0], other)


def test_plan_ahead_of_the_runner_accepts_the_policy():
    trace = trace_of()
    policy = ours.adascale(ours.Config(0.05, tuning="given", V=1.0), DEPLOYMENT, MESSAGE, context())
    _, plan, info = plan_ahead(policy, policy.init(None), trace)
    assert plan.tx.shape == (60, 5) and info.noise.shape == (60,)


@pytest.mark.parametrize("name", sorted(EVERY))
def test_many_rounds_in_one_call_are_the_rounds_one_by_one(name):
    """To the bit, also in two parts: no round looks at a later one."""
    factory, config = EVERY[name]
    trace = trace_of()
    policy = factory(config, DEPLOYMENT, MESSAGE, context(trace))
    assert policy.spans
    _, one_by_one, infos = plan_ahead(policy._replace(spans=False), policy.init(None), trace)
    state, plan, info = plan_ahead(policy, policy.init(None), Trace(*(leaf[:25] for leaf in trace)))
    _, rest, more = plan_ahead(policy, state, Trace(*(leaf[25:] for leaf in trace)), 25)
    for whole, *parts in zip((*one_by_one, *infos), (*plan, *info), (*rest, *more)):
        np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_effective_noise_of_the_plan_is_what_the_paper_says():
    """Empirical variance of the received noise / rx_scale equals sigma_n^2 / (2 eta), within 5 standard errors."""
    plans, info = run(
        ours.adascale(ours.Config(0.05, tuning="given", V=1.0), DEPLOYMENT, MESSAGE, context()), trace_of()
    )
    rng, draws = np.random.default_rng(0), 200_000
    noise = np.sqrt(SETTING.noise_power / 2) * (rng.standard_normal(draws) + 1j * rng.standard_normal(draws))
    variance = np.var(noise.real / plans[0].rx_scale)
    expected = SETTING.noise_power / (2 * info.scaling[0])
    assert abs(variance / expected - 1) < 5 * math.sqrt(2 / draws)


@pytest.mark.parametrize(
    ("factory", "config"),
    [
        (ours.adascale, ours.Config(-0.1)),
        (ours.adascale, ours.Config(0.1, V=1.0)),
        (ours.adascale, ours.Config(0.1, tuning="given")),
        (ours.adascale, ours.Config(0.1, tuning="hindsight")),  # without a trace
        (ours.adascale, ours.Config(0.1, alpha=1)),
        (ours.adascale, ours.Config(0.1, tuning="magic")),  # type: ignore[arg-type]
        (rivals.optimal, rivals.OptimalConfig(0.1)),  # without a trace
        (rivals.equal, rivals.EqualConfig(-1.0)),
        (rivals.constant_scaling, rivals.ConstantConfig(0.0)),
        (rivals.estim_future, rivals.EstimConfig(0.1, "median")),  # type: ignore[arg-type]
        (rivals.liu_simeone, rivals.LiuSimeoneConfig(0.1, budget=1.0)),
        (rivals.liu_simeone, rivals.LiuSimeoneConfig(-0.1)),
        (rivals.lyapunov, rivals.LyapunovConfig(-0.1)),
    ],
)
def test_bad_configurations_are_refused(factory, config):
    with pytest.raises(InputError):
        factory(config, DEPLOYMENT, MESSAGE, context())


def test_untrusted_noise_needs_a_trusted_part():
    with pytest.raises(InputError, match="trusted_noise_var"):
        ours.adascale(ours.Config(0.1), DEPLOYMENT._replace(trusted_noise_var=0.0), MESSAGE, context())
