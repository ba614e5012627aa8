"""What clients promise under each adjacency, and that it holds against the true likelihood of the worst pair."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import small
from otafl.clients import Gradient, LocalSGD, PerSample, ZeroOrder, gradient, local_sgd, per_sample, zero_order
from otafl.clients.per_sample_promise import on_grid, rooms
from otafl.core.errors import InputError
from otafl.core.messages import Seed, norms_of
from otafl.privacy.pld import pld_eps
from otafl.tasks.models import from_loss

SIZES = np.array([20, 50, 60, 70])
CONSTANTS = {"rate": 0.1, "divisor": 5.0, "size_max": 80}
FIXED = {"batch": 8, "sampling": "without-replacement"}


def promised(options: PerSample, sizes=SIZES):
    return per_sample(options, small.model()).promise(np.asarray(sizes))


@pytest.mark.parametrize(
    ("options", "adjacency", "sensitivity"),
    [
        (CONSTANTS, "add-remove", 0.5 / 5),
        (CONSTANTS, "zero-out", 0.5 / 5),
        (CONSTANTS, "replace", 2 * 0.5 / 5),
        ({"batch": 8}, "zero-out", 0.5 / 8),
        ({"batch": 8}, "replace", 2 * 0.5 / 8),
        ({"batch": 0}, "zero-out", 0.5 / SIZES),
        (FIXED, "replace", 2 * 0.5 / 8),
        (FIXED, "zero-out", 0.5 / 8),
        (FIXED, "add-remove", 2 * 0.5 / 8),
        (FIXED | {"batch": 0}, "replace", 2 * 0.5 / SIZES),
        (FIXED | {"batch": 0}, "zero-out", 0.5 / SIZES),
        (FIXED | {"unit": "client"}, "replace", 2 * 0.5),
        (FIXED | {"unit": "client"}, "zero-out", 0.5),
    ],
)
def test_sensitivities_of_clipped_samples(options, adjacency, sensitivity):
    message = promised(PerSample(0.5, adjacency=adjacency, **options))
    np.testing.assert_allclose(message.sensitivity, np.broadcast_to(sensitivity, 4), rtol=1e-15)
    assert message.adjacency == adjacency and message.published[0].startswith(adjacency)
    np.testing.assert_array_less(0.999 if options.get("sampling") else 0, message.rate)


@pytest.mark.parametrize(("kind", "options"), [(gradient, Gradient), (local_sgd, LocalSGD), (zero_order, ZeroOrder)])
def test_sensitivities_of_messages_clipped_as_a_whole(kind, options):
    """One record may turn the whole message: at record level no adjacency is cheaper than 2 G."""
    expected = {("client", "replace"): 2, ("client", "zero-out"): 1}
    expected |= {("record", adjacency): 2 for adjacency in ("replace", "zero-out", "add-remove")}
    for (unit, adjacency), factor in expected.items():
        clients = kind(options(clip_norm=0.5, unit=unit, adjacency=adjacency), small.model())
        message = clients.promise(SIZES)
        np.testing.assert_array_equal(message.sensitivity, np.full(4, factor * 0.5))
        np.testing.assert_array_equal(message.mean_square, np.full(4, 0.25))
        assert message.bound == clients.clip_norm == 0.5  # what is promised is enforced
        assert (message.unit, message.adjacency) == (unit, adjacency)
    with pytest.raises(InputError, match="roster"):
        kind(options(adjacency="add-remove"), small.model())


@pytest.mark.parametrize(
    ("kind", "options"),
    [(gradient, Gradient), (local_sgd, LocalSGD), (zero_order, ZeroOrder), (per_sample, PerSample)],
)
def test_a_clip_norm_that_float32_cannot_enforce_is_refused(kind, options):
    """A message of 10^6 numbers just small enough for their squares to be zero is 1e-16 long, and its norm is zero."""
    numbers = np.full((1, 10**6), 1e-19, np.float32)
    assert float(norms_of(jnp.asarray(numbers))[0]) < 1e-16 < np.linalg.norm(numbers.astype(float)) * (1 + 1e-6)
    kind(options(clip_norm=1e-9), small.model())
    with pytest.raises(InputError, match="clip_norm=1e-17 must be at least 1e-09"):
        kind(options(clip_norm=1e-17), small.model())


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"batch": 5, "adjacency": "add-remove"}, "rate = batch / size"),
        ({"adjacency": "add-remove"}, "rate = batch / size"),
        (FIXED | {"batch": 0, "adjacency": "add-remove"}, "divisor is the size"),
        (FIXED | {"unit": "client", "adjacency": "add-remove"}, "roster"),
        ({"rate": 0.1}, "belong together"),
        (CONSTANTS | {"batch": 8}, "place of batch"),
        (CONSTANTS | {"sampling": "without-replacement"}, "sampling='poisson'"),
        (CONSTANTS | {"rate": 1.5}, r"rate=1.5 must lie in \(0, 1\]"),
    ],
)
def test_what_cannot_be_promised_is_refused(options, word):
    with pytest.raises(InputError, match=word):
        per_sample(PerSample(**options), small.model())


def test_sizes_that_break_a_published_premise_are_refused():
    with pytest.raises(InputError, match="size_max=60 must be at least every size: client 3 has 70"):
        promised(PerSample(**CONSTANTS | {"size_max": 60}))
    with pytest.raises(InputError, match="client 0 has 20"):
        promised(PerSample(batch=30, sampling="without-replacement", adjacency="add-remove"))


def test_defaults_and_words_for_the_card():
    assert promised(PerSample(batch=8)).published[0] == (
        "zero-out: a record becomes an empty one that keeps its place; sizes 20…70 are published"
    )
    assert promised(PerSample(**CONSTANTS)).published[0] == (
        "add-remove: rate 0.1 and divisor 5 are constants; sizes, each at least 1, stay secret"
    )
    assert promised(PerSample(batch=8)).adjacency == "zero-out"
    assert promised(PerSample(**CONSTANTS)).adjacency == "add-remove"
    assert promised(PerSample(**FIXED)).adjacency == "replace"
    assert "1e-15" in promised(PerSample(batch=8)).published[1]


def test_with_published_constants_a_promise_does_not_read_the_sizes():
    one, other = (promised(PerSample(**CONSTANTS), sizes) for sizes in (SIZES, SIZES - 1))
    for name in one._fields:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    fixed = [promised(PerSample(adjacency="add-remove", **FIXED), sizes) for sizes in (SIZES, SIZES - 1)]
    np.testing.assert_array_equal(fixed[0].sensitivity, fixed[1].sensitivity)


def test_with_published_constants_removing_a_record_changes_nothing_but_its_own_term():
    """The last record of client 3 goes: with the same coins every other message and record stays as it was."""
    loss = lambda params, x, y: params["c"][0] + 0 * jnp.mean(x)  # noqa: E731
    model = from_loss(lambda key: {"c": jnp.zeros(1, jnp.float32)}, loss, lambda params, x: jnp.zeros((len(x), 2)))
    clients = per_sample(PerSample(1.0, rate=0.5, divisor=5.0, size_max=80), model)
    seed = jax.tree.map(lambda leaf: leaf[0], small.seeds([0]))
    ids = jnp.arange(4, dtype=jnp.int32)

    @jax.jit
    def counts(sizes, number):
        keys = jax.vmap(lambda k: jax.random.fold_in(jax.random.key(number), k))(ids)
        own = Seed(seed.key, seed.rows, sizes)
        drawn, _ = clients.draw(own, keys, ids)
        return clients.messages({"c": jnp.zeros(1)}, small.data(), own, drawn, ids, number)[0]["c"][:, 0]

    sizes = jnp.asarray(SIZES, jnp.int32)
    moved = np.array([counts(sizes, n) - counts(sizes.at[3].add(-1), n) for n in range(40)], float) * 5
    np.testing.assert_allclose(np.round(moved), moved, atol=1e-4)
    assert set(np.round(moved[:, 3])) == {0.0, 1.0} and np.all(moved[:, :3] == 0)


# --- the pair that beats a rate which follows the size ----------------------------------------------------------------

ROUNDS, MULTIPLIER, DELTA = 20, 5.0444, 0.01


def hockey_stick(eps, with_it, without, std, runs=100_000):
    """delta(eps) of 20 rounds of two mixtures (weights, centres) under Gaussian noise: mean and standard error."""
    rng = np.random.default_rng(11)
    loss = np.zeros(runs)

    def log_density(y, law):
        return special.logsumexp(np.log(law[0]) - (y[:, None] - law[1]) ** 2 / (2 * std**2), axis=1)

    for _ in range(ROUNDS):
        y = rng.choice(with_it[1], size=runs, p=with_it[0]) + std * rng.standard_normal(runs)
        loss += log_density(y, with_it) - log_density(y, without)
    excess = np.maximum(0, -np.expm1(np.minimum(eps - loss, 0)))
    return excess.mean(), excess.std() / np.sqrt(runs)


def received(others, rate, canary, divisor):
    """Law of the sum where `others` records say -1 and the canary, if there, says +1, each taken with `rate`."""
    count = np.arange(others + 1)
    weight, centre = stats.binom.pmf(count, others, rate), -count / divisor
    if not canary:
        return weight, centre
    return np.concatenate([(1 - rate) * weight, rate * weight]), np.concatenate([centre, centre + 1 / divisor])


def test_add_remove_holds_at_a_published_rate_and_fails_where_the_rate_follows_the_size():
    """n = 10 -> 9, B = 5, T = 20, canary +C and the others -C: the true likelihood against what is charged."""
    message = promised(PerSample(rate=0.5, divisor=5.0, size_max=10), [10])
    std, rate = MULTIPLIER * float(message.sensitivity[0]), float(message.rate[0])
    charged = pld_eps(np.full(ROUNDS, MULTIPLIER), rate, DELTA, message.adjacency)
    sound, error = hockey_stick(charged, received(9, rate, True, 5), received(9, rate, False, 5), std)
    assert sound + 5 * error < DELTA
    followed, error = hockey_stick(charged, received(9, 5 / 10, True, 5), received(9, 5 / 9, False, 5), std)
    assert followed - 5 * error > 3 * DELTA  # so that the pair can tell: this is why the combination is refused
    with pytest.raises(InputError, match="add-remove"):
        per_sample(PerSample(batch=5, adjacency="add-remove"), small.model())


# --- mean square and room ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("batch", "size"), [(18, 1_000_000), (60, 6000), (5, 10)])
def test_the_mean_square_is_that_of_the_rate_as_drawn(batch, size):
    """Aligned gradients of norm C: E (count / B)^2 C^2 with a binomial count at the rounded rate."""
    message = promised(PerSample(2.0, batch), [size])
    law = stats.binom(size, message.rate[0])
    assert message.mean_square[0] == pytest.approx((law.mean() ** 2 + law.var()) * (2 / batch) ** 2, rel=1e-12)
    constants = promised(PerSample(2.0, rate=batch / size, divisor=float(batch), size_max=size), [size // 2])
    assert constants.mean_square[0] == pytest.approx(message.mean_square[0], rel=1e-12)


@pytest.mark.parametrize("options", [{"batch": 8}, {"batch": 18}, {"rate": 0.01, "divisor": 6.0, "size_max": 1000}])
def test_the_other_records_fill_the_room_with_less_than_the_stated_probability(options):
    """Exact binomial tails of all records but one, of three clients out of twelve; the parts add up below the tail."""
    config, size, of = PerSample(overflow_tail=1e-6, **options), 1000, 12
    room = rooms(config, 3, of, size)
    rate = float(on_grid(options.get("rate", options.get("batch", 0) / size)))
    full = stats.binom.sf(room.together - 1, 3 * size - 1, rate) + 3 * stats.binom.sf(room.own - 1, size - 1, rate)
    full += stats.binom.sf(room.tried - 1, 3 * size - 1, 2.0**-room.halvings)
    assert full <= 1e-6 * 3 / of
