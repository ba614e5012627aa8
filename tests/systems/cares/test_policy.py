"""CARES static, what both CARES policies refuse, and the baselines beside them."""

import math
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cares_cases import ARMS, WEIGHTS, adaptive, context, message, problem, static_policy, trace, worse_from
from hypothesis import given, settings
from hypothesis import strategies as st

import small
from otafl import systems
from otafl.clients import Gradient, gradient
from otafl.core import uplink
from otafl.core.engine import make_engine
from otafl.core.errors import Infeasible, InputError
from otafl.core.plan import Context, Trace, first_look
from otafl.core.rounds import Row, make_round, observe, plan_ahead, stack
from otafl.privacy import Budget, Ledger, calibrate, events
from otafl.privacy.zcdp import classic_eps
from otafl.runs.folder.results import stop_reasons, uncertified
from otafl.systems.baselines.constant import Config as Constant
from otafl.systems.cares.adaptive import Config
from otafl.systems.cares.certifier import NO_CERTIFICATE, certify
from otafl.systems.cares.policy import PAPER_ARMS, problem_of
from otafl.systems.cares.policy import Config as Static
from otafl.systems.cares.policy import State as StaticState
from otafl.systems.ideal.fedavg_dp import Config as FedAvgDP


@pytest.mark.parametrize("make", [adaptive, static_policy])
def test_nothing_certified_is_infeasible_and_diagnostic_goes_on_labelled(make: Any):
    impossible = {"max_asymmetry": 0.0, "max_dropped": 0.0}
    told = context(4)
    refused, first = make(told, **impossible), Trace(*(leaf[0] for leaf in told.trace))

    def begin() -> None:
        refused.step(refused.init(None), observe(refused, first, 0))

    with pytest.raises(Infeasible, match="no receive scaling"):
        begin()
    if make is static_policy:
        policy = make(told, diagnostic=True, **impossible)
        _, plan, info = plan_ahead(policy, policy.init(None), told.trace)
        assert np.all(plan.rx_scale == ARMS[len(ARMS) // 2])  # the median arm, never a midpoint
        assert not info.certified.any()
        assert uncertified({"certified": info.certified[None]}, np.ones((1, 4), bool)) == [NO_CERTIFICATE]


def test_static_takes_the_certified_arm_and_flags_rounds_that_lose_their_certificate():
    told = worse_from(6, np.full(4, 0.02))
    policy = static_policy(told, max_dropped=0.05)
    _, plan, info = plan_ahead(policy, policy.init(None), told.trace)
    assert np.all(plan.rx_scale == certify(problem(), ARMS).eta_init)
    assert info.certified.tolist() == [True] * 6 + [False] * 6
    _, one_by_one, infos = plan_ahead(policy._replace(spans=False), policy.init(None), told.trace)
    for together, alone in zip((*plan, *info), (*one_by_one, *infos)):
        np.testing.assert_array_equal(together, alone)
    said = uncertified({"certified": info.certified[None]}, np.ones((1, 12), bool))
    assert said == [f"{NO_CERTIFICATE} in 50.0% of the rounds"]


def test_stop_reasons_come_from_the_horizon_the_ledger_or_the_policy():
    live = np.array([[True, True, True], [True, False, False], [True, True, False]])
    said = np.array([[0, 0, 0], [0, 2, 2], [0, 0, 1]])
    told = SimpleNamespace(live=live, info={"stopped_by": said})
    assert stop_reasons(told, 3) == ["horizon", "asymmetry", "budget"]  # type: ignore[arg-type]
    silent = SimpleNamespace(live=live, info={})
    assert stop_reasons(silent, 3) == ["horizon", "budget", "budget"]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["cares-static", "cares-adaptive"])
def test_record_level_needs_silence_by_the_bound(name: str):
    config = {"cares-static": Static, "cares-adaptive": Config}[name]
    with pytest.raises(InputError, match="record"):
        systems.make(name, config(silence="norm"), small.deployment(), message("record"), context())
    policy = systems.make(
        name,
        config(arms=ARMS, silence="bound", max_dropped=0.9, max_asymmetry=0.9),
        small.deployment(),
        message("record"),
        context(),
    )
    assert policy.gate == "bound"


def test_silence_by_the_bound_ignores_the_data():
    told = context(40, eps=2000.0)
    policy = static_policy(told, silence="bound", arms=(0.5, 1.0), max_dropped=1.0, max_asymmetry=1.0)
    _, plan, _ = plan_ahead(policy, policy.init(None), told.trace)
    rng = np.random.default_rng(0)
    one, other = (rng.uniform(0, 1, plan.max_norm.shape) <= plan.max_norm for _ in range(2))
    assert np.array_equal(one, other) and 0 < one.sum() < one.size


def test_other_adjacencies_and_accountants_are_refused():
    row = observe(static_policy(), Trace(*(leaf[0] for leaf in trace(1))), 0)
    for changed, told, text in (
        (message(adjacency="zero-out"), context(), "adjacency"),
        (message(), context(accountant="rdp"), "zcdp or gaussian"),
        (message(), context(eps=math.inf), "privacy.eps"),
    ):
        policy = systems.make("cares-static", Static(arms=ARMS), small.deployment(), changed, told)
        with pytest.raises(InputError, match=text):
            policy.step(policy.init(None), row)


@pytest.mark.parametrize("unit", ["client", "record"])
def test_the_certifier_is_told_the_site_that_the_ledger_charges(unit: str):
    """Half of the noise trusted, estimates 10 % off, batches of 8: what a round costs, and what it hears besides."""
    site = small.deployment()._replace(gain_error=0.1)
    site = site._replace(trusted_noise_var=site.noise_var / 2)
    said, channel = message(unit), trace(1)
    said = said._replace(bound=2.0, mean_square=4 * said.mean_square, sensitivity=2 * said.sensitivity)
    seen = problem_of(Static(silence="bound"), first_look(channel), site, said, context())
    policy = systems.make("constant", Constant(rx_scale=0.12, silence="bound"), site, said, Context())
    ledger = Ledger(Budget(1e9, 1e-5, "zcdp"), 4)
    ledger.spend(events(plan_ahead(policy, policy.init(None), channel)[1], channel, site, said))
    assert seen.zcdp(0.12) == pytest.approx(ledger.zcdp(), rel=1e-12)
    assert seen.noise_high == pytest.approx(math.sqrt(site.noise_var))
    threshold = 0.12 * WEIGHTS * 2.0 / channel.rms_gain[0]
    assert seen.drop_prob(0.12) == pytest.approx(1 - np.exp(-(threshold**2) / site.energy))


def test_the_certifier_is_told_limits_and_the_gap_where_they_are_asked_for():
    rms = trace(1).rms_gain
    channel = first_look(trace(1)._replace(rms_low=0.9 * rms, rms_high=1.2 * rms))
    told = (small.deployment(), message(), context())
    plain = problem_of(Static(), channel, *told)
    limited = problem_of(Static(certify_with="limits", loss_gap=0.7), channel, *told)
    assert (plain.certify_with, plain.loss_gap) == ("estimate", math.log(3))
    known = problem_of(Static(), first_look(trace(1)), *told)
    assert (known.mu_low, known.mu_high) == (None, None)
    assert limited.mu_low == pytest.approx(0.9 * rms[0] / math.sqrt(2)) and limited.loss_gap == 0.7
    assert limited.mu_high == pytest.approx(1.2 * rms[0] / math.sqrt(2))
    with pytest.raises(InputError, match="loss_gap must be given"):
        problem_of(Static(), channel, *told[:2], context()._replace(classes=0))


def test_a_round_that_treats_clients_too_differently_loses_its_certificate():
    """One light client fades away: hardly any weight is dropped, but one sends and another does not."""
    told = worse_from(6, np.array([0.002, 1.0, 1.0, 1.0]))
    policy = static_policy(told, max_dropped=0.5)
    _, _, info = plan_ahead(policy, policy.init(None), told.trace)
    assert np.all(info.dropped_weight < 0.5) and info.certified.tolist() == [True] * 6 + [False] * 6


# --- the DP identity and the strict ledger -----------------------------------------------------------------------


def clipped() -> Any:
    return gradient(Gradient(batch=16), small.model())


def test_fedavg_with_dp_is_the_air_with_nobody_silent():
    """CARES section 4: T rounds of FedAvg+DP are the air with rx_scale = noise_std / s: same keys, same model."""
    clients, site = clipped(), small.deployment(noise_std=0.1, energy=1e12)
    promise, path = clients.promise(np.array([20, 50, 60, 70])), small.trace(5)
    weights = np.asarray(site.weights)
    std = calibrate(Budget(10.0, 1e-5, adjacency=promise.adjacency), 5, promise, weights) * 2 * 0.35
    dp = systems.make("fedavg-dp", FedAvgDP(), site, promise, small.CONTEXT)
    ideal, quiet = uplink.ideal(path, site)
    noisy, _, _ = small.train(clients, [dp], [ideal], quiet, [3])
    scaled = systems.make("constant", Constant(rx_scale=0.1 / std, silence="norm"), site, promise, small.CONTEXT)
    over_air, records, _ = small.train(clients, [scaled], [path], site, [3])
    assert np.all(records.stats.sent)
    for a, b in zip(jax.tree.leaves(noisy.params), jax.tree.leaves(over_air.params)):
        np.testing.assert_allclose(a, b, rtol=0, atol=3e-6)


@settings(max_examples=150, deadline=None)
@given(rounds=st.integers(1, 900), largest=st.floats(0.26, 0.95), eps=st.floats(0.1, 800.0))
def test_strict_ledger_accepts_exactly_the_calibrated_rounds(rounds: int, largest: float, eps: float):
    weights = np.array([largest, *np.full(3, (1 - largest) / 3)])
    site = small.deployment()._replace(weights=weights)
    told = Context(rounds=rounds, eps=eps, delta=1e-5)
    policy = systems.make("fedavg-dp", FedAvgDP(), site, message(), told)
    path, quiet = uplink.ideal(trace(rounds + 1), site)
    _, plan, _ = plan_ahead(policy, (), path)
    ledger = Ledger(Budget(eps, 1e-5), 4)
    released = events(plan, path, quiet, message())
    assert int(ledger.affordable(released).sum()) == rounds
    ledger.spend(released._replace(live=np.arange(rounds + 1) < rounds))
    assert float(classic_eps(np.max(ledger.zcdp()), 1e-5)) <= eps * (1 + 1e-12)


def test_one_arm_inside_the_loop_trains_the_model_of_the_static_choice():
    """Moving the decision into the loop changes neither the rounds nor the model."""
    clients, site, rounds = clipped(), small.deployment(), 8
    promise, path = clients.promise(np.array([20, 50, 60, 70])), trace(8)
    told = Context(rounds=rounds, eps=6.0, classes=3, trace=path)
    options = {"arms": (0.11,), "max_dropped": 1.0, "max_asymmetry": 1.0}
    static = systems.make("cares-static", Static(**options), site, promise, told)
    inside = systems.make("cares-adaptive", Config(**options), site, promise, told)
    assert static.init(None) is None and StaticState._fields == ("rx_scale", "certified")
    _, plan, _ = plan_ahead(static, None, path)
    plan = plan._replace(live=Ledger(Budget(6.0, 1e-5), 4).affordable(events(plan, path, site, promise)))
    assert 1 < plan.live.sum() < rounds
    net, optimizer, batch = small.model(), optax.sgd(0.5), small.seeds([3])
    measure = lambda params, data, public, seed, key: jnp.asarray(0.5, jnp.float64)  # noqa: E731
    ahead = make_engine(net.init, lambda p, held: jnp.zeros(()), make_round(clients, optimizer, "vmap"), optimizer)
    carry = ahead.init(batch.key, jnp.zeros((1, 0)))
    planned, records, _ = ahead.chunk(small.data(), (), (), batch, carry, small.rows_of([plan], [path], site))
    round_ = make_round(clients, optimizer, "vmap", policy=inside, deployment=site, measure=measure)
    engine = make_engine(net.init, lambda p, held: jnp.zeros(()), round_, optimizer)
    carry = engine.init(batch.key, stack([inside.init(None)]))
    looped, told_inside, _ = engine.chunk(
        small.data(), (), (), batch, carry, Row((), stack([path]), np.ones((1, rounds), bool))
    )
    assert np.array_equal(records.live, told_inside.live) and records.live.sum() == plan.live.sum()
    for a, b in zip(jax.tree.leaves(planned.params), jax.tree.leaves(looped.params)):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)


