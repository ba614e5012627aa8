"""EEZOFL: scalars of a zero-order round, divided by the mean gain and sent as they are; fading is never inverted.

Every device sends x / mu_i, everyone is heard in every round, the server divides by nothing: the received sum is
unbiased for the sum (not the mean) over devices, because E h_i = mu_i (EEZOFL 3.6). `mode` says how the scalars travel:
in the clear under receiver noise (`plain`) or encrypted (see `otafl.crypto.uplink`). Encryption hides single scalars
from a semi-honest server and semi-honest clients; it is no differential privacy, since their sum is public. `dp_noise`
adds accounted noise inside the encryption, for the sum.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from otafl.core import validate
from otafl.core.errors import InputError
from otafl.core.plan import Context, Deployment, Message, Obs, Plan, Policy, Trace, always, stateless
from otafl.core.uplink import ANALOG, FLOAT32_SLACK, Uplink

Mode = Literal[
    "plain", "analytic", "digital-analytic", "fixed-point", "hybrid", "digital", "single-key", "lifted", "naive-reuse",
    "zf", "mmse",
]  # fmt: skip
DIGITAL_MODES = ("digital", "digital-analytic")  # never meet the fading
OPEN_MODES = ("single-key", "lifted")  # do not hide single scalars
DP_REMARK = (
    "what protects whom: the encryption hides each client's scalars from the server and from the other clients; the "
    "clients' own noise, added before encrypting, protects each client against everyone who sees the public sum. It is "
    "counted as real-valued: it is wide against the grid that it is rounded to"
)
MEAN_REMARK = "devices know their mean gain; nothing else about the channel is used by them"


@dataclass(frozen=True)
class Config:
    """`mu`, `sigma`: mean and std of the real gains, one number or one per device: public channel statistics.

    Ring: degree `n` (4096: 109 bits, 8192: 218 bits; others are toys and need allow_insecure), grid 2^-`f`, scale
    2^`scale_bits`, share noise by `smudging_bits` or `sigma_phi` (3.2: the published setting, which floods nothing).
    """

    mode: Mode = "analytic"
    mu: float | tuple[float, ...] = 1.0
    sigma: float | tuple[float, ...] = 1.0
    sigma_n: float | None = None  # plain: receiver noise; None takes the radio's
    n: int = 4096
    f: int = 16
    scale_bits: int = 60
    smudging_bits: float | None = 40.0
    sigma_phi: float | None = None  # replaces smudging_bits
    sigma_e: float = 3.2
    sigma_w: float = 1.0  # noise of a received ring symbol
    secret: Literal["sign", "ternary"] = "sign"
    Mmax: float = 1024.0  # bound on a sent scalar and on the received sum
    guard: bool = True
    short_shares: bool = False
    allow_insecure: bool = False
    discard: bool = True  # a round found to have failed changes nothing; False applies it, as a demonstration
    pilot_error: float = 0.1  # zf, mmse: std of the estimate that is inverted
    dp_noise: float = 0.0  # std of the noise each client adds to each scalar it sends


def eezofl(config: Config, deployment: Deployment, message: Message, context: Context) -> Policy:
    """Unit and sensitivity are the clients'. The privacy noise is the receiver's (plain) or `dp_noise` (encrypted)."""
    count = len(deployment.weights)
    mu, sigma = _statistics(config, count)
    validate.not_negative("dp_noise", config.dp_noise)
    if config.dp_noise and config.mode in OPEN_MODES:
        raise InputError(
            f"dp_noise={config.dp_noise:g} must be 0 in mode {config.mode!r}: it is charged as the noise of the sum, "
            "but single scalars are open there, each under its own client's noise alone"
        )
    if not np.isfinite(message.bound):
        raise InputError("EEZOFL needs clients with a norm bound: its scalars must fit the ring")

    def step(state: tuple[()], obs: Obs) -> tuple[tuple[()], Plan, tuple[()]]:
        if config.mode not in DIGITAL_MODES:
            _check_statistics(obs.rms, mu, sigma)
        tx = np.broadcast_to(1 / mu + 0j, obs.coin.shape)  # EEZOFL 3.6
        one = np.ones(tx.shape[:-1])
        return state, Plan(tx, np.full_like(tx, config.dp_noise), always(tx), one, np.ones(tx.shape), one > 0), ()

    plain = config.mode == "plain"
    uplink = _plain(config.sigma_n) if plain else _encrypted(config, count, message, context.seed)
    return Policy("eezofl", stateless, step, loop="open", csi="statistical", gate="open", uplink=uplink)


def _statistics(config: Config, count: int) -> tuple[np.ndarray, np.ndarray]:
    """mu and sigma of every device."""
    for name in ("mu", "sigma"):
        if np.ndim(getattr(config, name)):
            validate.shape(name, getattr(config, name), (count,))
    mu, sigma = (np.broadcast_to(np.asarray(x, float), (count,)) for x in (config.mu, config.sigma))
    validate.not_negative("sigma", sigma)
    if np.any(mu == 0):
        raise InputError("mu=0 must not be 0: the mean gain is what a device divides by")
    return mu, sigma


def _check_statistics(rms: Any, mu: np.ndarray, sigma: np.ndarray) -> None:
    """The rms gain that devices measure must be that of the stated mean and spread (5 %, for pilots)."""
    stated = np.hypot(mu, sigma)
    if np.any(np.abs(rms / stated - 1) > 0.05):
        seen = float(np.ravel(rms)[np.argmax(np.abs(rms / stated - 1))])
        said = f"mu and sigma say rms gain {np.max(stated):.4g}, but the channel's is {seen:.4g}"
        raise InputError(f"{said}: they must agree")


def _plain(sigma_n: float | None) -> Uplink:
    """The analog sum, with a receiver noise of the scheme's own where one is given."""
    if sigma_n is None:
        return ANALOG
    validate.not_negative("sigma_n", sigma_n)

    def site(trace: Trace, deployment: Deployment) -> tuple[Trace, Deployment]:
        if sigma_n and not deployment.noise_var:
            raise InputError(f"sigma_n={sigma_n:g} needs a radio with noise: its trusted share is that of sigma_n too")
        share = deployment.trusted_noise_var / deployment.noise_var if sigma_n else 0.0
        return trace, deployment._replace(noise_var=sigma_n**2, trusted_noise_var=share * sigma_n**2)

    return ANALOG._replace(site=site, remarks=(MEAN_REMARK,))


