"""The analog uplink to a server with M antennas: the round of one antenna, the charge of all of them. Host, float64.

Learning uses what the beam makes of the array (`channels.antennas.receive`); the ledger charges `privacy.antennas` as
whitened events. FULL is the promise; COMBINED assumes a server that throws away all but its beam's output and is said
to be weaker wherever it is used.
"""

import numpy as np

from otafl.core.arrays import Array
from otafl.core.plan import Deployment, Events, Message, Plan, Receiver, Trace
from otafl.core.uplink import ANALOG, Uplink
from otafl.privacy.antennas import full_charge, uncertain_charge
from otafl.privacy.events import events, whitened

WEAKER = (
    "WEAKER ADVERSARY: channel.server='combined' assumes that the server forgets all but its beam's output; "
    "whoever keeps all antennas learns more"
)

EVERY_ANTENNA = "every antenna's own noise (trusted part) and, where clients send any, their artificial noise"


def array_error(deployment: Deployment) -> float:
    """gamma with |h - estimate| <= gamma |estimate| at every antenna, from the declared gain and phase errors."""
    error, phase = float(deployment.gain_error), deployment.phase_error
    if phase is None:  # gain = estimate (1 + e) with |e| <= gain_error
        return error
    return float(np.sqrt(error**2 + 2 * (1 + error) * (1 - np.cos(phase))))


def release_full(plans: Plan, trace: Trace, deployment: Deployment, message: Message, colluders: Array) -> Events:
    """(A3), or (A4) where gains are known to a declared error alone: whitened events (T, K).

    The chance to send is unknown where the beam follows the fading (NaN): it counts as certain.
    """
    plain, tx, noise = _common(plans, trace, deployment, message)
    unit = np.ones(tx.shape[-1])
    given = (trace.array_estimate, tx, noise, float(deployment.trusted_noise_var), unit)
    error = array_error(deployment)
    charge = full_charge(*given, colluders) if error == 0 else uncertain_charge(*given, error, colluders)
    return whitened(plain, np.where(plain.sensitivity > 0, np.sqrt(charge), 0.0))


def release_combined(plans: Plan, trace: Trace, deployment: Deployment, message: Message, colluders: Array) -> Events:
    """Re f^H y alone: an amplitude and a variance as with one antenna, errors of the array counted at their worst."""
    plain, tx, noise = _common(plans, trace, deployment, message)
    loose = array_error(deployment) * np.sqrt(np.sum(np.abs(trace.array_estimate) ** 2, axis=-1))
    amp = np.abs(np.real(trace.estimate * tx)) + loose * np.abs(tx)
    arriving = np.maximum(np.abs(np.real(trace.estimate * noise)) - loose * np.abs(noise), 0.0)
    return plain._replace(amp=amp, artificial_var=arriving**2, leak_angle=0.0)


def array_uplink(receiver: Receiver) -> Uplink:
    """The uplink to this receiver; its card says what is charged."""
    return ANALOG._replace(
        release=release_full if receiver.server == "full" else release_combined,
        assumed=assumed(receiver),
        alarm="" if receiver.server == "full" else WEAKER,
        trusted=EVERY_ANTENNA if receiver.server == "full" else "",
    )


def is_array(uplink: Uplink) -> bool:
    """Whether an uplink is charged by the antennas it is heard with."""
    return uplink.release in (release_full, release_combined)


def assumed(receiver: Receiver) -> tuple[str, ...]:
    """For the privacy card."""
    heard = f"the server has {receiver.antennas} antennas and combines them by beam {receiver.beam!r}"
    if receiver.server == "combined":
        return (f"{heard}; the adversary keeps the beam's output alone, a weaker one than the server",)
    return (
        f"{heard}; charged is what all antennas together tell, both parts of each (full covariance), never the "
        "combined gain",
        "trusted receiver noise is that of every antenna by itself; artificial noise counts along its own direction, "
        "if those who send it keep it to themselves",
    )


def _common(plans: Plan, trace: Trace, deployment: Deployment, message: Message) -> tuple[Events, Array, Array]:
    """What does not depend on the array, and scales (T, K) that are zero in dead rounds."""
    known = np.where(np.isnan(plans.send_prob), 1.0, plans.send_prob)
    plain = events(plans._replace(send_prob=known), trace, deployment, message)
    live = plain.live[..., None]
    return plain, np.where(live, plans.tx, 0.0), np.where(live, plans.noise, 0.0)
