"""Models: what is trained, as pure functions. JAX, float32.

A model of layers comes with a `ghost` (per-sample clipping without per-sample gradients); any other loss on any
pytree becomes a model by `from_loss`, and `per_sample(model)` gives both kinds one interface.

An l2 term is kept apart: `loss` is the data's part alone, `penalty` the rest, so that reports can show both and
clipping acts on what depends on the data.

>>> import jax
>>> model = build("cnn-mnist", (28, 28), classes=10)
>>> model.num_params
26010
>>> model.logits(model.init(jax.random.key(0)), jax.numpy.zeros((5, 28, 28))).shape
(5, 10)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
from annotated_types import Ge, Le, MaxLen

from otafl.core import kernels, validate
from otafl.core.errors import InputError
from otafl.tasks import ghost as ghosts
from otafl.tasks.ghost import AtOnce, Ghost, Loss
from otafl.tasks.layers import (
    ACTIVATIONS,
    Activation,
    Builder,
    Groups,
    Shape,
    as_image,
    average_pool,
    flatten,
    group_norm,
    relu,
    residual,
    sequence,
    tanh,
    tanh_pooled,
    uniform_draws,
    zero_logit,
)
from otafl.tasks.linear import Init, conv, dense
from otafl.tasks.losses import PerSample, cross_entropy

MOST_NUMBERS = 2**31 - 1  # in a model: array sizes that every backend can count
UNKNOWN_FOOTPRINT = 2**10  # of a model that is not made of layers


class Model(NamedTuple):
    """B samples, C classes; `params` is a pytree of float32 arrays."""

    name: str
    init: Callable[[jax.Array], Any]  # key -> params
    logits: Callable[[Any, jax.Array], jax.Array]  # params, x (B, ...) -> (B, C)
    loss: Loss  # params, x, y (B,) -> (), mean over the batch, without the l2 term
    num_params: int
    ghost: Ghost | None  # None: no way known but forming the gradients
    footprint: int  # numbers that one sample occupies while a layer works, roughly
    l2: float = 0.0  # penalty l2/2 * norm(params)^2, over all parameters
    sample_loss: PerSample = cross_entropy  # of the outputs: what `loss` is the mean of
    metric: str | None = None  # that results are told in; None: accuracy where there are classes, else the loss
    whole: Callable[[Any], Any] = lambda params: params  # params as `init` of an own model made them, with static parts
    along: Callable[..., Any] | None = None  # params, x -> (way, step) -> logits at params + step * way

    def __repr__(self) -> str:
        return f"<otafl model: {self.name}, {self.num_params:,} parameters>"


def count_params(init: Callable[[jax.Array], Any]) -> int:
    shapes = jax.tree.leaves(jax.eval_shape(lambda: init(jax.random.key(0))))  # nothing is compiled
    wrong = {str(leaf.dtype) for leaf in shapes} - {"float32"}
    if wrong:
        raise InputError(f"parameters must be float32 but init makes {', '.join(sorted(wrong))}")
    return sum(math.prod(leaf.shape) for leaf in shapes)


def from_layers(name: str, builder: Builder, in_shape: Shape, l2: float = 0.0) -> Model:
    """A classifier: layers that end in logits, under cross-entropy."""
    validate.not_negative("l2", l2)
    network = builder(tuple(in_shape))
    if network.draws > MOST_NUMBERS:
        raise InputError(f"task.model {name}: {network.draws:.3g} parameters must be at most {MOST_NUMBERS:,}")

    def init(key: jax.Array) -> Any:
        return network.init(uniform_draws(key, network.draws))

    def forward(params: Any, x: jax.Array) -> jax.Array:
        return network.forward(params, x, network.tap(x.shape[0]))[0]

    def logits(params: Any, x: jax.Array) -> jax.Array:
        if not network.images:
            return forward(params, x)
        return network.predict(params, jnp.swapaxes(x, 0, -1)).T

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        return cross_entropy(forward(params, x), y).mean()

    ghost = ghosts.of_network(network, cross_entropy)
    return Model(name, init, logits, loss, count_params(init), ghost, network.footprint, l2)


def from_loss(
    init: Callable[[jax.Array], Any],
    loss: Loss,
    logits: Callable[[Any, jax.Array], jax.Array],
    name: str = "custom",
    l2: float = 0.0,
) -> Model:
    """Any differentiable loss on any pytree. `loss(params, x, y)` must be a mean over the batch."""
    validate.not_negative("l2", l2)
    return Model(name, init, logits, loss, count_params(init), None, UNKNOWN_FOOTPRINT, l2)


def per_sample(model: Model) -> Ghost:
    """Sums and norms of per-sample gradients of the data's loss: the model's ghost, or by forming them."""
    return model.ghost or ghosts.materialised(model.loss)


def sample_outputs(model: Model, params: Any, x: jax.Array) -> jax.Array:
    """(B, C): somebody else's model sees every sample by itself, so that none has a say in the others' outputs."""
    if model.ghost is not None:
        return model.logits(params, x)
    return jax.vmap(lambda one: model.logits(params, one[None])[0])(x)


def sample_losses(model: Model, params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """The data's loss of every sample, (B,): a network's from one pass over all of them."""
    if model.ghost is not None:
        return model.sample_loss(model.logits(params, x), y)
    return jax.vmap(lambda a, b: model.loss(params, a[None], b[None]))(x, y)


def losses_along(model: Model, params: Any, x: jax.Array, y: jax.Array) -> Callable[[Any, jax.Array], jax.Array]:
    """(way, step) -> the losses of every sample at params + step * way, (B,); for many ways from one place."""
    if model.along is not None and jax.default_backend() == "cpu":
        outputs = model.along(params, x)
        return lambda way, step: model.sample_loss(outputs(way, step), y)

    def losses(way: Any, step: jax.Array) -> jax.Array:
        return sample_losses(model, jax.tree.map(lambda p, d: p + step * d, params, way), x, y)

    return losses


def penalty(model: Model, params: Any) -> jax.Array:
    """l2/2 * norm(params)^2, the other part of the objective."""
    squares = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))
    return 0.5 * model.l2 * jnp.asarray(squares, jnp.float32)


def client_gradients(model: Model, params: Any, x: jax.Array, y: jax.Array, w: jax.Array) -> Any:
    """Each client's weighted gradient, sum_i w_ki grad(loss_ki + penalty), for one common model.

    x (K, B, ...), y (K, B), w (K, B), zero for padding; weights that sum to 1 per client give its mean gradient.
    Returns a pytree like `params` with leading axis K.
    """
    if model.ghost is not None:
        saved = model.ghost.trace(params, x.reshape(-1, *x.shape[2:]), y.reshape(-1))
        sums = model.ghost.sums(saved, Groups(w))
    else:
        sums = jax.vmap(lambda xk, yk, wk: _weighted_gradient(model.loss, params, xk, yk, wk))(x, y, w)
    return sums if model.l2 == 0 else penalised(model, params, sums, w.sum(axis=1))


def penalised(model: Model, params: Any, sums: Any, mass: jax.Array) -> Any:
    """Sums of gradients of the data's loss, with the penalty's for weights that sum to `mass` (K,)."""
    return jax.tree.map(lambda s, p: s + model.l2 * mass.reshape(-1, *[1] * p.ndim) * p, sums, params)


def _weighted_gradient(loss: Loss, params: Any, x: jax.Array, y: jax.Array, w: jax.Array) -> Any:
    def weighted(p: Any) -> jax.Array:
        return jnp.dot(w, jax.vmap(lambda a, b: loss(p, a[None], b[None]))(x, y))

    return jax.grad(weighted)(params)


@dataclass(frozen=True)
class OwnOptions:
    """Nothing to set: the model is a value."""


def own(options: OwnOptions, in_shape: Shape, classes: int) -> Model:
    raise InputError("task.model 'own' is not in the file: it is given in Python, by otafl.run(..., model=...)")


@dataclass(frozen=True)
class LogisticOptions:
    init: Init = "zero"
    l2: float = 0.0


@dataclass(frozen=True)
class MlpOptions:
    hidden: Annotated[tuple[Annotated[int, Ge(1), Le(2**20)], ...], MaxLen(100)] = (128,)
    activation: Activation = "relu"
    init: Init = "he"
    zero_output_init: bool = False  # starts at loss ln C exactly
    l2: float = 0.0


@dataclass(frozen=True)
class CnnOptions:
    init: Init = "uniform"
    l2: float = 0.0


@dataclass(frozen=True)
class ResnetOptions:
    depth: Annotated[int, Ge(8), Le(1202)] = 20  # 6 n + 2
    width: Annotated[int, Ge(1), Le(2**14)] = 16  # channels of the first stage; then twice and four times as many
    groups: Annotated[int, Ge(1), Le(2**14)] = 8
    l2: float = 0.0


def _dense_chain(model: Model, widths: tuple[int, ...], activation: Activation) -> Model:
    """The model with what networks of dense layers can do besides, some of it on a GPU alone."""

    def at_once(slots: int) -> AtOnce | None:
        if not kernels.compiled_here():
            return None
        from otafl.tasks import one_kernel

        return one_kernel.of_dense(widths, activation, slots)

    def logits(params: Any, x: jax.Array) -> jax.Array:
        if at_once(1) is None:
            return model.logits(params, x)
        from otafl.tasks import one_kernel

        flat = x.reshape(x.shape[0], -1).astype(jnp.float32)
        return one_kernel.logits([own for own in params if own], activation, flat)

    def along(params: Any, x: jax.Array) -> Callable[[Any, jax.Array], jax.Array]:
        """What the first layer makes of the samples is linear in its parameters: one product for both directions."""
        first, *rest = [own for own in params if own]
        flat, act = x.reshape(x.shape[0], -1), {"relu": jax.nn.relu, "tanh": jnp.tanh}[activation]
        start, slope = jax.linearize(lambda own: flat @ own["w"] + own["b"], first)

        def outputs(way: Any, step: jax.Array) -> jax.Array:
            ahead, *others = [own for own in way if own]
            z: jax.Array = start + step * slope(ahead)
            for own, other in zip(rest, others):
                z = act(z) @ (own["w"] + step * other["w"]) + (own["b"] + step * other["b"])
            return z

        return outputs

    assert model.ghost is not None
    return model._replace(logits=logits, along=along, ghost=model.ghost._replace(at_once=at_once))


def logistic(options: LogisticOptions, in_shape: Shape, classes: int) -> Model:
    """Multinomial logistic regression."""
    net = sequence(flatten, dense(classes, options.init))
    return _dense_chain(from_layers("logistic", net, in_shape, options.l2), (math.prod(in_shape), classes), "relu")


def binary_logistic(options: LogisticOptions, in_shape: Shape, classes: int) -> Model:
    """One logit for two classes: d = inputs + 1 (785 for 28x28 images, as EEZOFL)."""
    if classes != 2:
        raise InputError(f"classes={classes} must be 2 for binary-logistic; choose two labels or use logistic")
    net = sequence(flatten, dense(1, options.init), zero_logit)
    return from_layers("binary-logistic", net, in_shape, options.l2)


def mlp(options: MlpOptions, in_shape: Shape, classes: int) -> Model:
    """Dense layers with one activation between them."""
    validate.one_of("activation", options.activation, ACTIVATIONS)
    parts: list[Builder] = [flatten]
    for units in options.hidden:
        parts += [dense(units, options.init), ACTIVATIONS[options.activation]]
    parts.append(dense(classes, "zero" if options.zero_output_init else options.init))
    model = from_layers("mlp", sequence(*parts), in_shape, options.l2)
    return _dense_chain(model, (math.prod(in_shape), *options.hidden, classes), options.activation)


def cnn_mnist(options: CnnOptions, in_shape: Shape, classes: int) -> Model:
    """The small CNN of the DP-SGD literature: 26,010 parameters on 28x28 images with 10 classes."""
    net = sequence(
        as_image,
        conv(16, 8, stride=2, pad=3, init=options.init), tanh_pooled(2, 1),
        conv(32, 4, stride=2, init=options.init), tanh_pooled(2, 1),
        flatten, dense(32, options.init), tanh, dense(classes, options.init),
    )  # fmt: skip
    return from_layers("cnn-mnist", net, in_shape, options.l2)


def cnn_cifar(options: CnnOptions, in_shape: Shape, classes: int) -> Model:
    """The larger CNN of the DP-SGD literature: 550,570 parameters on 32x32x3 images with 10 classes."""
    parts: list[Builder] = [as_image]
    for channels in (32, 64, 128):
        parts += [conv(channels, 3, pad=1, init=options.init), tanh]
        parts += [conv(channels, 3, pad=1, init=options.init), tanh_pooled(2, 2)]
    parts += [flatten, dense(128, options.init), tanh, dense(classes, options.init)]
    return from_layers("cnn-cifar", sequence(*parts), in_shape, options.l2)


def resnet(options: ResnetOptions, in_shape: Shape, classes: int) -> Model:
    """Residual network for small images, GroupNorm for BatchNorm (which has no per-sample gradient)."""
    blocks, rest = divmod(options.depth - 2, 6)
    if rest or blocks < 1:
        raise InputError(f"depth={options.depth} must be 6 n + 2 with n >= 1")

    def unit(channels: int, stride: int = 1) -> Builder:
        return sequence(conv(channels, 3, stride, pad=1, bias=False), group_norm(options.groups))

    parts: list[Builder] = [as_image, unit(options.width), relu]
    for stage in range(3):
        channels = options.width * 2**stage
        for block in range(blocks):
            stride = 2 if stage and block == 0 else 1
            parts += [residual(sequence(unit(channels, stride), relu, unit(channels))), relu]
    parts += [average_pool, dense(classes)]
    return from_layers(f"resnet-{options.depth}", sequence(*parts), in_shape, options.l2)


class ModelKind(NamedTuple):
    summary: str  # one line for `otafl list`
    options: type  # frozen dataclass
    make: Callable[[Any, Shape, int], Model]  # options, shape of one sample, classes


MODELS: dict[str, ModelKind] = {
    "logistic": ModelKind("multinomial logistic regression", LogisticOptions, logistic),
    "binary-logistic": ModelKind("logistic regression with one logit, two classes", LogisticOptions, binary_logistic),
    "mlp": ModelKind("dense layers, ReLU or tanh", MlpOptions, mlp),
    "cnn-mnist": ModelKind("tanh CNN, 26,010 parameters on MNIST", CnnOptions, cnn_mnist),
    "cnn-cifar": ModelKind("tanh CNN, 550,570 parameters on CIFAR-10", CnnOptions, cnn_cifar),
    "resnet": ModelKind("ResNet-20 and deeper with GroupNorm, option-A shortcuts", ResnetOptions, resnet),
    "own": ModelKind("your own, given in Python: otafl.model", OwnOptions, own),
}


def build(name: str, in_shape: Shape, classes: int, **options: Any) -> Model:
    """A model by name; keyword options are those of its options class.

    >>> build("mlp", (64,), classes=10, hidden=(128,)).num_params
    9610
    """
    validate.one_of("model", name, MODELS)
    validate.whole("classes", classes, low=2)
    kind = MODELS[name]
    return kind.make(kind.options(**options), tuple(in_shape), classes)
