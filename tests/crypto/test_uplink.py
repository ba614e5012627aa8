"""Encrypted uplinks inside the training round: exact, agreeing with their budget, and caught when they fail."""

import dataclasses
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import small
from otafl.clients import ZeroOrder, zero_order
from otafl.core.engine import make_engine
from otafl.core.errors import InputError
from otafl.core.plan import Plan, Trace
from otafl.core.rounds import Row, make_round, stack
from otafl.core.uplink import ANALOG, to_float32
from otafl.crypto import budget, round_sum, scaling, simulation, uplink, xmkckks
from otafl.crypto import ring as rings
from otafl.crypto.parameters import Parameters
from otafl.crypto.ring import toy_ring
from otafl.crypto.uplink import Job

N, P, ETA = small.CLIENTS, 2, 0.05
FADING = budget.fading(np.ones(N), 2 * np.ones(N))
COARSE = Parameters(toy_ring(64), f=16, scale_bits=20, sigma_phi=3.2, P=P, allow_insecure=True)  # noise one can see


def real_trace(rounds, seed=0, std=1.0):
    rng = np.random.default_rng(seed)
    gain = (1 + std * rng.standard_normal((rounds, N))) + 0j
    rms = np.full((rounds, N), np.hypot(1, std))
    return Trace(gain, gain, rms, rms, rms, rms, rng.random((rounds, N)))


def flat_plan(rounds, noise=0.0):
    one = np.ones((rounds, N))
    return Plan(one + 0j, noise * one + 0j, np.inf * one, np.ones(rounds), one, np.ones(rounds, bool))


def links(link_up, trace, noise=0.0):
    trace, site = link_up.site(trace, small.deployment(noise_std=0.0))
    return to_float32(link_up.lower(flat_plan(len(trace.gain), noise), trace.gain, site)), trace


@cache
def engine_of(combine, decode, add, client_map):
    """Compiled once for every uplink that differs only in what it does on the host."""
    clients, optimizer = zero_order(ZeroOrder(batch=16, directions=P), small.model()), optax.sgd(ETA)
    link_up = ANALOG._replace(combine=combine, decode=decode, add=add)
    round_ = make_round(clients, optimizer, client_map, uplink=link_up)
    return make_engine(small.model().init, lambda p, held: jnp.zeros(()), round_, optimizer)


def train(link_up, trace, client_map="vmap", noise=0.0):
    """Zero-order training of the small model; returns (flat params, record)."""
    batch, engine = small.seeds([3]), engine_of(link_up.combine, link_up.decode, link_up.add, client_map)
    rows = Row(stack([links(link_up, trace, noise)[0]]), (), np.ones((1, len(trace.gain)), bool))
    carry, record, _ = engine.chunk(small.data(), (), (), batch, engine.init(batch.key, jnp.zeros((1, 0))), rows)
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(carry.params)]), record


ROUNDS = 8  # of every training here: one shape, one compilation


@pytest.fixture(scope="module")
def coarse():
    return uplink.make(Job(COARSE, FADING))


@pytest.fixture(scope="module")
def plain():
    """Training on the same stream and the same grid channel without any noise."""
    trace = real_trace(ROUNDS)
    on_grid = trace._replace(gain=scaling.quantise_channel(trace.gain.real, 16).h + 0j)
    return trace, train(ANALOG, on_grid)[0]


def test_true_ring_in_training_differs_from_plain_by_the_predicted_noise(plain, coarse):
    """Coordinates move by eta * noise * direction, directions are +-1: rms eta sqrt(sum tau^2 / P) before feedback."""
    trace, reference = plain
    theta, record = train(coarse, trace)
    tau = np.asarray(budget.analytic_noise_std(trace.gain.real, COARSE))
    predicted = ETA * np.sqrt(np.sum(tau**2) / P)
    rms = np.sqrt(np.mean((theta - reference) ** 2))
    assert not np.any(record.refused)
    assert 0.3 * predicted < rms < 3 * predicted and predicted > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["fixed-point", "hybrid"])
def test_with_a_fine_scale_the_ring_leaves_only_float32_rounding(plain, mode):
    trace, reference = plain
    job = Job(dataclasses.replace(COARSE, scale_bits=44 if mode == "fixed-point" else 60), FADING, mode)
    theta, record = train(uplink.make(job), trace)
    assert not np.any(record.refused)
    np.testing.assert_allclose(theta, reference, atol=1e-6)


