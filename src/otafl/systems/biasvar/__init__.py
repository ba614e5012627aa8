"""Bias-variance power control (Ul Abrar, Michelusi): fixed pre-scalers that trade bias for noise; its rivals."""

from otafl.systems.system import Scheme, System

HOLDS = "its design holds: a fixed beam is heard like one antenna"

SYSTEM = System(
    name="biasvar",
    summary="fixed pre-scalers that trade bias against noise",
    package=__name__,
    schemes={
        "biasvar": Scheme(
            "bias-variance: fixed pre-scalers from the exact design, truncated inversion",
            "policy:biasvar",
            settings="settings:settings",
            antennas="fixed",
            array_note=HOLDS,
        ),
        "opc": Scheme("OPC: the per-round optimum of power control, weak devices at full power", "opc:opc"),
        "lcpc": Scheme(
            "LCPC: one common pre-scaler, truncated inversion", "lcpc:lcpc", antennas="fixed", array_note=HOLDS
        ),
        "bbfl": Scheme(
            "BB-FL: only devices near the server, or in turn with all of them", "bbfl:bbfl", antennas="fixed"
        ),
    },
    planner="planner:PLANNER",
)
