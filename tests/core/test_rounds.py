"""Properties of the round that hold for every scheme.

A new number of rounds or seeds is a new program, seconds to compile: tests share 5 rounds of one seed where they can.
"""

import functools
import threading

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import small
from otafl import systems
from otafl.clients import Gradient, PerSample, gradient, per_sample
from otafl.core import uplink
from otafl.core.engine import cores, make_engine
from otafl.core.messages import clip_factors, norms_of
from otafl.core.plan import Link, Plan, Policy
from otafl.core.rounds import Row, make_round, observe, plan_ahead
from otafl.systems.baselines.constant import Config as Constant
from otafl.systems.ideal.fedavg import Config as FedAvg


@functools.cache
def clipped(clip_norm: float = 1.0, batch: int = 16):
    return gradient(Gradient(clip_norm=clip_norm, batch=batch), small.model())


def promise(clients):
    return clients.promise(np.array([20, 50, 60, 70]))


def constant(clients, site, **options):
    return systems.make("constant", Constant(**options), site, promise(clients), small.CONTEXT)


@pytest.mark.released
@settings(max_examples=15, deadline=None)
@given(st.floats(0.01, 3.0), st.floats(0.01, 20.0), st.sampled_from(["norm", "bound"]), st.integers(0, 10**6))
def test_norm_bound_and_energy_limit_are_never_passed(rx_scale, energy, silence, seed):
    clients, site = clipped(clip_norm=0.25), small.deployment(energy=energy)
    policy = constant(clients, site, rx_scale=rx_scale, silence=silence)
    traces = [small.trace(5, seed)]
    _, records, plans = small.train(clients, [policy], traces, site, [seed % 97])
    norms, sent = np.asarray(records.stats.norm[0], float), np.asarray(records.stats.sent[0])
    assert np.all(norms <= 0.25)
    assert np.all(uplink.transmit_energy(plans[0], norms, sent, site.dim) <= energy)


def test_zero_noise_and_nobody_silent_equals_fedavg():
    clients = clipped()
    quiet = small.deployment(noise_std=0.0, energy=1e9)
    traces = [small.trace(5)]
    over_air, _, _ = small.train(clients, [constant(clients, quiet, rx_scale=0.3)], traces, quiet, [3])
    policy = systems.make("fedavg", FedAvg(), quiet, promise(clients), small.CONTEXT)
    perfect, site = uplink.ideal(traces[0], quiet)
    ideal, _, _ = small.train(clients, [policy], [perfect], site, [3])
    for a, b in zip(jax.tree.leaves(over_air.params), jax.tree.leaves(ideal.params)):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-6)


def test_update_is_mean_plus_bias_of_the_silent(monkeypatch):
    """CARES (5)-(6): without noise, the received sum is the weighted mean minus what the silent clients held back."""
    clients = clipped(clip_norm=0.25)
    site = small.deployment(noise_std=0.0, energy=0.002)
    policy = constant(clients, site, rx_scale=0.5, silence="norm")
    traces = [small.trace(1)]
    net, batch = small.model(), small.seeds([5])
    carry, records, _ = small.train(clients, [policy], traces, site, [5], step_size=1.0)
    sent = np.asarray(records.stats.sent[0, 0])
    assert 0 < sent.sum() < small.CLIENTS
    params = net.init(jax.random.fold_in(jax.random.key(5), 2**31 - 1))
    key, _ = jax.random.split(jax.random.fold_in(jax.random.key(5), 0))
    one = jax.tree.map(lambda leaf: leaf[0], batch)
    keys = jax.vmap(lambda k: jax.random.fold_in(key, k))(jnp.arange(4))
    drawn, _ = jax.jit(clients.draw)(one, keys, jnp.arange(4))
    messages, _ = jax.jit(clients.messages)(params, small.data(), one, drawn, jnp.arange(4), jnp.int32(0))
    flat = np.stack([np.concatenate([np.ravel(leaf[k]) for leaf in jax.tree.leaves(messages)]) for k in range(4)])
    flat *= np.minimum(1, 0.25 / np.linalg.norm(flat, axis=1))[:, None]
    moved = np.concatenate(
        [np.ravel(a - np.asarray(b)[0]) for a, b in zip(jax.tree.leaves(params), jax.tree.leaves(carry.params))]
    )
    np.testing.assert_allclose(moved, (site.weights * sent) @ flat, atol=2e-6)


