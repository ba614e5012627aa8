"""CDPB's trained figures 4, 5 and 8, and a demonstration on MNIST where the privacy is real."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from otafl.core.files import as_toml
from otafl.core.plan import Events
from otafl.privacy import Ledger, run_rdp
from otafl.privacy.events import pick
from otafl.reproductions import curves
from otafl.reproductions.curves import Scheme, collect, step_size_of
from otafl.reproductions.findings import (
    FAILS,
    HOLDS,
    Grid,
    Record,
    Verdict,
    by_accounting,
    draw,
    each,
    publish,
    write_records,
)
from otafl.reproductions.preset_run import run_in
from otafl.runs.comparing.statistics import mean_sd
from otafl.runs.comparing.tune import settings_of, tuned, with_step_sizes
from otafl.runs.folder.store import RunFolder
from otafl.runs.presets import Preset, find, read_preset
from otafl.runs.progress import Reporter
from otafl.runs.schema import Experiment, load
from otafl.systems.cdpb.design import Params, feasibility_law, theorem1

SMOKE = "smoke version: too few rounds and seeds to mean anything"


def trained(path: Path, folder: Path, overrides: list[str], reporter: Reporter, changes: list[str] | None = None,
            name: str = "run") -> tuple[Experiment, Path]:  # fmt: skip
    """The preset's experiment with tuned step sizes, run in `folder/name`."""
    steps = tuned(path, folder / "tuning", overrides, reporter)
    experiment = with_step_sizes(load(path, [*overrides, *(changes or [])]), steps)
    return experiment, run_in(folder / name, experiment, reporter)


def accuracy_grid(schemes: list[Scheme], experiment: Experiment, run: str | None = None, title: str = "") -> Grid:
    """Accuracy, certified privacy and energy of every scheme."""
    rows = []
    for scheme in schemes:
        chosen = {m: [v for p, v in values.items() if run in (None, p[0])] for m, values in scheme.finals.items()}
        told = [summary for name, summary in scheme.summaries.items() if run in (None, name)]
        private, radio = all(s["private"] for s in told), all(s["uplink"] == "analog" for s in told)
        rows.append([
            scheme.label, f"{step_size_of(experiment, scheme.label):g}", mean_sd(chosen["accuracy"]),
            mean_sd(chosen["worst_client"]), mean_sd(chosen["eps"], 2) if private else "∞",
            f"{np.mean([np.mean(s['rounds']) for s in told]):.0f}",
            f"{np.mean([np.mean(s['energy_per_round']) for s in told]):.2f}" if radio else "–",
        ])  # fmt: skip
    one = next(iter(schemes[0].summaries.values()))
    eps = f"ε ({one['unit']}, {one['adjacency']}, {one['accountant']}, {experiment.privacy.accounting})"
    head = ("scheme", "step", "accuracy", "worst client", eps, "rounds", "energy per round")
    return Grid(title or f"{len(schemes[0].finals['accuracy'])} paired seeds, last evaluations", head, rows)


def fig4(path: Path, preset: Preset, folder: Path, overrides: list[str], quick: bool, reporter: Reporter,
         console: Console) -> None:  # fmt: skip
    """Accuracy over rounds, all schemes under one certified accountant."""
    experiment, place = trained(path, folder, overrides, reporter)
    schemes = collect({"run": place})
    draw(folder, "accuracy", 1, 1, each(partial(curves.paint, schemes, "accuracy", label="test accuracy")))
    write_records(folder, "records", curves.curve_records(schemes, ("accuracy", "cross_entropy", "eps")))
    grids = [accuracy_grid(schemes, experiment), curves.privacy_grid(schemes, "run")]
    verdicts = curves.judge(preset.targets["claims"], schemes)
    publish(folder, preset, grids, verdicts, _notes(path, overrides, quick, place), console)


def _notes(path: Path, overrides: list[str], quick: bool, *places: Path) -> list[str]:
    """What a reader must know: the preset's own notes, what the data are, where the runs were made."""
    notes = list(settings_of(path, overrides).get("notes", []))
    for place in places[:1]:
        manifest = RunFolder.open(place).manifest
        notes.append(f"data: {manifest['data']['name']}, {manifest['parameters']} parameters")
    return [SMOKE, *notes] if quick else notes


