import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution as reference
from scipy.special import ndtr, ndtri

from otafl.core.errors import InputError
from otafl.privacy import Budget, Ledger, Release, attack, gaussian
from otafl.privacy.attack import Attack, advantage, attack_success, bayes, equivalent_mu, from_eps, tpr

TABLE = [  # mu, eps at 1e-5, tpr at 1 % in %, advantage in %, all rounded up
    (0.1, 0.341, 1.3, 4.0),
    (0.25, 0.927, 1.9, 10.0),
    (0.5, 1.994, 3.4, 19.8),
    (1.0, 4.378, 9.3, 38.3),
    (2.0, 9.998, 37.3, 68.3),
    (3.0, 16.68, 75.0, 86.7),
    (4.0, 24.39, 95.3, 95.5),
]


def spent(make_events, z, rate=1.0, adjacency="zero-out", **budget) -> Ledger:
    ledger = Ledger(Budget(budget.pop("eps", np.inf), 1e-5, adjacency=adjacency, **budget), np.shape(z)[-1])
    ledger.spend(make_events(z, rate=rate))
    return ledger


@pytest.mark.parametrize(("mu", "eps", "power", "most"), TABLE)
def test_published_table(mu, eps, power, most, make_events):
    found = attack_success(spent(make_events, np.full((4, 1), 2 / mu)))
    assert found.mu == pytest.approx(mu, rel=1e-12) and found.mu_equivalent is None
    assert power - 0.1 < 100 * found.tpr_at_1pct <= power + 1e-9
    assert most - 0.1 < 100 * found.advantage <= most + 1e-9
    assert gaussian.eps(mu, 1e-5) == pytest.approx(eps, abs=10.0 ** -(len(str(eps).split(".")[1])))
    assert equivalent_mu(eps, 1e-5) == pytest.approx(mu, rel=2e-3)


@pytest.mark.parametrize("accounting", ["visible", "hidden"])
def test_a_cap_on_averages_over_who_takes_part_bounds_no_attacker(accounting, make_events):
    """Of a closed loop every round could be one in which the client sends: the card bounded its attacker by the cap."""
    terms = {"accountant": "rdp", "order": 8.0, "adaptive": True, "eps": 2.0}
    assert attack_success(spent(make_events, np.full((4, 1), 1e3), **terms)).tpr_at_1pct < 0.08
    found = attack_success(spent(make_events, np.full((4, 1), 1e3), **terms, accounting=accounting))
    assert (found.mu, found.tpr_at_1pct, found.advantage) == (None, 1.0, 1.0)


def test_without_loss_distributions_no_attacker_is_bounded_by_an_average(make_events, monkeypatch):
    def absent(*row):
        raise InputError("accountant 'pld' needs the package dp-accounting")

    monkeypatch.setattr(attack, "_of_row", absent)
    found = [attack_success(spent(make_events, np.full((4, 1), 9.0), 0.5, accountant="rdp", accounting=how)).advantage
             for how in ("none", "visible")]  # fmt: skip
    assert found[0] < 0.5 and found[1] == 1.0


def test_an_attacker_may_win_wherever_a_channel_passes_its_declaration(make_events):
    """A mechanism that gives all away with that chance, and is one Gaussian else: its best test is the bound."""
    missed = 0.04
    found = attack_success(spent(make_events, np.full((4, 1), 2.0), missed=missed))
    seen = missed + (1 - missed) * tpr(1.0, 0.01 / (1 - missed))  # its false alarms all in the rounds that hide
    assert seen <= found.tpr_at_1pct == pytest.approx(float(tpr(1.0, 0.01)) + missed, rel=1e-12)
    assert missed + (1 - missed) * advantage(1.0) <= found.advantage == pytest.approx(advantage(1.0) + missed)
    assert "a chance of 0.04 that a channel passes" in found.basis
    assert found.mu is None  # at few false alarms 0.04 is above any curve
    assert gaussian.delta(gaussian.eps(1.0, 1e-5), found.mu_equivalent) == pytest.approx(0.04001)
    assert attack_success(spent(make_events, np.full((4, 1), 0.01), missed=missed)).tpr_at_1pct == 1.0


def test_the_threshold_test_reaches_the_bounds():
    """Monte Carlo: N(0,1) against N(mu,1), 400,000 draws, six standard errors."""
    mu, n = 1.0, 400_000
    draws = np.random.default_rng(0).normal(size=n)
    slack = 6 * 0.5 / np.sqrt(n)
    threshold = np.quantile(draws, 0.99)
    assert np.mean(draws + mu > threshold) == pytest.approx(float(tpr(mu, 0.01)), abs=2 * slack)
    assert np.mean(draws + mu > mu / 2) - np.mean(draws > mu / 2) == pytest.approx(float(advantage(mu)), abs=2 * slack)
    for prior in (0.2, 0.5, 0.9):  # likelihood ratio above (1 - prior)/prior
        cut = mu / 2 + np.log((1 - prior) / prior) / mu
        right = prior * np.mean(draws + mu > cut) + (1 - prior) * np.mean(draws <= cut)
        assert right == pytest.approx(bayes(mu, prior), abs=2 * slack)


