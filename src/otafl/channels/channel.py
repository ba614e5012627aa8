"""A channel from its description to a trace: everything random about the radio, drawn before the run. Host, float64.

Each kind of randomness has its own stream, so switching one option on changes no other draw, and rows are drawn in
order, so a longer horizon extends a shorter one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from otafl.channels.antennas import BEAMS
from otafl.channels.csi import CsiError, estimates
from otafl.channels.drift import Drift, Levels
from otafl.channels.fading import REMEMBER, Fading, by_parts_law, law_of
from otafl.channels.geometry import Geometry, distances
from otafl.channels.large_scale import large_scale, roll
from otafl.channels.measured import Recording, open_recording, play
from otafl.channels.pathloss import PathLoss, from_db, loss_db
from otafl.channels.pathloss import shadowing_db as draw_shadowing_db
from otafl.channels.pilots import Estimates, Pilots, RmsEstimate
from otafl.channels.stale import Late, Stale, declared
from otafl.core import validate
from otafl.core.arrays import Bools, Floats
from otafl.core.errors import InputError
from otafl.core.plan import ArrayTrace, Receiver, Trace
from otafl.core.streams import Host

MOST_ANTENNAS = 1024


@dataclass(frozen=True)
class Channel:
    """All that shapes the gains of a run.

    The mean power gain E|h|^2 of each device comes from `geometry` with `path_loss`, or is given as `mean_power_gain`
    (one number or one per device; 1 where nothing is said); real_gaussian fading multiplies it by mean^2 + std^2.
    `shadowing_db` is the std of log-normal shadowing. `scale_range` then maps the logarithms of all Rayleigh scales
    sqrt(E|h|^2 / 2) affinely onto [ln low, ln high] (CARES E22); equal scales all go to the geometric middle.
    A 38.901 path loss draws states and shadowing of its own. `placement_seed` fixes placement and shadowing for all
    seeds; None redraws them per seed. `stale`: devices invert what the channel was; gains are those of the same
    process, `stale.age_rounds` rounds later. `trace` plays a file instead of all this. `antennas` of the server fade
    independently under one law; `beam` is how it combines them for learning (`BEAMS`), `server` what an observer there
    keeps: "full" every antenna, "combined" the beam's output alone, a weaker adversary.
    draw_order "single" takes distances, then all real parts, then all imaginary parts from one `default_rng(seed)`, as
    published AdaScale traces do; a longer horizon is then another trace.
    """

    fading: Fading = field(default_factory=Fading)
    geometry: Geometry | None = None
    path_loss: PathLoss | None = None
    mean_power_gain: float | tuple[float, ...] | None = None
    shadowing_db: float = 0.0
    scale_range: tuple[float, float] | None = None
    drift: Drift | None = None
    pilots: Pilots | None = None
    csi: CsiError | None = None
    stale: Stale | None = None
    trace: Recording | None = None
    antennas: int = 1
    beam: Literal["fixed", "best_antenna", "matched", "iterated"] = "fixed"
    server: Literal["full", "combined"] = "full"
    placement_seed: int | None = None
    draw_order: Literal["streams", "single"] = "streams"

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if (self.geometry is None) != (self.path_loss is None):
            raise InputError("geometry and path_loss belong together: give both or neither")
        if self.geometry is not None and self.mean_power_gain is not None:
            raise InputError("mean_power_gain replaces geometry and path_loss: give the one or the other")
        if self.mean_power_gain is not None:  # 0 for a device without a path, which never sends
            many = np.ndim(self.mean_power_gain) > 0 and np.any(np.asarray(self.mean_power_gain) > 0)
            (validate.not_negative if many else validate.positive)("mean_power_gain", self.mean_power_gain)
        validate.not_negative("shadowing_db", self.shadowing_db)
        if self.scale_range is not None:
            validate.positive("scale_range", self.scale_range)
            if self.scale_range[0] > self.scale_range[1]:
                raise InputError(f"scale_range={self.scale_range!r} must be ascending")
        if self.placement_seed is not None:
            validate.whole("placement_seed", self.placement_seed, 0)
        self._check_site()
        self._check_array()
        self._check_pilots()
        self._check_stale()
        self._check_trace()
        self._check_order()

    def _check_site(self) -> None:
        law = self.path_loss
        if law is not None and law.seed is not None:
            raise InputError("path_loss.seed belongs to deployment files; a drawn placement has placement_seed")
        if law is not None and law.drawn and self.shadowing_db and not law.median:
            own = f"path_loss kind={law.kind!r} brings its own shadowing"
            raise InputError(f"{own}: leave out shadowing_db={self.shadowing_db:g}, or set median=true")

    def _check_trace(self) -> None:
        if self.trace is None:
            return
        sizes = ("geometry", "path_loss", "mean_power_gain", "scale_range", "placement_seed")
        other = [name for name in (*sizes, "drift", "pilots", "stale") if getattr(self, name) is not None]
        other += ["shadowing_db"] if self.shadowing_db else []
        other += ["fading"] if self.fading != Fading() else []
        if other:
            raise InputError(f"trace brings the gains: leave out {', '.join(other)}")

    def _check_stale(self) -> None:
        if self.stale is None:
            return
        for name in ("csi", "drift", "pilots"):
            if getattr(self, name) is not None:
                raise InputError(f"stale and {name} cannot be combined: its bound knows nothing of {name}")
        if self.antennas > 1:
            raise InputError(f"stale: antennas={self.antennas} must be 1: (C2) is a bound for one antenna")
        declared(self.stale, self.fading)

    def _check_array(self) -> None:
        validate.whole("antennas", self.antennas, 1, MOST_ANTENNAS)
        validate.one_of("beam", self.beam, BEAMS)
        validate.one_of("server", self.server, ("full", "combined"))
        given = {"beam": self.beam != "fixed", "server": self.server != "full"}
        for name in [name for name, said in given.items() if said and self.antennas == 1]:
            raise InputError(f"{name}={getattr(self, name)!r} has no meaning for one antenna; set antennas")

    def _check_pilots(self) -> None:
        if self.pilots is None or self.drift is None:
            return
        if self.pilots.every is None or self.drift.every % self.pilots.every:
            raise InputError(
                f"pilots.every={self.pilots.every} must divide drift.every={self.drift.every}: "
                "limits from before a change do not hold after it"
            )

    def _check_order(self) -> None:
        validate.one_of("draw_order", self.draw_order, ("streams", "single"))
        simple = self.fading == Fading() and self.shadowing_db == 0 and self.placement_seed is None
        simple = simple and self.antennas == 1
        if self.draw_order == "single" and not simple:
            raise InputError(
                "draw_order='single' needs Rayleigh fading, coherence_rounds=1, one antenna, no shadowing and no "
                "placement_seed"
            )

    @property
    def rayleigh(self) -> bool:
        """Whether a gain is Rayleigh given its rms: the law that closed forms of silence rest on."""
        return self.fading.kind in ("rayleigh", *REMEMBER)

    @property
    def gain_error(self) -> float:
        """Declared bound on |gain / estimate| - 1, for `plan.Deployment`."""
        if self.stale is not None:
            return declared(self.stale, self.fading)
        return 0.0 if self.csi is None else self.csi.gain_error

    @property
    def phase_error(self) -> float | None:
        """Declared bound on the angle between gain and estimate, rad, for `plan.Deployment`; None: asin(gain_error)."""
        if self.stale is not None:
            return None
        return 0.0 if self.csi is None else self.csi.phase_error

    @property
    def declared(self) -> dict[str, Any]:
        """What `plan.Deployment` says of the receiver and of the estimates."""
        errors = {"gain_error": self.gain_error, "phase_error": self.phase_error, "receiver": self.receiver}
        return errors | {"least_gain": self.least_gain, "miss_prob": self.miss_prob}

    @property
    def least_gain(self) -> float:
        """Share of its rms below which a device's estimate keeps it silent."""
        return 0.0 if self.stale is None else self.stale.least_gain

    @property
    def miss_prob(self) -> float:
        """Probability, per client and round, that `gain_error` is passed."""
        return 0.0 if self.stale is None else self.stale.miss_prob

    @property
    def receiver(self) -> Receiver:
        """The server's antennas, for `plan.Deployment`."""
        return Receiver(self.antennas, self.beam, self.server)


