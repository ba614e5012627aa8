"""From an experiment to the arrays and functions that a run needs, all decided before the first round."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from otafl import clients as client_kinds
from otafl import systems
from otafl.channels import draw, receive
from otafl.channels.channel import Rows
from otafl.channels.measured import play
from otafl.core import uplink
from otafl.core.errors import InputError
from otafl.core.messages import Clients, Data, Seed
from otafl.core.plan import Context, Deployment, Message, Policy, Trace, cut, read_only
from otafl.privacy import uplink_checks
from otafl.runs.evaluation import HeldOut, blocks
from otafl.runs.planning.facts import Drawn, Facts, deal, model_of, parts_of, source_of
from otafl.runs.schema import Experiment, Server, options_of
from otafl.runs.server import optimizer_of, server_of
from otafl.runs.sites import limited, played_by, rayleigh, site_of
from otafl.tasks import own_model, partitions
from otafl.tasks.ghost import evaluated_at_once
from otafl.tasks.models import Model

if TYPE_CHECKING:
    import optax


class Task(NamedTuple):
    """What all schemes share: the model and the data, dealt out once per seed."""

    model: Model
    data: Any  # Data, or what makes or reads samples on demand
    held_out: HeldOut  # results are reported on it
    public: HeldOut  # rewards come from it; never the same samples as held_out
    partitions: list[partitions.Partition]  # per seed
    label_mix: np.ndarray  # (S, K, C)
    classes: int  # 0: targets are no labels
    notes: list[str]  # what lies outside the privacy guarantee, for the card
    sources: dict[str, str]  # data set and hash
    drawn: Drawn  # channels, by the seed's number
    metric: str = "accuracy"  # that results are told in

    @property
    def sizes(self) -> list[np.ndarray]:
        """(K,) records of each client, per seed."""
        return [np.asarray(part.sizes) for part in self.partitions]

    @property
    def public_samples(self) -> int:
        """How many samples rewards come from."""
        return int(np.sum(np.asarray(self.public.group) >= 0))


def build_task(experiment: Experiment) -> Task:
    """Load, split, transform and deal out the data; the same for all schemes (paired seeds)."""
    wanted = experiment.task
    if wanted.num_params is not None:
        raise InputError(
            f"task.num_params={wanted.num_params} declares a size alone, for `otafl plan`; give task.data and "
            "task.model to train"
        )
    data, owner = parts_of(experiment)
    x, y = data.train
    dealt = deal(experiment, y, data.name, owner)
    model = model_of(experiment, x.shape[1:], data.classes)
    own = wanted.model.name == "own"
    metric = own_model.metric_of(model, data.classes)
    if own:
        model, metric = own_model.check(model, x, y, data.classes)
    if metric == "accuracy" and data.classes < 2:
        raise InputError("y has one class alone: there is nothing to tell apart")
    source = source_of(experiment)
    if source is None:
        groups = y if data.classes else np.zeros(len(y), np.int32)
        mix = np.stack([partitions.label_mix(part, groups, max(data.classes, 1)) for part in dealt])
    else:
        mix = np.broadcast_to(source.mix, (len(dealt), *source.mix.shape))
    sources = {"name": data.name, "sha256": data.sha256}
    if own:
        sources |= {"model": model.name, "model_sha256": own_model.fingerprint(model, x, y)}
    held_out = {"report": data.report, "validation": data.validation, "train": data.train}[wanted.report_on]
    if not len(held_out.y):
        raise InputError(
            f"task.report_on={wanted.report_on!r} has no samples (those on demand are not split); use 'report'"
        )
    at_once = min(10_000, evaluated_at_once(model.footprint))
    return Task(
        model=model,
        data=Data(*jax.device_put((np.array(x), np.array(y)))) if source is None else source.data(whole_numbers=own),
        held_out=blocks(*held_out, at_once, labelled=data.classes > 0),
        public=blocks(*data.reward, at_once, labelled=data.classes > 0),
        partitions=dealt,
        label_mix=mix,
        classes=data.classes,
        notes=[*data.notes, *_told_of_private_data(wanted, data.classes)],
        sources=sources,
        drawn={},
        metric=metric,
    )


def _told_of_private_data(task: Any, classes: int) -> list[str]:
    """What is told of the clients' data beside the sums, for the privacy card."""
    dealt = task.partition.kind
    of = {"train": "the clients' own training data", "validation": "samples set apart of the clients' own data"}
    said = {
        f"results were measured on {of.get(task.report_on)}: outside the guarantee": task.report_on in of,
        "the worst client's result weighs classes by the clients' own labels: outside the guarantee": classes > 0,
        "which labels occur counts as public": classes > 0 and task.data.name == "arrays",
        f"who holds which record was dealt out here (partition {dealt!r}), by the number of records and maybe by their "
        "labels: eps is for a record that changes in its place, with everybody else's where they are": dealt != "owner",
        "where the model starts, and what its functions hold besides parameters, counts as public": (
            task.model.name == "own"
        ),
    }
    return [text for text, holds in said.items() if holds]


def seeds_of(experiment: Experiment, task: Task) -> Seed:
    """Keys and partitions of all seeds, stacked; padded to the largest client of any seed."""
    keys = jax.vmap(jax.random.key)(np.asarray(experiment.seed_list, np.uint32))
    return Seed(keys, *jax.device_put(partitions.stacked(task.partitions)))


class Site(NamedTuple):
    """The radio side of one seed."""

    trace: Trace  # (T, K)
    deployment: Deployment
    message: Message
    policy: Policy
    rows: Callable[[], Rows] | None = None  # where rounds go by: the channel from its start; `trace` is its first round


