"""What the field compares with over an analog uplink: policies alone, one file each, nothing else is special.

    liu_simeone      power over rounds, as allocation solves it; slots: its orthogonal twin; liu_simeone_planner
    seif, jammer     artificial noise, as split shares the power; seif_planner
    random_participation, phase_only, cotaf
    settings         what they choose for a site; target: equal rounds that spend the privacy target
    planner_inputs   what the planners share

Digital rivals are in `otafl.systems.digital`, non-coherent ones in `otafl.systems.noncoherent`.
"""

from otafl.systems.system import Scheme, System

OWN_LEVELS = "its own privacy levels count one antenna; the ledger counts all of them and ends the run earlier"

SYSTEM = System(
    name="rivals",
    summary="power control that the field compares with",
    package=__name__,
    advised=False,
    schemes={
        "liu-simeone": Scheme(
            "power over rounds under one privacy budget, optimal in hindsight (or online)",
            "liu_simeone:liu_simeone",
            settings="settings:liu_simeone",
            planner="liu_simeone_planner:PLANNER",
            array_note=OWN_LEVELS,
        ),
        "seif": Scheme(
            "aligned messages, the rest of the energy as artificial noise",
            "seif:seif",
            settings="settings:seif",
            planner="seif_planner:PLANNER",
            array_note=OWN_LEVELS,
        ),
        "random-participation": Scheme(
            "anonymous random participation: private coins, one amplitude",
            "random_participation:random_participation",
            settings="settings:random_participation",
        ),
        "phase-only": Scheme(
            "phases aligned, no power control",
            "phase_only:phase_only",
            settings="settings:phase_only",
            antennas="fixed",
        ),
        "jammer": Scheme(
            "a device without data hides the others by its noise",
            "jammer:jammer",
            settings="settings:jammer",
            array_note="two antennas null one jammer: counted is what the array leaves of its noise, if none colludes",
        ),
        "cotaf": Scheme(
            "model changes scaled by a public bound that shrinks with the step",
            "cotaf:cotaf",
            settings="settings:cotaf",
            antennas="fixed",
        ),
    },
)
