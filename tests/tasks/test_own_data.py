"""Own arrays: what is taken as it stands, what becomes a label, who is a client, and what is refused in one line."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from otafl.core.errors import DataMissing, InputError
from otafl.tasks import own_data
from otafl.tasks.features import DataOptions
from otafl.tasks.own_data import task

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 4))
Y = np.arange(30) % 3


def test_arrays_are_taken_as_they_stand():
    made = task(X, Y, held_out=(X[:6], Y[:6]), owner=np.arange(30) % 5)
    assert made.x.dtype == np.float32 and made.y.dtype == np.int32 and made.classes == 3 and made.clients == 5
    np.testing.assert_array_equal(made.x, X.astype(np.float32))
    np.testing.assert_array_equal(made.owner, np.arange(30) % 5)
    assert task((X * 10).astype(int), Y, clients=2).x.dtype == np.int32  # tokens stay whole
    wide = task(X, X[:, :2], clients=2)
    assert wide.classes == 0 and wide.y.shape == (24, 2) and wide.y.dtype == np.float32
    assert task(X, Y > 0, clients=2).classes == 2


def test_a_share_is_held_out_once_and_owners_follow_their_samples():
    x = np.arange(40.0)[:, None]
    made = task(x, x[:, 0], held_out=0.25, owner=np.arange(40) // 10, split_seed=3)
    assert sorted([*made.x[:, 0], *made.x_held_out[:, 0]]) == list(range(40)) and len(made.x_held_out) == 10
    np.testing.assert_array_equal(made.owner, made.x[:, 0] // 10)
    lists = task(x.tolist(), x[:, 0].tolist(), held_out=0.25, owner=(np.arange(40) // 10).tolist(), split_seed=3)
    assert lists.sha256 == made.sha256
    np.testing.assert_array_equal(made.y, made.x[:, 0])


def test_words_and_other_numbers_become_labels_and_clients_in_sorted_order():
    words = np.array(["no", "yes", "maybe"])[Y]
    made = task(X, words, held_out=(X[:3], words[:3]), owner=np.array(["b", "a"])[Y % 2])
    assert made.labels == ("maybe", "no", "yes") and made.names == ("a", "b")
    np.testing.assert_array_equal(made.y, np.array([1, 2, 0])[Y])
    np.testing.assert_array_equal(made.owner, 1 - Y % 2)
    assert task(X, np.where(Y > 0, 1, -1), clients=2).labels == ("-1", "1")


@pytest.mark.parametrize("kind", ["frame", "csv", "parquet", "polars", "lazy", "arrow"])
def test_a_table_names_its_columns(kind, tmp_path):
    frame = pd.DataFrame(X, columns=list("abcd")).assign(label=np.array(["u", "v", "w"])[Y], site=Y * 10)
    other = pl.from_pandas(frame)
    source = {"frame": frame, "polars": other, "lazy": other.lazy(), "arrow": other.to_arrow()}.get(kind)
    if source is None:
        source = tmp_path / f"mine.{kind}"
        frame.to_csv(source, index=False) if kind == "csv" else frame.to_parquet(source)
    made = task(source, "label", owner="site", held_out=source)
    assert made.x.shape == (30, 4) and made.clients == 3 and made.labels == ("u", "v", "w")
    np.testing.assert_allclose(made.x, X, rtol=1e-6)
    np.testing.assert_array_equal(made.x_held_out, made.x)


@pytest.mark.parametrize("said", [b"{}", b"[]", b"1", b'{"index_columns": ["z"], "columns": [{"name": 1}]}'])
def test_a_table_that_says_nonsense_of_its_index_is_one_line(said, tmp_path):
    """pandas keeps its index in a note of the file, and fails on another one in many ways."""
    table = pa.Table.from_pandas(pd.DataFrame(X, columns=list("abcd")).assign(label=Y))
    pq.write_table(table.replace_schema_metadata({b"pandas": said}), tmp_path / "mine.parquet")
    with pytest.raises(InputError, match=r"^\S*mine\.parquet: cannot be read as a table \([^\n]+\)$"):
        task(tmp_path / "mine.parquet", "label", clients=2)


def test_columns_of_polars_are_columns():
    frame = pl.DataFrame(X)
    words = pl.Series(np.array(["u", "v", "w"])[Y])
    made = task(frame, words, owner=pl.Series(Y), held_out=(frame, words))
    assert made.labels == ("u", "v", "w") and made.clients == 3
    np.testing.assert_allclose(made.x, X, rtol=1e-6)


def test_an_index_that_was_written_along_is_no_feature(tmp_path):
    pd.DataFrame(X, columns=list("abcd")).assign(label=Y).to_csv(tmp_path / "mine.csv")
    with pytest.raises(InputError, match="column 'Unnamed: 0' has no name"):
        task(tmp_path / "mine.csv", "label", clients=2)
    assert task(tmp_path / "mine.csv", "label", owner="Unnamed: 0").clients > 2


def test_cells_separated_by_semicolons_are_told(tmp_path):
    pd.DataFrame(X, columns=list("abcd")).assign(label=Y).to_csv(tmp_path / "mine.csv", sep=";", index=False)
    with pytest.raises(InputError, match=r"mine\.csv: its cells are separated by ';'; write commas"):
        task(tmp_path / "mine.csv", "label", clients=2)


def test_an_npz_file_names_its_arrays(tmp_path):
    np.savez(tmp_path / "mine.npz", x=X, y=Y, who=Y, xt=X[:4], yt=Y[:4])
    made = task(tmp_path / "mine.npz", "y", owner="who", held_out=("xt", "yt"))
    assert made.x.shape == (30, 4) and made.x_held_out.shape == (4, 4) and made.clients == 3
    with pytest.raises(InputError, match="no array 'z'"):
        task(tmp_path / "mine.npz", "z", clients=2)
    with pytest.raises(InputError, match=r"there is no array \['yt'\]"):
        task(tmp_path / "mine.npz", "y", clients=2, held_out=("xt", ["yt"]))
    with pytest.raises(DataMissing):
        task(tmp_path / "none.npz", "y", clients=2)


TABLE = pd.DataFrame({"a": X[:, 0], "b": Y})


class Unwilling:
    def __array__(self, *args: object, **kwargs: object) -> None:
        raise RuntimeError("not\ntoday")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (lambda: task(X, Y[:9], clients=2), "30 samples but y has 9"),
        (lambda: task(np.where(X > 2, np.nan, X), Y, clients=2), "must be a finite float32"),
        (lambda: task(X.astype(str), Y, clients=2), "must be numbers"),
        (lambda: task(X, Y), "give owner"),
        (lambda: task(X, Y, owner=Y, clients=5), "owner names 3"),
        (lambda: task(X, Y, owner=Y, partition="iid"), "no partition"),
        (lambda: task(X, X[:, 0], clients=2, partition="dirichlet"), "needs labels"),
        (lambda: task(X, Y, clients=2, held_out=2.0), "share between 0 and 1"),
        (lambda: task(X, Y, clients=2, held_out=(X[:, :2], Y)), "held_out samples have shape"),
        (lambda: task(X, Y * 10**6, clients=2), "at most 10000 classes"),
        (lambda: task(X, np.array(list("ab"))[Y % 2], clients=2, held_out=(X[:1], ["c"])), "label 'c'"),
        (lambda: task(pd.DataFrame({"a": ["x"] * 30}), Y, clients=2), "column 'a'"),
        (lambda: task(pd.DataFrame(X).assign(q=[None, *X[1:, 0]]), Y, clients=2), "'q' has no value in row 0"),
        (lambda: task(X, "y", clients=2), "is an array"),
        (lambda: task(TABLE, TABLE.b, clients=2), "column 'b' is y itself and would be a feature; write y='b'"),
        (lambda: task(TABLE, Y, owner=TABLE.b), "column 'b' is owner itself"),
        (lambda: task(pd.DataFrame(X).assign(label="a"), "lable", clients=2), "there is no column 'lable'"),
        (lambda: task(np.ma.masked_array(X, X > 1), Y, clients=2), "x has masked values"),
        (lambda: task([*np.ma.masked_array(X, X > 1)], Y, clients=2), "x has masked values"),
        (lambda: task(X, [np.ma.masked, *Y[1:]], clients=2), "y has masked values"),
        (lambda: task(lambda _: iter([(np.ma.masked_array(X[0], X[0] > -9), 0)]), clients=1, held_out=(X, Y)),
         r"x\(0\) has masked values"),
        (lambda: task(X, list("ab" * 15), clients=2, held_out=(X[:1], ["c" * 999])), "label 'c{76}\\.\\.\\., which"),
        (lambda: task(Unwilling(), Y, clients=2), "x is no array: not"),
        (lambda: task(X, [10**5000 + int(y) for y in Y], clients=2), "y has values that cannot be written as text"),
        (lambda: task(X, Y, owner=[10**5000 + int(y) for y in Y]), "owner has values that cannot be written as text"),
        (lambda: task(TABLE.assign(b=10**5000), "b", clients=2), "y has values that cannot be written as text"),
        (lambda: task(X, Y, clients=2, held_out=10**5000), r"held_out=\(a number of \d+ bits\) must be a share"),
        (lambda: task([[1, 2], [3]], [0, 1], clients=2), "x is no array"),
        (lambda: task(X, {"a": Y}, clients=2), "y is a dict"),
        (lambda: task(X, np.stack([Y, Y], 1) + 2**40, clients=2), "y has whole numbers beyond 32 bits"),
        (lambda: task(X, np.array([None, "a", "b"])[Y], clients=2), "y has samples without a label"),
        (lambda: task(X, pd.Series([None, *Y[1:]]), clients=2), "has no value in row 0"),
        (lambda: task(X, Y, owner=np.where(Y == 1, np.nan, Y)), "owner names nobody for some samples"),
        (lambda: task(X, np.array([pd.NA, "a", "b"], object)[Y], clients=2), "y has samples without a label"),
        (lambda: task(X, Y, owner=np.array([pd.NA, "a", "b"], object)[Y]), "owner names nobody for some samples"),
        (lambda: task(X, Y, owner=np.array([b"a", b"b", b"\xff"])[Y]), "owner has bytes that are no ASCII text"),
        (lambda: task(X, np.array([b"a", b"b", b"\xff"])[Y], clients=2), "y has bytes that are no ASCII text"),
        (lambda: task(pd.DataFrame(X)[::-1], pd.Series(Y), clients=2), "x and y have the same rows in another order"),
        (lambda: task(pd.Series(X[:, 0]), Y, owner=pd.Series(Y)[::-1]), "x and owner have the same rows in another"),
        (lambda: task(X, Y, owner=3.0), "owner must be one id per sample"),
        (lambda: task(X[:, :0], Y, clients=2), "at least one feature"),
        (lambda: task(pd.DataFrame(X).assign(q=1j), Y, clients=2), "column 'q' is complex128"),
        (lambda: task(pd.DataFrame(X, columns=list("aabc")), Y, clients=2), "several columns 'a'"),
        (lambda: task(X, Y, clients=2, split_seed=X), "split_seed"),
        (lambda: task(X, Y, clients=2, weights=X), "weights"),
        (lambda: task(X, Y, clients=2, partition=X), "partition"),
        (lambda: task(X, Y, clients=2, reward_fraction="all"), "reward_fraction"),
        (lambda: task(X, clients=2), "give y: labels or targets"),
        (lambda: task(X, Y[:, None], clients=2), r"y of shape \(\d+, 1\) is a column of labels: give y\[:, 0\]"),
        (lambda: task(pd.DataFrame(X).assign(q="1,257"), Y, clients=2), r"column 'q' is \w+, not numbers \('1,257'\)"),
        (lambda: task(pd.DataFrame(X)[:0], Y[:0], clients=2), "x: has columns but no rows"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(arguments, said):
    with pytest.raises(InputError, match=said) as refusal:
        arguments()
    assert "\n" not in str(refusal.value)


def test_what_is_wrong_in_a_file_names_it(tmp_path: Path) -> None:
    mine = tmp_path / "mine.csv"
    for text, said in (("a,y\n1,\n", "column 'y' has no value in row 0"), ("a,y\n,1\n", "column 'a' has no value in"),
                       ("a,z\n1,1\n", "there is no column 'y'"), ("a,y\n", "has columns but no rows")):  # fmt: skip
        mine.write_text(text)
        with pytest.raises(InputError, match=rf"^{mine}: {said}"):
            task(mine, "y", clients=1)


@pytest.mark.parametrize("columns", [list("bacd"), list("abce")])
def test_held_out_columns_are_those_of_training_in_its_order(columns: list[str]) -> None:
    """They were paired by their places, whatever their names."""
    frame = pd.DataFrame(X, columns=list("abcd")).assign(label=Y)
    other = pd.DataFrame(X, columns=columns).assign(label=Y)
    with pytest.raises(InputError, match=r"held_out has the columns '.+', training has 'a', 'b', 'c', 'd'; give both"):
        task(frame, "label", held_out=other, clients=2)
    with pytest.raises(InputError, match="held_out has the columns"):
        task(frame[list("abcd")], Y, held_out=(other[columns], Y), clients=2)


def test_a_categorical_of_pandas_is_labels() -> None:
    words = np.array(["u", "v", "w"])[Y]
    assert task(X, pd.Categorical(words), owner=pd.Categorical(words)).labels == ("u", "v", "w")


def test_a_second_column_of_targets_in_a_file_is_no_feature(tmp_path: Path) -> None:
    """pandas calls it `y.1`, and it was trained on."""
    (tmp_path / "twice.csv").write_text("a,y,y\n1,0,0\n2,1,1\n")
    with pytest.raises(InputError, match=r"twice\.csv: there are several columns 'y'"):
        task(tmp_path / "twice.csv", "y", clients=2)


def test_what_becomes_of_an_array_that_was_given_changes_no_task():
    """It used to be trained on as somebody had changed it, under the hash of what it had been."""
    x, y = X.astype(np.float32), X[:, 0].astype(np.float32)
    made = task(x, y, clients=2, held_out=(x, y))
    x[:], y[:] = 9.0, 9.0
    for own, first in ((made.x, X), (made.y, X[:, 0]), (made.x_held_out, X), (made.y_held_out, X[:, 0])):
        assert np.array_equal(own, first.astype(np.float32))
        with pytest.raises(ValueError, match="read-only"):
            own[:] = 0


def test_the_hash_knows_every_array():
    base = {"x": X, "y": Y, "held_out": (X[:6], Y[:6]), "owner": Y}
    changes = ({"x": X + 1}, {"y": Y[::-1]}, {"held_out": (X[:5], Y[:5])}, {"owner": Y[::-1]})
    hashes = {task(**{**base, **change}).sha256 for change in changes} | {task(**base).sha256}
    assert len(hashes) == 5 and task(**base).sha256 in hashes


def test_parts_are_disjoint_and_image_options_are_refused():
    made = task(np.arange(100.0)[:, None], np.arange(100.0), held_out=0.4, owner=np.arange(100) % 4)
    parts, owner = own_data.prepare(made, DataOptions("arrays", validation_fraction=0.25, reward_fraction=0.5))
    seen = [set(part.x[:, 0]) for part in (parts.train, parts.validation, parts.reward, parts.report)]
    assert list(map(len, seen)) == [45, 15, 20, 20] and len(set.union(*seen)) == 100
    np.testing.assert_array_equal(owner, parts.train.x[:, 0] % 4)
    with pytest.raises(InputError, match="pixels"):
        own_data.prepare(made, DataOptions("arrays", pixels="symmetric"))


def test_what_a_file_holds_is_told_in_a_short_line(tmp_path):
    columns = ["a\nb", "x" * 10**5, *(f"c{number}" for number in range(10_000))]
    pd.DataFrame([range(len(columns))] * 4, columns=columns).to_csv(tmp_path / "wide.csv", index=False)
    with pytest.raises(InputError, match=r"no column 'label'; the columns are 'a\\nb', .*\(10002 in all\)") as refusal:
        task(tmp_path / "wide.csv", y="label", clients=2)
    assert len(str(refusal.value)) < 1000 and "\n" not in str(refusal.value)


def test_owners_whose_samples_are_all_held_out_are_named() -> None:
    """A share of all samples took the only sample of an owner, who was then no client, and nobody said so."""
    owner = np.repeat(["a", "b", "c", "d"], [27, 1, 1, 1])
    with pytest.warns(UserWarning, match=r"held_out=0\.5 takes all samples of \d of 4 owners, .*: .*; give a held_out"):
        made = [task(X, Y, owner=owner, held_out=0.5, split_seed=seed) for seed in range(8)]
    assert min(one.clients for one in made) < 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        task(X, Y, owner=owner, held_out=(X[:6], Y[:6]))
        task(X, Y, owner=np.arange(30) % 3, held_out=0.2)
