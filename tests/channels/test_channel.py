"""Traces: what they contain, which draws belong together, and that options do not disturb each other."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from otafl.channels import (
    CHANNELS,
    PUBLISHED,
    Channel,
    CsiError,
    Drift,
    Fading,
    Geometry,
    PathLoss,
    Pilots,
    draw,
    draw_seeds,
    place,
    rescale_log,
    with_gains,
)
from otafl.channels.channel import Rows
from otafl.core.errors import InputError
from otafl.core.streams import Host

EVERYTHING = Channel(
    fading=Fading("rician", coherence_rounds=3, k_factor_db=2.0),
    geometry=Geometry("ring", low_m=50.0, high_m=500.0),
    path_loss=PathLoss("biasvar"),
    shadowing_db=6.0,
    drift=Drift(every=4),
    pilots=Pilots(every=2, ema=0.2),
    csi=CsiError(0.2, 0.1),
)
VARIANTS = [
    Channel(),
    EVERYTHING,
    dataclasses.replace(EVERYTHING, placement_seed=5),
    *(channel for name, channel in PUBLISHED.items() if name != "adascale"),
]


@pytest.mark.parametrize("channel", VARIANTS)
@given(rounds=st.integers(1, 20), more=st.integers(0, 20), seed=st.integers(0, 10**9))
@settings(max_examples=15, deadline=None)
def test_longer_horizon_extends_a_shorter_one(channel, rounds, more, seed):
    short, long = draw(channel, 4, rounds, seed), draw(channel, 4, rounds + more, seed)
    for name in short._fields:
        np.testing.assert_array_equal(getattr(long, name)[:rounds], getattr(short, name), err_msg=name)


@pytest.mark.parametrize("channel", [*VARIANTS, PUBLISHED["adascale"]])
def test_shapes_types_and_order_of_limits(channel):
    trace = draw(channel, 5, 7, 0)
    for name, leaf in trace._asdict().items():
        assert leaf.shape == (7, 5), name
        assert leaf.dtype == (np.complex128 if name in ("gain", "estimate") else np.float64), name
    assert np.all(trace.rms_low <= trace.rms_high) and np.all(trace.rms_low > 0)
    assert np.all((trace.coin >= 0) & (trace.coin < 1))
    assert np.all(np.abs(trace.gain / trace.estimate) - 1 <= channel.gain_error)


PLAIN = dataclasses.replace(EVERYTHING, fading=Fading(), shadowing_db=0.0, drift=None, pilots=None, csi=None)
FACTORS = {  # leaves that an option may change; what is left must stay bit for bit
    "shadowing_db": {"gain", "estimate", "rms_gain", "rms_estimate", "rms_low", "rms_high"},
    "drift": {"gain", "estimate", "rms_gain", "rms_estimate", "rms_low", "rms_high"},
    "fading": {"gain", "estimate"},
    "pilots": {"rms_estimate", "rms_low", "rms_high"},
    "csi": {"estimate"},
}


@pytest.mark.parametrize("option", FACTORS)
def test_an_option_changes_only_what_it_is_about(option):
    before = draw(PLAIN, 4, 12, 3)
    after = draw(dataclasses.replace(PLAIN, **{option: getattr(EVERYTHING, option)}), 4, 12, 3)
    for name in before._fields:
        same = np.array_equal(getattr(before, name), getattr(after, name))
        assert same == (name not in FACTORS[option]), name


@pytest.mark.parametrize("option", ["shadowing_db", "drift"])
def test_scaling_the_mean_does_not_change_the_fading(option):
    before = draw(PLAIN, 4, 12, 3)
    after = draw(dataclasses.replace(PLAIN, **{option: getattr(EVERYTHING, option)}), 4, 12, 3)
    np.testing.assert_allclose(after.gain / after.rms_gain, before.gain / before.rms_gain, rtol=1e-14)


def test_streams_are_independent():
    trace = draw(Channel(csi=CsiError(0.5), pilots=Pilots(every=1)), 50, 400, 0)
    parts = [
        np.abs(trace.gain) ** 2,
        np.abs(trace.gain / trace.estimate),
        trace.rms_estimate**2,
        trace.coin,
        draw(Channel(), 50, 400, 1).coin,
    ]
    correlation = np.corrcoef([part.ravel() for part in parts])
    limit = 5 / np.sqrt(trace.gain.size)
    assert np.all(np.abs(correlation - np.eye(len(parts))) <= limit)


def test_no_two_streams_share_their_numbers():
    words = [np.random.default_rng([seed, which]).integers(2**63) for seed in range(20) for which in Host]
    assert len(set(words)) == 20 * len(Host)


def test_seeds_differ_and_repeat():
    one, two = draw(EVERYTHING, 3, 5, 0), draw(EVERYTHING, 3, 5, 1)
    assert not np.any(one.gain == two.gain) and not np.any(one.rms_gain == two.rms_gain)
    np.testing.assert_array_equal(draw(EVERYTHING, 3, 5, 0).gain, one.gain)
    stacked = draw_seeds(EVERYTHING, 3, 5, [0, 1])
    np.testing.assert_array_equal(stacked.gain, np.stack([one.gain, two.gain]))


def test_fixed_placement_is_shared_by_all_seeds():
    fixed = dataclasses.replace(EVERYTHING, placement_seed=9)
    for seed in (0, 1):
        np.testing.assert_array_equal(place(fixed, 6, seed).mean_power_gain, place(EVERYTHING, 6, 9).mean_power_gain)
    assert not np.any(draw(fixed, 6, 3, 0).gain == draw(fixed, 6, 3, 1).gain)


def test_published_adascale_draws():
    for seed in range(3):
        rng = np.random.default_rng(seed)
        loss = 10 ** ((33.44 + 35.22 * np.log10(rng.uniform(10, 200, 10))) / 10)
        expected = (rng.standard_normal((500, 10)) + 1j * rng.standard_normal((500, 10))) * np.sqrt(1 / (2 * loss))
        np.testing.assert_allclose(draw(PUBLISHED["adascale"], 10, 500, seed).gain, expected, rtol=1e-13)


def test_cares_scales_by_a_second_implementation():
    channel = PUBLISHED["cares"]
    trace = draw(channel, 20, 1, 4)
    scale = trace.rms_gain[0] / np.sqrt(2)
    assert scale.min() == pytest.approx(0.2) and scale.max() == pytest.approx(1.0)
    raw = draw(dataclasses.replace(channel, scale_range=None), 20, 1, 4).rms_gain[0]
    placement = place(channel, 20, 4)
    assert np.all((placement.distance_m >= 1) & (placement.distance_m <= 3))
    shadow_db = 20 * np.log10(raw * placement.distance_m)
    assert abs(shadow_db).max() < 5 * 4
    slope, intercept = np.polyfit(np.log(raw), np.log(scale), 1)
    np.testing.assert_allclose(np.log(scale), slope * np.log(raw) + intercept, atol=1e-12)


def test_cares_spread_before_rescaling():
    # E22: the median spread over 20 clients is about 7.7 with distances and 5.5 without (500 draws: within 10 %)
    channel = dataclasses.replace(PUBLISHED["cares"], scale_range=None)
    spread = [np.ptp(np.log(place(channel, 20, seed).mean_power_gain)) / 2 for seed in range(500)]
    assert np.exp(np.median(spread)) == pytest.approx(7.7, rel=0.1)
    shadow = Channel(shadowing_db=4.0)
    spread = [np.ptp(np.log(place(shadow, 20, seed).mean_power_gain)) / 2 for seed in range(500)]
    assert np.exp(np.median(spread)) == pytest.approx(5.5, rel=0.1)


def test_one_device_goes_to_the_middle_of_the_range():
    np.testing.assert_allclose(rescale_log(np.array([7.0]), 0.2, 0.8), [0.4])


def test_cdpb_power_gain_is_exponential_with_mean_one(assert_mean):
    power = np.abs(draw(PUBLISHED["cdpb"], 10, 5000, 0).gain) ** 2
    assert_mean(power, 1.0)
    assert_mean(power >= 0.4, np.exp(-0.4))  # CDPB (53): p = exp(-u)


def test_eezofl_gains_are_real_normals(assert_mean):
    trace = draw(PUBLISHED["eezofl"], 10, 5000, 0)
    assert np.all(trace.gain.imag == 0)
    assert_mean(trace.gain.real, 1.0)
    assert_mean((trace.gain.real - 1) ** 2, 1.0)
    np.testing.assert_allclose(trace.rms_gain, np.sqrt(2))


def test_biasvar_transmit_probability(assert_mean):
    channel = PUBLISHED["biasvar"]
    gains = place(channel, 10, 0).mean_power_gain
    trace = draw(channel, 10, 20_000, 1)
    for k in range(10):  # P_m = exp(-threshold / Lambda_m)
        assert_mean(np.abs(trace.gain[:, k]) ** 2 >= 0.5 * gains[k], np.exp(-0.5))


def test_given_gains_replace_geometry():
    channel = with_gains(EVERYTHING, [1e-9, 4e-9])
    np.testing.assert_allclose(draw(channel, 2, 1, 0).rms_gain[0] ** 2, [1e-9, 4e-9])
    with pytest.raises(InputError, match="mean_power_gain has shape"):
        draw(channel, 3, 1, 0)


def test_registry_describes_every_published_channel():
    assert CHANNELS.keys() == PUBLISHED.keys()


@pytest.mark.parametrize(
    "fields",
    [
        {"geometry": Geometry("disc", high_m=5.0)},
        {"mean_power_gain": 1.0, "geometry": Geometry("disc", high_m=5.0), "path_loss": PathLoss("biasvar")},
        {"mean_power_gain": (1.0, -1.0)},
        {"shadowing_db": -1.0},
        {"scale_range": (1.0, 0.2)},
        {"scale_range": (0.0, 0.2)},
        {"drift": Drift(every=40), "pilots": Pilots()},
        {"drift": Drift(every=40), "pilots": Pilots(every=7)},
        {"draw_order": "single", "shadowing_db": 4.0},
        {"draw_order": "single", "fading": Fading("constant")},
        {"draw_order": "rows"},
        {"placement_seed": -1},
    ],
)
def test_refused_combinations(fields):
    with pytest.raises(InputError):
        Channel(**fields)


@pytest.mark.parametrize("arguments", [(0, 1, 0), (1, 0, 0), (1, 1, -1), (1, 1.5, 0)])
def test_refused_sizes(arguments):
    with pytest.raises(InputError):
        draw(Channel(), *arguments)


def test_a_schema_reads_channels_from_plain_data():
    adapter = TypeAdapter(Channel)
    for channel in VARIANTS:
        data = adapter.dump_python(channel)
        assert adapter.validate_python(data) == channel
        assert adapter.validate_json(adapter.dump_json(channel)) == channel
    with pytest.raises(ValidationError, match=r"k_factor_db=.* has no meaning"):
        adapter.validate_python({"fading": {"kind": "rayleigh", "k_factor_db": 3.0}})
    with pytest.raises(ValidationError, match="shadow_db"):
        adapter.validate_python({"shadow_db": 3.0})


MOVING = dict(
    shadowing_db=3.0,
    drift=Drift(every=4, amplitude=0.2),
    pilots=Pilots(count=16, every=2, ema=0.3),
    csi=CsiError(0.2, 0.1),
)


@pytest.mark.parametrize("channel", [
    Channel(),
    Channel(fading=Fading("rician", coherence_rounds=3, k_factor_db=3.0), **MOVING),
    Channel(fading=Fading("real_gaussian", coherence_rounds=5, mean=1.0, std=0.5), pilots=Pilots(count=8)),
    Channel(fading=Fading("constant"), drift=Drift(every=3, relative_to="initial")),
    PUBLISHED["adascale"],
])  # fmt: skip
@pytest.mark.parametrize("sizes", [(1,) * 11, (4, 1, 6), (2, 9)])
def test_rounds_taken_some_at_a_time_are_the_rounds_of_one_draw(channel: Channel, sizes: tuple[int, ...]) -> None:
    rows, whole = Rows(channel, 3, 11, seed=5), draw(channel, 3, 11, seed=5)
    parts = [rows.take(size) for size in sizes]
    for name, leaves, leaf in zip(whole._fields, zip(*parts), whole):
        np.testing.assert_array_equal(np.concatenate(leaves), leaf, err_msg=name)
