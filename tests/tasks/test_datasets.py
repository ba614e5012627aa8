"""Where data sets are found, and what the real ones look like."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from otafl.core.errors import DataMissing, InputError
from otafl.tasks import datasets, formats
from otafl.tasks.sources import DATASETS, MNIST_RAW_SHA256

FOLDER = Path(os.environ.get("OTAFL_DATA", "nowhere"))


def needs(filename):
    """Skipped where the file is not at hand, unless the data are required: then the loader's refusal fails the test."""
    absent = not (FOLDER / filename).is_file() and not os.environ.get("OTAFL_DATA_REQUIRED")
    return pytest.mark.skipif(absent, reason=f"{filename} is not in the folder that OTAFL_DATA names")


def test_digits_have_a_fixed_split():
    digits = datasets.load("digits")
    assert digits.x_train.shape == (1437, 8, 8)
    assert digits.x_test.shape == (360, 8, 8)
    assert digits.sha256 == "1b44e9ae91a644c24dc9dcc7640ddf7c6762cd7094a08152ea0214367e760ef5"
    assert digits.x_train.max() == digits.peak == 16


@needs("mnist.npz")
def test_mnist_is_the_published_one():
    mnist = datasets.load("mnist")
    assert mnist.note == ""
    assert mnist.sha256 == DATASETS["mnist"].sha256
    for array, published in zip(mnist[:4], MNIST_RAW_SHA256):
        assert hashlib.sha256(formats.idx_bytes(array)).hexdigest() == published
    assert np.bincount(mnist.y_test).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


@needs("mnist.npz")
def test_complete_mnist_with_one_changed_pixel_is_refused(tmp_path):
    x_train, y_train, x_test, y_test = formats.read_npz(FOLDER / "mnist.npz")
    x_test[17, 14, 14] ^= 1
    np.savez(tmp_path / "mnist.npz", x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    with pytest.raises(InputError, match="differ from the published mnist"):
        datasets.load("mnist", tmp_path)


@needs("cifar10_10k.npz")
def test_cifar10_subset_says_so():
    cifar = datasets.load("cifar10")
    assert cifar.x_train.shape == (8000, 32, 32, 3)
    assert cifar.note == "subset: 8000 + 2000 of 50000 + 10000 images; class-balanced"
    assert np.bincount(cifar.y_train).tolist() == [800] * 10


@needs("emnist_byclass_30k.npz")
def test_emnist_subset_says_so():
    emnist = datasets.load("emnist-byclass")
    assert emnist.x_train.shape == (25000, 28, 28)
    assert emnist.classes == 62 == len(np.unique(emnist.y_test))
    assert "official test split" in emnist.note


@needs("mnist.npz")
def test_two_digits_of_eezofl():
    pair = datasets.select_labels(datasets.load("mnist"), (0, 1))
    assert np.bincount(pair.y_train).tolist() == [5923, 6742]
    assert len(pair.y_test) == 2115
    assert pair.classes == 2
    assert pair.note == "labels 0, 1 only"


def test_select_labels_renumbers_in_the_order_given():
    digits = datasets.load("digits")
    pair = datasets.select_labels(digits, (7, 2))
    np.testing.assert_array_equal(pair.x_train[pair.y_train == 0], digits.x_train[digits.y_train == 7])
    np.testing.assert_array_equal(pair.x_test[pair.y_test == 1], digits.x_test[digits.y_test == 2])


@pytest.mark.parametrize("labels", [(3,), (3, 3), (3, 10)])
def test_bad_labels(labels):
    with pytest.raises(InputError):
        datasets.select_labels(datasets.load("digits"), labels)


def write(folder, classes=10):
    folder.mkdir(parents=True, exist_ok=True)
    x, y = np.zeros((4, 28, 28), np.uint8), np.arange(4, dtype=np.uint8)
    np.savez(folder / "mnist.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    return str(folder / "mnist.npz")


def test_search_order(tmp_path, monkeypatch):
    monkeypatch.setenv("OTAFL_OFFLINE", "1")
    monkeypatch.setenv("OTAFL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OTAFL_DATA", str(tmp_path / "data"))
    cached = write(tmp_path / "cache" / "mnist")
    assert datasets.load("mnist").source == cached
    given = write(tmp_path / "data")
    assert datasets.load("mnist").source == given
    explicit = write(tmp_path / "explicit")
    assert datasets.load("mnist", tmp_path / "explicit").source == explicit
    assert datasets.load("mnist", explicit).source == explicit


@pytest.mark.parametrize("name", sorted(set(DATASETS) - {"digits", "npz", "arrays"}))
def test_a_missing_set_says_what_to_do(tmp_path, monkeypatch, name):
    monkeypatch.setenv("OTAFL_OFFLINE", "1")
    monkeypatch.setenv("OTAFL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OTAFL_DATA", str(tmp_path / "data"))
    monkeypatch.setitem(DATASETS, name, DATASETS[name]._replace(system=()))
    with pytest.raises(DataMissing) as caught:
        datasets.load(name)
    text = str(caught.value)
    assert str(tmp_path / "data") in text and str(tmp_path / "cache") in text
    assert "OTAFL_DATA" in text and "http" in text and DATASETS[name].npz[0][0] in text


def test_an_explicit_path_is_the_only_place(tmp_path, monkeypatch):
    monkeypatch.setenv("OTAFL_DATA", str(tmp_path))
    write(tmp_path)
    with pytest.raises(DataMissing, match="elsewhere"):
        datasets.load("mnist", tmp_path / "elsewhere")


def test_digits_have_no_path(tmp_path):
    """`path` without `name`, which is digits then, must not train on something else than was pointed at."""
    with pytest.raises(InputError, match=r"data set 'digits' is scikit-learn's own and has no path \(mine.npz\)"):
        datasets.load("digits", "mine.npz")


@pytest.mark.parametrize("content", [b"\x89PNG", b"", b"PK\x03\x04"])
def test_what_is_no_archive_is_no_pickle_either(tmp_path, content):
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"x\.npz: damaged or not an NPZ file of plain arrays") as refusal:
        datasets.load("npz", tmp_path / "x.npz")
    assert "pickle" not in str(refusal.value)


def test_own_file(tmp_path):
    own = datasets.load("npz", write(tmp_path))
    assert own.classes == 4
    with pytest.raises(InputError, match="needs the path"):
        datasets.load("npz")
    with pytest.raises(DataMissing, match="no such file"):
        datasets.load("npz", tmp_path / "none.npz")


def test_every_mirror_serves_only_files_with_a_published_hash():
    for source in DATASETS.values():
        for release in source.releases:
            if release.mirrors:
                hashed = {name for name, _ in release.sha256}
                assert hashed == ({release.archive} if release.archive else set(release.files))
            assert all(len(sha256) == 64 and int(sha256, 16) for _, sha256 in release.sha256)
