"""`otafl plan orthogonal`: bits, rates, channel uses and time of a digital round, beside those of other uplinks."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from rich.console import Console

from otafl.core import validate
from otafl.core.errors import InputError
from otafl.core.files import FileModel, plain
from otafl.systems.digital import rates
from otafl.systems.planning import Asked, Planner, example
from otafl.systems.screen import Fitted, say_remarks

OTHERS = {"analog": "analog superposition", "packed": "analog, two numbers per symbol", "votes": "one-bit votes",
          "non-coherent": "energies in two bins", "slots": "analog slots"}  # fmt: skip


class Inputs(FileModel):
    """Schema of FILE. SNRs are given, or follow from gains, energies of whole vectors and the receiver's noise."""

    SYMBOLS: ClassVar[dict[str, str]] = {"d": "num_params", "h": "gain", "E": "max_energy"}

    num_params: int
    bits: int = 8
    snr: list[float] | None = None  # linear, one per device
    gain: list[float] | None = None  # magnitudes
    max_energy: float | list[float] | None = None
    noise_std: float | None = None
    bandwidth_hz: float | None = None
    rounds: int = 1


def keys(asked: Asked) -> dict[str, Any]:
    """What FILE would say of an experiment: its first round's channels."""
    assert asked.context.trace is not None
    return {
        "num_params": asked.deployment.dim,
        "bits": asked.config.bits,
        "gain": np.abs(np.asarray(asked.context.trace.estimate)[0]).tolist(),
        "max_energy": np.asarray(asked.deployment.energy, float).tolist(),
        "noise_std": float(np.sqrt(asked.deployment.noise_var)),
        "bandwidth_hz": asked.bandwidth_hz,
        "rounds": asked.context.rounds,
    }


def plan(inputs: Inputs, folder: Path) -> dict[str, Any]:
    """One round of all devices, and all rounds."""
    validate.whole("num_params", inputs.num_params, 1, 10**10)
    validate.whole("bits", inputs.bits, 1, 64)
    validate.whole("rounds", inputs.rounds, 1, 10**9)
    ratio = _snr(inputs)
    validate.positive("snr", ratio)
    found = rates.channel_uses(ratio, inputs.num_params, inputs.bits)
    uses, count = float(found.uses), len(ratio)
    others = {name: rates.uses_of(name, inputs.num_params, count) for name in OTHERS}

    def timed(number: float) -> float | None:
        return None if inputs.bandwidth_hz is None else float(rates.seconds(number, inputs.bandwidth_hz))

    return plain({
        "snr": found.snr, "rate_bits_per_use": found.rate, "uses_each": found.each, "uses": uses,
        "bits_each": inputs.num_params * inputs.bits, "seconds": timed(uses), "uses_all_rounds": inputs.rounds * uses,
        "seconds_all_rounds": timed(inputs.rounds * uses), "uses_others": others, "rounds": inputs.rounds,
        "uses_over_analog": uses / others["analog"],
        "notes": ["at capacity, without errors; digital messages without noise of their own have eps = inf"],
    })  # fmt: skip


def _snr(inputs: Inputs) -> Any:
    if inputs.snr is not None:
        if any(value is not None for value in (inputs.gain, inputs.max_energy, inputs.noise_std)):
            raise InputError("snr excludes gain, max_energy and noise_std; give one or the other")
        return np.asarray(inputs.snr, np.float64)
    if inputs.gain is None or inputs.max_energy is None or inputs.noise_std is None:
        raise InputError("give snr, or gain with max_energy and noise_std")
    gain = np.asarray(inputs.gain, np.float64)
    if np.ndim(inputs.max_energy):
        validate.shape("max_energy", inputs.max_energy, gain.shape)
    validate.positive("max_energy", inputs.max_energy)
    validate.positive("noise_std", inputs.noise_std)
    return rates.snr(gain, np.asarray(inputs.max_energy, np.float64), inputs.num_params, inputs.noise_std**2)


def show(report: dict[str, Any], console: Console) -> None:
    """Uses of one round, this uplink's and the others'."""
    time = "" if report["seconds"] is None else f", {report['seconds']:.4g} s"
    console.print(f"[bold]{report['uses']:,.0f} channel uses per round[/bold]{time}; "
                  f"{report['uses_over_analog']:.4g} times the analog superposition's")  # fmt: skip
    others = [(OTHERS[name], f"{uses:,}") for name, uses in report["uses_others"].items()]
    rows = [("digital, orthogonal", f"{report['uses']:,.0f}"), *others]
    console.print(Fitted.of(("uplink", "channel uses per round"), rows, words=("uplink",)))
    say_remarks(console, notes=report["notes"])


PLANNER = Planner(Inputs, keys, example(__file__, "orthogonal"), plan, show, errors=True)
