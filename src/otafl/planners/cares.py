"""`otafl plan cares`: which receive scalings meet convergence, privacy and participation targets. No training."""

import math
import warnings
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import model_validator
from rich.console import Console
from rich.table import Table

from otafl import validate
from otafl.certify import Certificate, Problem, auto_grid, certify, default_loss_gap
from otafl.certify.budget import Accounting
from otafl.certify.checks import WEIGHT_TOLERANCE
from otafl.certify.convergence import ConstantSet
from otafl.certify.picture import draw_trilemma
from otafl.certify.problem import Granularity, RewardData, Silence
from otafl.certify.relax import reward_alone, rounded_up
from otafl.certify.sequence import certify_planned
from otafl.certify.summary import summarise
from otafl.errors import Infeasible, InputError
from otafl.files import FileModel, plain
from otafl.planners import Planner

_SHARED = (  # keys of FILE that are arguments of `Problem` as they stand
    *("clip_norm", "step_size", "smoothness", "grad_var", "num_params", "constants"),
    *("eps_target", "delta", "max_asymmetry", "max_dropped", "accounting", "granularity", "silence"),
    *("gain_error_max", "certify_with", "independent_channels", "independent_batches", "reward_data", "reward_noise"),
)


class Inputs(FileModel):
    """Schema of FILE. Clients come as lists or from a devices file; the rest has the names of the certifier."""

    SYMBOLS: ClassVar[dict[str, str]] = {
        **{"K": "num_clients", "n_k": "sizes", "p": "weights", "mu": "channel_scale", "sigma_z": "noise_std"},
        **{"P_max": "max_power", "G": "clip_norm", "alpha": "step_size", "L": "smoothness", "sigma_g2": "grad_var"},
        **{"d": "num_params", "eps": "eps_target", "psi": "max_asymmetry", "tau": "max_dropped", "T": "rounds"},
        "eta": "rx_scale",
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


def plan(inputs: Inputs, folder: Path) -> dict[str, Any]:
    """Certify the arms; raises Infeasible with the whole report unless diagnostic = true."""
    problem, warned = _problem(inputs, folder)
    arms = auto_grid(problem, inputs.num_arms, inputs.eta_min) if inputs.arms == "auto" else inputs.arms
    if inputs.rounds is not None:
        validate.whole("rounds", inputs.rounds)
    if inputs.num_clients not in (None, problem.weights.size):
        raise InputError(f"num_clients={inputs.num_clients} but {problem.weights.size} clients are given")
    certificate = certify(problem, arms, inputs.conv_target, inputs.diagnostic)
    report: dict[str, Any] = plain(summarise(problem, certificate, inputs.rounds))
    report["warnings"] += warned
    if inputs.rx_scale is not None:
        scale = inputs.rx_scale if isinstance(inputs.rx_scale, list) else [inputs.rx_scale] * (inputs.rounds or 1)
        report["sequence"] = plain(certify_planned(problem, scale, inputs.predictable)._asdict())
    if not certificate.feasible and not inputs.diagnostic:
        raise Infeasible(reward_alone(problem) or _explain(report, certificate), report)
    return report


def _problem(inputs: Inputs, folder: Path) -> tuple[Problem, list[str]]:
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
    from otafl.channels.deployment import load_devices, load_site, to_deployment
    from otafl.channels.power import energy_from_power

    assert inputs.devices is not None
    path = folder / inputs.devices
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if path.suffix.lower() == ".toml" and inputs.noise_std is None:
            site = load_site(path)
            devices, deployment = site.devices, to_deployment(site, inputs.num_params)
            energy = deployment.energy
            noise: Any = (math.sqrt(deployment.trusted_noise_var), math.sqrt(deployment.noise_var))
        else:
            devices, noise = load_devices(path), inputs.noise_std
            energy = energy_from_power(devices.power_w, inputs.num_params, symbol_time_s=1.0)
    if noise is None:
        raise InputError(f"noise_std: missing; {path.name} has no [radio] block to take it from")
    return {
        "weights": devices.samples / devices.samples.sum(),
        "channel_scale": np.sqrt(devices.mean_power_gain / 2),  # E h^2 = 2 mu^2
        "max_power": energy,
        "noise_std": noise,
        "sizes": devices.samples.astype(float),
    }, [str(warning.message) for warning in caught]


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
    from otafl.channels.fading import Fading, pilot_law
    from otafl.channels.pilots import limits

    validate.whole("num_pilots", inputs.num_pilots)
    validate.in_open("failure_prob", inputs.failure_prob, 0, 1)
    scale = np.asarray(channel_scale, float)
    validate.positive("channel_scale", scale)
    energy = 2 * inputs.num_pilots * scale**2  # the maximum-likelihood estimate solved for sum h^2
    low, high = limits(energy, pilot_law(Fading("rayleigh"), inputs.num_pilots), inputs.failure_prob / scale.size)
    return {"mu_low": low / math.sqrt(2), "mu_high": high / math.sqrt(2)}


def _explain(report: dict[str, Any], certificate: Certificate) -> str:
    lines = [f"none of {len(certificate.arms.rx_scale)} arms meets all four targets (certified infeasible)"]
    possible = [r["text"] for r in report["relaxations"] if r["value"] is not None]
    if not possible:
        nearest = report["nearest_arm"]
        needs = ", ".join(f"{name} >= {rounded_up(value)}" for name, value in nearest["needs"].items())
        possible = [f"no single target helps; nearest arm rx_scale={nearest['rx_scale']:.6g} needs {needs}"]
    if not certificate.conv_target_given and math.isfinite(certificate.conv_target):
        possible.append(f"conv_target held at {certificate.conv_target:.6g}, twice the best bound on the grid")
    return "; ".join(lines + possible)


def show(report: dict[str, Any], console: Console) -> None:
    """A table of arms, then the choice, the sets, both privacy levels and what to know about them."""
    console.print(_table(report))
    if report["feasible"]:
        i = report["init"]
        console.print(
            f"[bold]rx_scale = {report['eta_init']:.6g}[/bold] for {report['horizon'][i]} rounds: "
            f"convergence bound {report['conv_bound'][i]:.4g} (target {report['conv_target']:.4g})"
        )
    else:
        console.print(
            f"[bold]{report['label']}[/bold]"
            + (f", going on from rx_scale = {report['eta_init']:.6g}" if report["eta_init"] else "")
        )
    _show_privacy(report, console)
    _show_reward(report, console)
    sets = report["sets"]
    for name in "CPQUF":
        pieces = " ∪ ".join(f"[{low:.5g}, {high:.5g}]" for low, high in sets[name]) or "empty"
        console.print(f"  {name} at {sets['rounds']} rounds: {pieces}")
    if "sequence" in report:
        run = report["sequence"]
        bound = run["conv_bound"]["total"]
        console.print(f"  rx_scale as given, {run['label']}: bound {bound:.4g}, eps {run['eps']:.4g}")
    console.print(f"  closed forms: eta_LT {report['eta_LT']:.4g}, eta_budget {report['eta_budget']:.4g}")
    for line in [r["text"] for r in report["relaxations"]]:
        console.print(f"  {line}")
    for line in report["warnings"]:
        console.print(f"[yellow]warning:[/yellow] {line}")
    for line in report["notes"]:
        console.print(f"[dim]{line}[/dim]")


def _table(report: dict[str, Any]) -> Table:
    table = Table(title=f"CARES: {report['label']} ({report['constants']['set']} constants)")
    for column in ("rx_scale", "rounds", "zCDP/round", "conv. bound", "dropped", "asymmetry", "binds", "fails", "F_H"):
        table.add_column(column, justify="left" if column in ("binds", "fails") else "right")
    for i, eta in enumerate(report["arms"]):
        fails = [name for name, good in report["passes"].items() if not good[i]]
        numbers = (report[key][i] for key in ("zcdp_cost", "conv_bound", "dropped_weight", "asymmetry"))
        chosen = "[bold]" if i == report["init"] else ""
        table.add_row(
            f"{chosen}{eta:.5g}",
            str(report["horizon"][i]),
            *(f"{float(number):.4g}" for number in numbers),
            report["binding"][i],
            ", ".join(fails),
            "yes" if report["feasible_arms"][i] else "no",
        )
    return table


def _show_privacy(report: dict[str, Any], console: Console) -> None:
    """Two promises, two lines: they are never mixed in one column."""
    if report["init"] is None:
        return
    for level, entry in report["privacy"].items():
        if entry is None:
            console.print("  record level: not defined without batch_sizes and silence = 'bound'")
            continue
        classic, exact = (entry[f"eps_{name}_at_horizon"][report["init"]] for name in ("classic", "gaussian"))
        budgeted = " (the budget)" if level == report["granularity"] else ""
        console.print(
            f"  {level} level{budgeted}: eps {classic:.4g} classic, {exact:.4g} exact, delta {report['delta']:g}; "
            f"{entry['unit']}"
        )


def _show_reward(report: dict[str, Any], console: Console) -> None:
    if report["reward_data"] == "public":
        console.print("  reward (of the controller): on public data, free")
        return
    console.print(
        f"  reward (of the controller): noisy accuracy on the clients' data, std {report['reward_noise']:g}: "
        f"zCDP {report['reward_zcdp']:.4g} at {report['granularity']} level in every round, included above"
    )


PLANNER = Planner(
    summary="CARES: certified receive scaling under convergence, privacy and participation targets",
    inputs=Inputs,
    example=(Path(__file__).parent / "examples" / "cares.toml").read_text(encoding="utf-8"),
    plan=plan,
    show=show,
    pictures=draw_trilemma,
)
