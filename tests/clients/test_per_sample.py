"""Clients that clip every sample: sensitivity, ghosts, energy, noise. Their batches: `test_batch_law`."""

import functools
from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import small
from counted import BATCH, IDS, SIZES, counting_model, counts_of
from otafl import systems
from otafl.clients.per_sample import Clipped, PerSample, per_sample
from otafl.clients.per_sample_promise import rooms
from otafl.core.errors import InputError
from otafl.core.messages import Data
from otafl.core.plan import Context
from otafl.systems.adascale import policy as adascale
from otafl.tasks import ghost, one_kernel
from otafl.tasks.layers import Groups
from otafl.tasks.models import build, from_loss

CLIP, CLASSES = 0.5, 10


@jax.jit
def client_keys(number):
    return jax.vmap(lambda k: jax.random.fold_in(jax.random.key(number), k))(IDS)


def flat(messages) -> np.ndarray:
    """(K, d) in float64."""
    return np.concatenate([np.asarray(leaf, np.float64).reshape(len(IDS), -1) for leaf in jax.tree.leaves(messages)], 1)


def sender(clients, seed=None):
    """Messages (K, d) and the overflow flag, of one compiled function of (params, data, key number)."""
    seed = small.one_seed() if seed is None else seed

    @jax.jit
    def run(params, data, keys):
        drawn, overflow = clients.draw(seed, keys, IDS)
        return clients.messages(params, data, seed, drawn, IDS, jnp.zeros((), jnp.int32))[0], overflow

    def send(params, data, number):
        messages, overflow = run(params, data, client_keys(number))
        return flat(messages), bool(overflow)

    return send


# --- sensitivity ------------------------------------------------------------------------------------------------------


def switched_loss(params, x, y):
    """A loss whose first feature switches a sample on: at 0 its gradient is zero, as if it were not there."""
    features = x[:, 1:]
    logits = jnp.tanh(features @ params["a"]) @ params["b"]
    losses = jax.nn.logsumexp(logits, 1) - jnp.take_along_axis(logits, y[:, None], 1)[:, 0]
    return jnp.mean(x[:, 0] * losses)


def switched_model():
    def init(key):
        a, b = jax.random.split(key)
        return {"a": jax.random.normal(a, (5, 4), jnp.float32), "b": jax.random.normal(b, (4, 3), jnp.float32)}

    return from_loss(init, switched_loss, lambda params, x: jnp.zeros((len(x), 3)))


def switched_data(scale: float, sample: int | None = None, other=None) -> Data:
    """All samples on, with gradients of any size; one of them switched off, or replaced by other features."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((200, 6)).astype(np.float32)
    x[:, 0] = scale
    y = rng.integers(0, 3, 200).astype(np.int32)
    if sample is not None and other is None:
        x[sample, 0] = 0.0
    elif sample is not None:
        x[sample, 1:], y[sample] = other, (y[sample] + 1) % 3
    return Data(jnp.asarray(x), jnp.asarray(y))


SWITCHED = switched_model()
SENDERS = {
    kind: sender(per_sample(PerSample(CLIP, BATCH, kind), SWITCHED)) for kind in ("poisson", "without-replacement")
}
PARAMS = SWITCHED.init(jax.random.key(0))


@settings(max_examples=40, deadline=None)
@given(st.floats(1e-3, 1e4), st.integers(0, 199), st.integers(0, 2**31 - 1))
def test_emptying_one_record_moves_the_aggregate_by_at_most_its_sensitivity(scale, sample, number):
    """Unit: one record of one client, zero-out; the server's sum weighs every client by 1/M."""
    send = SENDERS["poisson"]
    with_it, _ = send(PARAMS, switched_data(scale), number)
    without, _ = send(PARAMS, switched_data(scale, sample), number)
    moved = np.linalg.norm(np.mean(with_it - without, axis=0))
    assert moved <= CLIP / (len(SIZES) * BATCH) * (1 + 1e-5)


@settings(max_examples=40, deadline=None)
@given(st.floats(1e-3, 1e4), st.integers(0, 199), st.integers(0, 2**31 - 1), st.floats(-9, 9))
def test_replacing_one_record_moves_the_aggregate_by_at_most_its_sensitivity(scale, sample, number, value):
    send = SENDERS["without-replacement"]
    with_it, _ = send(PARAMS, switched_data(scale), number)
    without, _ = send(PARAMS, switched_data(scale, sample, np.full(5, value)), number)
    moved = np.linalg.norm(np.mean(with_it - without, axis=0))
    assert moved <= 2 * CLIP / (len(SIZES) * BATCH) * (1 + 1e-5)


