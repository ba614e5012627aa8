"""What a second receiver costs, where the site declares one. Host, float64.

Declared from above: how well it hears any device; from below: its own noise. It keeps both parts of what it receives.
Where it also hears the models, it holds the server's sums besides, and the artificial noise that both receive in common
may cancel: then no artificial noise counts at all, and

    1/z^2 = sensitivity^2 (amp^2 / server's trusted noise + |tx|^2 gain^2 antennas / own noise)

Proof: what is left are independent Gaussian noises of the two receivers, whose squared shifts add; noise that is taken
away can only help an observer.
"""

from dataclasses import dataclass

import numpy as np

from otafl.core import validate
from otafl.core.plan import Events, Plan


@dataclass(frozen=True)
class Eavesdropper:
    """A receiver that is not the server."""

    gain: float  # largest amplitude gain from any device to one of its antennas, in any round
    noise_std: float  # its noise per real dimension and antenna, at least
    antennas: int = 1
    downlink: bool = True  # whether it hears the models

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
    server = np.zeros_like(own)
    if who.downlink:
        with np.errstate(divide="ignore", invalid="ignore"):
            server = np.where(released.amp > 0, released.amp**2 / released.receiver_var[..., None], 0.0)
    amp = np.where(released.live[..., None], np.sqrt(own + server), 0.0)
    return released._replace(
        amp=amp, artificial_var=np.zeros_like(amp), receiver_var=np.ones_like(released.receiver_var), leak_angle=0.0
    )
