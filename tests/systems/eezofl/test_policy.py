"""EEZOFL's policy: what it plans, what the ledger makes of it, what it refuses."""

import numpy as np
import pytest

from otafl import systems
from otafl.channels import PUBLISHED, draw
from otafl.core import uplink
from otafl.core.errors import InputError
from otafl.core.plan import Context, Deployment, Message
from otafl.core.rounds import plan_ahead
from otafl.crypto.scaling import quantise_channel
from otafl.privacy import events, noise_multiplier
from otafl.systems.eezofl.policy import Config, job_of

N, ROUNDS = 10, 400
SITE = Deployment(np.full(N, 1e4), 1.0, 1.0, np.full(N, 1 / N), 1)
MESSAGE = Message(1, 10.0, np.full(N, 100.0), np.full(N, 20.0), np.ones(N), "client", "replace")
TOY = {"n": 64, "allow_insecure": True}


def made(message=MESSAGE, **options):
    policy = systems.make("eezofl", Config(**options), SITE, message, Context(rounds=ROUNDS, seed=1))
    trace, site = uplink.uplink_of(policy).site(draw(PUBLISHED["eezofl"], N, ROUNDS, 1), SITE)
    return policy, trace, site


@pytest.mark.parametrize("mode", ["plain", "analytic", "fixed-point"])
def test_the_sum_over_devices_is_unbiased_and_nothing_is_inverted(mode):
    """Weights h/mu: mean 1 within 5 standard errors, and as spread as the channel (the sum, not the mean)."""
    policy, trace, site = made(mode=mode, **TOY)
    plan = plan_ahead(policy, (), trace)[1]
    link = uplink.uplink_of(policy).lower(plan, trace.gain, site)
    np.testing.assert_allclose(link.weight, trace.gain.real)
    assert abs(np.mean(link.weight) - 1) < 5 / np.sqrt(link.weight.size)
    assert np.std(link.weight) == pytest.approx(1, rel=0.05)
    assert np.all(np.isinf(plan.max_norm)) and np.all(plan.live)


def test_mean_gains_are_divided_out():
    mu = tuple(np.linspace(0.5, 2, N))
    policy = systems.make("eezofl", Config(mode="plain", mu=mu, sigma=0.0), SITE, MESSAGE, Context())
    trace = draw(PUBLISHED["eezofl"], N, 3, 1)
    steady = trace._replace(gain=np.ones((3, N)) * mu + 0j, rms_estimate=np.ones((3, N)) * mu)
    plan = plan_ahead(policy, (), steady)[1]
    np.testing.assert_allclose(uplink.lower(plan, steady.gain, SITE).weight, 1)


def test_plain_mode_charges_the_receivers_noise():
    policy, trace, site = made(mode="plain", sigma_n=2.0)
    released = events(plan_ahead(policy, (), trace)[1], trace, site, MESSAGE)
    np.testing.assert_allclose(noise_multiplier(released), 2.0 / (np.abs(trace.gain) * 20.0))


def test_a_receiver_noise_of_the_schemes_own_is_trusted_in_the_sites_share():
    partly = SITE._replace(noise_var=8.0, trusted_noise_var=2.0)
    policy = systems.make("eezofl", Config(mode="plain", sigma_n=2.0), partly, MESSAGE, Context())
    trace = draw(PUBLISHED["eezofl"], N, 3, 1)
    _, site = uplink.uplink_of(policy).site(trace, partly)
    assert (site.noise_var, site.trusted_noise_var) == (4.0, 1.0)
    with pytest.raises(InputError, match="needs a radio with noise"):  # which would say how much of it is trusted
        uplink.uplink_of(policy).site(trace, SITE._replace(noise_var=0.0, trusted_noise_var=0.0))


def test_encryption_alone_is_no_privacy_noise():
    policy, trace, site = made(mode="analytic")
    released = events(plan_ahead(policy, (), trace)[1], trace, site, MESSAGE)
    assert np.all(noise_multiplier(released) == 0)
    assert any("not differential privacy" in line for line in policy.uplink.remarks)


def test_noise_inside_the_encryption_is_charged_client_by_client():
    policy, trace, site = made(mode="fixed-point", dp_noise=3.0, **TOY)
    released = events(plan_ahead(policy, (), trace)[1], trace, site, MESSAGE)
    total = np.sqrt(np.sum((3.0 * trace.gain.real) ** 2, -1, keepdims=True))
    np.testing.assert_allclose(noise_multiplier(released), total / (np.abs(trace.gain) * 20.0))
    assert any("what protects whom" in line for line in policy.uplink.remarks)


@pytest.mark.parametrize(("mode", "f"), [("fixed-point", 16), ("digital", 16), ("hybrid", 4)])
def test_noise_that_the_grid_would_take_apart_is_refused(mode, f):
    made(mode=mode, dp_noise=3.0, scale_bits=32, f=f, **TOY)
    with pytest.raises(InputError, match=r"dp_noise=3 must be 0 or at least .* raise scale_bits"):
        made(mode=mode, dp_noise=3.0, scale_bits=0, f=f, **TOY)


