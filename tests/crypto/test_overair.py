"""The four-phase protocol: exact where it must be, within its budget where it is noisy, refused where it failed."""

import dataclasses
from functools import partial

import jax
import numpy as np
import pytest

from otafl.core.errors import InputError
from otafl.crypto import budget, modes, overair, randomness, realchannel, round_sum, scaling, xmkckks
from otafl.crypto import ring as rings
from otafl.crypto.parameters import Parameters

fused_round = partial(jax.jit, static_argnums=0)(round_sum.fused_round)


def draw_channel(rng, count=4, f=16, sigma=1.0):
    return scaling.quantise_channel(rng.normal(1.0, sigma, count), f).h


def replay_randomness(p, seed, count, c1):
    """Draw again what the clients of `make_clients(p, seed)` drew, and derive their share noise for `c1`."""
    agreed = xmkckks.setup(p, randomness.insecure_test_rng(seed))
    secrets, errors, draws, flood = [], [], [], []
    for i in range(count):
        source = randomness.insecure_test_rng(1000 * seed + 1 + i)
        secrets.append(xmkckks.secret_polynomial(p, source))
        errors.append(randomness.gaussian(source, p.sigma_e, (p.ring.n,)))
        key = xmkckks.SecretKey(secrets[-1], source.bytes(32).tobytes(), True)
        draws.append(xmkckks.ephemeral(p, source, 1))
        flood.append(key.share_noise(c1))
    draw = xmkckks.Ephemeral(*(np.concatenate(part) for part in zip(*draws)))
    return agreed, np.stack(secrets), np.stack(errors), draw, randomness.flooding(flood, p.ring, p.sigma_phi)


@pytest.mark.parametrize("mode", ["fixed-point", "hybrid", "digital", "split blocks"])
def test_fused_equals_per_device_bit_for_bit(params, make_clients, rng, mode):
    h, x = draw_channel(rng), rng.normal(size=(4, 1))
    ring_mode = "fixed-point" if mode == "split blocks" else mode
    key_h = draw_channel(rng) if mode == "split blocks" else None
    air = modes.grid_air(ring_mode, params, h, rng, key_h=key_h)
    clients = make_clients(params, seed=3)
    seen = overair.play(clients, x, air, ring_mode)
    agreed, s, _, draw, e_star = replay_randomness(params, 3, 4, seen.c1)
    messages = scaling.pack(params, x, budget.message_bits(params, ring_mode))
    keys = round_sum.Keys(agreed.a_hat, np.stack([client.public.b for client in clients]), s)
    draws = round_sum.Draws(*draw, e_star, *(air.noise[phase] for phase in modes.PHASES))
    with jax.enable_x64(True):
        total = round_sum.weighted(params.ring, air.weights["c0"], messages)
        fast = fused_round(params.ring, keys, draws, total, air.weights["c0"], air.weights["key"])
    assert np.array_equal(fast, seen.received)


def test_honest_round_equals_the_closed_expression_over_the_integers(params, make_clients, rng):
    """EEZOFL 3.5: M^ = sum H m + V^ E^ + S^ (sum H e1 + W1) + sum H e0 + W0 + sum H e* + WD, no reduction anywhere."""
    h, x = draw_channel(rng), rng.normal(size=(4, 1))
    air = modes.grid_air("fixed-point", params, h, rng)
    seen = overair.play(make_clients(params, seed=4), x, air)
    _, s, e, draw, e_star = replay_randomness(params, 4, 4, seen.c1)
    weights = np.array([round(v * 2**16) for v in h.tolist()], dtype=object)
    W = {phase: np.array(rings.integers(params.ring, air.noise[phase]), dtype=object) for phase in modes.PHASES}

    def heard(polynomials):
        return weights @ polynomials.astype(object)

    def times(a, b):
        return np.array(realchannel.integer_product(a.tolist(), b.tolist()), dtype=object)

    m = np.zeros((4, 64), dtype=object)
    m[:, 0] = [round(v * 2**76) for v in x[:, 0].tolist()]
    m[:, 32] = [round(v * 2**66) for v in x[:, 0].tolist()]
    flood = np.array(rings.integers(params.ring, e_star), dtype=object)
    expected = (
        heard(m)
        + times(heard(draw.v), heard(e) + W["key"])
        + times(heard(s), heard(draw.e1) + W["c1"])
        + heard(draw.e0)
        + W["c0"]
        + heard(flood)
        + W["share"]
    )
    assert rings.integers(params.ring, seen.received) == expected.tolist()


