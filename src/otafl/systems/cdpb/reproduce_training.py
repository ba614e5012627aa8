"""CDPB's trained figures 4, 5 and 8, and a demonstration on MNIST where the privacy is real."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from otafl.core.files import parse
from otafl.core.plan import Events
from otafl.privacy import Ledger, run_rdp
from otafl.privacy.events import pick
from otafl.reproductions import claims, curves
from otafl.reproductions.curves import Scheme, collect, step_size_of
from otafl.reproductions.findings import HOLDS, UNDECIDED, Grid, Record, Verdict, by_accounting
from otafl.reproductions.pictures import Line, Panel, line
from otafl.reproductions.reproduction import Reproduction
from otafl.runs.comparing.statistics import mean_sd, paired
from otafl.runs.comparing.tune import tuned, with_step_sizes
from otafl.runs.folder.store import RunFolder
from otafl.runs.presets import find, read_preset
from otafl.runs.schema import Experiment
from otafl.systems.cdpb.design import Params, feasibility_law, solve_paper, theorem1


def trained(job: Reproduction, name: str = "run", *changes: str) -> tuple[Experiment, Path]:
    """The preset's experiment with tuned step sizes, run in `folder/name`."""
    steps = tuned(job.path, job.folder / "tuning", job.overrides, job.reporter)
    experiment = with_step_sizes(job.experiment(*changes), steps)
    return experiment, job.run(experiment, name)


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


def fig4(job: Reproduction) -> None:
    """Accuracy over rounds, all schemes under one certified accountant."""
    experiment, place = trained(job)
    schemes = collect({"run": place})
    job.record(curves.curve_records(schemes, ("accuracy", "cross_entropy", "eps")))
    grids = [accuracy_grid(schemes, experiment), curves.privacy_grid(schemes, "run")]
    targets = job.preset.targets
    verdicts = [*curves.judge(targets["claims"], schemes), _thrift(schemes, targets["energy"])]
    panels = [Panel("Fig. 4", "round", "test accuracy", curves.lines(schemes, "accuracy"))]
    job.publish(grids, verdicts, _notes(job, place), panels)


def _thrift(schemes: list[Scheme], target: Record) -> Verdict:
    """A claim about the energy that a client spends in a round."""
    told = {scheme.label: scheme.summaries["run"]["energy_per_round"] for scheme in schemes}
    claim = parse(claims.Claim, {"metric": "energy per round", "lower": True, "digits": 3, **target}, "energy")
    return claims.judge(claim, lambda label: dict(enumerate(told[label])))


def _notes(job: Reproduction, place: Path) -> list[str]:
    """What a reader must know: the preset's own notes, and what the data are."""
    return [*job.settings.get("notes", []), curves.data_of(RunFolder.open(place))]


# --- Figure 5 -----------------------------------------------------------------------------------------------------

NAMES = {"paper": "Theorem 1"}  # of accountings, where they are shown: all values are ours


def _named(how: str) -> str:
    return NAMES.get(how, how)


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


def fig5(job: Reproduction) -> None:
    """RDP over the rounds of another preset's run, by several accountings."""
    settings, name = job.settings, job.preset.experiment
    assert name is not None
    path = find(name)
    rest = [change for change in job.overrides if not change.startswith("preset.")]
    overrides = [*read_preset(path).overrides(job.quick), *rest]
    experiment, place = trained(replace(job, path=path, folder=job.folder.parent / name, overrides=overrides))
    records = rdp_records(place, experiment, settings)
    job.record(records)
    shown, labels = list(settings["accountings"]), list(dict.fromkeys(r["scheme"] for r in records))
    last = {(label, how): {r["seed"]: r["rdp"] for r in _of(records, label, how) if r["round"] == experiment.rounds}
            for label in labels for how in shown}  # fmt: skip
    rows = [[label, *(f"{np.mean(list(last[label, how].values())):.4g}" for how in shown)] for label in labels]
    title = f"Renyi loss of order {settings['alpha']:g} after {experiment.rounds} rounds, worst client, mean over seeds"
    verdicts = [_less(claim, last) for claim in job.preset.targets["claims"]]
    notes = [
        "all values are ours; Theorem 1: as printed; realised: the drawn channels, certified; visible: averaged over "
        "participation; none: every round charged",
        f"by Theorem 1 at p = 1, as published: {', '.join(settings['unamplified'])}",
        "a scheme that stops before the last round keeps what it has spent",
    ]
    panels = [
        Panel(f"Fig. 5, {_named(how)}", "round", "Renyi loss", [_line(records, one, how) for one in labels], log="y")
        for how in ("paper", "realised")
    ]
    job.publish([Grid(title, ("scheme", *map(_named, shown)), rows)], verdicts, notes, panels)


def _of(records: list[Record], label: str, how: str) -> list[Record]:
    return [r for r in records if (r["scheme"], r["accounting"]) == (label, how)]


def _line(records: list[Record], label: str, how: str) -> Line:
    own = _of(records, label, how)
    rounds, seeds = (sorted({r[key] for r in own}) for key in ("round", "seed"))
    return line(label, rounds, [[r["rdp"] for r in own if r["seed"] == seed] for seed in seeds])


