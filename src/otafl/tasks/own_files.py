"""Columns of a table or arrays of a file, by name: CSV, Parquet, NPZ, pandas, and what turns into pandas. Host."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.archives import arrays_of, check_room
from otafl.core.errors import DataMissing, InputError, first_line
from otafl.tasks.formats import not_npz


class Columns(NamedTuple):
    """What was found, not yet checked."""

    x: Any
    y: Any
    owner: Any  # None: nobody is named
    named: dict[str, np.ndarray] | None  # all arrays of an NPZ file
    features: tuple[str, ...] | None = None  # the columns that x is made of


def columns_of(name: str, x: Any, y: Any, owner: Any, skip: str | None = None) -> Columns:
    """Features, targets and owners from arrays, or from a table or file in which the latter two have names."""
    if isinstance(x, str | Path):
        path = validate.path(name, x)
        if not path.is_file():
            raise DataMissing(f"{path}: no such file")
        if path.suffix.lower() == ".npz":
            return _of_npz(path, y, owner)
        name, x = str(path), _table(path)
    x, y, owner = map(_in_pandas, (x, y, owner))
    for what, other in (("y", y), ("owner", owner)):
        _refuse_other_order(name, x, what, other)
    if not hasattr(x, "columns"):
        if isinstance(y, str) or isinstance(owner, str):
            raise InputError(f"{name} is an array, so y and owner must be arrays too, not names of columns")
        return Columns(x, _values(y), _values(owner), None)
    taken = {column for column in (y, owner, skip) if isinstance(column, str)}
    targets, owners = _column(name, x, y), _column(name, x, owner)
    kept = _numeric(name, x, taken)
    for what, one in (("y", y), ("owner", owner)):
        key = getattr(one, "name", None)
        if key is not None and key in kept.columns and one.equals(kept[key]):
            raise InputError(f"{name}: column {key!r} is {what} itself and would be a feature; write {what}={key!r}")
    return Columns(_as_array(kept), targets, owners, None, tuple(map(str, kept.columns)))


def _in_pandas(value: Any) -> Any:
    """A frame or column of polars, Arrow and their like as pandas has it; anything else as it is."""
    value = value.collect() if hasattr(value, "collect") and hasattr(value, "collect_schema") else value  # a lazy frame
    return value.to_pandas() if hasattr(value, "to_pandas") else value


def _refuse_other_order(name: str, x: Any, what: str, other: Any) -> None:
    """Rows are paired as they stand; where both are pandas', their index says whether they belong together."""
    if not all(hasattr(one, "index") and hasattr(one, "iloc") for one in (x, other)):
        return
    mine, theirs = x.index, other.index
    if len(mine) == len(theirs) and not mine.equals(theirs) and mine.is_unique and theirs.isin(mine).all():
        raise InputError(f"{name} and {what} have the same rows in another order, by their index; align them first")


def _table(path: Path) -> Any:
    import pandas as pd
    import pyarrow.parquet as pq

    readers = {".csv": pd.read_csv, ".parquet": pd.read_parquet}
    if path.suffix.lower() not in readers:
        raise InputError(f"{path}: must end in .csv, .parquet or .npz")
    try:
        if path.suffix.lower() == ".parquet":
            stated = pq.read_metadata(path)
            check_room(8 * stated.num_rows * stated.num_columns)
        table = readers[path.suffix.lower()](path)
        if path.suffix.lower() == ".csv":
            _refuse_twice(path, pd.read_csv(path, header=None, nrows=1, dtype=str).iloc[0].dropna())
    except InputError:
        raise
    except Exception as problem:  # pandas and Arrow have an exception of their own for every damage
        raise InputError(f"{path}: cannot be read as a table ({first_line(problem)})") from None
    if mark := validate.other_separator(list(map(str, table.columns))):
        raise InputError(f"{path}: its cells are separated by {mark!r}; write commas, or give it as a pandas frame")
    return table


def _refuse_twice(name: Any, columns: Any) -> None:
    """pandas calls the second column `y` of a file `y.1`, and targets would be features."""
    if len(twice := columns[columns.duplicated()]):
        raise InputError(f"{name}: there are several columns {next(iter(twice))!r}; give each its own name")


def _of_npz(path: Path, y: Any, owner: Any) -> Columns:
    try:
        named = arrays_of(path)
    except Exception as problem:  # zipfile, zlib and NumPy have an exception of their own for every damage
        raise not_npz(path, problem) from None

    def array(key: Any, what: str) -> Any:
        if not isinstance(key, str):
            return key
        if key not in named:
            raise InputError(f"{path}: has no array {key!r} for {what}; it has {validate.listed(named)}")
        return named[key]

    features = next((key for key in ("x", "x_train") if key in named), "x")
    return Columns(array(features, "x"), array(y, "y"), array(owner, "owner"), named)


def _column(name: str, frame: Any, key: Any) -> Any:
    if not isinstance(key, str):
        return _values(key)
    if key not in frame.columns:
        raise InputError(f"{name}: there is no column {key!r}; the columns are {validate.listed(frame.columns)}")
    if frame[key].isna().any():
        raise InputError(f"{name}: column {key!r} has no value in row {int(np.argmax(frame[key].isna()))}")
    return _values(frame[key])


def _values(column: Any) -> Any:
    """A pandas column as NumPy has it: words as words, nullable numbers as numbers."""
    if column is None:
        return None
    if not hasattr(column, "to_numpy"):
        return column
    if np.any(missing := np.asarray(column.isna())):
        row = int(np.argmax(missing))
        raise InputError(f"column {getattr(column, 'name', None)!r} has no value in row {row}")
    values = column.to_numpy()
    return values if values.dtype.kind in "buifO" else np.asarray([str(value) for value in values])


def _numeric(name: str, frame: Any, taken: set[str]) -> Any:
    """All columns but those with another part; one that is no number is named."""
    from pandas.api.types import is_complex_dtype, is_numeric_dtype

    _refuse_twice(name, frame.columns)
    kept = frame[[column for column in frame.columns if column not in taken]]
    if not len(kept.columns):
        raise InputError(f"{name}: no column is left for the features")
    if not len(kept):
        raise InputError(f"{name}: has columns but no rows")
    for column in kept.columns:
        if str(column).startswith("Unnamed: "):  # what pandas calls a column without a name
            raise InputError(f"{name}: column {column!r} has no name (a written index?); drop or name it")
        if not is_numeric_dtype(kept[column]) or is_complex_dtype(kept[column]):
            found = f"{kept[column].dtype}, not numbers ({validate.shown(str(kept[column].iloc[0]))})"
            raise InputError(f"{name}: column {column!r} is {found}; encode or drop it")
        if kept[column].isna().any():
            raise InputError(f"{name}: column {column!r} has no value in row {int(np.argmax(kept[column].isna()))}")
    return kept


def _as_array(kept: Any) -> np.ndarray:
    from pandas.api.types import is_bool_dtype, is_integer_dtype

    whole = all(is_integer_dtype(kept[c]) and not is_bool_dtype(kept[c]) for c in kept.columns)
    return np.asarray(kept.to_numpy(dtype=np.int64 if whole else np.float64))
