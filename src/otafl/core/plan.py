"""The data that the parts of a round hand to each other. No logic but the silence rules and what a policy may see.

Physics is kept in SI units, complex and float64; learning in float32 near 1. `Link` is all that crosses.
Axes: S seeds, T rounds, K clients, D real channel uses per round. A policy sees and returns arrays that end in K;
leading axes (S, T) may stand before. "Noise variance" is always per real dimension.

A client k sends  tx_k * x_k + noise_k * r_k  (x_k its message, r_k standard normal and real), the air multiplies by
gain_k and adds up, the server takes the real part and divides by rx_scale:

    update = Re( sum_k gain_k tx_k x_k + sum_k gain_k noise_k r_k + receiver noise ) / rx_scale
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from otafl.core.arrays import Array
from otafl.core.errors import InputError, PrivacyViolation
from otafl.core.validate import first_place

STOPS = ("horizon", "budget", "asymmetry", "dropped weight", "convergence budget")  # codes of an info `stopped_by`
NO_CERTIFICATE = "no joint certificate"  # of rounds whose info `certified` is false


Loop = Literal["open", "round"]
CSI = Literal["none", "statistical", "own", "global"]
Gate = Literal["open", "bound", "message"]
RewardData = Literal["public", "private"]
Unit = Literal["record", "client"]
Adjacency = Literal["add-remove", "replace", "zero-out"]

Leaves = TypeVar("Leaves", bound=tuple[Any, ...])


class Receiver(NamedTuple):
    """The server's antennas, and what it does with them."""

    antennas: int = 1
    beam: str = "fixed"  # how they are combined for learning; all but "fixed" follow the fading
    server: str = "full"  # what an observer at the server keeps: "full" every antenna, "combined" the beam's output
    antenna_rms: Array = None  # (K,) statistical CSI of one antenna; None where it is not known, or not constant

    @property
    def follows(self) -> bool:
        """Whether the beam looks at the fading, so that the law of what it hears is not that of one antenna."""
        return self.beam != "fixed"


class Deployment(NamedTuple):
    """What the radios may do, in the units of the round."""

    energy: Array  # (K,) J, limit on norm(tx x)^2 + D abs(noise)^2: the whole vector, one round
    noise_var: float  # J per real dimension, receiver noise
    trusted_noise_var: float  # <= noise_var: the part the ledger may count
    weights: Array  # (K,) aggregation weights, public, sum to 1
    dim: int  # D
    gain_error: float = 0.0  # declared bound on abs(gain/estimate) - 1
    phase_error: float | None = None  # declared bound on abs(angle(gain/estimate)), rad; None: asin(gain_error)
    least_gain: float = 0.0  # share of its rms below which a device's estimate keeps it silent
    miss_prob: float = 0.0  # that a gain passes gain_error, per client and round: part of delta
    receiver: Receiver = Receiver()  # noise_var is per antenna


class Trace(NamedTuple):
    """Everything random about the radio, drawn before the run. Leaves (T, K) or (S, T, K)."""

    gain: Array  # complex, true; the air uses it, no policy sees it
    estimate: Array  # complex, what devices measure and invert
    rms_gain: Array  # sqrt(E abs(gain)^2), true
    rms_estimate: Array  # statistical CSI as known: rms_gain, or a pilot estimate of it
    rms_low: Array  # certified lower limit of rms_gain (equals rms_gain when it is known)
    rms_high: Array  # certified upper limit
    coin: Array  # uniform in [0, 1): each client's private coin

    @property
    def array(self) -> Array:
        """(T, K, M) complex, true gain to each antenna of the server: one here, more in an `ArrayTrace`."""
        return self.gain[..., None]

    @property
    def array_estimate(self) -> Array:
        return self.estimate[..., None]

    def exact(self) -> "Trace":
        """The same channel, known as it is."""
        return self._replace(estimate=self.gain)


class ArrayTrace(NamedTuple):
    """A `Trace` of a server with M antennas; gains and rms are those of what its beam makes of them."""

    gain: Array
    estimate: Array
    rms_gain: Array
    rms_estimate: Array
    rms_low: Array
    rms_high: Array
    coin: Array
    array: Array  # (T, K, M) complex, true gains
    array_estimate: Array  # (T, K, M) complex, as they are known

    def exact(self) -> "ArrayTrace":
        return self._replace(estimate=self.gain, array_estimate=self.array)


class Obs(NamedTuple):
    """What a policy may know in one round. Fields above its CSI level are NaN."""

    round: Array  # round number, int
    estimate: Array  # (K,) complex
    rms: Array  # (K,) statistical CSI
    rms_low: Array  # (K,)
    rms_high: Array  # (K,)
    coin: Array  # (K,)
    metric: Array  # accuracy of the current model as the policy's `Feedback` declares it; NaN in open loop


