"""What a scheme puts on the link: symbols over the air, or bits on a digital one, and how long that takes.

The digital reference sends bits device after device, each at the mean rate log2(1 + SNR) of its own channel at full
power: one code over many fades, no headers, no pilots. That is kinder to it than any real link.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from otafl.channels.channel import Rows
from otafl.core.arrays import Array
from otafl.core.plan import Deployment
from otafl.core.uplink import float_bits
from otafl.runs.sites import bandwidth_of, site_of

if TYPE_CHECKING:
    from otafl.runs.execution import Execution

FADES = 32  # rounds that a mean rate is taken over


def mean_rates(gain: Array, deployment: Deployment) -> np.ndarray:
    """(K,) bits per complex channel use from gains (T, K): the energy of a round spread over its numbers.

    >>> site = Deployment(np.full(1, 9610.0), 0.5, 0.5, np.ones(1), 9610)
    >>> mean_rates(np.sqrt(np.array([[3.0], [7.0]])), site).tolist()
    [2.5]
    """
    snr = np.abs(gain) ** 2 * np.asarray(deployment.energy, float) / (deployment.dim * 2 * deployment.noise_var)
    return np.asarray(np.log2(1 + snr).mean(0))


def uses_in_turn(bits: float, rates: Array) -> float:
    """Channel uses until every device has sent so many bits.

    >>> round(uses_in_turn(8 * 9610, np.log2(1 + np.array([10.0, 5, 20, 8]))))
    93721
    """
    return float(np.sum(bits / rates))


def traffic(run: "Execution") -> dict[str, Any]:
    """Per round: bits of a device (None on the air), uses of a digital link; and the bandwidth, None if unknown."""
    experiment, message = run.experiment, run.setup.sites[0].message
    bits = None if run.uplink.bits is None else run.uplink.bits(message.dim)
    channel, deployment = site_of(experiment, message, run.task.sizes[0])
    needed, uses = float_bits(message.dim) if bits is None else bits, None
    if deployment.noise_var > 0:
        rounds = min(FADES, experiment.rounds)
        fades = Rows(channel, experiment.task.clients, rounds, experiment.seed_list[0])
        # round by round: all of them of a million devices are gigabytes
        rates = sum(mean_rates(fades.take(1).gain, deployment) for _ in range(rounds)) / rounds
        uses = uses_in_turn(needed, rates)
    return {
        "bandwidth_hz": bandwidth_of(experiment),
        "bits": bits,
        "digital_uses": uses,
    }
