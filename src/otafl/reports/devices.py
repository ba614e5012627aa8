"""Who was silent, and what it cost to transmit: a run's largest table, read in pieces and summed into a picture."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow.parquet as pq

from otafl.runs.folder.shapes import COLUMNS, check_table
from otafl.runs.folder.store import numbers

HEAT_ROWS, HEAT_COLUMNS = 80, 160  # of one heat map; more devices or rounds share a cell
HEAT_CELLS = 160_000  # of all heat maps of a page together
BARS = 240  # devices in a bar chart; more share a bar
PIECE = 1 << 20  # rows in memory at a time

Columns = dict[str, np.ndarray]


def read_devices(path: Path | BinaryIO, devices: int, rounds: int, schemes: int = 1) -> dict[str, Any] | None:
    """The device view of one of so many schemes, of so many devices and rounds; None where no round was run.

    `heat`: silent and total transmissions, over seeds, per group of devices and of rounds. `bars`: per group of devices
    the mean and the largest energy, and its largest share of the limit. A group is one item where all fit.
    """
    if isinstance(path, Path):
        with path.open("rb") as opened:  # a path would be taken for text
            return read_devices(opened, devices, rounds, schemes)
    file = pq.ParquetFile(path)
    if rounds == 0:
        return None
    finer = min(1.0, np.sqrt(HEAT_CELLS / (schemes * HEAT_ROWS * HEAT_COLUMNS)))
    rows, columns = groups(devices, int(finer * HEAT_ROWS) or 1), groups(rounds, int(finer * HEAT_COLUMNS) or 1)
    bars = groups(devices, BARS if schemes <= 20 else BARS // 4)
    silent, total = np.zeros((2, rows.max() + 1, columns.max() + 1), int)
    count, energy = np.zeros((2, bars.max() + 1))
    peak, share = np.zeros((2, bars.max() + 1))
    limit = np.full(bars.max() + 1, np.inf)
    for piece in pieces(file, list(COLUMNS["devices"])):
        if np.any(check_table("devices", piece)["client"] >= devices) or np.any(piece["round"] >= rounds):
            raise ValueError(f"rows beyond {devices} devices and {rounds} rounds")
        cell = (rows[piece["client"]], columns[piece["round"]])
        np.add.at(total, cell, 1)
        np.add.at(silent, cell, ~piece["sent"].astype(bool))
        bar = bars[piece["client"]]
        count += np.bincount(bar, minlength=len(count))
        energy += np.bincount(bar, piece["energy"], minlength=len(count))
        np.maximum.at(peak, bar, piece["energy"])
        np.maximum.at(share, bar, piece["energy"] / piece["energy_limit"])
        np.minimum.at(limit, bar, piece["energy_limit"])
    return {
        "count": devices,
        "rounds": rounds,
        "heat": {"row_start": starts(rows), "column_start": starts(columns), "silent": silent, "total": total},
        "bars": {
            "start": starts(bars),
            "mean": energy / np.maximum(count, 1),
            "max": peak,
            "limit": limit,
            "max_share": share,
        },
    }


def pieces(file: pq.ParquetFile, columns: list[str]) -> Iterator[Columns]:
    for batch in file.iter_batches(batch_size=PIECE, columns=columns):
        if batch.num_rows:
            yield {name: numbers(batch.column(name)) for name in columns}


def groups(count: int, most: int) -> np.ndarray:
    """The group of each of `count` items: neighbours share one where there are more than `most`.

    >>> groups(3, 5).tolist(), groups(5, 2).tolist()
    ([0, 1, 2], [0, 0, 0, 1, 1])
    """
    return np.arange(count) // max(1, -(-count // most))


def starts(group: np.ndarray) -> np.ndarray:
    """First item of each group.

    >>> starts(groups(5, 2)).tolist()
    [0, 3]
    """
    return np.flatnonzero(np.diff(group, prepend=-1))
