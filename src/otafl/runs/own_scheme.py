"""A scheme of your own in about twenty lines: one function of what is known in a round, registered by its name.

    @otafl.scheme("power-share", csi="own")
    def power_share(obs, deployment, message, *, share: float = 0.5):
        \"\"\"Everyone sends at the same share of its energy, phases aligned.\"\"\"
        level = np.sqrt(share * deployment.energy) / message.bound
        return {"tx": level * np.exp(-1j * np.angle(obs.estimate)), "rx_scale": np.sum(level * obs.rms, axis=-1)}

    otafl.run(task=task, schemes=[power_share(share=0.1)], ...)

Its keyword parameters are the settings of the scheme, also in experiment files. A scheme with a state, or one that
looks at the learning, returns a whole `Policy`: see `otafl.systems.register`.
"""

import dataclasses
import inspect
import keyword
from collections import namedtuple
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from otafl import systems
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.core.plan import Context, Deployment, Gate, Message, Obs, Plan, Policy, silent_by_bound
from otafl.core.validate import masked
from otafl.runs.schemes import Factory, factory_named

KNOWN = ("obs", "deployment", "message", "context")


def scheme(
    name: str, *, csi: str = "own", gate: Gate = "bound", summary: str = "", private: bool = True
) -> Callable[[Callable[..., Any]], Factory]:
    """Make a function a scheme: `@otafl.scheme("my-scheme")`.

    Parameters
    ----------
    name : str
        how tables and experiment files call it; giving a name again replaces your earlier scheme
    csi : "none", "statistical", "own" or "global"
        what `obs` shows of the channel; the rest is NaN. With "own", entry k may depend on `estimate[k]` only and
        rx_scale on none of them
    gate : "bound", "open" or "message"
        what silence may depend on
    summary : str
        one line for lists; default: the first line of the docstring
    private : bool
        False marks a reference without privacy, which no budget stops

    The function takes `obs`, `deployment`, `message` and `context`, as many of them as it names, and its settings as
    keyword-only parameters. It is asked once per round, in order; arrays end in the client axis. It returns a dict with
    `tx` (what each message is multiplied by) and `rx_scale` (what the server divides by), and may add `noise`,
    `max_norm`, `send_prob` and `live`; by default there is no artificial noise, a client is silent where its energy
    would not do, and silence is credited with nothing. A number under any other key is a column `info_<key>` of the
    rounds table.

    Returns
    -------
    decorator
        of the function, which becomes a factory like those of the published schemes

    Examples
    --------
    >>> import numpy as np, otafl
    >>> @otafl.scheme("loud", csi="own")
    ... def loud(obs, deployment, message, *, share: float = 0.5):
    ...     level = np.sqrt(share * deployment.energy) / message.bound
    ...     return {"tx": level * np.exp(-1j * np.angle(obs.estimate)), "rx_scale": np.sum(level * obs.rms)}
    >>> loud(share=0.2)
    otafl.loud(share=0.2)
    """

    if not isinstance(name, str):
        raise InputError("a scheme has a name: write @otafl.scheme('my-scheme') above its function")

    def decorate(function: Callable[..., Any]) -> Factory:
        wanted, config = _read(name, function)

        def factory(settings: Any, deployment: Deployment, message: Message, context: Context) -> Policy:
            own = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
            given = {"deployment": deployment, "message": message, "context": context}

            def step(state: Array, obs: Obs) -> tuple[Array, Plan, Any]:
                known = {**given, "obs": obs}
                told = function(**{key: known[key] for key in wanted}, **own)
                return state, *_whole(name, told, obs, deployment, message)

            step.__wrapped__ = function  # type: ignore[attr-defined]  # whose it is: `ours`
            return Policy(name, lambda seed: (), step, loop="open", csi=csi, gate=gate)  # type: ignore[arg-type]

        factory.__wrapped__ = function  # type: ignore[attr-defined]
        said = summary or (inspect.getdoc(function) or f"{name}").partition("\n")[0].rstrip(".")
        systems.register(name, factory, config, said, private=private)
        return factory_named(name.replace("-", "_"))

    return decorate


