"""CARES: receive scalings certified for convergence, privacy and participation; fixed, or a bandit among them.

policy           the certified scaling, fixed; settings chooses one for a site
adaptive         a budgeted bandit among the certified ones, inside the loop
problem, checks  all that a certificate depends on, and what is refused
arms             certified initialisation on a grid; planned_sequence: of a sequence of rounds
sets             the four feasible sets at a fixed horizon, by intervals, monotone and constraint_ends
conv_budget      can a convergence target be held online?
relax            the least change of a target that makes some arm feasible
closed_form      diagnostics beside the certified search
summary          a certificate as plain columns
certifier        the mathematics under one name
planner          `otafl plan cares`: planner_inputs, from_experiment, picture
reproduce        tables and the figures of their runs, by reproduce_figures, reproduce_claims and
                 reproduce_scalings; reproduce_certificates: Figure 2 and the noise sweep;
                 reproduce_controller: the bandit over the settings that the paper leaves open
"""

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
