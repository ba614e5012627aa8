import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otafl.core.errors import InputError, PrivacyViolation
from otafl.core.uplink import ANALOG
from otafl.privacy import (
    check_realised,
    check_release,
    events,
    inverse_square,
    noise_multiplier,
    release,
    total_noise_var,
)
from otafl.privacy.events import join
from otafl.privacy.uplink_checks import meet


def test_multiplier_equals_the_ratio_of_noise_to_shift_in_a_simulated_round(make_run):
    """Monte Carlo: the received vector's noise std over the shift of one client's worst message, 4 standard errors."""
    plan, trace, deployment, message = make_run(seed=3, shape=(1, 3))
    deployment = deployment._replace(trusted_noise_var=deployment.noise_var)
    found = noise_multiplier(events(plan, trace, deployment, message))[0]
    rng, draws = np.random.default_rng(0), 200_000
    own = np.real(trace.gain[0] * plan.noise[0])[:, None] * rng.standard_normal((3, draws))
    received = own.sum(0) + np.sqrt(deployment.noise_var) * rng.standard_normal(draws)
    shift = np.abs(trace.gain[0] * plan.tx[0]) * message.sensitivity
    assert found * shift == pytest.approx(np.full(3, received.std()), rel=4 / np.sqrt(2 * draws))


def test_leading_seed_axis_gives_the_same_numbers(make_run):
    plan, trace, deployment, message = make_run(shape=(2, 5, 4))
    both = noise_multiplier(events(plan, trace, deployment, message))
    one = noise_multiplier(
        events(
            plan._replace(**{n: getattr(plan, n)[1] for n in plan._fields}),
            trace._replace(**{n: getattr(trace, n)[1] for n in trace._fields}),
            deployment,
            message,
        )
    )
    assert np.array_equal(both[1], one)


def test_dead_rounds_cost_nothing_whatever_they_hold(make_run):
    plan, trace, deployment, message = make_run()
    live = np.array([True, True, False, True, True, True])
    tx = plan.tx.copy()
    tx[2:] = np.nan
    found = events(plan._replace(live=live, tx=tx), trace, deployment, message)
    assert found.live.tolist() == [True, True, False, False, False, False]
    assert np.all(np.isinf(noise_multiplier(found)[2:]))


def test_live_round_with_an_infinite_scale_is_refused(make_run):
    plan, trace, deployment, message = make_run()
    tx = plan.tx.copy()
    tx[1, 2] = np.inf
    with pytest.raises(InputError, match=r"estimate \* tx\[1, 2\]"):
        events(plan._replace(tx=tx), trace, deployment, message)


def test_zero_amplitude_costs_nothing_and_zero_noise_costs_everything(make_events):
    run = make_events([[1.0, 2.0]])
    assert np.isinf(noise_multiplier(run._replace(amp=np.array([[0.0, 1.0]])))[0, 0])
    assert np.all(noise_multiplier(run._replace(receiver_var=np.zeros(1))) == 0)
    assert inverse_square(run._replace(amp=np.zeros((1, 2)), receiver_var=np.zeros(1))).tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("scale", [1e-150, 1e-162, 1e-170])
def test_noise_whose_square_has_no_digits_left_hides_nothing(make_events, scale):
    """A message's square vanished beside it, and rounds were charged nothing."""
    run = make_events([[1.0]])
    bare = run._replace(receiver_var=np.zeros(1))
    faint = bare._replace(amp=run.amp * scale, artificial_var=np.full((1, 1), (2 * scale) ** 2))
    assert noise_multiplier(faint).tolist() == [[0.0]]


def test_faint_noise_counts_as_long_as_its_square_has_digits(make_events):
    run = make_events([[1.0]])._replace(receiver_var=np.ones(1))
    faint = run._replace(amp=run.amp * 1e-130, receiver_var=np.full(1, 1e-260))
    assert noise_multiplier(faint) == pytest.approx(noise_multiplier(run), rel=1e-12)


def test_only_the_trusted_receiver_noise_counts(make_run):
    plan, trace, deployment, message = make_run()
    assert np.all(events(plan, trace, deployment, message).receiver_var == deployment.trusted_noise_var)