@pytest.mark.parametrize("mode", ["fixed-point", "digital", "hybrid"])
def test_sound_modes_recover_the_sum_within_the_predicted_error(params, channel, make_clients, rng, mode):
    p = dataclasses.replace(params, sigma_phi=budget.smudging_sigma(params, channel, 40, mode))
    clients = make_clients(p)
    for k in range(6):
        h, x = draw_channel(rng), rng.normal(size=(4, 1))
        result = overair.run_round(clients, x, h, channel, rng, mode, round=k)
        gains = np.ones(4) if mode == "digital" else h
        std = float(np.sqrt(budget.variance_given(p, (h**2).sum(), 4, mode)))
        assert abs(result.values[0] - gains @ x[:, 0]) < 6 * std
        assert result.insecure_test_rng


@pytest.mark.parametrize(
    ("chosen", "f", "scale"),
    [(rings.RING_4096, 16, 60), pytest.param(rings.RING_8192, 60, 60, marks=pytest.mark.slow)],
)
def test_full_size_rounds_decode_within_the_budget(chosen, f, scale, make_clients, rng):
    channel = budget.fading(np.ones(2), 2 * np.ones(2))
    p = Parameters(chosen, f=f, scale_bits=scale)
    p = dataclasses.replace(p, sigma_phi=budget.smudging_sigma(p, channel, 40))
    h, x = draw_channel(rng, 2, f), rng.normal(size=(2, 1))
    air = modes.grid_air("fixed-point", p, h, rng)
    seen = overair.play(make_clients(p, count=2), x, air)
    decoded = scaling.decode(p, seen.received, budget.decode_bits(p))
    std = float(budget.analytic_noise_std(h, p))
    assert abs(decoded.values[0] - h @ x[:, 0]) < 6 * std
    assert decoded.empty_rms == pytest.approx(std, rel=0.15)  # thousands of coefficients, one set of keys


def test_large_ring_decodes_within_the_budget_in_the_fused_form(rng):
    """n=8192, f=60: gains beyond 64 bits. One compilation, so that it stays among the fast tests."""
    ring, N, source = rings.RING_8192, 2, randomness.insecure_test_rng(8)
    channel = budget.fading(np.ones(N), 2 * np.ones(N))
    p = Parameters(ring, f=60, scale_bits=60)
    p = dataclasses.replace(p, sigma_phi=budget.smudging_sigma(p, channel, 40))
    h, x = draw_channel(rng, N, 60, sigma=10.0), rng.normal(size=(N, 1))
    weights = scaling.grid_weights(ring, h, p.f)
    s, e = xmkckks.secret_polynomial(p, source, (N,)), randomness.gaussian(source, p.sigma_e, (N, ring.n))
    draw = xmkckks.ephemeral(p, source, N)
    e_star = randomness.flooding([source] * N, ring, p.sigma_phi)
    noise = [modes.receiver_noise(p, rng) for _ in modes.PHASES]
    a_hat = randomness.uniform(source, ring)  # uniform in either domain

    @jax.jit
    def play(weights, messages, draws):
        keys = round_sum.Keys(a_hat, xmkckks.public_keys(ring, a_hat, s, e), s)
        return round_sum.fused_round(ring, keys, draws, round_sum.weighted(ring, weights, messages), weights)

    messages = scaling.pack(p, x, budget.message_bits(p))
    with jax.enable_x64(True):
        received = np.asarray(play(weights, messages, round_sum.Draws(*draw, e_star, *noise)))
    decoded = scaling.decode(p, received, budget.decode_bits(p))
    std = float(budget.analytic_noise_std(h, p))
    assert abs(decoded.values[0] - h @ x[:, 0]) < 6 * std
    assert decoded.empty_rms == pytest.approx(std, rel=0.15)


