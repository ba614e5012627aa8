"""Which runs go by in blocks, in how large blocks, and which cannot."""

from typing import Any

from otafl import systems
from otafl.core.errors import InputError
from otafl.core.uplink import ANALOG, PERFECT, Uplink
from otafl.privacy.participation import CERTIFIED
from otafl.runs.schema import Experiment
from otafl.runs.sites import played_by

DEVICE_ROUNDS = 1 << 23  # clients x rounds of one seed: above it rounds go by
BLOCK = 1 << 20  # clients x rounds x seeds in memory at a time, but a whole round at least


def goes_by(experiment: Experiment) -> bool:
    """Whether the rounds of this experiment are not kept client by client."""
    wanted = experiment.engine.stream
    return experiment.rounds * experiment.task.clients > DEVICE_ROUNDS if wanted is None else wanted


def rounds_at_once(experiment: Experiment) -> int:
    return max(1, BLOCK // (experiment.task.clients * len(experiment.seed_list)))


def refuse(experiment: Experiment, scheme: Any, label: str) -> None:
    """What needs all rounds of all clients at once."""
    privacy = experiment.privacy
    reasons = {
        "is told the whole channel (hindsight)": systems.in_hindsight(scheme.name, scheme),
        f"hears with channel.antennas={experiment.channel.antennas}": experiment.channel.antennas > 1,
        "plays measured gains": played_by(experiment) is not None,
        f"counts by privacy.accountant={privacy.accountant!r}, which needs every round; use 'zcdp' or 'gaussian'": (
            privacy.accountant in ("rdp", "pld")
        ),
        f"counts silence by privacy.accounting={privacy.accounting!r}": privacy.accounting not in CERTIFIED,
        "has a budget of energy for the whole run (radio.run_energy)": experiment.radio.run_energy is not None,
        "charges an eavesdropper round by round": privacy.eavesdropper is not None,
    }
    for reason, holds in reasons.items():
        if holds:
            raise InputError(f"{label}: {_said(reason, experiment)}")


def refuse_ahead(experiment: Experiment, retires: bool) -> None:
    """A plan made in advance lets clients retire by all of its rounds at once; a closed loop, by the round."""
    if retires:
        raise InputError(_said("lets clients retire (privacy.stop='each')", experiment))


def refuse_uplink(experiment: Experiment, uplink: Uplink) -> None:
    if uplink not in (ANALOG, PERFECT):
        raise InputError(_said(f"has the uplink {uplink.name!r} of its own", experiment))


def _said(reason: str, experiment: Experiment) -> str:
    size = f"rounds={experiment.rounds} x task.clients={experiment.task.clients}"
    return (
        f"{reason}; with {size} rounds go by in blocks. Lower one of them, or set engine.stream=false to keep all of "
        "them in memory"
    )