@pytest.mark.slow
def test_digital_links_add_without_fading():
    trace = real_trace(ROUNDS)
    theta, _ = train(uplink.make(Job(dataclasses.replace(COARSE, scale_bits=60), FADING, "digital")), trace)
    steady = trace._replace(gain=np.ones_like(trace.gain), estimate=np.ones_like(trace.gain))
    np.testing.assert_allclose(theta, train(ANALOG, steady)[0], atol=1e-6)


def test_chunks_of_clients_add_up_exactly(coarse):
    made = coarse
    link, _ = links(made, real_trace(1))
    link = jax.tree.map(lambda leaf: leaf[0], link)
    x = np.random.default_rng(1).normal(size=(N, P)).astype(np.float32)
    sent, factor = np.array([True, False, True, True]), np.array([1, 1, 0.5, 1], np.float32)
    with jax.enable_x64(True):
        link, sent, factor, x = jax.tree.map(jnp.asarray, (link, sent, factor, x))

        def part(*ids):
            ids = jnp.array(ids)
            return made.combine(link, ids, sent[ids], factor[ids], x[ids])

        whole, pieces = jax.jit(lambda: (part(0, 1, 2, 3), made.add(made.add(part(2), part(0, 3)), part(1))))()
        heard = jax.jit(lambda: part(0, 2, 3))()
    np.testing.assert_array_equal(whole, pieces)
    np.testing.assert_array_equal(whole, heard)  # who is silent adds nothing


@pytest.mark.slow
def test_client_mapping_does_not_matter(plain):
    trace, reference = plain
    job = Job(dataclasses.replace(COARSE, scale_bits=44), FADING)
    np.testing.assert_allclose(train(uplink.make(job), trace, client_map=3)[0], reference, atol=1e-6)


@partial(jax.jit, static_argnums=0)
def phase_by_phase(ring, keys, draw, extra, m):
    """The protocol with every ciphertext and every share formed on its own: M^ residues (L, n)."""
    key = rings.add(ring, round_sum.weighted(ring, extra.key_weights, keys.b), draw.w_key)
    c0, c1 = xmkckks.encrypt(ring, keys.a_hat, rings.transform(ring, key), draw.v, draw.e0, draw.e1, m)
    C0 = rings.add(ring, round_sum.weighted(ring, extra.weights, c0), draw.w_c0)
    C1 = rings.add(ring, round_sum.weighted(ring, extra.weights, c1), draw.w_c1)
    D = round_sum.weighted(ring, extra.share_weights, xmkckks.shares(ring, C1, keys.s, draw.e_star))
    return rings.add(ring, C0, rings.add(ring, D, draw.w_share))


SLOW_MODES = [pytest.param(mode, marks=pytest.mark.slow) for mode in ("hybrid", "digital", "naive-reuse", "mmse", "zf")]


@pytest.mark.parametrize("mode", ["fixed-point", *SLOW_MODES])
def test_decoding_is_the_four_phases_device_by_device(mode):
    """Same keys, same draws, every ciphertext and every share formed on its own: the same scalars to the last bit."""
    p = dataclasses.replace(COARSE, scale_bits=40)
    job = Job(p, FADING, mode, seed=5, discard=False)
    made, keys, ring = uplink.make(job), uplink.simulation_keys(job), p.ring
    link, _ = links(made, real_trace(1, seed=2))
    link = jax.tree.map(lambda leaf: leaf[0], link)
    x = np.random.default_rng(3).normal(size=(N, P))
    silent = {"digital": {"key", "c0", "c1", "share"}, "hybrid": {"key", "share"}, "zf": {"key"}, "mmse": {"key"}}
    noisy = tuple(phase for phase in ("key", "c0", "c1", "share") if phase not in silent.get(mode, ()))
    with jax.enable_x64(True):
        everybody, seed = (np.arange(N), np.ones(N, bool), np.ones(N, np.float32)), jax.random.key(9)

        @jax.jit
        def heard(x, link, seed):
            return made.decode(made.combine(link, *everybody, x), link, seed)

        @jax.jit
        def alone(x, link, seed):
            draw = simulation.draws(p, N, noisy, jax.random.split(seed)[0])
            m = scaling.pack(p, x * link.extra.prescale[:, None], budget.message_bits(p, mode))
            return scaling.decode(p, phase_by_phase(ring, keys, draw, link.extra, m), budget.decode_bits(p, mode))

        (values, refused), opened = heard(x, link, seed), alone(x, link, seed)
    np.testing.assert_array_equal(np.asarray(values), np.asarray(opened.values, np.float32))
    assert bool(refused) == (mode in uplink.CONTROLS) == bool(np.any(np.abs(values) > 1e6))