def test_measured_noise_has_the_predicted_variance_given_the_channel(params, rng):
    """400 rounds with fresh keys each; a round counts as one sample. Within 4 standard errors of 1."""
    rounds, N, n, ring = 400, 4, 64, params.ring
    source = randomness.insecure_test_rng(11)
    p = dataclasses.replace(params, sigma_phi=2.0**23)  # share noise comparable to the rest: both are tested
    h = scaling.quantise_channel(rng.normal(1, 1, (rounds, N)), p.f).h
    s = xmkckks.secret_polynomial(p, source, (rounds, N))
    e = randomness.gaussian(source, p.sigma_e, (rounds, N, n))
    draw = xmkckks.ephemeral(p, source, rounds * N)
    v, e0, e1 = (part.reshape(rounds, N, n) for part in draw)
    e_star = randomness.flooding([source] * (rounds * N), ring, p.sigma_phi).reshape(rounds, N, ring.limbs, n)
    weights = scaling.scaled_residues(ring, h[..., None], p.f)
    noise = scaling.scaled_residues(ring, rng.normal(0, p.sigma_w, (4, rounds, n)), p.f)
    a_hat = xmkckks.to_ntt(ring, randomness.uniform(source, ring))

    @jax.jit
    def many(s, e, weights, draws):
        def one(s, e, weights, draws):
            keys = round_sum.Keys(a_hat, xmkckks.public_keys(ring, a_hat, s, e), s)
            received = round_sum.fused_round(ring, keys, draws, jax.numpy.zeros((ring.limbs, n), "uint32"), weights)
            return rings.centred_float(ring, received, budget.decode_bits(p))

        return jax.lax.map(lambda row: one(*row), (s, e, weights, draws), batch_size=50)

    with jax.enable_x64(True):
        error = np.asarray(many(s, e, weights, round_sum.Draws(v, e0, e1, e_star, *noise)))
    ratio = (error**2).mean(1) / budget.analytic_noise_std(h, p) ** 2
    assert abs(ratio.mean() - 1) < 4 * ratio.std() / np.sqrt(rounds)
    quadratic = float(np.mean(budget.variance_given(dataclasses.replace(p, sigma_phi=1.0), (h**2).sum(1), N)))
    assert 0.05 < quadratic / float(np.mean(budget.analytic_noise_std(h, p) ** 2)) < 0.95  # neither part is idle


def test_equalisers_decode_with_a_perfect_pilot(params, make_clients, rng):
    """The control of the control: without pilot error the protocol works, so its failure is the pilot's."""
    x = rng.normal(size=(4, 1))
    air = modes.grid_air("zf", params, draw_channel(rng), rng, pilot_error=0.0)
    seen = overair.play(make_clients(params), x, air, "zf")
    assert scaling.decode(params, seen.received, budget.decode_bits(params)).values[0] == pytest.approx(
        x.sum(), abs=0.05
    )


def test_literal_mode_fails_and_the_same_code_with_integer_gains_does_not(params, make_clients, rng):
    p = dataclasses.replace(params, scale_bits=76, sigma_phi=3.2, guard=False)
    x = rng.normal(size=(4, 1))
    bad, good = rng.normal(1, 1, 4), np.array([1.0, 2.0, -3.0, 1.0])
    for h, works in ((bad, False), (good, True)):
        seen = overair.play(make_clients(p), x, realchannel.LiteralAir(p, h, rng), "literal")
        decoded = scaling.decode(p, seen.received, budget.decode_bits(p, "literal"))
        assert (abs(decoded.values[0] - h @ x[:, 0]) < 1e-3) == works
        assert (decoded.empty_rms < 1e-3) == works