class SchemeSetup(NamedTuple):
    """One scheme, ready to run."""

    label: str
    clients: Clients
    server: Server
    sites: list[Site]  # per seed

    @property
    def optimizer(self) -> "optax.GradientTransformation":
        return optimizer_of(self.server)


def build_scheme(experiment: Experiment, scheme: Any, task: Task | Facts, streamed: bool = False) -> SchemeSetup:
    """Clients, server and, per seed, trace, deployment, promise and policy of one scheme.

    streamed: the channel is not drawn whole but stands ready to be drawn some rounds at a time.
    """
    clients = clients_of(experiment, scheme, task)
    seeds = range(len(experiment.seed_list))
    told = [told_of(experiment, scheme, clients, task, number, streamed) for number in seeds]
    sites = [_site(scheme, *one) for one in told]
    _refuse_other_promises([site.policy for site in sites], experiment.seed_list)
    if streamed:
        sites = [site._replace(rows=_rows(experiment, site.message, task.sizes[n], n)) for n, site in enumerate(sites)]
    return SchemeSetup(scheme.label or scheme.name, clients, server_of(experiment, scheme), sites)


def clients_of(experiment: Experiment, scheme: Any, task: Task | Facts) -> Clients:
    """What the clients of one scheme send."""
    choice = experiment.client_choice(scheme)
    options, factory = client_kinds.KINDS[choice.kind]
    _check_stops(choice, experiment.horizon(scheme), experiment.privacy.delta)
    return factory(options_of(choice, options), task.model, min(int(sizes.min()) for sizes in task.sizes))


def told_of(
    experiment: Experiment, scheme: Any, clients: Clients, task: Task | Facts, number: int, streamed: bool = False
) -> tuple[Deployment, Message, Context]:
    """What a scheme is told under the seed of this number; its context has the trace, streamed its first round."""
    seed, sizes = experiment.seed_list[number], task.sizes[number]
    if np.any(sizes < 1):
        nobody = f"client {int(np.argmin(sizes))} has no samples under seed {seed}"
        raise InputError(f"{nobody}; change the partition or the number of clients")
    message = clients.promise(sizes)
    _refuse_shared_records(experiment, message)
    channel, deployment = site_of(experiment, message, sizes)
    deployment = limited(deployment, scheme.max_energy)
    # All rounds, then cut: schemes share their channels.
    size = (experiment.task.clients, experiment.rounds, seed)
    whole = Rows(channel, *size).take(1) if streamed else _draw_once(task.drawn, number, channel, *size)
    if (played := played_by(experiment)) is not None:
        whole = play(played, whole.coin, number, seed, channel.csi)
    trace, deployment = receive(cut(whole, slice(experiment.horizon(scheme))), deployment)
    known = None if message.adjacency == "add-remove" else sizes
    return deployment, message, context_of(experiment, scheme, task.classes, seed, trace, known)


def _draw_once(drawn: Drawn, number: int, *what: Any) -> Trace:
    """`draw(*what)`, the last of each seed kept for the next scheme; nobody may write into it."""
    if number not in drawn or drawn[number][0] != what:
        drawn[number] = what, read_only(draw(*what))
    return drawn[number][1]


def _refuse_other_promises(policies: list[Policy], seeds: list[int]) -> None:
    """One program, one card and one label serve all seeds: what a policy declares is the same under each."""
    for name in ("loop", "csi", "gate", "feedback", "uplink"):
        said = [uplink.uplink_of(one).name if name == "uplink" else getattr(one, name) for one in policies]
        for seed, other in zip(seeds, said):
            if other != said[0]:
                raise InputError(f"{name}={other!r} under seed {seed} but {said[0]!r} under seed {seeds[0]}")


def _rows(experiment: Experiment, message: Message, sizes: np.ndarray, number: int) -> Callable[[], Rows]:
    channel, _ = site_of(experiment, message, sizes)
    return partial(Rows, channel, experiment.task.clients, experiment.rounds, experiment.seed_list[number])


def _refuse_shared_records(experiment: Experiment, message: Message) -> None:
    if experiment.task.partition.kind == "shared" and message.unit == "record":
        raise InputError(
            "unit='record' with task.partition='shared' is false: several clients hold one record, and each is charged "
            "alone; use unit='client' or another partition"
        )


def _check_stops(choice: Any, rounds: int, delta: float) -> None:
    """The stop of a Poisson batch that does not fit is public and adds to delta; it must not be felt there."""
    tail = choice.overflow_tail if choice.kind == "per-sample" and choice.sampling == "poisson" else 0.0
    if rounds * tail > delta / 1000:
        raise InputError(
            f"clients.overflow_tail={tail:g} over {rounds} rounds must add at most a thousandth to "
            f"privacy.delta={delta:g}; lower it"
        )


def _site(scheme: Any, deployment: Deployment, message: Message, context: Context) -> Site:
    config = options_of(scheme, systems.scheme(scheme.name).config)
    policy = systems.make(scheme.name, config, deployment, message, context)
    assert context.trace is not None
    trace, deployment = uplink_checks.meet(uplink.uplink_of(policy), context.trace, deployment)
    return Site(trace, deployment, message, policy)


def context_of(
    experiment: Experiment, scheme: Any, classes: int, seed: int, trace: Trace, sizes: np.ndarray | None
) -> Context:
    """What a policy is told besides its site."""
    return Context(
        rounds=experiment.horizon(scheme),
        eps=np.inf if experiment.privacy.eps is None else experiment.privacy.eps,
        delta=experiment.privacy.delta,
        accountant=experiment.privacy.accountant,
        step_size=server_of(experiment, scheme).step_size,
        classes=classes,
        seed=seed,
        stop=experiment.privacy.stop,
        sizes=sizes,
        rayleigh=rayleigh(experiment),
        trace=trace,
    )