@pytest.mark.released
def test_same_seed_same_bytes_and_chunk_length_changes_nothing():
    clients, site = clipped(), small.deployment()
    policy = constant(clients, site, rx_scale=0.3)
    net, optimizer, batch = small.model(), optax.sgd(0.5, momentum=0.9), small.seeds([1, 2])
    traces = [small.trace(2, 1), small.trace(2, 2)]
    plans = [plan_ahead(policy, (), one)[1] for one in traces]
    rows = small.rows_of(plans, traces, site)
    engine = make_engine(net.init, lambda p, held: jnp.zeros(()), make_round(clients, optimizer, "vmap"), optimizer)

    def run(cuts: list[int]) -> list[bytes]:
        carry, start = engine.init(batch.key, jnp.zeros((2, 0))), 0
        for stop in cuts:
            part = jax.tree.map(lambda leaf, a=start, b=stop: leaf[:, a:b], rows)
            carry, _, _ = engine.chunk(small.data(), (), (), batch, carry, part)
            start = stop
        return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves((carry.params, carry.opt))]

    assert run([2]) == run([2]) == run([1, 2])  # chunks of 2 and of 1: two compilations


@pytest.mark.parametrize("client_map", ["map", 3, pytest.param(2, marks=pytest.mark.slow)])
def test_client_mapping_changes_only_rounding(client_map):
    clients, site = clipped(), small.deployment()
    policy, traces = constant(clients, site, rx_scale=0.3), [small.trace(5)]
    whole, record, _ = small.train(clients, [policy], traces, site, [0])
    parts, chunked, _ = small.train(clients, [policy], traces, site, [0], client_map=client_map)
    np.testing.assert_allclose(record.stats.norm, chunked.stats.norm, rtol=1e-5)
    np.testing.assert_array_equal(record.stats.sent, chunked.stats.sent)
    for a, b in zip(jax.tree.leaves(whole.params), jax.tree.leaves(parts.params)):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("seed_map", ["threads", "map"])
def test_seed_mapping_changes_only_rounding(seed_map):
    clients, site = clipped(), small.deployment()
    seeds = [3, 1, 2]
    policies_, traces = [constant(clients, site, rx_scale=0.3)] * 3, [small.trace(4, seed) for seed in seeds]
    whole, record, _ = small.train(clients, policies_, traces, site, seeds)
    parts, apart, _ = small.train(clients, policies_, traces, site, seeds, seed_map=seed_map)
    np.testing.assert_allclose(record.stats.norm, apart.stats.norm, rtol=1e-5)
    np.testing.assert_array_equal(record.stats.sent, apart.stats.sent)
    for a, b in zip(jax.tree.leaves(whole.params), jax.tree.leaves(parts.params)):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_whoever_asks_for_rounds_compiles_them():
    """Not the pool: its threads are for seeds of other programs meanwhile."""
    tracing, plain, site = set(), clipped(), small.deployment()
    clients = plain._replace(lift=lambda *args: tracing.add(threading.current_thread()) or plain.lift(*args))
    small.train(clients, [constant(plain, site)] * 3, [small.trace(4)] * 3, site, [3, 1, 2], seed_map="threads")
    assert tracing == {threading.current_thread()}


@pytest.mark.slow  # whole runs are held to it in tests/runs
def test_with_a_core_of_its_own_a_seed_has_the_same_bits_in_any_company():
    clients, site = clipped(), small.deployment()
    policy = constant(clients, site, rx_scale=0.3)

    def model(seeds: list[int], wanted: int) -> list[bytes]:
        traces = [small.trace(4, seed) for seed in seeds]
        carry, _, _ = small.train(clients, [policy] * len(seeds), traces, site, seeds, seed_map="threads")
        return [np.asarray(leaf)[seeds.index(wanted)].tobytes() for leaf in jax.tree.leaves(carry.params)]

    assert model([5, 6, 7], 6) == model([6], 6) == model([6, 7, 5], 6)


@pytest.mark.released
@pytest.mark.parametrize("client_map", ["vmap", pytest.param(3, marks=pytest.mark.slow)])
def test_rounds_drawn_ahead_have_the_same_bits(client_map, monkeypatch):
    """As an accelerator does it; here on whatever runs the tests."""
    clients, site = clipped(), small.deployment()
    policy, traces = constant(clients, site, rx_scale=0.3), [small.trace(5)]
    carries = []
    for most in (0, 2**20):
        small.engine_of.cache_clear()
        monkeypatch.setattr("otafl.core.engine.most_ahead", lambda most=most: most)
        carries.append(small.train(clients, [policy], traces, site, [0], client_map=client_map)[0])
    small.engine_of.cache_clear()
    for one, other in zip(*(jax.tree.leaves(carry) for carry in carries)):
        np.testing.assert_array_equal(one, other)


