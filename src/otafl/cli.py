"""The command line: `otafl run | sweep | list | plan | reproduce | report | ...`. Thin; all work is elsewhere."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from otafl import __version__
from otafl.core.errors import Infeasible, InputError, OtaflError, RunError
from otafl.runs.interrupts import EXIT_CODE, immediate_stop

app = typer.Typer(
    name="otafl",
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Over-the-air federated learning with privacy: plan, run, account, certify, compare.\n\n"
    "Exit codes: 0 done, 2 bad input, 3 certified infeasible, 4 budget would be exceeded, "
    "5 a privacy promise was broken and the run stopped, 130 interrupted.",
)
out = Console(width=None if sys.stdout.isatty() else 120)
err = Console(stderr=True)

Override = Annotated[
    list[str], typer.Option("--set", help="Override a key, e.g. --set rounds=50 --set scheme.0.rx_scale=0.4")
]
On = Annotated[
    str | None, typer.Option("--executor", help="local[:N] processes of this machine, or ray[:ADDRESS], a cluster.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output on stdout.")]


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        print(f"otafl {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


def _working(on: object, json_log: bool) -> None:
    """Something to look at while libraries load and schemes are planned."""
    if err.is_terminal and not json_log:
        err.print(f"{on}: loading and planning ...", style="dim", markup=False, highlight=False)


@app.command()
def run(
    file: Annotated[Path | None, typer.Argument(help="Experiment file (TOML), or the name of a preset.")] = None,
    overrides: Override = [],  # noqa: B006
    out_dir: Annotated[Path | None, typer.Option("--out", help="Run folder; default runs/<name>.")] = None,
    resume: Annotated[Path | None, typer.Option("--resume", help="Continue an interrupted run.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Print the resolved config and stop.")] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of experiment files and stop.")
    ] = False,
    json_log: Annotated[bool, typer.Option("--json-log", help="Progress as JSON lines on stdout.")] = False,
) -> None:
    """Run an experiment: all its schemes, paired seeds, one ledger. Writes a run folder with a report."""
    if not (schema or show):
        _working(resume or file, json_log)
    from otafl.runs import runner
    from otafl.runs.presets import find
    from otafl.runs.progress import reporter
    from otafl.runs.schema import Experiment, load, resolved

    if schema:
        print(json.dumps(Experiment.model_json_schema(), indent=2))
        return
    if resume is not None:
        if file is not None or overrides or out_dir is not None:
            raise InputError("--resume takes all from the run folder; give no FILE, no --set and no --out with it")
        folder = runner.resume(resume, reporter(err, json_log))
    else:
        if file is None:
            raise InputError("give an experiment FILE, a preset's name, or --resume DIR (see otafl run --help)")
        experiment = load(find(file), overrides)
        if show:
            print(resolved(experiment), end="")
            return
        folder = runner.start(experiment, out_dir or runner.default_folder(Path(file).stem), reporter(err, json_log))
    from otafl.report import write_report

    write_report([folder])
    if not json_log:
        _show_run(folder)


def _show_run(folder: Path) -> None:
    from otafl.report.tables import comparison

    table, footer = comparison(folder, out.width)
    out.print(table)
    out.print(footer, f"Report: {folder / 'report.html'}", sep="\n", markup=False, highlight=False, soft_wrap=True)


@app.command()
def sweep(
    file: Annotated[Path, typer.Argument(help="Experiment file (TOML), or the name of a preset.")],
    over: Annotated[
        list[str], typer.Option("-m", "--over", help="A key and its values: -m privacy.eps=2,8,32; may be repeated.")
    ],
    overrides: Override = [],  # noqa: B006
    out_dir: Annotated[Path | None, typer.Option("--out", help="Its folder; default runs/sweep-<name>.")] = None,
    executor: On = "local",
    json_log: Annotated[bool, typer.Option("--json-log", help="Progress as JSON lines on stdout.")] = False,
) -> None:
    """Run an experiment for every combination of some keys' values, on many cores or machines; resumable."""
    _working(file, json_log)
    from otafl import verbs
    from otafl.report.sweep import Sweep, show
    from otafl.runs.board import board
    from otafl.runs.presets import find
    from otafl.runs.schema import load
    from otafl.runs.sweep import axis, check

    path = find(file)
    axes = dict(map(axis, over))
    if len(axes) < len(over):
        raise InputError("-m names a key twice; give all its values at once")
    folder = out_dir or Path("runs") / f"sweep-{path.stem}"
    with board(err, json_log) as live:
        made = lambda values: load(path, [*overrides, *values])  # noqa: E731
        outcomes = verbs.sweep_into(folder, axes, made, executor or "local", live)
    if not json_log:
        show(Sweep(folder), out)
        out.print(f"Index: {folder / 'index.html'}", markup=False, highlight=False, soft_wrap=True)
    check(outcomes)


