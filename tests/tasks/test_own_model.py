"""Own models: any pytree, static parts, float32 whatever the scope, losses by name; per-sample sums in parts."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.buffer_callback import buffer_callback
from jax.extend.core import Primitive
from jax.interpreters import batching

import otafl
from otafl.core.errors import InputError
from otafl.tasks import ghost, own_model
from otafl.tasks.layers import Groups, tanh
from otafl.tasks.losses import LOSSES, METRICS
from otafl.tasks.models import build, client_gradients, per_sample, sample_losses, sample_outputs
from otafl.tasks.own_model import model


def linear(**options):
    return model(
        lambda key: {"w": jax.random.normal(key, (4, 3)), "b": jnp.zeros(3)},
        lambda p, x: x @ p["w"] + p["b"],
        **options,
    )


X = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
Y = np.arange(12, dtype=np.int32) % 3


def test_it_is_the_same_model_inside_a_scope_of_double_precision():
    net = linear()
    outside = net.init(jax.random.key(3)), net.loss(net.init(jax.random.key(3)), X, Y)
    with jax.enable_x64(True):
        inside = jax.jit(lambda k: (net.init(k), jax.grad(net.loss)(net.init(k), X, Y)))(jax.random.key(3))
        value = net.loss(inside[0], X, Y)
    assert {leaf.dtype for leaf in jax.tree.leaves(inside)} == {np.dtype("float32")} and value.dtype == jnp.float32
    np.testing.assert_array_equal(inside[0]["w"], outside[0]["w"])
    np.testing.assert_allclose(value, outside[1], rtol=1e-6)


def test_doubles_of_numpy_are_what_jax_makes_of_them():
    """A function that does without JAX ended in a dump of the compiler, inside the scope of double precision."""
    made = model(lambda key: {"w": jnp.zeros(3)}, lambda params, x: np.zeros((len(x), 3)))
    data = otafl.task(X, Y, clients=2, held_out=(X, Y))
    found = otafl.run(task=data, model=made, schemes=["fedavg"], rounds=1, seeds=1, progress=False)
    assert found.table["accuracy"].tolist() == [0.3]


def test_what_is_no_float_array_stays_as_it_was_made():
    class Net:
        def __init__(self, w, act, steps):
            self.w, self.act, self.steps = w, act, steps

    jax.tree_util.register_pytree_node(Net, lambda n: ((n.w, n.act, n.steps), None), lambda _, c: Net(*c))
    net = model(lambda key: Net(jax.random.normal(key, (4, 3)), jnp.tanh, jnp.arange(2)), lambda n, x: n.act(x @ n.w))
    params = net.init(jax.random.key(1))
    assert net.num_params == 12 and len(jax.tree.leaves(params)) == 1
    np.testing.assert_allclose(net.logits(params, X), np.tanh(X @ np.asarray(params[0])), rtol=1e-5)
    whole = net.whole(params)
    assert isinstance(whole, Net) and whole.act is jnp.tanh


def test_losses_and_metrics_against_their_definitions():
    rng = np.random.default_rng(1)
    z, t = rng.normal(size=(7, 2)) * 3, rng.normal(size=(7, 2))
    expected = {"mse": ((z - t) ** 2).mean(1), "mae": np.abs(z - t).mean(1)}
    e = np.abs(z - t)
    expected["huber"] = np.where(e < 1, e**2 / 2, e - 0.5).mean(1)
    for name, value in expected.items():
        np.testing.assert_allclose(LOSSES[name].of(jnp.asarray(z), jnp.asarray(t)), value, rtol=1e-5)
    b = (t[:, 0] > 0).astype(int)
    p = 1 / (1 + np.exp(-z[:, :1]))[:, 0]
    expected = -np.where(b, np.log(p), np.log(1 - p))
    np.testing.assert_allclose(LOSSES["binary-cross-entropy"].of(jnp.asarray(z[:, :1]), jnp.asarray(b)), expected, 1e-5)
    np.testing.assert_array_equal(METRICS["accuracy"].of(jnp.asarray(z[:, :1]), jnp.asarray(b)), (z[:, 0] > 0) == b)
    np.testing.assert_array_equal(METRICS["accuracy"].of(jnp.asarray(z), jnp.asarray(b)), z.argmax(1) == b)


def test_gradients_are_those_of_the_same_network_of_layers():
    layers = build("logistic", (4,), 3)
    own = model(layers.init, layers.logits)
    params, w = layers.init(jax.random.key(0)), np.full((3, 4), 0.25, np.float32)
    args = (X.reshape(3, 4, 4), Y.reshape(3, 4), w)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6),
        *(jax.jit(partial(client_gradients, net))(params, *args) for net in (layers, own)),
    )  # fmt: skip


@pytest.mark.parametrize("slots", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_gradients_formed_in_parts_are_those_formed_at_once(monkeypatch, slots):
    net = linear()
    params, made = net.init(jax.random.key(0)), per_sample(net)
    w = np.random.default_rng(2).random((3, 4)).astype(np.float32)
    order = np.random.default_rng(3).permutation(12).reshape(3, 4)
    groups = Groups(jnp.asarray(w), jnp.asarray(order) if slots else None)

    def formed():
        def compute(params):
            saved = made.trace(params, X, Y)
            return saved.kept, made.sq_norms(saved), made.sums(saved, groups)

        return jax.jit(compute)(params)

    kept, norms, sums = formed()
    monkeypatch.setattr(ghost, "gradients_at_once", lambda params: 5)  # 12 samples in parts of 5, 5 and 2
    kept_of_parts, norms_of_parts, sums_of_parts = formed()
    assert "square" in kept_of_parts and "gradients" in kept
    np.testing.assert_allclose(norms_of_parts, norms, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), sums_of_parts, sums)


def test_a_sample_left_out_of_the_parts_leaves_nothing(monkeypatch):
    """log(x) has no gradient at zero: the place of a sample that was zeroed must not reach the sum as 0 times NaN."""
    net = model(lambda key: {"w": jnp.ones(4)}, lambda p, x: jnp.log(x) @ p["w"], loss="mse")
    made, params = per_sample(net), {"w": jnp.ones(4)}
    x = np.abs(X) + 0.1
    y = np.ones(12, np.float32)
    monkeypatch.setattr(ghost, "gradients_at_once", lambda params: 5)
    saved = made.trace(params, x, y)
    sound = np.arange(12) != 4
    kept = jax.tree.map(lambda leaf: jnp.where(sound.reshape(-1, *[1] * (leaf.ndim - 1)), leaf, 0), saved.kept)
    got = made.sums(saved._replace(kept=kept), Groups(jnp.ones((1, 12))))["w"][0]
    errors = np.log(x).sum(1) - y
    np.testing.assert_allclose(got, (2 * errors[:, None] * np.log(x))[sound].sum(0), rtol=1e-4)


def norms_in_sums(made, saved, weights):
    """Norm of each sample's part of the sums, one group for each."""
    sums = made.sums(saved, Groups(weights[:, None]))
    return np.sqrt(sum(np.sum(np.asarray(leaf, float) ** 2, axis=tuple(range(1, leaf.ndim))) for leaf in sums.values()))


