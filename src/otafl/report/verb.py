"""`otafl report` as a function: `otafl.report(run)`."""

from pathlib import Path

from otafl.core.errors import InputError
from otafl.report import write_report
from otafl.report.run import Run
from otafl.runs.folder.store import run_of


def report(*runs: Run | str | Path, out: str | Path | None = None) -> Path:
    """Write the page of one run, or of several side by side, with print-quality plots beside it.

    Parameters
    ----------
    *runs : Run or path
        results, run folders, or folders of comparisons
    out : path, optional
        an HTML file or a folder; default report.html in the first run's folder

    Returns
    -------
    Path
        the page, which stands on its own

    Examples
    --------
    >>> import otafl
    >>> run = otafl.run(task="digits", model="logistic", schemes=["fedavg"], rounds=2, seeds=1)
    >>> otafl.report(run).name
    'report.html'
    """
    if not runs:
        raise InputError("give a run, or the folder of one")
    folders = [one.folder if isinstance(one, Run) else run_of(Path(one)) for one in runs]
    return write_report(folders, None if out is None else Path(out))[0]
