"""CDPB's plans: energy, silence, noise at the receiver, normalisers, laws that change, baselines."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otafl.core.errors import InputError
from otafl.core.plan import Context, Deployment, Message, Obs, Trace
from otafl.core.rounds import plan_ahead
from otafl.core.uplink import lower, transmit_energy
from otafl.privacy.events import events
from otafl.privacy.participation import run_rdp
from otafl.systems.cdpb import design
from otafl.systems.cdpb import policy as policy_file
from otafl.systems.cdpb import rival_policies as baselines
from otafl.systems.cdpb.policy import Config, cdpb

T, K, D, W = 4000, 12, 5, 1.7


def site(noise_var=0.2, energy=2.0, clients=K):
    weights = np.full(clients, 1 / clients)
    deployment = Deployment(np.full(clients, energy), noise_var, noise_var, weights, D)
    message = Message(D, W, np.full(clients, W**2), np.full(clients, W), np.ones(clients), "client", "zero-out")
    return deployment, message


def trace(rms=1.3, rounds=T, clients=K, seed=0):
    rng = np.random.default_rng(seed)
    level = np.broadcast_to(np.asarray(rms, float), (rounds, clients))
    gain = level * (rng.standard_normal((rounds, clients)) + 1j * rng.standard_normal((rounds, clients))) / np.sqrt(2)
    return Trace(gain, gain, level, level, level, level, rng.random((rounds, clients)))


def planned(config, factory=cdpb, deployment=None, tr=None, rounds=100):
    dep, message = site() if deployment is None else deployment
    policy = factory(config, dep, message, Context(rounds=rounds))
    return policy, *plan_ahead(policy, policy.init(None), trace() if tr is None else tr)[1:]


STRATEGIES = [
    Config(load=0.6),
    Config("noisy", load=0.6),
    Config("mixed", 0.3, "scale", load=0.6),
    Config("mixed", 0.3, "coin", load=0.6),
]


@pytest.mark.parametrize("config", STRATEGIES)
def test_participants_and_noise_match_the_design(config):
    """Means over 4,000 rounds of K_t, of the noise variance and of the clients' energy, within 4.5 standard errors."""
    dep, _ = site()
    _, plan, info = planned(config)
    params = design.Params(K=K, d=D, W=W, P=2.0, sigma2=1.3**2 / 2, sz2=0.2, capped=False)
    at = design.stats(params, 0.6, design.scheme(config.strategy, config.portion))
    link = lower(plan, trace().gain, dep)
    variance = (link.noise_std * plan.rx_scale) ** 2
    spent = transmit_energy(plan, np.full((T, K), W), info.good, D).mean(-1)
    for sample, mean in ((info.good.sum(-1), at.K_t), (variance, at.s2), (spent, at.energy)):
        assert abs(np.mean(sample) - mean) <= 4.5 * np.std(sample) / np.sqrt(T) + 1e-12
    assert plan.send_prob == pytest.approx(np.exp(-0.6))
    assert plan.rx_scale == pytest.approx(float(np.sqrt(at.rho) * at.K_t))
    assert link.weight[info.good] == pytest.approx(1 / float(at.K_t))
    assert np.all(link.weight[~info.good] == 0)


def test_received_variance_per_coordinate_is_what_the_plan_says():
    """Send pure noise of one round 40,000 times: variance within 4.5 standard errors (chi-square)."""
    dep, _ = site()
    _, plan, _ = planned(Config("noisy", load=0.6), tr=trace(rounds=3))
    gain, rng, n = trace(rounds=3).gain[1], np.random.default_rng(9), 40_000
    sent = plan.noise[1] * rng.standard_normal((n, K))
    y = np.real(sent @ gain) + np.sqrt(dep.noise_var) * rng.standard_normal(n)
    expected = float((lower(plan, trace(rounds=3).gain, dep).noise_std * plan.rx_scale)[1] ** 2)
    assert abs(y.var() / expected - 1) < 4.5 * np.sqrt(2 / n)
    assert np.allclose(np.imag(gain * plan.noise[1]), 0, atol=1e-12)  # E18: all of it lands on the real axis


def test_unrotated_noise_would_lose_half_its_power():
    """E18, on average over 4,000 x 12 phases (4.5 standard errors)."""
    _, plan, info = planned(Config("noisy", load=0.6))
    gain = trace().gain
    full, lost = np.abs(gain * plan.noise) ** 2, np.real(gain * np.abs(plan.noise)) ** 2
    share = (lost / full)[~info.good]
    assert abs(share.mean() - 0.5) < 4.5 * share.std() / np.sqrt(share.size)