def test_permuting_clients_permutes_results():
    """With full batches (no per-client draw) a permutation of the clients leaves the model and permutes the records."""
    clients, order = clipped(batch=0), np.array([2, 0, 3, 1])
    site, one = small.deployment(noise_std=0.0, energy=0.02), small.trace(3)
    sizes = (20, 50, 60, 70)
    engine, batch = small.engine_of(clients), small.seeds([0], sizes)

    def run(perm):
        where = site._replace(weights=site.weights[perm], energy=site.energy[perm])
        what = promise(clients)
        policy = systems.make("constant", Constant(rx_scale=0.5), where, what, small.CONTEXT)
        shuffled = one._replace(**{name: getattr(one, name)[:, perm] for name in one._fields})
        plan = plan_ahead(policy, (), shuffled)[1]
        dealt = batch._replace(rows=batch.rows[:, perm], sizes=batch.sizes[:, perm])
        carry = engine.init(dealt.key, jnp.zeros((1, 0)))
        return engine.chunk(small.data(), (), (), dealt, carry, small.rows_of([plan], [shuffled], where))[:2]

    (a, first), (b, second) = run(np.arange(4)), run(order)
    np.testing.assert_allclose(np.asarray(first.stats.norm)[..., order], second.stats.norm, rtol=1e-5)
    np.testing.assert_array_equal(np.asarray(first.stats.sent)[..., order], second.stats.sent)
    assert 0 < np.mean(first.stats.sent) < 1
    for x, y in zip(jax.tree.leaves(a.params), jax.tree.leaves(b.params)):
        np.testing.assert_allclose(x, y, atol=1e-6)


def test_noise_of_the_air_is_the_declared_noise():
    """Variance over 200,000 draws against the declared one: chi-square test at 1e-6 on each side."""
    site, one = small.deployment(noise_std=0.2), small.trace(1)
    plan = Plan(
        *(
            np.asarray(v)
            for v in (
                np.zeros((1, 4)),
                np.full((1, 4), 0.1 + 0.05j),
                np.full((1, 4), np.inf),
                np.array([0.5]),
                np.ones((1, 4)),
                np.array([True]),
            )
        )
    )
    link = uplink.lower(plan, one.gain, site)
    declared = (0.2**2 + np.sum(np.real(one.gain[0] * (0.1 + 0.05j)) ** 2)) / 0.25
    draws = np.asarray(uplink.add_noise(jax.random.key(0), jnp.zeros(200_000), np.float32(link.noise_std[0])), float)
    low, high = stats.chi2.ppf([1e-6, 1 - 1e-6], len(draws)) / len(draws)
    assert low < np.mean(draws**2) / declared < high
    assert abs(stats.skew(draws)) < 0.03 and abs(stats.kurtosis(draws)) < 0.06


def test_a_dead_round_stops_the_run_for_good():
    clients, site = clipped(), small.deployment()
    traces = [small.trace(5)]
    plan = plan_ahead(constant(clients, site), (), traces[0])[1]
    plan = plan._replace(live=np.array([True, True, False, True, True]))
    engine, batch = small.engine_of(clients), small.seeds([0])
    start = lambda: engine.init(batch.key, jnp.zeros((1, 0)))  # noqa: E731
    rows = small.rows_of([plan], traces, site)
    carry, records, _ = engine.chunk(small.data(), (), (), batch, start(), rows)
    np.testing.assert_array_equal(records.live[0], [True, True, False, False, False])
    short, _, _ = engine.chunk(small.data(), (), (), batch, start(), jax.tree.map(lambda leaf: leaf[:, :2], rows))
    for a, b in zip(jax.tree.leaves(carry.params), jax.tree.leaves(short.params)):
        np.testing.assert_array_equal(a, b)


def test_padding_rounds_change_nothing():
    clients, site = clipped(), small.deployment()
    traces = [small.trace(5)]
    plan = plan_ahead(constant(clients, site), (), traces[0])[1]
    engine, batch = small.engine_of(clients), small.seeds([0])
    rows = small.rows_of([plan], traces, site)
    padded = Row(rows.link, (), np.array([[True, True, True, False, False]]))
    a, records, _ = engine.chunk(small.data(), (), (), batch, engine.init(batch.key, jnp.zeros((1, 0))), padded)
    assert int(a.round[0]) == 3 and bool(a.live[0]) and int(np.sum(records.live)) == 3