@app.command()
def compare(
    file: Annotated[
        Path, typer.Argument(help="Experiment file (TOML) or preset with several schemes and a privacy target.")
    ],
    overrides: Override = [],  # noqa: B006
    trials: Annotated[
        int | None,
        typer.Option(
            "--trials", min=0, help="0: settings from plans alone; N: so many trials per scheme on a validation split."
        ),
    ] = None,
    out_dir: Annotated[Path | None, typer.Option("--out", help="Result folder; default runs/compare-<name>.")] = None,
    wide: Annotated[bool, typer.Option("--wide", help="All columns, also where they do not fit the screen.")] = False,
    json_log: Annotated[bool, typer.Option("--json-log", help="Progress as JSON lines on stdout.")] = False,
) -> None:
    """Compare schemes at one privacy target: paired seeds, a ranking that says when it is a tie."""
    _working(file, json_log)
    from otafl.report import comparison
    from otafl.runs.comparing.compare import question_of
    from otafl.runs.presets import find
    from otafl.runs.progress import reporter

    path = find(file)
    folder = out_dir or Path("runs") / f"compare-{path.stem}"
    parts = comparison.run_and_write(question_of(path, overrides, trials), folder, reporter(err, json_log))
    if not json_log:
        comparison.show(parts, out, wide)


@app.command()
def advise(
    site: Annotated[str, typer.Argument(help="CSV of devices, deployment file (TOML), or a number of equal devices.")],
    eps: Annotated[float, typer.Option("--eps", help="Privacy target of the whole training.")],
    num_params: Annotated[int | None, typer.Option("--num-params", help="Size of the model; not with --task.")] = None,
    rounds: Annotated[int | None, typer.Option("--rounds", help="Default: as few as let everybody be heard.")] = None,
    task: Annotated[Path | None, typer.Option("--task", help="Experiment file with your own [task].")] = None,
    delta: Annotated[float, typer.Option("--delta")] = 1e-5,
    weights: Annotated[str, typer.Option("--weights", help="samples or equal.")] = "samples",
    accountant: Annotated[str, typer.Option("--accountant", help="See otafl list accountants.")] = "gaussian",
    agreement: Annotated[
        float | None, typer.Option("--agreement", help="Norm of the devices' mean update over the clip norm.")
    ] = None,
    samples: Annotated[int | None, typer.Option("--samples", help="Per device, where SITE is a number.")] = None,
    radio: Annotated[
        list[str], typer.Option("--radio", help="What a CSV does not say, e.g. --radio noise_dbm_per_hz=-168")
    ] = [],  # noqa: B006
    simulate: Annotated[bool, typer.Option("--simulate", help="Train the best three, on your task or digits.")] = False,
    out_dir: Annotated[Path | None, typer.Option("--out", help="Folder of advice.html; default runs/advice.")] = None,
    as_json: AsJson = False,
) -> None:
    """Which scheme to use on a site, with which settings, and whether it is worth it. Nothing is trained."""
    _working(site, as_json)
    from otafl.core import files
    from otafl.report.advice import write_advice
    from otafl.report.advice_text import show
    from otafl.runs.advice.value import advise as give_advice
    from otafl.runs.schema import assign

    receiver: dict[str, Any] = {}
    for pair in radio:
        assign(receiver, pair)
    advice = give_advice(
        site, num_params, eps, delta=delta, rounds=rounds, task=task, weights=weights, accountant=accountant,
        agreement=agreement, samples=samples, radio=receiver,
    )  # fmt: skip
    folder = out_dir or Path("runs") / "advice"
    written = write_advice(advice, folder)
    if not as_json:
        show(advice, out)
        names = ", ".join(path.name for path in written)
        out.print(f"Wrote {names} in {folder}", markup=False, highlight=False, soft_wrap=True)
    trained = _simulate(advice, folder, as_json) if simulate else []
    if as_json:
        print(files.to_json({**advice.to_dict(), "simulated": [entry._asdict() for entry in trained]}))
    if not advice.useful:
        raise typer.Exit(Infeasible.exit_code)  # the sentence has been said


