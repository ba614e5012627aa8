"""An experiment without settings, completed: every scheme that designs itself, for this site and this target."""

from typing import Any

from otafl.core.errors import OtaflError
from otafl.runs import build
from otafl.runs.planning.facts import Facts
from otafl.runs.planning.places import place_of
from otafl.runs.schema import Experiment
from otafl.systems import SCHEMES
from otafl.systems.settings import settings
from otafl.systems.simulated import Options, Refusal


def own_clients(name: str) -> dict[str, Any]:
    """What the clients of a scheme send where that is no gradient, as its part of an experiment; else nothing."""
    clients = SCHEMES[name].clients
    return {} if clients is None else {"clients": dict(clients)}


def design(experiment: Experiment, scheme: Any, facts: Facts | build.Task) -> Options | Refusal:
    """The scheme's own choice; a refusal in words where it has none."""
    place = place_of(experiment, scheme, facts)
    try:
        return settings(scheme.name, *place)
    except OtaflError as refusal:
        return Refusal(str(refusal))