class Placement(NamedTuple):
    """Where the devices are and how well they are heard on average."""

    distance_m: Floats | None  # (K,) None where mean gains were given
    mean_power_gain: Floats  # (K,) E|h|^2 before drift
    los: Bools | None = None  # (K,) of a 38.901 site
    k_factor_db: Floats | None = None  # (K,) of a 38.901 site, -inf without line of sight


def stream(seed: int, which: Host, antenna: int = 0) -> np.random.Generator:
    """The generator of one kind of randomness of one seed; what differs between antennas has one for each."""
    return np.random.default_rng([seed, which, antenna] if antenna else [seed, which])


def rescale_log(scale: Floats, low: float, high: float) -> Floats:
    """Map ln scale affinely onto [ln low, ln high] (CARES E22); equal scales go to the geometric middle.

    >>> rescale_log(np.array([1.0, 2.0, 4.0]), 0.2, 0.8)
    array([0.2, 0.4, 0.8])
    """
    log = np.log(scale)
    span = np.ptp(log)
    share = (log - log.min()) / span if span > 0 else np.full(log.shape, 0.5)
    return np.exp(np.log(low) + share * (np.log(high) - np.log(low)))


def place(channel: Channel, num_clients: int, seed: int, rng: np.random.Generator | None = None) -> Placement:
    """Draw distances and mean power gains; `rng` replaces the placement stream."""
    seed = seed if channel.placement_seed is None else channel.placement_seed
    distance = los = k_factor = None
    if channel.geometry is not None and channel.path_loss is not None:
        rng = stream(seed, Host.PLACEMENT) if rng is None else rng
        distance = distances(channel.geometry, num_clients, rng)
        if channel.path_loss.drawn:
            site = large_scale(channel.path_loss, distance, roll(num_clients, seed))
            los, k_factor, power = site.los, site.k_factor_db, from_db(-site.loss_db - site.shadowing_db)
        else:
            power = from_db(-loss_db(channel.path_loss, distance))
    else:
        given = np.asarray(1.0 if channel.mean_power_gain is None else channel.mean_power_gain, float)
        if given.ndim:
            validate.shape("mean_power_gain", given, (num_clients,))
        power = np.broadcast_to(given, (num_clients,))
    if channel.shadowing_db:
        shadow_db = draw_shadowing_db(stream(seed, Host.SHADOWING), num_clients, channel.shadowing_db)
        power = power * from_db(-shadow_db)
    if channel.scale_range is not None:
        power = 2 * rescale_log(np.sqrt(power / 2), *channel.scale_range) ** 2
    for name in ("mean", "std", "k_factor_db"):
        if np.ndim(value := getattr(channel.fading, name)):
            validate.shape(f"fading.{name}", value, (num_clients,))
    return Placement(distance, power * channel.fading.second_moment, los, k_factor)