def _simulate(advice: Any, folder: Path, quiet: bool) -> list[Any]:
    """Train the best three and show accuracy with its interval."""
    from otafl.report import write_report
    from otafl.runs.advice.trained import simulate
    from otafl.runs.progress import Reporter, reporter

    run_folder, trained = simulate(advice, folder, Reporter() if quiet else reporter(err, False))
    write_report([run_folder])
    if not quiet:
        for entry in trained:
            said = f"{entry.scheme}: accuracy {entry.accuracy:.3f} ± {entry.half_width:.3f} (95 %, {entry.seeds} seeds)"
            out.print(said, markup=False, highlight=False, soft_wrap=True)
        out.print(f"Report: {run_folder / 'report.html'}", markup=False, highlight=False, soft_wrap=True)
    return trained


@app.command("list")
def list_(
    only: Annotated[str | None, typer.Argument(help="A kind (schemes, presets, ...), or a word to look for.")] = None,
    as_json: AsJson = False,
) -> None:
    """Schemes, presets, data sets, models, channels, beams, partitions, clients and planners that are available."""
    from otafl import systems
    from otafl.channels import BEAMS, CHANNELS
    from otafl.clients import KINDS
    from otafl.privacy import ACCOUNTANTS
    from otafl.runs.presets import presets
    from otafl.systems import planning
    from otafl.tasks.models import MODELS
    from otafl.tasks.partitions import PARTITIONS
    from otafl.tasks.sources import DATASETS

    everything: dict[str, dict[str, str]] = {
        "schemes": {name: entry.summary for name, entry in systems.SCHEMES.items()},
        "presets": {name: preset.summary for name, preset in presets().items()},
        "plan": {name: planning.load(name).summary for name in planning.available()},
        "data": _summaries(DATASETS),
        "models": _summaries(MODELS),
        "channels": dict(CHANNELS),
        "beams": {name: f"channel.beam of channel.antennas > 1: {said}" for name, said in BEAMS.items()},
        "partitions": _summaries(PARTITIONS),
        "clients": {name: (options.__doc__ or "").split("\n")[0] for name, (options, _) in KINDS.items()},
        "accountants": {name: entry.summary for name, entry in ACCOUNTANTS.items()},
    }
    everything = _only(everything, only)
    if as_json:
        print(json.dumps(everything, indent=2))
        return
    for kind, entries in everything.items():
        table = Table(title=kind, title_justify="left", title_style="bold", show_header=False, box=None, padding=(0, 2))
        for name, summary in entries.items():
            table.add_row(f"[cyan]{escape(name)}[/]", escape(summary))
        out.print(table)
        out.print()


def _only(everything: dict[str, dict[str, str]], word: str | None) -> dict[str, dict[str, str]]:
    """One kind, or the entries of all kinds that have the word in their name or summary."""
    if word is None:
        return everything
    if word in everything:
        return {word: everything[word]}
    want = word.lower()
    found = {
        kind: {name: said for name, said in entries.items() if want in f"{name} {said}".lower()}
        for kind, entries in everything.items()
    }
    found = {kind: entries for kind, entries in found.items() if entries}
    if not found:
        raise InputError(f"nothing is called {word!r}; the kinds are {', '.join(everything)}")
    return found


def _summaries(registry: dict[str, Any]) -> dict[str, str]:
    return {
        name: entry if isinstance(entry, str) else getattr(entry, "summary", "") for name, entry in registry.items()
    }


