"""A certificate as plain columns, for JSON, tables and plots. It arranges what the other modules compute."""

from typing import Any

import numpy as np

from otafl.bounds.budget import horizons
from otafl.privacy import gaussian, zcdp
from otafl.systems.cares.arms import CONSTRAINTS, Certificate
from otafl.systems.cares.closed_form import eta_budget, eta_LT, low_truncation_terms
from otafl.systems.cares.conv_budget import conv_budget
from otafl.systems.cares.problem import Granularity, Problem
from otafl.systems.cares.relax import nearest_arm, relaxations
from otafl.systems.cares.sets import feasible_sets, grid_sets

_CURVE_POINTS = 200

NOTES = (
    "The bound treats the clipped gradients as unbiased and the loss as smooth everywhere; active clipping and ReLU "
    "networks satisfy neither (CARES E14).",
    "Privacy holds against whoever sees the received vectors through this receiver's noise, not against a quieter "
    "receiver, several antennas or a log of who was silent (CARES E21).",
    "Silent rounds are charged in full. Data sizes are treated as public.",
    "An empty feasible set means 'not certifiable with these bounds', not 'impossible'.",
)


LOCAL = (
    "L local steps: every client's loss is taken as smooth, batches as fresh in every step; the bias of clipping "
    "itself is not bounded."
)
ARRAY = (
    "M antennas: where the beam follows the fading, participation is bounded by P(anyone silent), for independent "
    "Rayleigh antennas and a beam never worse than the best of them. A round costs 1/cos^2 of the angle to the beam "
    "more, which no closed form bounds: horizons hold where 1/cos^2 <= exposure in every round of the public trace; "
    "the ledger sums what a trace really costs."
)


def summarise(problem: Problem, certificate: Certificate, rounds: int | None = None) -> dict[str, Any]:
    """Everything about the arms, the sets at a fixed horizon, closed forms and both privacy levels.

    rounds: horizon of the sets (14)-(18); None takes the horizon of the chosen arm, or of the median arm.
    """
    arms = certificate.arms
    middle = certificate.init if certificate.init is not None else len(arms.rx_scale) // 2
    fixed = rounds or max(int(arms.horizon[middle]), 1)
    changes = [] if certificate.feasible else relaxations(problem, certificate)
    return {
        "scheme": "cares",
        "label": certificate.label,
        "feasible": certificate.feasible,
        "eta_init": certificate.eta_init,
        "init": certificate.init,
        "conv_target": certificate.conv_target,
        "conv_target_given": certificate.conv_target_given,
        **_privacy_target(problem, certificate),
        **_arm_columns(problem, certificate),
        "F_H": arms.rx_scale[certificate.verdict.feasible],
        **_participation(problem),
        **_learning(problem),
        "eta_LT": eta_LT(problem),
        "eta_budget": eta_budget(problem),
        "low_truncation": dict(zip(("A", "D"), low_truncation_terms(problem), strict=True)),
        "at_rounds": _at_rounds(problem, arms.rx_scale, fixed),
        "sets": _sets(problem, certificate, fixed),
        "conv_budget": _conv_budget(problem, certificate, fixed),
        "privacy": {level: _level(problem, certificate, level) for level in ("client", "record")},
        "relaxations": [{**r._asdict(), "text": str(r)} for r in changes],
        "nearest_arm": None if certificate.feasible else nearest_arm(problem, certificate)._asdict(),
        "curves": _curves(problem, certificate, fixed),
        "targets": {
            "conv_target": certificate.conv_target,
            "eps_target": problem.eps_target,
            "max_asymmetry": problem.max_asymmetry,
            "max_dropped": problem.max_dropped,
        },
        "warnings": list(certificate.warnings),
        "notes": _notes(problem),
        **_extended(problem, arms.rx_scale),
    }


def _notes(problem: Problem) -> list[str]:
    first, receiver, *rest = NOTES
    local = [LOCAL] if problem.local_steps > 1 else []
    return [first, *local, receiver if problem.antennas == 1 and problem.exposure == 1 else ARRAY, *rest]


def _extended(problem: Problem, eta: np.ndarray) -> dict[str, Any]:
    """What local steps and antennas add, where they are asked for."""
    found: dict[str, Any] = {}
    if problem.local_steps > 1:
        found |= {name: getattr(problem, name) for name in ("local_steps", "local_step_size", "drift")}
    if problem.antennas > 1:
        found |= {"antennas": problem.antennas, "any_silent": problem.any_silent(eta)}
    if problem.antennas > 1 or problem.exposure > 1:
        found |= {"exposure": problem.exposure}
    return found


def _privacy_target(problem: Problem, certificate: Certificate) -> dict[str, Any]:
    return {
        "eps_target": problem.eps_target,
        "delta": problem.delta,
        "accounting": problem.accounting,
        "granularity": problem.granularity,
        "silence": problem.silence,
        "zcdp_budget": certificate.zcdp_budget,
        "reward_data": problem.reward_data,
        "reward_noise": problem.reward_noise,
        "reward_zcdp": float(problem.reward_zcdp().max()),
    }