class Plan(NamedTuple):
    """All that a policy decides for one use of the air."""

    tx: Array  # (K,) complex transmit scale
    noise: Array  # (K,) complex artificial noise, std per real dimension
    max_norm: Array  # (K,) client k sends its data iff norm(x_k) <= max_norm_k
    rx_scale: Array  # () receive scale
    send_prob: Array  # (K,) probability, over fading and coins, of sending data at all
    live: Array  # () bool; False stops this run for good


class Link(NamedTuple):
    """A plan after the channel: all that learning sees of the radio."""

    weight: Array  # (K,) Re(gain tx) / rx_scale
    max_norm: Array  # (K,)
    noise_std: Array  # () std per real dimension after division by rx_scale
    live: Array  # ()
    extra: Any = ()  # what a special uplink needs besides (ring weights, say)


class Message(NamedTuple):
    """What one client's message promises. Static; the clients enforce it."""

    dim: int  # real numbers sent per round
    bound: float  # on norm(x_k); inf where only the mean square is bounded
    mean_square: Array  # (K,) bound on E norm(x_k)^2, = bound^2 where that is finite
    sensitivity: Array  # (K,) L2 change of x_k under the adjacency, one unit changed
    rate: Array  # (K,) Poisson sampling rate of that unit; 1 where every round sees it
    unit: Unit
    adjacency: Adjacency
    published: tuple[str, ...] = ()  # what the adjacency takes as known to everyone, in words for the privacy card


class Events(NamedTuple):
    """What one run released, as the ledger sees it: (T, K) unless noted, host, float64."""

    amp: Array  # received amplitude of client k's message if it is sent, declared worst case
    artificial_var: Array  # received variance of client k's artificial noise, declared least
    possible: Array  # bool: the plan lets the client send (data-independent)
    send_prob: Array
    receiver_var: Array  # (T,) trusted receiver noise
    live: Array  # (T,) bool
    rate: Array  # (K,)
    sensitivity: Array  # (K,)
    leak_angle: Array = 0.0  # (T,) rad: artificial noise arrives within this of every message's phase


class Context(NamedTuple):
    """What an experiment tells a policy besides the site: its horizon, its privacy target, its task and its seed.

    An experiment hands over the trace; `systems.make` passes it on to schemes that are labelled hindsight and leaves
    the others `first`: channel statistics before round 0, and not even these where csi="none".
    """

    rounds: int = 1
    eps: float = float("inf")
    delta: float = 1e-5
    accountant: str = "zcdp"
    step_size: float = 0.1
    classes: int = 2
    seed: int = 0
    stop: Literal["worst", "each"] = "worst"  # "each": clients retire at their own cap, the last one's ends the run
    sizes: Array = None  # (K,) records of each client; None where the adjacency keeps them secret
    first: Obs | None = None  # statistics before the first round; estimate and coin are NaN
    trace: Trace | None = None  # only for policies that are labelled hindsight: a real server has no such thing
    rayleigh: bool = True  # whether gains are Rayleigh given their rms; of measured ones nobody knows


class Feedback(NamedTuple):
    """The accuracy that a policy inside the loop asks for, once before every round it runs.

    "public": on data that are neither trained nor reported on; free. "private": sum_k weight_k accuracy_k on the
    clients' own data plus N(0, noise_std^2), a release that the ledger charges with every round.
    """

    data: RewardData = "public"
    noise_std: float = 0.0


class Policy(NamedTuple):
    """`init(key) -> state`, `step(state, obs) -> (state, plan, info)`, and what the policy declares about itself.

    loop: "open" never looks at the learning (host, NumPy, planned ahead), "round" runs inside the compiled run (jax,
    float64). csi: the channel knowledge it is given. gate: whether silence may depend on nothing, on the declared
    bound, or on the message itself. uplink: "perfect" for ideal baselines that do not use the radio, or an
    `uplink.Uplink` of the scheme's own. feedback: what a "round" policy learns from. A "round" policy keeps all that
    differs between seeds in its state. spans: `step` also takes many rounds (T, K) in one call, goes through them in
    order and returns the state after the last, as every policy without a state does.
    """

    name: str
    init: Callable[[Any], Any]
    step: Callable[[Any, Obs], tuple[Any, Plan, Any]]
    loop: Loop
    csi: CSI
    gate: Gate
    uplink: Any = "analog"  # "analog", "perfect" or an uplink.Uplink
    feedback: Feedback = Feedback()
    spans: bool = False


def stateless(key: Any) -> tuple[()]:
    """`init` of a policy that keeps nothing from round to round."""
    return ()


def namespace(array: Array) -> Any:
    """numpy or jax.numpy, whichever the array belongs to: the same policy code runs ahead or inside the loop."""
    return array.__array_namespace__() if hasattr(array, "__array_namespace__") else np


