"""What a server that keeps the imaginary part learns where phases are off."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otafl.core.errors import PrivacyViolation
from otafl.core.plan import Deployment, Message, Plan, Trace
from otafl.privacy import Budget, Ledger, check_realised, events, inverse_square, make_card
from otafl.privacy.events import join, leak_of, pick


def a_run(tx, noise, gain, estimate=None, receiver=1.0, **errors):
    """One round of clients with unit sensitivity."""
    gain = np.atleast_2d(np.asarray(gain, complex))
    estimate = gain if estimate is None else np.atleast_2d(np.asarray(estimate, complex))
    ones = np.ones(gain.shape)
    plan = Plan(np.broadcast_to(tx, gain.shape) + 0j, np.broadcast_to(noise, gain.shape) + 0j, np.inf * ones,
                np.ones(1), ones, np.ones(1, bool))  # fmt: skip
    count = gain.shape[1]
    site = Deployment(ones[0], receiver, receiver, ones[0] / count, 1, **errors)
    message = Message(1, 1.0, ones[0], ones[0], ones[0], "client", "zero-out")
    return plan, Trace(gain, estimate, ones, ones, ones, ones, 0 * ones), site, message


def seen(plan, trace, site):
    """1/z^2 of every client (K,) for a server that sees Re y and Im y: g' C^-1 g, straight from the covariance."""
    lines = lambda x: np.stack([(trace.gain[0] * x[0]).real, (trace.gain[0] * x[0]).imag])  # noqa: E731
    noise, signal = lines(plan.noise), lines(plan.tx)
    covariance = site.trusted_noise_var * np.eye(2) + noise @ noise.T
    return np.einsum("ik,ik->k", signal, np.linalg.solve(covariance, signal))


def test_the_charge_of_a_lone_jammer_is_what_both_parts_show():
    """Amplitude 1.2, artificial variance 63.4, phase error 0.2: the real part alone shows 0.0224."""
    errors = {"gain_error": 0.2, "phase_error": 0.2}
    turned = [1.2 * np.exp(0.2j), np.sqrt(63.4) / 0.8 * 0.8 * np.exp(-0.2j)]
    plan, trace, site, message = a_run([1, 0], [0, 1], turned, [1, np.sqrt(63.4) / 0.8], **errors)
    run = events(plan, trace, site, message)
    assert inverse_square(run)[0, 0] == pytest.approx(0.237, abs=5e-4)
    assert inverse_square(run)[0, 0] == pytest.approx(seen(plan, trace, site)[0], rel=1e-12)  # attained
    assert inverse_square(run._replace(leak_angle=0.0))[0, 0] == pytest.approx(0.0224, abs=5e-5)


@pytest.mark.parametrize("angle", [2.0, np.pi, 100.0])
def test_noise_that_may_arrive_at_any_angle_hides_nothing(angle):
    """Whoever builds events and knows no phase says pi; the sine of that is 0, and the worst angle lies within."""
    plan, trace, site, message = a_run([1, 0], [0, 1], [1.2, np.sqrt(63.4)])
    run = events(plan, trace, site, message)._replace(leak_angle=np.array([angle]))
    assert inverse_square(run)[0, 0] == pytest.approx(1.2**2, rel=1e-12)


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10**6), gain_error=st.floats(0.02, 0.9), declared=st.booleans(), aligned=st.booleans())
def test_no_phase_within_the_declared_error_shows_more_than_is_charged(seed, gain_error, declared, aligned):
    rng, count = np.random.default_rng(seed), 4
    estimate = rng.normal(size=count) + 1j * rng.normal(size=count)
    size = rng.uniform(1 - gain_error, 1 + gain_error, count)
    if declared:
        phase_error = np.arccos(1 - gain_error) * rng.random()
        turn = rng.choice([-1, 1], count) * phase_error * rng.choice([1, rng.random()], count)
        ratio = np.maximum(size, (1 - gain_error) / np.cos(phase_error)) * np.exp(1j * turn)
    else:
        phase_error = None
        ratio = 1 + gain_error * rng.random(count) * np.exp(2j * np.pi * rng.random(count))
    off = np.ones(count) if aligned else np.exp(1j * rng.uniform(0, 7, count))
    tx, noise = rng.uniform(0.1, 2, count) / estimate, rng.exponential(size=count) * 5 / estimate * off
    errors = {"gain_error": gain_error, "phase_error": phase_error, "receiver": rng.uniform(0.01, 2)}
    plan, trace, site, message = a_run(tx, noise, estimate * ratio, estimate, **errors)
    run = events(plan, trace, site, message)
    assert np.all(seen(plan, trace, site) <= inverse_square(run)[0] * (1 + 1e-9))
    if aligned:
        check_realised(run, plan, trace)


