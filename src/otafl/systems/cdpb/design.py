"""CDPB's mathematics: participation, noise, convergence, privacy, and the solvers on top. Host, float64."""

from otafl.systems.cdpb.accounting import (
    VISIBLE,
    Charge,
    EpsDelta,
    Loss,
    Realised,
    eps,
    eps_delta,
    eps_round,
    inv_z2,
    losses,
    make_charge,
    realised,
    theorem1,
)
from otafl.systems.cdpb.certificate import Certificate, feasibility_law
from otafl.systems.cdpb.convergence import gamma, gamma_of, remarks, weight_sum
from otafl.systems.cdpb.detection import Detection, detection_of_design, energy_detection
from otafl.systems.cdpb.joint import Solution, solve
from otafl.systems.cdpb.model import (
    IDLE,
    NOISE_FREE,
    NOISY,
    ExpGain,
    Params,
    Scheme,
    Stats,
    error_energy,
    scheme,
    stats,
)
from otafl.systems.cdpb.paper import (
    PAPER,
    PaperSolution,
    algorithm2,
    best_load,
    lemma1,
    lemma1_typeset,
    lemma2,
    solve_paper,
    stage1,
    theorem3,
)
from otafl.systems.cdpb.participants import B_exact, Draw, Inverse, draw_rounds, inverse_moments
from otafl.systems.cdpb.portion import BestPortion, best_portion, idle_twin
from otafl.systems.cdpb.rho_schedule import Law, follow, resolve_on_change, unknown
from otafl.systems.cdpb.solver import Design

__all__ = [
    "IDLE", "NOISE_FREE", "NOISY", "PAPER", "VISIBLE", "B_exact", "BestPortion", "Certificate", "Charge", "Design",
    "Detection", "Draw", "EpsDelta", "ExpGain", "Inverse", "Law", "Loss", "PaperSolution", "Params", "Realised",
    "Scheme", "Solution", "Stats", "algorithm2", "best_load", "best_portion", "detection_of_design", "draw_rounds",
    "energy_detection", "eps", "eps_delta", "eps_round", "error_energy", "feasibility_law", "follow", "gamma",
    "gamma_of", "idle_twin", "inv_z2", "inverse_moments", "lemma1", "lemma1_typeset", "lemma2", "losses",
    "make_charge", "realised", "remarks", "resolve_on_change", "scheme", "solve", "solve_paper", "stage1", "stats",
    "theorem1", "theorem3", "unknown", "weight_sum",
]  # fmt: skip
