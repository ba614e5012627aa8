"""Laws of the distances by Kolmogorov-Smirnov at level 1e-6, limits exactly."""

import numpy as np
import pytest
from scipy import stats

from otafl.channels import Geometry
from otafl.channels.geometry import distances
from otafl.core.errors import InputError

LAWS = [
    (Geometry("disc", high_m=1750.0), lambda r: (r / 1750) ** 2),
    (Geometry("ring", low_m=100.0, high_m=300.0), lambda r: (r**2 - 100**2) / (300**2 - 100**2)),
    (Geometry("interval", low_m=10.0, high_m=200.0), lambda r: (r - 10) / 190),
]


@pytest.mark.parametrize(("geometry", "cdf"), LAWS)
def test_law_of_the_distance(geometry, cdf):
    distance = distances(geometry, 20_000, np.random.default_rng(0))
    assert stats.kstest(distance, cdf).pvalue > 1e-6


def test_ring_is_the_outer_part_of_a_disc():
    disc = distances(Geometry("disc", high_m=300.0), 50_000, np.random.default_rng(1))
    ring = distances(Geometry("ring", low_m=100.0, high_m=300.0), 50_000, np.random.default_rng(2))
    assert stats.ks_2samp(disc[disc >= 100], ring).pvalue > 1e-6


def test_clamps_only_where_declared():
    free = distances(Geometry("disc", high_m=10.0), 1000, np.random.default_rng(3))
    clamped = distances(Geometry("disc", high_m=10.0, clamp_m=6.0), 1000, np.random.default_rng(3))
    assert free.min() < 6
    np.testing.assert_array_equal(clamped, np.maximum(free, 6.0))


def test_given_distances_must_fit_the_number_of_devices():
    with pytest.raises(InputError, match="distances_m has shape"):
        distances(Geometry("given", distances_m=(1.0, 2.0)), 3, np.random.default_rng(0))


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "square"},
        {"kind": "disc"},
        {"kind": "disc", "high_m": -1.0},
        {"kind": "disc", "high_m": 5.0, "low_m": 1.0},
        {"kind": "ring", "low_m": 5.0, "high_m": 5.0},
        {"kind": "interval", "low_m": 0.0, "high_m": 5.0},
        {"kind": "given"},
        {"kind": "given", "distances_m": (1.0, float("nan"))},
        {"kind": "disc", "high_m": 5.0, "clamp_m": 0.0},
    ],
)
def test_refusals(fields):
    with pytest.raises(InputError):
        Geometry(**fields)
