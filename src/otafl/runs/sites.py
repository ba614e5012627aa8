"""The site of an experiment: its devices, read once from their file, and what they may do in the units of the round.

The same numbers for every scheme and every verb.
"""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from otafl.channels import Channel, Site, load_site, to_deployment, with_gains
from otafl.channels import Radio as Receiver
from otafl.channels.deployment import files_of
from otafl.channels.measured import Played, Recording, open_recording
from otafl.core.errors import InputError
from otafl.core.plan import Deployment, Message
from otafl.runs.folder.sealed import file_digest
from otafl.runs.schema import Experiment, Radio

OTHER_LAW = "silence is computed by Rayleigh's law, which these gains are not known to follow: it may be too rare"


def devices_of(experiment: Experiment) -> Site:
    """The deployment file with its radio: its own `[radio]`, or the experiment's where it is a CSV of devices."""
    path = experiment.devices
    assert path is not None
    receiver = _receiver(experiment.radio)
    if receiver is None and path.suffix.lower() != ".toml":
        raise InputError(
            f"{path}: lists devices alone; give radio.bandwidth_hz with noise_dbm, noise_dbm_per_hz or noise_figure_db"
        )
    return _read(path, receiver, _stamp(path))


def check_count(experiment: Experiment, site: Site) -> None:
    if (count := len(site.devices.names)) != experiment.task.clients:
        raise InputError(f"{experiment.devices}: has {count} devices but task.clients={experiment.task.clients}")


@lru_cache(maxsize=4)
def _read(path: Path, receiver: Receiver | None, stamp: tuple[int, int]) -> Site:
    return load_site(path, receiver)


def _receiver(radio: Radio) -> Receiver | None:
    """The experiment's `[radio]` as a receiver of devices; None where it says nothing about one."""
    if radio.noise_w is None:
        return None
    if radio.bandwidth_hz is None:
        raise InputError("radio.bandwidth_hz: missing, devices with powers need it")
    return Receiver(radio.bandwidth_hz, radio.noise_w, radio.trusted_share * radio.noise_w, radio.path_loss)


def rayleigh(experiment: Experiment) -> bool:
    """Whether closed forms of silence hold: gains are drawn, and Rayleigh given their rms."""
    return experiment.channel.rayleigh and played_by(experiment) is None


def played_by(experiment: Experiment) -> Played | None:
    """The trace that an experiment or its deployment file names; only estimates and coins may be drawn beside it."""
    channel, listed = experiment.channel, experiment.devices is not None
    if channel.trace is not None:
        if listed:
            raise InputError("channel.trace and devices: name the trace in the deployment file (gains_file)")
        played: Played | None = _open(channel.trace, channel.antennas, _stamp(channel.trace.file))
    else:
        played = devices_of(experiment).devices.trace if listed else None
    if played is None:
        return None
    for name in ("drift", "pilots", "stale"):
        if getattr(channel, name) is not None:
            raise InputError(f"channel.{name} belongs to drawn gains; these are measured")
    if played.antennas != channel.antennas:
        has = f"{played.source.file}: has gains to {played.antennas} antenna(s)"
        raise InputError(f"{has} but channel.antennas={channel.antennas}")
    if played.estimate is not None and channel.csi is not None:
        raise InputError(f"{played.source.file}: has estimates of its own; leave out channel.csi")
    return played


@lru_cache(maxsize=4)
def _open(recording: Recording, antennas: int, stamp: tuple[int, int]) -> Played:
    return open_recording(recording, antennas=antennas)


def hashes_of(site: Path | None, channel: Channel, earlier: Path | None) -> dict[str, str]:
    """SHA-256 of every file that says what is sent, heard or already spent: what they say is a part of a run."""
    listed = [] if site is None else files_of(site)
    named = [*listed, *([] if channel.trace is None else [channel.trace.file]), *([] if earlier is None else [earlier])]
    return {str(path): file_digest(path, "it is needed here") for path in named}


