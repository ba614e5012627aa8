"""EEZOFL: scalars of zero-order learning, encrypted under the sum of all keys."""

from otafl.systems.system import Scheme, System

SYSTEM = System(
    name="eezofl",
    summary="encrypted scalars of zero-order learning",
    package=__name__,
    schemes={
        "eezofl": Scheme(
            "EEZOFL: zero-order scalars, in the clear or encrypted over the air",
            "policy:eezofl",
            settings="settings:settings",
            clients={"kind": "zero-order", "directions": 64, "clip_norm": 0.2, "batch": 0, "radius": 0.05},
            weighs=False,
            antennas="one",
            array_note="its uplinks decode one received sum, encrypted or not",
        ),
    },
    planner="planner:PLANNER",
)