def test_lifted_mode_is_exact_for_real_gains_and_warns(params, rng):
    h, x = rng.normal(1, 1, 4), rng.normal(size=(4, 1))
    p = dataclasses.replace(params, sigma_phi=3.2, scale_bits=40)
    with pytest.warns(modes.InsecureModeWarning, match="no secrecy"):
        done = realchannel.lifted_round(p, x, h, rng, randomness.insecure_test_rng(5))
    assert done.values[0] == pytest.approx(h @ x[:, 0], abs=1e-7)


def test_packed_scalars_all_come_out(params, channel, make_clients, rng):
    p = dataclasses.replace(params, P=16)
    h, x = draw_channel(rng), rng.normal(size=(4, 16))
    result = overair.run_round(make_clients(p), x, h, channel, rng)
    np.testing.assert_allclose(result.values, h @ x, atol=6 * float(budget.analytic_noise_std(h, p)))


def test_short_shares_decode_to_the_same_value_from_fewer_coefficients(params, channel, make_clients, rng):
    h, x = draw_channel(rng), rng.normal(size=(4, 1))
    short = dataclasses.replace(params, short_shares=True)
    whole = overair.run_round(make_clients(params), x, h, channel, np.random.default_rng(1))
    brief = overair.run_round(make_clients(short), x, h, channel, np.random.default_rng(1))
    air = modes.grid_air("fixed-point", short, h, rng)
    seen = overair.play(make_clients(short), x, air)
    assert brief.values[0] == whole.values[0]
    assert seen.c0.shape[1] == seen.share.shape[1] == 2 + 16 < 64


def test_a_wrapped_message_is_seen_only_by_its_second_copy(params, channel, make_clients, rng):
    """Only coefficient 0 wraps; the empty ones stay small. The guard copy, 2^10 times lower, does not wrap."""
    huge = dataclasses.replace(params, Mmax=2.0**40)
    x = np.full((4, 1), 2.0**22)
    h = np.ones(4)
    std = float(np.sqrt(budget.average_variance(params, channel)))

    def outcome(p):
        seen = overair.play(make_clients(p), x, modes.grid_air("fixed-point", p, h, rng))
        return overair.release(p, seen.received, std, budget.decode_bits(p), True)

    missed = outcome(dataclasses.replace(huge, guard=False))
    assert abs(missed.values[0] - x.sum()) > 1e3
    with pytest.raises(overair.RoundFailed, match="second copy"):
        outcome(huge)
    with pytest.raises(InputError, match=r"headroom=.* largest f .* largest Lambda"):
        overair.run_round(make_clients(huge), x, h, channel, rng)


def test_encoding_fused_rounds_and_decoding_run_under_scan(params, rng):
    """A training loop inside one compiled program: float32 scalars in, decoded sums out, the ring in between."""
    rounds, N, ring, source = 3, 4, params.ring, randomness.insecure_test_rng(6)
    p = dataclasses.replace(params, P=2)
    s, e = xmkckks.secret_polynomial(p, source, (N,)), randomness.gaussian(source, p.sigma_e, (N, ring.n))
    a_hat = randomness.uniform(source, ring)
    h = scaling.quantise_channel(rng.normal(1, 1, (rounds, N)), p.f).h
    x = rng.normal(size=(rounds, N, 2)).astype(np.float32)
    draws = [
        round_sum.Draws(
            *xmkckks.ephemeral(p, source, N),
            randomness.flooding([source] * N, ring, p.sigma_phi),
            *(modes.receiver_noise(p, rng) for _ in modes.PHASES),
        )
        for _ in range(rounds)
    ]
    rows = (
        x,
        np.stack([scaling.grid_weights(ring, row, p.f) for row in h]),
        jax.tree.map(lambda *r: np.stack(r), *draws),
    )

    @jax.jit
    def run(rows):
        keys = round_sum.Keys(a_hat, xmkckks.public_keys(ring, a_hat, s, e), s)

        def step(carry, row):
            values, weights, draw = row
            total = round_sum.weighted(ring, weights, scaling.pack(p, values, budget.message_bits(p)))
            received = round_sum.fused_round(ring, keys, draw, total, weights)
            return carry, scaling.decode(p, received, budget.decode_bits(p))

        return jax.lax.scan(step, 0, rows)[1]

    with jax.enable_x64(True):
        decoded = run(rows)
    expected = np.einsum("tk,tkp->tp", h, x.astype(np.float64))
    limit = 6 * np.asarray(budget.analytic_noise_std(h, p))[:, None]
    assert np.all(np.abs(np.asarray(decoded.values) - expected) < limit)
    assert np.all(np.abs(np.asarray(decoded.guards) - expected) < 1024 * limit)


