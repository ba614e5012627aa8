"""The realised certificate of a run: every scheme's rounds put into CARES (12)-(13). Host, float64.

Data-free constants (CARES E22): smoothness 1/(12 step_size), gradient variance G^2, initial gap ln(classes).
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from otafl.bounds.sequence import Measured, SequenceCertificate, conclude, measure
from otafl.core import uplink
from otafl.core.plan import Events, Plan
from otafl.privacy import Release
from otafl.privacy.events import effective_noise_var
from otafl.runs.build import Site, Task
from otafl.runs.schema import Server

GRADIENT_KINDS = ("gradient", "per-sample")  # one gradient per round, as the bound assumes


def certificate(
    rows: Sequence[SequenceCertificate | None], task: Task, server: Server, delta: float, kind: str
) -> dict[str, Any]:
    """Columns with one entry per seed, and what the numbers rest on; None: the seed ran no round."""
    found = [row for row in rows if row is not None]
    if len(found) < len(rows):
        return {"label": "none", "notes": ["a seed stopped before its first round: there is nothing to certify"]}
    bounds: dict[str, list[Any]] = {"informative": [row.informative for row in found]}
    for name in found[0].conv_bound._fields:
        bounds[f"conv_bound_{name}"] = [float(getattr(row.conv_bound, name)) for row in found]
    return {
        "label": found[0].label,
        "rounds": [row.rounds for row in found],
        **(bounds if kind in GRADIENT_KINDS and task.classes else {}),
        "dropped_weight": [float(np.mean(row.dropped_weight)) for row in found],
        "eps": [row.eps for row in found],
        "worst_client": [row.worst_client for row in found],
        "delta": delta,
        "notes": [*_notes(server, task, kind), *found[0].notes],
    }


def measured(plan: Plan, events: Events, live: np.ndarray, gain: np.ndarray, site: Site) -> Measured | None:
    """The terms of rounds (T, K) of one seed that were run; None where nothing moved in any of them."""
    used = live & np.isfinite(plan.rx_scale)  # rx_scale = inf moves nothing: such a round is left out
    if not np.any(used):
        return None
    with np.errstate(invalid="ignore"):  # in rounds that are left out
        noise = uplink.lower(plan, gain, site.deployment).noise_std * plan.rx_scale
    trusted = np.minimum(np.sqrt(effective_noise_var(events)), noise)
    return measure(
        plan.rx_scale[used],
        weights=site.deployment.weights,
        noise_std=noise[used],
        noise_std_low=trusted[used],
        clip_norm=np.sqrt(site.message.mean_square),
        amplitude=events.amp[used] / (1 + site.deployment.gain_error),
        gain_error_max=site.deployment.gain_error,
        silent_prob=1 - events.send_prob[used],
        silence="norm" if site.policy.gate == "message" else "bound",
        sensitivity=site.message.sensitivity,
    )


def concluded(
    seen: Measured, site: Site, task: Task, server: Server, delta: float, releases: Sequence[Release], known: bool
) -> SequenceCertificate:
    """What measured rounds of one seed, their costs (K,) added up, amount to.

    known: the channel statistics are known, not estimated; only then can a plan made in advance be a certificate.
    """
    return conclude(
        seen,
        weights=site.deployment.weights,
        num_params=site.message.dim,
        loss_gap=math.log(max(task.classes, 2)),  # without classes the bound is not told
        delta=delta,
        clip_norm=np.sqrt(site.message.mean_square),
        step_size=server.step_size,
        predictable=known and site.policy.loop == "open",
        beside=sum((r.square(len(site.deployment.weights)) / 2 for r in releases), 0.0),
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
