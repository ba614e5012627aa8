"""What CDPB is compared with: gbar-based, h_min-based, independent sampling, noise-free. Host, NumPy, float64.

All share CDPB's threshold rule and noise; the error-free yardstick is `fedavg`. Charge all of them with one accountant:
the published comparison charges its competitors a looser one (CDPB E9).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.plan import Context, Deployment, Message, Obs, Plan, Policy, always, stateless
from otafl.systems.cdpb.policy import Info, balance, params_at, receive_scale, rho_rule, send_probability
from otafl.systems.remembered import once_per_row


@dataclass(frozen=True)
class GbarConfig:
    """The target gbar and the constants of the convergence bound."""

    strategy: Literal["idle", "noisy"] = "idle"
    gbar: float = 1e-2
    A: float = 4.0
    mu: float = 1.0


def gbar_based(config: GbarConfig, deployment: Deployment, message: Message, context: Context) -> Policy:
    """rho minimises the error energy B; stops after the tau_gmin rounds that gbar needs."""
    from otafl.systems.cdpb.design import error_energy, lemma1, scheme, stats

    validate.positive("gbar", config.gbar)
    way = scheme(config.strategy)

    def design(law: Array) -> tuple[float, int]:
        params = params_at(law, deployment, message, A=config.A, mu=config.mu, gbar=config.gbar)
        u = lemma1(params, way)
        error = float(error_energy(params, stats(params, u, way)))
        return float(params.rho(u)), int(np.ceil(6 * error / (config.mu * config.gbar)))

    designed = once_per_row(lambda laws: tuple(map(np.array, zip(*map(design, laws)))))

    def step(state: tuple[()], obs: Obs) -> tuple[tuple[()], Plan, Info]:
        rho, tau_gmin = designed(obs.rms**2)
        tx, noise, max_norm = balance(rho, obs, deployment, message, way.portion)
        prob = send_probability(rho, obs, deployment, message)
        live = np.broadcast_to(np.asarray(obs.round) < tau_gmin, np.shape(rho))
        return state, Plan(tx, noise, max_norm, receive_scale(rho, prob.sum(-1)), prob, live), Info(max_norm > 0, rho)

    return Policy("cdpb-gbar", stateless, step, loop="open", csi="own", gate="bound")


@dataclass(frozen=True)
class HminConfig:
    """Nothing to set: the round's weakest channel decides."""


def hmin_based(config: HminConfig, deployment: Deployment, message: Message, context: Context) -> Policy:
    """Needs every client's channel in every round. Nobody is silent, so every round is charged in full."""
    energy = np.asarray(deployment.energy, float)

    def step(state: tuple[()], obs: Obs) -> tuple[tuple[()], Plan, Info]:
        rho = np.min(energy * np.abs(obs.estimate) ** 2, -1) / message.bound**2
        tx, noise, max_norm = balance(rho, obs, deployment, message, 0.0)
        scale = receive_scale(rho, np.full(rho.shape, float(energy.size)))
        return state, Plan(tx, noise, always(tx), scale, np.ones(tx.shape), rho > 0), Info(max_norm > 0, rho)

    return Policy("cdpb-hmin", stateless, step, loop="open", csi="global", gate="bound")


@dataclass(frozen=True)
class SamplingConfig:
    """`q` is each client's chance to be kept; load as in CDPB (None: the best one for CDPB-i thinned by q)."""

    q: float = 0.5
    load: float | None = None
    accounting: Literal["visible", "none", "paper"] = "visible"
    alpha: float = 2.0
    A: float = 4.0
    mu: float = 1.0
    lam1: float = 1.0
    lam2: float = 1e-5


def independent_sampling(config: SamplingConfig, deployment: Deployment, message: Message, context: Context) -> Policy:
    """Dropped clients send neither data nor noise. The server knows who takes part: never charge it as hidden."""
    from otafl.systems.cdpb.design import Scheme

    validate.in_left_open("q", config.q, 0, 1)
    rho_for = rho_rule(config, deployment, message, context.rounds, Scheme(keep=config.q))

    def step(state: tuple[()], obs: Obs) -> tuple[tuple[()], Plan, Info]:
        rho = np.asarray(rho_for(obs.rms**2))
        tx, noise, max_norm = balance(rho, obs, deployment, message, 0.0)
        kept = obs.coin < config.q
        prob = config.q * send_probability(rho, obs, deployment, message)
        max_norm = np.where(kept, max_norm, -1.0)
        noise, scale = np.where(kept, noise, 0), receive_scale(rho, prob.sum(-1))
        plan = Plan(tx, noise, max_norm, scale, prob, np.ones(rho.shape, bool))
        return state, plan, Info(max_norm > 0, rho)

    return Policy("cdpb-is", stateless, step, loop="open", csi="own", gate="bound")


@dataclass(frozen=True)
class NoiseFreeConfig:
    """Load as in CDPB (None: the best one when only receiver noise protects)."""

    load: float | None = None
    accounting: Literal["visible", "hidden", "none", "paper"] = "visible"
    alpha: float = 2.0
    A: float = 4.0
    mu: float = 1.0
    lam1: float = 1.0
    lam2: float = 1e-5


def noise_free(config: NoiseFreeConfig, deployment: Deployment, message: Message, context: Context) -> Policy:
    """Without receiver noise the privacy loss is infinite, and so is what the ledger charges."""
    from otafl.systems.cdpb.design import NOISE_FREE

    if config.load is None:
        validate.positive("trusted_noise_var", deployment.trusted_noise_var)
    rho_for = rho_rule(config, deployment, message, context.rounds, NOISE_FREE)

    def step(state: tuple[()], obs: Obs) -> tuple[tuple[()], Plan, Info]:
        rho = np.asarray(rho_for(obs.rms**2))
        tx, noise, max_norm = balance(rho, obs, deployment, message, 0.0)
        prob = send_probability(rho, obs, deployment, message)
        scale = receive_scale(rho, prob.sum(-1))
        return state, Plan(tx, 0 * noise, max_norm, scale, prob, np.ones(rho.shape, bool)), Info(max_norm > 0, rho)

    return Policy("cdpb-noise-free", stateless, step, loop="open", csi="own", gate="bound")
