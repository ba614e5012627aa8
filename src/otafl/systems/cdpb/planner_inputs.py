"""Reading a file of `otafl plan cdpb`: clients as numbers, lists or a devices file."""

import math
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from otafl.core import validate
from otafl.core.errors import InputError
from otafl.core.files import FileModel
from otafl.systems.cdpb.design import Params
from otafl.systems.planning import listed

MAX_CLIENTS = 30_000  # the exact law of who takes part costs K^2
MAX_KINDS = 2000  # unlike clients
MAX_ALPHA = 10_000  # Renyi order
MAX_DRAWS = 5e7  # channels drawn for the realised loss, K tau


class Inputs(FileModel):
    """Schema of FILE; the names are those of `otafl.systems.cdpb.design.Params` and `solve`."""

    SYMBOLS: ClassVar[dict[str, str]] = {
        "num_params": "d", "clip_norm": "W", "rounds": "tau_cap", "clients": "K",
    }  # fmt: skip

    K: int | None = None
    d: int
    W: float = 1.0
    P: float | list[float] | None = None
    sigma2: float | list[float] | None = None
    devices: str | None = None  # CSV, or TOML with [radio]: gives K, sigma2 and P (and sz2)
    sz2: float | None = None  # 0 unless a devices file says otherwise
    A: float | None = None  # 4 L^2 G with G given, else 4
    G: float | None = None  # bound on E norm(grad f_k)^2, instead of A
    mu: float = 1.0
    a: float = 8.0
    M: float = 1.0
    L: int = 1
    D0: float = 1.0
    alpha: float = 2.0
    lam1: float = 1.0
    lam2: float = 1e-5
    gbar: float | None = Field(1e-2, allow_inf_nan=True)  # inf: no limit
    ebar: float | None = Field(100.0, allow_inf_nan=True)
    rho: float | None = None  # given: only tau is chosen
    u: float | None = None  # the same as rho, as a load
    tau: int | None = None  # given: only rho is chosen; with rho the pair is judged
    capped: bool = True
    strategy: Literal["idle", "noisy", "mixed"] = "idle"
    portion: float | None = None
    accounting: Literal["visible", "hidden", "none", "paper", "printed"] = "visible"
    adjacency: Literal["zero-out", "replace", "replacement"] = "zero-out"
    trust_receiver_noise: bool = True
    assume_hidden: bool = False
    tau_cap: int | None = None
    bound: Literal["simple", "full", "printed"] = "simple"
    delta: float = 1e-5
    best_portion: bool = False
    seed: int = 0  # of the drawn channels behind the realised loss

    @field_validator("accounting", mode="before")
    @classmethod
    def _plannable(cls, accounting: Any) -> Any:
        if accounting == "realised":
            raise InputError(
                "'realised' charges drawn channels: plan with 'visible', the answer has it beside the rest"
            )
        return accounting

    @model_validator(mode="after")
    def _clients_once(self) -> "Inputs":
        listed = [name for name in ("K", "P", "sigma2") if getattr(self, name) is not None]
        if self.devices is not None and listed:
            raise InputError(f"{', '.join(listed)} follow from the devices file; give one of the two")
        if self.devices is None and (self.K is None or self.sigma2 is None):
            raise InputError("K and sigma2 must be given, or a devices file")
        if self.A is not None and self.G is not None:
            raise InputError("A and G: give one, A = 4 L^2 G")
        if self.rho is not None and self.u is not None:
            raise InputError("rho and u: give one, rho = 2 P sigma2 u / W^2")
        validate.in_open("delta", self.delta, 0, 1)
        validate.in_left_open("alpha", self.alpha, 1, MAX_ALPHA)
        validate.whole("seed", self.seed, 0)
        return self


def _clients(inputs: Inputs, folder: Path) -> dict[str, Any]:
    """K, sigma2, P and sz2: as given, or from a devices file (a .toml with [radio] brings the receiver noise too)."""
    if inputs.devices is None:
        as_given = {"K": inputs.K, "sigma2": inputs.sigma2, "P": 1.0 if inputs.P is None else inputs.P}
        lists = {name: tuple(x) if isinstance(x, list) else x for name, x in as_given.items()}
        return {**lists, "sz2": inputs.sz2 or 0.0}
    path = folder / inputs.devices
    devices, energy, site = listed(path, inputs.d, "sz2", inputs.sz2)
    if site is not None and inputs.trust_receiver_noise and site.trusted_noise_var < site.noise_var:
        raise InputError(f"{path}: trusts only part of the noise; say trust_receiver_noise = false")
    sigma2 = tuple(devices.mean_power_gain / 2)  # E abs(gain)^2 = 2 sigma2
    sz2 = inputs.sz2 if site is None else site.noise_var
    return {"K": len(sigma2), "sigma2": sigma2, "P": tuple(energy), "sz2": sz2}


def params_of(inputs: Inputs, folder: Path) -> Params:
    """The parameters of a file; an infinite limit is none."""
    given = _clients(inputs, folder)
    if inputs.G is not None:
        validate.positive("G", inputs.G)
        given["A"] = 4.0 * inputs.L**2 * inputs.G  # CDPB E12
    else:
        given["A"] = 4.0 if inputs.A is None else inputs.A
    for name in ("gbar", "ebar"):
        limit = getattr(inputs, name)
        given[name] = None if limit == math.inf else limit
    shared = {f.name: getattr(inputs, f.name) for f in fields(Params) if f.name not in given}
    params = Params(**shared, **given)
    validate.at_most("clients K", params.K, MAX_CLIENTS, "group them: the design depends on their kinds")
    validate.at_most("kinds of client (P, sigma2)", len(params.groups[0]), MAX_KINDS, "round their gains and powers")
    return params
