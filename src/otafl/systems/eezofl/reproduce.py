"""EEZOFL's tables and figures: overhead, accuracy and loss of encrypted training, and the controls that must fail."""

import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from otafl.crypto import budget, feasibility
from otafl.crypto.parameters import Parameters, security_level
from otafl.crypto.ring import RING_4096, RING_8192
from otafl.reproductions.claims import ahead, joined
from otafl.reproductions.curves import (
    Pair,
    Scheme,
    collect,
    curve_records,
    difference,
    paint,
)
from otafl.reproductions.findings import (
    FAILS,
    HOLDS,
    Grid,
    Record,
    Verdict,
    draw,
    publish,
    write_records,
)
from otafl.reproductions.preset_run import run_in
from otafl.runs.comparing.statistics import Gap, mean_sd
from otafl.runs.comparing.tune import settings_of
from otafl.runs.folder.store import RunFolder
from otafl.runs.presets import Preset
from otafl.runs.progress import Reporter
from otafl.runs.schema import load
from otafl.systems.eezofl.convergence import theorem2
from otafl.systems.eezofl.host_training import train_on_host

DIVERGED = 1e6  # a loss beyond this, or none at all, after two rounds
Settings = dict[str, Any]


# --- Table II: no training ---------------------------------------------------------------------------------------


def table2(path: Path, preset: Preset, folder: Path, overrides: list[str], quick: bool, reporter: Reporter,
           console: Console) -> None:  # fmt: skip
    """Sizes, times, noise floor and what a radio would need, from the formulas that the planner uses."""
    settings = settings_of(path, overrides)
    found = {str(ring.n): overhead(ring, settings) for ring in (RING_4096, RING_8192)}
    said = preset.targets
    rows = [
        [name, *(f"{column[name]:.6g} ({said.get(name, {}).get(n, '–')})" for n, column in found.items())]
        for name in found["4096"]
    ]
    grid = Grid("ours, and (paper)", ("per device and round", *(f"n = {n}" for n in found)), rows)
    small, large = found["4096"], found["8192"]
    verdicts = [
        Verdict("ciphertexts of 109 and 446 KB", "holds, in two units", f"{small['ciphertext bytes'] / 1024:.1f} KiB = "
                f"{small['ciphertext bytes'] / 1e3:.1f} kB and {large['ciphertext bytes'] / 1e3:.1f} kB (7.4)"),
        Verdict("noise floor rho near 2e-16 and 4e-16", FAILS, f"{small['rho']:.2g} and {large['rho']:.2g} with L_g = "
                f"{settings['task']['L_g']:g}: d, L_g and Omega were left out (7.3); still negligible"),
        Verdict("1.8 and 7.1 us at 1 THz", "holds as bits at 1 bit/s/Hz",
                f"analog, one symbol per coefficient: {small['analog ns']:.1f} and {large['analog ns']:.1f} ns, but "
                f"{small['SNR dB']:.0f} and {large['SNR dB']:.0f} dB per symbol (7.2)"),
    ]  # fmt: skip
    publish(folder, preset, [grid], verdicts, [feasibility.GRID_ASSUMPTION], console, overhead=found)


def overhead(ring: Any, settings: Settings) -> dict[str, float]:
    """One column of Table II, and what it leaves out."""
    task, count, sigma = settings["task"], int(settings["devices"]), float(settings["sigma"])
    p = Parameters(ring, settings["f"], settings["scale_bits"], settings["sigma_phi"])
    channel = budget.fading(np.ones(count), (1 + sigma**2) * np.ones(count))
    sent = feasibility.traffic(p, float(settings["bandwidth_hz"]))
    var = budget.decoded_variance(budget.noise_budget(ring.n, channel), ring.n, p.Lambda)
    theorem = theorem2(channel, var, **task)
    return {
        "log2 q": ring.bits, "security bits": security_level(ring.n, ring.bits),
        "ciphertext bytes": sent.ciphertext_bytes, "expansion": sent.expansion, "uplink Mbit": sent.uplink_bits / 1e6,
        "downlink Mbit": sent.downlink_bits / 1e6, "storage kB": sent.storage_bits / 8e3,
        "time us": sent.digital_seconds * 1e6, "analog ns": sent.analog_seconds * 1e9, "decoded variance": var,
        "rho": theorem.rho, "Theorem 2 at K=400": theorem.bound(400),
        "SNR dB": feasibility.amplitude_snr_db(p.log2_q, 1 + sigma**2, p.sigma_w),
        "receiver bits": feasibility.receiver_bits(p.log2_q, count, 1 + sigma**2),
    }  # fmt: skip


# --- training ----------------------------------------------------------------------------------------------------


def trained(path: Path, folder: Path, overrides: list[str], reporter: Reporter) -> dict[str, Path]:
    """The preset's experiment once for every entry of `settings.runs`, each with its own overrides."""
    runs = settings_of(path, overrides)["runs"]
    return {name: run_in(folder / name, load(path, [*overrides, *own]), reporter) for name, own in runs.items()}