def test_ring_and_analytic_mode_have_the_same_noise():
    """2,000 rounds, each with fresh keys and gains: mean square of error / tau within 4 standard errors of 1."""
    p, rounds = dataclasses.replace(COARSE, P=1), 2000
    job = Job(p, FADING)
    made = uplink.make(job)
    link, trace = links(made, real_trace(rounds, seed=4))
    rng = np.random.default_rng(5)
    a = np.stack([rng.integers(0, q, (rounds, 64), dtype=np.uint32) for q in p.ring.primes], axis=1)
    s = (2 * rng.integers(0, 2, (rounds, N, 64)) - 1).astype(np.int8)
    e = np.rint(p.sigma_e * rng.normal(size=(rounds, N, 64))).astype(np.int8)
    silent = np.zeros((N, 1), np.float32)

    def one(a_hat, s, e, link, key):
        keys = round_sum.Keys(a_hat, xmkckks.public_keys(p.ring, a_hat, s, e), s)
        total = made.combine(link, jnp.arange(N), jnp.ones(N, bool), jnp.ones(N, jnp.float32), jnp.asarray(silent))
        return uplink._decode(job, keys)(total, link, key)[0][0]

    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(0), rounds)
        errors = np.asarray(jax.jit(lambda *rows: jax.lax.map(lambda r: one(*r), rows))(a, s, e, link, keys), float)
    ratio = (errors / np.asarray(budget.analytic_noise_std(trace.gain.real, p))) ** 2
    assert abs(np.mean(ratio) - 1) < 4 * np.std(ratio) / np.sqrt(rounds)
    analytic, _ = links(uplink.make(dataclasses.replace(job, mode="analytic")), real_trace(rounds, seed=4))
    np.testing.assert_allclose(analytic.noise_std, budget.analytic_noise_std(trace.gain.real, p), rtol=1e-5)


@pytest.mark.parametrize("mode", ["zf", *(pytest.param(m, marks=pytest.mark.slow) for m in ("naive-reuse", "mmse"))])
def test_controls_are_caught_and_change_nothing(mode):
    trace = real_trace(ROUNDS)
    start, record = train(uplink.make(Job(dataclasses.replace(COARSE, scale_bits=40), FADING, mode)), trace)
    untouched = train(ANALOG, trace._replace(gain=0 * trace.gain))[0]
    assert np.all(record.refused)
    np.testing.assert_array_equal(start, untouched)


@pytest.mark.slow
@pytest.mark.parametrize("mode", uplink.CONTROLS)
def test_controls_destroy_the_model_when_they_are_applied(mode):
    job = Job(dataclasses.replace(COARSE, scale_bits=40), FADING, mode, discard=False)
    wild, record = train(uplink.make(job), real_trace(ROUNDS))
    assert np.all(record.refused) and np.max(np.abs(wild)) > 1e6


@pytest.mark.slow
def test_perfect_pilots_make_zero_forcing_decode():
    """Positive control: it is the mismatch of weights that breaks zf, nothing else."""
    job = Job(dataclasses.replace(COARSE, scale_bits=40), FADING, "zf", pilot_error=0.0)
    _, record = train(uplink.make(job), real_trace(ROUNDS))
    assert not np.any(record.refused)


def test_artificial_noise_reaches_the_sum_and_is_all_the_link_declares(plain, coarse):
    trace, reference = plain
    link, grid = links(coarse, trace, noise=0.5)
    np.testing.assert_allclose(link.noise_std, np.sqrt(np.sum((0.5 * grid.gain.real) ** 2, -1)), rtol=1e-6)
    theta, _ = train(coarse, trace, noise=0.5)
    predicted = ETA * np.sqrt(np.sum(np.asarray(link.noise_std, float) ** 2) / P)
    assert 0.3 * predicted < np.sqrt(np.mean((theta - reference) ** 2)) < 3 * predicted


