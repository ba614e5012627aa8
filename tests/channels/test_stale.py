"""Old estimates: the bound (C2), how often it is missed, what is charged and who stays silent."""

import math

import numpy as np
import pytest
from scipy.special import j0

from otafl import systems
from otafl.channels import Channel, Fading, Stale, draw, stale_gain_error
from otafl.channels.csi import CsiError
from otafl.channels.drift import Drift
from otafl.core.errors import InputError
from otafl.core.plan import Context, Deployment, Message
from otafl.core.rounds import plan_ahead
from otafl.privacy import check_realised, events
from otafl.privacy.events import declared_phase_error

SLOW = Fading("jakes", speed_m_s=0.05, carrier_ghz=3.5, round_s=0.01)
CHANNEL = Channel(fading=SLOW, stale=Stale())


def test_the_worked_value_cannot_be_declared():
    rho = float(j0(0.2 * np.pi))
    assert abs(stale_gain_error(rho, 0.5, 1e-6) - 3.5) < 0.05
    by_hand = math.sqrt(1 - rho**2) * math.sqrt(math.log(1e6)) / (rho * 0.5)
    assert abs(stale_gain_error(rho, 0.5, 1e-6) - by_hand) < 1e-12
    assert stale_gain_error(-rho, 1.0, 1e-6, rms_gain=2.0) == pytest.approx(by_hand, rel=1e-12)
    with pytest.raises(InputError, match=r"give gain_error=3.52, which cannot be declared \(at most 0.999\)"):
        Channel(fading=Fading("ar1", rho=rho), stale=Stale(miss_prob=1e-6))


@pytest.mark.parametrize("jitter", [0.0, 1e-9, 0.01])
@pytest.mark.parametrize("rho", [0.5, -0.9, 1 - 1e-9])
def test_the_bound_holds_where_every_gain_has_power_of_its_own(rho, jitter):
    """Two normals of variance 1 + jitter and covariance rho: |g| given g_old = h_min, in closed form."""
    least, beta = 0.7, 1e-6
    slope = rho / (1 + jitter)
    spread = math.sqrt((1 - rho) * (1 + rho) + jitter * (1 + rho * slope))  # of what g_old does not tell
    room = stale_gain_error(rho, least, beta, jitter=jitter) - (1 - slope / rho)
    assert math.exp(-((room * abs(rho) * least / spread) ** 2)) <= beta * (1 + 1e-9)


def test_an_error_of_one_cannot_be_declared():
    fading = Fading("ar1", rho=0.9)
    least = stale_gain_error(0.9, 1.0, 0.01)  # where (C2) is 1
    Channel(fading=fading, stale=Stale(least_gain=least * 1.002, miss_prob=0.01))
    with pytest.raises(InputError, match="gain_error=1, which cannot be declared"):
        Channel(fading=fading, stale=Stale(least_gain=least, miss_prob=0.01))


@pytest.mark.parametrize("fading", [
    Fading("ar1", rho=0.995), Fading("ar1", rho=-0.995), Fading("jakes", rho=0.995),
    Fading("jakes", rho=1 - 1e-9),  # moves less in a round than what its factor adds on the diagonal
])  # fmt: skip
@pytest.mark.parametrize("age", [1, 2])
def test_the_bound_is_missed_no_more_often_than_declared(fading, age):
    """At |g_old| >= h_min the share of misses is at most beta, here 0.05, by 5 standard errors."""
    channel = Channel(fading=fading, stale=Stale(age, least_gain=0.8, miss_prob=0.05))
    trace = draw(channel, 400, 500, 0)
    heard = np.abs(trace.estimate) >= channel.least_gain * trace.rms_estimate
    missed = np.abs(trace.gain / trace.estimate - 1)[heard] > channel.gain_error
    assert missed.mean() <= 0.05 + 5 * math.sqrt(0.05 * 0.95 / heard.sum())
    assert missed.mean() > 0.001  # the bound is not idle
    np.testing.assert_allclose(heard.mean(), math.exp(-0.64), atol=0.02)


