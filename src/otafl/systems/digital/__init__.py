"""Digital rivals: one-bit votes that are added in the air, and quantised messages on orthogonal channels.

obda             policy and uplink of the votes; votes: their error and charge
orthogonal       a channel per device; rates: channel uses and time
settings         what they choose for a site
planner          `otafl plan orthogonal`
"""

from otafl.systems.system import Scheme, System

SYSTEM = System(
    name="digital",
    summary="digital rivals: majority votes, orthogonal channels",
    package=__name__,
    advised=False,
    schemes={
        "obda": Scheme(
            "one-bit votes added in the air, the server keeps the majority's sign",
            "obda:obda",
            settings="settings:obda",
            weighs=False,
            antennas="one",
            array_note="its charge is that of one received sum",
        ),
        "orthogonal": Scheme(
            "digital reference: quantised messages, a channel per device, own noise",
            "orthogonal:orthogonal",
            settings="settings:orthogonal",
            planner="planner:PLANNER",
            antennas="one",
            array_note="its rates are those of one antenna",
        ),
    },
)