def final(scheme: Scheme, run: str, metric: str = "accuracy") -> np.ndarray:
    """Value after the last round, one per seed."""
    return np.array([values[-1] for pair, (_, values) in scheme.curves[metric].items() if pair[0] == run])


def accuracy_grid(schemes: list[Scheme], run: str, said: Record) -> Grid:
    """Percent: mean, spread and range over seeds, beside the paper's."""
    rows = []
    for scheme in schemes:
        value = 100 * final(scheme, run)
        paper = said.get(scheme.label, {}).get(run)
        eps = scheme.summaries[run]["final_eps"]
        rows.append([scheme.label, mean_sd(value, 2), f"{value.min():.1f}–{value.max():.1f}",
                     "–" if paper is None else f"{paper:.2f}", mean_sd(final(scheme, run, "cross_entropy"), 4),
                     mean_sd([float(e) for e in eps], 2)])  # fmt: skip
    return Grid(run, ("scheme", "accuracy, %", "range", "paper", "loss", "ε of the worst client"), rows)


def points(gap: Gap) -> str:
    return f"{gap.mean:+.2f} ± {gap.half_width:.2f} points ({gap.pairs} pairs)"


def final_percent(schemes: list[Scheme]) -> dict[str, dict[Pair, float]]:
    """Accuracy after the last round by label and pair."""
    return {s.label: {pair: 100 * v[-1] for pair, (_, v) in s.curves["accuracy"].items()} for s in schemes}


def paired(schemes: list[Scheme], run: str, reference: str) -> list[str]:
    """Paired differences of final accuracy, in points, with 95 % t intervals."""
    by_label, out = final_percent(schemes), []
    for label, values in by_label.items():
        gap = difference(values, by_label[reference], run)
        if label != reference and np.isfinite(gap.half_width):
            word = "" if gap.apart else "; cannot be separated"
            out.append(f"{run}: {label} − {reference}: {points(gap)}{word}")
    return out


def model_distance(runs: dict[str, Path], label: str, reference: str) -> dict[str, float]:
    """Largest coordinate of theta - theta_reference over all seeds, per run."""
    return {
        name: float(max(np.max(np.abs(a - b)) for a, b in zip(*(_model(path, one) for one in (label, reference)))))
        for name, path in runs.items()
    }


def _model(path: Path, label: str) -> list[np.ndarray]:
    with np.load(io.BytesIO(RunFolder.open(path).scheme(label).content("model.npz"))) as stored:
        return [stored[name] for name in sorted(stored)]


class Found(NamedTuple):
    """What a verdict may look at."""

    schemes: list[Scheme]
    runs: dict[str, Path]
    targets: Record
    settings: Settings
    path: Path
    overrides: list[str]


def _training(judge: Callable[[Found], list[Verdict]], metric: str, log: bool, path: Path, preset: Preset, folder: Path,
              overrides: list[str], quick: bool, reporter: Reporter, console: Console) -> None:  # fmt: skip
    """Runs, tables, curves, verdicts."""
    settings = settings_of(path, overrides)
    runs = trained(path, folder, overrides, reporter)
    schemes, reference = collect(runs), settings.get("reference")
    grids = [accuracy_grid(schemes, run, preset.targets.get("accuracy", {})) for run in runs]
    notes = ["smoke version: too few rounds and seeds to mean anything"] * quick + list(settings.get("notes", []))
    notes += [line for run in runs for line in (paired(schemes, run, reference) if reference else [])]

    def picture(axes: list[Any]) -> None:
        for one, run in zip(axes, runs):
            paint(schemes, metric, one, run, "training loss" if metric == "cross_entropy" else None)
            one.set(title=run, **({"yscale": "log"} if log else {}))

    draw(folder, metric, len(runs), 1, picture)
    write_records(folder, "curves", curve_records(schemes, ("accuracy", "cross_entropy", "eps")))
    verdicts = judge(Found(schemes, runs, preset.targets, settings, path, overrides))
    publish(folder, preset, grids, verdicts, notes, console)


def _word(held: bool) -> str:
    return HOLDS if held else FAILS


def _judge_table3(found: Found) -> list[Verdict]:
    verdicts, published = [], found.targets["accuracy"]
    rows = [scheme for scheme in found.schemes if scheme.label in published]
    for run, (low, high) in found.targets["range"].items():
        values = {s.label: 100 * final(s, run) for s in rows}
        text = ", ".join(f"{label} {np.mean(v):.1f}" for label, v in values.items())
        good = all(low <= np.mean(v) <= high for v in values.values())
        verdicts.append(Verdict(f"{run}: mean accuracy in [{low:g}, {high:g}] %", _word(good), text))
        inside = {label: v.min() <= published[label][run] <= v.max() for label, v in values.items()}
        text = "; ".join(f"{published[label][run]:.2f} in {v.min():.1f}–{v.max():.1f}" for label, v in values.items())
        claim = f"{run}: the paper's single runs lie inside our range over seeds"
        verdicts.append(Verdict(claim, _word(all(inside.values())), text))
    apart = model_distance(found.runs, "encrypted, n = 4096", "plain, no noise")
    text = ", ".join(f"{run} {gap:.1e}" for run, gap in apart.items())
    claim = "encryption costs nothing: |theta - theta of plain, no noise| < 1e-4"
    return [*verdicts, Verdict(claim, _word(max(apart.values()) < 1e-4), text)]


