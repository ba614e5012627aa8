"""CARES static: the certified receive scaling, fixed for the run. CARES 3.7.

The certifier judges a grid of receive scalings by public channel statistics, each at the horizon that its own privacy
cost allows, and the one with the smallest convergence bound is used until the budget is spent.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from otafl.bounds.budget import COUNTED_BY
from otafl.bounds.convergence import ConstantSet
from otafl.core.arrays import Array
from otafl.core.errors import Infeasible, InputError
from otafl.core.plan import Context, Deployment, Message, Obs, Plan, Policy
from otafl.systems.baselines.constant import truncated_inversion
from otafl.systems.cares.certifier import Certificate, Problem, auto_grid, certify
from otafl.systems.cares.problem import RewardData
from otafl.systems.cares.relax import reward_alone

PAPER_ARMS = tuple(float(eta) for eta in np.linspace(0.25, 0.40, 10))


@dataclass(frozen=True)
class Config:
    """Targets and learning constants of the certificate; data-free defaults (CARES E22)."""

    arms: tuple[float, ...] | Literal["auto"] = PAPER_ARMS
    num_arms: int = 25  # of the automatic grid
    silence: Literal["norm", "bound"] = "norm"
    max_asymmetry: float = 0.1
    max_dropped: float = 0.1
    conv_target: float | None = None  # None: twice the smallest bound on the grid
    constants: ConstantSet = "main"
    smoothness: float | None = None  # None: 1/(12 step_size)
    grad_var: float | None = None  # None: clip_norm^2
    loss_gap: float | None = None  # None: ln(classes), an upper bound only with zero_output_init (CARES E10)
    certify_with: Literal["estimate", "limits"] = "estimate"
    diagnostic: bool = False  # with nothing certified, go on from the median arm, labelled


class Info(NamedTuple):
    """Per round."""

    rx_scale: Array
    dropped_weight: Array  # certified envelope under this round's statistics
    asymmetry: Array
    certified: Array  # bool: the arm was certified, and this round still meets the participation targets


class State(NamedTuple):
    rx_scale: float
    certified: bool  # False in diagnostic mode with nothing certified, and where the channel is not `sure`


def problem_of(
    config: Any, obs: Obs, deployment: Deployment, message: Message, context: Context,
    reward_data: RewardData = "public", reward_noise: float | None = None,
) -> Problem:  # fmt: skip
    """The certifier's problem from what the server knows before the first round; a reward only where one is used."""
    if not np.isfinite(context.eps):
        raise InputError("CARES needs a privacy target: set privacy.eps")
    if context.accountant not in COUNTED_BY:
        raise InputError(
            f"CARES counts in zCDP: privacy.accountant={context.accountant!r} must be {' or '.join(COUNTED_BY)}"
        )
    record = message.unit == "record"
    if not record and message.adjacency != "replace":
        raise InputError(
            f"CARES' certificate charges clients that are replaced: adjacency={message.adjacency!r} must be 'replace'"
        )
    if config.loss_gap is None and context.classes < 2:
        raise InputError("loss_gap must be given: its default is ln(classes), and this task has none")
    factor = 1 / math.sqrt(2)  # Rayleigh scale from the rms gain
    limits = config.certify_with == "limits"
    rms, antennas = _heard(obs, deployment, limits)
    return Problem(
        weights=np.asarray(deployment.weights, float),
        channel_scale=rms * factor,
        noise_std=(math.sqrt(deployment.trusted_noise_var), math.sqrt(deployment.noise_var)),
        num_params=message.dim,
        loss_gap=math.log(context.classes) if config.loss_gap is None else config.loss_gap,
        eps_target=context.eps,
        delta=context.delta,
        max_power=np.asarray(deployment.energy, float),
        clip_norm=message.bound,
        step_size=context.step_size,
        smoothness=config.smoothness,
        grad_var=config.grad_var,
        max_asymmetry=config.max_asymmetry,
        max_dropped=config.max_dropped,
        constants=config.constants,
        accounting=COUNTED_BY[context.accountant],
        granularity="record" if record else "client",
        batch_sizes=np.round(2 * message.bound / np.asarray(message.sensitivity)) if record else None,
        silence=config.silence,
        gain_error_max=deployment.gain_error,
        certify_with=config.certify_with,
        mu_low=obs.rms_low * factor if limits or estimated(obs) else None,
        mu_high=obs.rms_high * factor if limits or estimated(obs) else None,
        reward_data=reward_data,
        reward_noise=reward_noise,
        sizes=context.sizes,
        antennas=antennas,
    )


