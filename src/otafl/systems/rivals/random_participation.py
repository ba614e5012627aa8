"""Anonymous random participation (Hasircioglu, Gunduz): each client sends on a private coin, at one amplitude.

A client that sends is heard with amplitude rx_scale p_k / q, so the update is unbiased over the coins. By default every
round is charged as if the client had sent. `credit = "hidden"` charges a Gaussian sampled at rate q instead. That is a
certificate where the server cannot tell who sent: the amplitude is the same in every round, the noise (the receiver's)
is there whoever sends, nobody sends pilots or counts. Silence for lack of energy follows from the channel, which the
server may know, and is credited with nothing.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.core.plan import Context, Deployment, Events, Message, Obs, Plan, Policy, Trace, silent_by_bound, stateless
from otafl.core.uplink import ANALOG, Uplink
from otafl.privacy.events import events

HIDDEN = "private coins are credited: eps holds only if the server has no pilot, count or other sign of who sent"


@dataclass(frozen=True)
class Config:
    """`credit="hidden"` counts the private coins as sampling, which needs an accountant for it (`rdp`, `pld`)."""

    participation: float = 0.5  # q: chance that a client sends in a round
    rx_scale: float = 0.3
    credit: Literal["none", "hidden"] = "none"


class Info(NamedTuple):
    """Per round. A simulation's view: a server that knew it would void `hidden`."""

    senders: Array


def random_participation(config: Config, deployment: Deployment, message: Message, context: Context) -> Policy:
    """Receiver noise is the only privacy noise."""
    validate.in_left_open("participation", config.participation, 0, 1)
    validate.positive("rx_scale", config.rx_scale)
    weights, energy = np.asarray(deployment.weights, float), np.asarray(deployment.energy, float)

    def step(state: tuple[()], obs: Obs) -> tuple[tuple[()], Plan, Info]:
        amplitude = config.rx_scale * weights / config.participation
        faded = obs.estimate == 0
        tx = np.where(faded, 0, amplitude / np.where(faded, 1, obs.estimate))
        possible = np.where(faded, -1.0, silent_by_bound(tx, energy, message.bound))
        max_norm = np.where(obs.coin < config.participation, possible, -1.0)
        reach = np.exp(-((amplitude * message.bound / np.sqrt(energy) / obs.rms) ** 2))  # Rayleigh
        shape = tx.shape[:-1]
        scale, live = np.full(shape, config.rx_scale), np.ones(shape, bool)
        plan = Plan(tx, np.zeros_like(tx), max_norm, scale, config.participation * reach, live)
        return state, plan, Info(np.sum(max_norm >= 0, axis=-1))

    uplink: Any = hiding(config, message, context) if config.credit == "hidden" else "analog"
    return Policy("random-participation", stateless, step, loop="open", csi="own", gate="bound", uplink=uplink)


def hiding(config: Config, message: Message, context: Context) -> Uplink:
    """The analog uplink with coins counted as sampling; refused where something gives them away."""
    whole = message.bound * (2.0 if message.adjacency == "replace" else 1.0)
    if np.any(np.asarray(message.rate) < 1):
        raise InputError("credit='hidden' with sampled records has no known bound: a client's other records tell")
    if message.unit == "record" or np.any(np.asarray(message.sensitivity) < whole):
        raise InputError(
            f"credit='hidden' with unit={message.unit!r} is void: what a client sends besides tells that it sends; it "
            "needs unit='client' and the whole message as its sensitivity"
        )
    if context.first is not None and np.any(context.first.rms_low < context.first.rms_high):
        raise InputError("credit='hidden' with pilots is void: a pilot tells who is there; drop channel.pilots")

    def release(plans: Plan, trace: Trace, deployment: Deployment, sent: Message, colluders: Array) -> Events:
        # Nothing of the coins may enter: `possible` would count them twice.
        everybody = plans._replace(max_norm=np.full(np.shape(plans.max_norm), np.inf), send_prob=1.0)
        rate = config.participation * np.ones(np.shape(sent.sensitivity))
        return events(everybody, trace, deployment, sent._replace(rate=rate))

    return ANALOG._replace(release=release, assumed=(HIDDEN,))
