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
            informative="settings:informative",
            array_note="participation holds (by H3 where the beam follows the fading, by one antenna's law where it is "
            "fixed); the horizon does not, a round's cost follows the angle to the beam: the ledger ends the run",
        ),
        "cares-adaptive": Scheme(
            "CARES: a budgeted bandit picks the receive scaling each round",
            "adaptive:cares_adaptive",
            plans_as="cares-static",
            around="settings:around",
            antennas="one",
            array_note="its own filter counts one antenna, and no ledger can cut a closed loop in advance",
        ),
    },
    planner="planner:PLANNER",
)
