"""Reading one record of a deployment file: every mistake is one line with file, place, key, value and rule."""

import difflib
import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from otafl.core.errors import InputError
from otafl.core.validate import MAX_DB

MAX_COUNT = 10**15
MAX_TEXT = 200


class UnitWarning(UserWarning):
    """A value is allowed but looks like another unit (dB for linear, amplitude for power)."""


class IgnoredWarning(UserWarning):
    """A file says something that is not used."""


class Record(NamedTuple):
    """One row of a CSV file or one table of a TOML file; empty cells are absent."""

    source: str
    place: str
    values: Mapping[str, Any]
    cells: bool = False  # values are the text of CSV cells

    def about(self, key: str, text: str) -> str:
        """Point at one value."""
        value = self.values.get(key)
        shown = str(value) if self.cells and str(value).isprintable() else repr(value)
        return f"{self.source}: {self.place}, {key}={shown if len(shown) <= 80 else shown[:77] + '...'}: {text}"

    def mistake(self, key: str, rule: str) -> InputError:
        """The refusal of one value."""
        return InputError(self.about(key, rule))

    def refuse_unknown(self, known: Collection[str]) -> None:
        for key in self.values:
            if key not in known:
                raise InputError(f"{self.source}: {self.place}, {unknown(key, known)}")

    def choose(self, alternatives: tuple[str, ...], required: bool = True) -> str | None:
        """The one key of `alternatives` that is given."""
        given = [key for key in alternatives if key in self.values]
        if len(given) > 1:
            raise InputError(f"{self.source}: {self.place}, {' and '.join(given)}: only one of them may be given")
        if not given and required:
            raise InputError(f"{self.source}: {self.place}, {' or '.join(alternatives)}: missing, one is required")
        return given[0] if given else None

    def number(self, key: str, endless: str = "") -> float:
        """A finite number: a TOML number, or a CSV cell that holds one. `endless`: what to do about another."""
        value = self.values.get(key)
        if value is None:
            raise InputError(f"{self.source}: {self.place}, {key}: missing, it is required")
        accepted = str if self.cells else (int, float)
        if isinstance(value, bool) or not isinstance(value, accepted) or "_" in str(value):
            raise self.mistake(key, "must be a number")
        try:
            number = float(value)
        except (ValueError, OverflowError):
            raise self.mistake(key, "must be a number") from None
        if not math.isfinite(number):
            raise self.mistake(key, "must be finite" + endless)
        return number

    def positive(self, key: str, hint: str = "") -> float:
        number = self.number(key)
        if number <= 0:
            raise self.mistake(key, "must be > 0" + hint)
        return number

    def decibels(self, key: str, endless: str = "") -> float:
        number = self.number(key, endless)
        if abs(number) > MAX_DB:
            raise self.mistake(key, f"must lie in [-{MAX_DB:.0f}, {MAX_DB:.0f}] dB")
        return number

    def count(self, key: str) -> int:
        number = self.number(key)
        if not 1 <= number <= MAX_COUNT or number != int(number):
            raise self.mistake(key, "must be a whole number >= 1")
        return int(number)

    def text(self, key: str) -> str:
        value = self.values[key]
        if not isinstance(value, str) or not value.strip() or not value.isprintable() or len(value) > MAX_TEXT:
            raise self.mistake(key, f"must be printable text of at most {MAX_TEXT} characters")
        return value.strip()


def unknown(key: str, known: Collection[str], what: str = "key") -> str:
    """`unknown key 'powr_w'; did you mean 'power_w'?`, and for another unit, not a new name for the old number.

    >>> unknown("power_mw", ("power_dbm", "power_w", "samples"))
    "unknown key 'power_mw'; convert it to power_dbm or power_w"
    """
    stem = key.rpartition("_")[0]
    if stem and (units := [name for name in known if name.rpartition("_")[0] == stem]):
        return f"unknown {what} {key!r}; convert it to {' or '.join(units)}"
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
    return f"unknown {what} {key!r}; {hint}"