def _judge_fig2(found: Found) -> list[Verdict]:
    """Encrypted and plain curves overlap: largest difference of the loss over all seeds and rounds."""
    lines, verdicts = {s.label: s.curves["cross_entropy"] for s in found.schemes}, []
    base = lines[found.settings["reference"]]
    for run in found.runs:
        pairs = [pair for pair in base if pair[0] == run]
        gaps = {label: max(np.max(np.abs(lines[label][pair][1] - base[pair][1])) for pair in pairs)
                for label in found.settings["encrypted"]}  # fmt: skip
        text = ", ".join(f"{label} {gap:.1e}" for label, gap in gaps.items())
        claim = f"{run}: encrypted and noiseless plain loss overlap in every seed and round"
        verdicts.append(Verdict(claim, _word(max(gaps.values()) < found.targets["overlap"]), text))
    return verdicts


def _judge_fig3(found: Found) -> list[Verdict]:
    verdicts, settings = [], found.settings
    for run, folder in found.runs.items():
        early = {s.label: np.array([v[:2][-1] for pair, (_, v) in s.curves["cross_entropy"].items() if pair[0] == run])
                 for s in found.schemes if s.label in settings["applied"]}  # fmt: skip
        wild = all(np.all(~np.isfinite(v) | (v > DIVERGED)) for v in early.values())
        text = "; ".join(f"{label} {v.min():.1e}–{v.max():.1e}" for label, v in early.items())
        claim = f"{run}: multi-key encryption with unequal weights diverges in two rounds"
        verdicts.append(Verdict(claim, _word(wild), text))
        verdicts.append(_judge_plateau(found, run))
        refused = {s.label: _refused(folder, s.label) for s in found.schemes}
        right = all(share == (0 if label in settings["sound"] else 1) for label, share in refused.items())
        text = ", ".join(f"{label} {share:.0%} refused" for label, share in refused.items())
        claim = f"{run}: every failed round is detected, and no honest one is refused"
        verdicts.append(Verdict(claim, _word(right), text))
    return [*verdicts, _judge_literal(found)]


def _judge_plateau(found: Found, run: str) -> Verdict:
    """Equalised runs settle at the published loss, within a factor of ten, on every seed."""
    level = float(found.targets["plateau"])
    last = {s.label: final(s, run, "cross_entropy") for s in found.schemes if s.label in ("ZF", "MMSE")}
    held = all(np.all((v > level / 10) & (v < level * 10)) for v in last.values())
    text = "; ".join(f"{label} {np.min(v):.1e}–{np.max(v):.1e}" for label, v in last.items())
    return Verdict(f"{run}: the loss settles near {level:.0e}", _word(held), f"last loss: {text}")


def _judge_literal(found: Found) -> Verdict:
    """The published form on devices with operating-system keys."""
    rounds = int(found.settings["literal_rounds"])
    run = train_on_host(load(found.path, found.overrides), 0, rounds, mode="literal", discard=False)
    text = f"loss {run.losses[-1]:.1e} after {rounds} rounds, {int(run.refused.sum())} of {rounds} refused"
    failed = bool(run.refused.all()) and not run.losses[-1] <= DIVERGED
    return Verdict("real gains and reduction mod q, as published, cannot be decoded (7.1)", _word(failed), text)


def _refused(folder: Path, label: str) -> float:
    return float(np.mean(RunFolder.open(folder).scheme(label).read("rounds")["info_refused"]))


def _judge_packing(found: Found) -> list[Verdict]:
    """Claims "a is more accurate than b", paired over seeds."""
    by_label, verdicts = final_percent(found.schemes), []
    for claim in found.targets["claims"]:
        for run in found.runs:
            gap = difference(by_label[claim["better"]], by_label[claim["than"]], run)
            verdicts.append(joined(f"{run}: {claim['text']}", [ahead(gap)._replace(evidence=points(gap))]))
    return verdicts


def _judge_he_dp(found: Found) -> list[Verdict]:
    cap, both = found.targets["eps"], next(s for s in found.schemes if s.label == found.settings["both"])
    verdicts = []
    for run in found.runs:
        eps = max(float(e) for e in both.summaries[run]["final_eps"])
        rounds = min(both.summaries[run]["rounds"])
        text = f"worst seed {eps:.2f} in {rounds:.0f} rounds or more; accuracy {mean_sd(100 * final(both, run), 2)} %"
        claim = f"{run}: encryption with the clients' noise keeps eps <= {cap:g}"
        verdicts.append(Verdict(claim, _word(eps <= cap), text))
    return verdicts


table3 = partial(_training, _judge_table3, "accuracy", False)
fig2 = partial(_training, _judge_fig2, "cross_entropy", False)
fig3 = partial(_training, _judge_fig3, "cross_entropy", True)
packing = partial(_training, _judge_packing, "accuracy", False)
he_dp = partial(_training, _judge_he_dp, "accuracy", False)