@pytest.mark.slow
def test_a_wrapped_scalar_is_refused():
    """A message beyond the headroom wraps only its own coefficient; the guard copy tells."""
    p = dataclasses.replace(COARSE, scale_bits=60)
    made = uplink.make(Job(p, FADING))
    link, _ = links(made, real_trace(1))
    link = jax.tree.map(lambda leaf: leaf[0], link)
    x = np.full((N, P), 2.0 ** (p.log2_q - 2 * p.f - 60))
    with jax.enable_x64(True):
        total = made.combine(link, jnp.arange(N), jnp.ones(N, bool), jnp.ones(N, jnp.float32), jnp.asarray(x))
        values, refused = jax.jit(made.decode)(total, link, jax.random.key(0))
    assert bool(refused) and not np.any(values)


def test_whether_a_round_is_refused_is_told_of_the_noisy_sum():
    """Sums 0.1 noise apart at the edge of the ring: refused as often, but for what the noise hides (0.05 here)."""
    p = dataclasses.replace(COARSE, scale_bits=60)
    made = uplink.make(Job(p, FADING))
    link = jax.tree.map(lambda leaf: leaf[0], links(made, real_trace(1), noise=0.5)[0])
    edge, std, rounds = 2.0 ** (p.log2_q - 1 - budget.decode_bits(p)), float(link.noise_std), 600

    def refused(total, key):
        values = jnp.asarray([total, 0.0], jnp.float64)
        packed = scaling.pack(p, values, budget.decode_bits(p))
        return made.decode(packed, link, key)[1]

    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(0), rounds)
        often = jax.jit(lambda total: jnp.mean(jax.lax.map(lambda key: refused(total, key), keys)))
        below, above = (float(often(edge + part * std)) for part in (-0.05, 0.05))
    spread = np.sqrt(2 * 0.25 / rounds)
    assert abs(above - below) < 0.05 + 4 * spread
    assert abs((above + below) / 2 - 0.5) < 4 * spread


def test_refusals(coarse):
    with pytest.raises(InputError, match="headroom"):
        uplink.make(Job(dataclasses.replace(COARSE, scale_bits=80), FADING))
    with pytest.raises(InputError, match="mode="):
        uplink.make(Job(COARSE, FADING, "literal"))
    with pytest.raises(InputError, match=r"mode='.*' needs real gains.* use mode='digital'"):
        coarse.site(small.trace(2), small.deployment())
    link = jax.tree.map(lambda leaf: leaf[0], links(coarse, real_trace(1))[0])
    with pytest.raises(InputError, match="zero-order"):
        coarse.combine(link, jnp.arange(N), jnp.ones(N, bool), jnp.ones(N, jnp.float32), jnp.zeros((N, 53)))


def test_remarks_say_what_was_simulated():
    assert any("insecure_test_rng" in line for line in uplink.make(Job(COARSE, FADING)).remarks)
    assert any("not differential privacy" in line for line in uplink.make(Job(COARSE, FADING, "analytic")).remarks)
    assert any("must fail" in line for line in uplink.make(Job(COARSE, FADING, "zf")).remarks)


@pytest.mark.parametrize(("loud", "apart", "refused"), [
    (31.9, 0.0, False), (32.1, 0.0, True), (0.0, 31.9 * 2**10, False), (0.0, 32.1 * 2**10, True),
])  # fmt: skip
def test_a_round_is_refused_for_loud_empty_coefficients_or_for_copies_apart(loud, apart, refused):
    """32 times the expected rms of 1; a guard copy is 2^10 times as noisy."""
    values = np.array([5.0, -7.0])
    opened = scaling.Decoded(values, values + np.array([0.0, apart]), np.float64(loud))
    assert bool(uplink.failed(opened, 1.0)) == refused


def test_the_clients_own_noise_is_drawn_as_wide_as_it_is_charged():
    """sqrt(sum h^2) times each client's: 4,800 scalars that nobody sent, within 5 standard errors of the width."""
    p = Parameters(toy_ring(64), f=8, scale_bits=50, sigma_phi=3.2, P=16, guard=False, allow_insecure=True)
    made = uplink.make(Job(p, FADING))
    link, trace = links(made, real_trace(1), noise=3.0)
    link = jax.tree.map(lambda leaf: leaf[0], link)
    wanted = 3.0 * np.sqrt(np.sum(trace.gain.real**2))
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(4), 300)
        nothing = jnp.zeros((p.ring.limbs, p.ring.n), jnp.uint32)
        drawn, refused = jax.jit(jax.vmap(lambda key: made.decode(nothing, link, key)))(keys)
    values = np.asarray(drawn, float)
    assert not np.any(refused)
    assert abs(values.std() / wanted - 1) < 5 / np.sqrt(2 * values.size)
    assert abs(values.mean()) < 5 * wanted / np.sqrt(values.size)