def test_the_papers_grid():
    assert len(PAPER_ARMS) == 10 and PAPER_ARMS[0] == 0.25 and PAPER_ARMS[-1] == 0.40


@pytest.mark.parametrize("make", [adaptive, static_policy])
def test_nothing_is_certified_under_fading_of_another_law(make: Any) -> None:
    """The same arm is played: only the label goes, and the bandit still chooses among the arms of F_H."""
    for rayleigh in (True, False):
        told = context(4, rayleigh=rayleigh)
        policy = make(told)
        if make is static_policy:
            _, plan, info = plan_ahead(policy, policy.init(None), told.trace)
            assert np.all(plan.rx_scale == ARMS[-1]) and np.all(info.certified == rayleigh)
        else:
            table = policy.init(None).table
            assert table.allowed.any() and table.certified.any() == rayleigh


@pytest.mark.parametrize("make", [adaptive, static_policy])
@pytest.mark.parametrize("certify_with", ["estimate", "limits"])
def test_estimates_of_the_channel_certify_only_at_their_limits(make: Any, certify_with: str) -> None:
    """CARES E16: where pilots say the scale of the channel, an envelope of the estimate bounds nothing."""
    known = trace(4)
    piloted = known._replace(rms_low=0.95 * known.rms_gain, rms_high=1.05 * known.rms_gain)
    told = context(4)._replace(trace=piloted)
    policy = make(told, certify_with=certify_with)
    if make is static_policy:
        _, _, info = plan_ahead(policy, policy.init(None), told.trace)
        assert np.all(info.certified == (certify_with == "limits"))
    else:
        assert policy.init(None).table.certified.any() == (certify_with == "limits")
