"""Encryption for over-the-air sums: exact ring arithmetic, xMK-CKKS, the four-phase protocol, and its honest budget.

    ring, ntt         Z_q[X]/(X^n+1) as residues, exact, jit-able
    randomness        operating-system randomness and exact samplers
    parameters        what a job agrees on; security table
    scaling           floats to residues and back, channel grid, packing
    common, xmkckks   the common polynomial; keys, encryption, shares
    messages, participant   what devices publish and commit to; what they refuse
    modes, overair    channels on a grid; the protocol, failure detection
    round_sum         the same round for simulation under scan
    unreduced, realchannel   comparisons that are insecure or must fail
    budget, choosing, feasibility   noise, parameters, radio
    uplink, simulation   the same inside a run

Importing needs numpy and jax only.
"""

from otafl.crypto.budget import (
    Fading,
    Headroom,
    NoiseBudget,
    average_variance,
    decoded_variance,
    fading,
    headroom,
    largest_f,
    noise_budget,
    on_grid,
    smudging_sigma,
    variance_given,
)
from otafl.crypto.choosing import Choice, plan_parameters
from otafl.crypto.feasibility import accepted_snr_db, amplitude_snr_db, grid_tolerance, receiver_bits, traffic
from otafl.crypto.parameters import Parameters, security_level
from otafl.crypto.ring import RING_4096, RING_8192, Ring
from otafl.crypto.scaling import quantise_channel

__all__ = [
    "RING_4096", "RING_8192", "Choice", "Fading", "Headroom", "NoiseBudget", "Parameters", "Ring",
    "accepted_snr_db", "amplitude_snr_db", "average_variance", "decoded_variance", "fading",
    "grid_tolerance", "headroom", "largest_f", "noise_budget", "on_grid", "plan_parameters", "quantise_channel",
    "receiver_bits", "security_level", "smudging_sigma", "traffic", "variance_given",
]  # fmt: skip