@pytest.mark.parametrize("factor", [100.0, np.nan])
def test_no_gradient_is_longer_in_the_sums_than_it_was_measured(monkeypatch, factor):
    """Whatever the second forming makes of a sample: here it is that of another model."""
    monkeypatch.setattr(ghost, "gradients_at_once", lambda params: 5)
    net = linear()
    params, made = net.init(jax.random.key(0)), per_sample(net)
    saved = made.trace(params, X, Y)
    other = saved._replace(params=jax.tree.map(lambda leaf: leaf * factor, params))
    found = norms_in_sums(made, other, jnp.ones(12))
    assert np.all(found <= np.sqrt(made.sq_norms(saved)) * (1 + 1e-6))
    assert np.any(found > 0) == np.isfinite(factor)


@pytest.mark.released
def test_a_record_at_an_edge_is_clipped_also_where_gradients_are_formed_twice(monkeypatch):
    """Logits that are equal but for rounding: a part of another size may round them to another winner."""
    monkeypatch.setattr(ghost, "gradients_at_once", lambda params: 4)
    rng = np.random.default_rng(0)
    net = model(lambda key: {"w": jax.random.normal(key, (256, 3))}, lambda p, x: x @ p["w"])
    params, made = net.init(jax.random.key(1)), per_sample(net)
    apart = np.asarray(params["w"], float) @ np.array([[1, 1], [-1, 0], [0, -1]])

    @jax.jit
    def clipped(params, x, y):
        saved = made.trace(params, x, y)
        norms = jnp.sqrt(made.sq_norms(saved))
        return made.sums(saved, Groups(jnp.where(norms > 1, 1 / norms, 1)[:, None]))["w"]

    for size in (1e6, 1e7, 1e8):
        x = rng.normal(size=(33, 256)) * size
        x = (x - x @ apart @ np.linalg.solve(apart.T @ apart, apart.T)).astype(np.float32)
        found = clipped(params, jnp.asarray(x), jnp.asarray(rng.integers(0, 3, 33).astype(np.int32)))
        assert np.max(np.linalg.norm(np.asarray(found, float).reshape(33, -1), axis=1)) < 1 + 1e-5