@settings(max_examples=40, deadline=None)
@given(load=st.floats(1e-3, 4), norm=st.floats(0, 1), portion=st.floats(0, 1), coin=st.booleans())
def test_nobody_exceeds_its_energy(load, norm, portion, coin):
    """For every norm <= W, reliable or not."""
    dep, _ = site()
    config = Config("mixed", portion, "coin" if coin else "scale", load=load)
    _, plan, info = planned(config, tr=trace(rounds=50))
    spent = transmit_energy(plan, np.full((50, K), norm * W), info.good, D)
    assert np.all(spent <= dep.energy * (1 + 1e-9))


@pytest.mark.parametrize("mode", ["coin", "scale"])
def test_ends_of_the_mixture_are_idle_and_noisy_bit_for_bit(mode):
    for portion, strategy in ((0.0, "idle"), (1.0, "noisy")):
        _, mixed, _ = planned(Config("mixed", portion, mode, load=0.6))
        _, pure, _ = planned(Config(strategy, load=0.6))
        for a, b in zip(mixed, pure):
            assert np.array_equal(a, b)


@pytest.mark.parametrize("mode", ["coin", "scale"])
def test_unreliable_clients_radiate_their_portion(mode):
    """Coin: all of P where the client's own coin says so, 0.3 of the time; scale: 0.3 P always."""
    tr = trace()
    _, plan, info = planned(Config("mixed", 0.3, mode, load=0.6), tr=tr)
    wanted = np.where(tr.coin < 0.3, 1.0, 0.0) if mode == "coin" else np.full(tr.coin.shape, 0.3)
    spent = D * np.abs(plan.noise) ** 2 / 2.0
    assert spent[~info.good] == pytest.approx(wanted[~info.good])


@pytest.mark.parametrize("config", STRATEGIES)
def test_a_client_looks_at_its_own_channel_only(config):
    policy, plan, _ = planned(config, tr=trace(rounds=20))
    other = trace(rounds=20)
    gain = other.gain.copy()
    gain[:, 3] *= 0.01j
    _, changed, _ = planned(config, tr=other._replace(gain=gain, estimate=gain))
    others = np.arange(K) != 3
    for name in ("tx", "noise", "max_norm"):
        assert np.array_equal(getattr(plan, name)[:, others], getattr(changed, name)[:, others])
    assert np.array_equal(plan.rx_scale, changed.rx_scale)
    assert (policy.csi, policy.loop, policy.gate) == ("own", "open", "bound")


def test_expected_count_is_unbiased():
    """E[update] is the plain mean of all messages (E21); 4.5 standard errors over 4,000 rounds."""
    dep, _ = site()
    _, plan, info = planned(Config(load=0.9))
    x = np.linspace(-1, 2, K)
    mean = (lower(plan, trace().gain, dep).weight * info.good) @ x
    assert abs(mean.mean() - x.mean()) < 4.5 * mean.std() / np.sqrt(T)


def test_debiasing_unlike_clients():
    """Clients with unlike channels: the plain mean leans to the strong, the weighted one does not (4.5 s.e.)."""
    dep, message = site()
    weights = np.linspace(1, 3, K) / np.linspace(1, 3, K).sum()
    dep = dep._replace(weights=weights)
    tr = trace(rms=np.geomspace(0.6, 2.0, K), rounds=30_000)
    x = np.linspace(-1, 2, K)
    found = {}
    for debias in (False, True):
        _, plan, info = planned(Config(load=0.5, debias=debias), deployment=(dep, message), tr=tr)
        update = (lower(plan, tr.gain, dep).weight * info.good) @ x
        found[debias] = (update.mean() - weights @ x) / (update.std() / np.sqrt(len(update)))
        spent = transmit_energy(plan, np.full(info.good.shape, W), info.good, D)
        assert np.all(spent <= dep.energy * (1 + 1e-9))
    assert abs(found[True]) < 4.5 < abs(found[False])


