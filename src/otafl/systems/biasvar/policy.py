"""Bias-variance power control (Ul Abrar and Michelusi): fixed pre-scalers, truncated inversion, a designed bias.

The server knows the mean gains only; each device inverts its own channel to the level gamma_m that the design gave
it, and stays silent where a message at the declared bound would break its energy limit. The yardsticks of the same
shape (least noise, best zero bias, best common pre-scaler) differ only in how gamma is chosen. Host, NumPy, float64.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.core.plan import Context, Deployment, Message, Obs, Plan, Policy, check_bound, silent_by_bound, stateless
from otafl.systems.biasvar import design as designs
from otafl.systems.biasvar.exact import normal, optimum
from otafl.systems.biasvar.sca import solve_sca
from otafl.systems.biasvar.yardsticks import design_common_gamma
from otafl.systems.remembered import once_per_row

DESIGNS = ("exact", "sca", "zero-bias", "min-noise", "common-gamma")


@dataclass(frozen=True)
class Config:
    """What Theorem 1 knows of the objective: `rho`, or `kappa` with `eta` and `L`; neither is the worst case rho = 1.

    The worst case is kappa = G and eta L = 1. sigma2: mini-batch gradient variance, for all devices or for each.
    noise_factor: 1/2 is exact for the real part that the server uses, 1 is the printed formula (E5).
    """

    rho: float | None = None
    kappa: float | None = None
    eta: float | None = None
    L: float | None = None
    sigma2: float | tuple[float, ...] = 0.0
    noise_factor: float = 0.5
    headroom: float = 1.0  # < 1 backs all mean levels off alike: the designed shares stay, fewer devices are silent
    design: Literal["exact", "sca", "zero-bias", "min-noise", "common-gamma"] = "exact"


class Info(NamedTuple):
    """Per client."""

    level: Array  # (..., K) p, mean participation weight
    sends: Array  # (..., K) bool


def biasvar(config: Config, deployment: Deployment, message: Message, context: Context) -> Policy:
    """Claims no privacy by itself; to the ledger each client is a Gaussian mechanism of received amplitude gamma_m."""
    validate.one_of("design", config.design, DESIGNS)
    validate.in_left_open("headroom", config.headroom, 0, 1)
    check_bound(message)
    par = bound_params(config, deployment, message)
    designs.check(radio(np.ones_like(deployment.energy, float), deployment), par)

    def design(rms: Array) -> tuple[Array]:
        gamma = pre_scalers(config.design, rms, deployment, par)
        return (backed_off(gamma, rms, deployment, message, config.headroom),)

    designed = once_per_row(design)

    def step(state: tuple[()], obs: Obs) -> tuple[tuple[()], Plan, Info]:
        (gamma,) = designed(obs.rms)
        prob = np.exp(-((gamma * message.bound / obs.rms) ** 2) / deployment.energy)  # Rayleigh
        alpha = (gamma * prob).sum(-1)
        plan = truncated_plan(gamma, alpha, prob, obs, deployment, message)
        return state, plan, Info(gamma * prob / alpha[..., None], plan.max_norm >= 0)

    return Policy(f"biasvar-{config.design}", stateless, step, loop="open", csi="own", gate="bound")


def bound_params(config: Config, deployment: Deployment, message: Message) -> designs.BoundParams:
    """The learning side of the design, from either way of stating it."""
    rest = {"sigma2": config.sigma2, "noise_factor": config.noise_factor, "weights": deployment.weights}
    given = [name for name in ("kappa", "eta", "L") if getattr(config, name) is not None]
    if config.rho is not None and given:
        raise InputError(f"give rho or kappa, eta and L; found rho and {', '.join(given)}")
    if config.kappa is None or config.eta is None or config.L is None:
        if given:
            raise InputError(f"kappa, eta and L belong together; found only {', '.join(given)}")
        return designs.params_from_rho(1.0 if config.rho is None else config.rho, message.bound, **rest)
    return designs.BoundParams(message.bound, config.eta, config.L, config.kappa, **rest)


def radio(rms: Array, deployment: Deployment) -> designs.Radio:
    """The design's view of the site: N_0 / 2 is the noise per real dimension, E_s the energy per sample."""
    per_sample = np.asarray(deployment.energy, float) / deployment.dim
    return designs.Radio(np.asarray(rms, float) ** 2, per_sample, 2 * deployment.noise_var, deployment.dim)


def pre_scalers(design: str, rms: Array, deployment: Deployment, par: designs.BoundParams) -> Array:
    """gamma (R, K) for R rows of statistical CSI; the exact and the zero-bias design solve all rows at once."""
    energy = np.asarray(deployment.energy, float)
    gamma_max = rms * np.sqrt(energy / 2) / par.G
    if design == "min-noise":
        return gamma_max
    if design in ("exact", "zero-bias"):
        scale = gamma_max / designs.unit(radio(rms, deployment), par)
        rho = par.rho if design == "exact" else np.inf
        minibatch = np.asarray(par.sigma2, float) / par.G**2
        return gamma_max * optimum(normal(scale, rho, par.weights, minibatch, par.noise_factor)).u
    solve = solve_sca if design == "sca" else design_common_gamma
    return np.stack([solve(radio(row, deployment), par).gamma for row in rms])


def backed_off(gamma: Array, rms: Array, deployment: Deployment, message: Message, headroom: float) -> Array:
    """Pre-scalers whose mean levels gamma exp(-(gamma G)^2 / m) are `headroom` times the designed ones, (R, K).

    With u = gamma / gamma_max a mean level is u exp(-u^2/2) up to a factor, so each is one small root.
    """
    if headroom == 1:
        return gamma
    gamma_max = rms * np.sqrt(np.asarray(deployment.energy, float) / 2) / message.bound
    u = np.minimum(gamma / gamma_max, 1.0)  # a design never goes beyond the peak, but for rounding
    return gamma_max * designs.small_root(headroom * u * np.exp(-(u**2) / 2))


def truncated_plan(gamma: Array, alpha: Array, prob: Array, obs: Obs, deployment: Deployment, message: Message) -> Plan:
    """Invert to the level gamma (..., K) unless the declared bound forbids it, biasvar (4)-(6)."""
    dead = obs.estimate == 0
    with np.errstate(divide="ignore", invalid="ignore"):
        tx = np.where(dead, 0, gamma / obs.estimate)
    max_norm = np.where(dead, -1.0, silent_by_bound(tx, deployment.energy, message.bound))
    return Plan(tx, np.zeros_like(tx), max_norm, alpha, prob, np.ones(np.shape(alpha), bool))