def wordless(params, x):
    raise ValueError


@pytest.mark.parametrize(
    ("made", "y", "classes", "said"),
    [
        (lambda: linear(loss=lambda z, y: jnp.mean(z)), Y, 3, "one per sample"),
        (lambda: linear(), Y, 7, "3 outputs for 7 classes"),
        (lambda: model(lambda k: jnp.zeros((4, 1)), lambda p, x: x @ p), Y % 2, 2, "one output in all; .*'binary-"),
        (lambda: model(lambda k: jnp.zeros(4), lambda p, x: x @ p), Y % 2, 2, "one output in all; .*'binary-"),
        (lambda: linear(metric="accuracy", loss="mse"), X[:, :3], 0, "needs labels"),
        (lambda: linear(loss="mse"), X[:, 0], 0, "fails on"),
        (lambda: model(lambda k: {"w": jnp.zeros((9, 3))}, lambda p, x: x @ p["w"]), Y, 3, "fails on"),
        (lambda: model(lambda k: {"w": jnp.zeros(3)}, lambda p, x: p["w"]), Y, 3, "fails on|must return"),
        (lambda: linear(loss=lambda z, y: (z[:, 0],)), Y, 3, "one per sample"),
        (lambda: linear(loss=lambda z, y: None), Y, 3, "one per sample"),
        (lambda: linear(loss=lambda z, y: np.zeros(3, np.float32)), Y, 3, "one per sample"),
        (lambda: model(lambda k: {"w": jnp.zeros(3)}, wordless), Y, 3, "fails on .*: ValueError"),
    ],
)
def test_a_model_that_does_not_fit_its_data_is_refused_in_one_line(made, y, classes, said):
    with pytest.raises(InputError, match=said) as refusal:
        own_model.check(made(), X, y, classes)
    assert "\n" not in str(refusal.value)


def neighbours(x):
    """A value that every sample of a batch puts something into, once it is mapped over."""
    rule = jax.custom_batching.custom_vmap(lambda v: v)
    rule.def_vmap(lambda size, batched, v: (v + v.sum(0, keepdims=True), True))
    return rule(x)


def on_the_host(x, method="expand_dims"):
    return jax.pure_callback(np.asarray, jax.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method=method)


