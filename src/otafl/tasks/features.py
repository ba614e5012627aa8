"""From images to what is trained on: splits, pixel scaling, PCA features. NumPy, host; float64 inside, float32 out.

The test set is cut once into a *reward* part, declared public, which a policy may look at during a run and a basis
may be fitted on, and a *report* part, which only results are computed from. Whatever is fitted on the private
training data lies outside every guarantee; `Task.notes` says so, and the privacy card prints it.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from otafl.core import validate
from otafl.core.arrays import Floats
from otafl.core.errors import InputError
from otafl.tasks import datasets
from otafl.tasks.datasets import Dataset

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]


@dataclass(frozen=True)
class PcaOptions:
    components: int = 64
    whiten: bool = False  # every component to variance 1, instead of one common scale
    fit_on: Literal["train", "reward"] = "train"  # "reward": the public part of the test set


@dataclass(frozen=True)
class DataOptions:
    name: str = "digits"
    path: str | None = None
    labels: tuple[int, ...] | None = None  # keep only these classes, renumbered
    pixels: Literal["unit", "symmetric", "standard"] = "unit"  # [0, 1]; [-1, 1]; mean 0 and std 1 over training pixels
    pca: PcaOptions | None = None
    train_size: int | None = None  # a random choice of so many training samples
    reward_fraction: Annotated[float, Field(ge=0, le=1)] = 0.2  # of the test set
    validation_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.0  # of the training set, taken away from it
    split_seed: Annotated[int, Field(ge=0)] = 0  # the same for all seeds of an experiment


class Part(NamedTuple):
    """n samples: features float32, labels int32."""

    x: F32  # (n, ...)
    y: I32  # (n,)


class Task(NamedTuple):
    """Ready to train. A part may be empty (validation is, by default)."""

    train: Part  # private
    validation: Part  # private
    reward: Part  # declared public
    report: Part
    classes: int
    name: str
    sha256: str  # of the data set
    notes: tuple[str, ...]  # for the privacy card and the report


class Pca(NamedTuple):
    """x -> (x - mean) @ basis / scale."""

    mean: Floats  # (D,)
    basis: Floats  # (D, c), orthonormal columns, by falling variance
    scale: Floats  # (c,)


def fit_pca(x: NDArray[np.floating], components: int, whiten: bool = False) -> Pca:
    """Principal components of x (N, D); `scale` is one global standard deviation, or each component's own."""
    validate.whole("components", components)
    if components > min(len(x) - 1, x.shape[1]):
        raise InputError(f"components={components} must be at most {min(len(x) - 1, x.shape[1])} for {x.shape} samples")
    mean = x.mean(0, dtype=np.float64)
    covariance = sum((chunk - mean).T @ (chunk - mean) for chunk in _chunks(x)) / len(x)
    variances, vectors = np.linalg.eigh(covariance)
    variances, basis = variances[::-1][:components], vectors[:, ::-1][:, :components]
    largest = np.take_along_axis(basis, np.abs(basis).argmax(0)[None], 0)
    basis = basis * np.sign(largest)  # an eigenvector's sign is arbitrary and differs between machines
    if whiten and variances[-1] <= 1e-12 * variances[0]:
        raise InputError(f"components={components} cannot be whitened: the data have lower rank")
    scale = np.sqrt(variances if whiten else np.full(components, variances.mean()))
    return Pca(mean, basis, scale)


def apply_pca(pca: Pca, x: NDArray[np.floating]) -> F32:
    """(N, D) -> (N, c)."""
    scores = [((chunk - pca.mean) @ pca.basis / pca.scale).astype(np.float32) for chunk in _chunks(x)]
    return np.concatenate([np.zeros((0, len(pca.scale)), np.float32), *scores])


def _chunks(x: NDArray[np.floating], rows: int = 4096) -> list[NDArray[np.floating]]:
    """Views of a few rows each: float64 copies of a whole image set would take gigabytes."""
    return [x[start : start + rows] for start in range(0, len(x), rows)]


