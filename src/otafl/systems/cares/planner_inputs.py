"""The file of `otafl plan cares` and the certifier's problem that it states."""

import math
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import model_validator

from otafl.bounds.budget import Accounting
from otafl.bounds.convergence import ConstantSet
from otafl.channels import Fading, limits
from otafl.channels.fading import pilot_law
from otafl.core import validate
from otafl.core.errors import InputError
from otafl.core.files import FileModel
from otafl.systems.cares.certifier import Problem, default_loss_gap
from otafl.systems.cares.checks import WEIGHT_TOLERANCE
from otafl.systems.cares.problem import Granularity, RewardData, Silence
from otafl.systems.planning import listed, warned

_SHARED = (  # keys of FILE that are arguments of `Problem` as they stand
    *("clip_norm", "step_size", "smoothness", "grad_var", "num_params", "constants"),
    *("eps_target", "delta", "max_asymmetry", "max_dropped", "accounting", "granularity", "silence"),
    *("gain_error_max", "certify_with", "independent_channels", "independent_batches", "reward_data", "reward_noise"),
    *("local_steps", "local_step_size", "example_smoothness", "antennas", "exposure"),
)


class Inputs(FileModel):
    """Schema of FILE. Clients come as lists or from a devices file; the rest has the names of the certifier."""

    SYMBOLS: ClassVar[dict[str, str]] = {
        **{"K": "num_clients", "n_k": "sizes", "p": "weights", "mu": "channel_scale", "sigma_z": "noise_std"},
        **{"P_max": "max_power", "G": "clip_norm", "alpha": "step_size", "L": "smoothness", "sigma_g2": "grad_var"},
        **{"d": "num_params", "eps": "eps_target", "psi": "max_asymmetry", "tau": "max_dropped", "T": "rounds"},
        **{"eta": "rx_scale", "clients": "num_clients", "samples": "sizes"},
    }

    num_clients: int | None = None  # checked against the clients
    weights: list[float] | None = None
    sizes: list[int] | None = None  # weights = sizes / sum
    channel_scale: list[float] | None = None
    devices: str | None = None  # CSV, or TOML with [radio]; gives weights, channel_scale and max_power (and noise)
    noise_std: float | tuple[float, float] | None = None
    max_power: float | list[float] | None = None
    clip_norm: float = 1.0
    step_size: float = 0.1
    smoothness: float | None = None
    grad_var: float | None = None
    loss_gap: float | None = None
    num_classes: int | None = None  # loss_gap = ln num_classes
    zero_output_init: bool = False
    num_params: int
    eps_target: float
    delta: float
    max_asymmetry: float = 0.1
    max_dropped: float = 0.1
    conv_target: float | None = None
    arms: list[float] | Literal["auto"] = "auto"
    num_arms: int = 25  # of arms = "auto"
    eta_min: float | None = None
    rounds: int | None = None  # horizon of the sets C, P, F and of the convergence-budget checks
    rx_scale: float | list[float] | None = None  # a sequence to put into (12)-(13); one number: for all of `rounds`
    predictable: bool = False  # the sequence was fixed in advance, or follows from channels alone
    constants: ConstantSet = "main"
    accounting: Accounting = "classic"
    granularity: Granularity = "client"
    silence: Silence = "norm"
    batch_size: int | None = None  # B: B_k = min(B, n_k), needs sizes
    batch_sizes: list[int] | None = None
    gain_error_max: float = 0.0
    certify_with: Literal["estimate", "limits"] = "estimate"
    mu_low: list[float] | None = None
    mu_high: list[float] | None = None
    num_pilots: int | None = None  # channel_scale is the estimate from so many pilots: limits follow
    failure_prob: float = 0.01
    independent_channels: bool = False
    independent_batches: bool = False
    reward_data: RewardData = "public"  # of the controller; private_noisy: charged with every round
    reward_noise: float | None = None  # std of the noise on a private reward
    diagnostic: bool = False
    local_steps: int = 1  # L gradients per message; more need constants = "tight"
    local_step_size: float = 0.0  # of the clients' own steps
    example_smoothness: float | None = None  # certified for every example: the record level at L > 1
    antennas: int = 1  # of the server; participation by (H3)
    exposure: float = 1.0  # bound on 1/cos^2 between client and beam, from the public trace; multiplies the cost

    @model_validator(mode="after")
    def _one_of_each(self) -> "Inputs":
        clients = [name for name in ("weights", "sizes", "devices") if getattr(self, name) is not None]
        if len(clients) != 1 and clients != ["weights", "sizes"]:
            raise InputError(f"exactly one of weights, sizes, devices must be given, got {clients or 'none'}")
        if (self.channel_scale is None) != (self.devices is not None):
            raise InputError("channel_scale must be given with weights or sizes, and only there: devices imply it")
        if self.devices is not None and self.max_power is not None:
            raise InputError("max_power follows from the devices file; give one of the two")
        if (self.loss_gap is None) == (self.num_classes is None):
            raise InputError("exactly one of loss_gap and num_classes must be given")
        if self.batch_size is not None and (self.batch_sizes is not None or clients == ["weights"]):
            raise InputError("batch_size needs sizes or devices (B_k = min(B, n_k)) and excludes batch_sizes")
        if self.num_pilots is not None and (self.mu_low is not None or self.mu_high is not None):
            raise InputError("num_pilots and mu_low, mu_high exclude each other: both state limits of channel_scale")
        if isinstance(self.rx_scale, float) and self.rounds is None:
            raise InputError("rx_scale: one number needs rounds; for choices to compare, write arms = [...]")
        return self


