"""Policies of the bias-variance family: channel knowledge, energy, and what the server gets on average."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from otafl.core.errors import InputError
from otafl.core.plan import Context, Deployment, Message, Obs, Trace
from otafl.core.uplink import lower
from otafl.privacy.events import events, noise_multiplier
from otafl.systems.baselines import weakest
from otafl.systems.biasvar import bbfl, lcpc, opc
from otafl.systems.biasvar import policy as bv
from otafl.systems.biasvar.design import solve_exact

K, DIM, G = 6, 40, 3.0
RMS = np.sqrt(10 ** np.array([-1.2, -0.6, 0.0, 0.2, -0.3, 1.1]))
WEIGHTS = np.array([0.1, 0.2, 0.15, 0.2, 0.15, 0.2])
SIGMAS = 5.0  # two-sided chance of a false alarm 6e-7 per comparison


def site(weights=None, energy=None, noise_var=0.5):
    weights = np.full(K, 1 / K) if weights is None else weights
    energy = np.full(K, float(DIM)) if energy is None else energy
    return Deployment(energy, noise_var, noise_var, weights, DIM)


def gradient_message(bound=G):
    return Message(DIM, bound, np.full(K, bound**2), np.full(K, 2 * bound), np.ones(K), "client", "replace")


def poisson_message():
    return Message(DIM, np.inf, np.full(K, G**2), np.ones(K), np.full(K, 0.1), "record", "add-remove")


def observe(rounds, seed=0, rms=RMS):
    rng = np.random.default_rng(seed)
    h = rms * (rng.normal(size=(rounds, K)) + 1j * rng.normal(size=(rounds, K))) / np.sqrt(2)
    shape = np.broadcast_to(rms, (rounds, K))
    return Obs(np.arange(rounds), h, shape, shape, shape, rng.random((rounds, K)), np.nan)


CASES = {
    "exact": (bv.biasvar, bv.Config(rho=0.3)),
    "sca": (bv.biasvar, bv.Config(rho=0.3, design="sca")),
    "zero-bias": (bv.biasvar, bv.Config(design="zero-bias")),
    "min-noise": (bv.biasvar, bv.Config(design="min-noise")),
    "common-gamma": (bv.biasvar, bv.Config(rho=0.3, design="common-gamma")),
    "lcpc": (lcpc.lcpc, lcpc.Config()),
    "lcpc-unit": (lcpc.lcpc, lcpc.Config(unit_sum=True)),
    "opc": (opc.opc, opc.Config()),
    "opc-unit": (opc.opc, opc.Config(unit_sum=True, draws=2000)),
    "bbfl-interior": (bbfl.bbfl, bbfl.Config(interior=(2, 3, 5))),
    "bbfl-alternative": (bbfl.bbfl, bbfl.Config("alternative", interior=(2, 3, 5))),
    "bbfl-interior-truncated": (bbfl.bbfl, bbfl.Config(mode="truncated", interior=(2, 3, 5))),
    "bbfl-alternative-truncated": (bbfl.bbfl, bbfl.Config("alternative", "truncated", interior=(2, 3, 5))),
}


def build(name, deployment=None, message=None):
    factory, config = CASES[name]
    return factory(config, deployment or site(), message or gradient_message(), Context())


def plan_of(policy, obs):
    return policy.step(policy.init(None), obs)[1]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "weighted"])
def test_energy_of_a_message_at_the_bound_stays_within_the_limit(name, weights):
    plan = plan_of(build(name, site(weights)), observe(3000))
    energy = np.where(plan.max_norm >= 0, np.abs(plan.tx) ** 2 * G**2, 0)
    assert np.all(energy <= DIM * (1 + 2e-12))


@pytest.mark.parametrize("name", [n for n in CASES if build(n).csi == "own"])
def test_own_csi_means_no_more(name):
    policy, obs = build(name), observe(50)
    before = plan_of(policy, obs)
    changed = obs.estimate.copy()
    changed[:, 2] *= 3.7 * np.exp(1j)
    after = plan_of(policy, obs._replace(estimate=changed))
    others = np.arange(K) != 2
    np.testing.assert_array_equal(after.tx[:, others], before.tx[:, others])
    np.testing.assert_array_equal(after.rx_scale, before.rx_scale)
    assert not np.array_equal(after.tx[:, 2], before.tx[:, 2])


@pytest.mark.parametrize("name", CASES)
def test_a_single_round_equals_its_row_of_a_batch(name):
    policy, obs = build(name), observe(4)
    batch = plan_of(policy, obs)
    one = plan_of(policy, Obs(*(np.asarray(leaf)[2] if np.ndim(leaf) else leaf for leaf in obs)))
    np.testing.assert_allclose(one.tx, batch.tx[2], rtol=1e-14)
    np.testing.assert_allclose(one.rx_scale, batch.rx_scale[2], rtol=1e-14)


@pytest.mark.parametrize("name", CASES)
def test_a_channel_of_exactly_zero_divides_nothing(name):
    obs = observe(3)
    obs.estimate[1, 3] = 0
    plan = plan_of(build(name), obs)
    link = lower(plan, obs.estimate, site())
    assert np.all(np.isfinite(plan.tx))
    assert np.all(np.isfinite(link.weight))
    assert link.weight[1, 3] == 0
    assert np.all(plan.rx_scale > 0)


@pytest.mark.parametrize("name", CASES)
def test_send_prob_is_the_rate_of_sending(name):
    rounds = 20_000
    plan = plan_of(build(name, site(WEIGHTS)), observe(rounds, seed=3))
    prob = np.broadcast_to(plan.send_prob, (rounds, K))[0]
    rate = (plan.max_norm >= 0).mean(0)
    assert np.all(np.abs(rate - prob) <= SIGMAS * np.sqrt(prob * (1 - prob) / rounds) + 1e-12)


@pytest.mark.parametrize("name", ["exact", "zero-bias", "min-noise", "common-gamma"])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["equal", "weighted"])
def test_mean_and_variance_of_the_estimate_are_those_of_the_design(name, weights):
    """E[estimate] = sum p_m g_m and E||estimate - sum p_m g_m||^2 = zeta for orthogonal gradients of norm G."""
    rounds, deployment = 40_000, site(weights)
    policy, obs = build(name, deployment), observe(rounds, seed=1)
    _, plan, info = policy.step((), obs)
    link = lower(plan, obs.estimate, deployment)
    p = info.level[0]
    spread = np.std(link.weight, axis=0) / np.sqrt(rounds)
    assert np.all(np.abs(link.weight.mean(0) - p) <= SIGMAS * spread)
    assert p.sum() == pytest.approx(1, abs=1e-12)

    rng = np.random.default_rng(2)
    noise = (link.noise_std[:, None] * rng.normal(size=(rounds, DIM))) ** 2
    error = G**2 * ((link.weight - p) ** 2).sum(1) + noise.sum(1)  # gradients orthogonal, noise independent of them
    u = np.sqrt(-2 * np.log(plan.send_prob[0]))
    zeta = G**2 * np.sum(p**2 * np.expm1(u**2 / 2)) + DIM * 0.5 / plan.rx_scale[0] ** 2
    assert abs(error.mean() - zeta) <= SIGMAS * error.std() / np.sqrt(rounds)


def test_exact_policy_follows_the_design_in_physical_units():
    deployment = site(WEIGHTS, energy=np.linspace(20.0, 90.0, K))
    policy = bv.biasvar(bv.Config(kappa=1.5, eta=0.1, L=4.0, sigma2=0.2), deployment, gradient_message(), Context())
    obs = observe(2)
    plan = plan_of(policy, obs)
    par = bv.bound_params(bv.Config(kappa=1.5, eta=0.1, L=4.0, sigma2=0.2), deployment, gradient_message())
    design = solve_exact(bv.radio(RMS, deployment), par)
    np.testing.assert_allclose(np.abs(plan.tx * obs.estimate), np.broadcast_to(design.gamma, (2, K)), rtol=1e-12)
    np.testing.assert_allclose(plan.rx_scale, design.alpha, rtol=1e-12)
    np.testing.assert_allclose(plan.send_prob[0], design.tx_prob, rtol=1e-12)


@pytest.mark.parametrize("noise_var", [0.02, 4.0])
def test_every_design_is_the_best_of_its_kind_in_physical_units(noise_var):
    """Mean squared error and weighted bias (9)-(10), written out for the plan, against thousands of others."""
    deployment, message = site(WEIGHTS, np.linspace(20.0, 90.0, K), noise_var), gradient_message()
    obs, rng, rho = observe(1), np.random.default_rng(4), 0.3

    def judged(gamma):
        sent = np.exp(-((gamma * G / RMS) ** 2) / deployment.energy)
        alpha = np.sum(gamma * sent, -1)
        level = gamma * sent / alpha[..., None]
        error = G**2 * np.sum(level**2 * (1 / sent - 1), -1) + DIM * noise_var / alpha**2
        return error + rho * G**2 * np.sum((level - WEIGHTS) ** 2 / WEIGHTS, -1), level

    gamma = {}
    for design in bv.DESIGNS:
        policy = bv.biasvar(bv.Config(rho=rho, design=design), deployment, message, Context())
        gamma[design] = np.abs(plan_of(policy, obs).tx * obs.estimate)[0]
    best = judged(gamma["exact"])[0]
    assert best <= judged(gamma["exact"] * np.exp(rng.normal(size=(3000, K)) * 0.03))[0].min()
    assert judged(gamma["sca"])[0] == pytest.approx(best, rel=1e-4)
    np.testing.assert_allclose(judged(gamma["zero-bias"])[1], WEIGHTS, rtol=1e-6)
    assert np.ptp(gamma["common-gamma"]) <= 1e-12 * gamma["common-gamma"][0]
    other = gamma["common-gamma"] * np.linspace(0.5, 1.5, 1001)[:, None]
    assert judged(gamma["common-gamma"])[0] <= judged(other)[0].min() * (1 + 1e-6)


@pytest.mark.parametrize("design", ["exact", "min-noise"])
def test_headroom_lowers_all_mean_levels_alike_and_silences_fewer(design):
    """The designed shares stay, their sum is 0.4 of the designed one: by its plan, and by counting who sends."""
    obs, deployment, message = observe(5000), site(WEIGHTS, np.linspace(20, 60, K)), gradient_message()
    (_, full, shares), (_, less, same) = (
        bv.biasvar(bv.Config(rho=0.3, design=design, headroom=room), deployment, message, Context()).step((), obs)
        for room in (1.0, 0.4)
    )
    np.testing.assert_allclose(same.level, shares.level, rtol=1e-9)
    np.testing.assert_allclose(less.rx_scale, 0.4 * full.rx_scale, rtol=1e-9)
    assert np.all(less.send_prob > full.send_prob)
    level = np.abs(less.tx * obs.estimate) * same.sends / less.rx_scale[:, None]
    assert np.all(np.abs(level.mean(0) - same.level[0]) < SIGMAS * level.std(0) / np.sqrt(len(level)) + 1e-12)


def test_drifting_statistics_are_designed_for_row_by_row():
    rms = np.stack([RMS, 2 * RMS, RMS])
    obs = observe(3, rms=rms)._replace(rms=rms)
    policy = build("exact")
    plan = plan_of(policy, obs)
    alone = plan_of(build("exact"), Obs(1, obs.estimate[1], rms[1], rms[1], rms[1], obs.coin[1], np.nan))
    np.testing.assert_allclose(plan.rx_scale[1], alone.rx_scale, rtol=1e-12)
    assert plan.rx_scale[0] == plan.rx_scale[2] != plan.rx_scale[1]


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_opc_post_scale_minimises_the_error(n):
    rng = np.random.default_rng(n)
    for _ in range(20):
        reach, w, power = rng.exponential(size=n), rng.dirichlet(np.ones(n)), rng.uniform(0.5, 2, n)
        nu = 10 ** rng.uniform(-4, 1)

        def cost(x, reach=reach, w=w, power=power, nu=nu):
            return np.sum(power * np.maximum(w - reach * x, 0) ** 2) + nu * x * x

        best = minimize_scalar(cost, bounds=(0, 1.01 * np.max(w / reach)), method="bounded", options={"xatol": 1e-12})
        assert cost(opc.best_post_scale(reach, w, power, nu)) <= best.fun * (1 + 1e-12)


def test_opc_beats_brute_force_over_levels_and_scale():
    """Against a grid over (b_1, b_2, xi): nothing is assumed about the shape of the best levels."""
    reach, w, nu = np.array([0.4, 1.3]), np.array([0.5, 0.5]), 0.2
    xi = opc.best_post_scale(reach, w, np.ones(2), nu)
    level = np.minimum(reach, w / xi)
    value = np.sum((level * xi - w) ** 2) + nu * xi**2
    b1, b2, x = np.meshgrid(np.linspace(0, 0.4, 81), np.linspace(0, 1.3, 131), np.linspace(0, 2, 401), indexing="ij")
    grid = (b1 * x - 0.5) ** 2 + (b2 * x - 0.5) ** 2 + nu * x * x
    assert value <= grid.min() * (1 + 1e-12)
    assert value == pytest.approx(grid.min(), rel=2e-3)


def test_opc_plan_reaches_the_minimum_and_full_power_devices_use_all_energy():
    obs, deployment, message = observe(200), site(WEIGHTS), gradient_message()
    policy = build("opc", deployment)
    _, plan, info = policy.step((), obs)
    used = np.abs(plan.tx) ** 2 * G**2
    np.testing.assert_allclose(used[info.full_power], DIM, rtol=1e-12)
    link = lower(plan, obs.estimate, deployment)
    np.testing.assert_allclose(link.weight[~info.full_power], np.broadcast_to(WEIGHTS, used.shape)[~info.full_power])
    assert info.full_power.any() and not info.full_power.all()
    assert poisson_message().bound == np.inf
    assert np.all(np.isfinite(plan_of(build("opc", deployment, poisson_message()), obs).tx))
    assert message.bound == G


def test_opc_shrinks_as_much_as_known_in_the_test_deployment():
    """Ten devices at known distances, n_f = 1/2: weights sum to 0.71 on average (standard error here below 0.002)."""
    metres = np.array([1252, 1706, 664, 1704, 977, 1139, 1592, 1119, 1297, 291.0])
    snr = 10 ** ((113.0 - 50 - 22 * np.log10(metres)) / 10)
    power = snr * np.random.default_rng(0).exponential(size=(40_000, 10))
    reach, w = np.sqrt(power), np.full(10, 0.1)  # in unit c
    xi = opc.best_post_scale(reach, w, np.ones(10), 0.5)
    assert np.minimum(reach * xi[:, None], w).sum(1).mean() == pytest.approx(0.71, abs=0.008)


@pytest.mark.parametrize("name", ["exact", "lcpc", "bbfl-interior-truncated"])
def test_the_ledger_charges_silent_rounds_too(name):
    obs = observe(300)
    plan, deployment, message = plan_of(build(name), obs), site(), gradient_message()
    trace = Trace(obs.estimate, obs.estimate, obs.rms, obs.rms, obs.rms, obs.rms, obs.coin)
    prob = np.broadcast_to(plan.send_prob, obs.coin.shape)
    released = events(plan._replace(send_prob=prob), trace, deployment, message)
    assert (plan.max_norm < 0).any()
    np.testing.assert_allclose(released.amp, np.broadcast_to(released.amp[:1], released.amp.shape), rtol=1e-12)
    np.testing.assert_array_equal(released.possible, plan.max_norm >= 0)
    sending = released.amp[0] > 0  # never scheduled: no amplitude
    multiplier = np.sqrt(0.5) / (released.amp[0, sending] * 2 * G)
    np.testing.assert_allclose(noise_multiplier(released)[0, sending], multiplier, rtol=1e-12)


@pytest.mark.parametrize("name", ["lcpc-unit", "opc-unit"])
def test_unit_sum_removes_the_shrinkage(name):
    rounds = 20_000
    obs = observe(rounds, seed=8)
    total = lower(plan_of(build(name), obs), obs.estimate, site()).weight
    total = np.where(plan_of(build(name), obs).max_norm >= 0, total, 0).sum(-1)
    sd = total.std() / np.sqrt(rounds) * (1 + np.sqrt(rounds / 2000) if name == "opc-unit" else 1)
    assert abs(total.mean() - 1) <= SIGMAS * sd
    assert norm.sf(SIGMAS) < 1e-6


def test_bbfl_over_everybody_is_full_inversion():
    obs, deployment, message = observe(100), site(WEIGHTS), gradient_message()
    everybody = bbfl.bbfl(bbfl.Config(interior=tuple(range(K))), deployment, message, Context())
    full = weakest.weakest(weakest.Config(), deployment, message, Context())
    np.testing.assert_allclose(plan_of(everybody, obs).tx, plan_of(full, obs).tx, rtol=1e-12)
    np.testing.assert_allclose(plan_of(everybody, obs).rx_scale, plan_of(full, obs).rx_scale, rtol=1e-12)


def test_bbfl_alternative_switches_by_the_public_coin():
    obs = observe(400)
    plan = plan_of(build("bbfl-alternative"), obs)
    heads = obs.coin[:, 0] < 0.5
    assert np.all(plan.max_norm[heads] > 0)
    assert np.all(plan.max_norm[~heads][:, [0, 1, 4]] < 0)
    weight = lower(plan, obs.estimate, site()).weight
    np.testing.assert_allclose(weight[heads], 1 / K, rtol=1e-12)
    np.testing.assert_allclose(weight[~heads][:, [2, 3, 5]], 1 / 3, rtol=1e-12)


def test_bbfl_truncated_is_unbiased_over_the_interior():
    rounds = 20_000
    obs, deployment = observe(rounds, seed=4), site(WEIGHTS)
    plan = plan_of(build("bbfl-interior-truncated", deployment), obs)
    weight = lower(plan, obs.estimate, deployment).weight
    share = WEIGHTS[[2, 3, 5]] / WEIGHTS[[2, 3, 5]].sum()
    spread = weight[:, [2, 3, 5]].std(0) / np.sqrt(rounds)
    assert np.all(np.abs(weight[:, [2, 3, 5]].mean(0) - share) <= SIGMAS * spread)


def test_bbfl_interior_from_distances():
    config = bbfl.Config(distances_m=(100, 700, 1049, 1051, 1700, 60), cell_radius_m=1750)
    assert bbfl.interior_mask(config, K).tolist() == [True, True, True, False, False, True]


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (bbfl.Config(), "interior"),
        (bbfl.Config(interior=()), "empty"),
        (bbfl.Config(interior=(6,)), "interior"),
        (bbfl.Config(distances_m=(1.0,) * K), "cell_radius_m"),
        (bbfl.Config(distances_m=(1.0,) * (K - 1), cell_radius_m=2.0), "shape"),
        (bbfl.Config(distances_m=(0.0,) + (1.0,) * (K - 1), cell_radius_m=2.0), "distances_m"),
        (bbfl.Config(distances_m=(5.0,) * K, cell_radius_m=2.0), "empty"),
    ],
)
def test_bbfl_refuses_unclear_interiors(config, text):
    with pytest.raises(InputError, match=text):
        bbfl.bbfl(config, site(), gradient_message(), Context())


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (bv.Config(rho=1.0, kappa=1.0), "rho"),
        (bv.Config(kappa=1.0, eta=0.1), "belong together"),
        (bv.Config(rho=-1.0), "rho"),
        (bv.Config(design="best"), "design"),
        (bv.Config(sigma2=(1.0, 2.0)), "sigma2"),
        (bv.Config(sigma2=-1.0), "sigma2"),
        (bv.Config(headroom=0.0), "headroom"),
        (bv.Config(headroom=1.1), "headroom"),
    ],
)
def test_biasvar_refuses_unclear_configs(config, text):
    with pytest.raises(InputError, match=text):
        bv.biasvar(config, site(), gradient_message(), Context())


@pytest.mark.parametrize("name", ["exact", "lcpc", "bbfl-interior-truncated"])
def test_truncation_needs_a_norm_bound(name):
    with pytest.raises(InputError, match="bound"):
        build(name, message=poisson_message())
