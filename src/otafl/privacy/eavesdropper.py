"""What a second receiver costs, where the site declares one. Host, float64.

Declared from above: how well it hears any device; from below: its own noise. It keeps both parts of what it receives.
It is charged for the server's sums besides: where it hears the models, it holds them; where it does not, the messages
of the other devices carry on what the server learned of client k, louder maybe than client k itself. The artificial
noise that both receive in common may cancel: no artificial noise counts at all, and

    1/z^2 = sensitivity^2 (amp^2 / server's trusted noise + |tx|^2 gain^2 antennas / own noise)                   (O1)

Proof: given what both receivers heard before, the models are the same in both worlds, and so are the messages of all
others. What is left are independent Gaussian noises of the two receivers, whose squared shifts add; noise that is taken
away can only help an observer.

A closed loop has no plan that could be added up in advance, and the sum of the plan that it played is no guarantee. On
every path, though, its sums for the server stay within the cap (without artificial noise, which the cap may count and
(O1) does not), and no round passes a device's energy E: its message moves by at most sqrt(E) sensitivity/bound as it is
sent. So with T rounds at most, B the cap in zCDP,

    rho <= B + T E (sensitivity/bound)^2 gain^2 antennas / (2 own noise)                                          (O2)

is a filter of two receivers that never acts: adaptive composition holds under its fixed total.
"""

from dataclasses import dataclass

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.plan import Deployment, Events, Message, Plan
from otafl.privacy.events import whitened


@dataclass(frozen=True)
class Eavesdropper:
    """A receiver that is not the server."""

    gain: float  # largest amplitude gain from any device to one of its antennas, in any round
    noise_std: float  # its noise per real dimension and antenna, at least
    antennas: int = 1
    downlink: bool = True  # whether it hears the models; other devices' messages tell of them in any case

    def __post_init__(self) -> None:
        validate.positive("eavesdropper.gain", self.gain)
        validate.positive("eavesdropper.noise_std", self.noise_std)
        validate.whole("eavesdropper.antennas", self.antennas)


def overheard(plans: Plan, released: Events, who: Eavesdropper) -> Events:
    """The same rounds as this receiver meets them: amplitudes over unit noise, (T, K); no artificial noise counts.

    >>> ones = np.ones((1, 1))
    >>> plan = Plan(0.5 * ones, 0 * ones, np.inf * ones, ones[0], ones, ones[0] > 0)
    >>> run = Events(0.3 * ones, 0 * ones, ones > 0, ones, 0.09 * ones[0], ones[0] > 0, ones[0], ones[0])
    >>> round(float(overheard(plan, run, Eavesdropper(gain=0.2, noise_std=0.1)).amp[0, 0] ** 2), 9)
    2.0
    """
    own = (np.abs(plans.tx) * who.gain) ** 2 * who.antennas / who.noise_std**2
    with np.errstate(divide="ignore", invalid="ignore"):
        server = np.where(released.amp > 0, released.amp**2 / released.receiver_var[..., None], 0.0)
    return whitened(released, np.where(released.live[..., None], np.sqrt(own + server), 0.0))


def loudest(deployment: Deployment, message: Message, rounds: int, who: Eavesdropper) -> Array:
    """zCDP (K,) of what this receiver hears by itself in so many rounds at each device's full energy. (O2)

    >>> site = Deployment(np.array([4.0]), 0.0, 0.0, np.ones(1), 3)
    >>> told = Message(3, 1.0, np.ones(1), np.array([2.0]), np.ones(1), "client", "replace")
    >>> float(loudest(site, told, 5, Eavesdropper(gain=0.5, noise_std=1.0, antennas=2))[0])
    20.0
    """
    moved = np.asarray(deployment.energy, float) * (np.asarray(message.sensitivity, float) / message.bound) ** 2
    return np.asarray(rounds * moved * who.gain**2 * who.antennas / (2 * who.noise_std**2))