def test_training_stays_float32_and_planning_float64():
    clients, site = clipped(), small.deployment()
    carry, _, plans = small.train(clients, [constant(clients, site)], [small.trace(5)], site, [0])
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(carry.params)} == {"float32"}
    assert plans[0].rx_scale.dtype == np.float64 and plans[0].tx.dtype == np.complex128


@pytest.mark.parametrize("client_map", ["vmap", 3])
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_a_non_finite_message_counts_as_zero_and_is_recorded(bad, client_map):
    """Client 3 alone holds sample 150. The model is what it is with that client's weight at zero; nothing stops."""
    clients, site = clipped(batch=0), small.deployment()
    whole = small.data()
    spoilt = whole._replace(x=whole.x.at[150].set(bad))
    holder = 3
    batch, traces, engine = small.seeds([0]), [small.trace(3)], small.engine_of(clients, client_map)
    rows = small.rows_of([plan_ahead(constant(clients, site), (), traces[0])[1]], traces, site)
    mute = rows._replace(link=rows.link._replace(weight=rows.link.weight * (np.arange(4) != holder)))
    run = lambda data, given: engine.chunk(  # noqa: E731
        data, (), (), batch, engine.init(batch.key, jnp.zeros((1, 0))), given
    )
    carry, records, _ = run(spoilt, rows)
    expected, _, _ = run(whole, mute)
    assert bool(carry.live[0]) and np.all(records.live) and np.all(records.finite)
    np.testing.assert_array_equal(records.stats.zeroed, np.broadcast_to(np.arange(4) == holder, (1, 3, 4)))
    assert np.all(records.stats.sent[0, :, holder]) and np.all(records.stats.norm[0, :, holder] == 0)
    for got, wanted in zip(jax.tree.leaves(carry.params), jax.tree.leaves(expected.params)):
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-7)


def test_a_model_that_is_not_finite_stands_still():
    """A function of what was received alone, so that stopping for it tells nothing more."""
    clients, site = clipped(), small.deployment()
    carry, records, _ = small.train(clients, [constant(clients, site)], [small.trace(3)], site, [0], step_size=1e38)
    assert not records.finite[0, 0] and not bool(carry.live[0]) and np.sum(records.live) == 1
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(carry.params))


def test_a_batch_that_does_not_fit_stops_its_seed_before_the_model_moves():
    clients, site = clipped(), small.deployment()
    crowded = clients._replace(draw=lambda *given: (clients.draw(*given)[0], jnp.ones((), bool)))
    carry, records, _ = small.train(crowded, [constant(clients, site)], [small.trace(3)], site, [0])
    assert not bool(carry.live[0]) and records.live.tolist() == [[True, False, False]] and records.stats.overflow[0, 0]
    start = small.engine_of(crowded).init(small.seeds([0]).key, jnp.zeros((1, 0)))
    for kept, first in zip(jax.tree.leaves(carry.params), jax.tree.leaves(start.params)):
        np.testing.assert_array_equal(kept, first)


@pytest.mark.parametrize(
    "name", [name for name in systems.SCHEMES if name in ("constant", "weakest", "fedavg", "fedavg-dp")]
)
def test_csi_level_is_honest(name):
    """A policy that claims less than global CSI does not react to other clients' channels."""
    clients, site = clipped(), small.deployment()
    policy = systems.make(name, systems.scheme(name).config(), site, promise(clients), small.CONTEXT)
    one = small.trace(4)
    other = one._replace(estimate=one.estimate * np.array([1, 1, 1, 7.0]))
    a, b = plan_ahead(policy, policy.init(None), one)[1], plan_ahead(policy, policy.init(None), other)[1]
    if policy.csi != "global":
        np.testing.assert_array_equal(a.tx[:, :3], b.tx[:, :3])
        np.testing.assert_array_equal(a.rx_scale, b.rx_scale)


@pytest.mark.parametrize(("csi", "gains", "statistics"), [
    ("none", False, False), ("statistical", False, True), ("own", True, True), ("global", True, True),
])  # fmt: skip
@pytest.mark.parametrize("xp", [np, jnp])
def test_a_policy_is_shown_what_its_csi_level_allows(xp, csi, gains, statistics):
    policy = Policy("curious", lambda key: (), lambda state, obs: None, loop="open", csi=csi, gate="open")
    seen = observe(policy, jax.tree.map(xp.asarray, small.trace(3)), 0)
    assert np.all(np.isnan(seen.estimate) != gains)
    assert all(np.all(np.isnan(value) != statistics) for value in (seen.rms, seen.rms_low, seen.rms_high))
    assert not np.any(np.isnan(seen.coin))


