"""`otafl advise`: no schemes are given; each system designs itself for the site and the target, and plans are ranked.

Nothing is trained. Every row is read off a plan that was charged by the ledger, and ranked by the figure of merit Q of
`bounds.merit`, a fit to trainings of ten-class images: it predicts a share of attainable accuracy, with a band, and is
said to be outside its domain where it is.
"""

import dataclasses
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from otafl import systems
from otafl.bounds import merit
from otafl.core import validate
from otafl.core.errors import InputError
from otafl.core.files import FileModel, parse, read_toml
from otafl.runs import build
from otafl.runs.advice.designs import design, own_clients
from otafl.runs.advice.site import AdviceSite, read_site
from otafl.runs.limits import check_kept
from otafl.runs.planning.afford import least
from otafl.runs.planning.facts import Facts, facts_of
from otafl.runs.planning.planned import Planned
from otafl.runs.planning.table import Row, plan_scheme
from otafl.runs.schema import Experiment
from otafl.systems import settings as designing
from otafl.systems.simulated import Options, Refusal

REFERENCE = "fedavg-dp"  # no radio: what error-free links and the clients' own noise would reach
HORIZONS = (100, 200, 400)  # tried where no number of rounds is given: the calibrated ones
HEARD = 0.98  # of the wanted weight, from which on more rounds buy nothing
COVERED = 0.9  # below, the mean is another than the one that was asked for: ranked after those that follow it
TIE = 0.03  # Q within 3 % of the best is a tie, settled by energy, then by channel knowledge
SAME_ENERGY = 1.25
LARGE = 1e12  # stands for an energy that is not known
CSI_ORDER = ("none", "statistical", "own", "global", "hindsight")
BLOCKS = ("task", "clients", "server", "channel")  # blocks of --task FILE that are taken over


@dataclass(frozen=True)
class Question:
    """What is asked: a site, a model's size, a privacy target."""

    site: AdviceSite
    num_params: int
    eps: float
    delta: float = 1e-5
    rounds: int = HORIZONS[0]
    weights: str = "samples"
    accountant: str = "gaussian"
    agreement: float | None = None  # None: guessed from the samples
    blocks: dict[str, Any] = field(default_factory=dict)  # [task], [clients], [server], [channel] of the user's own

    @property
    def gamma(self) -> float:
        guess = merit.guessed_agreement(float(np.mean(self.site.devices.samples)))
        return guess if self.agreement is None else self.agreement


@dataclass(frozen=True)
class Option:
    """One scheme with the settings it chose, and what its plan promises."""

    name: str
    options: Options
    row: Row | None  # None: it has no setting
    merit: merit.Merit | None
    why_not: str = ""
    certified: bool = False  # a convergence certificate that says more than clipping alone does
    unit: str = ""  # what eps protects
    adjacency: str = ""

    @property
    def quality(self) -> float:
        return 0.0 if self.merit is None else self.merit.quality

    @property
    def covered(self) -> float:
        """Share of the wanted weights that the mean really follows; where nobody is heard there is no mean."""
        bias = None if self.row is None else self.row.bias
        return 0.0 if bias is None or np.isnan(bias) else 1 - bias

    @property
    def comparable(self) -> bool:
        """Whether its Q means what the others' means: the same mean, and messages that Q was calibrated on."""
        return self.covered >= COVERED and not own_clients(self.name)


def experiment_of(question: Question, site_file: Path, schemes: list[dict[str, Any]]) -> Experiment:
    """The question as an experiment; its task is the user's, or a size alone."""
    blocks, site = question.blocks, question.site
    task = {**blocks.get("task", {}), "clients": site.num_devices}
    if not blocks.get("task"):
        task |= {"num_params": question.num_params, "samples": [int(n) for n in site.devices.samples]}
    task["weights"] = question.weights
    data = {
        **{key: value for key, value in blocks.items() if key != "task"},
        "title": f"Advice for {site.name}",
        "rounds": question.rounds,
        "seeds": 1,
        "devices": str(site_file),
        "task": task,
        "privacy": {"eps": question.eps, "delta": question.delta, "accountant": question.accountant},
        "scheme": schemes,
    }
    return parse(Experiment, data, "advise")


