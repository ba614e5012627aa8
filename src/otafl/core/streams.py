"""Every random stream of a run, in one place, so that no two ever share numbers.

Host generators are `numpy.random.default_rng([seed, stream])` with a stream of `Host`. Inside the compiled loop the
seed's key is folded with the number of a round or with one of `Seed`; a round's key is folded with one of `Round`,
where `jax.random.split` has taken 0 (clients) and 1 (the air).
"""

from enum import IntEnum, unique


@unique
class Host(IntEnum):
    """Second word of the host's generators."""

    PARTITION = 1  # how data are dealt out
    PLACEMENT = 101
    SHADOWING = 102
    FADING = 103
    DRIFT = 104
    PILOTS = 105
    CSI = 106
    COINS = 107
    RING_PILOTS = 108  # pilots of encrypted uplinks
    RING_SETUP = 109  # the channel through which a control once aggregated its key
    LOW_BITS = 110  # below float32: no two scalars of a device are equal by rounding
    LINE_OF_SIGHT = 111
    ENVIRONMENT = 112  # h_E of 38.901 UMa
    RICE = 113  # K factors of 38.901
    TRACE_PHASE = 114  # phases of a trace file that has none
    OPC = 0x09C  # fading draws of OPC's normaliser
    CALIBRATION = 0xADA  # AdaScale's simulated traces


@unique
class Seed(IntEnum):
    """Folded into a seed's key, above every number of a round."""

    INIT = 2**31 - 1  # the initial model
    FEEDBACK = 2**31 - 3  # noise on what a policy inside the loop is told


@unique
class Round(IntEnum):
    """Folded into a round's key."""

    DIRECTION = 2**31 - 2  # directions of zero-order messages