# --- Figure 5 -----------------------------------------------------------------------------------------------------


def rdp_curve(
    events: Events, dim: int, accounting: str, alpha: float, rounds: list[int], amplified: bool = True
) -> list[float]:
    """RDP of the worst client after so many rounds; "paper" is Theorem 1 as printed with the noise that arrived.

    amplified: False charges Theorem 1 at p = 1, as the paper does for rivals whose server sees who takes part.
    """
    if accounting == "paper":
        total = dim * np.sum(events.artificial_var, -1) + events.receiver_var  # CDPB (13), (17)
        p = np.max(events.send_prob, -1) if amplified else 1.0
        loss = theorem1(alpha, p, np.max(events.sensitivity) ** 2 / total)
        spent = np.concatenate([[0.0], np.cumsum(np.where(events.live, loss, 0.0))])
        return [float(spent[min(stop, len(loss))]) for stop in rounds]
    curve, so_far = [], np.zeros(1)
    for start, stop in zip([0, *rounds], rounds):
        part = pick(events, slice(start, stop))
        if np.any(part.live):
            so_far = so_far + run_rdp(part, accounting, np.array([alpha]), adjacency="zero-out")
        curve.append(float(np.max(so_far)))
    return curve


def fig5(path: Path, preset: Preset, folder: Path, overrides: list[str], quick: bool, reporter: Reporter,
         console: Console) -> None:  # fmt: skip
    """RDP over the rounds of another preset's run, by several accountings."""
    settings = settings_of(path, overrides)
    other = find(settings["run"])
    changes = [f"{key}={as_toml(value)}" for key, value in (read_preset(other).quick.items() if quick else ())]
    rest = [change for change in overrides if not change.startswith("preset.")]
    experiment, place = trained(other, folder.parent / settings["run"], [*changes, *rest], reporter)
    records = rdp_records(place, experiment, settings)
    write_records(folder, "records", records)
    shown = list(settings["accountings"])
    draw(folder, "rdp", len(shown), 1, each(*(partial(_paint_rdp, records, how) for how in shown)))
    last = {(r["scheme"], r["accounting"]): r["rdp"] for r in records if r["round"] == experiment.rounds}
    labels = list(dict.fromkeys(r["scheme"] for r in records))
    rows = [[label, *(f"{last[label, how]:.4g}" for how in shown)] for label in labels]
    title = f"Renyi loss of order {settings['alpha']:g} after {experiment.rounds} rounds, worst client, mean over seeds"
    verdicts = [_less(claim, last) for claim in preset.targets["claims"]]
    notes = [
        *([SMOKE] if quick else []),
        "paper: Theorem 1 as printed; realised: the drawn channels, certified; visible: averaged over participation; "
        "none: every round charged",
        f"paper charges at p = 1, as published: {', '.join(settings['unamplified'])}",
        "a scheme that stops before the last round keeps what it has spent",
    ]
    publish(folder, preset, [Grid(title, ("scheme", *shown), rows)], verdicts, notes, console)


def rdp_records(place: Path, experiment: Experiment, settings: Record) -> list[Record]:
    """One record per scheme, accounting and evaluation, mean over seeds; schemes without privacy are left out."""
    run, every = RunFolder.open(place), experiment.evaluate_every
    rounds = [*range(every, experiment.rounds, every), experiment.rounds]
    records = []
    for label in run.labels():
        scheme = run.scheme(label)
        summary = scheme.json("summary")
        if not summary["private"]:
            continue
        events = [Ledger.from_bytes(scheme.content(f"ledger-{seed}.bin")).events for seed in experiment.seed_list]
        amplified = label not in settings["unamplified"]
        for how in settings["accountings"]:
            lines = [rdp_curve(e, summary["channel_uses"], how, settings["alpha"], rounds, amplified) for e in events]
            mean = np.mean(lines, axis=0)
            records += [{"scheme": label, "accounting": how, "round": r, "rdp": float(x)} for r, x in zip(rounds, mean)]
    return records


