"""Settings from plans alone: each scheme spends the budget, none passes it, and none passes the derived limit."""

import math

import numpy as np
import pytest
from scipy.integrate import quad

from otafl.bounds import merit
from otafl.channels import Channel, Fading
from otafl.core.errors import InputError
from otafl.core.plan import Deployment, Message
from otafl.privacy import Budget
from otafl.systems import simulated
from otafl.systems.adascale.settings import level_for, mean_cost
from otafl.systems.cdpb.settings import fixed_point
from otafl.systems.settings import names, settings

DEVICES, ROUNDS, PARAMS = 60, 60, 100
CHANNEL = Channel(mean_power_gain=1.0)


def site(devices: int = DEVICES, trusted: float = 1.0, weights: np.ndarray | None = None) -> Deployment:
    ones = np.ones(devices)
    return Deployment(0.3 * ones, 0.05**2, trusted * 0.05**2, ones / devices if weights is None else weights, PARAMS)


def message(devices: int = DEVICES, dim: int = PARAMS, clip: float = 1.0) -> Message:
    ones = np.ones(devices)
    return Message(dim, clip, clip**2 * ones, 2 * clip * ones, ones, "client", "replace")


def budget(eps: float = 8.0, accountant: str = "zcdp") -> Budget:
    return Budget(eps, 1e-5, accountant, adjacency="replace")


def efficiency(name: str, deployment: Deployment, target: Budget, channel: Channel = CHANNEL) -> simulated.Trial:
    sent = message(dim=16, clip=0.5) if name == "eezofl" else message()
    site_ = deployment._replace(dim=sent.dim)
    chosen = settings(name, site_, sent, target, ROUNDS, channel, seed=0)
    assert isinstance(chosen, dict), chosen
    at = simulated.bench(site_, sent, target, ROUNDS, channel, seed=5)  # channels that the rule has not seen
    got = simulated.trial(name, chosen, at)
    bound, mu = float(np.sqrt(np.max(sent.mean_square))), float(np.sqrt(2 * at.rho))
    largest = merit.learning_snr_max(at.devices, mu, bound, float(np.max(sent.sensitivity)))
    return got._replace(snr=got.snr / largest)


# The published table for 1,437 devices has 1, 1, 0.34, 0.83 to 0.99, 0.36 to 0.83, 0.96 to 0.99 and 0.61. Two knobs are
# better here: cdpb's `left_over` and biasvar's back-off of levels, and stat-level skips fades.
LEAST = {
    "fedavg-dp": 0.9999,
    "constant": 0.999,
    "cares-static": 0.999,
    "weakest": 0.3,
    "adascale": 0.95,
    "adascale-stat-level": 0.95,
    "cdpb": 0.98,
    "biasvar": 0.98,
    "eezofl": 0.9999,
    "ridge": 0.94,  # what it aims at; the rest buys energy
    "liu-simeone": 0.9,
    "seif": 0.9,
    "random-participation": 0.49,  # half of the clients in a round, all rounds charged
    "phase-only": 0.6,  # strong rounds cost most
    "jammer": 0.9,
    "cotaf": 0.999,
    "obda": 0.75,  # one bit costs sqrt(2/pi)
    "orthogonal": 0.12,  # own noise alone: 1/sqrt(K)
    "fsk-mv": 5e-4,  # a square law: energies far below the noise tell little
    "energy-difference": 1e-3,
}


def test_every_scheme_that_designs_itself_is_held_to_a_number() -> None:
    assert set(LEAST) == set(names())


@pytest.mark.parametrize("name", LEAST)
@pytest.mark.parametrize("eps", [2.0, 8.0])
def test_each_scheme_comes_close_to_the_limit_and_never_passes_it(name: str, eps: float) -> None:
    got = efficiency(name, site(), budget(eps))
    assert LEAST[name] <= got.snr <= 1 + 1e-9
    assert got.rounds >= 0.9 * ROUNDS


@pytest.mark.parametrize("accountant", ["gaussian", "zcdp-optimal", "rdp"])
def test_other_accountants_are_spent_as_well(accountant: str) -> None:
    got = efficiency("constant", site(), budget(2.0, accountant))
    assert got.rounds == ROUNDS
    assert got.snr == pytest.approx(1.0, abs=1e-3)


def test_sample_weights_cost_their_spread_and_distrust_costs_its_root() -> None:
    """S of a receiver's noise: K wmax for unequal weights, sqrt(tv/nv) for distrusted noise."""
    weights = np.linspace(1, 3, DEVICES)
    weights /= weights.sum()
    uneven = efficiency("constant", site(weights=weights), budget())
    assert uneven.snr == pytest.approx(1 / (DEVICES * weights.max()), rel=2e-3)
    assert efficiency("constant", site(trusted=0.25), budget()).snr == pytest.approx(0.5, rel=2e-3)


def test_devices_own_noise_replaces_distrusted_receiver_noise() -> None:
    """With a quarter trusted, receiver noise alone reaches a half; a little noise of the devices' own nearly all."""
    got = efficiency("cdpb", site(trusted=0.25), budget())
    assert got.snr > 0.9


