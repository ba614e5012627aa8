"""Ridge inversion as a policy: a(x) = c x/(x + kappa), spent exactly by an odometer of each client's own channel.

Nobody is silent, each client needs its own channel alone, nothing is fed back. The amplitude of a round depends on the
client's channels so far and on nothing else, so the ledger charges what was really sent. Each client keeps an odometer:
the level of a round spends, on average over fading, what is left of its privacy budget in the rounds that are left.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.core.plan import Context, Deployment, Message, Obs, Plan, Policy, always
from otafl.privacy import Budget, calibrate
from otafl.systems.ridge.inversion import LARGEST, energy, kappa_for_efficiency, kappa_for_energy
from otafl.systems.ridge.purse import Leveller, allowance, mean_amplitude, purse_of

MARGIN = 1e-12  # relative: the ledger adds the same costs in another order


@dataclass(frozen=True)
class Config:
    """How inversion is regularised: by `kappa`, by the privacy `efficiency` to keep, or by `joules` for the whole run.

    `joules` is a cap for each device; it lowers the efficiency where it has to. `aim="weights"` gives every client its
    weight in the mean, and the largest weight the whole privacy budget; "signal" lets every client spend all of it,
    which maximises the learning signal where weights differ.
    """

    kappa: float | None = None
    efficiency: float | None = None  # 0.95 where none of the three is given
    joules: float | None = None  # of one device, the whole run
    aim: Literal["weights", "signal"] = "weights"


class Info(NamedTuple):
    """One number per round."""

    unspent: Array  # share of the privacy budget that is left, mean over clients
    received: Array  # sum of amplitudes over the receive scale; 1 on average


class Spending(NamedTuple):
    """What each client may spend, (K,), before the first round."""

    privacy: Array  # on the sum of squared amplitudes of equal rounds
    kappa: Array
    joules: Array  # inf where only single rounds are limited


class State(NamedTuple):
    privacy: Array  # (..., K) left, in the currency of the purse
    joules: Array  # (..., K) left
    rx_scale: Array  # (...)


def privacy_allowance(deployment: Deployment, message: Message, context: Context) -> Array:
    """(K,) the sum of squared amplitudes that spends the target: 2 B v / sensitivity^2 without sampling."""
    if not np.isfinite(context.eps):
        raise InputError("ridge needs a privacy target: set privacy.eps")
    validate.positive("trusted_noise_var", deployment.trusted_noise_var)
    budget = Budget(context.eps, context.delta, context.accountant, adjacency=message.adjacency)
    multiplier = calibrate(budget, context.rounds, message, np.ones(len(deployment.weights)))
    reach = np.asarray(message.sensitivity, float) * (1 + deployment.gain_error)
    worst = np.max(reach) if np.any(np.asarray(message.rate) < 1) else reach  # the multiplier is the worst client's
    return np.broadcast_to(
        (1 - MARGIN) * context.rounds * deployment.trusted_noise_var / (multiplier * worst) ** 2,
        np.shape(deployment.weights),
    )


def spending(config: Config, allowance: Array, rms: Array, deployment: Deployment, message: Message) -> Spending:
    """kappa of every client, and its privacy where the energy of the run allows less of it."""
    chosen = [name for name in ("kappa", "efficiency", "joules") if getattr(config, name) is not None]
    if len(chosen) > 1:
        raise InputError(f"ridge: {' and '.join(chosen)} exclude each other; give one")
    weights = np.asarray(deployment.weights, float)
    share = (weights / weights.max()) ** 2 if config.aim == "weights" else 1.0
    privacy = np.broadcast_to(allowance * share, np.broadcast_shapes(np.shape(allowance), np.shape(rms))).copy()
    if config.joules is None:
        wanted = 0.95 if config.efficiency is None else config.efficiency
        kappa = kappa_for_efficiency(wanted) if config.kappa is None else config.kappa
        return Spending(privacy, np.full(privacy.shape, float(kappa)), np.full(privacy.shape, np.inf))
    validate.positive("joules", config.joules)
    each = config.joules * np.asarray(rms, float) ** 2 / (np.asarray(message.mean_square, float) * privacy)
    regularised = kappa_for_energy(each)
    privacy *= np.minimum(1.0, each / energy(np.full(1, LARGEST)))  # below the matched filter's: less privacy is spent
    return Spending(privacy, regularised, np.full(privacy.shape, config.joules))


def ridge(config: Config, deployment: Deployment, message: Message, context: Context) -> Policy:
    """Receiver noise is the only privacy noise; the received sum is divided by its mean weight."""
    validate.one_of("aim", config.aim, ("weights", "signal"))
    squares = privacy_allowance(deployment, message, context)
    spending(config, squares, np.ones(squares.shape), deployment, message)  # refuses what is wrong at once
    purse = purse_of(deployment, message, context, squares)
    limit = np.sqrt(np.asarray(deployment.energy, float) / np.asarray(message.mean_square, float))
    plans: dict[bytes, tuple[Spending, Leveller]] = {}

    def planned(rms: Array) -> tuple[Spending, Leveller]:
        key = np.ascontiguousarray(rms).tobytes()
        if key not in plans:
            made = spending(config, squares, rms, deployment, message)
            made = made._replace(privacy=allowance(purse, made.privacy, context))
            plans[key] = made, purse.leveller(made.kappa, limit * rms)
        return plans[key]

    def begin(rms: Array) -> State:
        made, levels = planned(rms)
        level = levels.of(made.privacy / context.rounds)
        return State(made.privacy, made.joules, np.sum(mean_amplitude(level, made.kappa, limit * rms), axis=-1))

    def init(key: Any) -> State:
        return State(np.empty(0), np.empty(0), np.empty(0))

    def step(state: State, obs: Obs) -> tuple[State, Plan, Info]:
        state = begin(obs.rms) if state.privacy.size == 0 else state
        made, levels = planned(obs.rms)
        gain, peak = np.abs(obs.estimate), limit * obs.rms
        x = (gain / obs.rms) ** 2
        rounds_left = np.maximum(context.rounds - obs.round, 1)
        level = peak * levels.of(state.privacy / rounds_left)
        heard = gain > 0
        per_joule = np.where(heard, gain, 1.0) / np.sqrt(message.mean_square)  # 0 times unlimited joules is no number
        wanted = level * x / (x + levels.kappa)
        amplitude = np.minimum(wanted, np.minimum(peak * np.sqrt(x), purse.loudest(state.privacy)))
        amplitude = np.minimum(amplitude, per_joule * np.sqrt(state.joules))
        tx = np.where(heard, amplitude / np.where(heard, obs.estimate, 1), 0)
        after = State(
            np.maximum(state.privacy - purse.cost(amplitude), 0.0),
            np.maximum(state.joules - np.abs(tx) ** 2 * message.mean_square, 0.0),
            state.rx_scale,
        )
        live = np.ones(np.shape(state.rx_scale), bool)
        plan = Plan(tx, np.zeros_like(tx), always(tx), state.rx_scale, np.ones(tx.shape), live)
        unspent = np.mean(after.privacy / made.privacy, axis=-1)
        return after, plan, Info(unspent, np.sum(amplitude, axis=-1) / state.rx_scale)

    return Policy("ridge", init, step, loop="open", csi="own", gate="open")
