"""CARES' certificates: which receive scalings meet convergence, privacy and participation targets. Host, float64.

>>> from otafl.systems.cares.certifier import Problem, certify
>>> targets = {"eps_target": 50, "delta": 1e-5}
>>> problem = Problem([0.5, 0.3, 0.2], [1.0, 0.8, 0.5], noise_std=0.2, num_params=10, loss_gap=1.0, **targets)
>>> answer = certify(problem, arms=[0.05, 0.1, 0.2])
>>> answer.label, answer.eta_init, answer.arms.horizon.tolist()
('certified', 0.2, [633, 158, 39])
"""

from otafl.bounds.budget import eps_of, horizons, zcdp_budget
from otafl.bounds.convergence import Constants, ConvBound, bound_constants
from otafl.bounds.envelopes import asymmetry, drop_prob, drop_rate, dropped_weight, eta_peak
from otafl.bounds.sequence import SequenceCertificate, certify_sequence
from otafl.core.plan import NO_CERTIFICATE
from otafl.systems.cares.arms import Arms, Certificate, Verdict, auto_grid, certify, evaluate_arms, judge
from otafl.systems.cares.closed_form import eta_budget, eta_LT
from otafl.systems.cares.constraint_ends import eta_P, eta_Q, eta_U
from otafl.systems.cares.conv_budget import ConvBudget, conv_budget
from otafl.systems.cares.monotone import is_upper_interval
from otafl.systems.cares.planned_sequence import certify_planned
from otafl.systems.cares.problem import Problem, default_loss_gap
from otafl.systems.cares.relax import NearestArm, Relaxation, nearest_arm, relaxations
from otafl.systems.cares.sets import FeasibleSets, GridSets, feasible_sets, grid_sets

__all__ = [
    "NO_CERTIFICATE", "Arms", "Certificate", "Constants", "ConvBound", "ConvBudget", "FeasibleSets", "GridSets",
    "NearestArm", "Problem", "Relaxation", "SequenceCertificate", "Verdict", "asymmetry", "auto_grid",
    "bound_constants", "certify", "certify_planned", "certify_sequence", "conv_budget", "default_loss_gap", "drop_prob",
    "drop_rate", "dropped_weight", "eps_of", "eta_LT", "eta_P", "eta_Q", "eta_U", "eta_budget", "eta_peak",
    "evaluate_arms", "feasible_sets", "grid_sets", "horizons", "is_upper_interval", "judge", "nearest_arm",
    "relaxations", "zcdp_budget",
]  # fmt: skip