def job_of(config: Config, count: int, message: Message, seed: int) -> Any:
    """The encrypted job (`crypto.uplink.Job`) that a config describes, for `count` devices."""
    from otafl.crypto import budget, ring, uplink
    from otafl.crypto.parameters import Parameters

    mu, sigma = _statistics(config, count)
    largest = message.bound / np.min(np.abs(mu))
    if largest > config.Mmax:
        raise InputError(f"Mmax={config.Mmax:g} must be at least clip_norm / mu = {largest:g}")
    if config.sigma_phi is None and config.smudging_bits is None:
        raise InputError("give smudging_bits or sigma_phi: shares without noise hand out the keys")
    known = {4096: ring.RING_4096, 8192: ring.RING_8192}
    base = Parameters(
        ring=known[config.n] if config.n in known else ring.toy_ring(config.n),
        f=config.f, scale_bits=config.scale_bits, sigma_e=config.sigma_e,
        sigma_w=config.sigma_w, secret=config.secret, Mmax=config.Mmax, P=message.dim, guard=config.guard,
        short_shares=config.short_shares, allow_insecure=config.allow_insecure,
    )  # fmt: skip
    if config.sigma_phi is not None:
        base = dataclasses.replace(base, sigma_phi=config.sigma_phi)
    fading = budget.fading(mu, mu**2 + sigma**2)
    job = uplink.Job(base, fading, config.mode, seed, config.discard, config.pilot_error)
    return job if config.sigma_phi is not None else job.flooded(config.smudging_bits)  # type: ignore[arg-type]


def _encrypted(config: Config, count: int, message: Message, seed: int) -> Uplink:
    from otafl.crypto import uplink

    job = job_of(config, count, message, seed)
    if 0 < config.dp_noise < job.least_noise:
        raise InputError(
            f"dp_noise={config.dp_noise:g} must be 0 or at least {job.least_noise:.3g}: rounded to this ring's grid, "
            "the clients' noises can be told apart in the sum; raise scale_bits"
        )
    shortest = message.bound / np.max(np.abs(job.fading.mu))
    if config.dp_noise and job.rounding > FLOAT32_SLACK * shortest:
        raise InputError(
            f"scale_bits={config.scale_bits} must be larger: rounded to this grid, scalars of norm {shortest:.3g} may "
            "become longer than they are charged"
        )
    made = uplink.make(job)
    extra = [_flooding(config), MEAN_REMARK, *([DP_REMARK] if config.dp_noise else [])]
    return made._replace(remarks=(*made.remarks, *extra))


def _flooding(config: Config) -> str:
    if config.mode == "single-key":
        return "no shares are sent, so there is no share noise"
    if config.mode == "lifted":
        return "share noise was added, but hides nothing where the keys are found by division"
    if config.sigma_phi is not None:
        return f"share noise of {config.sigma_phi:g} ring units; if small (published: 3.2), nothing is flooded"
    return f"share noise hides the key-dependent part of a coefficient by {config.smudging_bits} bits"