def problem_of(inputs: Inputs, folder: Path) -> tuple[Problem, list[str]]:
    clients, warned = _clients(inputs, folder)
    sizes = clients.pop("sizes")
    if sizes is not None and inputs.delta >= 1 / sizes.sum():
        warned.append(f"delta={inputs.delta} is not below 1/n={1 / sizes.sum():.3g}: it allows leaking whole records")
    if inputs.loss_gap is None and not inputs.zero_output_init:
        warned.append(
            "loss_gap = ln(num_classes) is assumed: it bounds the first loss only with zero_output_init = true"
        )
    problem = Problem(
        loss_gap=_loss_gap(inputs),
        batch_sizes=_batch_sizes(inputs, sizes),
        sizes=sizes,
        **clients,
        **_limits(inputs, clients["channel_scale"]),
        **{name: getattr(inputs, name) for name in _SHARED},
    )
    return problem, warned


def _loss_gap(inputs: Inputs) -> float:
    if inputs.loss_gap is not None:
        return inputs.loss_gap
    assert inputs.num_classes is not None
    return default_loss_gap(inputs.num_classes)


def _clients(inputs: Inputs, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Weights, channel scales, energy limits, noise and sizes, from lists or from a devices file."""
    if inputs.devices is not None:
        return _from_devices(inputs, folder)
    sizes = None if inputs.sizes is None else np.asarray(inputs.sizes, float)
    if sizes is not None:
        validate.whole("sizes", sizes, 0)
        validate.positive("sum of sizes", sizes.sum())
        _check_agreement(inputs.weights, sizes)
    if inputs.noise_std is None:
        raise InputError("noise_std: missing, this key is required without a [radio] block")
    return {
        "weights": inputs.weights if sizes is None else sizes / sizes.sum(),
        "channel_scale": inputs.channel_scale,
        "max_power": 1.0 if inputs.max_power is None else inputs.max_power,
        "noise_std": inputs.noise_std,
        "sizes": sizes,
    }, []


def _check_agreement(weights: list[float] | None, sizes: np.ndarray) -> None:
    if weights is not None and (
        len(weights) != sizes.size or np.max(np.abs(np.array(weights) - sizes / sizes.sum())) > WEIGHT_TOLERANCE
    ):
        raise InputError("weights and sizes disagree: weights must be sizes / sum(sizes); give one of the two")


def _from_devices(inputs: Inputs, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """A CSV file counts in watts per complex sample; a TOML file with [radio] brings bandwidth and noise too."""
    assert inputs.devices is not None
    with warned() as said:
        devices, energy, site = listed(folder / inputs.devices, inputs.num_params, "noise_std", inputs.noise_std)
    noise: Any = inputs.noise_std
    if site is not None:
        noise = (math.sqrt(site.trusted_noise_var), math.sqrt(site.noise_var))
    return {
        "weights": devices.samples / devices.samples.sum(),
        "channel_scale": np.sqrt(devices.mean_power_gain / 2),  # E h^2 = 2 mu^2
        "max_power": energy,
        "noise_std": noise,
        "sizes": devices.samples.astype(float),
    }, said


def _batch_sizes(inputs: Inputs, sizes: np.ndarray | None) -> Any:
    if inputs.batch_size is None:
        return inputs.batch_sizes
    validate.whole("batch_size", inputs.batch_size)
    assert sizes is not None
    return np.minimum(inputs.batch_size, np.maximum(sizes, 1))  # a client without data has weight 0 and costs nothing


def _limits(inputs: Inputs, channel_scale: Any) -> dict[str, Any]:
    """Certified limits of the channel scales: as given, or from the number of pilots behind the estimates (E16)."""
    if inputs.num_pilots is None:
        return {"mu_low": inputs.mu_low, "mu_high": inputs.mu_high}
    validate.whole("num_pilots", inputs.num_pilots)
    validate.in_open("failure_prob", inputs.failure_prob, 0, 1)
    scale = np.asarray(channel_scale, float)
    validate.positive("channel_scale", scale)
    energy = 2 * inputs.num_pilots * scale**2  # the maximum-likelihood estimate solved for sum h^2
    low, high = limits(energy, pilot_law(Fading("rayleigh"), inputs.num_pilots), inputs.failure_prob / scale.size)
    return {"mu_low": low / math.sqrt(2), "mu_high": high / math.sqrt(2)}
