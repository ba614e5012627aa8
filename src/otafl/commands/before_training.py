"""`otafl plan` and `otafl advise`: what can be known before anything is trained."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from otafl.commands.console import AsJson, Override, Wide, err, out, working
from otafl.core.errors import Infeasible, InputError


def plan(
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help="An experiment file or a preset; or a system: see `otafl list plan`.")
    ],
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="Of a system: its planning file (TOML), an experiment file or a preset."),
    ] = None,
    as_json: AsJson = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of FILE and stop.")] = False,
    example: Annotated[bool, typer.Option("--example", help="Print a complete FILE that works and stop.")] = False,
    overrides: Override = [],  # noqa: B006
    agreement: Annotated[
        float | None,
        typer.Option(
            "--agreement",
            metavar="NUMBER",
            help="Of an experiment: how much devices agree, in (0, 1]; guessed without it.",
        ),
    ] = None,
    wide: Wide = False,
    out_dir: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="Write tables, plots and exports there.")
    ] = None,
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
    from otafl.reports import plans
    from otafl.runs.planning import table as planning
    from otafl.runs.presets import find
    from otafl.runs.schema import load

    experiment = load(find(file), overrides)
    with files.naming(file):
        found = planning.plan(experiment, agreement)
    if as_json:
        print(files.to_json(found.to_dict()))
    else:
        plans.show(found, out, wide)
    if out_dir is not None:
        out_dir.mkdir(parents=True, exist_ok=True)
        for name, text in (("plan.json", files.to_json(found.to_dict())), ("plan.md", plans.markdown(found))):
            files.write_atomic(out_dir / name, text)
            err.say(f"wrote {out_dir / name}")
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
        planner.show(planning.in_numbers(design), out)
    if out_dir is not None:
        out_dir.mkdir(parents=True, exist_ok=True)
        for path in planner.pictures(design, out_dir):
            err.say(f"wrote {path}")


def advise(
    site: Annotated[
        str,
        typer.Argument(metavar="SITE", help="CSV of devices, deployment file (TOML), or a number of equal devices."),
    ],
    eps: Annotated[float, typer.Option("--eps", metavar="NUMBER", help="Privacy target of the whole training.")],
    num_params: Annotated[
        int | None, typer.Option("--num-params", metavar="N", help="Size of the model; not with --task.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option("--rounds", metavar="N", help="Default: as few as let everybody be heard.")
    ] = None,
    task: Annotated[
        Path | None, typer.Option("--task", metavar="FILE", help="Experiment file with your own [task].")
    ] = None,
    delta: Annotated[float, typer.Option("--delta", metavar="NUMBER", help="Chance that ε does not hold.")] = 1e-5,
    weights: Annotated[str, typer.Option("--weights", metavar="WORD", help="samples or equal.")] = "samples",
    accountant: Annotated[
        str, typer.Option("--accountant", metavar="NAME", help="See otafl list accountants.")
    ] = "gaussian",
    agreement: Annotated[
        float | None,
        typer.Option("--agreement", metavar="NUMBER", help="Norm of the devices' mean update over the clip norm."),
    ] = None,
    samples: Annotated[
        int | None, typer.Option("--samples", metavar="N", help="Per device, where SITE is a number.")
    ] = None,
    radio: Annotated[
        list[str],
        typer.Option(
            "--radio", metavar="KEY=VALUE", help="What a CSV does not say, e.g. --radio noise_dbm_per_hz=-168"
        ),
    ] = [],  # noqa: B006
    simulate: Annotated[bool, typer.Option("--simulate", help="Train the best three, on your task or digits.")] = False,
    out_dir: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="Folder of advice.html; default runs/advice.")
    ] = None,
    as_json: AsJson = False,
    wide: Wide = False,
) -> None:
    """Which scheme to use on a site, with which settings, and whether it is worth it. Nothing is trained."""
    working(site, as_json)
    from otafl.core import files
    from otafl.reports.advice import write_advice
    from otafl.reports.advice_text import show
    from otafl.runs.advice.value import advise as give_advice
    from otafl.runs.schema import assign

    receiver: dict[str, Any] = {}
    for pair in radio:
        assign(receiver, pair, "--radio")
    advice = give_advice(
        site, num_params, eps, delta=delta, rounds=rounds, task=task, weights=weights, accountant=accountant,
        agreement=agreement, samples=samples, radio=receiver,
    )  # fmt: skip
    folder = out_dir or Path("runs") / "advice"
    written = write_advice(advice, folder)
    if not as_json:
        show(advice, out, wide, folder)
        names = ", ".join(path.name for path in written)
        out.say(f"Wrote {names} in {folder}")
    trained = _simulate(advice, folder, as_json) if simulate else []
    if as_json:
        print(files.to_json({**advice.to_dict(), "simulated": [entry._asdict() for entry in trained]}))
    if not advice.useful:
        raise typer.Exit(Infeasible.exit_code)  # the sentence has been said


def _simulate(advice: Any, folder: Path, quiet: bool) -> list[Any]:
    """Train the best three and show accuracy with its interval."""
    from otafl.reports import write_report
    from otafl.runs.advice.trained import simulate
    from otafl.runs.progress import Reporter, reporter

    run_folder, trained = simulate(advice, folder, Reporter() if quiet else reporter(err, False))
    write_report([run_folder])
    if not quiet:
        for entry in trained:
            said = f"{entry.scheme}: accuracy {entry.accuracy:.3f} ± {entry.half_width:.3f} (95 %, {entry.seeds} seeds)"
            out.say(said)
        out.say(f"Report: {run_folder / 'report.html'}")
    return trained