def test_sampled_rounds_are_judged_by_their_loss_distribution(make_events):
    """q = 0.5, z = 4, T = 20, and the trap of the central limit, which is on the wrong side."""
    found = attack_success(spent(make_events, np.full((20, 1), 4.0), 0.5))
    assert found.mu is None
    assert found.tpr_at_1pct == pytest.approx(0.03991, abs=2e-5)
    assert found.advantage == pytest.approx(0.22012, abs=2e-5)
    assert found.mu_equivalent == pytest.approx(equivalent_mu(2.4006, 1e-5), rel=1e-3)
    trap = attack_success(spent(make_events, np.full((400, 1), 0.8), 0.02))
    limit = 0.02 * np.sqrt(400 * np.expm1(1 / 0.8**2))
    assert trap.tpr_at_1pct == pytest.approx(0.0643, abs=1e-4) and trap.tpr_at_1pct > tpr(limit, 0.01)


def test_the_bound_is_above_every_threshold_test_of_a_sampled_round():
    """One round, P = (1-q)N(0) + qN(1/z) against N(0), both directions, exactly."""
    q, z = 0.3, 0.8
    loss = reference.from_gaussian_mechanism(z, sampling_prob=q, value_discretization_interval=1e-3)
    power = (1 - q) * 0.01 + q * float(ndtr(1 / z - ndtri(0.99)))
    eps = np.linspace(-8, 8, 8001)
    bound = float(np.min(np.exp(eps) * 0.01 + loss.get_delta_for_epsilon(eps)))
    assert power <= bound
    assert bound == pytest.approx(power, rel=0.02)


def test_replacement_under_sampling_is_above_the_opposed_pair_and_below_no_sampling(make_events):
    ledger = spent(make_events, np.full((20, 1), 2.0), 0.5, "replace")
    found = attack_success(ledger)
    opposed = reference.from_gaussian_mechanism(
        4.0, sampling_prob=0.5, neighboring_relation=NeighboringRelation.REPLACE_ONE
    ).self_compose(20)
    eps = np.linspace(-8, 8, 8001)
    pair = float(np.min(np.exp(eps) * 0.01 + opposed.get_delta_for_epsilon(eps)))
    assert pair <= found.tpr_at_1pct <= tpr(np.sqrt(20) / 2, 0.01)
    assert opposed.get_delta_for_epsilon(0.0) <= found.advantage <= advantage(np.sqrt(20) / 2)


def test_the_worst_client_and_the_cap_count(make_events):
    found = attack_success(spent(make_events, np.full((4, 2), [2.0, 8.0])))
    assert found.mu == pytest.approx(1.0)
    capped = attack_success(spent(make_events, np.full((4, 1), 8.0), eps=4.378, accountant="gaussian", adaptive=True))
    assert capped.mu == pytest.approx(1.0, rel=1e-3) and "cap" in capped.basis
    order = attack_success(
        spent(make_events, np.full((4, 1), 8.0), eps=2.0, accountant="rdp", adaptive=True, order=20.0)
    )
    assert order == from_eps(2.0, 1e-5, order.basis)
    assert order.tpr_at_1pct == pytest.approx(np.exp(2) * 0.01 + 1e-5)


def test_the_attacker_has_every_release_and_a_colluders_noise_and_silence_that_only_averages_is_no_help(make_events):
    run = make_events(np.full((4, 2), 2.0), possible=np.arange(4)[:, None] > 0, send_prob=0.5)
    ledger = Ledger(Budget(np.inf, 1e-5, "rdp", "visible", adjacency="zero-out", colluders=(0,)), 2)
    ledger.spend(run._replace(artificial_var=np.ones((4, 2))))
    ledger.release(Release("reward", 0.6, 2.0))
    assert attack_success(ledger).mu ** 2 == pytest.approx(4 * 0.5**2 / (1 + 1) + 0.3**2)


def test_a_pair_of_eps_and_delta_is_worth_what_randomised_response_with_a_leak_shows():
    eps, leak = 1.0, 0.1
    shown = leak + (1 - leak) * (np.exp(eps) - 1) / (np.exp(eps) + 1)  # total variation of the worst such mechanism
    assert from_eps(eps, leak, "").advantage == pytest.approx(shown)


def test_no_noise_is_no_privacy_and_no_round_is_guessing(make_events):
    ledger = Ledger(Budget(np.inf, 1e-5), 1)
    assert attack_success(ledger).tpr_at_1pct == pytest.approx(0.01)
    ledger.parts.append(make_events([[1.0]])._replace(receiver_var=np.zeros(1)))
    assert attack_success(ledger).tpr_at_1pct == attack_success(ledger).advantage == 1


def test_words():
    said = [Attack(None, None, share, 0.0, "").words for share in (0.015, 0.02, 0.0925, 0.3, 0.5, 1.0)]
    assert said[0] == "close to guessing" and said[1] == said[2]
    assert said[3] == "a strong attacker often succeeds" and said[4] == said[5] == "a worst-case attacker wins"
