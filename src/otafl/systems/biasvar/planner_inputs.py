"""Reading a file of `otafl plan biasvar`: devices in one of four ways, energies and noise in SI or dB."""

from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from otafl.channels import Devices, PathLoss, dbm_to_w, from_db, has_radio, load_devices, load_site, loss_db
from otafl.channels import Radio as Receiver
from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.core.files import FileModel
from otafl.systems.biasvar.design import BoundParams, Radio, params_from_rho

MAX_DEVICES = 5000
MAX_DEVICES_SCA = 300  # its dense systems cost the cube
MAX_POINTS = 10_000
MAX_CELLS = 1e6  # of the frontier, points times devices
_PLACES = ("devices", "gains", "distances_m", "snr_db")


class Inputs(FileModel):
    """Schema of FILE. Devices in one of four ways; rho, or kappa with L; the rest has the names of the design."""

    SYMBOLS: ClassVar[dict[str, str]] = {
        "Lambda": "gains", "distances": "distances_m", "N_0": "N0", "G_max": "G", "n_f": "noise_factor", "T": "rounds",
        "num_params": "d", "clip_norm": "G", "step_size": "eta", "clients": "N", "weights": "weighting",
    }  # fmt: skip

    N: int | None = None  # number of devices, if stated: must be that of the list
    devices: str | None = None  # CSV or TOML of devices, beside FILE: gains (or distances), powers, data sizes
    gains: list[float] | None = None  # Lambda = E|h|^2, linear
    distances_m: list[float] | None = None
    snr_db: list[float] | None = None  # Lambda E_s / N0; pre-scalers then come in units of sqrt(N0)
    path_loss: PathLoss = PathLoss("biasvar")  # of distances
    weighting: Literal["equal", "samples"] | list[float] | None = None  # samples where devices state them, else equal
    E_s: float | list[float] | None = None  # J per complex sample, one for all or one each; or power and bandwidth
    power_dbm: float | None = None
    bandwidth_hz: float | None = None
    N0: float | None = None  # J per complex sample, or:
    noise_dbm_per_hz: float | None = None
    d: int  # complex samples per round, one real parameter in each
    G: float  # gradient norm bound, enforced by clipping
    eta: float
    L: float | None = None
    kappa: float | None = Field(None, allow_inf_nan=True)  # inf: zero bias
    # kappa^2 / (eta L G^2); the bound is then in units of eta L = 1 unless L is given
    rho: float | None = Field(None, allow_inf_nan=True)
    sigma2: float | list[float] = 0.0
    noise_factor: float = 0.5
    strict: bool = False  # refuse eta L > 1
    solver: Literal["exact", "sca", "both"] = "exact"
    rounds: int | None = None  # T: optimisation part of the bound, and privacy
    gap0: float | None = None  # max_m f_m(w_0) - inf f_m
    delta: float | None = None  # with rounds: eps per device
    adjacency: Literal["replace", "zero-out"] = "replace"  # one client's whole message: 2 G, or G
    trusted_noise: float | None = None  # share of the receiver noise that privacy may count; [radio] says it, or all
    frontier_points: int = 50
    frontier_rho: tuple[float, float] = (1e-3, 1e3)

    @model_validator(mode="after")
    def _one_of_each(self) -> "Inputs":
        places = [name for name in _PLACES if getattr(self, name) is not None]
        if len(places) != 1:
            raise InputError(f"exactly one of {', '.join(_PLACES)} must be given, got {places or 'none'}")
        if not getattr(self, places[0]):
            raise InputError(f"{places[0]} is empty: at least one device must be there")
        if (self.rho is None) == (self.kappa is None):
            raise InputError("exactly one of rho and kappa must be given")
        if self.kappa is not None and self.L is None:
            raise InputError("kappa needs L: the design depends on kappa^2 / (eta L G^2)")
        if self.weighting == "samples" and self.devices is None:
            raise InputError("weighting='samples' needs devices, which state data sizes")
        if (self.delta is not None or self.gap0 is not None) and self.rounds is None:
            raise InputError("delta and gap0 need rounds")
        for name, least in (("N", 1), ("rounds", 1), ("d", 1)):
            if getattr(self, name) is not None:
                validate.whole(name, getattr(self, name), least)
        if self.gap0 is not None:
            validate.not_negative("gap0", self.gap0)
        if self.delta is not None:
            validate.in_open("delta", self.delta, 0, 1)
        validate.whole("frontier_points", self.frontier_points, 2, MAX_POINTS)
        validate.positive("frontier_rho", self.frontier_rho)
        validate.ascending("frontier_rho", self.frontier_rho)
        if self.trusted_noise is not None:
            validate.in_closed("trusted_noise", self.trusted_noise, 0, 1)
        return self


class Site(NamedTuple):
    """Both sides of the design, and what the devices are called."""

    names: list[str]
    radio: Radio
    par: BoundParams
    trusted_noise: float = 1.0


