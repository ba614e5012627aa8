"""What a federation leaves behind, beside what `otafl.Air` keeps in the same folder to go on from.

    flower.json   what the strategy was asked for: a folder goes on with the same, or is refused
    progress.npz  the global model and the record of all rounds so far, in one file that is replaced at once
    model.npz     that model alone, which may be published: the record tells of single messages
    rounds.json   that record to read: who was asked, silent, missing or at fault; SNR, energy
    ledger.bin    what was released: `otafl.privacy.Ledger.load` recounts it
    card.md, card.json, report.md, report.html

The eps and mu of rounds and papers are counted from the ledger.
"""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord

from otafl.core.archives import arrays_of
from otafl.core.errors import InputError
from otafl.core.files import to_json, write_atomic
from otafl.core.markdown import inert, table
from otafl.core.validate import shown
from otafl.privacy.card_text import round_up

PROGRESS = "progress.npz"
Row = dict[str, Any]


class RunFolder:
    """Model and rounds so far, and the papers at the end."""

    def __init__(self, path: str | Path, like: ArrayRecord):
        self.path = Path(path)
        self.rows: list[Row] = []
        self.model = like
        if (self.path / PROGRESS).exists():
            self.model, self.rows = unpacked(self.path / PROGRESS, like)

    def keep_asked(self, asked: Row) -> None:
        """Write down what a new run was started with."""
        write_atomic(self.path / "flower.json", to_json(asked))

    def check_asked(self, asked: Row) -> None:
        """Refuse to go on with other settings than the run was started with."""
        place, now = self.path / "flower.json", json.loads(to_json(asked))
        try:
            before = dict(json.loads(place.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, RecursionError):
            raise InputError(f"{self.path}: holds a loop that no Flower app began; use another folder") from None
        for name in sorted({*before, *now}):
            if before.get(name) != now.get(name):
                raise InputError(
                    f"{self.path}: holds a run with {name}={shown(before.get(name))}, not {shown(now.get(name))}; "
                    "give the same settings to go on, or another folder"
                )

    def keep(self, row: Row, model: ArrayRecord) -> None:
        """The model after a round, with its record."""
        self.rows.append(row)
        self.model = model
        write_atomic(self.path / PROGRESS, packed(model, rounds=np.array(to_json(self.rows))))

    def evaluated(self, rounds: int, found: Row) -> None:
        """What the model after so many rounds reached on public data; kept with the next round, or at the end."""
        if 0 < rounds <= len(self.rows):
            self.rows[rounds - 1]["evaluated"] = found

    def write_papers(self, air: Any) -> None:
        """Model, rounds, ledger, card and report of what was charged so far."""
        from otafl.reports.federation import PRIVATE, federation_page, recounted

        card, rows = air.card, recounted(air, self.rows)
        write_atomic(self.path / "model.npz", packed(self.model))
        write_atomic(self.path / "rounds.json", to_json(rows))
        write_atomic(self.path / "ledger.bin", air.ledger_bytes())
        write_atomic(self.path / "card.json", card.to_json())
        write_atomic(self.path / "card.md", card.to_markdown())
        write_atomic(self.path / "report.md", report(air.summary, rows, PRIVATE, card.to_markdown()))
        asked = (self.path / "flower.json").read_text(encoding="utf-8")
        page = federation_page(air, rows, "Federation over the air", self.path.name, asked)
        write_atomic(self.path / "report.html", page)


def packed(model: ArrayRecord, **beside: np.ndarray) -> bytes:
    leaves = {f"leaf{n}": array.numpy() for n, array in enumerate(model.values())}
    content = io.BytesIO()
    np.savez(content, names=np.array(list(model)), **leaves, **beside)  # type: ignore[arg-type]
    return content.getvalue()


def unpacked(place: Path, like: ArrayRecord) -> tuple[ArrayRecord, list[Row]]:
    """Model and rounds of a file; InputError if it is damaged, or a model of another form than `like`."""
    try:
        found = arrays_of(place)
        names, rows = found["names"].tolist(), json.loads(str(found["rounds"]))
        model = ArrayRecord({name: Array(found[f"leaf{n}"]) for n, name in enumerate(names)})
        if not isinstance(rows, list) or not all(isinstance(row, dict) and "eps" in row for row in rows):
            raise ValueError("its rounds are none")
    except Exception as problem:  # zipfile, zlib, NumPy and Flower fail each in their own way
        raise InputError(f"{place}: cannot be read ({type(problem).__name__}); the run cannot go on") from None
    if form(model) != form(like):
        raise InputError(f"{place}: is another model than the app's; use another folder")
    return model, rows


def form(model: ArrayRecord) -> list[Any]:
    return [(name, array.dtype, tuple(array.shape)) for name, array in model.items()]


def report(summary: Row, rows: list[Row], private: str, card: str) -> str:
    """One page: what happened, round by round, and the card."""
    head = ["round", "asked", "silent", "faults", "ε so far", "μ so far", "SNR, dB", "energy, J"]
    cells = [
        [number, f"{len(row.get('asked', []))} of {summary['clients']}", devices(row.get("silent", [])), faults(row),
         *("" if row.get(name) is None else round_up(row[name]) for name in ("eps", "mu")),
         *(cell(row.get(name)) for name in ("snr-db", "energy-j"))]
        for number, row in enumerate(rows, 1)
    ]  # fmt: skip
    lines = ["# Federation over the air", "", *[f"- {name}: {value}" for name, value in summary.items()], ""]
    return inert("\n".join([*lines, *table(head, cells), "", private, "", card]))


def devices(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"


def faults(row: Row) -> str:
    return "; ".join(row.get("faults", [])) or "none"


def cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        value = sum(value)
    return value if isinstance(value, str) else f"{value:.4g}"