def test_a_client_without_a_word_may_have_any_scale_planned():
    """A channel in an outage is inverted to nothing finite; whoever is silent by plan weighs nothing."""
    silent = np.array([[True, False, False, False]])
    one = np.ones((1, 4))
    plan = Plan(np.where(silent, np.inf, 1.0), 0 * one, np.where(silent, -1.0, np.inf), one[:, 0], one, one[:, 0] > 0)
    weight = uplink.lower(plan, small.trace(1).gain, small.deployment()).weight
    assert np.all(np.isfinite(weight)) and np.array_equal(weight == 0, silent)


def test_no_message_above_the_largest_norm_is_sent_whatever_float32_makes_of_it():
    rng = np.random.default_rng(0)
    limit = rng.uniform(0.1, 10, 400)
    wanted = rng.normal(size=(400, 300))
    wanted *= (limit * (1 + rng.uniform(0, 1e-6, 400)) / np.linalg.norm(wanted, axis=1))[:, None]
    messages = wanted.astype(np.float32)
    above = np.linalg.norm(messages.astype(float), axis=1) > limit
    link = uplink.to_float32(Link(limit, limit, np.ones(()), np.ones((), bool)))
    assert above.sum() > 300 and not np.any(np.asarray(norms_of([jnp.asarray(messages)]) <= link.max_norm)[above])


def test_poisson_messages_refuse_policies_that_need_a_bound():
    clients, site = per_sample(PerSample(batch=10), small.model()), small.deployment()
    with pytest.raises(ValueError, match="norm bound"):
        systems.make("constant", Constant(), site, clients.promise(np.array([20, 50, 60, 70])), small.CONTEXT)


def test_record_level_refuses_silence_by_message():
    clients = per_sample(PerSample(batch=10, sampling="without-replacement"), small.model())
    with pytest.raises(ValueError, match="record-level"):
        systems.make(
            "constant",
            Constant(silence="norm"),
            small.deployment(),
            clients.promise(np.array([20, 50, 60, 70])),
            small.CONTEXT,
        )


def test_a_dead_device_makes_the_weakest_round_empty_not_infinite():
    clients, site = clipped(), small.deployment()
    policy = systems.make("weakest", systems.scheme("weakest").config(), site, promise(clients), small.CONTEXT)
    one = small.trace(2)
    estimate = one.estimate.copy()
    estimate[0, 1] = 0
    plan = plan_ahead(policy, (), one._replace(estimate=estimate, gain=estimate))[1]
    link = uplink.lower(plan, estimate, site)
    assert np.all(link.weight[0] == 0) and link.noise_std[0] == 0 and np.all(plan.live)


def rounded(values, bits):
    """To so many significant bits, to nearest: what an accelerator does to the factors of a product."""
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.rint(np.ldexp(mantissa, bits)), exponent - bits)


@pytest.mark.parametrize(("backend", "bits"), [("cpu", 24), ("gpu", 11), ("tpu", 8)])
def test_a_sample_stays_in_its_bound_whatever_a_product_rounds(monkeypatch, backend, bits):
    """Reads and errors of all sizes, each to be rounded up as far as it can be: the longest that a part can get."""
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    sizes = 1 + np.arange(2 ** min(bits, 11)) * 2.0 ** (1 - min(bits, 11)) + 2.0**-bits * (1 + 1e-6)
    read, err = sizes[:, None, None] * np.ones((7, 1)), sizes[:, None, None] * np.ones((1, 5))

    def longest(slack):
        norms = np.linalg.norm(read * err, axis=(1, 2))
        factors = np.asarray(clip_factors(jnp.asarray(norms, jnp.float32), 0.5, slack), float)[:, None, None]
        return np.linalg.norm(rounded(read, bits) * rounded(factors * err, bits), axis=(1, 2)).max()

    assert longest(uplink.product_slack()) <= 0.5
    assert (longest(uplink.FLOAT32_SLACK) > 0.5) == (backend != "cpu")


@pytest.mark.parametrize("said", ["", "0", "-3", "²", "9" * 5000, "two"])
def test_a_number_of_cores_that_is_none_is_not_heard(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPROC", "3")
    assert cores() == 3
    monkeypatch.delenv("NPROC")
    found = cores()
    monkeypatch.setenv("NPROC", said)
    assert cores() == found