def ours(function: Any) -> bool:
    """Whether a function was written in otafl, by the module it runs in and not by what it says of itself.

    Nor is a step of otafl's around somebody else's (`around`) one of otafl's own.
    """
    inner = getattr(function, "__wrapped__", None)
    written = str(getattr(function, "__globals__", {}).get("__name__", "")).partition(".")[0] == "otafl"
    return written and (inner is None or ours(inner))


def around(policy: Policy, step: Callable[[Any, Obs], tuple[Any, Plan, Any]], **changes: Any) -> Policy:
    """The same policy with a step that asks the former one; whose that is stays known (`ours`)."""
    step.__wrapped__ = policy.step  # type: ignore[attr-defined]
    return policy._replace(step=step, **changes)


def always(tx: Array) -> Array:
    """Nobody is ever silent."""
    return namespace(tx).full(tx.shape, np.inf)


def silent_by_bound(tx: Array, energy: Array, bound: float) -> Array:
    """Silent iff the declared bound would break the energy limit: carries no information about the data."""
    xp = namespace(tx)
    return xp.where(xp.abs(tx) ** 2 * bound**2 <= energy * (1 + 1e-12), np.inf, -1.0)


def silent_by_message(tx: Array, energy: Array) -> Array:
    """Silent iff this very message would break the energy limit (CARES (2)-(3)); unsound at record level."""
    xp = namespace(tx)
    with np.errstate(divide="ignore"):
        return xp.sqrt(energy) / xp.abs(tx)


def first_look(trace: Trace) -> Obs:
    """What is known of the channel before round 0 of a trace (T, K): its statistics, no gain and no coin."""
    nan = np.full(trace.rms_estimate.shape[-1:], np.nan)
    return Obs(0, nan + 0j, trace.rms_estimate[0], trace.rms_low[0], trace.rms_high[0], nan, np.nan)


def cut(values: Leaves, index: Any) -> Leaves:
    """The same tuple, every leaf cut along its leading axes: a trace or a plan of some rounds or of one seed, say."""
    return type(values)(*(leaf[index] for leaf in values))


def frozen(values: Leaves) -> Leaves:
    """The same tuple with read-only copies of its arrays: a policy that gets it can alter nothing that is charged."""
    return type(values)(*(_frozen(value) for value in values))


def read_only(values: Leaves) -> Leaves:
    """The same tuple, its own arrays locked: for what is shared and nobody's to alter."""
    for leaf in values:
        if isinstance(leaf, np.ndarray):
            leaf.flags.writeable = False
    return values


def _frozen(value: Any) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return frozen(value)
    if not isinstance(value, np.ndarray):
        return value
    copy = value.copy()  # a view would lead back to the original by its `base`
    copy.flags.writeable = False
    return copy


def check_bound(message: Message) -> None:
    """Refuse messages without a largest norm where a scheme is scaled by it."""
    if not 0 < message.bound < np.inf:
        why = "these messages have none (Poisson batches); use another sampling"
        raise InputError(f"needs a norm bound, but {why if message.bound == np.inf else f'it is {message.bound:g}'}")


def check_gate(gate: Gate, message: Message) -> None:
    """Refuse what voids a guarantee or a limit, before anything runs."""
    if gate == "message" and message.unit == "record":
        raise InputError(
            "silence that looks at the message (gate='message') voids record-level sensitivity: one record can switch "
            "its whole client on or off; use silence='bound' or unit='client'"
        )
    if gate != "open" and not np.isfinite(message.bound):
        raise InputError(
            f"gate={gate!r} needs a finite norm bound, but these messages have none (Poisson batches); use "
            "clients.sampling='without-replacement', or a scheme with gate='open', e.g. weakest or ridge"
        )


def check_silence(policy: Policy, message: Message, plan: Plan, first_round: int = 0) -> None:
    """Hold planned or realised silence (..., T, K) against the declared gate; PrivacyViolation names round and client.

    Where the gate is not "message", silence must not look at the message: a client sends always (inf) or never (< 0).
    """
    check_gate(policy.gate, message)
    norm, live = np.asarray(plan.max_norm), np.asarray(plan.live, bool)[..., None]
    may_look = policy.gate == "message"
    allowed = ~np.isnan(norm) if may_look else (norm < 0) | (norm == np.inf)
    bad = np.broadcast_to(live, norm.shape) & ~allowed
    if np.any(bad):
        index = first_place(bad)
        rule = "a number" if may_look else "inf or negative: silence that looks at the message has to be declared"
        raise PrivacyViolation(
            f"{policy.name}: max_norm={norm[index]:g} of client {index[-1]} in round {first_round + index[-2]} breaks "
            f"gate={policy.gate!r}; it must be {rule}"
        )