@app.command()
def plan(
    what: Annotated[str, typer.Argument(help="An experiment file or a preset; or a system: see `otafl list plan`.")],
    file: Annotated[
        Path | None, typer.Argument(help="Of a system: its planning file (TOML), an experiment file or a preset.")
    ] = None,
    as_json: AsJson = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of FILE and stop.")] = False,
    example: Annotated[bool, typer.Option("--example", help="Print a complete FILE that works and stop.")] = False,
    overrides: Override = [],  # noqa: B006
    agreement: Annotated[
        float | None,
        typer.Option("--agreement", help="Of an experiment: how much devices agree, in (0, 1]; guessed without it."),
    ] = None,
    wide: Annotated[bool, typer.Option("--wide", help="All columns, also where they do not fit the screen.")] = False,
    out_dir: Annotated[Path | None, typer.Option("--out", help="Write tables, plots and exports there.")] = None,
) -> None:
    """Plan without training: all schemes of an experiment in one table, or one system in detail (plan SYSTEM FILE)."""
    from otafl.systems import planning

    if what not in planning.available() and file is None and not example and not schema:
        _plan_experiment(Path(what), overrides, agreement, wide, as_json, out_dir)
        return
    if agreement is not None or wide:
        raise InputError("--agreement and --wide go with an experiment file, not with a system")
    _plan_system(what, file, as_json, schema, example, overrides, out_dir)


def _plan_experiment(
    file: Path, overrides: list[str], agreement: float | None, wide: bool, as_json: bool, out_dir: Path | None
) -> None:
    from otafl.core import files
    from otafl.report import plans
    from otafl.runs.planning import table as planning
    from otafl.runs.presets import find
    from otafl.runs.schema import load

    found = planning.plan(load(find(file), overrides), agreement)
    if as_json:
        print(files.to_json(found.to_dict()))
    else:
        plans.show(found, out, wide)
    if out_dir is not None:
        out_dir.mkdir(parents=True, exist_ok=True)
        for name, text in (("plan.json", files.to_json(found.to_dict())), ("plan.md", plans.markdown(found))):
            files.write_atomic(out_dir / name, text)
            err.print(f"wrote {out_dir / name}", markup=False, highlight=False, soft_wrap=True)
    planning.refuse_all_infeasible(found)


def _plan_system(
    system: str,
    file: Path | None,
    as_json: bool,
    schema: bool,
    example: bool,
    overrides: list[str],
    out_dir: Path | None,
) -> None:
    from otafl.core import files
    from otafl.runs.planning.details import inputs_of
    from otafl.systems import planning

    planner = planning.load(system)
    if schema:
        print(json.dumps(planner.inputs.model_json_schema(), indent=2))
        return
    if example:
        print(planner.example, end="")
        return
    if file is None:
        raise InputError(f"give a planning FILE; `otafl plan {system} --example` prints one to start from")
    inputs = inputs_of(system, file, overrides)
    try:
        design = planning.design(system, inputs, file)
    except Infeasible as refusal:
        if as_json:
            print(files.to_json({"feasible": False, "reason": str(refusal), "report": refusal.report}))
        raise
    if as_json:
        print(files.to_json(design))
    else:
        planner.show(design, out)
    if out_dir is not None:
        out_dir.mkdir(parents=True, exist_ok=True)
        for path in planner.pictures(design, out_dir):
            err.print(f"wrote {path}", markup=False, highlight=False, soft_wrap=True)


@app.command()
def audit(
    what: Annotated[Path, typer.Argument(help="Experiment file (TOML), a preset's name, or a run folder.")],
    overrides: Override = [],  # noqa: B006
    runs: Annotated[int, typer.Option("--runs", help="Runs of each world of each pattern.")] = 1000,
    schemes: Annotated[list[str], typer.Option("--scheme", help="Audit this scheme alone (its label).")] = [],  # noqa: B006
    as_json: AsJson = False,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Folder for the page; default RUN/audit, runs/audit-<name>.")
    ] = None,
) -> None:
    """Attack the compiled round with canaries: charged ε beside measured ε, exit 5 where a charge is refuted."""
    _working(what, as_json)
    from otafl.core import files
    from otafl.report import audits
    from otafl.runs.audit.audit import audit as attack
    from otafl.runs.presets import find
    from otafl.runs.progress import counter
    from otafl.runs.runner import use_compilation_cache
    from otafl.runs.schema import load

    is_run = what.is_dir()
    if is_run and overrides:
        raise InputError("--set goes with an experiment file; a run is audited as it was made")
    use_compilation_cache()
    with counter(err) as progress:
        found = attack(what if is_run else load(find(what), overrides), runs, schemes, progress=progress)
    if as_json:
        print(files.to_json(found.to_dict()))
    else:
        audits.show(found, out)
    folder = out_dir or (what / "audit" if is_run else Path("runs") / f"audit-{what.stem}")
    for path in audits.write_audit(found, folder):
        err.print(f"wrote {path}", markup=False, highlight=False, soft_wrap=True)
    found.check()


