"""The report of one run, or of several side by side: a page that stands on its own, and plots in print quality.

data, page       from run folders to a dict, from there to the page; sections: its words and tables; plots: for print
tables           of a run on a terminal; devices: who was silent, and what it cost
run, sweep       results as values; figure: a picture that a notebook shows
comparison       a comparison in words and tables; compared: written; compare_page: its page
plans, advice, audits   of the other verbs; advice_text: on a terminal; federation: of a loop of somebody's own
frontier, phases   two pictures over many jobs; phases_trained: the second one trained
plain_page       the frame of pages without charts of their own
"""

from pathlib import Path

from otafl.core.errors import InputError
from otafl.core.files import write_atomic


def write_report(runs: list[Path], out_file: Path | None = None, plots: bool = True) -> list[Path]:
    """Write the page and, unless told otherwise, the plots; returns the files written.

    `runs` are folders of runs or of comparisons. The page goes to `out_file` (a file, or a folder that gets a
    report.html), else into the folder of the first run, or of the comparison that has several; the plots go beside it,
    into `plots` (for a page NAME.html other than report.html into `NAME-plots`).
    """
    from otafl.reports.data import collect  # only here: `otafl plan` prints by this package and reads no folder
    from otafl.reports.page import render
    from otafl.reports.plots import draw
    from otafl.runs.folder.disk import storage
    from otafl.runs.folder.sealed import reading
    from otafl.runs.folder.store import AGAIN, run_of, runs_of

    folders = [inside for run in runs for inside in runs_of(run)]
    with reading(folders[0] if folders else Path(), AGAIN):
        data = collect(folders)
        content = render(data)
    page = run_of(runs[0]) / "report.html" if out_file is None else Path(out_file)
    if page.is_dir() or page.suffix == "":
        page = page / "report.html"
    if page.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{page}: a report is an HTML page; give a name that ends in .html, or a folder")
    with storage(page):
        page.parent.mkdir(parents=True, exist_ok=True)
        beside = page.parent / ("plots" if page.stem == "report" else f"{page.stem}-plots")
        drawn = draw(data, beside) if plots else []
        write_atomic(page, content)  # last: whoever finds a page takes the plots for drawn
        return [page, *drawn]
