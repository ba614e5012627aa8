"""What planning needs of a task, without its data: how large the model is, how many records each client has."""

from typing import Any, NamedTuple, NoReturn

import numpy as np

from otafl.core import streams
from otafl.core.errors import InputError
from otafl.core.plan import Trace
from otafl.runs.schema import Experiment, options_of
from otafl.runs.sites import check_count, devices_of
from otafl.tasks import features, own_data, partitions
from otafl.tasks.demand import Source
from otafl.tasks.models import MODELS, UNKNOWN_FOOTPRINT, Model
from otafl.tasks.own_model import metric_of

DECLARED_CLASSES = 10  # of a task of which only the size is known: what data-free certificates take ln of


Drawn = dict[int, tuple[tuple[Any, ...], Trace]]  # the last channel of each seed, and what it was drawn from


class Facts(NamedTuple):
    """The same names as in `build.Task`."""

    model: Model  # of which nothing but `num_params` is asked
    sizes: list[np.ndarray]  # (K,) records of each client, per seed
    classes: int
    public_samples: int  # that rewards could come from
    drawn: Drawn  # channels, by the seed's number
    metric: str = "accuracy"  # that results are told in


def facts_of(experiment: Experiment) -> Facts:
    """Of the task that `otafl run` would build, or of one that is declared by its size alone."""
    wanted = experiment.task
    if wanted.num_params is not None:
        samples = wanted.samples
        if samples is None and experiment.devices is not None:
            site = devices_of(experiment)
            check_count(experiment, site)
            samples = site.devices.samples.tolist()
        sizes = np.broadcast_to(np.asarray(samples or 1), (wanted.clients,)).copy()
        seeds = len(experiment.seed_list)
        return Facts(declared_model(wanted.num_params), [sizes] * seeds, DECLARED_CLASSES, public_samples=1, drawn={})
    data, owner = _outline(experiment)
    dealt = deal(experiment, data.labels, data.name, owner)
    model = model_of(experiment, data.shape, data.classes)
    sizes_of_seeds = [np.asarray(part.sizes) for part in dealt]
    return Facts(model, sizes_of_seeds, data.classes, data.reward_samples, {}, metric_of(model, data.classes))


def parts_of(experiment: Experiment) -> tuple[features.Task, np.ndarray | None]:
    """The data of an experiment, and who holds each training sample where the data say so."""
    data, own = experiment.task.data, experiment.own.task
    if data.name == "arrays" and own is not None:
        return own_data.prepare(own, data, whole_numbers=experiment.task.model.name == "own")
    return features.prepare(data), None


def source_of(experiment: Experiment) -> Source | None:
    """What brings the training samples on demand; None where they are arrays."""
    own = experiment.own.task
    return None if own is None or experiment.task.data.name != "arrays" else own.source


def _outline(experiment: Experiment) -> tuple[features.Outline, np.ndarray | None]:
    """What planning needs of the same data; features are not computed."""
    if experiment.task.data.name != "arrays":
        return features.outline(experiment.task.data), None
    parts, owner = parts_of(experiment)
    x, y = parts.train
    return features.Outline(y, x.shape[1:], parts.classes, len(parts.reward.y), parts.name), owner


def deal(
    experiment: Experiment, labels: np.ndarray, name: str, owner: np.ndarray | None = None
) -> list[partitions.Partition]:
    """Who holds which training samples, per seed: as the data say, or dealt out."""
    wanted, source = experiment.task, source_of(experiment)
    if source is not None:
        return [source.partition] * len(experiment.seed_list)
    if wanted.clients > len(labels) and wanted.partition.kind != "shared":
        raise InputError(
            f"task.clients={wanted.clients} is more than the {len(labels)} training samples of {name}; "
            "task.partition.kind='shared' lets clients share them"
        )
    if wanted.partition.kind == "owner" and owner is not None:
        return [partitions.by_owner(owner, wanted.clients)] * len(experiment.seed_list)
    kind = partitions.PARTITIONS[wanted.partition.kind]
    options = options_of(wanted.partition, kind.options)
    return [
        kind.make(options, labels, wanted.clients, np.random.default_rng([seed, streams.Host.PARTITION]))
        for seed in experiment.seed_list
    ]


def model_of(experiment: Experiment, shape: tuple[int, ...], classes: int) -> Model:
    """The experiment's model for samples of this shape."""
    name = experiment.task.model.name
    if name == "own" and experiment.own.model is not None:
        return experiment.own.model
    if not classes and name != "own":
        raise InputError(
            f"task.model {name!r} classifies but the targets are no labels; give otafl.run a model=otafl.model(init, "
            "apply, loss='mse')"
        )
    choice = MODELS[name]
    return choice.make(options_of(experiment.task.model, choice.options), shape, classes)


def declared_model(num_params: int) -> Model:
    """A model of which only the size is known: it can be planned for, not trained."""

    def absent(*_: Any) -> NoReturn:
        raise InputError(f"task.num_params={num_params} declares a size alone; give task.data and task.model to train")

    return Model("declared", absent, absent, absent, num_params, None, UNKNOWN_FOOTPRINT)
