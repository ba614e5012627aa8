"""What the planners of the rivals share: clients, radio and privacy in one file."""

from typing import Any

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Floats
from otafl.core.errors import InputError
from otafl.core.files import FileModel
from otafl.systems.planning import Asked, unread

MAX_CELLS = 5e6  # rounds times clients


class Site(FileModel):
    """Clients and radio. Gains are given (rounds x clients, magnitudes), or drawn: Rayleigh, `rms_gain`, `seed`."""

    num_clients: int | None = None
    weights: list[float] | None = None  # default: equal
    clip_norm: float = 1.0
    sensitivity: float | None = None  # default: 2 clip_norm, one client replaced
    noise_std: float
    trusted_share: float = 1.0
    max_energy: float | list[float]
    gain: list[list[float]] | None = None
    rms_gain: float | list[float] = 1.0
    seed: int = 0
    rounds: int
    eps: float
    delta: float = 1e-5


def weights_of(inputs: Site) -> Floats:
    """(K,), adding up to 1."""
    if inputs.weights is not None:
        validate.not_negative("weights", inputs.weights)
        validate.sums_to_one("weights", inputs.weights, 1e-9)
        if inputs.num_clients not in (None, len(inputs.weights)):
            raise InputError(f"num_clients={inputs.num_clients} but weights has {len(inputs.weights)} entries")
        return np.asarray(inputs.weights, np.float64)
    if inputs.num_clients is None:
        raise InputError("num_clients or weights is required")
    validate.whole("num_clients", inputs.num_clients, 1, 10**6)
    return np.full(inputs.num_clients, 1 / inputs.num_clients)


def per_client(name: str, value: Any, count: int) -> Floats:
    """(K,) from one number or a list."""
    if np.ndim(value):
        validate.shape(name, value, (count,))
    found = np.broadcast_to(np.asarray(value, np.float64), (count,))
    validate.positive(name, found)
    return np.asarray(found)


def site_keys(asked: Asked) -> dict[str, Any]:
    """What FILE would say of an experiment's site: the channels of its first seed, its target, its clients' promise."""
    deployment, message, context = asked.deployment, asked.message, asked.context
    if not np.isfinite(message.bound):
        raise InputError(f"{asked.scheme} plans for messages with a norm bound; Poisson batches have none")
    if not np.isfinite(context.eps):
        raise InputError(f"{asked.scheme} plans for a privacy target: set privacy.eps")
    assert context.trace is not None
    return {
        "weights": np.asarray(deployment.weights, float).tolist(),
        "clip_norm": float(message.bound),
        "sensitivity": float(np.max(message.sensitivity)),
        "noise_std": float(np.sqrt(deployment.noise_var)),
        "trusted_share": float(deployment.trusted_noise_var / deployment.noise_var) if deployment.noise_var else 1.0,
        "max_energy": np.asarray(deployment.energy, float).tolist(),
        "gain": np.abs(np.asarray(context.trace.estimate)).tolist(),
        "rounds": context.rounds,
        "eps": float(context.eps),
        "delta": float(context.delta),
    }


def checked(inputs: Site) -> None:
    """Numbers that both planners need; each planner checks its own."""
    validate.whole("rounds", inputs.rounds, 1, 10**6)
    validate.positive("clip_norm", inputs.clip_norm)
    validate.positive("noise_std", inputs.noise_std)
    validate.in_closed("trusted_share", inputs.trusted_share, 0, 1)
    validate.positive("eps", inputs.eps)
    validate.in_open("delta", inputs.delta, 0, 1)
    if inputs.sensitivity is not None:
        validate.positive("sensitivity", inputs.sensitivity)


def covered(inputs: Site) -> str:
    """Whose data the printed numbers protect, and where they hold."""
    most = inputs.sensitivity or 2 * inputs.clip_norm
    told = "one client's data are replaced" if inputs.sensitivity is None else "a unit of it changes (sensitivity)"
    return (
        f"ε and μ are for the worst client, whose message moves by at most {most:g} where {told}, over channels as "
        "exact as this plan takes them; errors that an experiment declares are charged besides"
    )


def idle(inputs: Site) -> list[str]:
    """Of a site whose gains are given."""
    return unread(inputs, (inputs.gain is None, "drawn gains", ("rms_gain", "seed")))


def gains_of(inputs: Site, count: int) -> Floats:
    """(T, K) magnitudes."""
    validate.at_most(f"rounds x clients = {inputs.rounds} x {count}", inputs.rounds * count, MAX_CELLS, "plan fewer")
    if inputs.gain is not None:
        lengths = {len(row) for row in inputs.gain}
        if len(inputs.gain) != inputs.rounds or lengths != {count}:
            raise InputError(
                f"gain has {len(inputs.gain)} rows of {sorted(lengths)} entries; it must have {inputs.rounds} rows of "
                f"{count}"
            )
        found = np.asarray(inputs.gain, np.float64)
        validate.not_negative("gain", found)
        return found
    validate.whole("seed", inputs.seed, 0)
    rms = per_client("rms_gain", inputs.rms_gain, count)
    return np.asarray(rms * np.sqrt(np.random.default_rng(inputs.seed).exponential(size=(inputs.rounds, count))))
