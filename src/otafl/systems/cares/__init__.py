"""CARES: receive scalings certified for convergence, privacy and participation; fixed, or a bandit among them."""

from otafl.systems.system import Scheme, System

SYSTEM = System(
    name="cares",
    summary="certified receive scaling, fixed or picked by a budgeted bandit",
    package=__name__,
    schemes={
        "cares-static": Scheme(
            "CARES: the certified receive scaling, fixed for the run",
            "policy:cares_static",
            settings="settings:settings",
        ),
        "cares-adaptive": Scheme(
            "CARES: a budgeted bandit picks the receive scaling each round", "adaptive:cares_adaptive"
        ),
    },
    planner="planner:PLANNER",
)
