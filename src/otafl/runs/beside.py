"""What an experiment names beside its own file: other files, and the code of schemes that are not otafl's."""

from otafl import systems
from otafl.core.authors import code_digest
from otafl.core.plan import ours
from otafl.runs.schema import Experiment
from otafl.runs.sites import hashes_of


def named_by(experiment: Experiment) -> dict[str, str]:
    """The SHA-256 of each: results that were made with other files or other code are not this experiment's."""
    factories = {one.name: systems.scheme(one.name).factory for one in experiment.scheme}
    code = {f"scheme {name}": code_digest(made) for name, made in factories.items() if not ours(made)}
    return hashes_of(experiment.devices, experiment.channel, experiment.privacy.already_spent) | code
