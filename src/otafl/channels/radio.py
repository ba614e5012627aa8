"""The `[radio]` block of a deployment file: bandwidth, receiver noise, the part of it that is trusted, path loss."""

import dataclasses
import warnings
from typing import Any, NamedTuple

import numpy as np

from otafl.channels.pathloss import PathLoss
from otafl.channels.power import dbm_to_w, w_to_dbm
from otafl.channels.rows import Record, UnitWarning
from otafl.core.errors import InputError

LEVELS = ("noise_dbm_per_hz", "noise_dbm", "noise_w")
NOISE = ("noise_figure_db", *LEVELS)
TRUSTED = tuple(f"trusted_{name}" for name in LEVELS)
KEYS = ("bandwidth_hz", *NOISE, *TRUSTED, "path_loss")
WORDS = ("kind", "scenario", "state")  # of a path loss; the rest are numbers
THERMAL_DBM_PER_HZ = -174.0  # kT at 290 K
PER_HZ = ("noise_figure_db", "noise_dbm_per_hz", "trusted_noise_dbm_per_hz")


class TrustWarning(UserWarning):
    """Noise that may not be noise to an adversary is about to be counted as privacy."""


class Radio(NamedTuple):
    """The receiver: what the noise is and how fast symbols follow each other."""

    bandwidth_hz: float
    noise_w: float  # complex noise power in the bandwidth
    trusted_noise_w: float  # <= noise_w: what the ledger may count
    path_loss: PathLoss | None

    @property
    def symbol_time_s(self) -> float:
        return 1 / self.bandwidth_hz


def read_radio(record: Record) -> Radio:
    """Check the block and convert it to watts."""
    record.refuse_unknown(KEYS)
    bandwidth_hz = record.positive("bandwidth_hz")
    noise_key, trusted_key = record.choose(NOISE), record.choose(TRUSTED, required=False)
    assert noise_key is not None
    noise_w = _noise(record, noise_key, bandwidth_hz)
    if noise_w > 1e-3:
        warnings.warn(record.about(noise_key, "is above 1 mW; dBm or W?"), UnitWarning, stacklevel=2)
    trusted_w = noise_w if trusted_key is None else _noise(record, trusted_key, bandwidth_hz)
    if trusted_key is not None and trusted_w > noise_w * (1 + 1e-12):
        raise record.mistake(trusted_key, f"must not exceed the noise itself, {float(w_to_dbm(noise_w)):.2f} dBm")
    thermal_w = float(dbm_to_w(THERMAL_DBM_PER_HZ)) * bandwidth_hz
    if trusted_key is None and noise_w > 10 * thermal_w:
        warnings.warn(
            record.about(
                noise_key,
                f"is {10 * np.log10(noise_w / thermal_w):.0f} dB above thermal noise, and an adversary may know "
                "interference; say how much of it the ledger may count with trusted_noise_dbm",
            ),
            TrustWarning,
            stacklevel=2,
        )
    path_loss = _path_loss(record) if "path_loss" in record.values else None
    return Radio(bandwidth_hz, noise_w, min(trusted_w, noise_w), path_loss)


def _noise(record: Record, key: str, bandwidth_hz: float) -> float:
    if key.endswith("_w"):
        return record.positive(key, "; a value in dBm belongs in " + key.replace("_w", "_dbm"))
    level_dbm = record.decibels(key) + (THERMAL_DBM_PER_HZ if key == "noise_figure_db" else 0.0)
    noise_w = float(dbm_to_w(level_dbm)) * (bandwidth_hz if key in PER_HZ else 1.0)
    if not 0 < noise_w < np.inf:
        raise record.mistake(key, f"gives {noise_w} W in {bandwidth_hz} Hz, which is no radio")
    return noise_w


def _path_loss(record: Record) -> PathLoss:
    table: Any = record.values["path_loss"]
    if not isinstance(table, dict) or "kind" not in table:
        raise record.mistake("path_loss", 'must be a table with a kind, such as { kind = "biasvar" }')
    inner = Record(record.source, "[radio] path_loss", table)
    types = {field.name: field.type for field in dataclasses.fields(PathLoss)}
    inner.refuse_unknown(types)
    for key, value in table.items():
        if types[key] is bool and not isinstance(value, bool):
            raise inner.mistake(key, "must be true or false")
        if key in WORDS:
            inner.text(key)
        elif types[key] is not bool:
            inner.number(key)
    try:
        return PathLoss(**table)
    except InputError as error:
        raise InputError(f"{inner.source}: {inner.place}: {error}") from None
