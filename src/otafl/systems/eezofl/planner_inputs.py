"""FILE of `otafl plan eezofl`: its schema, and the channel that it describes."""

import math
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from otafl.channels import load_site
from otafl.core.errors import InputError
from otafl.core.files import FileModel
from otafl.crypto import budget
from otafl.crypto.parameters import WIDEST_BITS
from otafl.systems.eezofl import planner_symbols as symbols


class CustomRing(FileModel):
    """Degree and primes of a ring of one's own."""

    n: int
    primes: list[int]


class Devices(FileModel):
    """Gains of the devices: real, with mean mu and standard deviation sigma, or Omega = mu^2 + sigma^2."""

    SYMBOLS: ClassVar[dict[str, str]] = {"N": "count", "clients": "count"}
    count: int = Field(ge=1, le=10**6)
    mu: float | list[float] = 1.0
    sigma: float | list[float] | None = None  # 1 unless Omega is given
    Omega: float | list[float] | None = None  # E h^2
    fourth_moment: list[float] | None = None  # E h^4; Gaussian if left out


class Convergence(FileModel):
    """What the convergence theorem asks of the task; directions are Rademacher unless b1 and b2 say otherwise."""

    d: int = Field(ge=1)
    eta0: float = Field(gt=0)
    gamma0: float = Field(gt=0)
    L_f: float = Field(gt=0)
    L_g: float = Field(gt=0)
    b: float = Field(gt=0)
    gap: float = Field(gt=0)
    b1: float = Field(1.0, gt=0)  # E[(Phi^j)^2]
    b2: float | None = Field(None, gt=0)  # bound on the norm of Phi; sqrt(d) if left out
    eps: float | None = Field(None, gt=0)  # with beta: how many rounds until Pr[min |grad F|^2 > eps] <= beta
    beta: float | None = Field(None, gt=0, le=1)

    @model_validator(mode="after")
    def _both(self) -> "Convergence":
        if (self.eps is None) != (self.beta is None):
            raise InputError("eps and beta: give both (rounds needed are then planned) or neither")
        return self


class Inputs(FileModel):
    """FILE of `otafl plan eezofl`. N, mu, sigma, Omega, n, primes, Lambda may stand at the top instead of in tables."""

    SYMBOLS: ClassVar[dict[str, str]] = {"K": "rounds", "lambda_s": "smudging_bits"}
    MOVED = symbols.RING | {symbol: f"devices.{key}" for symbol, key in symbols.DEVICES.items()}
    model_config = ConfigDict(json_schema_extra=symbols.describe)

    mode: Literal["fixed-point", "digital", "hybrid"] = "fixed-point"
    ring: Literal["4096", "8192"] | None = None
    custom_ring: CustomRing | None = None
    smudging_bits: float | None = Field(None, gt=0)
    sigma_phi: float | None = Field(None, gt=0)
    h_floor: float | None = Field(None, gt=0)
    f: int | None = Field(None, ge=0, le=WIDEST_BITS)
    Lambda_log2: int | None = Field(None, ge=0, le=WIDEST_BITS)
    tau: float = Field(gt=0)
    snr_db_max: float | None = None
    Mmax: float = Field(1024.0, gt=0)
    P: int = Field(1, ge=1)
    guard: bool = True
    short_shares: bool = False
    sigma_e: float = Field(3.2, gt=0)
    sigma_w: float = Field(1.0, ge=0)
    secret: Literal["sign", "ternary"] = "sign"
    bandwidth_hz: float | None = Field(None, gt=0)  # for seconds; from the deployment file where devices names one
    rounds: int = Field(1, ge=1)
    allow_insecure: bool = False
    devices: Devices | str  # or a TOML deployment file beside FILE
    convergence: Convergence | None = None

    @model_validator(mode="before")
    @classmethod
    def _tables(cls, data: Any) -> Any:
        return symbols.tables(data)

    @model_validator(mode="after")
    def _one_of_each(self) -> "Inputs":
        if (self.ring is None) == (self.custom_ring is None):
            raise InputError("give exactly one of ring and [custom_ring]")
        if self.smudging_bits is not None and self.sigma_phi is not None:
            raise InputError("give smudging_bits or sigma_phi, not both")
        grid = self.f is not None or self.mode == "digital"  # whose weights are 1
        if self.sigma_phi is not None and not (grid and self.Lambda_log2 is not None):
            raise InputError("sigma_phi is in ring units: it needs f and Lambda_log2; or give smudging_bits")
        if self.snr_db_max is not None and (self.Lambda_log2 is not None or self.mode == "digital"):
            reason = "Lambda_log2 is given" if self.Lambda_log2 is not None else "mode='digital' sends nothing by radio"
            raise InputError(f"snr_db_max raises Lambda until the SNR is met, but {reason}; leave it out")
        if self.Lambda_log2 is not None and not grid:
            raise InputError("Lambda_log2 without f: give both, or leave Lambda_log2 out and it is chosen with f")
        return self


def extreme(inputs: Inputs) -> tuple[str, float]:
    """Name and value of the number of FILE that is furthest from 1, in orders of magnitude."""

    def numbers(name: str, entry: Any) -> list[tuple[str, float]]:
        if isinstance(entry, dict):
            return [pair for key, part in entry.items() for pair in numbers(f"{name}.{key}" if name else key, part)]
        if isinstance(entry, list):
            return [pair for i, part in enumerate(entry) for pair in numbers(f"{name}.{i}", part)]
        return [(name, entry)] if isinstance(entry, int | float) and entry else []

    return max(numbers("", inputs.model_dump()), key=lambda pair: abs(math.log(abs(pair[1]))))


def _per_device(name: str, value: float | list[float], count: int) -> np.ndarray:
    array = np.asarray(value, dtype=float)
    if array.ndim == 0:
        return np.full(count, float(array))
    if array.size != count:
        raise InputError(f"devices.{name} has {array.size} entries but devices.count={count}")
    return array


class Levelled(NamedTuple):
    """What a deployment file comes to where every device levels its mean path gain."""

    devices: Devices
    bandwidth_hz: float
    snr_db: float  # of the weakest device at its full power, which all are levelled to


def levelled(path: Path) -> Levelled:
    """Devices of a site: phases taken out and mean gains levelled to 1, what is left of Rayleigh fading is abs(h).

    E abs(h) = sqrt(pi)/2, E abs(h)^2 = 1, E abs(h)^4 = 2.
    """
    site = load_site(path)
    count = len(site.devices.names)
    heard_w = float(np.min(site.devices.power_w * site.devices.mean_power_gain))
    made = Devices(count=count, mu=math.sqrt(math.pi) / 2, Omega=1.0, fourth_moment=[2.0] * count)
    return Levelled(made, site.radio.bandwidth_hz, 10 * math.log10(heard_w / site.radio.noise_w))


def channel_of(devices: Devices) -> budget.Fading:
    mu = _per_device("mu", devices.mu, devices.count)
    if devices.sigma is not None and devices.Omega is not None:
        raise InputError("sigma and Omega: give one, Omega = mu^2 + sigma^2")
    sigma = _per_device("sigma", 1.0 if devices.sigma is None else devices.sigma, devices.count)
    if np.any(sigma < 0):
        raise InputError(f"devices.sigma={float(sigma.min())!r} must be >= 0")
    Omega = mu**2 + sigma**2 if devices.Omega is None else _per_device("Omega", devices.Omega, devices.count)
    fourth = devices.fourth_moment
    known = None if fourth is None else _per_device("fourth_moment", fourth, devices.count)
    return budget.fading(mu, Omega, known)
