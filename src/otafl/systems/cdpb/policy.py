"""CDPB: client-driven power balancing (Kim, Seo, Choi). Host, NumPy, float64.

A client whose power gain reaches h_th = rho W^2 / P inverts its channel and spends its left-over energy on noise; below
it, it stays silent (idle), sends noise only (noisy), or does so in part (mixed). It decides by its own channel alone;
rho depends on the channel law and is broadcast only when that law changes.

Privacy unit: client. Sensitivity of what is received: sqrt(rho) W (zero-out), 2 sqrt(rho) W (replace). The artificial
noise is set from the declared bound W, never from the message (CDPB E22), and turned into the receiver's phase (E18).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.core.plan import CSI, Context, Deployment, Message, Obs, Plan, Policy, check_bound, silent_by_bound
from otafl.systems.remembered import once_per_row


@dataclass(frozen=True)
class Config:
    """`load` fixes u = h_th / E[h]; without it u minimises lam1 6 B / (mu tau) + lam2 eps over the experiment's rounds.

    The mean formed is the plain one of the paper; `debias` makes it unbiased for the deployment's weights when clients
    take part unequally often. normaliser "genie" and "pilot" count the participants, which voids hidden accounting.
    """

    strategy: Literal["idle", "noisy", "mixed"] = "idle"
    portion: float | None = None  # mixed only: share of unreliable clients (coin) or of their energy (scale)
    mixed_mode: Literal["scale", "coin"] = "scale"
    load: float | None = None
    left_over: float = 1.0  # share of reliable clients' left-over energy sent as noise; all of it in the paper
    normaliser: Literal["expected", "genie", "pilot"] = "expected"
    pilot_var: float = 0.0  # variance of the noisy count
    debias: bool = False
    resolve_every: int = 1  # rounds between looks at the channel law
    solver_delay: int = 0  # rounds until a new law's rho is in force (CDPB E24)
    accounting: Literal["visible", "hidden", "none", "paper"] = "visible"
    alpha: float = 2.0
    A: float = 4.0  # 4 L^2 G
    mu: float = 1.0
    lam1: float = 1.0
    lam2: float = 1e-5


class Info(NamedTuple):
    """What people plot."""

    good: Array  # (..., K) reliable
    rho: Array  # (...) in force


def check_accounting(normaliser: str, accounting: str) -> None:
    """A count of participants is a further hint about who took part: hidden accounting is then void (CDPB E21)."""
    if accounting == "hidden" and normaliser != "expected":
        raise InputError(f"normaliser={normaliser!r} voids accounting='hidden': a count tells who took part")


def send_probability(rho: Array, obs: Obs, deployment: Deployment, message: Message) -> Array:
    """p_k = e^-u_k for Rayleigh fading, (..., K)."""
    return np.exp(-rho[..., None] * message.bound**2 / (np.asarray(deployment.energy, float) * obs.rms**2))  # CDPB (53)


def balance(
    rho: Array,
    obs: Obs,
    deployment: Deployment,
    message: Message,
    noise_level: Array,
    amplitude: Array = 1.0,
    left_over: float = 1.0,
) -> tuple[Array, Array, Array]:
    """(tx, noise, max_norm), each (..., K), of the threshold rule.

    noise_level: share of an unreliable client's energy that it sends as noise. amplitude <= 1: of the arriving update,
    relative to sqrt(rho); the threshold is that of amplitude 1. left_over: share of what a reliable client has left.
    """
    energy, bound = np.asarray(deployment.energy, float), message.bound
    with np.errstate(divide="ignore", invalid="ignore"):
        invert = np.where(obs.estimate == 0, 0, np.sqrt(rho)[..., None] / obs.estimate)  # CDPB (4)
    max_norm = np.where(obs.estimate == 0, -1.0, silent_by_bound(invert, energy, bound))  # CDPB (6), (7)
    tx = amplitude * invert
    spare = left_over * (energy - np.abs(tx) ** 2 * bound**2)
    left = np.where(max_norm > 0, spare, noise_level * energy)  # CDPB (11), (15)
    phase = np.exp(-1j * np.angle(obs.estimate))
    return tx, np.sqrt(np.maximum(left, 0.0) / deployment.dim) * phase, max_norm


def count(normaliser: str, pilot_var: float, good: Array, coin: Array) -> Array:
    """Participants as the server counts them, (...): exactly, or from a pilot of variance `pilot_var` (CDPB E21).

    The pilot's noise comes from the sum of the coins modulo 1: uniform, and independent of any one client's coin.
    """
    exact = good.sum(-1).astype(float)
    if normaliser == "genie":
        return exact
    from scipy.special import ndtri

    uniform = np.clip(np.sum(coin, -1) % 1.0, 1e-16, 1 - 1e-16)
    return np.maximum(1.0, exact + np.sqrt(pilot_var) * ndtri(uniform))


def receive_scale(rho: Array, participants: Array) -> Array:
    """sqrt(rho) Knorm, CDPB (18); inf where nobody took part, which makes the update zero."""
    return np.where(participants > 0, np.sqrt(rho) * np.maximum(participants, 1e-300), np.inf)


def params_at(power: Array, deployment: Deployment, message: Message, **constants: Any) -> Any:
    """The design's view of a site whose clients have these mean power gains (K,)."""
    from otafl.systems.cdpb.design import Params

    energy = np.asarray(deployment.energy, float)
    return Params(
        K=power.size, d=deployment.dim, W=message.bound, P=tuple(energy), sigma2=tuple(power / 2),
        sz2=deployment.noise_var, capped=False, **constants,
    )  # fmt: skip


