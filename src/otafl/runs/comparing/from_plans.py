"""Settings from plans: what every scheme chooses for a site and a privacy target before anybody looks at data.

Own knobs come from the systems' rules (`settings.py` of each), the step size from the noise of the plan. Channels are
simulated under another seed than any run's, so nothing here costs privacy or sees what is reported.
"""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from otafl import systems
from otafl.core.errors import OtaflError
from otafl.core.plan import Link
from otafl.core.uplink import uplink_of
from otafl.privacy import Budget, Ledger
from otafl.privacy.events import release
from otafl.runs.build import Task
from otafl.runs.comparing import run_energy
from otafl.runs.planning.energy import within_run
from otafl.runs.planning.places import Place, place_of
from otafl.runs.planning.steps import step_size
from otafl.runs.schema import Experiment
from otafl.runs.sites import limited
from otafl.systems import settings as rules
from otafl.systems import simulated


class Chosen(NamedTuple):
    """What plans say about one scheme."""

    options: dict[str, Any]
    step_size: float
    why_not: str = ""  # no setting of its own fits: the file's stand


def choose(experiment: Experiment, scheme: Any, task: Task, step_scale: float | None = None) -> Chosen:
    """Own knobs by the system's rule, the step by s over the accumulated noise of the plan."""
    place, entry = place_of(experiment, scheme, task), systems.SCHEMES[scheme.name]
    planned_as = entry.plans_as or scheme.name
    names = {field.name for field in dataclasses.fields(systems.scheme(planned_as).config)}
    known = {name: getattr(scheme, name) for name in scheme.model_fields_set if name in names}
    own, why_not = _own(planned_as, scheme, place, known, experiment.radio.run_energy)
    of_policy = {name: value for name, value in own.items() if name in names}
    place = place._replace(deployment=limited(place.deployment, own.get("max_energy")))
    link, live = _planned(planned_as, {**known, **of_policy}, place, experiment, entry.private)
    step = step_size(experiment, scheme, link, live, place.message, task.model.num_params, step_scale)
    if entry.around and own:
        own = systems.system_of(scheme.name).load(entry.around)(own)
    return Chosen(own, step, why_not)


def _own(
    name: str, scheme: Any, place: Place, known: dict[str, Any], joules: float | None
) -> tuple[dict[str, Any], str]:
    if name not in rules.names():
        return {}, ""
    promised = {"silence", "mode"} & scheme.model_fields_set  # promises of the file, no knobs
    fixed = {name: value for name, value in known.items() if name in promised}

    def rule(limit: float | None, budget: Budget) -> simulated.Options | simulated.Refusal:
        found = rules.settings(name, *place._replace(deployment=limited(place.deployment, limit), budget=budget))
        return found if isinstance(found, simulated.Refusal) else {**known, **found, **fixed}

    found = rule(None, place.budget)
    if joules is not None and not isinstance(found, simulated.Refusal):
        found = run_energy.settings(name, rule, simulated.bench(*place), joules)
    if isinstance(found, simulated.Refusal):
        return {}, found.why
    return found, ""


def _planned(
    name: str, options: dict[str, Any], place: Place, experiment: Experiment, private: bool
) -> tuple[Link, np.ndarray]:
    """The links of a planned run, and which of its rounds the budget covers."""
    at = simulated.bench(*place)
    policy, plan, trace, deployment = simulated.planned(name, options, at)
    if experiment.radio.run_energy is not None and uplink_of(policy).radio:
        plan = within_run(plan, place.message, experiment.radio.run_energy, uplink_of(policy))
    live = np.asarray(plan.live, bool)
    if private:
        released = release(uplink_of(policy), plan, trace, deployment, place.message)
        live = Ledger(place.budget, at.devices).affordable(released)
    return uplink_of(policy).lower(plan._replace(live=live), trace.gain, deployment), live


def from_plans(experiment: Experiment, task: Task, step_scale: float | None = None) -> tuple[Experiment, list[str]]:
    """The experiment with every scheme's own knobs and step from plans; and what could not be chosen so, in words."""
    schemes, said = [], []
    for scheme, label in zip(experiment.scheme, experiment.labels):
        try:
            chosen = choose(experiment, scheme, task, step_scale)
        except OtaflError as refusal:
            said.append(f"{label}: no setting from plans ({refusal}); the file's stand")
            schemes.append(scheme)
            continue
        if chosen.why_not:
            said.append(f"{label}: no setting from plans ({chosen.why_not}); the file's stand")
        server = scheme.server.model_copy(update={"step_size": chosen.step_size})
        schemes.append(scheme.model_copy(update={**chosen.options, "server": server}))
    return experiment.model_copy(update={"scheme": schemes}), said