def _less(claim: Record, last: dict[tuple[str, str], float]) -> Verdict:
    """Both the printed loss and the certified one must be smaller."""
    first, second = claim["less"], claim["than"]
    smaller = {how: last[first, how] < last[second, how] for how in ("paper", "realised")}
    said = [f"{how} {last[first, how]:.4g} against {last[second, how]:.4g}" for how in smaller]
    return Verdict(claim["text"], by_accounting(smaller["paper"], smaller["realised"]), "; ".join(said))


def _paint_rdp(records: list[Record], accounting: str, axes: Any) -> None:
    for label in dict.fromkeys(r["scheme"] for r in records):
        line = [(r["round"], r["rdp"]) for r in records if r["scheme"] == label and r["accounting"] == accounting]
        axes.plot(*zip(*line), label=label)
    axes.set(xlabel="round", ylabel="Renyi loss", yscale="log", title=accounting)
    axes.legend(fontsize="x-small")


# --- Figure 8 -----------------------------------------------------------------------------------------------------


def fig8(path: Path, preset: Preset, folder: Path, overrides: list[str], quick: bool, reporter: Reporter,
         console: Console) -> None:  # fmt: skip
    """Accuracy when the law of the channels changes every few rounds."""
    runs, experiment = {}, None
    for period in settings_of(path, overrides)["periods"]:
        change = [f"channel.drift.every={period}"]
        experiment, runs[f"every {period}"] = trained(path, folder, overrides, reporter, change, f"every-{period}")
    assert experiment is not None
    schemes = collect(runs)
    draw(folder, "accuracy", len(runs), 1, each(*(partial(_paint_run, schemes, run) for run in runs)))
    write_records(folder, "records", curves.curve_records(schemes, ("accuracy", "eps")))
    grids = [accuracy_grid(schemes, experiment, run, f"law changes {run} round(s)") for run in runs]
    verdicts = curves.judge(preset.targets["claims"], schemes)
    publish(folder, preset, grids, verdicts, _notes(path, overrides, quick, *runs.values()), console)


def _paint_run(schemes: list[Scheme], run: str, axes: Any) -> None:
    curves.paint(schemes, "accuracy", axes, run, "test accuracy")
    axes.set_title(f"law changes {run}")


# --- where privacy is real ------------------------------------------------------------------------------------------


def mnist(path: Path, preset: Preset, folder: Path, overrides: list[str], quick: bool, reporter: Reporter,
          console: Console) -> None:  # fmt: skip
    """Accuracy under a certified cap, and what the feasibility law says of this deployment."""
    experiment, place = trained(path, folder, overrides, reporter)
    schemes = collect({"run": place})
    draw(folder, "accuracy", 2, 1, each(*(partial(curves.paint, schemes, metric) for metric in ("accuracy", "eps"))))
    write_records(folder, "records", curves.curve_records(schemes, ("accuracy", "cross_entropy", "eps")))
    grids = [accuracy_grid(schemes, experiment), curves.privacy_grid(schemes, "run")]
    publish(folder, preset, grids, [_law(schemes, experiment)], _notes(path, overrides, quick, place), console)


def _law(schemes: list[Scheme], experiment: Experiment) -> Verdict:
    """The least gamma times RDP of order 2, here and for a network of a hundred thousand parameters."""
    dim = schemes[0].summaries["run"]["channel_uses"]
    W, alpha = experiment.clients.clip_norm, 2.0
    law = [feasibility_law(Params(K=experiment.task.clients, d=d, W=W, alpha=alpha)) for d in (dim, 100_000)]
    cap = experiment.privacy.eps or np.inf
    kept = all(eps <= cap for s in schemes if s.summaries["run"]["capped"] for eps in s.finals["eps"].values())
    evidence = f"gamma times RDP is above {law[0]:.2g} here (d = {dim}), above {law[1]:.3g} at d = 100,000 (E10)"
    return Verdict(f"no capped run passes eps = {cap:g}", HOLDS if kept else FAILS, evidence)