def consider(question: Question, names: list[str] | None = None) -> list[Option]:
    """Every scheme designed, planned and charged, best first; the reference stands last."""
    found: list[Option] = []
    refusals: list[InputError] = []
    with question.site.as_file() as site_file:
        facts: Facts | None = None
        for name in designing.advised() if names is None else names:
            bare = experiment_of(question, site_file, [{"name": name, **own_clients(name), **_required(name)}])
            facts = facts_of(bare) if facts is None else facts
            try:
                option = _option(question, bare, facts)
            except InputError as refusal:  # this scheme cannot be there; where none can, the question is at fault
                refusals.append(refusal)
                option = Option(name, {}, None, None, str(refusal).removeprefix(f"{name}: "))
            sent = bare.client_choice(bare.scheme[0])
            found.append(dataclasses.replace(option, unit=sent.unit, adjacency=sent.adjacency))
    if len(refusals) == len(found):
        raise refusals[0]
    return ranked(found)


def _required(name: str) -> dict[str, float]:
    """Settings that a scheme cannot do without, before it has designed itself."""
    settings = dataclasses.fields(systems.scheme(name).config)
    return {one.name: 0.0 for one in settings if one.default is one.default_factory is dataclasses.MISSING}


def _option(question: Question, bare: Experiment, facts: Facts) -> Option:
    scheme = bare.scheme[0]
    chosen = design(bare, scheme, facts)
    if isinstance(chosen, Refusal):
        return Option(scheme.name, {}, None, None, chosen.why)
    ready = bare.model_copy(update={"scheme": [scheme.model_copy(update=chosen)]})
    row = plan_scheme(ready, ready.scheme[0], facts, question.gamma)
    if not row.feasible or row.merit is None:
        return Option(scheme.name, chosen, row, None, f"{row.reason}{least(row.least_eps)}")
    rounds = int(np.mean(row.rounds or [1]))
    value = merit.merit(row.merit.snr, row.merit.snr_max, question.gamma, facts.model.num_params, rounds)
    certified = not chosen.get("diagnostic") and _informative(ready, facts)
    return Option(scheme.name, chosen, row, value, certified=certified)


def _informative(ready: Experiment, facts: Facts) -> bool:
    """Whether the scheme has a certificate that says more of this plan than clipping alone."""
    scheme = ready.scheme[0]
    judge = systems.SCHEMES[scheme.name].informative
    if judge is None:
        return False
    site = Planned(ready, scheme, facts).setup.sites[0]
    context = build.context_of(ready, scheme, facts.classes, ready.seed_list[0], site.trace, None)
    says_more = systems.system_of(scheme.name).load(judge)
    return bool(says_more(scheme, site.trace, site.deployment, site.message, context))


def ranked(options: list[Option]) -> list[Option]:
    """By Q; ties within 3 % of the best by energy (a quarter more is no difference), then by channel knowledge.

    After them those whose Q is not comparable, then the reference, then refusals.
    """
    able = [o for o in options if o.merit is not None and o.row is not None and o.name != REFERENCE]
    best = max((o.quality for o in able if o.comparable), default=0.0)
    tied = [o for o in able if o.comparable and o.quality >= (1 - TIE) * best]
    energies = [o.row.energy_mean for o in tied if o.row is not None and o.row.energy_mean]
    least = min(energies, default=1.0)

    def order(option: Option) -> tuple[Any, ...]:
        row = option.row
        assert row is not None
        if option not in tied:
            return (not option.comparable, True, 0, 0, -option.quality)
        spent = math.floor(math.log(max(row.energy_mean or LARGE * least, least) / least) / math.log(SAME_ENERGY))
        return (False, False, spent, CSI_ORDER.index(row.csi), -option.quality)

    rest = [o for o in options if o.name == REFERENCE] + [o for o in options if o.merit is None and o.name != REFERENCE]
    return sorted(able, key=order) + rest


def horizon_for(question: Question) -> int:
    """The smallest number of calibrated rounds with nearly everybody heard: more would cost time alone."""
    for rounds in HORIZONS:
        option = consider(dataclasses.replace(question, rounds=rounds), ["constant"])[0]
        if option.row is None or option.merit is None or (option.row.dropped_weight or 0.0) <= 1 - HEARD:
            return rounds
    return HORIZONS[-1]


