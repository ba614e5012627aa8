"""Where the devices are: distances to the server in metres. Host, NumPy, float64."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Floats
from otafl.core.errors import InputError

Kind = Literal["disc", "ring", "interval", "given"]


@dataclass(frozen=True)
class Geometry:
    """How distances are drawn.

    disc: uniform over the area within `high_m`; ring: over the area between `low_m` and `high_m`; interval: the
    distance itself is uniform in [low_m, high_m]; given: `distances_m`, one per device. `clamp_m`, where given, lifts
    smaller distances to it; nothing is clamped unless this says so.
    """

    kind: Kind
    high_m: float | None = None
    low_m: float | None = None
    distances_m: tuple[float, ...] | None = None
    clamp_m: float | None = None

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    def __post_init__(self) -> None:
        validate.one_of("kind", self.kind, ("disc", "ring", "interval", "given"))
        between = {"low_m", "high_m"}
        needs = {"disc": {"high_m"}, "ring": between, "interval": between, "given": {"distances_m"}}
        for name in ("low_m", "high_m", "distances_m"):
            value, needed = getattr(self, name), name in needs[self.kind]
            if needed and value is None:
                raise InputError(f"{name} is missing; geometry kind={self.kind!r} needs it")
            if not needed and value is not None:
                raise InputError(f"{name}={value!r} has no meaning for geometry kind={self.kind!r}")
            if value is not None:
                validate.positive(name, value)
        if self.low_m is not None and self.high_m is not None and self.low_m >= self.high_m:
            raise InputError(f"low_m={self.low_m!r} must be < high_m={self.high_m!r}")
        if self.clamp_m is not None:
            validate.positive("clamp_m", self.clamp_m)


def in_disc(rng: np.random.Generator, num_clients: int, radius_m: float) -> Floats:
    """Distances (K,) of points uniform in a disc: radius * sqrt(U)."""
    return radius_m * np.sqrt(rng.uniform(size=num_clients))


def in_ring(rng: np.random.Generator, num_clients: int, low_m: float, high_m: float) -> Floats:
    """Distances (K,) of points uniform between two circles."""
    return np.sqrt(rng.uniform(low_m**2, high_m**2, num_clients))


def in_interval(rng: np.random.Generator, num_clients: int, low_m: float, high_m: float) -> Floats:
    """Distances (K,) that are themselves uniform."""
    return rng.uniform(low_m, high_m, num_clients)


def distances(geometry: Geometry, num_clients: int, rng: np.random.Generator) -> Floats:
    """Draw the distances (K,) in metres.

    >>> distances(Geometry("given", distances_m=(5.0, 80.0), clamp_m=10.0), 2, np.random.default_rng(0))
    array([10., 80.])
    """
    low: Any = geometry.low_m
    high: Any = geometry.high_m
    if geometry.kind == "disc":
        distance = in_disc(rng, num_clients, high)
    elif geometry.kind == "ring":
        distance = in_ring(rng, num_clients, low, high)
    elif geometry.kind == "interval":
        distance = in_interval(rng, num_clients, low, high)
    else:
        validate.shape("distances_m", geometry.distances_m, (num_clients,))
        distance = np.array(geometry.distances_m, float)
    return distance if geometry.clamp_m is None else np.maximum(distance, geometry.clamp_m)