def test_a_site_without_trusted_noise_is_refused_in_words_or_served_by_own_noise() -> None:
    dark = site(trusted=0.0)
    for name in ("constant", "weakest", "cares-static", "adascale", "biasvar", "liu-simeone"):
        answer = settings(name, dark, message(), budget(), ROUNDS, CHANNEL)
        assert isinstance(answer, simulated.Refusal)
        assert "trusted" in answer.why
    assert isinstance(settings("cdpb", dark, message(), budget(), ROUNDS, CHANNEL), dict)


def test_the_mean_cost_of_a_level_is_the_integral_over_rayleigh_floors() -> None:
    typical, unit, level, skip = 0.7, 3.0, 1.1, 2.0

    def cost(x: float) -> float:
        floor = typical / x
        return 0.0 if floor > skip * level else math.exp(-x) * unit / (2 * max(level, floor))

    edges = [typical / (skip * level), typical / level]
    whole = quad(cost, edges[0], edges[1])[0] + quad(cost, edges[1], 60)[0]
    assert mean_cost(level, skip, typical, unit) == pytest.approx(whole, rel=1e-8)


def test_the_level_is_the_larger_root() -> None:
    level = level_for(0.05, 2.0, 0.7, 3.0)
    assert level is not None
    assert mean_cost(level, 2.0, 0.7, 3.0) == pytest.approx(0.05, rel=1e-8)
    assert mean_cost(1.01 * level, 2.0, 0.7, 3.0) < 0.05
    assert level_for(1e6, 2.0, 0.7, 3.0) is None


def test_cdpb_fixed_point_meets_the_mean_noise_of_simulated_channels() -> None:
    """v by closed form against the noise that arrives; the mean of 1/v is 1.5 % above 1/v of the mean at 60 devices."""
    at = simulated.bench(site(trusted=0.25), message(), budget(), 400, CHANNEL, 1)
    found = fixed_point(0.1, 1.0, at)
    assert found is not None
    snr, load = found
    options = {"strategy": "noisy", "left_over": 0.1, "load": load}
    assert simulated.cost("cdpb", options, at) == pytest.approx(at.rho, rel=0.025)
    cut = simulated.trial("cdpb", {**options, "load": load * 0.97}, at)
    assert cut.snr == pytest.approx(snr, rel=0.03)


def test_eezofl_noise_is_that_of_the_published_demo() -> None:
    """dp_noise 0.15 with 20 clients and 60 rounds is eps 122.1: asked for that eps, the rule answers 0.15."""
    ones = np.ones(20)
    sent = Message(16, 0.5, 0.25 * ones, ones, ones, "client", "replace")
    chosen = settings("eezofl", site(20)._replace(dim=16), sent, budget(122.1), 60, CHANNEL)
    assert isinstance(chosen, dict)
    assert chosen["dp_noise"] == pytest.approx(0.15, rel=2e-3)


def test_eezofl_goes_over_the_air_where_gains_are_real() -> None:
    real = Channel(fading=Fading("real_gaussian", mean=1.0, std=1.0))
    chosen = settings("eezofl", site()._replace(dim=16), message(dim=16, clip=0.5), budget(), ROUNDS, real)
    assert isinstance(chosen, dict)
    assert chosen["mode"] == "analytic"
    assert chosen["mu"] == pytest.approx(1.0)


def test_backed_off_levels_keep_the_designed_shares() -> None:
    gains = tuple(np.geomspace(0.2, 2.0, DEVICES))
    at = simulated.bench(site(), message(), budget(), 400, Channel(mean_power_gain=gains), 1)
    full = simulated.trial("biasvar", {"rho": 1.0}, at._replace(budget=budget(math.inf)))
    less = simulated.trial("biasvar", {"rho": 1.0, "headroom": 0.3}, at._replace(budget=budget(math.inf)))
    assert np.max(np.abs(full.shares - less.shares)) < 0.004  # 400 rounds of Rayleigh fading
    assert less.heard == pytest.approx(1.0, abs=0.02)


def test_left_over_needs_a_load() -> None:
    with pytest.raises(InputError, match=r"left_over=0\.5 needs load"):
        simulated.trial("cdpb", {"left_over": 0.5}, simulated.bench(site(), message(), budget(), 5, CHANNEL, 0))


def test_automatic_arms_of_cares_spend_the_budget_within_the_horizon() -> None:
    """A grid that ignored the horizon would choose an arm for a longer run and leave a third of the budget."""
    at = simulated.bench(site(200), message(200), budget(), 25, CHANNEL, 0)
    spent = simulated.cost("cares-static", {"arms": "auto", "diagnostic": True}, at)
    assert spent >= 0.9 * at.rho


def test_the_weakest_device_affords_all_rounds_of_poisson_batches() -> None:
    """Under sampling the cost of a loud round passes its share of energy: a division alone ended after a quarter."""
    ones = np.ones(4)
    site = Deployment(300 * ones, 0.05**2, 0.05**2, ones / 4, 53)
    message = Message(53, np.inf, 1.02 * ones, ones / 60, 0.06 * ones, "record", "zero-out")
    budget = Budget(1.0, 1e-6, "rdp", adjacency="zero-out")
    found = settings("weakest", site, message, budget, 60, Channel())
    at = simulated.bench(site, message, budget, 60, Channel(), 0)
    assert isinstance(found, dict)
    assert simulated.trial("weakest", found, at).rounds == 60
