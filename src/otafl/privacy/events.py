"""From plans and a channel trace to what was released: amplitudes, noise and their ratio. float64; `heard` and
`inverse_square` in JAX too, for a filter that counts inside the loop.

Client k's message reaches the server with amplitude `amp` under Gaussian noise of variance

    v = receiver_var + sum_j artificial_var_j                      (per real dimension)

so one unit of its data (a record or the whole client, see `Message.unit`) moves the received vector by at most
amp * sensitivity, and the noise multiplier is z = sqrt(v) / (amp * sensitivity).

The server may keep the imaginary part of what it hears. Receiver noise covers both parts; artificial noise lies along
one direction, and a message whose phase is off by Phi leaves sin(Phi) of itself where only receiver noise is. With
`leak_angle` Phi between messages and artificial noise of total variance A, for every mixture of directions within Phi,

    1/z^2 <= (amp * sensitivity)^2 (cos^2 Phi / (v0 + A) + sin^2 Phi / v0),        v0 = receiver_var            (C3)

because 1/z^2 = g' C^-1 g is convex in the covariance C and grows with the angle. Phi is what the plan itself turns
messages and noise apart, plus a phase error for each of the two devices; at a right angle such noise counts nothing.

Whose noise counts: the trusted part of the receiver's noise, and the artificial noise of every client, client k's own
included (it is drawn apart from the data and only client k knows it). `colluders` leaves out the noise of clients
that hand theirs to the adversary; what remains protects the others.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError, PrivacyViolation
from otafl.core.plan import Deployment, Events, Message, Plan, Trace, namespace

if TYPE_CHECKING:  # the uplinks themselves need JAX, a ledger does not
    from otafl.core.uplink import Uplink

# Products of three doubles in another order differ by a few units in the last place; no physics hides in that.
ROUNDING = 8 * np.finfo(np.float64).eps
LARGEST_DOUBLE = float(np.finfo(np.float64).max)
LEAST_VAR = 1e-280  # of noise that counts: squares near 1e-324 lose their digits, and a message's may vanish beside it
WHITENED = 1e-9  # of a charge that comes from solved equations
ALIGNED = 32 * np.finfo(np.float64).eps  # rad: a phase that was inverted in double precision is off by no more


def release(
    uplink: "Uplink", plans: Plan, trace: Trace, deployment: Deployment, message: Message, colluders: Array = None
) -> Events:
    """What the plans release through an uplink: by its own account where it has one, else `events`.

    `colluders` (K,) bool matters to the former alone: of the latter, accountants leave out what they know.
    """
    if uplink.release is None:
        return events(plans, trace, deployment, message)
    return uplink.release(plans, trace, deployment, message, colluders)


def events(plans: Plan, trace: Trace, deployment: Deployment, message: Message) -> Events:
    """What the plans release, worst case within the declared `gain_error` and `phase_error`.

    Leaves of `plans` and `trace` are (T, K) or (S, T, K), `rx_scale` and `live` without the K.
    Nothing here depends on data, on who was silent, or on `rx_scale`.
    """
    estimate, tx, noise = (np.asarray(x, np.complex128) for x in (trace.estimate, plans.tx, plans.noise))
    shape = np.broadcast_shapes(estimate.shape, tx.shape)
    validate.not_negative("gain_error", float(deployment.gain_error))
    live = np.logical_and.accumulate(np.broadcast_to(np.asarray(plans.live, bool), shape[:-1]), axis=-1)

    arriving = _finite_where(live, "tx", estimate * tx, shape)
    noise = _finite_where(live, "noise", estimate * noise, shape)
    amp, artificial_var, leak_angle = heard(arriving, noise, deployment)

    validate.not_negative("trusted_noise_var", deployment.trusted_noise_var)
    sensitivity = np.asarray(message.sensitivity, np.float64)
    rate = np.asarray(message.rate, np.float64)
    validate.not_negative("sensitivity", sensitivity)
    validate.in_closed("rate", rate, 0, 1)
    send_prob = np.broadcast_to(np.asarray(plans.send_prob, np.float64), shape)
    validate.in_closed("send_prob", send_prob, 0, 1)
    return Events(
        amp=amp,
        artificial_var=artificial_var,
        possible=np.broadcast_to(np.asarray(plans.max_norm) >= 0, shape),
        send_prob=send_prob,
        receiver_var=np.broadcast_to(np.asarray(deployment.trusted_noise_var, np.float64), shape[:-1]),
        live=live,
        rate=np.broadcast_to(rate, shape[-1:]),
        sensitivity=np.broadcast_to(sensitivity, shape[-1:]),
        leak_angle=leak_angle,
    )


def heard(message: Array, noise: Array, deployment: Deployment) -> tuple[Array, Array, Array]:
    """Largest amplitude (..., K), least artificial noise variance (..., K) and leak angle (...) of what arrives.

    `message` and `noise` are estimate times tx and noise, finite, (..., K). NumPy or JAX.
    """
    xp, error = namespace(message), float(deployment.gain_error)
    amp = xp.abs(message) * (1 + error)
    # gain = estimate (1 + e), abs(e) <= error: at least abs(Re a) - error abs(a) of a = estimate * noise arrives.
    # With the phase taken out (a real) this is Re(a)^2 (1 - error)^2.
    artificial_var = xp.maximum(xp.abs(noise.real) - error * xp.abs(noise), 0.0) ** 2
    return amp, artificial_var, _leak_angle(message, noise, declared_phase_error(deployment))


def declared_phase_error(deployment: Deployment) -> float:
    """Bound on the angle between gain and estimate, rad; where none is declared, what `gain_error` leaves possible."""
    if deployment.phase_error is None:
        return float(np.arcsin(min(1.0, deployment.gain_error)))
    validate.in_closed("phase_error", deployment.phase_error, 0, np.pi / 2)
    return float(deployment.phase_error)


def _leak_angle(message: Array, noise: Array, phase_error: float) -> Array:
    """Largest angle between any message and any artificial noise of a round, (..., T), rad; 0 where there is none."""
    xp = namespace(noise)
    if xp is np and not np.any(noise):  # most runs, whose angles would take longer than all else here
        return np.zeros(noise.shape[:-1])
    planned = _off_axis(message).max(-1) + _off_axis(noise).max(-1)
    angle = xp.minimum(xp.where(planned <= ALIGNED, 0.0, planned) + 2 * phase_error, np.pi / 2)
    return xp.where(xp.any(noise != 0, axis=-1), angle, 0.0)


def _off_axis(received: Array) -> Array:
    """Angle between a complex amplitude and the real axis, in [0, pi/2]; its sign does not matter."""
    xp = namespace(received)
    return xp.arctan2(xp.abs(received.imag), xp.abs(received.real))


def _finite_where(live: Array, name: str, value: Array, shape: tuple[int, ...]) -> Array:
    """Dead rounds may hold anything and count nothing; live ones must be numbers."""
    value = np.where(live[..., None], np.broadcast_to(value, shape), 0.0)
    validate.finite(f"estimate * {name}", value)
    return value


def check_realised(events: Events, plans: Plan, trace: Trace, first: int = 0) -> None:
    """Raise PrivacyViolation where the true channel broke the charge: amplitude above, own noise below, phase off.

    `first` is the number of the first of these rounds.
    """
    gain, tx, noise = (np.asarray(x, np.complex128) for x in (trace.gain, plans.tx, plans.noise))
    amplitude, noise_var = np.abs(gain * tx), np.real(gain * noise) ** 2
    live = np.broadcast_to(events.live[..., None], events.amp.shape)
    loud = live & ~(amplitude <= events.amp * (1 + ROUNDING))
    _refuse(loud, first, amplitude, events.amp, "received amplitude", "above")
    short = live & ~(noise_var >= events.artificial_var * (1 - ROUNDING))
    _refuse(short, first, noise_var, events.artificial_var, "received artificial noise variance", "below")
    noisy = live & np.any(events.artificial_var > 0, axis=-1, keepdims=True)
    if not np.any(noisy):
        return
    loudest = np.where(events.artificial_var > 0, _off_axis(gain * noise), 0.0).max(-1, keepdims=True)
    apart = np.minimum(_off_axis(gain * tx) + loudest, np.pi / 2)
    charged = np.broadcast_to(leak_of(events)[..., None], events.amp.shape)
    off = noisy & (events.amp > 0) & ~(apart <= charged + ALIGNED)
    _refuse(off, first, apart, charged, "angle between artificial noise and the message", "above", "phase_error")


def check_release(
    uplink: "Uplink",
    released: Events,
    plans: Plan,
    trace: Trace,
    deployment: Deployment,
    message: Message,
    first: int = 0,
) -> None:
    """`check_realised` for any uplink: one with an account of its own gives it once more, of the true gains."""
    if uplink.release is None:
        return check_realised(released, plans, trace, first)
    exact = deployment._replace(gain_error=0.0, phase_error=0.0)
    true = inverse_square(release(uplink, plans, trace.exact(), exact, message))
    charged = inverse_square(released)
    _refuse(~(true <= charged * (1 + WHITENED)), first, true, charged, "squared signal-to-noise ratio", "above")


def _refuse(
    bad: Array, first: int, realised: Array, charged: Array, what: str, side: str, bound: str = "gain_error"
) -> None:
    if not np.any(bad):
        return
    index = validate.first_place(bad)
    found = np.broadcast_to(realised, bad.shape)[index]
    raise PrivacyViolation(
        f"{what} of client {index[-1]} in round {first + index[-2]} is {found:.6g}, "
        f"{side} the {charged[index]:.6g} that was charged: the channel error is larger than the declared {bound}"
    )


def total_noise_var(events: Events, colluders: Array = None) -> Array:
    """v of each round, (..., T): trusted receiver noise plus the artificial noise of all who keep theirs secret."""
    artificial = events.artificial_var
    if colluders is not None:
        validate.shape("colluders", colluders, artificial.shape[-1:])
        artificial = np.where(np.asarray(colluders, bool), 0.0, artificial)
    return events.receiver_var + artificial.sum(-1)


def leak_of(events: Events) -> Array:
    """`leak_angle` of every round, (..., T): within more than a right angle lies a right one, which is the worst."""
    xp = namespace(events.leak_angle)
    return xp.broadcast_to(xp.minimum(xp.asarray(events.leak_angle, np.float64), np.pi / 2), np.shape(events.live))


def effective_noise_var(events: Events, colluders: Array = None) -> Array:
    """The one variance, (..., T), that hides a message as well as all noise does from a server that keeps both parts.

    v where phases are exact; else by (C3), which is 0 (nothing hides) where only artificial noise is trusted.
    """
    total, angle, receiver = total_noise_var(events, colluders), leak_of(events), events.receiver_var
    xp = namespace(angle)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        split = 1 / (xp.cos(angle) ** 2 / total + xp.sin(angle) ** 2 / receiver)  # (C3)
    return xp.where((angle > 0) & (total > receiver), split, total)


def inverse_square(events: Events, colluders: Array = None) -> Array:
    """1/z^2 of client k if it sends in round t, (..., T, K); 0 in dead rounds, inf without noise."""
    moved = events.amp * events.sensitivity
    noise = effective_noise_var(events, colluders)[..., None]
    charged = events.live[..., None] & (moved > 0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        square = namespace(moved).where(noise >= LEAST_VAR, moved**2 / noise, np.inf)
        return namespace(moved).where(charged, square, 0.0)


def noise_multiplier(events: Events, colluders: Array = None) -> Array:
    """z = sqrt(v) / (amp * sensitivity), (..., T, K); inf where nothing can arrive or the round is not live.

    Sampling and silence are not in z: the accountants treat them (`rate`, `possible`, `send_prob`).

    >>> from otafl.core.plan import Events
    >>> one = Events(amp=np.array([[2.0, 0.0]]), artificial_var=np.array([[3.0, 0.0]]), possible=np.ones((1, 2), bool),
    ...              send_prob=np.ones((1, 2)), receiver_var=np.array([1.0]), live=np.array([True]),
    ...              rate=np.ones(2), sensitivity=np.ones(2))
    >>> noise_multiplier(one)
    array([[ 1., inf]])
    >>> noise_multiplier(one, colluders=np.array([True, False]))
    array([[0.5, inf]])
    """
    with np.errstate(divide="ignore"):
        return 1 / np.sqrt(inverse_square(events, colluders))


def no_events(rate: Array, sensitivity: Array) -> Events:
    """No rounds of clients with these (K,)."""
    none = np.zeros((0, len(rate)))
    return Events(none, none, none > 0, none, none[:, 0], none[:, 0] > 0, rate, sensitivity)


def whitened(run: Events, amp: Array) -> Events:
    """The same rounds as amplitudes (T, K) over unit noise of the receiver: whose noise it was is counted already."""
    ones = np.ones_like(run.receiver_var)
    return run._replace(amp=amp, artificial_var=np.zeros_like(amp), receiver_var=ones, leak_angle=0.0)


def join(parts: list[Events]) -> Events:
    """Chunks of one run, in order, as one run. All must agree on rate and sensitivity."""
    if not parts:
        raise InputError("no events to join")
    first = parts[0]
    for part in parts[1:]:
        for name in ("rate", "sensitivity"):
            if not np.array_equal(getattr(part, name), getattr(first, name)):
                raise InputError(f"{name} changed between two chunks of one run; use one ledger per setting")
    along = {"amp": -2, "artificial_var": -2, "possible": -2, "send_prob": -2, "receiver_var": -1, "live": -1}
    joined = {n: np.concatenate([getattr(p, n) for p in parts], axis=axis) for n, axis in along.items()}
    angle = np.concatenate([leak_of(part) for part in parts], axis=-1)
    return Events(**joined, rate=first.rate, sensitivity=first.sensitivity, leak_angle=angle)


def checked(events: Events, clients: int) -> Events:
    """Events of so many clients (..., T, K) in full shapes; InputError where they are none: NaN passes every cap."""
    amp = np.asarray(events.amp)
    if amp.ndim < 2 or amp.shape[-1] != clients:
        raise InputError(f"events have shape {amp.shape} but this ledger has {clients} clients")
    by_round = dict.fromkeys(("live", "receiver_var", "leak_angle"), amp.shape[:-1])
    shapes = {**by_round, "rate": (clients,), "sensitivity": (clients,)}
    whole = {}
    for name, value in events._asdict().items():
        array, shape = np.asarray(value), shapes.get(name, amp.shape)
        if array.dtype.kind not in ("b" if name in ("possible", "live") else "iuf"):
            raise InputError(f"events: {name} has dtype {array.dtype}, which is none of its kind")
        try:
            whole[name] = np.broadcast_to(array, shape)
        except ValueError:
            raise InputError(f"events: {name} has shape {array.shape} but must have shape {shape}") from None
    for name in ("amp", "artificial_var", "receiver_var", "sensitivity", "leak_angle"):
        validate.in_closed(f"events: {name}", whole[name], 0, np.inf if name == "amp" else LARGEST_DOUBLE)
    for name in ("send_prob", "rate"):
        validate.in_closed(f"events: {name}", whole[name], 0, 1)
    return Events(**whole)


def pick(events: Events, index: Any) -> Events:
    """The same run cut along its leading axes: one of a batch, or some of its rounds."""
    inner = {n: getattr(events, n)[index] for n in Events._fields if n not in ("rate", "sensitivity", "leak_angle")}
    return events._replace(**inner, leak_angle=leak_of(events)[index])
