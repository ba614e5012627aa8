"""Foreign sequences: equality with the certificate for CARES, Monte Carlo of the bias bound for any scheme."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from otafl.bounds.bias import bias_bound
from otafl.core.errors import InputError
from otafl.systems.cares.certifier import Problem, certify_sequence

SIGMAS = 4.5


def of(problem: Problem, rx_scale: Any, **changes: Any):
    names = ("weights", "num_params", "loss_gap", "delta", "clip_norm", "step_size", "smoothness", "constants")
    inputs = {name: getattr(problem, name) for name in names}
    inputs |= {"noise_std": problem.noise_high, "channel_scale": problem.channel_scale, "max_power": problem.max_power}
    return certify_sequence(rx_scale, **{**inputs, **changes})


@pytest.mark.parametrize("constants", ["main", "proof", "tight"])
def test_constant_sequence_equals_the_certificate(paper, constants):
    problem = paper(constants=constants, max_power=0.1)
    found = of(problem, np.full(356, 0.4))
    for one, two in zip(found.conv_bound, problem.conv_bound(0.4, 356), strict=True):
        assert one == pytest.approx(two, rel=1e-12)
    assert found.zcdp == pytest.approx(356 * problem.zcdp(0.4))
    assert found.eps == pytest.approx(float(problem.eps_of(356 * problem.zcdp_cost(0.4))))
    assert found.worst_client == 0


def test_independent_channels_equal_the_sharper_certificate(paper):
    problem = paper(max_power=0.05, independent_channels=True)
    assert of(problem, np.full(9, 0.4), independent=True).conv_bound.total == pytest.approx(
        float(problem.conv_bound(0.4, 9).total), rel=1e-12
    )


def test_varying_sequence_is_the_mean_over_rounds(paper):
    """(12) with scalings and channels that change every round, against a plain loop."""
    problem = paper(max_power=0.1)
    eta = np.linspace(0.2, 0.5, 7)
    scales = np.linspace(1.0, 0.6, 7)[:, None] * problem.channel_scale
    found = of(problem, eta, channel_scale=scales)
    costs = [replace(problem, channel_scale=s).round_cost(e) for e, s in zip(eta, scales, strict=True)]
    fixed = problem.conv_bound(1.0, 7)
    assert found.conv_bound.total == pytest.approx(fixed.initial_gap + fixed.grad_variance + np.mean(costs))
    assert found.zcdp == pytest.approx(sum(problem.zcdp(e) for e in eta))


def test_gain_error_and_what_is_released_with_every_round_are_charged(paper):
    beside = np.linspace(0.01, 0.1, paper().weights.size)
    plain, more = (of(paper(), [0.3, 0.4], **said) for said in ({}, {"gain_error_max": 0.1, "beside": beside}))
    assert more.zcdp == pytest.approx(plain.zcdp * 1.1**2 + 2 * beside)
    assert more.conv_bound == plain.conv_bound


def test_a_replaced_message_moves_by_twice_its_own_bound_and_gradients_vary_by_the_largest():
    told = {"weights": [0.5, 0.5], "noise_std": 0.3, "num_params": 3, "loss_gap": 1.0, "delta": 1e-5}
    found = certify_sequence([0.4, 0.6], clip_norm=[0.5, 2.0], **told)
    assert found.zcdp == pytest.approx([0.5**2 * (0.4**2 + 0.6**2) * (2 * g) ** 2 / (2 * 0.3**2) for g in (0.5, 2.0)])
    assert found.conv_bound == certify_sequence([0.4, 0.6], clip_norm=[0.5, 2.0], grad_var=4.0, **told).conv_bound


def test_a_bound_says_something_where_it_is_below_what_clipped_messages_hold_anyway():
    """||sum p_k g_k|| <= sum p_k G_k: with unequal norms well below the largest G."""
    given = {"weights": [0.9, 0.1], "noise_std": 1e-3, "num_params": 1, "loss_gap": 0.0, "delta": 1e-5}
    given |= {"clip_norm": [0.1, 1.0], "step_size": 0.1, "constants": "tight", "smoothness": 1.0}
    for grad_var, says in ((0.1, True), (0.5, False)):
        found = certify_sequence(np.ones(4), **given, grad_var=grad_var)
        assert found.conv_bound.total < 1 and found.informative == says == (found.conv_bound.total < 0.19**2)


def test_label(paper):
    assert of(paper(), [0.3]).label == "realised_bound"
    assert "not a certificate" in of(paper(), [0.3]).notes[0]
    assert of(paper(), [0.3], predictable=True).label == "certificate"
    assert of(paper(), [0.3], predictable=True).notes == ()


def test_nobody_silent_with_equal_weights_has_no_bias():
    """AdaScale: amplitude sqrt(eta)/M, divided by sqrt(eta); sensitivity stated apart from the mean-square bound."""
    root = np.linspace(1e-3, 2e-3, 5)
    found = certify_sequence(
        root,
        weights=np.full(4, 0.25),
        noise_std=1e-3,
        num_params=10,
        loss_gap=1.0,
        delta=1e-5,
        clip_norm=np.array([1.0, 1.2, 0.9, 1.1]),
        amplitude=np.repeat(root[:, None] / 4, 4, axis=1),
        sensitivity=np.full(4, 1 / 32),
        predictable=True,
    )
    assert found.conv_bound.truncation == pytest.approx(0, abs=1e-20)
    assert found.zcdp == pytest.approx(np.full(4, np.sum((root / 4 / 32) ** 2) / (2 * 1e-6)))


def test_division_by_mean_participation_leaves_variance_only():
    """CDPB: amplitude sqrt(rho), divided by sqrt(rho) K p; silence by the bound with probability 1 - p."""
    clients, send, rho = 6, 0.7, 0.04
    found = certify_sequence(
        np.full(3, np.sqrt(rho) * clients * send),
        weights=np.full(clients, 1 / clients),
        noise_std=[0.1, 0.2, 0.3],
        noise_std_low=0.1,
        num_params=5,
        loss_gap=1.0,
        delta=1e-5,
        amplitude=np.full(clients, np.sqrt(rho)),
        silent_prob=np.full(clients, 1 - send),
        silence="bound",
        independent=True,
    )
    assert found.bias == pytest.approx(np.full(3, (1 - send) / (send * clients)))
    assert found.dropped_weight == pytest.approx(np.full(3, 1 - send))
    assert found.zcdp == pytest.approx(np.full(clients, 3 * (2 * np.sqrt(rho)) ** 2 / (2 * 0.01)))
    noise = np.mean(np.array([0.1, 0.2, 0.3]) ** 2) / (rho * (clients * send) ** 2)
    assert found.conv_bound.channel_noise == pytest.approx(12 / 1.2 * 0.1 * 5 * noise)


@given(
    arrays(float, 4, elements=st.floats(0, 1)),
    arrays(float, 4, elements=st.floats(0, 1)),
    st.booleans(),
    st.integers(0, 2**31),
)
@settings(max_examples=40, deadline=None)
def test_bias_bound_holds_for_any_scheme(share, silent, independent, seed):
    """Parallel gradients of full norm are the worst case; actual silence is anywhere below the stated probability."""
    rng = np.random.default_rng(seed)
    weights, bound = np.array([0.4, 0.3, 0.2, 0.1]), np.array([1.0, 0.5, 2.0, 1.5])
    actual = silent * rng.uniform(size=4)
    if independent:
        sent = rng.uniform(size=(20_000, 4)) >= actual
    else:  # comonotone: the worst dependence
        sent = rng.uniform(size=(20_000, 1)) >= actual
    bias = ((sent * share - weights) * bound * rng.choice([-1, 1], 4)).sum(-1) ** 2
    limit = bias_bound(share[None], silent[None], weights, bound, exact=False, independent=independent)[0]
    assert bias.mean() - SIGMAS * bias.std() / np.sqrt(bias.size) <= limit * (1 + 1e-9) + 1e-12


def naive_bias_bound(share, silent, weights, bound, exact, independent):
    """Client by client: e is v - p with chance 1 - q, else -p; q as stated, or the worst of a thousand below it."""
    largest = mean = offset = variance = 0.0
    for v, q, p, norm in zip(share, silent, weights, bound, strict=True):
        chances = np.array([q]) if exact else np.linspace(0, q, 1001)
        largest += norm * max(abs(v - p), p if q > 0 else 0.0)
        mean += norm * np.max((1 - chances) * abs(v - p) + chances * p)
        chances = chances if v > p else np.array([q])  # both rise together up to q where v <= p
        offset += norm * np.max(np.abs((1 - chances) * v - p))
        variance += norm**2 * v**2 * np.max(chances * (1 - chances))
    return min(largest * mean, offset**2 + variance) if independent else largest * mean


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("independent", [True, False])
def test_bias_bound_is_that_of_a_naive_loop(exact, independent):
    rng = np.random.default_rng(8)
    weights, bound = np.array([0.4, 0.3, 0.2, 0.1]), np.array([1.0, 0.5, 2.0, 1.5])
    share = weights * np.where(np.arange(60)[:, None] < 20, 1.0, rng.uniform(0, 3, (60, 4)))  # a third inverts exactly
    silent = rng.uniform(size=(60, 4)) * rng.integers(0, 2, (60, 4))  # half of them are never silent
    found = bias_bound(share, silent, weights, bound, exact=exact, independent=independent)
    naive = [naive_bias_bound(v, q, weights, bound, exact, independent) for v, q in zip(share, silent)]
    assert found == pytest.approx(naive, rel=1e-6)


@given(st.floats(0, 3), st.floats(0, 1))
def test_bias_bound_of_one_client_whose_silence_is_known_is_its_mean_square(share, silent):
    found = bias_bound(
        np.array([[share]]), np.array([[silent]]), np.ones(1), np.full(1, 0.7), exact=True, independent=True
    )
    assert found[0] == pytest.approx(0.49 * (silent + (1 - silent) * (share - 1) ** 2), abs=1e-12)


@given(arrays(float, 4, elements=st.floats(0, 1)), arrays(float, 4, elements=st.floats(0, 1)))
def test_knowing_more_never_loosens_the_bias_bound(share, silent):
    weights, bound = np.array([0.4, 0.3, 0.2, 0.1]), np.ones(4)
    loose, exact, sharp = (
        bias_bound(share[None], silent[None], weights, bound, exact=e, independent=i)[0]
        for e, i in ((False, False), (True, False), (True, True))
    )
    assert sharp <= exact * (1 + 1e-12) <= loose * (1 + 1e-11)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rx_scale": []}, "rx_scale"),
        ({"rx_scale": [0.1, 0.0]}, "rx_scale"),
        ({"rx_scale": [[0.1]]}, "rx_scale"),
        ({"weights": [0.5, 0.6]}, "weights"),
        ({"channel_scale": np.ones(3)}, "channel_scale"),
        ({"channel_scale": None, "silent_prob": np.full(20, 1.5)}, "silent_prob"),
        ({"silent_prob": np.zeros(20)}, "not both"),
        ({"amplitude": -np.ones(20)}, "amplitude"),
        ({"noise_std": -0.1}, "noise_std"),
        ({"noise_std": [0.1, 0.2, 0.3]}, "noise_std"),
        ({"noise_std_low": 1.0}, "noise_std_low"),
        ({"noise_std_low": [0.01, 1.0]}, "noise_std_low"),
        ({"delta": 0.0}, "delta"),
        ({"smoothness": 1.0}, "step_size"),
        ({"weights": []}, "weights has shape"),
        ({"weights": [[0.5, 0.5]]}, "weights has shape"),
        ({"weights": [1.5, -0.5], "channel_scale": None}, "weights"),
        ({"channel_scale": np.zeros(20)}, "channel_scale"),
        ({"max_power": 0.0}, "max_power"),
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"sensitivity": -1.0}, "sensitivity"),
        ({"gain_error_max": -0.1}, "gain_error_max"),
        ({"beside": -0.1}, "beside"),
        ({"num_params": 0}, "num_params"),
        ({"loss_gap": -0.1}, "loss_gap"),
        ({"step_size": 0.0, "smoothness": 1.0}, "step_size"),
        ({"smoothness": 0.0}, "smoothness"),
        ({"grad_var": -1.0}, "grad_var"),
    ],
)
def test_refused(paper, changes, message):
    changes = dict(changes)
    with pytest.raises(InputError, match=message):
        of(paper(), changes.pop("rx_scale", [0.3, 0.3]), **changes)


def test_without_noise_the_bound_holds_and_eps_is_infinite():
    """FedAvg as a sequence: no noise term, infinite eps; a client that never arrives spends nothing."""
    told = {"noise_std": 0.0, "num_params": 10, "loss_gap": 1.0, "delta": 1e-5}
    clear = certify_sequence(np.ones(4), weights=[0.4, 0.6], **told)
    assert clear.conv_bound.channel_noise == 0 and np.isfinite(clear.conv_bound.total) and clear.eps == np.inf
    partly = certify_sequence(np.ones(4), weights=[0.4, 0.6], amplitude=[0.0, 0.6], **told)
    assert partly.zcdp.tolist() == [0.0, np.inf] and partly.worst_client == 1
