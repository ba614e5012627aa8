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
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np

from otafl import systems
from otafl.core.errors import InputError
from otafl.core.plan import Context, Deployment, Gate, Message, Obs, Plan, Policy, silent_by_bound
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
    keyword-only parameters. Arrays end in the client axis, all rounds before it. It returns a dict with `tx` (what each
    message is multiplied by) and `rx_scale` (what the server divides by), and may add `noise`, `max_norm`, `send_prob`
    and `live`; by default there is no artificial noise, a client is silent where its energy would not do, and silence
    is credited with nothing. Numbers per round under any other key are columns `info_<key>` of the rounds table.
    """

    def decorate(function: Callable[..., Any]) -> Factory:
        wanted, config = _read(name, function)

        def factory(settings: Any, deployment: Deployment, message: Message, context: Context) -> Policy:
            own = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
            given = {"deployment": deployment, "message": message, "context": context}

            def step(state: tuple[()], obs: Obs) -> tuple[tuple[()], Plan, Any]:
                known = {**given, "obs": obs}
                told = function(**{key: known[key] for key in wanted}, **own)
                return state, *_whole(name, told, obs, deployment, message)

            return Policy(name, lambda seed: (), step, loop="open", csi=csi, gate=gate)  # type: ignore[arg-type]

        said = summary or (inspect.getdoc(function) or name).splitlines()[0].rstrip(".")
        systems.register(name, factory, config, said, private=private)
        return factory_named(name.replace("-", "_"))

    return decorate


def _read(name: str, function: Callable[..., Any]) -> tuple[list[str], type]:
    """What a function wants to know, and its settings as a frozen dataclass."""
    wanted, fields = [], []
    for one in inspect.signature(function, eval_str=True).parameters.values():
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
    config = dataclasses.make_dataclass("Config", fields, frozen=True, kw_only=True)
    config.__module__ = function.__module__
    return wanted, config


def _whole(name: str, told: Any, obs: Obs, deployment: Deployment, message: Message) -> tuple[Plan, Any]:
    """The plan with what was left out, and what else was told."""
    if not isinstance(told, dict) or not {"tx", "rx_scale"} <= set(told):
        raise InputError(f"{name}: must return a dict with at least 'tx' and 'rx_scale'")
    shape = np.shape(obs.estimate)
    told = {key: np.asarray(value) for key, value in told.items()}
    try:
        tx = np.broadcast_to(told.pop("tx"), shape).astype(complex)
        rx_scale = np.broadcast_to(told.pop("rx_scale"), shape[:-1]).astype(float)
        noise = np.broadcast_to(told.pop("noise", np.zeros(())), shape).astype(complex)
        max_norm = told.pop("max_norm", None)
        max_norm = silent_by_bound(tx, deployment.energy, message.bound) if max_norm is None else max_norm
        plan = Plan(
            tx, noise, np.broadcast_to(max_norm, shape).astype(float), rx_scale,
            np.broadcast_to(told.pop("send_prob", np.ones(())), shape).astype(float),
            np.broadcast_to(told.pop("live", np.ones((), bool)), shape[:-1]).astype(bool),
        )  # fmt: skip
        extra = {key: np.broadcast_to(value, shape[:-1]).astype(float) for key, value in told.items()}
    except ValueError as problem:
        raise InputError(f"{name}: arrays must have the shape of obs.estimate {shape} ({problem})") from None
    return plan, namedtuple("Info", extra)(**extra)
