"""Files as distributed: written by hand from the formats' definitions, read back, damaged."""

import gzip
import hashlib
import io
import pickle
import struct
import tarfile
import zipfile

import numpy as np
import pytest

from otafl.core import archives
from otafl.core.errors import InputError
from otafl.tasks import datasets, fetch, formats
from otafl.tasks.sources import CIFAR10_BATCHES, DATASETS, EMNIST_NAMES, IDX_NAMES


def images(n, classes=10, shape=(28, 28), seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, *shape), np.uint8), rng.integers(0, classes, n, np.uint8)


def idx(array):
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def cifar_record(image, labels):
    return bytes(labels) + b"".join(image[:, :, channel].tobytes() for channel in range(3))


@pytest.fixture
def no_hashes(monkeypatch):
    """Small files in place of the published ones."""
    monkeypatch.setattr(datasets, "_check_published", lambda release, path: None)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("zipped", [True, False])
def test_idx_folder(tmp_path, no_hashes, name, zipped):
    arrays = (*images(5), *images(3, seed=1))
    for filename, array in zip(IDX_NAMES, arrays):
        content = gzip.compress(idx(array)) if zipped else idx(array)
        (tmp_path / (filename if zipped else filename.removesuffix(".gz"))).write_bytes(content)
    got = datasets.load(name, tmp_path)
    for a, b in zip(got[:4], arrays):
        np.testing.assert_array_equal(a, b)
    assert got.note == "subset: 5 + 3 of 60000 + 10000 images"


def test_emnist_zip_is_set_upright(tmp_path, no_hashes):
    arrays = (*images(4, 62), *images(2, 62, seed=1))
    with zipfile.ZipFile(tmp_path / "gzip.zip", "w") as archive:
        for filename, array in zip(EMNIST_NAMES, arrays):
            archive.writestr(f"gzip/{filename}", gzip.compress(idx(array)))
    got = datasets.load("emnist-byclass", tmp_path)
    np.testing.assert_array_equal(got.x_train[1], arrays[0][1].T)
    np.testing.assert_array_equal(got.y_test, arrays[3])


def write_cifar10(folder, kind):
    """Five training batches of two images and a test batch; returns all images and labels."""
    x, y = images(12, shape=(32, 32, 3))
    for number, name in enumerate((*CIFAR10_BATCHES, "test_batch")):
        rows = slice(2 * number, 2 * number + 2)
        if kind == "binary":
            content = b"".join(cifar_record(image, [label]) for image, label in zip(x[rows], y[rows]))
        else:
            planes = x[rows].transpose(0, 3, 1, 2).reshape(2, 3072)
            content = pickle.dumps({b"data": planes, b"labels": y[rows].tolist()}, protocol=2)
        (folder / (name + ".bin" * (kind == "binary"))).write_bytes(content)
    return x, y


@pytest.mark.parametrize("kind", ["binary", "python"])
@pytest.mark.parametrize("archived", [True, False])
def test_cifar10(tmp_path, no_hashes, kind, archived):
    folder = tmp_path / f"cifar-10-batches-{'bin' if kind == 'binary' else 'py'}"
    folder.mkdir()
    x, y = write_cifar10(folder, kind)
    if archived:
        with tarfile.open(tmp_path / f"cifar-10-{kind}.tar.gz", "w:gz") as archive:
            archive.add(folder, folder.name)
        for file in folder.iterdir():
            file.unlink()
    got = datasets.load("cifar10", tmp_path)
    np.testing.assert_array_equal(got.x_train, x[:10])
    np.testing.assert_array_equal(got.x_test, x[10:])
    np.testing.assert_array_equal(np.concatenate([got.y_train, got.y_test]), y)


def test_cifar100_takes_the_fine_label(tmp_path, no_hashes):
    x, y = images(4, 100, (32, 32, 3))
    for name, rows in (("train.bin", slice(0, 3)), ("test.bin", slice(3, 4))):
        records = [cifar_record(image, [7, label]) for image, label in zip(x[rows], y[rows])]
        (tmp_path / name).write_bytes(b"".join(records))
    got = datasets.load("cifar100", tmp_path)
    np.testing.assert_array_equal(got.y_train, y[:3])
    np.testing.assert_array_equal(got.x_test, x[3:])


def test_a_pickle_that_would_run_code_is_refused():
    class Attack:
        def __reduce__(self):
            return print, ("this must not be printed",)

    with pytest.raises(InputError, match="not a CIFAR batch"):
        formats._parse_cifar_pickle("data_batch_1", pickle.dumps(Attack()))


def test_idx_bytes_is_the_idx_format():
    x, _ = images(3)
    assert formats.idx_bytes(x) == idx(x)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an IDX file"),
        (b"hello, this is text", "not an IDX file"),
        (idx(images(2)[0])[:-1], "cut short"),
        (idx(images(2)[0]) + b"x", "cut short or damaged"),
        (idx(images(2)[0])[:9], "cut short"),
        (gzip.compress(idx(images(2)[0]), mtime=0)[:-20], "damaged gzip"),
        (gzip.compress(idx(images(2)[0]) + b"x", mtime=0), "cut short or damaged"),
        (b"\0\0\x08\xff" + bytes(4 * 255), "not an IDX file"),  # 255 axes, of which NumPy has 64
        (gzip.compress(struct.pack(">HBB3I", 0, 8, 3, 2**31, 2**31, 2**31), mtime=0), r"file \(unpacks to"),
    ],
)
def test_damaged_idx(content, message):
    with pytest.raises(InputError, match=message):
        formats.parse_idx("file", content)