def by_buffers(x):
    like = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return buffer_callback(lambda ctx, out, v: None, like, vmap_method="expand_dims")(x)


def of_its_own(x):
    """An operation that JAX does not know: its rule for batches is whatever somebody wrote."""
    looks = Primitive("looks")
    looks.def_abstract_eval(lambda v: v)
    batching.primitive_batchers[looks] = lambda args, dims: (args[0] + args[0].sum(0, keepdims=True), dims[0])
    return looks.bind(jax.lax.stop_gradient(x))


@jax.custom_vjp
def backwards(x):
    return x


backwards.defvjp(lambda x: (x, ()), lambda kept, err: (on_the_host(err),))


@pytest.mark.parametrize(
    "apply",
    [
        lambda p, x: neighbours(x) @ p["w"],
        lambda p, x: on_the_host(jax.lax.stop_gradient(x)) @ p["w"],
        lambda p, x: by_buffers(jax.lax.stop_gradient(x)) @ p["w"],
        lambda p, x: backwards(x @ p["w"]),
        lambda p, x: jax.lax.scan(lambda c, _: (on_the_host(c, "sequential"), None), x, None, 2)[0] @ p["w"],
        lambda p, x: jax.jit(lambda v: neighbours(v))(x) @ p["w"],
        lambda p, x: of_its_own(x) @ p["w"],
    ],
)
def test_a_model_that_may_look_at_other_samples_is_refused(apply):
    net = model(lambda key: {"w": jax.random.normal(key, (4, 3))}, apply)
    with pytest.raises(InputError, match=r"may look at other samples of a batch|has no gradient"):
        own_model.check(net, X, Y, 3)


def test_a_rule_for_batches_would_mix_the_gradients_of_samples():
    """Why it is refused: another sample in the batch changes a sample's own gradient."""
    net = model(lambda key: {"w": jax.random.normal(key, (4, 3))}, lambda p, x: neighbours(x) @ p["w"])
    params, of = net.init(jax.random.key(0)), per_sample(net)
    norms = [of.sq_norms(of.trace(params, x, Y[:2])) for x in (X[:2], np.stack([X[0], X[5]]))]
    assert not np.allclose(norms[0][0], norms[1][0])


def test_what_was_looked_at_is_what_runs():
    """A function that hands samples to the host as soon as nobody looks any more."""
    state = {"looking": True}

    def apply(p, x):
        return (x if state["looking"] else on_the_host(jax.lax.stop_gradient(x))) @ p["w"] + p["b"]

    honest = linear()
    held, _ = own_model.check(model(honest.init, apply), X, Y, 3)
    state["looking"] = False
    params = honest.init(jax.random.key(0))
    with jax.enable_x64(True):  # as rounds are
        programs = [str(jax.make_jaxpr(per_sample(net).trace)(params, X, Y)) for net in (held, honest)]
        other = (partial(sample_losses, held), (X, Y)), (partial(sample_outputs, held), (X,))
        programs += [str(jax.make_jaxpr(function)(params, *data)) for function, data in other]
        found, wanted = (per_sample(net).trace(params, X, Y) for net in (held, honest))
    assert not any("callback" in program for program in programs)
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, found, wanted)))


def test_norms_that_somebody_else_claims_are_refused():
    mlp = build("mlp", (4,), 3, hidden=(5,))
    own_model.check(mlp, X, Y, 3)
    lying = mlp.ghost._replace(sq_norms=lambda saved: jnp.zeros(saved.loss.shape))
    with pytest.raises(InputError, match="from outside otafl"):
        own_model.check(mlp._replace(ghost=lying), X, Y, 3)