def test_colluders_take_their_noise_away_and_own_noise_counts(make_run):
    run = events(*make_run())
    mask = np.array([True, False, False, True])
    left = total_noise_var(run, mask)
    assert left == pytest.approx(run.receiver_var + run.artificial_var[:, 1] + run.artificial_var[:, 2])
    assert np.all(noise_multiplier(run, mask) < noise_multiplier(run))
    assert total_noise_var(run) == pytest.approx(run.receiver_var + run.artificial_var.sum(-1))


def test_possible_is_the_data_independent_part_of_silence(make_run):
    plan, trace, deployment, message = make_run()
    assert np.array_equal(events(plan, trace, deployment, message).possible, plan.max_norm >= 0)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), error=st.floats(0, 0.9))
def test_no_channel_within_the_declared_error_breaks_the_charge(make_run, seed, error):
    rng = np.random.default_rng(seed)
    shape = (6, 4)
    relative = error * rng.random(shape) * np.exp(2j * np.pi * rng.random(shape))
    plan, trace, deployment, message = make_run(seed, shape, error, relative)
    plan = plan._replace(noise=plan.noise * np.exp(1j * rng.uniform(0, 7, shape)))  # not rotated: half may be lost
    check_realised(events(plan, trace, deployment, message), plan, trace)


@pytest.mark.parametrize(("offset", "what"), [(0.21, "amplitude"), (-0.21, "artificial noise")])
def test_channel_beyond_the_declared_error_raises(make_run, offset, what):
    relative = np.zeros((6, 4))
    relative[4, 1] = offset
    plan, trace, deployment, message = make_run(1, (6, 4), 0.2, relative)
    with pytest.raises(PrivacyViolation, match=f"{what}.* of client 1 in round 4"):
        check_realised(events(plan, trace, deployment, message), plan, trace)
    dead = plan._replace(live=np.arange(6) < 4)
    check_realised(events(dead, trace, deployment, message), dead, trace)


def test_join_restores_a_run_and_refuses_a_changed_setting(make_events):
    whole = make_events(np.arange(1.0, 13).reshape(6, 2))
    parts = [
        whole._replace(**{n: getattr(whole, n)[cut] for n in whole._fields[:6]}) for cut in (slice(2), slice(2, 6))
    ]
    assert all(np.array_equal(a, b) for a, b in zip(join(parts)[:-1], whole[:-1]))
    assert np.array_equal(join(parts).leak_angle, np.zeros(6))
    with pytest.raises(InputError, match="rate changed"):
        join([parts[0], parts[1]._replace(rate=np.full(2, 0.5))])


def whitened(plans, trace, deployment, message, colluders):
    """Today's charge as an uplink with an account of its own would tell it."""
    plain = events(plans, trace, deployment, message)
    square = inverse_square(plain, colluders)
    return plain._replace(
        amp=np.sqrt(square) / message.sensitivity, artificial_var=np.zeros_like(square), leak_angle=0.0,
        receiver_var=np.ones_like(plain.receiver_var),
    )  # fmt: skip


OWN_ACCOUNT = ANALOG._replace(release=whitened)


def test_an_uplink_with_its_own_account_is_charged_by_it_and_resolves_colluders(make_run):
    plan, trace, deployment, message = make_run()
    who = np.array([True, False, False, True])
    for colluders in (None, who):
        plain = inverse_square(release(ANALOG, plan, trace, deployment, message, colluders), colluders)
        own = inverse_square(release(OWN_ACCOUNT, plan, trace, deployment, message, colluders), colluders)
        assert own == pytest.approx(plain, rel=1e-12)


def test_true_gains_above_an_own_account_are_refused(make_run):
    plan, trace, deployment, message = make_run()
    released = release(OWN_ACCOUNT, plan, trace, deployment, message)
    check_release(OWN_ACCOUNT, released, plan, trace, deployment, message)
    louder = trace._replace(gain=1.01 * trace.gain)
    with pytest.raises(PrivacyViolation, match="squared signal-to-noise ratio of client 0 in round 0"):
        check_release(OWN_ACCOUNT, released, plan, louder, deployment, message)


def test_an_account_from_outside_is_refused(make_run):
    _, trace, deployment, _ = make_run()
    with pytest.raises(PrivacyViolation, match="its own account of what it releases"):
        meet(OWN_ACCOUNT, trace, deployment)