def site(inputs: Inputs, folder: Path) -> Site:
    weights: Any = None
    trusted = 1.0 if inputs.trusted_noise is None else inputs.trusted_noise
    if inputs.devices is not None:
        if inputs.E_s is not None or inputs.power_dbm is not None:
            raise InputError("E_s and power_dbm follow from the devices file; give one of the two")
        listed, receiver = _listed(inputs, folder / inputs.devices)
        noise = receiver.noise_w / receiver.bandwidth_hz
        names, gains, energy = list(listed.names), listed.mean_power_gain, listed.power_w / receiver.bandwidth_hz
        if inputs.trusted_noise is None:
            trusted = receiver.trusted_noise_w / receiver.noise_w
        if inputs.weighting in ("samples", None):
            weights = listed.samples / listed.samples.sum()
    else:
        noise = _noise(inputs)
        energy = np.array(_energy(inputs))
        gains = _gains(inputs, energy, noise)
        names = [f"device-{k}" for k in range(1, gains.size + 1)]
    if isinstance(inputs.weighting, list):
        weights = np.array(inputs.weighting)
        validate.shape("weighting", weights, (len(names),))
    if inputs.N is not None and len(names) != inputs.N:
        raise InputError(f"N={inputs.N} but {len(names)} devices are listed")
    _check_sizes(inputs, len(names))
    radio = Radio(gains, energy, noise, inputs.d)
    sigma2 = np.asarray(inputs.sigma2, float)
    validate.positive("eta", inputs.eta)
    validate.positive("G", inputs.G)
    rest: dict[str, Any] = {"sigma2": sigma2, "noise_factor": inputs.noise_factor, "weights": weights}
    if inputs.kappa is not None:
        par = BoundParams(inputs.G, inputs.eta, inputs.L or 0.0, inputs.kappa, **rest)
        return Site(names, radio, par, trusted)
    smoothness = 1 / inputs.eta if inputs.L is None else inputs.L
    assert inputs.rho is not None
    return Site(names, radio, params_from_rho(inputs.rho, inputs.G, inputs.eta, smoothness, **rest), trusted)


def _listed(inputs: Inputs, path: Path) -> tuple[Devices, Receiver]:
    """Devices and their receiver: the file's own [radio], or bandwidth and noise of FILE."""
    own = [name for name in ("bandwidth_hz", "N0", "noise_dbm_per_hz") if getattr(inputs, name) is not None]
    if path.suffix.lower() == ".toml" and has_radio(path):
        if own:
            raise InputError(f"{path.name} has a [radio] of its own; leave out {', '.join(own)}")
        listed = load_site(path)
        return listed.devices, listed.radio
    if inputs.bandwidth_hz is None:
        raise InputError("devices states powers in watts; bandwidth_hz is needed to turn them into energies")
    validate.positive("bandwidth_hz", inputs.bandwidth_hz)
    noise_w = _noise(inputs) * inputs.bandwidth_hz
    return load_devices(path, inputs.path_loss), Receiver(inputs.bandwidth_hz, noise_w, noise_w, None)


def _check_sizes(inputs: Inputs, devices: int) -> None:
    validate.at_most("devices", devices, MAX_DEVICES, "group those that are alike")
    if inputs.solver != "exact":
        validate.at_most(f"devices with solver={inputs.solver!r}", devices, MAX_DEVICES_SCA, "use solver = 'exact'")
    sizes = f"frontier_points x devices = {inputs.frontier_points} x {devices}"
    validate.at_most(sizes, inputs.frontier_points * devices, MAX_CELLS, "lower frontier_points")


def _gains(inputs: Inputs, energy: np.ndarray, noise: float) -> Array:
    if inputs.gains is not None:
        return np.array(inputs.gains, float)
    if inputs.distances_m is not None:
        validate.positive("distances_m", inputs.distances_m)
        return np.asarray(from_db(-loss_db(inputs.path_loss, inputs.distances_m)), float)
    return np.asarray(from_db(np.array(inputs.snr_db, float)), float) * noise / energy


def _energy(inputs: Inputs) -> float | list[float]:
    if inputs.E_s is not None:
        if inputs.power_dbm is not None:
            raise InputError("give E_s, or power_dbm with bandwidth_hz, not both")
        return inputs.E_s
    if inputs.power_dbm is not None:
        if inputs.bandwidth_hz is None:
            raise InputError("power_dbm needs bandwidth_hz: energy per sample is power / bandwidth")
        validate.positive("bandwidth_hz", inputs.bandwidth_hz)
        return float(dbm_to_w(inputs.power_dbm)) / inputs.bandwidth_hz
    if inputs.snr_db is not None:
        return 1.0
    raise InputError("E_s, or power_dbm with bandwidth_hz, is missing")


def _noise(inputs: Inputs) -> float:
    given = [name for name in ("N0", "noise_dbm_per_hz") if getattr(inputs, name) is not None]
    if len(given) == 2 or (not given and inputs.snr_db is None):
        raise InputError(f"exactly one of N0 and noise_dbm_per_hz must be given, got {given or 'none'}")
    if inputs.noise_dbm_per_hz is not None:
        return float(dbm_to_w(inputs.noise_dbm_per_hz))
    return 1.0 if inputs.N0 is None else inputs.N0