def _seen(fading: Fading, k_factor_db: Floats | None) -> Fading:
    """The law of fading with the K factors of the devices, where it leaves them to the site."""
    if fading.kind != "38.901" or k_factor_db is None:
        return fading
    return Fading("rician", fading.coherence_rounds, tuple(float(k) for k in k_factor_db))


class Rows:
    """The trace of one seed to one antenna in rounds that are asked for in order: nothing is kept, and how many are
    taken at a time changes no number."""

    def __init__(self, channel: Channel, num_clients: int, rounds: int, seed: int, antenna: int = 0):
        for name, value, least in (("num_clients", num_clients, 1), ("rounds", rounds, 1), ("seed", seed, 0)):
            validate.whole(name, value, least)
        self._channel, self._clients = channel, num_clients
        single = np.random.default_rng(seed) if channel.draw_order == "single" else None
        placed = place(channel, num_clients, seed, single)
        fading = _seen(channel.fading, placed.k_factor_db)
        self._rms_gain = np.sqrt(placed.mean_power_gain)
        self._law = law_of(fading, stream(seed, Host.FADING, antenna))
        if single is not None:
            self._law = by_parts_law(single, rounds * num_clients)
        drift, pilots = channel.drift, channel.pilots
        self._drift = None if drift is None else Levels(drift, num_clients, stream(seed, Host.DRIFT))
        known = None if pilots is None else Estimates(pilots, fading, rounds, stream(seed, Host.PILOTS))
        self._known, self._csi, self._coins = known, stream(seed, Host.CSI, antenna), stream(seed, Host.COINS)
        self._late = None if channel.stale is None else Late(channel.stale, fading, self._law, self._rms_gain)

    def take(self, rounds: int) -> Trace:
        """The next rounds, leaves (rounds, K)."""
        shape = (rounds, self._clients)
        rms_gain = np.broadcast_to(self._rms_gain, shape).copy()
        if self._late is not None:
            gain, estimate = self._late.take(rms_gain)
            held = self._late.correlation * rms_gain
            return Trace(gain, estimate, rms_gain, held, held, held, self._coins.random(shape))
        if self._drift is not None:
            rms_gain *= self._drift.take(rounds)
        gain = self._law(rms_gain)
        known = RmsEstimate(rms_gain, rms_gain, rms_gain) if self._known is None else self._known.take(rms_gain)
        estimate = gain if self._channel.csi is None else estimates(self._channel.csi, gain, self._csi)
        return Trace(gain, estimate, rms_gain, known.estimate, known.low, known.high, self._coins.random(shape))