def test_the_likelihood_of_the_whole_observation_has_the_charged_moments():
    """Monte Carlo, 400,000 draws: the privacy loss on (Re y, Im y) has mean 1/(2 z^2), within 5 standard errors."""
    errors = {"gain_error": 0.1, "phase_error": 0.3}
    plan, trace, site, message = a_run([1, 0], [0, 1], [np.exp(0.3j), 3 * np.exp(-0.3j)], [1, 3 / 0.9], **errors)
    charge = inverse_square(events(plan, trace, site, message))[0, 0] / 1.1**2  # this gain is exact in size
    rng, draws = np.random.default_rng(0), 400_000
    signal = trace.gain[0, 0] * plan.tx[0, 0]
    y = signal + trace.gain[0, 1] * rng.standard_normal(draws)
    y = y + rng.standard_normal(draws) + 1j * rng.standard_normal(draws)
    direction = trace.gain[0, 1] / abs(trace.gain[0, 1])

    def log_density(of):
        along, across = (of / direction).real, (of / direction).imag
        return -(along**2) / (2 * (1 + abs(trace.gain[0, 1]) ** 2)) - across**2 / 2

    loss = log_density(y - signal) - log_density(y)
    assert loss.mean() == pytest.approx(charge / 2, abs=5 * loss.std() / np.sqrt(draws))
    assert loss.var() == pytest.approx(charge, rel=0.02)


def test_exact_phases_cost_what_they_cost_before():
    plan, trace, site, message = a_run([2, 1], [0.5, 0.1], [1, -2])
    run = events(plan, trace, site, message)
    assert run.leak_angle.tolist() == [0.0]
    assert inverse_square(run)[0].tolist() == [4 / (1 + 0.25 + 0.2**2), 4 / (1 + 0.25 + 0.2**2)]


def test_without_trusted_receiver_noise_any_phase_error_costs_everything():
    errors = {"gain_error": 0.1, "phase_error": 0.01, "receiver": 0.0}
    plan, trace, site, message = a_run([1, 1], [3, 3], [1, 1], **errors)
    run = events(plan, trace, site, message)
    assert np.all(np.isinf(inverse_square(run)))
    ledger = Ledger(Budget(np.inf, 1e-5, adjacency="zero-out"), clients=2)
    ledger.spend(run)
    assert "eps is infinite" in make_card(ledger, message).to_markdown()


def test_the_card_names_the_angle_or_says_that_phases_are_exact():
    for phase_error, words in ((0.2, "within 0.4 rad"), (0.0, "know their phases exactly")):
        plan, trace, site, message = a_run([1, 1], [3, 3], [1, 1], gain_error=0.1, phase_error=phase_error)
        ledger = Ledger(Budget(np.inf, 1e-5, adjacency="zero-out"), clients=2)
        ledger.spend(events(plan, trace, site, message))
        assert words in make_card(ledger, message).to_markdown()


def test_a_phase_beyond_the_declared_one_is_a_broken_promise():
    turned = [1, np.exp(0.5j)]
    plan, trace, site, message = a_run([1, 1], [0.5, 0.5], turned, [1, 1], gain_error=0.3, phase_error=0.2)
    with pytest.raises(PrivacyViolation, match=r"of client 0 in round 0 is 0.5, above the 0.4 .* declared phase_error"):
        check_realised(events(plan, trace, site, message), plan, trace)


def test_angles_survive_cutting_joining_and_the_file():
    plan, trace, site, message = a_run([1, 1], [3, 3], [1, 1], gain_error=0.1, phase_error=0.2)
    run = events(plan, trace, site, message)
    whole = join([run, run._replace(leak_angle=np.array([0.1]))])
    assert leak_of(pick(whole, slice(1, 2))).tolist() == [0.1]
    ledger = Ledger(Budget(np.inf, 1e-5, adjacency="zero-out"), clients=2)
    ledger.spend(whole)
    again = Ledger.from_bytes(ledger.to_bytes())
    assert again.events.leak_angle.tolist() == [0.4, 0.1]
    assert again.zcdp().tolist() == ledger.zcdp().tolist()


def test_a_ledger_of_the_first_format_is_read_with_exact_phases(monkeypatch):
    plan, trace, site, message = a_run([1, 1], [3, 3], [1, 1])
    ledger = Ledger(Budget(np.inf, 1e-5, adjacency="zero-out"), clients=2)
    ledger.spend(events(plan, trace, site, message))
    content = old_bytes(ledger, monkeypatch)
    assert b"otafl-ledger-1" in content
    assert Ledger.from_bytes(content).zcdp().tolist() == ledger.zcdp().tolist()


def old_bytes(ledger, monkeypatch):
    """As the first format wrote it: without angles."""
    from types import SimpleNamespace

    from otafl.privacy import export

    monkeypatch.setattr(export, "FORMAT", "otafl-ledger-1")
    fields = lambda part: {n: v for n, v in part._asdict().items() if n != "leak_angle"}  # noqa: E731
    parts = [SimpleNamespace(_asdict=lambda part=part: fields(part)) for part in ledger.parts]
    return export.pack(SimpleNamespace(budget=ledger.budget, clients=2, parts=parts, releases=[], sums=None))