def _heard(obs: Obs, deployment: Deployment, limits: bool) -> tuple[Array, int]:
    """The rms (K,) of the law that bounds silence, and the antennas that a beam which follows the fading chooses from.

    A fixed beam is heard like one antenna; one that follows the fading is bounded by (H3) from the law of an antenna.
    """
    receiver = deployment.receiver
    if not receiver.follows:
        return obs.rms, 1
    if receiver.beam not in ("best_antenna", "iterated"):
        raise InputError(f"CARES at beam={receiver.beam!r}: (H3) needs one never worse than the best antenna")
    if limits or receiver.antenna_rms is None:
        raise InputError(
            f"CARES at beam={receiver.beam!r} needs the known, constant mean power of an antenna: leave out "
            "channel.pilots, channel.drift and certify_with='limits'"
        )
    return np.asarray(receiver.antenna_rms, float), receiver.antennas


def estimated(known: Obs) -> bool:
    """Whether the scale of the channel is an estimate from pilots, between limits."""
    return bool(np.any(np.asarray(known.rms_low) < np.asarray(known.rms_high)))


def sure(config: Any, known: Obs, deployment: Deployment, context: Context) -> bool:
    """Whether envelopes bind the channel: Rayleigh fading of one antenna, its scale known or taken at its limits (E16).

    At an array a round costs more, by an angle that no closed form bounds: the horizon is the ledger's.
    """
    bound = config.certify_with == "limits" or not estimated(known)
    return bound and context.rayleigh and deployment.receiver.antennas == 1


def arms_of(config: Any, problem: Problem, rounds: int) -> Any:
    """The configured grid, or the automatic one within the run's rounds."""
    return auto_grid(problem, config.num_arms, rounds=rounds) if config.arms == "auto" else config.arms


def certified_arms(config: Any, problem: Problem, rounds: int) -> Certificate:
    """The certificate on the configured grid; Infeasible where nothing is certified and nobody asked to go on."""
    answer = certify(problem, arms_of(config, problem, rounds), config.conv_target, config.diagnostic)
    if answer.init is None and (why := reward_alone(problem)):
        raise Infeasible(f"not one round is affordable: {why}", answer)
    if answer.init is None:
        raise Infeasible(
            "no receive scaling of the grid meets all four targets; `otafl plan cares` shows which constraint fails "
            "and the nearest relaxation (diagnostic=true goes on without a certificate)",
            answer,
        )
    return answer


def cares_static(config: Config, deployment: Deployment, message: Message, context: Context) -> Policy:
    """Sensitivity as in `Problem`; every round is charged in full, silent clients included."""
    weights, energy = np.asarray(deployment.weights, float), np.asarray(deployment.energy, float)

    def init(key: Any) -> None:
        return None

    def problem_with(*statistics: bytes) -> Problem:
        rms, low, high = (np.frombuffer(values) for values in statistics)
        known = Obs(0, rms, rms, low, high, rms, np.nan)  # only statistics are looked at
        return problem_of(config, known, deployment, message, context)

    @lru_cache(maxsize=1)  # statistics stand still for many rounds, or for all
    def envelopes(rx_scale: float, *statistics: bytes) -> tuple[Array, Array]:
        problem = problem_with(*statistics)
        return problem.dropped_weight(rx_scale), problem.asymmetry(rx_scale)

    def step(state: State | None, obs: Obs) -> tuple[State, Plan, Info]:
        known = (np.asarray(x, float).reshape(-1, weights.size) for x in (obs.rms, obs.rms_low, obs.rms_high))
        rounds = [tuple(row.tobytes() for row in rows) for rows in zip(*known)]
        if state is None:
            answer = certified_arms(config, problem_with(*rounds[0]), context.rounds)
            assert answer.eta_init is not None
            state = State(answer.eta_init, answer.feasible and sure(config, obs, deployment, context))
        plan, _ = truncated_inversion(np.asarray(state.rx_scale), weights, energy, obs, message, config.silence)
        found = np.array([envelopes(state.rx_scale, *row) for row in rounds]).T
        dropped, gap = found.reshape(2, *plan.rx_scale.shape)
        kept = state.certified & (dropped <= config.max_dropped) & (gap <= config.max_asymmetry)
        return state, plan, Info(plan.rx_scale, dropped, gap, kept)

    gate: Literal["message", "bound"] = "message" if config.silence == "norm" else "bound"
    return Policy("cares-static", init, step, loop="open", csi="own", gate=gate, spans=True)
