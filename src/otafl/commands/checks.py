"""`otafl audit` and `otafl reproduce`: what is claimed, held against what is found."""

import math
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from otafl.commands.console import AsJson, JsonLog, On, Override, Screen, Wide, err, out, working
from otafl.core.errors import InputError, RunError


def audit(
    what: Annotated[
        Path, typer.Argument(metavar="WHAT", help="Experiment file (TOML), a preset's name, or a run folder.")
    ],
    overrides: Override = [],  # noqa: B006
    runs: Annotated[int, typer.Option("--runs", metavar="N", help="Runs of each world of each pattern.")] = 1000,
    schemes: Annotated[
        list[str], typer.Option("--scheme", metavar="LABEL", help="Audit this scheme alone (its label).")
    ] = [],  # noqa: B006
    executor: On = None,
    as_json: AsJson = False,
    out_dir: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Folder for the page; default RUN/audit, runs/audit-<name>."),
    ] = None,
    wide: Wide = False,
) -> None:
    """Attack the compiled round with canaries: charged ε beside measured ε, exit 5 where a charge is refuted."""
    working(what, as_json)
    from otafl.connect.executors import elsewhere
    from otafl.core import files
    from otafl.reports import audits
    from otafl.runs.audit.audit import audit as attack
    from otafl.runs.compilation import use_compilation_cache
    from otafl.runs.folder.disk import ready
    from otafl.runs.presets import find
    from otafl.runs.progress import counter
    from otafl.runs.schema import load

    is_run = what.is_dir()
    folder = out_dir or (what / "audit" if is_run else Path("runs") / f"audit-{what.stem}")
    ready(folder, *audits.FILES)
    if is_run and overrides:
        raise InputError("--set goes with an experiment file; a run is audited as it was made")
    use_compilation_cache()
    made = what if is_run else load(find(what), overrides)
    with elsewhere(executor) as where, files.naming(what), nullcontext(None) if where else counter(err) as progress:
        found = attack(made, runs, schemes, progress=progress, elsewhere=where)
    if as_json:
        print(files.to_json(found.to_dict()))
    else:
        audits.show(found, out, wide)
    try:
        for path in audits.write_audit(found, folder):
            err.say(f"wrote {path}")
    finally:
        found.check()  # a page that cannot be written does not hide what was found


def reproduce(
    preset: Annotated[
        str | None, typer.Argument(metavar="PRESET", help="A preset's name: see `otafl list presets`.")
    ] = None,
    overrides: Override = [],  # noqa: B006
    everything: Annotated[bool, typer.Option("--all", help="Every preset, one after the other; resumable.")] = False,
    out_dir: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="Result folder; default runs/<preset>.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A smoke version: few rounds, few seeds.")] = False,
    at_most: Annotated[
        float | None,
        typer.Option(
            "--at-most", metavar="MINUTES", help="With --all: leave out presets that take longer on two cores."
        ),
    ] = None,
    executor: On = None,
    json_log: JsonLog = False,
) -> None:
    """Reproduce a published table or figure: ours beside the paper's, with plots and a results file."""
    from otafl.connect.executors import elsewhere
    from otafl.reproductions import all_presets as every_preset
    from otafl.reproductions.preset_run import reproduce as reproduce_preset
    from otafl.runs.executors import DONE
    from otafl.runs.progress import reporter

    if everything == (preset is not None):
        raise InputError("give one preset's name, or --all (see `otafl list presets`)")
    if at_most is not None and not at_most > 0:
        raise InputError(f"--at-most {at_most:g} must be > 0 minutes")
    if at_most is not None and (quick or not everything):
        raise InputError("--at-most goes with --all at full size")
    working(preset or "all presets", json_log)
    shown = Screen(quiet=True) if json_log else out  # of JSON lines the tables are no part
    if preset is not None:
        if executor is not None:
            raise InputError("--executor goes with --all: one preset runs in this process")
        folder = out_dir or Path("runs") / Path(preset).stem
        reproduce_preset(preset, folder, overrides, quick, reporter(err, json_log), shown)
        return
    if overrides:
        raise InputError("--set goes with one preset, not with --all")
    folder = out_dir or Path("runs") / ("all-quick" if quick else "all")
    longest = math.inf if at_most is None else at_most
    with elsewhere(executor, json_log) as where:
        outcome = every_preset.reproduce_all(folder, quick, lambda: reporter(err, json_log), shown, where, longest)
    failed = [name for name, said in outcome.items() if said != DONE]
    shown.say(f"{len(outcome) - len(failed)} of {len(outcome)} presets done; {folder / 'index.html'}")
    if failed:
        raise RunError(f"not done: {', '.join(failed)}")
