"""Could a radio do this? Signal-to-noise ratio, receiver resolution, grid tolerance, traffic. NumPy, float64.

Every encrypted run prints these. They are honest rather than kind: a coefficient of a 109-bit ring sent as one
amplitude needs 645 dB.
"""

import math
from typing import NamedTuple

from otafl.core import validate
from otafl.crypto.budget import Fading, air_gain
from otafl.crypto.parameters import Parameters

GRID_ASSUMPTION = "channel coefficients are exact multiples of 2^-f; real radio channels are not"
PUBLISHED_PAYLOAD_BYTES = 8  # one float64: what the expansion is measured against


def amplitude_snr_db(log2_q: float, Omega: float = 1.0, sigma_w: float = 1.0) -> float:
    """Power q^2/12 of one coefficient sent as one amplitude, through E h^2 = Omega, over the noise. EEZOFL 7.2

    >>> round(amplitude_snr_db(109), 1), round(amplitude_snr_db(218), 1)
    (645.5, 1301.7)
    """
    validate.not_negative("sigma_w", sigma_w)
    if sigma_w == 0:
        return math.inf
    return 20 * log2_q * math.log10(2) + 10 * math.log10(Omega / (12 * sigma_w**2))


def accepted_snr_db(log2_q: float, scale_bits: int, tau: float, n: int, S_O: float, gain: float | None = None) -> float:
    """SNR per device that leaves a decoded standard deviation tau from receiver noise alone. EEZOFL 7.2

    `gain` is `budget.air_gain`; left out, that of fixed-point rounds with secrets in {-1, 1}. Without a radio: -inf.
    """
    validate.positive("tau", tau)
    gain = 5 / 3 * n * S_O if gain is None else gain
    wide = log2_q - scale_bits - math.log2(tau)
    return 20 * wide * math.log10(2) + 10 * math.log10(gain / 12) if gain else -math.inf


def receiver_bits(log2_q: float, N: int, Omega: float) -> int:
    """Resolution of a receiver that tells apart every integer of the sum of N coefficients.

    >>> receiver_bits(109, 10, 2.0), receiver_bits(218, 10, 2.0)
    (113, 222)
    """
    return math.ceil(log2_q + max(math.log2(N), 0.5 * math.log2(N * Omega)))


def grid_tolerance(p: Parameters, channel: Fading, tau: float, mode: str = "fixed-point") -> float:
    """delta: rms distance of the channel from the grid (or drift between phases) that costs a decoded error tau.

    EEZOFL 7.1 (iii): a received symbol is off by delta q sqrt(N / 12), which travels as receiver noise does; for
    fixed-point rounds and signs error = delta (q / Lambda) sqrt((5/3) N n S_O / 12), before it wraps.
    """
    spread = math.sqrt(air_gain(p, channel, mode) * channel.N / 12)
    return float(tau / spread * 2.0 ** (p.scale_bits - p.log2_q)) if spread else math.inf


class Traffic(NamedTuple):
    """Per device and round. EEZOFL 3.9"""

    ciphertext_bytes: int
    expansion: float  # ciphertext bytes per byte of a float64 scalar
    uplink_bits: int
    downlink_bits: int  # the broadcast key and c1; not counted by the paper
    storage_bits: int  # a, b_i and s_i
    symbols: int  # analog: one per coefficient
    digital_seconds: float | None  # at 1 bit/s/Hz; None where no bandwidth is stated
    analog_seconds: float | None  # one symbol per second and hertz


def traffic(p: Parameters, bandwidth_hz: float | None, mode: str = "fixed-point") -> Traffic:
    """What one device sends, hears and stores.

    Phases with a key per round (all but digital, hybrid, single-key) send b_i again each time.
    """
    if bandwidth_hz is not None:
        validate.positive("bandwidth_hz", bandwidth_hz)
    n, bits, kept = p.ring.n, p.ring.bits, p.layout.kept.size
    coefficients = n + kept  # c1 whole, c0 as far as it is needed
    coefficients += kept if mode != "single-key" else 0
    coefficients += n if mode not in ("digital", "hybrid", "single-key") else 0
    down = (n if mode not in ("digital", "hybrid", "single-key") else 0) + (n if mode != "single-key" else 0)
    cipher = -(-(n + kept) * bits // 8)
    return Traffic(
        ciphertext_bytes=cipher,
        expansion=cipher / (PUBLISHED_PAYLOAD_BYTES * p.P),
        uplink_bits=coefficients * bits,
        downlink_bits=down * bits,
        storage_bits=2 * n * bits + n,
        symbols=coefficients,
        digital_seconds=coefficients * bits / bandwidth_hz if bandwidth_hz else None,
        analog_seconds=coefficients / bandwidth_hz if bandwidth_hz else None,
    )
