"""How much noise a security level needs, and the variance of the noise that is drawn."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from otafl.core.errors import InputError
from otafl.crypto import budget, randomness, uplink
from otafl.crypto.parameters import LEAST_WIDTH, Parameters
from otafl.crypto.ring import RING_4096, RING_8192, toy_ring

TEN = budget.fading(np.ones(10), 2 * np.ones(10))


def exact_variance(sigma):
    """Of the rounded normal cut at 6 sigma, by another library."""
    cut = max(1, int(6 * sigma))
    k = np.arange(-cut, cut + 1)
    p = stats.norm.cdf((k + 0.5) / sigma) - stats.norm.cdf((k - 0.5) / sigma)
    return float((k**2 * p).sum() / p.sum())


@pytest.mark.parametrize("sigma", [0.1, 0.3, 0.7, 1.0, 1.9, 2.0, 2.7, 3.2, 10.0, 20.0])
def test_variance_is_that_of_the_drawn_law(sigma):
    assert randomness.gaussian_variance(sigma) == pytest.approx(exact_variance(sigma), rel=1e-6)
    p = Parameters(toy_ring(64), sigma_e=sigma, allow_insecure=True)
    assert p.error_var == randomness.gaussian_variance(sigma)


def test_the_least_noise_is_that_of_the_weakest_device_on_a_link_and_of_the_strongest_in_the_air():
    """Eight steps of the grid at the receiver: of |mu| on a link, of a gain up to eight spreads from its mean else."""
    p = Parameters(toy_ring(64), f=6, scale_bits=20, guard=False, allow_insecure=True)
    unlike = budget.fading(np.array([-0.5, 2.0, 1.0]), np.array([0.25, 4.0, 1.0 + 0.3**2]))
    link, air = (uplink.Job(p, unlike, mode) for mode in ("digital", "fixed-point"))
    assert link.least_noise == pytest.approx(8 / 0.5 * 2.0**-20)
    assert air.least_noise == pytest.approx(8 * (1.0 + 8 * 0.3) * 2.0**6 * 2.0**-26)


@pytest.mark.parametrize("sigma", [0.3, 0.5, 3.2])
def test_drawn_noise_has_the_stated_variance(sigma):
    """Within 5 standard errors over 400,000 draws; sigma^2 + 1/12 is 80 % off at 0.3."""
    draw = randomness.gaussian(randomness.insecure_test_rng(1), sigma, (400_000,)).astype(float) ** 2
    assert abs(draw.mean() - randomness.gaussian_variance(sigma)) < 5 * draw.std() / np.sqrt(draw.size)


@pytest.mark.parametrize("ring", [RING_4096, RING_8192])
@pytest.mark.parametrize("name", ["sigma_e", "sigma_phi"])
@pytest.mark.parametrize("width", [0.07, 0.1, 1.0, 3.18])
def test_a_level_is_not_given_without_its_noise(ring, name, width):
    with pytest.raises(InputError, match=f"{name}={width:g} must be >= 3.19"):
        Parameters(ring, **{name: width})
    insecure = Parameters(ring, **{name: width}, allow_insecure=True)
    assert insecure.security_bits == 0
    assert Parameters(ring, **{name: LEAST_WIDTH[128]}).security_bits == 128
    job = uplink.Job(dataclasses.replace(insecure, f=8, scale_bits=20), TEN, "analytic")
    said = " ".join(uplink.remarks(job))
    assert "security none" in said and "128 bits" not in said


@pytest.mark.parametrize("secret", ["sign", "ternary"])
def test_a_level_of_the_table_is_told_for_the_secrets_it_is_for(secret):
    """The table has ternary secrets; cards said "128 bits" of signs too, of which only the planner knew better."""
    job = uplink.Job(Parameters(RING_4096, secret=secret), TEN, "analytic")
    said = " ".join(uplink.remarks(job))
    assert "128 bits by the public table" in said and ("not estimated for these signs" in said) == (secret == "sign")


@pytest.mark.parametrize("width", [0.05, 1e-3, 1e-300, np.nan, np.inf, -1.0, 0.0])
@pytest.mark.parametrize("name", ["sigma_e", "sigma_phi"])
def test_noise_that_rounds_to_zero_is_refused_even_in_experiments(name, width):
    with pytest.raises(InputError, match=name):
        Parameters(toy_ring(64), **{name: width}, allow_insecure=True)
    with pytest.raises(InputError, match="sigma"):
        randomness.gaussian(randomness.insecure_test_rng(1), width, (4,))


def test_a_toy_ring_says_that_nothing_is_secret():
    p = Parameters(toy_ring(64), f=8, scale_bits=20, sigma_phi=3.2, allow_insecure=True)
    assert any("none: n, q" in line for line in uplink.remarks(uplink.Job(p, TEN, "fixed-point")))


@pytest.mark.parametrize(("share", "apart"), [(1.0, (0, 1e-6)), (1 / 56, (0.3, 1))])
def test_clients_noise_adds_up_as_if_it_were_real_from_the_least_width_on(share, apart):
    """Total variation between 5 n_1 + 7 n_2, n rounded normals, and the Gaussian that is charged."""
    p = Parameters(toy_ring(64), f=2, scale_bits=20, guard=False, allow_insecure=True)
    job = uplink.Job(p, budget.fading(np.array([1.25, 1.75]), np.array([1.25, 1.75]) ** 2), "hybrid")
    width = share * job.least_noise * 2.0 ** budget.message_bits(p, "hybrid")  # in steps of the grid
    cut = int(12 * width) + 2
    k = np.arange(-cut, cut + 1)
    law = stats.norm.cdf((k + 0.5) / width) - stats.norm.cdf((k - 0.5) / width)
    first, second = np.zeros(5 * 2 * cut + 1), np.zeros(7 * 2 * cut + 1)
    first[::5], second[::7] = law, law
    heard = np.convolve(first, second)
    charged = stats.norm.pdf(np.arange(heard.size) - heard.size // 2, scale=np.sqrt(74 * (width**2 + 1 / 12)))
    low, high = apart
    assert low <= np.abs(heard - charged).sum() / 2 <= high


def opened(width, scalars, guard, sizes):
    """Law of (sum of m_i, sum of g_i) of real scalars under normal noise, m rounded to whole numbers, g to `guard`."""
    found = 1
    for scalar in scalars:
        cut = int(7 * width + abs(scalar)) + 2
        coarse = guard * (np.arange(-cut // guard, cut // guard) + 0.5)
        borders = np.unique(np.concatenate([np.arange(-cut, cut) + 0.5, coarse]))
        inside, one = (borders[1:] + borders[:-1]) / 2, np.zeros(sizes)
        at = np.rint(inside).astype(int) % sizes[0], np.rint(inside / guard).astype(int) % sizes[1]
        np.add.at(one, at, np.diff(stats.norm.cdf((borders - scalar) / width)))
        found = found * np.fft.rfft2(one)
    return np.fft.irfft2(found, s=sizes)


@pytest.mark.parametrize(("share", "least", "most"), [(1.0, 0.99, 1.0001), (1 / 32, 1.3, 1.5)])
def test_guard_copies_tell_no_more_than_the_sum_from_the_least_width_on(share, least, most, monkeypatch):
    """Two clients, one of them near a border of the coarser grid: total variation over that of the charged Gaussian.

    Noise that is wide on the fine grid alone leaves a client to its own noise, 1.41 times what is charged."""
    monkeypatch.setattr(uplink, "GUARD_BITS", 5)
    p = Parameters(toy_ring(64), scale_bits=20, allow_insecure=True)
    job, guard = uplink.Job(p, budget.fading(np.ones(2), np.ones(2)), "digital"), 2**5
    width = share * job.least_noise * 2.0 ** budget.message_bits(p, "digital")  # in steps of the grid
    sizes = tuple(1 << int(np.ceil(np.log2(32 * width / step + 8))) for step in (1, guard))
    one, other = (opened(width, (guard / 2 + side * width / 4, 0.0), guard, sizes) for side in (-1, 1))
    charged = 2 * stats.norm.cdf(0.25 / np.sqrt(2)) - 1
    assert least < np.abs(one - other).sum() / 2 / charged < most