def test_genie_counts_and_an_empty_round_changes_nothing():
    """K_t = 0: rx_scale = inf, so the update is zero; the plan stays live and keeps being charged."""
    dep, message = site(clients=2)
    tr = trace(clients=2, rounds=400)
    policy, plan, info = planned(Config(load=1.2, normaliser="genie"), deployment=(dep, message), tr=tr)
    empty = ~info.good.any(-1)
    assert 0 < empty.sum() < 400
    link = lower(plan, tr.gain, dep)
    assert np.all(link.weight[empty] == 0)
    assert np.all(link.noise_std[empty] == 0)
    assert np.all(plan.live)
    assert link.weight[info.good] == pytest.approx(1 / np.repeat(info.good.sum(-1), 2).reshape(-1, 2)[info.good])
    released = events(plan, tr, dep, message)
    assert np.all(run_rdp(released, "none", [2]) > 0)
    assert np.all(released.amp[empty] > 0)
    assert policy.csi == "global"


def test_pilot_count_is_noisy_and_at_least_one():
    """K_hat - K_t has the stated variance where the floor does not bite (chi-square, 4.5 standard errors)."""
    _, plan, info = planned(Config(load=0.1, normaliser="pilot", pilot_var=0.25))
    counted = plan.rx_scale / np.sqrt(info.rho)
    error = counted - info.good.sum(-1)
    assert abs(error.mean()) < 4.5 * 0.5 / np.sqrt(T)
    assert abs(error.var() / 0.25 - 1) < 4.5 * np.sqrt(2 / T)
    _, wild, info = planned(Config(load=2.0, normaliser="pilot", pilot_var=25.0))
    assert np.min(wild.rx_scale / np.sqrt(info.rho)) == pytest.approx(1)


def test_counting_voids_hidden():
    dep, message = site()
    for normaliser in ("genie", "pilot"):
        with pytest.raises(InputError, match="hidden"):
            cdpb(Config(load=0.5, normaliser=normaliser, accounting="hidden"), dep, message, Context())
    policy_file.check_accounting("expected", "hidden")


def test_realised_charge_of_the_ledger_equals_the_design():
    """The same rounds through events and the ledger, and through the design's own formula."""
    dep, message = site()
    tr = trace(rounds=60)
    _, plan, info = planned(Config("noisy", load=0.6), tr=tr)
    ledger = run_rdp(events(plan, tr, dep, message), "realised", [2.0])[:, 0]
    params = design.Params(K=K, d=D, W=W, P=2.0, sigma2=1.3**2 / 2, sz2=0.2, capped=False)
    s2 = (lower(plan, tr.gain, dep).noise_std * plan.rx_scale) ** 2
    drawn = design.Draw(info.good, info.good.sum(-1), np.zeros((60, K)), s2)
    assert ledger == pytest.approx(design.realised(params, float(info.rho[0]), drawn).per_client, rel=1e-9)


def test_load_is_solved_for_the_rounds_of_the_experiment():
    """Without a load, the one that minimises lam1 6 B / (mu tau) + lam2 eps; more rounds ask for a smaller rho."""
    rho = {}
    for rounds in (10, 1000):
        _, _, info = planned(Config(lam2=1e-2), tr=trace(rounds=3), rounds=rounds)
        params = design.Params(K=K, d=D, W=W, P=2.0, sigma2=1.3**2 / 2, sz2=0.2, lam2=1e-2, capped=False)
        wanted = params.rho(design.best_load(params, rounds, design.IDLE, design.VISIBLE))
        assert info.rho == pytest.approx(float(wanted))
        rho[rounds] = float(info.rho[0])
    assert rho[1000] < rho[10]


def test_the_load_of_unlike_clients_depends_on_what_arrives_alone():
    """A client that sends E through a mean power gain g arrives like one that sends E g through 1; there is no cap."""
    dep, message = site()
    energy, power, rho = np.linspace(0.5, 3, K), np.linspace(9, 4, K), []
    for sent, mean in ((energy, power), (energy * power, np.ones(K)), (energy, np.full(K, power[0]))):
        tr = trace(rms=np.sqrt(mean), rounds=3)
        _, _, info = planned(Config(lam2=1e-3), deployment=(dep._replace(energy=sent), message), tr=tr)
        rho.append(float(info.rho[0]))
    assert rho[0] == pytest.approx(rho[1], rel=1e-6) and abs(rho[0] / rho[2] - 1) > 0.01


def test_hidden_participants_are_charged_less_and_may_be_louder():
    rho = {}
    for accounting in ("visible", "hidden"):
        _, _, info = planned(Config(lam2=1e-1, accounting=accounting), tr=trace(rounds=3))
        rho[accounting] = float(info.rho[0])
    assert rho["hidden"] > 1.01 * rho["visible"]