@app.command()
def reproduce(
    preset: Annotated[str | None, typer.Argument(help="A preset's name: see `otafl list`.")] = None,
    overrides: Override = [],  # noqa: B006
    everything: Annotated[bool, typer.Option("--all", help="Every preset, one after the other; resumable.")] = False,
    out_dir: Annotated[Path | None, typer.Option("--out", help="Result folder; default runs/<preset>.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A smoke version: few rounds, few seeds.")] = False,
    json_log: Annotated[bool, typer.Option("--json-log", help="Progress as JSON lines on stdout.")] = False,
) -> None:
    """Reproduce a published table or figure: ours beside the paper's, with plots and a results file."""
    from otafl.reproductions import all_presets as every_preset
    from otafl.reproductions.preset_run import reproduce as reproduce_preset
    from otafl.runs.progress import reporter

    if everything == (preset is not None):
        raise InputError("give one preset's name, or --all (see `otafl list`)")
    _working(preset or "all presets", json_log)
    if preset is not None:
        folder = out_dir or Path("runs") / preset
        reproduce_preset(preset, folder, overrides, quick, reporter(err, json_log), out)
        return
    if overrides:
        raise InputError("--set goes with one preset, not with --all")
    folder = out_dir or Path("runs") / ("all-quick" if quick else "all")
    outcome = every_preset.reproduce_all(folder, quick, lambda: reporter(err, json_log), out)
    failed = [name for name, said in outcome.items() if said != every_preset.DONE]
    said = f"{len(outcome) - len(failed)} of {len(outcome)} presets done; {folder / 'index.html'}"
    out.print(said, markup=False, highlight=False, soft_wrap=True)
    if failed:
        raise RunError(f"not done: {', '.join(failed)}")


@app.command()
def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders, or folders of comparisons; several are overlaid and paired.")
    ],
    out_file: Annotated[Path | None, typer.Option("--out", help="Where to write; default RUN/report.html.")] = None,
) -> None:
    """Write the report page and print-quality plots of one run, or of several side by side."""
    from otafl.report import write_report
    from otafl.runs.folder.store import run_of

    for path in write_report([run_of(path) for path in runs], out_file):
        out.print(f"wrote {path}", markup=False, highlight=False, soft_wrap=True)


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Versions, devices and data sets found: what to look at first when something is odd."""
    from otafl.runs.doctor import examine

    found = examine()
    if as_json:
        print(json.dumps(found, indent=2))
        return
    for title, entries in found.items():
        table = Table(
            title=title, title_justify="left", title_style="bold", show_header=False, box=None, padding=(0, 2)
        )
        for name, value in entries.items():
            table.add_row(escape(name), escape(str(value)))
        out.print(table)
        out.print()


def main() -> None:
    """Entry point: every refusal is one line on stderr and its exit code; nothing a user does ends in a traceback."""
    with immediate_stop():
        sys.exit(_call())


def _say(text: str, code: int) -> int:
    err.print(f"otafl: {text}", style=None, markup=False, highlight=False, soft_wrap=True)
    return code


def _call() -> int:
    """Run the command; returns the exit code."""
    try:
        return int(app(standalone_mode=False) or 0)
    except OtaflError as refusal:
        return _say(str(refusal), refusal.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_CODE
    except BrokenPipeError:  # the reader of our output has left: `otafl list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as problem:
        return _say(f"{problem.filename or 'system'}: {problem.strerror or problem}", 1)
    except MemoryError:
        return _say("out of memory; lower seeds, clients, rounds or the model, or set engine.client_map = 1", 1)
    except Exception as problem:  # click's usage errors carry their own text and code
        if hasattr(problem, "format_message") and hasattr(problem, "exit_code"):
            return _say(problem.format_message(), problem.exit_code)
        raise


if __name__ == "__main__":
    main()
