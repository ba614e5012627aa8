"""What is known about each data set: names, sizes, ways of distribution, published SHA-256 hashes. Host.

A mirror is used only for files whose hash is published; the hashes are those of the original distributions.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from otafl.tasks import formats
from otafl.tasks.formats import Arrays, Read


class Release(NamedTuple):
    """One way in which a data set is distributed: original files, in one folder or inside one archive."""

    files: tuple[str, ...]  # what `read` needs
    read: Callable[[Read], Arrays]
    archive: str = ""  # holds `files`, if it is distributed as one
    folders: tuple[str, ...] = ()  # usual places of `files` below a data folder
    sha256: tuple[tuple[str, str], ...] = ()  # published, (file or archive, hash)
    mirrors: tuple[str, ...] = ()  # folders of the archive or the files; fetched only with published hashes


class Source(NamedTuple):
    """All that is known about one data set."""

    summary: str  # one line for `otafl list`
    classes: int
    full: tuple[int, int]  # training and test samples of the official data
    npz: tuple[tuple[str, str], ...]  # (file name, note), the complete one first
    releases: tuple[Release, ...]
    system: tuple[str, ...] = ()  # folders of operating-system packages
    advice: str = ""  # another way to get it
    sha256: str = ""  # of the complete arrays (`datasets.fingerprint`), where it is known


IDX_NAMES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
EMNIST_NAMES = (
    "emnist-byclass-train-images-idx3-ubyte.gz",
    "emnist-byclass-train-labels-idx1-ubyte.gz",
    "emnist-byclass-test-images-idx3-ubyte.gz",
    "emnist-byclass-test-labels-idx1-ubyte.gz",
)
CIFAR10_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))


def _idx(names: tuple[str, str, str, str], transposed: bool = False, **known: Any) -> Release:
    return Release(names, lambda read: formats.read_idx_set(read, names, transposed), **known)


def _unzipped(names: tuple[str, ...]) -> tuple[str, str, str, str]:
    first, second, third, fourth = (name.removesuffix(".gz") for name in names)
    return first, second, third, fourth


def _cifar(train: tuple[str, ...], test: str, label_bytes: int, **known: Any) -> Release:
    return Release((*train, test), lambda read: formats.read_cifar(read, train, test, label_bytes), **known)


MNIST_SHA256 = (
    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
)
MNIST_RAW_SHA256 = (
    "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
)
FASHION_SHA256 = (
    "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
)
TORONTO = ("https://www.cs.toronto.edu/~kriz",)

DATASETS: dict[str, Source] = {
    "digits": Source("8x8 digits of scikit-learn, always there", 10, (1437, 360), (), ()),
    "mnist": Source(
        "28x28 handwritten digits, 60,000 + 10,000", 10, (60000, 10000), (("mnist.npz", ""),),
        (
            _idx(IDX_NAMES, folders=("mnist", "MNIST/raw"), sha256=tuple(zip(IDX_NAMES, MNIST_SHA256)),
                 mirrors=("https://storage.googleapis.com/cvdf-datasets/mnist",
                          "https://ossci-datasets.s3.amazonaws.com/mnist")),
            _idx(_unzipped(IDX_NAMES), folders=("mnist", "MNIST/raw"),
                 sha256=tuple(zip(_unzipped(IDX_NAMES), MNIST_RAW_SHA256))),
        ),
        sha256="b2d8f5bf39174ee5ffeefa97e42d673c35432b411bb5d1f74fbbeddae7f1690a",
    ),
    "fashion-mnist": Source(
        "28x28 clothes, 60,000 + 10,000", 10, (60000, 10000), (("fashion-mnist.npz", ""), ("fashion_mnist.npz", "")),
        (
            _idx(IDX_NAMES, folders=("fashion-mnist", "FashionMNIST/raw"),
                 sha256=tuple(zip(IDX_NAMES, FASHION_SHA256)),
                 mirrors=("https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",)),
            _idx(_unzipped(IDX_NAMES), folders=("fashion-mnist", "FashionMNIST/raw")),
        ),
        system=("/usr/share/datasets/fashion-mnist",),
        advice="on Debian and Ubuntu: apt-get install dataset-fashion-mnist",
    ),
    "emnist-byclass": Source(
        "28x28 digits and letters, 62 classes, 697,932 + 116,323", 62, (697932, 116323),
        (
            ("emnist-byclass.npz", ""), ("emnist_byclass.npz", ""),
            ("emnist_byclass_30k.npz", "both parts come from the official test split: not comparable with "
                                       "published ByClass results"),
        ),
        (
            _idx(EMNIST_NAMES, transposed=True, archive="gzip.zip", folders=("emnist", "gzip", "EMNIST/raw"),
                 sha256=(("gzip.zip", "fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e"),),
                 mirrors=("https://biometrics.nist.gov/cs_links/EMNIST",)),
            _idx(_unzipped(EMNIST_NAMES), transposed=True, folders=("emnist", "gzip", "EMNIST/raw")),
        ),
    ),
    "cifar10": Source(
        "32x32 colour images, 10 classes, 50,000 + 10,000", 10, (50000, 10000),
        (("cifar10.npz", ""), ("cifar10_10k.npz", "class-balanced")),
        (
            _cifar(tuple(f"{name}.bin" for name in CIFAR10_BATCHES), "test_batch.bin", 1,
                   archive="cifar-10-binary.tar.gz", folders=("cifar-10-batches-bin",), mirrors=TORONTO,
                   sha256=(("cifar-10-binary.tar.gz",
                            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"),)),
            _cifar(CIFAR10_BATCHES, "test_batch", 1, archive="cifar-10-python.tar.gz",
                   folders=("cifar-10-batches-py",),
                   sha256=(("cifar-10-python.tar.gz",
                            "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"),)),
        ),
    ),
    "cifar100": Source(
        "32x32 colour images, 100 classes, 50,000 + 10,000", 100, (50000, 10000), (("cifar100.npz", ""),),
        (
            _cifar(("train.bin",), "test.bin", 2, archive="cifar-100-binary.tar.gz", folders=("cifar-100-binary",),
                   mirrors=TORONTO,
                   sha256=(("cifar-100-binary.tar.gz",
                            "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"),)),
            _cifar(("train",), "test", 2, archive="cifar-100-python.tar.gz", folders=("cifar-100-python",),
                   sha256=(("cifar-100-python.tar.gz",
                            "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7"),)),
        ),
    ),
    "arrays": Source("your own arrays, given in Python: otafl.task", 0, (0, 0), (), ()),
    "npz": Source("your own file of x_train, y_train, x_test, y_test (uint8); needs a path", 0, (0, 0), (), ()),
}  # fmt: skip