def test_rho_follows_the_channel_law():
    """A fixed load: rho is proportional to the mean power gain, at once, every n rounds, or with a delay."""
    rms = np.repeat([1.0, 2.0], [5, 7])[:, None] * np.ones(K)
    tr = trace(rms=rms, rounds=12)
    expect = {(1, 0): 5, (1, 1): 6, (1, 3): 8, (2, 0): 6, (4, 0): 8, (4, 2): 10}
    for (every, delay), first in expect.items():
        policy, plan, info = planned(Config(load=0.5, resolve_every=every, solver_delay=delay), tr=tr)
        assert info.rho / info.rho[0] == pytest.approx([1.0] * first + [4.0] * (12 - first))
        assert (policy.init(None) == ()) == (every == 1 and delay == 0)
        power = (rms**2)[:, 0] * 2.0
        assert plan.send_prob[:, 0] == pytest.approx(np.exp(-info.rho * W**2 / power))


def test_following_at_once_is_the_stateless_plan():
    """The carried state must give what the one broadcast call gives."""
    tr = trace(rms=np.linspace(0.5, 2, 30)[:, None] * np.ones(K), rounds=30)
    dep, message = site()
    _, stateless, _ = planned(Config(), tr=tr)
    law, rho_for = design.unknown(), policy_file.rho_rule(Config(), dep, message, 100, design.IDLE)
    for t in range(30):
        law = design.follow(law, t, tr.rms_gain[t] ** 2, lambda power: float(rho_for(power)), 1, 0)
        assert np.abs(stateless.tx[t]) == pytest.approx(np.sqrt(law.rho) / np.abs(tr.gain[t]))


def test_unlike_energies_and_a_dead_channel():
    dep, message = site()
    dep = dep._replace(energy=np.linspace(0.5, 3, K))
    tr = trace(rounds=200)
    gain = tr.gain.copy()
    gain[:, 0] = 0
    _, plan, info = planned(
        Config("noisy", load=0.6), deployment=(dep, message), tr=tr._replace(gain=gain, estimate=gain)
    )
    assert not info.good[:, 0].any()
    assert np.all(plan.tx[:, 0] == 0)
    spent = transmit_energy(plan, np.full((200, K), W), info.good, D)
    assert spent == pytest.approx(np.broadcast_to(dep.energy, (200, K)))


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (Config(load=0.0), "load"),
        (Config(load=float("nan")), "load"),
        (Config("mixed", load=0.5), "portion"),
        (Config("mixed", 1.5, load=0.5), "portion"),
        (Config("idle", 0.5, load=0.5), "portion"),
        (Config(load=0.5, normaliser="oracle"), "normaliser"),  # type: ignore[arg-type]
        (Config(load=0.5, mixed_mode="dice"), "mixed_mode"),  # type: ignore[arg-type]
        (Config(load=0.5, pilot_var=-1), "pilot_var"),
        (Config(load=0.5, resolve_every=0), "resolve_every"),
        (Config(load=0.5, solver_delay=-1), "solver_delay"),
        (Config(load=0.5, normaliser="genie", debias=True), "debias"),
        (Config(load=0.5, left_over=-0.1), "left_over"),
        (Config(load=0.5, left_over=1.1), "left_over"),
        (Config(left_over=0.5), "left_over=0.5 needs load"),
    ],
)
def test_bad_settings_are_named(config, name):
    dep, message = site()
    with pytest.raises(InputError, match=name):
        cdpb(config, dep, message, Context())


def test_what_cannot_send_is_refused():
    dep, message = site()
    with pytest.raises(InputError, match="energy"):
        cdpb(Config(load=0.5), dep._replace(energy=np.zeros(K)), message, Context())


def test_unbounded_messages_are_refused():
    dep, message = site()
    with pytest.raises(InputError, match="bound"):
        cdpb(Config(load=0.5), dep, message._replace(bound=np.inf), Context())


# --- baselines --------------------------------------------------------------------------------------------------