def _arm_columns(problem: Problem, certificate: Certificate) -> dict[str, Any]:
    arms, verdict = certificate.arms, certificate.verdict
    parts = arms.conv_bound._asdict()
    return {
        "arms": arms.rx_scale,
        "zcdp": problem.zcdp(arms.rx_scale),
        "zcdp_cost": arms.zcdp_cost,
        "horizon": arms.horizon,
        "conv_bound": parts.pop("total"),
        "conv_parts": parts,
        "round_cost": problem.round_cost(arms.rx_scale),
        "drop_prob": arms.drop_prob,
        "dropped_weight": arms.dropped_weight,
        "asymmetry": arms.asymmetry,
        "eps_at_horizon": arms.eps_at_horizon,
        "informative": arms.informative,
        "feasible_arms": verdict.feasible,
        "passes": dict(zip(CONSTRAINTS, verdict.passes.T, strict=True)),
        "margin": dict(zip(CONSTRAINTS, verdict.margin.T, strict=True)),
        "usage": dict(zip(CONSTRAINTS, verdict.usage.T, strict=True)),
        "binding": verdict.binding,
    }


def _participation(problem: Problem) -> dict[str, Any]:
    return {
        "num_clients": problem.weights.size,
        "weights": problem.weights,
        "channel_scale": problem.channel_scale,
        "certify_with": problem.certify_with,
        "mu_low": problem.mu_low,
        "mu_high": problem.mu_high,
        "drop_rate": problem.drop_rate,
        "drop_rate_max": problem.drop_rate_max,
        "drop_rate_min": problem.drop_rate_min,
        "hardest_client": int(np.argmax(problem.drop_rate)),
        "easiest_client": int(np.argmin(np.where(problem.weights > 0, problem.drop_rate, np.inf))),
        "eta_peak": problem.eta_peak,
    }


def _learning(problem: Problem) -> dict[str, Any]:
    """Inputs of the bound as they were used, defaults included."""
    names = ("num_params", "clip_norm", "max_power", "step_size", "smoothness", "grad_var", "loss_gap")
    symbols = dict(zip(("C0", "C1", "C2", "C3"), problem.bound_constants, strict=True))
    return {
        **{name: getattr(problem, name) for name in names},
        "noise_std": problem.noise_low if problem.noise_low == problem.noise_high else problem.noise_std,
        "max_asymmetry": problem.max_asymmetry,
        "max_dropped": problem.max_dropped,
        "constants": {"set": problem.constants, **symbols},
    }


def _at_rounds(problem: Problem, eta: np.ndarray, rounds: int) -> dict[str, Any]:
    """Every arm after the same number of rounds: zCDP (13) and eps (11) of each client, Gamma (10)."""
    zcdp_each = rounds * problem.zcdp(eta)
    parts = problem.conv_bound(eta, rounds)._asdict()
    return {
        "rounds": rounds,
        "zcdp": zcdp_each,
        "eps": problem.eps_of(zcdp_each.max(-1)),
        "eps_each": problem.eps_of(zcdp_each),
        "conv_bound": parts.pop("total"),
        "conv_parts": parts,
    }


def _sets(problem: Problem, certificate: Certificate, rounds: int) -> dict[str, Any]:
    eta = certificate.arms.rx_scale
    found = feasible_sets(problem, rounds, certificate.conv_target, float(eta[0]), float(eta[-1]))
    grid = grid_sets(problem, eta, rounds, certificate.conv_target)
    return {**found._asdict(), "grid": grid._asdict()}


def _conv_budget(problem: Problem, certificate: Certificate, rounds: int) -> dict[str, Any] | None:
    if not np.isfinite(certificate.conv_target):
        return None
    return conv_budget(problem, certificate.arms.rx_scale, rounds, certificate.conv_target)._asdict()


def _level(problem: Problem, certificate: Certificate, level: Granularity) -> dict[str, Any] | None:
    """Cost and eps of the same rounds as one promise or the other; None where the record level is not defined."""
    if level == "record" and (problem.batch_sizes is None or problem.silence != "bound"):
        return None
    if level == "record" and problem.reward_data == "private_noisy" and problem.sizes is None:
        return None
    cost = problem.zcdp_cost(certificate.arms.rx_scale, level)
    spent = cost * certificate.arms.horizon
    unit = "any change of one client's data" if level == "client" else "one record replaced, per-example clipping"
    return {
        "unit": unit,
        "worst_client": int(np.argmax(problem.zcdp(certificate.arms.rx_scale[-1], level))),
        "reward_zcdp": float(problem.reward_zcdp(level).max()),
        "zcdp_cost": cost,
        "zcdp_at_horizon": spent,
        "eps_classic_at_horizon": zcdp.classic_eps(spent, problem.delta),
        "eps_rdp_at_horizon": zcdp.optimal_eps(spent, problem.delta),  # CARES E12: between the other two
        "eps_gaussian_at_horizon": gaussian.eps_from_rho(spent, problem.delta),
    }


def _curves(problem: Problem, certificate: Certificate, rounds: int) -> dict[str, Any]:
    """The four quantities over the range of the arms: the bound at each point's own horizon, eps at `rounds`."""
    eta = np.geomspace(certificate.arms.rx_scale[0], certificate.arms.rx_scale[-1], _CURVE_POINTS)
    cost = problem.zcdp_cost(eta)
    own = horizons(certificate.zcdp_budget, cost)
    return {
        "rx_scale": eta,
        "rounds": rounds,
        "conv_bound": problem.conv_bound(eta, own).total,
        "eps": problem.eps_of(rounds * cost),
        "dropped_weight": problem.dropped_weight(eta),
        "asymmetry": problem.asymmetry(eta),
    }
