"""The realised certificate of a run: every scheme's rounds put into CARES (12)-(13). Host, float64.

Data-free constants (CARES E22): smoothness 1/(12 step_size), gradient variance G^2, initial gap ln(classes).
"""

import math
from typing import Any

import numpy as np

from otafl.core import uplink
from otafl.core.plan import Plan
from otafl.privacy.events import effective_noise_var
from otafl.runs.build import SchemeSetup, Site, Task
from otafl.runs.folder.results import Outcome
from otafl.runs.schema import Server
from otafl.systems.cares.certifier import SequenceCertificate, certify_sequence

GRADIENT_KINDS = ("gradient", "per-sample")  # one gradient per round, as the bound assumes


def certificate(
    outcome: Outcome, setup: SchemeSetup, task: Task, server: Server, delta: float, *, kind: str, known: bool
) -> dict[str, Any]:
    """Columns with one entry per seed, and what the numbers rest on.

    known: the channel statistics are known, not estimated; only then can a plan made in advance be a certificate.
    """
    seeds = [s for s, ran in enumerate(outcome.live) if np.any(ran)]
    rows = [_of_seed(outcome, s, setup.sites[s], task, server, delta, known) for s in seeds]
    if len(rows) < len(setup.sites):
        return {"label": "none", "notes": ["a seed stopped before its first round: there is nothing to certify"]}
    bounds: dict[str, list[Any]] = {"informative": [row.informative for row in rows]}
    for name in rows[0].conv_bound._fields:
        bounds[f"conv_bound_{name}"] = [float(getattr(row.conv_bound, name)) for row in rows]
    return {
        "label": rows[0].label,
        "rounds": [row.rounds for row in rows],
        **(bounds if kind in GRADIENT_KINDS and task.classes else {}),
        "dropped_weight": [float(np.mean(row.dropped_weight)) for row in rows],
        "eps": [row.eps for row in rows],
        "worst_client": [row.worst_client for row in rows],
        "delta": delta,
        "notes": [*_notes(server, task, kind), *rows[0].notes],
    }


def _of_seed(
    outcome: Outcome, s: int, site: Site, task: Task, server: Server, delta: float, known: bool
) -> SequenceCertificate:
    plan, events = Plan(*(leaf[s] for leaf in outcome.plans)), outcome.events[s]
    used = outcome.live[s] & np.isfinite(plan.rx_scale)  # rx_scale = inf moves nothing: such a round is left out
    with np.errstate(invalid="ignore"):  # in rounds that are left out
        noise = uplink.lower(plan, site.trace.gain[: len(used)], site.deployment).noise_std * plan.rx_scale
    trusted = np.minimum(np.sqrt(effective_noise_var(events)), noise)
    return certify_sequence(
        plan.rx_scale[used],
        weights=site.deployment.weights,
        noise_std=noise[used],
        noise_std_low=trusted[used],
        num_params=site.message.dim,
        loss_gap=math.log(max(task.classes, 2)),  # without classes the bound is not told
        delta=delta,
        clip_norm=np.sqrt(site.message.mean_square),
        step_size=server.step_size,
        amplitude=events.amp[used] / (1 + site.deployment.gain_error),
        gain_error_max=site.deployment.gain_error,
        # A round in which a client that sends surely is silent by plan: its word for the future does not hold.
        silent_prob=np.where((events.send_prob >= 1) & ~events.possible, 1.0, 1 - events.send_prob)[used],
        silence="norm" if site.policy.gate == "message" else "bound",
        sensitivity=site.message.sensitivity,
        predictable=known and site.policy.loop == "open",
        beside=sum((r.square(len(site.deployment.weights)) / 2 for r in outcome.releases[s]), 0.0),
    )


def _notes(server: Server, task: Task, kind: str) -> list[str]:
    found = ["no convergence bound: the initial gap of a loss without classes is not known"]
    if task.classes:
        gap = f"gap ln({task.classes}) (assumed)"
        found = [f"data-free constants: smoothness 1/(12 step_size), gradient variance G^2, {gap}"]
    extras = [name for name in ("momentum", "weight_decay", "step_decay") if getattr(server, name)]
    if extras:
        found.append(
            f"the bound is for plain descent with a constant step; this server's {', '.join(extras)} is not covered"
        )
    if kind not in GRADIENT_KINDS:
        found.append(f"no convergence bound: it is for one gradient per round, these clients are of kind {kind!r}")
    found.append("no subsampling is credited: eps is an upper bound of what the ledger counts")
    return found
