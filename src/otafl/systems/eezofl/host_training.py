"""Encrypted training outside the compiled loop: devices with operating-system keys, one round after the other.

Slower than `crypto.uplink`, and no simulation of the protocol but the protocol itself: every device encrypts, every
device sends its share, the server checks and refuses. Only the radio is simulated. Data, minibatches, directions and
channel are those of the same experiment in the compiled loop.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from otafl.channels import draw
from otafl.core import streams
from otafl.core.errors import InputError
from otafl.core.messages import Clients, Data, Seed, clip_factors, zero_unless_finite
from otafl.crypto import modes, overair, scaling, uplink, xmkckks
from otafl.crypto.budget import decode_bits
from otafl.crypto.participant import Client
from otafl.crypto.randomness import Source
from otafl.crypto.realchannel import LiteralAir
from otafl.runs import build
from otafl.runs.evaluation import evaluator
from otafl.runs.schema import Experiment, options_of
from otafl.systems.eezofl.policy import Config, job_of

LOW_BITS = 2.0**-30  # below float32: devices refuse to send equal scalars twice, and float32 repeats itself


class HostRun(NamedTuple):
    params: Any
    losses: np.ndarray  # (T,) on the experiment's evaluation data, after each round
    refused: np.ndarray  # (T,) bool
    insecure_test_rng: bool


def train_on_host(experiment: Experiment, scheme: int, rounds: int, *, mode: str | None = None, discard: bool = True,
                  sources: Sequence[Source] | None = None) -> HostRun:  # fmt: skip
    """Train an EEZOFL scheme's first seed; `mode` replaces the scheme's (`literal` is possible here).

    Keys and all secret randomness are the operating system's unless `sources` (setup's, then each device's) are given.
    """
    seed, count, chosen = experiment.seed_list[0], experiment.task.clients, experiment.scheme[scheme]
    alone = experiment.model_copy(update={"seeds": [seed]})
    task = build.build_task(alone)
    setup, seeds = build.build_scheme(alone, chosen, task), build.seeds_of(alone, task)
    config = options_of(chosen, Config)
    if config.dp_noise:
        raise InputError(f"dp_noise={config.dp_noise:g} must be 0: devices on the host add no noise of their own")
    job = job_of(config, count, setup.sites[0].message, seed)
    agreed = xmkckks.setup(job.parameters, sources[0] if sources else None)
    devices = overair.gather_clients(agreed, count, sources[1:] if sources else None)
    gains = np.real(draw(experiment.channel, count, rounds, seed).gain)
    talk, learn = _compiled(setup.clients, setup.optimizer, task.data, jax.tree.map(lambda leaf: leaf[0], seeds))
    evaluate, rng = jax.jit(evaluator(task.model, task.classes)), np.random.default_rng(seed)
    low_bits = np.random.default_rng([seed, streams.Host.LOW_BITS])
    losses, refused = [], []
    with jax.enable_x64(True):
        params = task.model.init(jax.random.fold_in(seeds.key[0], streams.Seed.INIT))
        state = setup.optimizer.init(params)
        for t in range(rounds):
            scalars = np.asarray(talk(params, jnp.int32(t)), np.float64) / job.fading.mu[:, None]
            scalars *= 1 - LOW_BITS * low_bits.random(scalars.shape)
            values, failed = open_round(job, mode or config.mode, devices, scalars, gains[t], rng, t, discard)
            params, state = learn(params, state, values.astype(np.float32), jnp.int32(t))
            losses.append(float(evaluate(params, task.held_out).loss))
            refused.append(failed)
    return HostRun(params, np.array(losses), np.array(refused), any(device.insecure_test_rng for device in devices))


def open_round(job: uplink.Job, mode: str, devices: Sequence[Client], scalars: np.ndarray, h: np.ndarray,
               rng: np.random.Generator, t: int, discard: bool) -> tuple[np.ndarray, bool]:  # fmt: skip
    """One round of the protocol: the decrypted sums (P,), and whether the server refused them."""
    p, bits = job.parameters, decode_bits(job.parameters, mode)
    if mode == "literal":
        heard: Any = LiteralAir(p, h, rng)
    else:
        on_grid = scaling.quantise_channel(h, p.f).h
        heard = modes.grid_air(mode, p, on_grid, rng, setup_h=uplink.setup_gains(job), pilot_error=job.pilot_error)
    seen = overair.play(devices, scalars * job.fading.mu[:, None] if mode == "digital" else scalars, heard, mode, t)
    try:
        return overair.release(p, seen.received, job.expected_rms, bits, seen.insecure_test_rng).values, False
    except overair.RoundFailed:
        values = np.asarray(scaling.decode(p, seen.received, bits).values)
        return np.zeros_like(values) if discard else values, True


def _compiled(
    clients: Clients, optimizer: optax.GradientTransformation, data: Data, seed: Seed
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The clients' and the server's part of a round, with the random streams of `rounds.make_round`."""
    ids = np.arange(seed.sizes.shape[0], dtype=np.int32)

    def talk(params: Any, round_: Any) -> Any:
        key = jax.random.split(jax.random.fold_in(seed.key, round_))[0]
        keys = jax.vmap(lambda k: jax.random.fold_in(key, k))(ids)
        messages, *_ = clients.messages(params, data, seed, clients.draw(seed, keys, ids)[0], ids, round_)
        messages, norms, _ = zero_unless_finite(messages)
        return messages * clip_factors(norms, clients.clip_norm)[:, None]

    def learn(params: Any, state: Any, values: Any, round_: Any) -> tuple[Any, Any]:
        change, state = optimizer.update(clients.lift(values, params, seed, round_), state, params)
        return optax.apply_updates(params, change), state

    return jax.jit(talk), jax.jit(learn)
