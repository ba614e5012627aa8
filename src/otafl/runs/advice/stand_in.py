"""An advice as an experiment that trains: on the user's own task, or on a stand-in of about the same size."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from otafl.core.errors import OtaflError
from otafl.core.files import parse
from otafl.core.plan import cut
from otafl.runs.advice.advise import Option, Question
from otafl.runs.advice.designs import design, own_clients
from otafl.runs.planning.energy import planned_energy
from otafl.runs.planning.facts import facts_of
from otafl.runs.planning.planned import Planned
from otafl.runs.planning.steps import step_size
from otafl.runs.schema import Experiment
from otafl.systems.simulated import Refusal
from otafl.tasks import features

DIGITS_SAMPLES, PIXELS, CLASSES = 1_437, 64, 10
LOGISTIC = CLASSES * (PIXELS + 1)  # 650 parameters
MLP_PER_UNIT = PIXELS + 1 + CLASSES
MOST_UNITS = 10_000  # a wider stand-in would say nothing more and train for hours
UNHEARD = 0.5  # of its weight, below which a device is named as not heard
SEEDS = 5


class Prepared(NamedTuple):
    """An experiment, the table it was read from, and what its first plan means for each device."""

    experiment: Experiment
    data: dict[str, Any]
    devices: list[dict[str, Any]]
    unheard: list[str]


def stand_in(question: Question) -> dict[str, Any]:
    """[task] of handwritten digits (MNIST where there are more devices than digits) with a model of about that size."""
    count, size = question.site.num_devices, question.num_params
    samples = np.asarray(question.site.devices.samples, float)
    task: dict[str, Any] = {"clients": count, "partition": {"kind": "iid"}}
    task["weights"] = "equal" if question.weights == "equal" else [float(w) for w in samples / samples.sum()]
    data: dict[str, Any] = {"name": "digits"}
    if count > DIGITS_SAMPLES:
        data = {"name": "mnist", "pca": {"components": PIXELS}}
    if size <= LOGISTIC + MLP_PER_UNIT // 2:
        components = min(PIXELS, max(1, round((size - CLASSES) / CLASSES)))
        if components < PIXELS:
            data["pca"] = {"components": components}
        task["model"] = {"name": "logistic"}
    else:
        units = min(MOST_UNITS, max(1, round((size - CLASSES) / MLP_PER_UNIT)))
        task["model"] = {"name": "mlp", "hidden": [units]}
    return {**task, "data": data}


def stand_in_words(experiment: Experiment, num_params: int) -> str:
    task = experiment.task
    if task.num_params is not None:
        return f"advice.toml only plans: no stand-in data for {task.clients} devices is here; give --task to train"
    return (
        f"advice.toml trains {task.model.name} on {task.data.name} in place of your task of {num_params:,} parameters; "
        "give --task to use your own"
    )


def prepare(question: Question, options: list[Option]) -> Prepared:
    """The best options as one experiment: settings for the very model that is trained, step size from the noise."""
    with question.site.as_file() as site_file:
        data = _bare(question, site_file)
        schemes: list[dict[str, Any]] = []
        devices: list[dict[str, Any]] = []
        unheard: list[str] = []
        for number, option in enumerate(options):
            table, planned = _scheme(option, data)
            schemes.append(table)
            if number == 0:
                devices, unheard = device_table(planned, question)
        data["scheme"] = schemes
        experiment = parse(Experiment, data, Path("advice"))
    return Prepared(experiment, data, devices, unheard)


def _bare(question: Question, site_file: Path) -> dict[str, Any]:
    """The experiment but for its schemes."""
    blocks = question.blocks
    return {
        "title": f"Advice for {question.site.name}, ε = {question.eps:g}",
        "rounds": question.rounds,
        "seeds": SEEDS,
        **{key: value for key, value in blocks.items() if key != "task"},
        "devices": str(site_file),
        "task": _task(question),
        "privacy": {"eps": question.eps, "delta": question.delta, "accountant": question.accountant},
    }


def _task(question: Question) -> dict[str, Any]:
    """[task]: the user's own, a stand-in, or the size alone where there are more devices than samples at hand."""
    own = question.blocks.get("task")
    if own:
        return {**own, "clients": question.site.num_devices, "weights": question.weights}
    if question.site.num_devices > DIGITS_SAMPLES:
        try:
            features.outline(features.DataOptions(name="mnist"))
        except OtaflError:
            samples = [int(n) for n in question.site.devices.samples]
            declared = {"num_params": question.num_params, "samples": samples, "weights": question.weights}
            return {"clients": question.site.num_devices, **declared}
    return stand_in(question)


def _scheme(option: Option, data: dict[str, Any]) -> tuple[dict[str, Any], Planned]:
    """[[scheme]] with its settings and step, and its plan; a closed form of the site alone decides both."""
    own = own_clients(option.name)
    table: dict[str, Any] = {"name": option.name, **own, **option.options}
    bare = parse(Experiment, {**data, "seeds": 1, "scheme": [table]}, Path("advice"))
    facts = facts_of(bare)
    chosen = design(bare, bare.scheme[0], facts)
    if not isinstance(chosen, Refusal):
        table |= {key: list(value) if isinstance(value, tuple) else value for key, value in chosen.items()}
    ready = parse(Experiment, {**data, "seeds": 1, "scheme": [table]}, Path("advice"))
    planned = Planned(ready, ready.scheme[0], facts)
    if "server" not in data:
        table["server"] = {"step_size": _step_size(planned, facts.model.num_params)}
    return table, planned


def _step_size(planned: Planned, num_params: int) -> float:
    site, plan = planned.setup.sites[0], planned.plans[0]
    link = planned.uplink.lower(plan, site.trace.gain, site.deployment)
    return step_size(planned.experiment, planned.scheme, link, np.asarray(plan.live, bool), site.message, num_params)


def device_table(planned: Planned, question: Question) -> tuple[list[dict[str, Any]], list[str]]:
    """Who is heard how often, with which weight and energy; and the names of those that hardly are."""
    site, whole = planned.setup.sites[0], planned.plans[0]
    live = np.asarray(whole.live, bool)
    plan = cut(whole, live)
    link = planned.uplink.lower(whole, site.trace.gain, site.deployment)
    allowed = np.asarray(plan.max_norm) >= 0
    weight = np.where(allowed, np.asarray(link.weight)[live], 0.0)
    share = weight.sum(0) / max(weight.sum(), 1e-300)
    wanted = np.asarray(site.deployment.weights, float)
    energy = planned_energy(plan, site.message, planned.uplink).sum(0)
    limit = np.asarray(site.deployment.energy, float) * max(int(live.sum()), 1)
    known = question.site.devices
    rows: list[dict[str, Any]] = [
        {
            "name": known.names[k], "distance_m": None if known.distance_m is None else float(known.distance_m[k]),
            "gain_db": float(10 * np.log10(known.mean_power_gain[k])), "samples": int(known.samples[k]),
            "weight": float(wanted[k]), "share": float(share[k]),
            "heard": float(allowed[:, k].mean()) if live.any() else 0.0,
            "energy": float(energy[k]) if planned.uplink.radio else None,
            "limit": float(limit[k]) if np.isfinite(limit[k]) else None,
        }
        for k in range(len(wanted))
    ]  # fmt: skip
    return rows, [row["name"] for row in rows if row["share"] < UNHEARD * row["weight"]]
