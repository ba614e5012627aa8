"""Bias-variance power control (Ul Abrar, Michelusi): fixed pre-scalers that trade bias for noise; its rivals.

policy           the scheme; settings chooses rho for a site
bound            the bound, the normal form and the optimal pre-scalers
exact, kkt       that problem solved exactly, by its optimality conditions; sca: as published
tradeoff         the frontier, the price of a wrong kappa, a tighter bound
yardsticks       cheap designs that an optimal one must beat
probe            kappa and L by measurement
design           the mathematics under one name
opc, lcpc, bbfl  the rivals, a scheme each
planner          `otafl plan biasvar`: planner_inputs, from_experiment, picture
reproduce        Figure 2; reproduce_designs: what designs promise without training
"""

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