def load_solver(
    config: Any, deployment: Deployment, message: Message, tau: int, scheme: Any
) -> Callable[[Array], Array]:
    """The best load (...) for channel laws given as mean power gains (..., K)."""
    from otafl.systems.cdpb.design import Charge, best_load

    trusted = deployment.trusted_noise_var >= deployment.noise_var
    charge = Charge(config.accounting, "zero-out", trusted, assume_hidden=True)
    constants = {name: getattr(config, name) for name in ("A", "mu", "alpha", "lam1", "lam2")}

    def solved(laws: Array) -> tuple[Array]:
        sites = (params_at(law, deployment, message, **constants) for law in laws)
        return (np.array([best_load(site, tau, scheme, charge) for site in sites]),)

    loads = once_per_row(solved)
    return lambda power: loads(power)[0]


def rho_rule(config: Any, deployment: Deployment, message: Message, tau: int, scheme: Any) -> Callable[[Array], Array]:
    """rho (...) from mean power gains (..., K): a fixed load, or the best one for each law."""
    energy = np.asarray(deployment.energy, float)
    if config.load is None:
        load_for = load_solver(config, deployment, message, tau, scheme)
    else:
        validate.positive("load", config.load)
        load_for = lambda power: config.load  # noqa: E731
    return lambda power: load_for(power) * np.mean(energy * power, -1) / message.bound**2  # CDPB (7)


def _checked(config: Config, deployment: Deployment, message: Message) -> None:
    validate.one_of("mixed_mode", config.mixed_mode, ("scale", "coin"))
    validate.one_of("normaliser", config.normaliser, ("expected", "genie", "pilot"))
    validate.not_negative("pilot_var", config.pilot_var)
    validate.in_closed("left_over", config.left_over, 0, 1)
    validate.whole("resolve_every", config.resolve_every)
    validate.whole("solver_delay", config.solver_delay, low=0)
    check_bound(message)
    validate.positive("energy", deployment.energy)
    check_accounting(config.normaliser, config.accounting)
    if config.left_over != 1 and config.load is None:
        raise InputError(f"left_over={config.left_over:g} needs load: the published design sends all that is left over")
    if config.debias and config.normaliser != "expected":
        raise InputError(f"debias=true needs normaliser='expected', not {config.normaliser!r}")


def cdpb(config: Config, deployment: Deployment, message: Message, context: Context) -> Policy:
    """CDPB-i, CDPB-n or CDPB-mixed by `config.strategy`."""
    from otafl.systems.cdpb.design import Scheme, follow, scheme, unknown

    _checked(config, deployment, message)
    way: Scheme = scheme(config.strategy, config.portion)
    rho_for = rho_rule(config, deployment, message, context.rounds, way)
    follows = config.resolve_every > 1 or config.solver_delay > 0

    def plan(rho: Array, obs: Obs) -> tuple[Plan, Info]:
        level = (obs.coin < way.portion) * 1.0 if config.mixed_mode == "coin" else way.portion
        prob = send_probability(rho, obs, deployment, message)
        if config.debias:
            wanted = np.asarray(deployment.weights, float) / prob
            top = wanted.max(-1)
            amplitude, scale = wanted / top[..., None], np.sqrt(rho) / top
        else:
            amplitude, scale = 1.0, receive_scale(rho, prob.sum(-1))
        tx, noise, max_norm = balance(rho, obs, deployment, message, level, amplitude, config.left_over)
        good = max_norm > 0
        if config.normaliser != "expected":
            scale = receive_scale(rho, count(config.normaliser, config.pilot_var, good, obs.coin))
        return Plan(tx, noise, max_norm, scale, prob, np.ones(np.shape(scale), bool)), Info(good, rho)

    def step(state: Any, obs: Obs) -> tuple[Any, Plan, Info]:
        power = obs.rms**2
        if not follows:
            return (state, *plan(np.asarray(rho_for(power)), obs))
        single = lambda law: float(rho_for(law))  # noqa: E731
        state = follow(state, int(obs.round), power, single, config.resolve_every, config.solver_delay)
        return (state, *plan(np.asarray(state.rho), obs))

    csi: CSI = "own" if config.normaliser == "expected" else "global"
    name = f"cdpb-{config.strategy}"
    return Policy(name, lambda key: unknown() if follows else (), step, loop="open", csi=csi, gate="bound")
