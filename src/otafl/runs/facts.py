"""What planning needs of a task, without its data: how large the model is, how many records each client has."""

from typing import Any, NamedTuple, NoReturn

import numpy as np

from otafl.core import streams
from otafl.core.errors import InputError
from otafl.runs.schema import Experiment, options_of
from otafl.runs.sites import devices_of
from otafl.tasks import features, partitions
from otafl.tasks.models import MODELS, UNKNOWN_FOOTPRINT, Model

DECLARED_CLASSES = 10  # of a task of which only the size is known: what data-free certificates take ln of


class Facts(NamedTuple):
    """The same names as in `build.Task`."""

    model: Model  # of which nothing but `num_params` is asked
    sizes: list[np.ndarray]  # (K,) records of each client, per seed
    classes: int
    public_samples: int  # that rewards could come from


def facts_of(experiment: Experiment) -> Facts:
    """Of the task that `otafl run` would build, or of one that is declared by its size alone."""
    wanted = experiment.task
    if wanted.num_params is not None:
        samples = wanted.samples
        if samples is None and experiment.devices is not None:
            samples = devices_of(experiment).devices.samples.tolist()
        sizes = np.broadcast_to(np.asarray(samples or 1), (wanted.clients,)).copy()
        seeds = len(experiment.seed_list)
        return Facts(declared_model(wanted.num_params), [sizes] * seeds, DECLARED_CLASSES, public_samples=1)
    data = features.outline(wanted.data)
    dealt = deal(experiment, data.labels, data.name)
    model = model_of(experiment, data.shape, data.classes)
    return Facts(model, [np.asarray(part.sizes) for part in dealt], data.classes, data.reward_samples)


def deal(experiment: Experiment, labels: np.ndarray, name: str) -> list[partitions.Partition]:
    """Who holds which training samples, per seed."""
    wanted = experiment.task
    if wanted.clients > len(labels):
        raise InputError(f"task.clients={wanted.clients} is more than the {len(labels)} training samples of {name}")
    kind = partitions.PARTITIONS[wanted.partition.kind]
    options = options_of(wanted.partition, kind.options)
    return [
        kind.make(options, labels, wanted.clients, np.random.default_rng([seed, streams.Host.PARTITION]))
        for seed in experiment.seed_list
    ]


def model_of(experiment: Experiment, shape: tuple[int, ...], classes: int) -> Model:
    """The experiment's model for samples of this shape."""
    choice = MODELS[experiment.task.model.name]
    return choice.make(options_of(experiment.task.model, choice.options), shape, classes)


def declared_model(num_params: int) -> Model:
    """A model of which only the size is known: it can be planned for, not trained."""

    def absent(*_: Any) -> NoReturn:
        raise InputError(f"task.num_params={num_params} declares a size alone; give task.data and task.model to train")

    return Model("declared", absent, absent, absent, num_params, None, UNKNOWN_FOOTPRINT)