@pytest.mark.parametrize("sigma", [1.0, 10.0])
def test_no_honest_round_is_refused(params, make_clients, rng, sigma):
    channel = budget.fading(np.ones(4), (1 + sigma**2) * np.ones(4))
    p = dataclasses.replace(params, sigma_phi=budget.smudging_sigma(params, channel, 30))
    clients = make_clients(p)
    ratios = []
    for k in range(40):
        result = overair.run_round(
            clients, rng.normal(size=(4, 1)), draw_channel(rng, sigma=sigma), channel, rng, round=k
        )
        ratios.append(result.empty_rms / result.expected_rms)
    assert max(ratios) < budget.FAIL_SIGMAS / 2


def test_real_gains_are_never_rounded_silently(params, channel, make_clients, rng):
    with pytest.raises(InputError, match="quantise_channel"):
        overair.run_round(make_clients(params), rng.normal(size=(4, 1)), rng.normal(size=4), channel, rng)
    quantised = scaling.quantise_channel(rng.normal(size=10_000), 16)
    assert quantised.rms_change == pytest.approx(2.0**-16 / np.sqrt(12), rel=0.05)


@pytest.mark.parametrize(
    ("values", "words"), [(np.full((4, 1), np.nan), "finite"), (np.full((4, 1), 2000.0), "values"), (None, "zero")]
)
def test_bad_values_are_refused(params, channel, make_clients, rng, values, words):
    h = np.zeros(4) if values is None else np.ones(4)
    with pytest.raises(InputError, match=words):
        overair.run_round(make_clients(params), np.ones((4, 1)) if values is None else values, h, channel, rng)


def test_one_device_alone_is_warned_about(params, make_clients, rng):
    with pytest.warns(UserWarning, match="single device"):
        clients = make_clients(params, count=1)
    with pytest.warns(UserWarning, match="single device"):
        overair.run_round(clients, np.ones((1, 1)), np.ones(1), budget.fading([1.0], [2.0]), rng)


@pytest.mark.parametrize(("rms", "fails"), [(31.9, False), (32.1, True)])
def test_empty_coefficients_may_be_32_times_as_loud_as_expected(params, rms, fails):
    whole = np.zeros(params.ring.n, dtype=object)
    whole[params.layout.empty] = np.resize([1, -1], params.layout.empty.size) * round(rms * 2**20)
    received = rings.residues(params.ring, whole.tolist())[:, params.layout.kept]
    if fails:
        with pytest.raises(overair.RoundFailed, match="empty coefficients"):
            overair.release(params, received, 1.0, 20, True)
    else:
        assert overair.release(params, received, 1.0, 20, True).empty_rms == pytest.approx(rms, rel=1e-6)


def test_gains_that_vanish_modulo_one_prime_are_refused():
    ring = rings.toy_ring(8, limbs=2)
    assert scaling.grid_weights(ring, np.array([float(ring.primes[0]), 1.0]), 0).shape == (2, 2, 1)
    with pytest.raises(InputError, match="zero modulo a prime"):
        scaling.grid_weights(ring, np.array([float(ring.primes[0]), 0.0]), 0)
