"""Fractional Renyi orders where there is hardly any noise: the series that replaces a slow integral."""

from itertools import pairwise

import numpy as np
import pytest
from flint import acb, arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st

from otafl.privacy import moments

ORDERS = np.array([1.1, 1.5, 2.3, 4.7, 10.9])


def in_high_precision(rate: float, shift: float, order: float) -> float:
    """log E (1 - q + q Y)^alpha by integration over balls within 12 of its peaks, beyond which it has no 1e-20."""
    ctx.prec = 200
    q, s, a = arb(rate), arb(shift), arb(order)
    density = lambda x, _: (-(x * x) / 2).exp() * (1 - q + q * (s * x - s * s / 2).exp()).pow(acb(a))  # noqa: E731
    steps = np.arange(-12.0, 13.0, 3.0)
    ends = sorted({*steps, *(steps + order * shift)})  # apart by 12 or less: one range
    near = [(l, r) for l, r in pairwise(ends) if r - l <= 12]
    total = sum((acb.integral(density, float(l), float(r), rel_tol=2**-70) for l, r in near), acb(0))
    return float((total / (2 * acb.pi()).sqrt()).log().real)


@pytest.mark.parametrize("rate", [1e-4, 0.01, 0.7])
@pytest.mark.parametrize("shift", [8.0, 31.0])
def test_series_is_the_integral_in_high_precision(rate, shift):
    got = moments.any_order(rate, np.array([shift**2]), ORDERS)[0]
    expected = [in_high_precision(rate, shift, order) for order in ORDERS]
    np.testing.assert_allclose(got, expected, rtol=1e-10)


@settings(max_examples=40, deadline=None)
@given(st.floats(1e-6, 1 - 1e-6), st.floats(8.0, 22.0))
def test_series_and_trapezoid_rule_agree(rate, shift):
    series = moments._series(np.array([rate]), np.array([shift]), ORDERS)[0]
    np.testing.assert_allclose(series, moments._integrate(rate, shift, ORDERS), rtol=1e-10)


@settings(max_examples=40, deadline=None)
@given(st.floats(1e-6, 1 - 1e-6), st.floats(8.0, 1e4))
def test_series_meets_integer_orders_and_is_convex_between_them(rate, shift):
    """A is convex in the order (Hoelder) and known exactly at integers, up to sigma = 1e-4."""
    u, orders = np.array([shift**2]), np.array([2.0, 2.5, 3.0, 40.0, 40.5, 41.0])
    got = moments._series(np.array([rate]), np.array([shift]), orders)[0]
    whole = moments.integer_orders(rate, u, orders[[0, 2, 3, 5]].astype(int))[0]
    np.testing.assert_allclose(got[[0, 2, 3, 5]], whole, rtol=1e-10)
    assert got[1] <= (got[0] + got[2]) / 2 and got[4] <= (got[3] + got[5]) / 2


def test_nothing_jumps_where_the_series_takes_over():
    edge = moments.SERIES_FROM
    below, above = moments.any_order(0.01, np.array([edge**2 * (1 - 1e-12), edge**2]), ORDERS)
    np.testing.assert_allclose(below, above, rtol=1e-10)