@pytest.mark.parametrize("wrap", [lambda loss: loss, jax.jit, lambda loss: partial(loss)])
def test_a_loss_of_ones_own_inside_otafls_network_is_refused(wrap):
    """One that compares samples with each other: no sample's gradient is its own."""
    mlp = build("mlp", (4,), 3, hidden=(5,))
    loss = wrap(lambda z, y: jnp.sum((z - z.mean(0)) ** 2, axis=1))
    for brought in ({"ghost": ghost.of_network(tanh((4,)), loss)}, {"sample_loss": loss}):
        with pytest.raises(InputError, match="from outside otafl"):
            own_model.check(mlp._replace(**brought), X, Y, 3)


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [("logistic", (4,), 3), ("binary-logistic", (4,), 2), ("cnn-mnist", (28, 28, 1), 10),
     ("cnn-cifar", (32, 32, 3), 10), ("resnet", (32, 32, 3), 10)],
)  # fmt: skip
def test_networks_by_name_may_be_brought_as_values(name, shape, classes):
    net = build(name, shape, classes)
    own_model.check(net, np.zeros((3, *shape), np.float32), np.zeros(3, np.int32), classes)


def test_a_model_of_whole_numbers_or_of_no_functions_is_refused():
    with pytest.raises(InputError, match="at least one"):
        model(lambda key: jnp.arange(3), lambda p, x: x)
    with pytest.raises(InputError, match="two functions"):
        model({"w": 1}, lambda p, x: x)
    with pytest.raises(InputError, match="loss"):
        linear(loss="crossentropy")


@pytest.mark.parametrize(
    ("init", "options", "said"),
    [
        (lambda k: 1 / 0, {}, "model own: init fails: division by zero"),
        (lambda k: [jnp.zeros((4, 1 + int(jax.random.randint(k, (), 0, 9))))], {}, "init fails: Abstract tracer"),
        (lambda k: [np.random.default_rng().normal(size=(4, 3))], {}, "other numbers of the same key"),
        (lambda k: [jnp.zeros((4, 3))], {"footprint": 0}, "footprint=0"),
        (lambda k: [jnp.zeros((4, 3))], {"footprint": "all"}, "footprint"),
        (lambda k: [jnp.zeros((4, 3))], {"name": "a\nb"}, "one line"),
    ],
)
def test_an_init_or_a_word_that_will_not_do_is_refused_in_one_line(init, options, said):
    with pytest.raises(InputError, match=said) as refusal:
        model(init, lambda p, x: x @ p[0], **options)
    assert "\n" not in str(refusal.value)


def test_the_fingerprint_knows_the_start_the_function_and_its_constants():
    def made(start=0.0, factor=1.0, shift=0.0):
        table = np.full(3, shift, np.float32)
        return model(lambda k: {"w": jnp.full((4, 3), start)}, lambda p, x: factor * (x @ p["w"]) + table)

    models = (made(), made(), made(1.0), made(0.0, 2.0), made(shift=1.0))
    prints = [own_model.fingerprint(m, X, Y) for m in models]
    assert prints[0] == prints[1] and len(set(prints)) == 4


def test_the_fingerprint_knows_what_is_inside_jitted_functions_the_gradient_and_the_penalty():
    """A constant of a jitted function, another rule for its gradient or l2 made another run under the same hash."""

    def made(factor=1.0, slope=1.0, l2=0.0, metric=None, many=1.0):
        table = jnp.full(3, factor)

        @jax.custom_vjp
        def steep(outputs):
            return outputs

        steep.defvjp(lambda outputs: (outputs, None), lambda _, by: (slope * by,))
        inner = jax.jit(lambda p, x: x @ p["w"] * table)
        apply = lambda p, x: steep(inner(p, x)) * (many if x.shape[0] > 1 else 1.0)  # noqa: E731
        return model(lambda k: {"w": jnp.ones((4, 3))}, apply, l2=l2, metric=metric)

    changes = ({}, {}, {"factor": 2.0}, {"slope": 2.0}, {"l2": 0.1}, {"metric": "loss"}, {"many": 2.0})
    prints = [own_model.fingerprint(made(**change), X, Y) for change in changes]
    assert prints[0] == prints[1] and len(set(prints)) == 6
