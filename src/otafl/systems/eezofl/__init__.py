"""EEZOFL: scalars of zero-order learning, encrypted under the sum of all keys (`otafl.crypto`).

policy           the scheme; settings chooses its noise and a ring for a site
convergence      step schedules and the constants of Theorem 2
host_training    encrypted training outside the compiled loop, with operating-system keys
planner          `otafl plan eezofl`: planner_inputs, planner_symbols, from_experiment
reproduce        Table III, Figures 2 and 3; reproduce_tables: Tables I and II; reproduce_failing: Figure 3's scan
"""

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
