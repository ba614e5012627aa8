import numpy as np
import pytest

from otafl import systems
from otafl.core.errors import InputError
from otafl.core.plan import Context, Deployment, Message
from otafl.privacy import Budget, Ledger, Release, calibrate
from otafl.systems.ideal.fedavg_dp import Config


def message(rate, sensitivity=1.0, adjacency="zero-out") -> Message:
    rate = np.atleast_1d(np.asarray(rate, float))
    ones = np.ones(rate.size)
    return Message(1, 1.0, ones, sensitivity * ones, rate, "record", adjacency)


def spent(ledger, z, rounds, told, weights, make_events) -> float:
    moved = weights * told.sensitivity
    ledger.spend(make_events(np.full((rounds, 1), z) * (moved.max() / moved), rate=told.rate))
    return float(ledger.spent().worst)


@pytest.mark.parametrize(
    ("accountant", "rate", "z"),
    [
        ("zcdp", 1.0, 35.3453),
        ("gaussian", 1.0, 28.1968),
        ("rdp", 1.0, 30.3930),
        ("rdp", 0.1, 3.23714),
        ("rdp", 0.01, 0.858912),
        ("pld", 0.1, 3.005),
        ("pld", 0.01, 0.775),
    ],
)
def test_published_multipliers_spend_the_target_and_never_more(accountant, rate, z, make_events):
    """eps 2 at 1e-5 over 200 rounds, and the ledger agrees."""
    budget, told = Budget(2.0, 1e-5, accountant, adjacency="zero-out"), message(rate)
    found = calibrate(budget, 200, told, np.ones(1))
    assert found == pytest.approx(z, abs=10.0 ** -(len(str(z).split(".")[1])))
    assert 0.999 * 2 < spent(Ledger(budget, 1), found, 200, told, np.ones(1), make_events) <= 2


CLOSED = [(name, word) for name in ("zcdp", "zcdp-optimal", "gaussian", "rdp") for word in ("zero-out", "replace")]


@pytest.mark.parametrize(
    ("accountant", "adjacency"),
    [*CLOSED, ("pld", "zero-out"), pytest.param("pld", "replace", marks=pytest.mark.slow)],  # bisects two losses
)
def test_unequal_clients_and_rates(accountant, adjacency, make_events):
    weights, told = np.array([0.5, 0.3, 0.2]), message([0.02, 0.1, 0.3], 2.0, adjacency)
    budget = Budget(3.0, 1e-5, accountant, adjacency=adjacency)
    z = calibrate(budget, 20, told, weights)
    assert 0.999 * 3 < spent(Ledger(budget, 3), z, 20, told, weights, make_events) <= 3


@pytest.mark.parametrize("accountant", ["gaussian", "rdp"])
def test_releases_of_every_round_are_part_of_the_target(accountant, make_events):
    budget, told, beside = Budget(3.0, 1e-5, accountant), message(1.0), [Release("reward", 1.0, 20.0)]
    z = calibrate(budget, 30, told, np.ones(1), beside)
    ledger = Ledger(budget, 1)
    ledger.spend(make_events(np.full((30, 1), z)), each_round=beside)
    assert 0.999 * 3 < ledger.spent().worst <= 3


@pytest.mark.parametrize("accountant", ["zcdp", "rdp", "pld"])
def test_fedavg_dp_spends_its_target_under_sampling(accountant, make_events):
    """The accountant and the rates in force: it used to be calibrated without sampling and spend a fiftieth."""
    weights, told = np.array([0.6, 0.4]), message([0.05, 0.1])
    site = Deployment(np.ones(2), 1.0, 0.0, weights, 1)
    policy = systems.make("fedavg-dp", Config(), site, told, Context(rounds=50, eps=8.0, accountant=accountant))
    shape = np.ones((50, 2))
    plan = policy.step((), type("Obs", (), {"coin": shape}))[1]
    variance = np.sum(np.abs(plan.noise[0]) ** 2)
    run = make_events(np.sqrt(variance) / (weights * told.sensitivity) * shape, rate=told.rate)
    ledger = Ledger(Budget(8.0, 1e-5, accountant, adjacency="zero-out"), 2)
    assert np.all(ledger.affordable(run))
    ledger.spend(run)
    assert 0.999 * 8 < ledger.spent().worst <= 8


def test_what_cannot_be_calibrated_is_refused():
    with pytest.raises(InputError, match="use 'pld'"):
        calibrate(Budget(0.1, 1e-5, "rdp"), 10, message(0.1), np.ones(1))
    with pytest.raises(InputError, match="eps=inf"):
        calibrate(Budget(np.inf, 1e-5), 10, message(0.1), np.ones(1))
    with pytest.raises(InputError, match="nothing to hide"):
        calibrate(Budget(1.0, 1e-5), 10, message(0.1), np.zeros(1))
    with pytest.raises(InputError, match="beside the air"):
        calibrate(Budget(1.0, 1e-5, "rdp"), 10, message(1.0), np.ones(1), [Release("reward", 1.0, 0.1)])
