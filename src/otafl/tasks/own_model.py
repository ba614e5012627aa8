"""A model of your own: a pytree and a function. Plain JAX, flax, equinox, haiku, anything that makes a pytree.

    model(init, apply)                                       flax: model(lambda key: net.init(key, x[:1]), net.apply)
    model(lambda key: eqx.nn.MLP(4, 3, 8, 1, key=key), lambda net, x: jax.vmap(net)(x))

What `init` makes is trained where it is a floating-point array; everything else in it (activation functions, shapes,
whole numbers) stays as the first call made it.
"""

import hashlib
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive, jaxpr_as_fun, jaxprs_in_params

from otafl.core import validate
from otafl.core.authors import program_digest
from otafl.core.errors import InputError, first_line
from otafl.tasks.losses import LOSSES, METRICS, PerSample
from otafl.tasks.models import UNKNOWN_FOOTPRINT, Model, count_params

BATCH = 7  # a length that no constant of theirs is likely to have
WINDOWS = {  # what is told, when samples are mapped over, of all of them
    "pure_callback": "a call of the host",
    "io_callback": "a call of the host",
    "buffer_callback": "a call of the host",
    "ffi_call": "a call of foreign code",
    "custom_vmap_call": "a rule of its own for batches",
}


def model(
    init: Callable[[jax.Array], Any],
    apply: Callable[[Any, jax.Array], jax.Array],
    *,
    loss: str | PerSample = "cross-entropy",
    metric: str | None = None,
    name: str = "own",
    l2: float = 0.0,
    footprint: int = UNKNOWN_FOOTPRINT,
) -> Model:
    """A model for `otafl.run` from a pytree and a function.

    Parameters
    ----------
    init : key -> params
        any pytree; its floating-point arrays, which must be float32, are trained
    apply : (params, x (B, ...)) -> outputs (B, ...)
        without randomness; a sample's output must not depend on the rest of the batch
    loss : str or function
        "cross-entropy", "binary-cross-entropy", "mse", "mae", "huber", or (outputs, y) -> (B,), one number per sample
    metric : str, optional
        what results are told in: accuracy, mse, mae, loss; default: what fits the loss
    l2 : float
        adds l2/2 norm(params)^2 to the objective
    footprint : int
        numbers that one sample occupies in the network, roughly: how many are evaluated at once follows from it

    Returns
    -------
    Model
        for `model=` of the verbs

    Examples
    --------
    >>> import jax, jax.numpy as jnp, otafl
    >>> net = otafl.model(lambda key: {"w": 0.1 * jax.random.normal(key, (4, 3)), "b": jnp.zeros(3)},
    ...                   lambda p, x: x @ p["w"] + p["b"])
    >>> net.num_params
    15
    """
    validate.not_negative("l2", l2)
    if not callable(init) or not callable(apply):
        raise InputError("a model is two functions: init(key) -> params and apply(params, x) -> outputs")
    if isinstance(loss, str):
        validate.one_of("loss", loss, LOSSES)
    if metric is not None:
        validate.one_of("metric", metric, METRICS)
    validate.whole("footprint", footprint)
    per_sample, told = (LOSSES[loss].of, LOSSES[loss].metric) if isinstance(loss, str) else (loss, None)
    if not isinstance(name, str) or not name.isprintable():
        raise InputError(f"name {name!r} must be one line of printable characters")
    try:
        first, whole = _parts(init)
        num_params = count_params(first)
    except InputError:
        raise
    except Exception as problem:  # whatever somebody else's function says
        raise InputError(f"model {name}: init fails: {first_line(problem)}") from None

    def outputs(params: Any, x: jax.Array) -> jax.Array:
        with jax.enable_x64(False):  # a run mixes precisions; what somebody else wrote expects JAX's own
            made = apply(whole(params), x)
            return jnp.asarray(made) if isinstance(made, np.ndarray) else made  # its doubles, too, are JAX's here

    def losses(made: jax.Array, y: jax.Array) -> jax.Array:
        if loss == "cross-entropy" and made.shape in (y.shape, (*y.shape, 1)):  # a softmax of one is sure of anything
            raise InputError(f"model {name}: one output in all; cross-entropy wants one per class, "
                             "loss='binary-cross-entropy' a single logit")  # fmt: skip
        with jax.enable_x64(False):
            return per_sample(made, y)

    def mean(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        return losses(outputs(params, x), y).mean()

    return Model(name, first, outputs, mean, num_params, None, footprint, l2, losses, metric or told, whole)


def _parts(init: Callable[[jax.Array], Any]) -> tuple[Callable[[jax.Array], Any], Callable[[Any], Any]]:
    """init of what is trained alone, and from that back to the whole pytree."""
    with jax.enable_x64(False):
        made, again = (init(jax.random.key(0)) for _ in range(2))
    leaves, tree = jax.tree.flatten(made)
    trains = [isinstance(leaf, jax.Array | np.ndarray) and jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves]
    if not any(trains):
        raise InputError("init must make at least one floating-point array to train")
    if _trained(leaves, trains) != _trained(jax.tree.leaves(again), trains):
        raise InputError("init makes other numbers of the same key: draw them by the key, or once and before")
    if all(trains):  # the pytree as it is: checkpoints and messages have its own structure
        return _in_float32(init), lambda params: params

    def first(key: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(leaf for leaf, own in zip(jax.tree.leaves(init(key)), trains) if own)

    def whole(params: tuple[jax.Array, ...]) -> Any:
        values = iter(params)
        return jax.tree.unflatten(tree, [next(values) if own else leaf for leaf, own in zip(leaves, trains)])

    return _in_float32(first), whole


def _trained(leaves: list[Any], trains: list[bool]) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf, own in zip(leaves, trains) if own]


def _in_float32(init: Callable[[jax.Array], Any]) -> Callable[[jax.Array], Any]:
    def made(key: jax.Array) -> Any:
        with jax.enable_x64(False):
            return jax.tree.map(jnp.asarray, init(key))

    return made


def metric_of(model: Model, classes: int) -> str:
    """What results of this model are told in."""
    return model.metric or ("accuracy" if classes else "loss")


def check(model: Model, x: np.ndarray, y: np.ndarray, classes: int) -> tuple[Model, str]:
    """Try a model on the shapes of the data: one loss per sample, outputs that fit the metric, which is returned.

    So is the model, held to the programs that were looked at.
    """
    batch = BATCH
    params = jax.eval_shape(model.init, jax.random.key(0))
    shapes = f"x {(batch, *x.shape[1:])}, y {(batch, *y.shape[1:])}"
    try:
        outputs = jax.eval_shape(model.logits, params, _like(x, batch))
        losses = jax.eval_shape(model.sample_loss, outputs, _like(y, batch))
    except InputError:
        raise
    except Exception as problem:  # whatever somebody else's function says about these shapes
        raise InputError(f"model {model.name}: fails on {shapes}: {first_line(problem)}") from None
    if getattr(outputs, "shape", (0,))[:1] != (batch,):
        raise InputError(f"model {model.name}: apply must return (B, ...) but made {_shown(outputs)} of {shapes}")
    if getattr(losses, "shape", None) != (batch,) or losses.dtype != jnp.float32:
        raise InputError(f"model {model.name}: loss must be float32, one per sample (B,), but is {_shown(losses)}")
    held = _held(model, params, x, y)
    metric = metric_of(model, classes)
    if metric == "accuracy":
        wide = 1 if len(outputs.shape) == 1 else outputs.shape[1]
        if not classes:
            raise InputError(f"model {model.name}: metric 'accuracy' needs labels; the targets are {y.dtype} {y.shape}")
        if wide < classes and not (wide == 1 and classes == 2):
            raise InputError(f"model {model.name}: {wide} outputs for {classes} classes")
    elif (of := METRICS[metric].of) is not None:
        try:
            jax.eval_shape(of, outputs, _like(y, batch))
        except TypeError:
            raise InputError(
                f"model {model.name}: metric {metric!r} cannot compare outputs {outputs.shape} with {shapes}"
            ) from None
    return held, metric


def _held(model: Model, params: Any, x: np.ndarray, y: np.ndarray) -> Model:
    """The model with its functions of one sample as programs, which were looked at: a function that does otherwise the
    next time it is asked is not asked.

    Samples, and clients, are mapped over: what has a rule of its own for that sees all of them at once. A gradient that
    looks at other samples is no sample's own, and clipping it bounds nothing that one sample does.
    """
    if model.ghost is not None:  # samples are computed together
        if not _all_ours((model.ghost, model.logits, model.loss, model.sample_loss), []):
            raise InputError(
                f"model {model.name}: norms of gradients from outside otafl are nobody's promise; ghost=None"
            )
        return model
    one = (params, _like(x, 1), _like(y, 1))
    value, outputs = _program(model, model.loss, *one), _program(model, model.logits, *one[:2])
    both = _program(model, jax.value_and_grad(model.loss), *one)
    loss = jax.custom_vjp(lambda *args: value(*args))
    loss.defvjp(both, lambda gradient, by: (jax.tree.map(lambda leaf: by * leaf, gradient), None, None))

    def logits(params: Any, x: jax.Array) -> jax.Array:
        return (outputs if x.shape[0] == 1 else model.logits)(params, x)  # else on held-out samples alone

    return model._replace(loss=loss, logits=logits)


def _program(model: Model, function: Callable[..., Any], *shapes: Any) -> Callable[..., Any]:
    """A function as the program that JAX makes of it; refused if an operation in it may look at other samples."""
    try:
        program, made = jax.make_jaxpr(function, return_shape=True)(*shapes)
    except Exception as problem:  # whatever somebody else's function says
        raise InputError(f"model {model.name}: has no gradient on these shapes: {first_line(problem)}") from None
    known = {id(one) for name, module in [*sys.modules.items()] if name.partition(".")[0] == "jax"
             for one in [*vars(module).values()] if isinstance(one, Primitive)}  # fmt: skip
    for one in sorted(_primitives(program.jaxpr), key=lambda one: one.name):
        window = WINDOWS.get(one.name) if id(one) in known else "an operation of its own"
        if window:
            raise InputError(
                f"model {model.name}: {window} ({one.name}) may look at other samples of a batch, so clipping a "
                "sample's gradient would promise nothing; write it in plain JAX"
            )
    run = jaxpr_as_fun(program)
    return lambda *args: jax.tree.unflatten(jax.tree.structure(made), run(*jax.tree.leaves(args)))


def _all_ours(value: Any, seen: list[Any]) -> bool:
    """Whether functions, and all functions that they hold, are otafl's or JAX's: a loss of one's own is inside too."""
    value = getattr(value, "__wrapped__", value)
    if isinstance(value, tuple):
        return all(_all_ours(one, seen) for one in value)
    if not callable(value) or any(value is one for one in seen):
        return True
    held = [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
    home = str(getattr(value, "__globals__", {}).get("__name__", type(value).__module__)).partition(".")[0]
    return home in ("otafl", "jax", "jaxlib") and _all_ours(tuple(held), [*seen, value])


def _primitives(program: Any) -> set[Primitive]:
    """All primitives of a program, those inside others too."""
    inside = [part for equation in program.eqns for part in jaxprs_in_params(equation.params)]
    return {equation.primitive for equation in program.eqns}.union(*map(_primitives, inside))


def _like(samples: np.ndarray, batch: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((batch, *samples.shape[1:]), samples.dtype)


def _shown(value: Any) -> str:
    return f"{getattr(value, 'dtype', type(value).__name__)} {getattr(value, 'shape', '')}".strip()


def fingerprint(model: Model, x: np.ndarray, y: np.ndarray) -> str:
    """SHA-256 of what a model computes (loss, gradient, outputs as programs), of what is told, and where it starts."""
    start = model.init(jax.random.key(0))
    programs = (
        program_digest(jax.value_and_grad(model.loss), start, _like(x, 1), _like(y, 1)),
        program_digest(model.logits, start, _like(x, BATCH)),
    )
    digest = hashlib.sha256(f"{programs} {model.l2!r} {model.metric}".encode())
    for leaf in jax.tree.leaves(start):
        digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()