def test_no_more_of_a_gzipped_file_is_unpacked_than_it_says(monkeypatch):
    read = []
    monkeypatch.setattr(gzip.GzipFile, "read", lambda self, size=-1: read.append(size) or b"\0\0\x08\x01"[:size])
    with pytest.raises(InputError):
        formats.parse_idx("file", gzip.compress(b""))
    assert len(read) == 3 and min(read) >= 0


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_archives_that_unpack_to_more_than_the_memory_are_refused(tmp_path, monkeypatch, kind):
    path = tmp_path / "archive"
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("inside", bytes(2**20))
    else:
        with tarfile.open(path, "w:gz") as tar:
            tar.addfile(entry := tarfile.TarInfo("inside"))
            entry.size = 2**20
            tar.addfile(entry, io.BytesIO(bytes(2**20)))
    monkeypatch.setattr(archives, "memory_bytes", lambda: 2**19)
    with pytest.raises(InputError, match=r"damaged archive \(unpacks to .* this machine has"):
        formats.archive_reader(path)("inside")


def test_a_damaged_archive_is_told_in_one_line(tmp_path):
    (tmp_path / "archive").write_bytes(b"\x1f\x8b" + bytes(100))
    with pytest.raises(InputError, match="damaged archive") as refusal:
        formats.archive_reader(tmp_path / "archive")
    assert "\n" not in str(refusal.value)


def npz(path, **changes):
    x, y = images(4)
    np.savez_compressed(path, **({"x_train": x, "y_train": y, "x_test": x, "y_test": y} | changes))
    return path


def test_a_flipped_byte_anywhere_in_an_npz_is_found_or_harmless(tmp_path):
    path = npz(tmp_path / "mnist.npz")
    good, content = formats.read_npz(path), path.read_bytes()
    found = 0
    positions = np.random.default_rng(0).integers(0, len(content), 200)
    for position in positions:
        damaged = bytearray(content)
        damaged[position] ^= 0xFF
        path.write_bytes(damaged)
        try:
            got = formats.read_npz(path)
        except InputError:
            found += 1
        else:
            assert all(np.array_equal(a, b) for a, b in zip(got, good))
    assert found > 150


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_train": np.zeros((4, 28, 28))}, "x_train is float64 but must be uint8"),
        ({"y_train": np.zeros(3, np.uint8)}, "disagree"),
        ({"x_test": np.zeros((4, 8, 8), np.uint8)}, "disagree"),
        ({"y_test": np.full(4, 10, np.uint8)}, "must hold labels 0..9"),
        ({"x_train": np.zeros((60001, 2), np.uint8), "y_train": np.zeros(60001, np.uint8),
          "x_test": np.zeros((4, 2), np.uint8)}, "more than mnist has"),
    ],
)  # fmt: skip
def test_wrong_arrays(tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        datasets.load("mnist", npz(tmp_path / "mnist.npz", **changes))


def test_missing_array(tmp_path):
    np.savez(tmp_path / "mnist.npz", x_train=images(2)[0])
    with pytest.raises(InputError, match="has no array 'y_train'"):
        datasets.load("mnist", tmp_path)


def test_an_altered_original_file_is_refused(tmp_path):
    for filename, array in zip(IDX_NAMES, (*images(5), *images(3))):
        (tmp_path / filename).write_bytes(gzip.compress(idx(array)))
    with pytest.raises(InputError, match="damaged or not the published file"):
        datasets.load("mnist", tmp_path)


class Answer(io.BytesIO):
    headers: dict[str, str] = {}  # noqa: RUF012


def serve(monkeypatch, contents):
    asked = []

    def urlopen(url, timeout):
        asked.append(url)
        if url not in contents:
            raise OSError("no route to host")
        return Answer(contents[url])

    monkeypatch.setattr(fetch.urllib.request, "urlopen", urlopen)
    return asked


def test_download_takes_the_first_mirror_with_the_right_hash(tmp_path, monkeypatch):
    asked = serve(monkeypatch, {"b/file": b"wrong", "c/file": b"right"})
    target = tmp_path / "new" / "file"
    fetch.download(["a/file", "b/file", "c/file", "d/file"], target, hashlib.sha256(b"right").hexdigest())
    assert target.read_bytes() == b"right"
    assert asked == ["a/file", "b/file", "c/file"]
    assert list(target.parent.iterdir()) == [target]  # nothing half-written is left


def test_failed_download_leaves_nothing_and_names_every_mirror(tmp_path, monkeypatch):
    serve(monkeypatch, {"b/file": b"wrong"})
    with pytest.raises(fetch.DataMissing, match="a/file: no route to host; b/file: SHA-256 is"):
        fetch.download(["a/file", "b/file"], tmp_path / "file", "0" * 64)
    assert list(tmp_path.iterdir()) == []


def test_load_fetches_into_the_cache_once(tmp_path, monkeypatch):
    arrays = (*images(5), *images(3, seed=1))
    contents = {name: gzip.compress(idx(array)) for name, array in zip(IDX_NAMES, arrays)}
    release = (
        DATASETS["mnist"]
        .releases[0]
        ._replace(mirrors=("here",), sha256=tuple((n, hashlib.sha256(c).hexdigest()) for n, c in contents.items()))
    )
    monkeypatch.setitem(DATASETS, "mnist", DATASETS["mnist"]._replace(releases=(release,)))
    asked = serve(monkeypatch, {f"here/{name}": content for name, content in contents.items()})
    monkeypatch.delenv("OTAFL_DATA", raising=False)
    monkeypatch.delenv("OTAFL_OFFLINE", raising=False)
    monkeypatch.setenv("OTAFL_CACHE", str(tmp_path))
    first, second = datasets.load("mnist"), datasets.load("mnist")
    np.testing.assert_array_equal(first.x_train, arrays[0])
    assert first.sha256 == second.sha256
    assert len(asked) == 4