def test_gbar_based_uses_the_least_error_and_stops():
    config = baselines.GbarConfig(gbar=0.5)
    _, plan, info = planned(config, baselines.gbar_based, tr=trace(rounds=200))
    params = design.Params(K=K, d=D, W=W, P=2.0, sigma2=1.3**2 / 2, sz2=0.2, capped=False, gbar=0.5)
    u = design.lemma1(params)
    assert info.rho == pytest.approx(float(params.rho(u)))
    needed = int(np.ceil(6 * float(design.error_energy(params, design.stats(params, u))) / 0.5))
    assert 1 < needed < 200
    assert plan.live.sum() == needed


def test_hmin_based_has_everybody_and_spends_everything():
    """rho_t = P min h / W^2 and v_t = P sum h - K rho_t W^2; E[h_min] = 2 sigma^2 / K (4.5 standard errors)."""
    dep, _ = site()
    policy, plan, info = planned(baselines.HminConfig(), baselines.hmin_based)
    h = np.abs(trace().gain) ** 2
    assert info.rho == pytest.approx(2.0 * h.min(-1) / W**2)
    link = lower(plan, trace().gain, dep)
    assert link.weight == pytest.approx(1 / K)
    v = D * ((link.noise_std * plan.rx_scale) ** 2 - dep.noise_var)
    assert v == pytest.approx(2.0 * h.sum(-1) - K * info.rho * W**2)
    least = h.min(-1)
    assert abs(least.mean() - 1.3**2 / K) < 4.5 * least.std() / np.sqrt(T)
    assert np.all(transmit_energy(plan, np.full((T, K), W), True, D) <= dep.energy * (1 + 1e-9))
    assert policy.csi == "global"


def test_independent_sampling_thins():
    """K_t and noise of CDPB-i with p replaced by p q; 4.5 standard errors."""
    dep, _ = site()
    _, plan, info = planned(baselines.SamplingConfig(q=0.4, load=0.6), baselines.independent_sampling)
    params = design.Params(K=K, d=D, W=W, P=2.0, sigma2=1.3**2 / 2, sz2=0.2, capped=False)
    at = design.stats(params, 0.6, design.Scheme(keep=0.4))
    variance = (lower(plan, trace().gain, dep).noise_std * plan.rx_scale) ** 2
    for sample, mean in ((info.good.sum(-1), at.K_t), (variance, at.s2)):
        assert abs(np.mean(sample) - mean) <= 4.5 * np.std(sample) / np.sqrt(T)
    assert plan.send_prob == pytest.approx(0.4 * np.exp(-0.6))
    assert np.all(plan.noise[~info.good] == 0)


def test_noise_free_has_no_noise_and_needs_the_receivers():
    dep, message = site(noise_var=0.0)
    with pytest.raises(InputError, match="trusted_noise_var"):
        baselines.noise_free(baselines.NoiseFreeConfig(), dep, message, Context())
    _, plan, _ = planned(baselines.NoiseFreeConfig(load=0.6), baselines.noise_free, deployment=(dep, message))
    assert np.all(plan.noise == 0)
    assert np.all(run_rdp(events(plan, trace(), dep, message), "none", [2]) == np.inf)
    _, noisy_receiver, _ = planned(baselines.NoiseFreeConfig(), baselines.noise_free)
    assert np.all(np.isfinite(run_rdp(events(noisy_receiver, trace(), *site()), "none", [2])))


def test_observation_without_estimates_is_not_needed_for_rho():
    """rho depends on the law only: two traces of one law give one rho."""
    _, _, one = planned(Config(load=0.5), tr=trace(seed=1, rounds=5))
    _, _, two = planned(Config(load=0.5), tr=trace(seed=2, rounds=5))
    assert np.array_equal(one.rho, two.rho)


def test_obs_is_all_a_step_needs():
    """A plain Obs of one round, no leading axes."""
    dep, message = site()
    policy = cdpb(Config(load=0.5), dep, message, Context())
    row = trace(rounds=1)
    level = row.rms_gain[0]
    obs = Obs(np.array(0), row.estimate[0], level, level, level, row.coin[0], np.nan)
    _, plan, info = policy.step((), obs)
    assert plan.tx.shape == (K,)
    assert np.shape(plan.rx_scale) == ()
    assert info.good.dtype == bool


@pytest.mark.parametrize("name", ["cdpb", "cdpb-is", "cdpb-noise-free"])
def test_a_load_below_zero_is_refused_by_every_scheme_that_takes_one(name):
    from otafl.systems import scheme

    entry = scheme(name)
    with pytest.raises(InputError, match=r"^load=-1.0 must be finite and > 0"):
        planned(entry.config(load=-1.0), entry.factory)
