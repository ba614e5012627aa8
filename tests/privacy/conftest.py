"""Builders of small runs, shared by the tests of the ledger."""

from collections.abc import Callable

import numpy as np
import pytest

from otafl.core.plan import Deployment, Events, Message, Plan, Trace


@pytest.fixture(scope="session")
def make_events() -> Callable[..., Events]:
    """Events whose noise multipliers are `z` (T, K): unit sensitivity and receiver noise, amplitude 1/z."""

    def build(z, rate=1.0, possible=None, send_prob=1.0, live=None) -> Events:
        z = np.asarray(z, float)
        clients = z.shape[-1]
        return Events(
            amp=1 / z,
            artificial_var=np.zeros(z.shape),
            possible=np.ones(z.shape, bool) if possible is None else np.asarray(possible, bool),
            send_prob=np.broadcast_to(send_prob, z.shape).astype(float),
            receiver_var=np.ones(z.shape[:-1]),
            live=np.ones(z.shape[:-1], bool) if live is None else np.asarray(live, bool),
            rate=np.broadcast_to(rate, (clients,)).astype(float),
            sensitivity=np.ones(clients),
        )

    return build


@pytest.fixture(scope="session")
def make_run() -> Callable[..., tuple[Plan, Trace, Deployment, Message]]:
    """A random channel-inverting run with artificial noise and a few silent clients."""

    def build(seed=0, shape=(6, 4), gain_error=0.0, relative=None) -> tuple[Plan, Trace, Deployment, Message]:
        rng = np.random.default_rng(seed)
        clients = shape[-1]
        estimate = rng.normal(size=shape) + 1j * rng.normal(size=shape)
        offset = np.zeros(shape) if relative is None else relative
        rms = np.full(shape, np.sqrt(2.0))
        trace = Trace(estimate * (1 + offset), estimate, rms, rms, rms, rms, rng.random(shape))
        plan = Plan(
            tx=rng.uniform(0.5, 2, shape) / estimate,
            noise=rng.uniform(0, 1, shape) * np.exp(-1j * np.angle(estimate)),
            max_norm=np.where(rng.random(shape) < 0.3, -1.0, np.inf),
            rx_scale=np.ones(shape[:-1]),
            send_prob=rng.random(shape),
            live=np.ones(shape[:-1], bool),
        )
        deployment = Deployment(np.ones(clients), 0.5, 0.25, np.full(clients, 1 / clients), 10, gain_error)
        message = Message(
            10, 1.0, np.ones(clients), rng.uniform(0.1, 1, clients), np.ones(clients), "client", "replace"
        )
        return plan, trace, deployment, message

    return build