def test_less_noise_than_hides_a_client_on_the_grid_is_refused():
    asked = {"mode": "fixed-point", "scale_bits": 32, **TOY}
    least = job_of(Config(**asked), N, MESSAGE, 0).least_noise
    made(dp_noise=least, **asked)
    with pytest.raises(InputError, match="raise scale_bits"):
        made(dp_noise=0.99 * least, **asked)


@pytest.mark.parametrize("mu", [1.0, (2.0, *[1.0] * (N - 1))])
def test_a_grid_that_may_lengthen_messages_beyond_their_charge_is_refused(mu):
    """0.26 in steps of 0.5 is sent as 0.5, whatever the noise is."""
    message = MESSAGE._replace(bound=0.26 * np.max(mu))
    asked = {"mode": "digital", "dp_noise": 1e5, "mu": mu, **TOY}
    for scale_bits in (1, 17):
        with pytest.raises(InputError, match=rf"scale_bits={scale_bits} must be larger: .* of norm 0.26 may become"):
            systems.make("eezofl", Config(scale_bits=scale_bits, **asked), SITE, message, Context())
    systems.make("eezofl", Config(scale_bits=20, **asked), SITE, message, Context())


def test_gains_are_put_on_the_grid_and_the_card_says_so():
    policy, trace, _ = made(mode="fixed-point", f=8, **TOY)
    drawn = draw(PUBLISHED["eezofl"], N, ROUNDS, 1).gain.real
    np.testing.assert_array_equal(trace.gain.real, quantise_channel(drawn, 8).h)
    assert any("2^-8" in line for line in policy.uplink.remarks)


def test_published_share_noise_is_labelled():
    remarks = made(mode="analytic", scale_bits=40, sigma_phi=3.2)[0].uplink.remarks
    assert any("nothing is flooded" in line for line in remarks)


@pytest.mark.parametrize(("options", "message"), [
    ({"mu": 0.0}, "mu=0"),
    ({"sigma": -1.0}, "sigma"),
    ({"mode": "analytic", "Mmax": 5.0}, "clip_norm"),
    ({"mode": "analytic", "n": 64}, "security"),
    ({"mode": "analytic", "smudging_bits": None}, "hand out the keys"),
    ({"mode": "analytic", "scale_bits": 80}, "headroom"),
    ({"mode": "plain", "sigma_n": -1.0}, "sigma_n"),
    ({"mu": (1.0, 1.0)}, "mu"),
    ({"mode": "plain", "dp_noise": -1.0}, "dp_noise"),
    ({"mode": "single-key", "dp_noise": 1.0}, "single scalars are open"),
    ({"mode": "lifted", "dp_noise": 1.0}, "single scalars are open"),
    ({"mode": "plain", "message": MESSAGE._replace(bound=np.inf)}, "norm bound"),
    ({"mode": "analytic", "mu": tuple(np.linspace(-0.5, -2, N)), "Mmax": 19.9}, "clip_norm / mu = 20"),
])  # fmt: skip
def test_refusals(options, message):
    with pytest.raises(InputError, match=message):
        made(**options)


def test_statistics_that_do_not_fit_the_channel_are_refused():
    """By more than 5 %."""
    for off in (0.96, 1.04):
        policy, trace, _ = made(mode="analytic", sigma=np.sqrt(2 * off**2 - 1), scale_bits=50)
        plan_ahead(policy, (), trace)
    for off in (0.94, 1.06, 7.0):
        policy, trace, _ = made(mode="analytic", sigma=np.sqrt(2 * off**2 - 1), scale_bits=50)
        with pytest.raises(InputError, match="must agree"):
            plan_ahead(policy, (), trace)


def test_the_noise_budget_is_told_the_mean_and_the_mean_square_of_the_gains():
    fading = job_of(Config(mu=0.5, sigma=2.0, scale_bits=40, **TOY), N, MESSAGE, 0).fading
    np.testing.assert_array_equal(fading.mu, np.full(N, 0.5))
    np.testing.assert_array_equal(fading.Omega, np.full(N, 4.25))


def test_digital_links_without_a_ring_have_the_rings_sum_and_its_noise():
    """Weights 1 on a complex channel, clients' noise as charged, and the tiny decoding error of a digital ring."""
    from otafl.core.plan import Context, Message
    from otafl.core.rounds import plan_ahead
    from otafl.core.uplink import uplink_of
    from otafl.systems.eezofl.policy import Config, eezofl, job_of
    from small import deployment, trace

    message = Message(8, 1.0, np.ones(4), np.full(4, 2.0), np.ones(4), "client", "replace")
    policy = eezofl(Config(mode="digital-analytic", dp_noise=0.3), deployment(), message, Context(rounds=5))
    uplink = uplink_of(policy)
    met, site = uplink.site(trace(5), deployment())
    _, plan, _ = plan_ahead(policy, policy.init(None), met)
    link = uplink.lower(plan, met.gain, site)
    np.testing.assert_allclose(link.weight, 1.0)
    ring = job_of(Config(mode="digital", dp_noise=0.3), 4, message, 0)  # the same job with its ring
    np.testing.assert_allclose(link.noise_std**2 - 4 * 0.3**2, ring.expected_rms**2, rtol=1e-6)
    assert uplink.name == "digital-analytic"
