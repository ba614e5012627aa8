"""From plans and a channel trace to what was released: amplitudes, noise and their ratio. Host, float64.

Client k's message reaches the server with amplitude `amp` under Gaussian noise of variance

    v = receiver_var + sum_j artificial_var_j                      (per real dimension)

so one unit of its data (a record or the whole client, see `Message.unit`) moves the received vector by at most
amp * sensitivity, and the noise multiplier is z = sqrt(v) / (amp * sensitivity).

Whose noise counts: the trusted part of the receiver's noise, and the artificial noise of every client, client k's own
included (it is drawn apart from the data and only client k knows it). `colluders` leaves out the noise of clients
that hand theirs to the adversary; what remains protects the others.
"""

import numpy as np

from otafl import validate
from otafl.errors import InputError, PrivacyViolation
from otafl.plan import Array, Deployment, Events, Message, Plan, Trace

# Products of three doubles in another order differ by a few units in the last place; no physics hides in that.
ROUNDING = 8 * np.finfo(np.float64).eps


def events(plans: Plan, trace: Trace, deployment: Deployment, message: Message, receiver_var: Array = None) -> Events:
    """What the plans release, worst case within the declared `gain_error`.

    Leaves of `plans` and `trace` are (T, K) or (S, T, K), `rx_scale` and `live` without the K. `receiver_var`
    (broadcast to (..., T)) replaces the deployment's trusted receiver noise where an uplink states its own.
    Nothing here depends on data, on who was silent, or on `rx_scale`.
    """
    estimate, tx, noise = (np.asarray(x, np.complex128) for x in (trace.estimate, plans.tx, plans.noise))
    shape = np.broadcast_shapes(estimate.shape, tx.shape)
    error = float(deployment.gain_error)
    validate.not_negative("gain_error", error)
    live = np.logical_and.accumulate(np.broadcast_to(np.asarray(plans.live, bool), shape[:-1]), axis=-1)

    arriving = _finite_where(live, "tx", estimate * tx, shape)
    noise = _finite_where(live, "noise", estimate * noise, shape)
    amp = np.abs(arriving) * (1 + error)
    # gain = estimate (1 + e), abs(e) <= error: at least abs(Re a) - error abs(a) of a = estimate * noise arrives.
    # With the phase taken out (a real) this is Re(a)^2 (1 - error)^2.
    artificial_var = np.maximum(np.abs(noise.real) - error * np.abs(noise), 0.0) ** 2

    trusted = deployment.trusted_noise_var if receiver_var is None else receiver_var
    validate.not_negative("receiver_var", trusted)
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
        receiver_var=np.broadcast_to(np.asarray(trusted, np.float64), shape[:-1]),
        live=live,
        rate=np.broadcast_to(rate, shape[-1:]),
        sensitivity=np.broadcast_to(sensitivity, shape[-1:]),
    )


def _finite_where(live: Array, name: str, value: Array, shape: tuple[int, ...]) -> Array:
    """Dead rounds may hold anything and count nothing; live ones must be numbers."""
    value = np.where(live[..., None], np.broadcast_to(value, shape), 0.0)
    validate.finite(f"estimate * {name}", value)
    return value


def check_realised(events: Events, plans: Plan, trace: Trace) -> None:
    """Raise PrivacyViolation where the true channel broke what was charged: amplitude above, own noise below."""
    gain, tx, noise = (np.asarray(x, np.complex128) for x in (trace.gain, plans.tx, plans.noise))
    amplitude, noise_var = np.abs(gain * tx), np.real(gain * noise) ** 2
    live = np.broadcast_to(events.live[..., None], events.amp.shape)
    _refuse(live & ~(amplitude <= events.amp * (1 + ROUNDING)), amplitude, events.amp, "received amplitude", "above")
    short = live & ~(noise_var >= events.artificial_var * (1 - ROUNDING))
    _refuse(short, noise_var, events.artificial_var, "received artificial noise variance", "below")


def _refuse(bad: Array, realised: Array, charged: Array, what: str, side: str) -> None:
    if not np.any(bad):
        return
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    raise PrivacyViolation(
        f"{what} of client {index[-1]} in round {index[-2]} is {np.broadcast_to(realised, bad.shape)[index]:.6g}, "
        f"{side} the {charged[index]:.6g} that was charged: the channel error is larger than the declared gain_error"
    )


def total_noise_var(events: Events, colluders: Array = None) -> Array:
    """v of each round, (..., T): trusted receiver noise plus the artificial noise of all who keep theirs secret."""
    artificial = events.artificial_var
    if colluders is not None:
        validate.shape("colluders", colluders, artificial.shape[-1:])
        artificial = np.where(np.asarray(colluders, bool), 0.0, artificial)
    return events.receiver_var + artificial.sum(-1)


def inverse_square(events: Events, colluders: Array = None) -> Array:
    """1/z^2 of client k if it sends in round t, (..., T, K); 0 in dead rounds, inf without noise."""
    signal = (events.amp * events.sensitivity) ** 2
    noise = np.broadcast_to(total_noise_var(events, colluders)[..., None], signal.shape)
    out = np.zeros(signal.shape)
    charged = np.broadcast_to(events.live[..., None], signal.shape) & (events.amp * events.sensitivity > 0)
    with np.errstate(divide="ignore"):
        np.divide(signal, noise, out=out, where=charged)
    return out


def noise_multiplier(events: Events, colluders: Array = None) -> Array:
    """z = sqrt(v) / (amp * sensitivity), (..., T, K); inf where nothing can arrive or the round is not live.

    Sampling and silence are not in z: the accountants treat them (`rate`, `possible`, `send_prob`).

    >>> from otafl.plan import Events
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
    return Events(**joined, rate=first.rate, sensitivity=first.sensitivity)
