"""The devices of an experiment: one deployment file, read once, the same numbers for every scheme and every verb."""

from functools import lru_cache
from pathlib import Path

from otafl.channels import Channel, Site, load_site
from otafl.channels import Radio as Receiver
from otafl.channels.deployment import files_of
from otafl.channels.measured import Played, Recording, open_recording
from otafl.core.errors import InputError
from otafl.runs.folder.sealed import file_digest
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
    return _read(path, receiver, _stamp(path))


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


def files_named_by(experiment: Experiment) -> dict[str, str]:
    """The files beside an experiment's own, and their hashes."""
    return hashes_of(experiment.devices, experiment.channel, experiment.privacy.already_spent)


def _stamp(path: Path) -> tuple[int, int]:
    """Tells a changed file from the one that was read."""
    try:
        found = path.stat()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    return found.st_mtime_ns, found.st_size