def rdp_records(place: Path, experiment: Experiment, settings: Record) -> list[Record]:
    """One record per scheme, accounting, seed and tenth of the rounds; schemes without privacy are left out."""
    run, every = RunFolder.open(place), max(1, experiment.rounds // 10)
    rounds = [*range(every, experiment.rounds, every), experiment.rounds]
    records = []
    for label in run.labels():
        scheme = run.scheme(label)
        summary = scheme.json("summary")
        if not summary["private"]:
            continue
        amplified = label not in settings["unamplified"]
        for seed in experiment.seed_list:
            events = Ledger.from_bytes(scheme.content(f"ledger-{seed}.bin")).events
            for how in settings["accountings"]:
                curve = rdp_curve(events, summary["channel_uses"], how, settings["alpha"], rounds, amplified)
                records += [{"scheme": label, "accounting": how, "seed": seed, "round": r, "rdp": float(x)}
                            for r, x in zip(rounds, curve)]  # fmt: skip
    return records


def _less(claim: Record, last: dict[tuple[str, str], dict[int, float]]) -> Verdict:
    """Whether `less` has the smaller loss, as printed and as certified, than each of `than`."""
    told, words = [], {}
    for how in ("paper", "realised"):
        parts = []
        for rival in claim["than"]:
            ours, theirs = last[claim["less"], how], last[rival, how]
            parts.append(claims.ahead(paired(theirs, ours)))
            told.append(f"{_named(how)}: {_mean(ours)} against {rival} {_mean(theirs)}")
        words[how] = claims.joined("", parts).verdict
    if UNDECIDED in words.values():
        word, told = UNDECIDED, [*told, "more seeds would decide it"]
    else:
        word = by_accounting(words["paper"] == HOLDS, words["realised"] == HOLDS)
    rule = "Renyi loss after the last round: mean paired difference < 0, by Theorem 1 and as certified (realised)"
    return Verdict(claim["text"], word, "; ".join(told), claim["place"], rule)


def _mean(values: dict[int, float]) -> str:
    return f"{np.mean(list(values.values())):.4g}"


# --- Figure 8 -----------------------------------------------------------------------------------------------------


def fig8(job: Reproduction) -> None:
    """Accuracy when the law of the channels changes every few rounds."""
    runs, experiment = {}, None
    for period in job.settings["periods"]:
        change = f"channel.drift.every={period}"
        experiment, runs[f"every {period}"] = trained(job, f"every-{period}", change)
    assert experiment is not None
    schemes = collect(runs)
    job.record(curves.curve_records(schemes, ("accuracy", "eps")))
    grids = [accuracy_grid(schemes, experiment, run, f"law changes {run} round(s)") for run in runs]
    targets = job.preset.targets
    verdicts = [*curves.judge(targets["claims"], schemes), _solving(targets["solving"])]
    panels = [Panel(f"Fig. 8, law changes {run}", "round", "test accuracy", curves.lines(schemes, "accuracy", run))
              for run in runs]  # fmt: skip
    job.publish(grids, verdicts, _notes(job, next(iter(runs.values()))), panels)


def _solving(claim: Record) -> Verdict:
    """CPU time of the paper's own two stages for both strategies: the median of several solutions."""
    times = {strategy: [] for strategy in ("idle", "noisy")}  # type: dict[str, list[float]]
    sets = {strategy: len(solve_paper(Params(), strategy).tried) for strategy in times}
    for _ in range(9):
        for strategy, spent in times.items():
            start = time.process_time()
            solve_paper(Params(), strategy)
            spent.append(time.process_time() - start)
    idle, noisy = (float(np.median(spent)) for spent in times.values())
    text = f"idle {1e3 * idle:.1f} ms for {sets['idle']} values of τ, noisy {1e3 * noisy:.1f} ms for {sets['noisy']}"
    return claims.fact(claim["text"], noisy < idle, text, claim["place"], "CPU time of Algorithm 3: noisy < idle")


# --- where privacy is real ------------------------------------------------------------------------------------------


def mnist(job: Reproduction) -> None:
    """Accuracy under a certified cap, and what the feasibility law says of this deployment."""
    experiment, place = trained(job)
    schemes = collect({"run": place})
    job.record(curves.curve_records(schemes, ("accuracy", "cross_entropy", "eps")))
    grids = [accuracy_grid(schemes, experiment), curves.privacy_grid(schemes, "run")]
    panels = [Panel("MNIST, d = 200", "round", name, curves.lines(schemes, name)) for name in ("accuracy", "eps")]
    job.publish(grids, [_law(schemes, experiment)], _notes(job, place), panels)


def _law(schemes: list[Scheme], experiment: Experiment) -> Verdict:
    """The least gamma times RDP of order 2, here and for a network of a hundred thousand parameters."""
    dim = schemes[0].summaries["run"]["channel_uses"]
    W, alpha = experiment.clients.clip_norm, 2.0
    law = [feasibility_law(Params(K=experiment.task.clients, d=d, W=W, alpha=alpha)) for d in (dim, 100_000)]
    cap = experiment.privacy.eps or np.inf
    kept = all(eps <= cap for s in schemes if s.summaries["run"]["capped"] for eps in s.finals["eps"].values())
    evidence = f"gamma times RDP is above {law[0]:.2g} here (d = {dim}), above {law[1]:.3g} at d = 100,000 (E10)"
    return claims.fact(f"no capped run passes eps = {cap:g}", kept, evidence, rule="eps of every capped run <= its cap")
