"""The command line: `otafl run | sweep | compare | list | plan | ...`. Thin; all work is elsewhere."""

import gc
import io
import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperArgument
from typer.models import CommandFunctionType

from otafl import __version__
from otafl.commands.before_training import advise, plan
from otafl.commands.checks import audit, reproduce
from otafl.commands.console import JsonLog, On, Override, Wide, err, out, working
from otafl.commands.listing import doctor, list_
from otafl.core.errors import InputError, OtaflError, first_line
from otafl.runs.interrupts import EXIT_CODE, immediate_stop, immediate_stop_to_the_end

TyperArgument.display_type_rich = lambda self, ctx: None  # type: ignore[method-assign]  # FILE says more than <path>

app = typer.Typer(
    name="otafl",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its tables call a flag a <bool>
    help="Over-the-air federated learning with privacy: plan, run, account, certify, compare.\n\n"
    "Exit codes: 0 done, 1 stopped by itself (a full disk, a model that is not finite), 2 bad input, "
    "3 certified infeasible, 4 budget would be exceeded, 5 a privacy promise was broken and the run stopped, "
    "130 interrupted.",
)


def verb(short: str, example: str, name: str | None = None) -> Callable[[CommandFunctionType], CommandFunctionType]:
    """A command: a line for the help of all, an example for its own."""
    return app.command(name, short_help=short, epilog=f"Example: otafl {example}")


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


@verb("All schemes of an experiment, paired seeds.", "run demo-cell --set seeds=2")
def run(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Experiment file (TOML), or the name of a preset.")
    ] = None,
    overrides: Override = [],  # noqa: B006
    out_dir: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="Run folder; default runs/<name>.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", metavar="FOLDER", help="Continue an interrupted run.")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Print the resolved config and stop.")] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of experiment files and stop.")
    ] = False,
    json_log: JsonLog = False,
    wide: Wide = False,
) -> None:
    """Run an experiment: all its schemes, paired seeds, one ledger. Writes a run folder with a report."""
    if not (schema or show):
        working(resume or file, json_log)
    from otafl.core.files import naming
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
            raise InputError("give an experiment FILE, a preset's name, or --resume FOLDER (see otafl run --help)")
        experiment = load(find(file), overrides)
        if show:
            print(resolved(experiment), end="")
            return
        folder = out_dir or runner.default_folder(Path(file).stem)
        if experiment.remark and not json_log:
            err.say(f"{file}: {experiment.remark}")
        with naming(file):
            folder = runner.start(experiment, folder, reporter(err, json_log))
    from otafl.reports import write_report

    write_report([folder])
    if not json_log:
        _show_run(folder, wide)


def _show_run(folder: Path, wide: bool) -> None:
    from otafl.reports.tables import comparison

    table, footer = comparison(folder)
    table.show(out, wide)
    out.print(footer, markup=False, highlight=False)
    out.say(f"Report: {folder / 'report.html'}")


@verb("One experiment, many values of some keys.", "sweep job.toml -m privacy.eps=2,8,32")
def sweep(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Experiment file (TOML), or the name of a preset.")],
    over: Annotated[
        list[str],
        typer.Option(
            "-m", "--over", metavar="KEY=VALUES", help="A key and its values: -m privacy.eps=2,8,32; may be repeated."
        ),
    ],
    overrides: Override = [],  # noqa: B006
    out_dir: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="Its folder; default runs/sweep-<name>.")
    ] = None,
    executor: On = "local",
    json_log: JsonLog = False,
    wide: Wide = False,
) -> None:
    """Run an experiment for every combination of some keys' values, on many cores or machines; resumable."""
    working(file, json_log)
    from otafl.connect.executors import elsewhere
    from otafl.core.files import naming
    from otafl.reports.sweep import Sweep, run_and_write, show
    from otafl.runs.presets import find
    from otafl.runs.remote import check
    from otafl.runs.schema import load
    from otafl.runs.sweep import axis

    path = find(file)
    axes = dict(map(axis, over))
    if len(axes) < len(over):
        raise InputError("-m names a key twice; give all its values at once")
    folder = out_dir or Path("runs") / f"sweep-{path.stem}"
    with elsewhere(executor or "local", json_log) as where, naming(file):
        assert where is not None
        outcomes = run_and_write(folder, axes, lambda values: load(path, [*overrides, *values]), where)
    if not json_log:
        show(Sweep(folder), out, wide)
        out.say(f"Index: {folder / 'index.html'}")
    check(outcomes)