def _read(name: str, function: Callable[..., Any]) -> tuple[list[str], type]:
    """What a function wants to know, and its settings as a frozen dataclass."""
    wanted, fields = [], []
    try:
        parameters = inspect.signature(function, eval_str=True).parameters
    except (NameError, TypeError, ValueError, SyntaxError) as problem:
        raise InputError(f"{name}: its parameters cannot be read ({problem})") from None
    for one in parameters.values():
        if one.kind is inspect.Parameter.KEYWORD_ONLY:
            kind = one.annotation if one.annotation is not one.empty else type(one.default)
            if one.default is one.empty and one.annotation is one.empty:
                raise InputError(f"{name}: its setting {one.name!r} needs a type or a default")
            known = () if one.default is one.empty else (dataclasses.field(default=one.default),)
            fields.append((one.name, kind, *known))
        elif one.name in KNOWN:
            wanted.append(one.name)
        else:
            raise InputError(f"{name}: parameter {one.name!r} must be one of {', '.join(KNOWN)}, or keyword-only")
    try:
        config = dataclasses.make_dataclass("Config", fields, frozen=True, kw_only=True)
    except (TypeError, ValueError) as problem:
        raise InputError(f"{name}: its settings are no plain values ({problem}); use a tuple for a list") from None
    config.__module__ = function.__module__
    return wanted, config


def _whole(name: str, told: Any, obs: Obs, deployment: Deployment, message: Message) -> tuple[Plan, Any]:
    """The plan with what was left out, and what else was told. Shapes and kinds of its numbers are the round's."""
    if not isinstance(told, dict) or not {"tx", "rx_scale"} <= set(told):
        raise InputError(f"{name}: must return a dict with at least 'tx' and 'rx_scale'")
    numbers = {key: _number(name, key, value) for key, value in told.items()}
    tx = numbers["tx"]
    plan = Plan(
        tx=tx,
        noise=numbers.pop("noise", np.zeros(())),
        max_norm=numbers.pop("max_norm", None),
        rx_scale=numbers.pop("rx_scale"),
        send_prob=numbers.pop("send_prob", np.ones(())),
        live=numbers.pop("live", np.ones((), bool)),
    )
    if plan.max_norm is None:
        sent = np.broadcast_to(tx, np.shape(deployment.energy)) if tx.ndim == 0 else tx
        fits = sent.shape == np.shape(deployment.energy)  # another shape is refused by name in a moment
        plan = plan._replace(max_norm=silent_by_bound(sent, deployment.energy, message.bound) if fits else -1.0)
    extra = {key: value for key, value in sorted(numbers.items()) if key != "tx"}
    for key, value in extra.items():
        if value.ndim or value.dtype.kind not in "biuf":
            raise InputError(f"{name}: {key!r} must be one real number per round")
    return plan, _info(tuple(extra))(*(value.astype(float) for value in extra.values()))


@cache
def _info(columns: tuple[str, ...]) -> Any:
    """One type for the same columns, so that rounds can be stacked."""
    return namedtuple("Info", columns)


def _number(name: str, key: Any, value: Any) -> Array:
    """What was told under one key; the key becomes a column, so it must be a plain word."""
    if not isinstance(key, str) or not key.isidentifier() or keyword.iskeyword(key) or key.startswith("_"):
        raise InputError(f"{name}: key {key!r} must be a name of letters, digits and inner underscores")
    if masked(value):
        raise InputError(f"{name}: {key!r} has masked values; fill them")
    try:
        found = np.asarray(value)
    except ValueError:
        found = np.asarray(None)
    if found.dtype.kind not in "biufc":
        raise InputError(f"{name}: {key!r} must be numbers in one array, not {type(value).__name__}")
    return found
