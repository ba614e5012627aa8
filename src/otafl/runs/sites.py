"""The devices of an experiment: one deployment file, read once, the same numbers for every scheme and every verb."""

from functools import lru_cache
from pathlib import Path

from otafl.channels import Radio as Receiver
from otafl.channels import Site, load_site
from otafl.core.arrays import Complexes
from otafl.core.errors import InputError
from otafl.runs.schema import Experiment, Radio


def devices_of(experiment: Experiment) -> Site:
    """The deployment file with its radio: its own `[radio]`, or the experiment's where it is a CSV of devices."""
    path = experiment.devices
    assert path is not None
    receiver = _receiver(experiment.radio)
    if receiver is None and path.suffix.lower() != ".toml":
        raise InputError(
            f"{path}: lists devices alone; give radio.bandwidth_hz with noise_dbm, noise_dbm_per_hz or noise_figure_db"
        )
    try:
        stamp = path.stat()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    return _read(path, receiver, (stamp.st_mtime_ns, stamp.st_size))


@lru_cache(maxsize=4)
def _read(path: Path, receiver: Receiver | None, stamp: tuple[int, int]) -> Site:
    """`stamp` tells a changed file from the one that was read."""
    return load_site(path, receiver)


def _receiver(radio: Radio) -> Receiver | None:
    """The experiment's `[radio]` as a receiver of devices; None where it says nothing about one."""
    if radio.noise_w is None:
        return None
    if radio.bandwidth_hz is None:
        raise InputError("radio.bandwidth_hz: missing, devices with powers need it")
    return Receiver(radio.bandwidth_hz, radio.noise_w, radio.trusted_share * radio.noise_w, radio.path_loss)


def measured_gains(experiment: Experiment) -> Complexes | None:
    """(rounds, K) that a deployment file names; nothing may be drawn beside them but estimates and coins."""
    gains = None if experiment.devices is None else devices_of(experiment).devices.gains
    if gains is not None and (experiment.channel.drift is not None or experiment.channel.pilots is not None):
        raise InputError("channel.drift and channel.pilots belong to drawn gains; these are measured")
    if gains is not None and experiment.channel.antennas > 1:
        raise InputError(f"channel.antennas={experiment.channel.antennas}: measured gains are to one antenna; set 1")
    return gains