@verb("A ranking that says when it is a tie.", "compare job.toml --trials 0")
def compare(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="Experiment file (TOML) or preset with several schemes and a privacy target."
        ),
    ],
    overrides: Override = [],  # noqa: B006
    trials: Annotated[
        int | None,
        typer.Option(
            "--trials",
            metavar="N",
            min=0,
            help="0: settings from plans alone; N: so many trials per scheme on a validation split.",
        ),
    ] = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="Result folder; default runs/compare-<name>.")
    ] = None,
    executor: On = None,
    wide: Wide = False,
    json_log: JsonLog = False,
) -> None:
    """Compare schemes at one privacy target: paired seeds, a ranking that says when it is a tie."""
    working(file, json_log)
    from otafl.connect.executors import elsewhere
    from otafl.core.files import naming
    from otafl.reports.compared import run_and_write
    from otafl.reports.comparison import show
    from otafl.runs.comparing.compare import question_of
    from otafl.runs.presets import find
    from otafl.runs.progress import reporter

    path = find(file)
    folder = out_dir or Path("runs") / f"compare-{path.stem}"
    question = question_of(path, overrides, trials)
    with elsewhere(executor, json_log) as where, naming(file):
        parts = run_and_write(question, folder, reporter(err, json_log), where)
    if not json_log:
        show(parts, out, wide)


verb("Which scheme for a site, and what would help.", "advise site.csv --num-params 9610 --eps 8")(advise)


verb("Everything that can be named; filter by word.", "list schemes", "list")(list_)


verb("Every scheme charged, without training.", "plan job.toml, or otafl plan cares --example > cares.toml")(plan)


verb("Attack the round: charged ε beside measured.", "audit runs/job --runs 200")(audit)


verb("A published table or figure, ours beside it.", "reproduce cares-fig2 --quick")(reproduce)


@verb("The page and the plots of finished runs.", "report runs/a runs/b --out side-by-side.html")
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUNS", help="Run folders, or folders of comparisons; several are overlaid and paired."),
    ],
    out_file: Annotated[
        Path | None, typer.Option("--out", metavar="PATH", help="A page or its folder; default RUN/report.html.")
    ] = None,
) -> None:
    """Write the report page and print-quality plots of one run, or of several side by side."""
    from otafl.reports import write_report

    for path in write_report(runs, out_file):
        out.say(f"wrote {path}")


verb("Versions, devices and data sets found.", "doctor --json")(doctor)


def main() -> None:
    """Entry point: every refusal is one line on stderr and its exit code; nothing a user does ends in a traceback."""
    with immediate_stop():
        sys.exit(_call())


def process() -> None:
    """`main` as a whole process: `otafl`, `python -m otafl`."""
    gc.set_threshold(300_000)  # imports leave objects that stay: looking through them takes a tenth of a short command
    immediate_stop_to_the_end()
    os.environ.pop("MPLBACKEND", None)  # of windows, which nothing opens; importing matplotlib fails on one it has not
    _open_what_was_closed()
    warnings.formatwarning = lambda message, *where: f"warning: {message}\n"  # not where in our source
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a locale without an epsilon must not turn exit code 5 into another
            stream.reconfigure(errors="replace")
    main()


def _open_what_was_closed() -> None:
    """Closed standard streams lead nowhere: their numbers would go to the next files, and what we say into those."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)  # the least that is free
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode))


def _say(text: str, code: int) -> int:
    err.say(f"otafl: {' '.join(text.splitlines())}")  # a file's name may have lines
    return code


def _without_a_device(problem: Exception) -> str:
    """Why JAX finds nothing to compute on, which ends in some problem for every kind of device; empty if it does."""
    try:
        import jax

        jax.devices()
        return ""
    except Exception:
        if device := os.environ.get("JAX_PLATFORMS"):
            return f"JAX cannot compute here; unset JAX_PLATFORMS={device!r} or name a device that is there"
        told = ", ".join(sorted(name for name in os.environ if name.startswith("JAX_")))
        return f"JAX cannot compute here ({first_line(problem)}); unset what the environment tells it: {told}"


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
            asked = getattr(problem, "ctx", None)
            more = f" (see {asked.command_path} --help)" if asked else ""
            if "extra argument" in problem.format_message() and "--set" in sys.argv:
                more = f"; --set takes one KEY=VALUE and may be repeated{more}"
            return _say(f"{problem.format_message()}{more}", problem.exit_code)
        if why := _without_a_device(problem):
            return _say(why, 1)
        raise


if __name__ == "__main__":
    process()
