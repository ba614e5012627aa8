"""Devices that stay silent because of their channel, whatever the scheme decides. Host or JAX.

    unreachable   no path at all (rms gain 0): the scheme is made for the others, as if they were all; the weight that
                  is missing is neither sent nor shared out, so the update shrinks by it
    too weak      an estimate below `Deployment.least_gain` times its rms, or exactly 0 in this round: planned as at
                  its rms gain, then silenced

Both look at the channel alone, never at data: the gate of a scheme stays what it is.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from otafl.core.errors import InputError
from otafl.core.plan import Context, Deployment, Message, Obs, Plan, Policy, Trace, around, namespace

Maker = Callable[[Deployment, Message, Context], Policy]


BY_PLACE = ("interior", "distances_m")  # settings that name devices by their place in the list


def make_for(maker: Maker, config: Any, deployment: Deployment, message: Message, context: Context) -> Policy:
    """The policy of a site some of whose devices are unreachable or, in some rounds, too weak."""
    weak = deployment.least_gain > 0 or (context.trace is not None and bool(np.any(context.trace.estimate == 0)))
    reached = _reached(context)
    if reached is None and not weak:
        return maker(deployment, message, context)
    if reached is None:
        return _unless_weak(maker(deployment, message, _as_planned(context, deployment.least_gain)), deployment)
    if not np.any(reached):
        raise InputError("no device has a path to the receiver")
    if deployment.receiver.antennas > 1:
        raise InputError("devices without a path cannot stay silent at several antennas; leave them out ('drop')")
    for name in BY_PLACE:
        if getattr(config, name, None) is not None:
            raise InputError(f"{name} counts devices, and some have no path: leave those out ('drop')")
    share = float(np.sum(np.asarray(deployment.weights, float)[reached]))
    site = deployment._replace(
        energy=np.asarray(deployment.energy)[reached], weights=np.asarray(deployment.weights, float)[reached] / share
    )
    policy = make_for(maker, config, site, _some(message, reached), _told(context, reached))
    return _spread(policy, reached, share)


def _reached(context: Context) -> Any:
    """(K,) bool: who has a path; None where all have, or where nothing is known."""
    if context.trace is not None:
        reached = ~np.all(np.asarray(context.trace.rms_gain) == 0, axis=0)
    elif context.first is not None:
        reached = ~(np.asarray(context.first.rms) == 0)
    else:
        return None
    return None if np.all(reached) else reached


def _some(values: Any, reached: Any) -> Any:
    """A tuple of arrays with the devices that are reached; what is not per device stays."""
    size = len(reached)
    kept = (v[..., reached] if isinstance(v, np.ndarray) and v.shape[-1:] == (size,) else v for v in values)
    return type(values)(*kept)


def _told(context: Context, reached: Any) -> Context:
    return context._replace(
        sizes=None if context.sizes is None else np.asarray(context.sizes)[reached],
        first=None if context.first is None else _some(context.first, reached),
        trace=None if context.trace is None else _some(context.trace, reached),
    )


def _as_planned(context: Context, least_gain: float) -> Context:
    """What a scheme in hindsight may look at: gains as it is asked to plan them."""
    if context.trace is None:
        return context
    trace: Trace = context.trace
    weak = _weak(trace.estimate, trace.rms_estimate, least_gain)
    plain = trace.rms_estimate.astype(np.complex128)
    return context._replace(
        trace=trace._replace(gain=np.where(weak, plain, trace.gain), estimate=np.where(weak, plain, trace.estimate))
    )


def _weak(estimate: Any, rms: Any, least_gain: float) -> Any:
    xp = namespace(rms)
    return (xp.abs(estimate) < least_gain * rms) | (estimate == 0)


def _refuse_uplink(policy: Policy, why: str) -> None:
    if not isinstance(policy.uplink, str):
        raise InputError(f"{policy.name}: {why} on its own uplink, which may need every device")


def _unless_weak(policy: Policy, deployment: Deployment) -> Policy:
    """The same policy; devices whose estimate is too weak send nothing this round."""
    if policy.uplink == "perfect":
        return policy
    _refuse_uplink(policy, "devices cannot stay silent for a weak channel")
    least = float(deployment.least_gain)
    if policy.csi not in ("own", "global"):
        if least > 0:
            raise InputError(f"{policy.name}: csi={policy.csi!r} has no estimate that could be old; leave out stale")
        return policy  # a gain of 0 needs no inversion here
    if least == 0 and policy.loop == "round":  # one policy serves all seeds there, and this trace is one seed's
        raise InputError(
            f"{policy.name}: a gain of 0 in a single round needs a plan made in advance, not a closed loop"
        )
    sent_at_most = float(np.exp(-(least**2)))  # Rayleigh

    def step(state: Any, obs: Obs) -> tuple[Any, Plan, Any]:
        xp = namespace(obs.rms)
        weak = _weak(obs.estimate, obs.rms, least)
        state, plan, info = policy.step(state, obs._replace(estimate=xp.where(weak, obs.rms + 0j, obs.estimate)))
        quiet = plan._replace(
            tx=xp.where(weak, 0.0, plan.tx),
            noise=xp.where(weak, 0.0, plan.noise),
            max_norm=xp.where(weak, -1.0, plan.max_norm),
            send_prob=xp.minimum(plan.send_prob, sent_at_most) if least > 0 else plan.send_prob,
        )
        return state, quiet, info

    return around(policy, step)


def _spread(policy: Policy, reached: Any, share: float) -> Policy:
    """A policy of the devices that are reached, for all of them: the others never send."""
    _refuse_uplink(policy, "devices without a path cannot stay silent")
    places = np.flatnonzero(reached)

    def step(state: Any, obs: Obs) -> tuple[Any, Plan, Any]:
        xp = namespace(obs.rms)
        own = {name: getattr(obs, name)[..., places] for name in Obs._fields if name not in ("round", "metric")}
        state, plan, info = policy.step(state, obs._replace(**own))

        def all_of(value: Any, absent: float) -> Any:
            whole = xp.broadcast_to(xp.asarray(value), (*obs.rms.shape[:-1], len(places)))
            index = np.where(reached, np.cumsum(reached) - 1, 0)
            return xp.where(reached, whole[..., index], absent)

        spread = plan._replace(
            tx=all_of(plan.tx, 0.0),
            noise=all_of(plan.noise, 0.0),
            max_norm=all_of(plan.max_norm, -1.0),
            send_prob=all_of(plan.send_prob, 0.0),
            rx_scale=plan.rx_scale / share,  # the shares of the others stay as they were
        )
        return state, spread, info

    return around(policy, step)
