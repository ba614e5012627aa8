"""Bias-variance power control's mathematics: bound, exact solver, published method, yardsticks. Host, float64."""

from otafl.systems.biasvar.bound import (
    BoundParams,
    Design,
    Parts,
    Radio,
    bound_parts,
    check,
    evaluate,
    normal_form,
    params_from_rho,
    small_root,
    solve_exact,
    unit,
)
from otafl.systems.biasvar.probe import Probe, minibatch_variance, probe_kappa_L
from otafl.systems.biasvar.sca import solve_sca
from otafl.systems.biasvar.tradeoff import Frontier, Split, frontier, sensitivity, young_split
from otafl.systems.biasvar.yardsticks import (
    Lcpc,
    design_common_gamma,
    design_lcpc,
    design_min_noise,
    design_zero_bias,
)

__all__ = [
    "BoundParams", "Design", "Frontier", "Lcpc", "Parts", "Probe", "Radio", "Split", "bound_parts", "check",
    "design_common_gamma", "design_lcpc", "design_min_noise", "design_zero_bias", "evaluate", "frontier",
    "minibatch_variance", "normal_form", "params_from_rho", "probe_kappa_L", "sensitivity", "small_root", "solve_exact",
    "solve_sca", "unit", "young_split",
]  # fmt: skip