def scale_pixels(x: NDArray[np.uint8], peak: int, pixels: str, mean: float = 0.0, std: float = 1.0) -> F32:
    """Bytes to float32: x/peak, 2 x/peak - 1, or (x/peak - mean)/std."""
    unit = x.astype(np.float32) / np.float32(peak)
    if pixels == "unit":
        return unit
    if pixels == "symmetric":
        return 2 * unit - 1
    return (unit - np.float32(mean)) / np.float32(std)


def split(num_samples: int, fraction: float, rng: np.random.Generator) -> tuple[I32, I32]:
    """Random disjoint sample numbers, sorted: `fraction` of them (rounded), and the rest."""
    validate.in_closed("fraction", fraction, 0, 1)
    order = rng.permutation(num_samples).astype(np.int32)
    cut = round(num_samples * fraction)
    return np.sort(order[:cut]), np.sort(order[cut:])


class Outline(NamedTuple):
    """What can be said of a task without computing features."""

    labels: I32  # (N,) of the training samples
    shape: tuple[int, ...]  # of one sample
    classes: int
    reward_samples: int
    name: str


class Split(NamedTuple):
    """Sample numbers of the parts: of the training set, and of the test set."""

    train: I32
    validation: I32
    reward: I32
    report: I32


def _chosen(options: DataOptions, dataset: Dataset | None) -> tuple[Dataset, Split]:
    """Load (unless given), select and split."""
    data = dataset or datasets.load(options.name, options.path)
    if options.labels is not None:
        data = datasets.select_labels(data, options.labels)
    return data, split_of(options, len(data.y_train), len(data.y_test))


def split_of(options: DataOptions, train: int, test: int) -> Split:
    """So many training and test samples, each in its part."""
    streams = np.random.default_rng(options.split_seed).spawn(3)
    reward, report = split(test, options.reward_fraction, streams[0])
    validation, trained = split(train, options.validation_fraction, streams[1])
    if options.train_size is not None:
        validate.in_closed("train_size", options.train_size, 1, len(trained))
        trained = np.sort(streams[2].choice(trained, options.train_size, replace=False))
    return Split(trained, validation, reward, report)


def outline(options: DataOptions) -> Outline:
    """Labels and shapes as `prepare` has them, for planning."""
    data, parts = _chosen(options, None)
    shape = data.x_train.shape[1:] if options.pca is None else (options.pca.components,)
    return Outline(data.y_train[parts.train].astype(np.int32), shape, data.classes, len(parts.reward), data.name)


def prepare(options: DataOptions, dataset: Dataset | None = None) -> Task:
    """Load (unless given), select, split, scale and project."""
    data, (train, validation, reward, report) = _chosen(options, dataset)
    notes = [f"{data.name}: {data.note}"] if data.note else []
    mean, std = 0.0, 1.0
    if options.pixels == "standard":
        private = data.x_train[train] / data.peak
        mean, std = float(private.mean()), float(private.std())
        notes.append("pixel mean and standard deviation computed on private training data: outside the guarantee")
    chosen = ((data.x_train, data.y_train, train), (data.x_train, data.y_train, validation),
              (data.x_test, data.y_test, reward), (data.x_test, data.y_test, report))  # fmt: skip
    parts = [
        Part(scale_pixels(x[rows], data.peak, options.pixels, mean, std), y[rows].astype(np.int32))
        for x, y, rows in chosen
    ]
    if options.pca is not None:
        parts = _project(options.pca, parts, notes)
    return Task(parts[0], parts[1], parts[2], parts[3], data.classes, data.name, data.sha256, tuple(notes))


def _project(options: PcaOptions, parts: list[Part], notes: list[str]) -> list[Part]:
    flat = [part.x.reshape(len(part.x), math.prod(part.x.shape[1:])) for part in parts]
    pca = fit_pca(flat[2] if options.fit_on == "reward" else flat[0], options.components, options.whiten)
    if options.fit_on == "train":
        notes.append("PCA basis fitted on private training data: outside the guarantee")
    return [Part(apply_pca(pca, x), part.y) for x, part in zip(flat, parts)]