def draw(channel: Channel, num_clients: int, rounds: int, seed: int) -> Trace:
    """Draw the trace of one run, leaves (T, K), or play the first rows of a file; M antennas: also `array` (T, K, M).

    The gains are those of the first antenna, and the same for any M, until `antennas.receive` forms the beam.

    >>> trace = draw(Channel(), num_clients=3, rounds=2, seed=0)
    >>> trace.gain.shape, trace.rms_gain[0]
    ((2, 3), array([1., 1., 1.]))
    """
    if channel.trace is not None:
        played = open_recording(channel.trace, antennas=channel.antennas)
        validate.shape(f"{channel.trace.file}: devices that take part", played.names, (num_clients,))
        coin = stream(seed, Host.COINS).random((rounds, num_clients))
        return play(played, coin, 0, seed, channel.csi)
    each = (Rows(channel, num_clients, rounds, seed, antenna) for antenna in range(channel.antennas))
    first, *others = (rows.take(rounds) for rows in each)
    if not others:
        return first
    every = [first, *others]
    array, known = (np.stack([getattr(one, name) for one in every], axis=-1) for name in ("gain", "estimate"))
    return ArrayTrace(*first, array, known)  # type: ignore[return-value]


def draw_seeds(channel: Channel, num_clients: int, rounds: int, seeds: Sequence[int]) -> Trace:
    """Draw one trace per seed, leaves (S, T, K)."""
    traces = [draw(channel, num_clients, rounds, seed) for seed in seeds]
    return type(traces[0])(*(np.stack(leaves) for leaves in zip(*traces, strict=True)))


def with_gains(
    channel: Channel, mean_power_gain: Sequence[float] | Floats, k_factor_db: Floats | None = None
) -> Channel:
    """The same channel on given devices: their mean gains replace geometry, path loss, shadowing and `scale_range`.

    `k_factor_db` (K,) are those of a 38.901 site, for fading that leaves them to it.
    """
    given = tuple(float(gain) for gain in mean_power_gain)
    fading = _seen(channel.fading, k_factor_db)
    return replace(
        channel,
        geometry=None,
        path_loss=None,
        scale_range=None,
        shadowing_db=0.0,
        mean_power_gain=given,
        fading=fading,
    )