class Words(FileModel):
    """What must be right about the plain arguments of `advise`."""

    eps: Annotated[float, Field(gt=0)] | None
    delta: Annotated[float, Field(gt=0, lt=1)]
    accountant: str
    num_params: Annotated[int, Field(ge=1)] | None
    rounds: Annotated[int, Field(ge=1, le=10**4)] | None  # the figure of merit knows some hundreds
    agreement: Annotated[float, Field(gt=0, le=1)] | None
    samples: Annotated[int, Field(ge=1)] | None
    radio: dict[str, Any] | None


def asked(
    site: Any, num_params: int | None = None, eps: float | None = None, *, delta: float = 1e-5,
    rounds: int | None = None, task: Any = None, weights: str = "samples", accountant: str = "gaussian",
    agreement: float | None = None, samples: int | None = None, radio: dict[str, Any] | None = None,
) -> Question:  # fmt: skip
    """Check what was asked and complete it."""
    blocks = _blocks(task)
    parse(Words, {"delta": delta, "accountant": accountant, "eps": eps, "num_params": num_params, "rounds": rounds,
                  "agreement": agreement, "samples": samples, "radio": radio}, "advise")  # fmt: skip
    if eps is None:
        raise InputError("eps is missing: advice needs a privacy target (--eps 8)")
    if num_params is None and not blocks.get("task"):
        raise InputError("num_params is missing: say how large the model is (--num-params 9610), or give a task")
    validate.one_of("weights", weights, ("samples", "equal"))
    place = read_site(site, radio, samples)
    blocks = _with_array(blocks, place)
    check_kept(1, rounds or HORIZONS[-1], place.num_devices)
    size, horizon = num_params or 1, rounds or HORIZONS[0]
    question = Question(place, size, eps, delta, horizon, weights, accountant, agreement, blocks)
    if blocks.get("task"):
        question = _with_task(question, num_params)
    return question if rounds is not None else dataclasses.replace(question, rounds=horizon_for(question))


def _with_task(question: Question, said: int | None) -> Question:
    """The size of the user's own model and the samples of its clients; another size that was given is a mistake."""
    with question.site.as_file() as site_file:
        facts = facts_of(experiment_of(question, site_file, [{"name": REFERENCE}]))
    found = int(facts.model.num_params)
    if said is not None and said != found:
        raise InputError(f"num_params={said} but the task's model has {found}; leave one of them out")
    devices = question.site.devices._replace(samples=np.asarray(facts.sizes[0], np.int64))
    return dataclasses.replace(question, num_params=found, site=question.site._replace(devices=devices))


def _with_array(blocks: dict[str, Any], site: AdviceSite) -> dict[str, Any]:
    """What was measured at several antennas is planned for as many: all of them are charged."""
    if site.antennas == 1:
        return blocks
    channel = blocks.get("channel", {})
    said = channel.get("antennas", site.antennas) if isinstance(channel, dict) else 1
    if said != site.antennas:
        raise InputError(f"{site.name}: has gains to {site.antennas} antennas but channel.antennas={said}")
    return {**blocks, "channel": {**channel, "antennas": site.antennas}}


def _blocks(task: Any) -> dict[str, Any]:
    """The blocks of an experiment file, or of a dict like one, that say what is learned and how."""
    if task is None:
        return {}
    if not isinstance(task, dict | str | Path):
        raise InputError(f"task={type(task).__name__} must be an experiment file or a dict like one")
    data = task if isinstance(task, dict) else read_toml(Path(task))
    if not isinstance(data.get("task"), dict):
        raise InputError(f"{task}: has no [task]; give an experiment file")
    found = {key: data[key] for key in BLOCKS if key in data}
    source = found["task"].get("data")
    if not isinstance(task, dict) and isinstance(source, dict) and "path" in source:  # beside its file, not beside ours
        path = os.path.normpath(Path(task).parent.absolute() / source["path"])
        found["task"] = {**found["task"], "data": {**source, "path": path}}
    return found
