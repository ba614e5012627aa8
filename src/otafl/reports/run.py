"""A run as a value: its tables, cards, pictures and models, read from its folder."""

import shutil
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from otafl.core import validate
from otafl.core.archives import arrays_of
from otafl.core.errors import InputError
from otafl.reports import write_report
from otafl.reports.data import collect
from otafl.reports.plots import SIZE_INCHES, STYLE, Plot, lines_of
from otafl.reports.tables import footer, metric_of, named
from otafl.runs.build import build_task
from otafl.runs.comparing.statistics import mean_and_sd, numbers
from otafl.runs.folder.disk import storage
from otafl.runs.folder.recount import check_privacy
from otafl.runs.folder.results import figures
from otafl.runs.folder.sealed import reading
from otafl.runs.folder.store import RunFolder, SchemeFolder
from otafl.runs.folder.summaries import on_air, summaries
from otafl.runs.frames import as_html, as_text
from otafl.runs.planning.afford import without_rounds
from otafl.runs.schema import Own, load

if TYPE_CHECKING:
    import pandas as pd

TABLES = ("rounds", "evaluations", "devices", "device_quantiles")
LABELS = {"accuracy": "accuracy", "worst_client": "worst client", "eps": "ε of the worst client", "loss": "loss"}


class Card(str):
    """A privacy card as Markdown, shown as such in a notebook; `data` has its numbers."""

    data: dict[str, Any]

    _repr_markdown_ = str.__str__


class Run:
    """The results of a run.

    Parameters
    ----------
    folder : path
        a run folder, as `otafl run` and `run.save` write it
    own : Own, optional
        data and model that the run was given in Python, where its models are asked for

    Examples
    --------
    >>> import otafl
    >>> run = otafl.run(task="digits", model="logistic", schemes=["fedavg"], rounds=2, seeds=1)
    >>> run.labels, len(run.frame("rounds"))
    (['fedavg'], 2)
    """

    def __init__(self, folder: str | Path, own: Own | None = None):
        self.folder, self.own = validate.path("folder", folder), own or Own()
        self._store = RunFolder.open(self.folder)

    @property
    def labels(self) -> list[str]:
        """The schemes, in the order they were given."""
        return self._store.labels()

    @property
    def table(self) -> "pd.DataFrame":
        """One row per scheme: means over seeds; eps, mu and tpr_at_1pct of the worst seed."""
        import pandas as pd

        rows = {}
        for entry in summaries(self.folder):
            rows[entry["label"]] = _row(entry)
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("scheme")

    def frame(self, name: str = "evaluations") -> "pd.DataFrame":
        """All schemes' rows of one table: "rounds", "evaluations", "devices", or of large runs "device_quantiles"."""
        import pandas as pd

        validate.one_of("frame", name, TABLES)
        parts = []
        for label in self.labels:
            place = self._finished(label)
            if f"{name}.parquet" in place.hashes():
                parts.append(pd.DataFrame({"scheme": label, **place.read(name)}))
        if not parts:
            why = "engine.record_devices was off, or the run is so large that it has device_quantiles"
            raise InputError(f"{self.folder}: has no table {name!r} ({why})")
        return pd.concat(parts, ignore_index=True)

    def card(self, label: str) -> Card:
        """The privacy card of one scheme."""
        place = self._finished(label)
        card = Card(place.content("card.md").decode())
        card.data = place.json("card")
        return card

    def summary(self, label: str) -> dict[str, Any]:
        """Everything that was found about one scheme, seed by seed."""
        return self._finished(label).json("summary")

    def params(self, label: str, seed: int | None = None) -> Any:
        """The trained model of one seed (default: the first), as the model's `init` makes it."""
        import jax

        seeds = self._store.manifest["seeds"]
        validate.one_of("seed", seed := seeds[0] if seed is None else seed, seeds)
        place, model = self._finished(label), build_task(self._experiment()).model
        shapes, tree = jax.tree.flatten(jax.eval_shape(model.init, jax.random.key(0)))
        with reading(place.path / "model.npz", place.mend):
            stored = arrays_of(place.content("model.npz"))
            leaves = [stored[name][seeds.index(seed)] for name in sorted(stored)]
            if [(leaf.shape, leaf.dtype) for leaf in leaves] != [(shape.shape, shape.dtype) for shape in shapes]:
                raise ValueError("arrays of another model")
        return model.whole(jax.tree.unflatten(tree, leaves))

    def plot(self, column: str | None = None, over: str = "round") -> Any:
        """A figure of one column of the evaluations (default: the metric) over "round" or "eps", with every seed."""
        import matplotlib

        from otafl.reports.figure import Shown

        validate.one_of("over", over, ("round", "eps"))
        data = collect([self.folder])
        schemes = [one for one in data["schemes"] if one["finished"]]
        known = sorted({name for one in schemes for name in one["evaluations"]["columns"]})
        column = metric_of([one["summary"] for one in schemes]) if column is None else column
        validate.one_of("column", column, known)
        with matplotlib.rc_context(STYLE):
            figure = Shown(figsize=SIZE_INCHES)
            lines_of(Plot(column, column, LABELS.get(column, column), over == "eps"))(figure.add_subplot(), schemes)
        return figure

    def save(self, folder: str | Path) -> Path:
        """Copy the run folder and draw its page; `otafl.Run` opens it again. A folder that holds a run is refused."""
        target = RunFolder.free(validate.path("folder", folder))
        with storage(target):
            shutil.copytree(self.folder, target, dirs_exist_ok=True)
        write_report([target])
        return target

    def _finished(self, label: str) -> SchemeFolder:
        validate.one_of("scheme", label, self.labels)
        place = self._store.scheme(label)
        if not place.finished:
            raise InputError(f"{label}: is not finished; continue with otafl.run(resume={str(self.folder)!r})")
        check_privacy(place)
        return place

    def _experiment(self) -> Any:
        return load(self.folder / "config.toml").bring(self.own)

    def _told(self) -> list[str]:
        """What stands below the table."""
        found = summaries(self.folder)
        return [footer(found), *(named(entry) for entry in found if without_rounds(entry))]

    def __repr__(self) -> str:
        return "\n".join([as_text(self.table), *self._told(), str(self.folder)])

    def _repr_html_(self) -> str:
        told = "".join(f"<p>{escape(text)}</p>" for text in self._told())
        return f"{as_html(self.table)}{told}"


def _row(entry: dict[str, Any]) -> dict[str, float]:
    """What a table says of one scheme; what the initial model does is no result."""
    final, none = figures(entry.get("metric", "accuracy"))[0], without_rounds(entry)

    def mean(name: str) -> float:
        return mean_and_sd(numbers(entry[name]))[0]

    def worst(name: str) -> float:
        return float(np.max(numbers(entry.get(name) or [None])))

    learned, worst_client = (mean_and_sd(numbers([None] if none else entry[name])) for name in (final, "worst_client"))
    return {
        final.removeprefix("final_"): learned[0], "sd": learned[1],
        "worst_client": worst_client[0], "eps": worst("final_eps") if entry["private"] else np.inf,
        "mu": worst("mu"), "tpr_at_1pct": worst("tpr_at_1pct"), "rounds": mean("rounds"),
        "silent_weight": abs(round(mean("silent_weight"), 12)),  # what rounding leaves of zero is zero
        "energy_per_round": mean("energy_per_round") if on_air(entry) else float("nan"),
        "seconds": entry["seconds"],
    }  # fmt: skip