def test_the_sensitivity_is_reached():
    """A large gradient that was drawn is clipped to the bound exactly, so nothing smaller could be promised."""
    clients = per_sample(PerSample(CLIP, 0), SWITCHED)  # batch 0: every sample, every round
    send = sender(clients)
    sample = int(small.one_seed().rows[2, 7])
    gap = send(PARAMS, switched_data(1e4), 0)[0] - send(PARAMS, switched_data(1e4, sample), 0)[0]
    moved = np.linalg.norm(gap, axis=1)
    promised = clients.promise(SIZES).sensitivity
    assert moved[2] == pytest.approx(promised[2], rel=1e-4) and promised[2] == CLIP / 60
    assert moved[[0, 1, 3]].max() == 0


# --- the batch --------------------------------------------------------------------------------------------------------


MODEL = small.model()
SLOPES = jax.jit(jax.vmap(jax.grad(lambda p, x, y: MODEL.loss(p, x[None], y[None])), in_axes=(None, 0, 0)))


@functools.cache
def full_batches(sampling, kind):
    """Messages and how many samples were left out, of one compiled function of (params, data)."""
    model = MODEL if kind == "ghost" else from_loss(MODEL.init, MODEL.loss, MODEL.logits)
    clients, seed = per_sample(PerSample(CLIP, 0, sampling), model), small.one_seed()

    @jax.jit
    def send(params, data):
        drawn, _ = clients.draw(seed, client_keys(0), IDS)
        return clients.messages(params, data, seed, drawn, IDS, jnp.int32(0))

    return send