def _stamp(path: Path) -> tuple[int, int]:
    """Tells a changed file from the one that was read."""
    try:
        found = path.stat()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    return found.st_mtime_ns, found.st_size


def site_of(experiment: Experiment, message: Message, sizes: np.ndarray) -> tuple[Channel, Deployment]:
    """Channel description and limits in the units of the round."""
    channel, radio, count = experiment.channel, experiment.radio, experiment.task.clients
    weights = weights_of(experiment.task.weights, message, sizes)
    if channel.trace is not None:
        return _site_of_trace(experiment, message, weights)
    if experiment.devices is None:
        energy, noise_var = np.full(count, radio.energy(message.dim)), radio.noise_var()
        trusted = radio.trusted_share * noise_var
        return channel, Deployment(energy, noise_var, trusted, weights, message.dim, **channel.declared)
    site = devices_of(experiment)
    check_count(experiment, site)
    channel = with_gains(channel, site.devices.mean_power_gain, site.devices.k_factor_db)
    made = to_deployment(site, message.dim)
    made = made._replace(weights=weights, **channel.declared)
    return channel, _as_estimated(made, site.devices.trace)


def _as_estimated(deployment: Deployment, played: Played | None) -> Deployment:
    """Estimates that stand in a file are as wrong as the file shows; nobody has to declare it."""
    if played is None or played.estimate is None:
        return deployment
    return deployment._replace(gain_error=played.gain_error, phase_error=None)


def _site_of_trace(experiment: Experiment, message: Message, weights: np.ndarray) -> tuple[Channel, Deployment]:
    """A trace file may bring energies and noise; what it does not say, the experiment's radio does."""
    channel, radio, played = experiment.channel, experiment.radio, played_by(experiment)
    assert played is not None and channel.trace is not None
    count = len(played.names)
    if count != experiment.task.clients:
        raise InputError(f"{channel.trace.file}: {count} devices take part but task.clients={experiment.task.clients}")
    said = {"energy": (radio.max_energy, radio.power_dbm), "noise_var": (radio.noise_std, radio.noise_w)}
    for name, own in said.items():
        if getattr(played, name) is not None and any(value is not None for value in own):
            raise InputError(f"{channel.trace.file}: has {name}, and so has the experiment's radio; give one")
    energy = np.full(count, radio.energy(message.dim)) if played.energy is None else played.energy
    noise_var = radio.noise_var() if played.noise_var is None else played.noise_var
    drawn = with_gains(replace(channel, trace=None), played.mean_power)
    trusted = radio.trusted_share * noise_var
    made = Deployment(energy, noise_var, trusted, weights, message.dim, **channel.declared)
    return drawn, _as_estimated(made, played)


def limited(deployment: Deployment, max_energy: float | None) -> Deployment:
    """The site of a scheme that limits its rounds by itself."""
    if max_energy is None:
        return deployment
    return deployment._replace(energy=np.minimum(np.asarray(deployment.energy, float), max_energy))


def bandwidth_of(experiment: Experiment) -> float | None:
    """Hz; None where the experiment does not say."""
    radio = experiment.radio if experiment.devices is None else devices_of(experiment).radio
    return radio.bandwidth_hz


def weights_of(declared: str | list[float], message: Message, sizes: np.ndarray) -> np.ndarray:
    """(K,) weights of the clients in the sum; shares of the records move for everybody when one comes or goes."""
    if declared != "samples":
        return np.full(len(sizes), 1 / len(sizes)) if declared == "equal" else np.asarray(declared, float)
    if message.adjacency == "add-remove":
        raise InputError(
            "adjacency='add-remove' with task.weights='samples' is false: every weight moves when a record comes or "
            "goes; set task.weights to 'equal' or to a list, or use adjacency='zero-out'"
        )
    return np.asarray(sizes / sizes.sum())
