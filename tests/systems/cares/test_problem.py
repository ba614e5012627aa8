"""Inputs that must be refused, noise known from both sides, granularities, limits of the channel scale."""

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from otafl.core.errors import InputError
from otafl.systems.cares.certifier import certify

ONES = np.ones(20)
BAD = [
    ("weights", -ONES / 20, "weights"),
    ("weights", np.full(20, np.nan), "weights"),
    ("weights", np.full(20, 0.051), "sums to"),
    ("weights", np.full((4, 5), 0.05), "shape"),
    ("weights", np.full(19, 1 / 19), "channel_scale"),
    ("channel_scale", 0 * ONES, "channel_scale"),
    ("channel_scale", np.inf * ONES, "channel_scale"),
    *[(name, bad, name) for name in ("clip_norm", "max_power", "step_size", "smoothness") for bad in (0, -1, math.inf)],
    ("max_power", np.ones(3), "max_power"),
    ("num_params", 0, "num_params"),
    ("num_params", 1.5, "num_params"),
    ("noise_std", 0, "noise_std"),
    ("noise_std", (0.2, 0.1), "ordered"),
    ("noise_std", (0.1, 0.2, 0.3), "pair"),
    ("eps_target", 0, "eps_target"),
    ("eps_target", math.inf, "eps_target"),
    ("delta", 0, "delta"),
    ("delta", 1, "delta"),
    ("grad_var", -1, "grad_var"),
    ("loss_gap", -1, "loss_gap"),
    ("loss_gap", math.nan, "loss_gap"),
    ("max_dropped", 1.1, "max_dropped"),
    ("max_asymmetry", -0.1, "max_asymmetry"),
    ("gain_error_max", -0.1, "gain_error_max"),
    ("constants", "loose", "constants"),
    ("accounting", "rdp", "accounting"),
    ("smoothness", 0.9, "step_size"),
    ("certify_with", "limits", "mu_low"),
    ("granularity", "record", "silence"),
]


@pytest.mark.parametrize(("name", "value", "message"), BAD)
def test_refused(paper, name, value, message):
    with pytest.raises(InputError, match=message):
        paper(**{name: value})


@pytest.mark.parametrize("bad", [[], [0.3, 0.2], [0.2, 0.2], [0.0, 0.1], [0.1, math.nan], [0.1, math.inf], [[0.1]]])
def test_refused_arms(paper, bad):
    with pytest.raises(InputError, match="arms"):
        certify(paper(), bad)


def test_record_needs_batch_sizes(paper):
    with pytest.raises(InputError, match="batch_sizes"):
        paper(granularity="record", silence="bound")


def test_swapped_limits_are_refused(paper):
    with pytest.raises(InputError, match="mu_low"):
        paper(certify_with="limits", mu_low=2 * ONES, mu_high=ONES)


def test_zero_weight_clients_count_as_absent(paper):
    base = paper(num_clients=4)
    weights, scale = np.append(base.weights, 0.0), np.append(base.channel_scale, 0.5)
    padded = paper(weights=weights, channel_scale=scale)
    assert padded.eta_peak == pytest.approx(base.eta_peak)
    assert padded.drop_rate_min == base.drop_rate_min > 0
    assert any("weight 0" in line for line in padded.warnings)
    assert padded.conv_bound(0.3, 100).total == pytest.approx(base.conv_bound(0.3, 100).total)


def test_noise_pair_charges_the_low_end_and_trains_with_the_high(paper):
    pair, low, high = paper(noise_std=(0.04, 0.06)), paper(noise_std=0.04), paper(noise_std=0.06)
    assert pair.zcdp_cost(0.3) == low.zcdp_cost(0.3)
    assert pair.round_cost(0.3) == high.round_cost(0.3)


def test_gain_error_inflates_costs_by_its_square(paper):
    assert paper(gain_error_max=0.1).zcdp_cost(0.3) == pytest.approx(1.21 * paper().zcdp_cost(0.3))
    assert paper(gain_error_max=0.1).round_cost(0.3) == paper().round_cost(0.3)


def test_record_level_divides_by_the_batch_square(paper):
    """CARES E13: eps = 500 at client level is 2.13 classic, 1.66 exact at record level for B = 64."""
    record = paper(granularity="record", silence="bound", batch_sizes=np.full(20, 64), eps_target=2.13)
    assert record.zcdp_cost(0.4) == pytest.approx(paper().zcdp_cost(0.4) / 64**2)
    spent = paper().zcdp_budget / 64**2
    assert record.eps_of(spent) == pytest.approx(2.13, abs=0.005)
    exact = paper(accounting="gaussian").eps_of(spent)
    assert exact == pytest.approx(1.66, abs=0.005)


def test_record_level_worst_client_is_by_weight_over_batch(paper):
    batches = np.full(20, 64)
    batches[3] = 8  # a small client with a small batch
    problem = paper(granularity="record", silence="bound", batch_sizes=batches)
    assert np.argmax(problem.zcdp(0.4)) == 3
    assert np.argmax(problem.zcdp(0.4, "client")) == 0


def test_energy_limits_may_differ_between_clients(paper):
    problem = paper(max_power=np.linspace(0.5, 1.5, 20))
    each = [paper(max_power=float(p)).drop_rate[k] for k, p in enumerate(np.linspace(0.5, 1.5, 20))]
    assert problem.drop_rate == pytest.approx(np.array(each))


def test_limits_cover_the_true_envelopes(paper):
    """CARES E16 with beta = 0.1: both envelopes lie below their certified values in at least 90 % of 400 trials."""
    rng, count, beta, truth = np.random.default_rng(8), 16, 0.1, paper(num_clients=8)
    eta = np.geomspace(0.05, 2.0, 12)
    covered = by_estimate = 0
    for _ in range(400):
        energy = (rng.rayleigh(truth.channel_scale, (count, 8)) ** 2).sum(0)
        low, high = (np.sqrt(energy / stats.chi2(2 * count).ppf(q)) for q in (1 - beta / 16, beta / 16))
        estimate = np.sqrt(energy / (2 * count))
        known = paper(num_clients=8, channel_scale=estimate, certify_with="limits", mu_low=low, mu_high=high)
        covered += _above(known, truth, eta)
        by_estimate += _above(paper(num_clients=8, channel_scale=estimate), truth, eta)
    assert covered >= stats.binom(400, 1 - beta).ppf(1e-4)
    assert by_estimate < 240  # plain estimates certify nothing


def _above(known, truth, eta):
    dropped = np.all(known.dropped_weight(eta) >= truth.dropped_weight(eta))
    return bool(dropped and np.all(known.asymmetry(eta) >= truth.asymmetry(eta)))


def test_no_jax_and_no_data():
    code = "import sys, otafl.systems.cares.certifier, otafl.systems.cares.summary; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
