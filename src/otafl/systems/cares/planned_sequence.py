"""The certificate of a planned sequence of CARES' own rounds. NumPy, float64."""

from numpy.typing import ArrayLike

from otafl.bounds.sequence import SequenceCertificate, certify_sequence
from otafl.core.errors import InputError
from otafl.systems.cares.problem import Problem


def certify_planned(problem: Problem, rx_scale: ArrayLike, predictable: bool = False) -> SequenceCertificate:
    """`certify_sequence` of CARES' own rounds with the receive scalings (T,) in a deployment."""
    if problem.local_steps > 1 or problem.antennas > 1:
        raise InputError("rx_scale: a sequence is certified for one local step and one antenna; leave it out")
    return certify_sequence(
        rx_scale,
        weights=problem.weights,
        noise_std=problem.noise_high,
        noise_std_low=problem.noise_low,
        num_params=problem.num_params,
        loss_gap=problem.loss_gap,
        delta=problem.delta,
        clip_norm=problem.clip_norm,
        step_size=problem.step_size,
        smoothness=problem.smoothness,
        grad_var=problem.effective_grad_var,
        constants=problem.constants,
        accounting=problem.accounting,
        channel_scale=problem.mu_low if problem.certify_with == "limits" else problem.channel_scale,
        max_power=problem.max_power,
        silence=problem.silence,
        sensitivity=problem.message_sensitivity(),
        gain_error_max=problem.gain_error_max,
        independent=problem.independent_channels,
        predictable=predictable,
        beside=problem.reward_zcdp(),
    )