@pytest.mark.parametrize("sampling", ["poisson", "without-replacement"])
@pytest.mark.parametrize("kind", ["ghost", "materialised", "formed twice"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_a_gradient_that_is_not_finite_counts_as_zero_and_its_sample_as_taken(sampling, kind, bad, monkeypatch):
    """Full batches, so that the naive sum over all other samples is known exactly."""
    if kind == "formed twice":
        monkeypatch.setattr(ghost, "gradients_at_once", lambda params: 7)
    rows, data = np.asarray(small.one_seed().rows[2, : SIZES[2]]), small.data()
    spoilt, own = rows[5], np.delete(rows, 5)
    x = np.array(data.x)
    x[spoilt] = bad
    params = MODEL.init(jax.random.key(1))
    messages, left_out = full_batches(sampling, kind)(params, data._replace(x=jnp.asarray(x)))
    np.testing.assert_array_equal(left_out, [0, 0, 1, 0])
    found = SLOPES(params, x[own], np.asarray(data.y)[own])
    rows = np.concatenate([np.asarray(leaf, float).reshape(len(own), -1) for leaf in jax.tree.leaves(found)], 1)
    rows *= np.minimum(1, CLIP / np.linalg.norm(rows, axis=1))[:, None]
    np.testing.assert_allclose(flat(messages)[2], rows.sum(0) / SIZES[2], atol=1e-5)


@pytest.mark.parametrize("sampling", ["poisson", "without-replacement"])
@pytest.mark.parametrize("at_once", [1000, 7])
def test_of_a_gradient_that_is_partly_finite_nothing_is_sent(sampling, at_once, monkeypatch):
    """Its norm is no number, so nothing says how long the other part is: a thousand clip norms here."""
    monkeypatch.setattr(ghost, "gradients_at_once", lambda params: at_once)  # fewer than a batch: formed twice
    loss = lambda params, x, y: jnp.mean(params["bad"] * jnp.log(x[:, 0]) + params["good"] * x[:, 1])  # noqa: E731
    start = lambda key: {"bad": jnp.zeros((), jnp.float32), "good": jnp.zeros((), jnp.float32)}  # noqa: E731
    model = from_loss(start, loss, lambda params, x: jnp.zeros((len(x), 2)))
    clients, seed, x = per_sample(PerSample(CLIP, 0, sampling), model), small.one_seed(), np.zeros_like(small.data().x)
    x[:, 0] = 1
    x[np.asarray(seed.rows[2, 5])] = [-1, 1000 * CLIP, *x[0, 2:]]
    drawn, _ = clients.draw(seed, client_keys(0), IDS)
    data = small.data()._replace(x=jnp.asarray(x))
    messages, left_out = clients.messages(start(None), data, seed, drawn, IDS, jnp.int32(0))
    np.testing.assert_array_equal(flat(messages), 0)
    np.testing.assert_array_equal(left_out, [0, 0, 1, 0])


def test_no_sample_is_longer_than_its_clip_norm_by_a_rounding():
    """Each alone in a group, its length counted in float64; what float32 would add stands below the bound."""
    x, y, params = 10 * small.data().x, small.data().y, MODEL.init(jax.random.key(3))
    clipped = Clipped(PerSample(CLIP, 0, "poisson"), MODEL, MODEL.ghost)

    @jax.jit
    def alone(params, x, y):
        saved = clipped.ghost.trace(params, x, y)
        factor, sound = clipped.factors(saved)
        return clipped.sums(saved, sound, Groups(factor[:, None]))

    leaves = [np.asarray(leaf, np.float64).reshape(len(x), -1) for leaf in jax.tree.leaves(alone(params, x, y))]
    lengths = np.linalg.norm(np.concatenate(leaves, axis=1), axis=1)
    assert CLIP * (1 - 1e-5) < lengths.max() <= CLIP


@pytest.mark.parametrize("by_kernel", [False, True])
def test_a_huge_feature_with_a_tiny_error_stays_within_the_clip_norm(by_kernel):
    """The error's square is zero in float32, the feature's nearly infinite: their product says nothing."""
    model = build("logistic", (4,), CLASSES)
    no_params, start = model.init(jax.random.key(0))
    data = Data(jnp.array([[1.8e19, 0, 0, 0]], jnp.float32), jnp.zeros(1, jnp.int32))
    clipped, longest = Clipped(PerSample(clip_norm=1.0), model, model.ghost), []

    @jax.jit
    def norm(gap):
        params = (no_params, start | {"b": start["b"].at[0].set(gap)})
        if by_kernel:
            at_once = one_kernel.of_dense((4, CLASSES), "relu", 1)
            sums, *_ = at_once(params, data, jnp.zeros((1, 1), jnp.int32), jnp.ones(1), None, clipped.longest)
        else:
            saved = model.ghost.trace(params, *data)
            factor, sound = clipped.factors(saved)
            sums = clipped.sums(saved, sound, Groups(factor[None]))
        return [leaf.reshape(-1) for leaf in jax.tree.leaves(sums)]

    for gap in np.arange(38, 48, 0.5, np.float32):  # errors of exp(-gap)
        longest.append(np.linalg.norm(np.concatenate([np.asarray(part, float) for part in norm(gap)])))
    assert 0.5 < max(longest) <= 1


# --- ghosts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["poisson", "without-replacement"])
def test_ghosts_and_formed_gradients_send_the_same(kind):
    """The network's own clipping against vmap(grad), from the draw to the message."""
    model = small.model()
    plain = model._replace(ghost=None)
    params, options = model.init(jax.random.key(1)), PerSample(0.3, BATCH, kind)
    ghost, formed = (sender(per_sample(options, one)) for one in (model, plain))
    for number in range(3):
        np.testing.assert_allclose(*(f(params, small.data(), number)[0] for f in (ghost, formed)), rtol=0, atol=2e-6)


def test_messages_are_naive_sums_of_clipped_gradients():
    """Every sample drawn (batch 0), gradients one by one, clipped and averaged in float64."""
    model, data, seed = small.model(), small.data(), small.one_seed()
    params = model.init(jax.random.key(2))
    got, _ = sender(per_sample(PerSample(0.2, 0), model))(params, data, 0)
    gradient = jax.jit(jax.grad(model.loss))
    for client, size in enumerate(SIZES):
        total = np.zeros(got.shape[1])
        for row in np.asarray(seed.rows[client, :size]):
            one = gradient(params, data.x[row][None], data.y[row][None])
            vector = np.concatenate([np.asarray(leaf, float).ravel() for leaf in jax.tree.leaves(one)])
            total += vector * min(1.0, 0.2 / np.linalg.norm(vector)) / size
        np.testing.assert_allclose(got[client], total, atol=3e-6)


def test_a_round_whose_batches_outgrow_the_usual_room_sends_every_sample(monkeypatch):
    """The usual room made too small for any batch: the same messages as with room for all."""
    module, model = import_module("otafl.clients.per_sample"), small.model()
    params, clients = model.init(jax.random.key(1)), per_sample(PerSample(0.3, BATCH), model)
    usual = sender(clients)(params, small.data(), 1)[0]
    for few in ({"usual": 1}, {"usual_own": 1}, {"usual_own": 10**9}):
        monkeypatch.setattr(module, "rooms", lambda *shape, few=few: rooms(*shape)._replace(**few))
        np.testing.assert_allclose(sender(clients)(params, small.data(), 1)[0], usual, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["poisson", "without-replacement"])
@pytest.mark.parametrize("size", [1, 3, 64])
def test_messages_part_by_part_are_those_of_all_samples_at_once(kind, size, monkeypatch):
    """Parts that divide no batch, and one that holds any; a sample without a finite gradient among them."""
    module, model, seed = import_module("otafl.clients.per_sample"), small.model(), small.one_seed()
    clients, data = per_sample(PerSample(0.3, BATCH, kind), model), small.data()
    params = model.init(jax.random.key(1))
    drawn, _ = jax.jit(clients.draw)(seed, client_keys(1), IDS)
    taken = drawn.rows[drawn.slots[2, 0]] if kind == "poisson" else drawn.rows[2, 0]
    data = data._replace(x=data.x.at[taken].set(np.nan))
    found = []
    for chosen in (0, size):
        monkeypatch.setattr(module, "part_size", lambda *shape, chosen=chosen: chosen)
        found.append(jax.jit(clients.messages)(params, data, seed, drawn, IDS, jnp.int32(0)))
    (whole, left_out), (parts, also) = found
    np.testing.assert_allclose(flat(parts), flat(whole), rtol=0, atol=1e-6)
    np.testing.assert_array_equal(left_out, [0, 0, 1, 0])
    np.testing.assert_array_equal(also, left_out)


# --- energy and noise -------------------------------------------------------------------------------------------------

RADIO = small.deployment(noise_std=0.2, energy=3.0)


def full_power(message, rounds=1):
    """AdaScale without any excess noise: the weakest device uses all it may."""
    policy = adascale.adascale(adascale.Config(nu=0.0), RADIO, message, Context(rounds=rounds))
    trace = small.trace(rounds, 3)
    return policy, trace


def test_mean_energy_of_poisson_messages_meets_the_limit_and_single_rounds_pass_it():
    """Aligned gradients of full norm are the worst case: E norm^2 = (1 + (1 - q)/B) G^2, within 5 standard errors."""
    rounds = 4000
    counts, _ = counts_of(rounds, BATCH)
    message = per_sample(PerSample(1.0, BATCH), counting_model()).promise(SIZES)
    squares = (counts / BATCH) ** 2
    error = 5 * squares.std(0) / np.sqrt(rounds)
    np.testing.assert_array_less(np.abs(squares.mean(0) - message.mean_square), error)
    policy, trace = full_power(message)
    _, plan, _ = policy.step(policy.init(None), small_obs(trace))
    energy = np.abs(plan.tx) ** 2 * squares
    weakest = int(np.argmax(np.abs(plan.tx) ** 2 * message.mean_square))
    scale = np.abs(plan.tx) ** 2
    assert np.all(energy.mean(0) <= RADIO.energy + error * scale)
    assert energy.mean(0)[weakest] == pytest.approx(RADIO.energy[weakest], abs=error[weakest] * scale[weakest])
    assert np.any(energy[:, weakest] > RADIO.energy[weakest])  # a limit on the mean is not one on every round


def small_obs(trace):
    from otafl.core.plan import Obs

    return Obs(0, trace.estimate[0], trace.rms_estimate[0], trace.rms_low[0], trace.rms_high[0], trace.coin[0], np.nan)


def test_variance_of_the_received_update_is_half_the_noise_over_the_scaling():
    """sigma_n^2 / (2 eta), end to end: the same round with and without receiver noise, within 5 standard errors."""
    clients = per_sample(PerSample(CLIP, BATCH), small.model())
    policy, trace = full_power(clients.promise(SIZES))
    keys = list(range(100))
    runs = [[policy] * len(keys), [trace] * len(keys)]
    noisy, _, plans = small.train(clients, *runs, RADIO, keys, step_size=1.0)
    quiet, _, _ = small.train(clients, *runs, RADIO._replace(noise_var=0.0), keys, step_size=1.0)
    pairs = zip(jax.tree.leaves(noisy.params), jax.tree.leaves(quiet.params))
    noise = np.concatenate([np.asarray(a - b, float).reshape(len(keys), -1) for a, b in pairs], axis=1).ravel()
    expected = 2 * RADIO.noise_var / (2 * plans[0].rx_scale[0] ** 2)  # noise_var is sigma_n^2 / 2, rx_scale^2 is eta
    assert np.var(noise) == pytest.approx(expected, rel=5 * np.sqrt(2 / noise.size))
    assert abs(noise.mean()) < 5 * np.sqrt(expected / noise.size)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"batch": -1}, "batch"),
        ({"overflow_tail": 0.0}, "overflow_tail"),
        ({"unit": "client"}, "without-replacement"),
    ],
)
def test_refusals_name_what_is_wrong(options, word):
    with pytest.raises(InputError, match=word):
        per_sample(PerSample(**options), small.model())


def test_policies_with_a_gate_refuse_poisson_messages():
    message = per_sample(PerSample(CLIP, BATCH), small.model()).promise(SIZES)
    constant = systems.scheme("constant")
    with pytest.raises(InputError, match="norm bound"):
        systems.make("constant", constant.config(rx_scale=0.1, silence="bound"), RADIO, message, small.CONTEXT)


@pytest.mark.parametrize("name", ["biasvar", "lcpc", "cdpb", "fsk-mv", "energy-difference", "obda", "orthogonal"])
def test_schemes_that_scale_by_the_norm_say_why_they_refuse_poisson_messages(name):
    message = per_sample(PerSample(CLIP, BATCH), small.model()).promise(SIZES)
    with pytest.raises(InputError, match=r"needs a norm bound.*Poisson"):
        systems.make(name, systems.scheme(name).config(), RADIO, message, small.CONTEXT)