def test_the_gains_are_those_of_the_same_process_told_late():
    stale, fresh = draw(CHANNEL, 3, 20, 1), draw(Channel(fading=SLOW), 3, 21, 1)
    np.testing.assert_array_equal(stale.gain, fresh.gain[1:])
    np.testing.assert_allclose(stale.estimate, SLOW.correlation(1) * fresh.gain[:-1], rtol=1e-15)
    np.testing.assert_allclose(stale.rms_estimate, SLOW.correlation(1) * stale.rms_gain, rtol=1e-15)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"fading": Fading()}, "fading kind='rayleigh' has no correlation from round to round"),
        ({"csi": CsiError(0.1)}, "stale and csi cannot be combined"),
        ({"drift": Drift()}, "stale and drift cannot be combined"),
        ({"antennas": 2}, "antennas=2 must be 1"),
    ],
)
def test_what_has_no_bound_is_refused(said, why):
    with pytest.raises(InputError, match=why):
        Channel(**{"fading": SLOW, "stale": Stale(), **said})


def test_a_channel_that_has_forgotten_is_refused_as_such():
    with pytest.raises(InputError, match=r"stale.age_rounds=1: the channel has forgotten"):
        Channel(fading=Fading("ar1", rho=0.0), stale=Stale())


@pytest.mark.parametrize("said", [{"age_rounds": 0}, {"least_gain": 0.0}, {"miss_prob": 0.0}, {"miss_prob": 1.0}])
def test_a_bound_that_is_none_is_refused(said):
    with pytest.raises(InputError, match=f"^{next(iter(said))}="):
        Stale(**said)


@pytest.mark.parametrize("rho", [0.0, 1.0, -1.0, 1.5, float("nan")])
def test_only_channels_that_move_and_are_not_forgotten_have_a_bound(rho):
    with pytest.raises(InputError, match="rho"):
        stale_gain_error(rho, 0.5, 1e-6)


def site(clients: int = 12):
    weights = np.full(clients, 1 / clients)
    deployment = Deployment(np.full(clients, 4.0), 0.01, 0.01, weights, 50, **CHANNEL.declared)
    one = np.ones(clients)
    return deployment, Message(50, 1.0, one, 2 * one, one, "client", "replace")


def planned(name, config, rounds=60):
    deployment, message = site()
    trace = draw(CHANNEL, 12, rounds, 3)
    policy = systems.make(name, config, deployment, message, Context(rounds, 50.0, trace=trace))
    _, plan, _ = plan_ahead(policy, policy.init(0), trace)
    return plan, trace, deployment, message


@pytest.mark.parametrize("name", ["constant", "weakest", "adascale", "biasvar", "cdpb"])
def test_weak_devices_stay_silent_and_the_charge_holds(name):
    config = systems.scheme(name).config
    needed = {"constant": {"rx_scale": 0.5}, "adascale": {"nu": 1.0}}
    plan, trace, deployment, message = planned(name, config(**needed.get(name, {})))
    weak = np.abs(trace.estimate) < 0.5 * trace.rms_estimate
    assert np.any(weak) and np.all(plan.tx[weak] == 0) and np.all(plan.max_norm[weak] == -1)
    assert np.all(np.isfinite(plan.tx)) and np.any(plan.tx[~weak] != 0)
    released = events(plan, trace, deployment, message)
    check_realised(released, plan, trace)
    assert np.all(released.amp[weak] == 0)
    np.testing.assert_allclose(released.amp, np.abs(trace.estimate * plan.tx) * (1 + deployment.gain_error))
    assert np.all(np.asarray(plan.send_prob) <= math.exp(-0.25) + 1e-12)


def test_an_unbounded_phase_is_charged_as_the_gain_error_allows():
    deployment, _ = site()
    assert deployment.phase_error is None
    assert declared_phase_error(deployment) == pytest.approx(math.asin(CHANNEL.gain_error))


def test_a_scheme_without_estimates_refuses():
    from otafl.core.plan import Policy
    from otafl.systems.silence import make_for

    deployment, message = site()
    blind = Policy("blind", lambda key: (), lambda state, obs: None, "open", "none", "open")
    with pytest.raises(InputError, match="blind: csi='none' has no estimate that could be old"):
        make_for(lambda *_: blind, None, deployment, message, Context())
