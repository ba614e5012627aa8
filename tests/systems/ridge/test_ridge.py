"""Ridge inversion: closed forms against numerical integrals, the published table, exact spending, and optimality."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.special import exp1

from otafl.core.errors import Infeasible, InputError
from otafl.core.plan import Context, Message
from otafl.core.rounds import plan_ahead
from otafl.privacy import Budget, Ledger, events
from otafl.runs.planning.energy import check_energy, planned_energy
from otafl.systems.ridge import phases
from otafl.systems.ridge.certificate import certify
from otafl.systems.ridge.inversion import (
    Levels,
    efficiency,
    energy,
    kappa_for_efficiency,
    kappa_for_energy,
    limited,
    moments,
)
from otafl.systems.ridge.policy import Config, ridge
from small import deployment as small_deployment
from small import trace

MESSAGE = Message(53, 1.5, np.full(4, 2.25), np.full(4, 3.0), np.ones(4), "client", "replace")
EQUAL = small_deployment(0.1, energy=1e6)._replace(weights=np.full(4, 0.25))
CONTEXT = Context(rounds=150, eps=8.0, delta=1e-5, accountant="gaussian")


def expected(of) -> float:
    """E of(x) for exponential x, by quadrature over pieces that are short where x is small."""
    ends = pairwise(np.linspace(0, 1, 9) ** 4 * 60)
    return sum(quad(lambda x: of(x) * np.exp(-x), low, high, limit=300)[0] for low, high in ends)


def planned(config: Config, site=EQUAL, context=CONTEXT, seed=0):
    policy = ridge(config, site, MESSAGE, context)
    channel = trace(context.rounds, seed)
    _, plan, info = plan_ahead(policy, policy.init(None), channel)
    return plan, info, channel


@pytest.mark.parametrize("kappa", [1e-6, 0.012, 0.204, 1.37, 16.8, 100.0])
def test_moments_are_the_integrals(kappa):
    whole = [lambda x: x / (x + kappa), lambda x: (x / (x + kappa)) ** 2, lambda x: x / (x + kappa) ** 2]
    for value, of in zip(moments(kappa), whole):
        assert value == pytest.approx(expected(of), rel=1e-7)


@pytest.mark.parametrize(
    ("theta", "kappa", "spent", "saved"),
    [(0.01, 0.012, 3.23, 0.21), (0.03, 0.042, 2.31, 0.24), (0.1, 0.204, 1.45, 0.28), (0.3, 1.37, 0.84, 0.31),
     (0.6, 16.8, 0.55, 0.33)],
)  # fmt: skip
def test_energy_saved_against_truncated_inversion_of_equal_efficiency(theta, kappa, spent, saved):
    own = kappa_for_efficiency(np.exp(-theta / 2))
    assert own == pytest.approx(kappa, rel=0.04) and energy(own) == pytest.approx(spent, abs=0.006)
    assert 1 - energy(own) / (exp1(theta) * np.exp(theta)) == pytest.approx(saved, abs=0.006)


def test_kappa_is_found_again():
    for kappa in (0.01, 0.5, 20.0):
        assert kappa_for_efficiency(float(efficiency(kappa))) == pytest.approx(kappa, rel=1e-8)
        assert kappa_for_energy(energy(kappa)) == pytest.approx(kappa, rel=1e-4)
    with pytest.raises(Infeasible, match="matched filter"):
        kappa_for_efficiency(0.7)


@pytest.mark.parametrize(("q", "kappa"), [(0.3, 0.5), (3.0, 0.5), (0.7, 0.0), (40.0, 1.4)])
def test_moments_under_a_limit_of_each_round_are_the_integrals(q, kappa):
    of = lambda x: min(q * x / (x + kappa), np.sqrt(x))  # noqa: E731
    for value, power in zip(limited(q, kappa), (1, 2)):
        assert value == pytest.approx(expected(lambda x, power=power: of(x) ** power), rel=1e-6)


def test_levels_spend_what_they_are_asked_for():
    kappa = np.array([0.0, 0.2, 0.2, 5.0])
    wanted = np.array([0.6, 0.001, 0.7, 0.9])
    assert limited(Levels(kappa).of(wanted), kappa).square == pytest.approx(wanted, rel=2e-3)


def test_no_power_control_on_the_same_channels_has_more_signal_for_that_privacy_and_energy():
    """The finite problem of one client solved by a solver that knows nothing of the closed form."""
    x = np.random.default_rng(3).exponential(size=12)
    kappa = 0.4
    ours = x / (x + kappa)
    privacy, joules = np.sum(ours**2), np.sum(ours**2 / x)
    limits = [{"type": "ineq", "fun": lambda a: privacy - np.sum(a**2)},
              {"type": "ineq", "fun": lambda a: joules - np.sum(a**2 / x)}]  # fmt: skip
    best = minimize(lambda a: -np.sum(a), np.full(12, 0.1), constraints=limits, bounds=[(0, None)] * 12, tol=1e-12)
    assert best.success and -best.fun == pytest.approx(np.sum(ours), rel=1e-6)


@pytest.mark.parametrize("accountant", ["gaussian", "zcdp"])
@pytest.mark.parametrize("config", [Config(), Config(kappa=1.37), Config(joules=1.0), Config(kappa=0.0)])
def test_every_client_spends_its_budget_and_never_more(config, accountant):
    context = CONTEXT._replace(accountant=accountant)
    plan, info, channel = planned(config, context=context)
    budget = Budget(8.0, 1e-5, accountant, adjacency="replace")
    ledger = Ledger(budget, 4)
    released = events(plan, channel, EQUAL, MESSAGE)
    assert np.all(ledger.affordable(released))  # the last round is within the cap too
    ledger.spend(released)
    assert np.all(ledger.spent().eps <= 8.0)
    if config.joules is None:
        assert np.all(ledger.zcdp() > 0.97 * budget.zcdp) and info.unspent[-1] < 0.03
    else:
        assert np.all(planned_energy(plan, MESSAGE).sum(0) <= 1.0 + 1e-9)


@pytest.mark.parametrize("config", [Config(kappa=0.05), Config(kappa=1.37), Config(efficiency=0.861)])
def test_the_first_round_is_regularised_as_asked(config):
    """a(x) = c x/(x + kappa), one c for clients that are alike; efficiency 0.861 is kappa = 1.37."""
    plan, _, channel = planned(config)
    x, kappa = np.abs(channel.gain[0]) ** 2, config.kappa or 1.37
    level = np.abs(plan.tx * channel.gain)[0] * (x + kappa) / x
    assert level == pytest.approx(np.full(4, level[0]), rel=2e-3)


@pytest.mark.parametrize("config", [Config(), Config(kappa=0.0), Config(joules=1.0)])
def test_a_channel_that_is_gone_for_a_round_sends_nothing_and_spends_nothing(config):
    policy, channel = ridge(config, EQUAL, MESSAGE, CONTEXT), trace(CONTEXT.rounds)
    gain = channel.gain.copy()
    gain[0] = 0
    _, plan, info = plan_ahead(policy, policy.init(None), channel._replace(gain=gain, estimate=gain))
    assert np.all(plan.tx[0] == 0) and np.all(plan.tx[1:] != 0)
    assert info.unspent[0] == 1 and 0.9 < info.unspent[1] < 1


@pytest.mark.parametrize("joules", [0.01, 1.0])
def test_what_arrives_depends_on_the_joules_that_could(joules):
    """J through a gain of 3 arrive like 9 J through 1; so do limits of single rounds."""
    one, arriving = trace(CONTEXT.rounds), []
    for gain in (1.0, 3.0):
        site, channel = (
            EQUAL._replace(energy=EQUAL.energy / gain**2),
            one._replace(
                **{name: gain * getattr(one, name) for name in ("gain", "estimate", "rms_gain", "rms_estimate")}
            ),
        )
        policy = ridge(Config(joules=joules / gain**2), site, MESSAGE, CONTEXT)
        _, plan, _ = plan_ahead(policy, policy.init(None), channel)
        arriving.append(np.abs(plan.tx * channel.gain))
        assert np.all(planned_energy(plan, MESSAGE).sum(0) <= joules / gain**2 * (1 + 1e-9))
    np.testing.assert_allclose(*arriving, rtol=1e-9, atol=1e-9)


def test_unlike_sensitivities_and_errors_of_the_estimates_are_spent_exactly_too():
    site, message = EQUAL._replace(gain_error=0.2), MESSAGE._replace(sensitivity=np.array([3.0, 1.5, 0.3, 2.0]))
    policy, channel = ridge(Config(aim="signal"), site, message, CONTEXT), trace(CONTEXT.rounds)
    _, plan, _ = plan_ahead(policy, policy.init(None), channel)
    budget = Budget(8.0, 1e-5, "gaussian", adjacency="replace")
    ledger, released = Ledger(budget, 4), events(plan, channel, site, message)
    assert np.all(ledger.affordable(released))
    ledger.spend(released)
    assert np.all(ledger.zcdp() > 0.97 * budget.zcdp)


def test_spent_amplitudes_have_the_promised_efficiency_energy_and_weights():
    config, context = Config(efficiency=0.9), CONTEXT._replace(rounds=3000)
    plan, info, channel = planned(config, context=context)
    promised = certify(config, EQUAL, MESSAGE, context, np.ones(4))
    amplitude = np.abs(plan.tx * channel.gain)
    efficient = np.sum(amplitude) / np.sum(np.sqrt(context.rounds * np.sum(amplitude**2, axis=0)))
    assert efficient == pytest.approx(0.9, abs=0.01) and promised.efficiency == pytest.approx(0.9, abs=1e-4)
    assert planned_energy(plan, MESSAGE).sum(0) == pytest.approx(promised.joules, rel=0.08)
    assert np.mean(info.received) == pytest.approx(1.0, abs=0.02) and promised.covered == pytest.approx(1.0)


def test_rounds_stay_within_the_limit_and_far_devices_give_what_they_can():
    tight = EQUAL._replace(energy=np.array([1e6, 1e6, 1e-6, 1e-6]))
    plan, _, channel = planned(Config(kappa=0.05), tight)
    check_energy(plan, plan.live, tight, MESSAGE, "ridge")
    amplitude = np.abs(plan.tx * channel.gain)
    np.testing.assert_allclose(np.abs(plan.tx[:, 2]) ** 2 * 2.25, 1e-6, rtol=1e-9)  # full power, never silent
    found = certify(Config(kappa=0.05), tight, MESSAGE, CONTEXT, np.ones(4))
    assert found.weight == pytest.approx(np.mean(amplitude, axis=0) / np.mean(amplitude.sum(1)), abs=0.01)
    assert found.covered < 0.9


def test_weights_are_kept_in_the_mean_or_given_up_for_signal():
    unlike = EQUAL._replace(weights=np.array([0.1, 0.25, 0.3, 0.35]))
    fair = certify(Config(kappa=0.2), unlike, MESSAGE, CONTEXT, np.ones(4))
    loud = certify(Config(kappa=0.2, aim="signal"), unlike, MESSAGE, CONTEXT, np.ones(4))
    assert fair.weight == pytest.approx(unlike.weights) and fair.covered == pytest.approx(1.0)
    assert loud.weight == pytest.approx(np.full(4, 0.25)) and loud.efficiency == pytest.approx(0.951, abs=0.001)
    assert fair.efficiency == pytest.approx(loud.efficiency / (4 * 0.35), rel=1e-6)


def test_later_channels_change_nothing_that_was_sent():
    policy = ridge(Config(), EQUAL, MESSAGE, CONTEXT)
    one = trace(150)
    bent = one._replace(estimate=np.where(np.arange(150)[:, None] < 20, one.estimate, 3 * one.estimate))
    first, second = (plan_ahead(policy, policy.init(None), channel)[1] for channel in (one, bent))
    np.testing.assert_array_equal(first.tx[:20], second.tx[:20])
    assert not np.allclose(first.tx[20:], second.tx[20:])


def test_refusals():
    with pytest.raises(InputError, match="exclude each other"):
        ridge(Config(kappa=0.1, joules=1.0), EQUAL, MESSAGE, CONTEXT)
    for kept in (0.0, 1.0):
        with pytest.raises(InputError, match="efficiency="):
            ridge(Config(efficiency=kept), EQUAL, MESSAGE, CONTEXT)
    with pytest.raises(InputError, match="aim="):
        ridge(Config(aim="noise"), EQUAL, MESSAGE, CONTEXT)
    with pytest.raises(InputError, match="joules="):
        ridge(Config(joules=0.0), EQUAL, MESSAGE, CONTEXT)
    with pytest.raises(InputError, match="trusted_noise_var"):
        ridge(Config(), EQUAL._replace(trusted_noise_var=0.0), MESSAGE, CONTEXT)
    with pytest.raises(InputError, match="privacy target"):
        ridge(Config(), EQUAL, MESSAGE, CONTEXT._replace(eps=np.inf))


def test_phases_are_what_plans_with_that_energy_come_to():
    """The closed form of the diagram against the certificate of a policy that is capped at so many joules."""
    message = MESSAGE._replace(sensitivity=np.full(4, 3.0))
    for joules in (1.0, 1e-3, 1e-4):
        certified = certify(Config(joules=joules), EQUAL, message, CONTEXT, np.ones(4))
        mu = np.sqrt(2 * Budget(8.0, 1e-5, "gaussian").zcdp)
        allowed = phases.allowed_energy(joules, mu, EQUAL.trusted_noise_var, 1.5, 3.0)
        assert certified.efficiency == pytest.approx(float(phases.ridge(allowed)), rel=2e-3)
        assert float(phases.ridge(allowed)) >= float(phases.truncated(allowed, True)) * (1 - 1e-3)
        assert float(phases.truncated(allowed, True)) >= float(phases.truncated(allowed, False)) * (1 - 1e-9)


@pytest.mark.parametrize(("eps", "unlike", "gain_error"), [(1.0, 1.0, 0.0), (8.0, 1.0, 0.0), (1.0, 0.5, 0.2)])
def test_poisson_batches_afford_all_rounds_and_spend_their_target(eps, unlike, gain_error):
    """RDP costs of loud rounds grow faster than squares: an odometer of squares ends after a few good channels."""
    moved, rate = np.array([1.0, 1.0, unlike, 1.0]) / 60, 0.06 * np.array([1.0, 1.0, 1.0, unlike])
    message = Message(53, np.inf, np.full(4, 1.02), moved, rate, "record", "zero-out")
    context = CONTEXT._replace(eps=eps, delta=1e-6, accountant="rdp")
    site = EQUAL._replace(gain_error=gain_error)
    policy = ridge(Config(), site, message, context)
    channel = trace(context.rounds, 1)
    _, plan, _ = plan_ahead(policy, policy.init(None), channel)
    ledger = Ledger(Budget(eps, 1e-6, "rdp", adjacency="zero-out"), 4)
    released = events(plan, channel, site, message)
    assert np.all(ledger.affordable(released))
    ledger.spend(released)
    alike = (moved == moved[0]) & (rate == rate[0])  # amplitudes are those of the client that is charged most
    assert np.all(ledger.spent().eps[alike] > 0.95 * eps) and np.all(ledger.spent().eps <= eps)
