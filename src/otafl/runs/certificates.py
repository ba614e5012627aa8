"""The realised certificate of a run: every scheme's rounds put into CARES (12)-(13). Host, float64.

Data-free constants (CARES E22): smoothness 1/(12 step_size), gradient variance G^2, initial gap ln(classes).
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from otafl.bounds.sequence import Measured, SequenceCertificate, conclude, measure
from otafl.core import uplink
from otafl.core.plan import Events, Plan, Trace, ours
from otafl.privacy import Ledger
from otafl.privacy.array_uplink import is_array
from otafl.runs.build import Site, Task
from otafl.runs.schema import Server

GRADIENT_KINDS = ("gradient", "per-sample")  # one gradient per round, as the bound assumes


def certificate(
    rows: Sequence[SequenceCertificate | None], site: Site, task: Task, server: Server, delta: float, kind: str
) -> dict[str, Any]:
    """Columns with one entry per seed, and what the numbers rest on; None: the seed ran no round."""
    if why := without(site):
        return {"label": "none", "notes": [why]}
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
        "notes": [*_notes(server, task, kind, site.deployment.gain_error), *found[0].notes],
    }


def without(site: Site) -> str:
    """Why there is no certificate on this uplink; empty where there is one."""
    own, receiver = uplink.uplink_of(site.policy), site.deployment.receiver
    if receiver.follows and own.release is not None:
        return (
            f"does not hold at {receiver.antennas} antennas with beam={receiver.beam!r}: "
            "the law of silence under a beam that follows the fading is not known (eps is the ledger's)"
        )
    if own.release is not None and not is_array(own):
        return f"none: the bound is for analog sums, not for the uplink {own.name!r}"
    return ""


def measured(plan: Plan, events: Events, trace: Trace, site: Site) -> Measured | None:
    """The terms of rounds (T, K) of one seed that were run, but for what they cost, which is the ledger's matter; None
    where nothing moved in any of them."""
    used = plan.live & np.isfinite(plan.rx_scale)  # rx_scale = inf moves nothing: such a round is left out
    if not np.any(used):
        return None
    with np.errstate(invalid="ignore"):  # in rounds that are left out
        air = uplink.uplink_of(site.policy)
        lower = air.lower if air.radio and air.release is None else uplink.lower
        noise = lower(plan, trace.gain, site.deployment).noise_std * plan.rx_scale
        arriving = np.abs(trace.estimate * plan.tx)
    # Silent by plan though it sends surely, or by somebody else's word likely: its word for the future does not hold.
    broken = ~events.possible & ((events.send_prob >= 1) | (not ours(site.policy.step)))
    return measure(
        plan.rx_scale[used],
        amplitude=arriving[used],
        weights=site.deployment.weights,
        noise_std=noise[used],
        clip_norm=np.sqrt(site.message.mean_square),
        sensitivity=0.0,
        gain_error_max=0.0,
        silent_prob=np.where(broken, 1.0, 1 - events.send_prob)[used],
        silence="norm" if site.policy.gate == "message" else "bound",
    )


def concluded(
    seen: Measured, ledger: Ledger, site: Site, task: Task, server: Server, known: bool
) -> SequenceCertificate:
    """What measured rounds of one seed amount to, and all that its ledger holds.

    known: the channel statistics are known, not estimated; only then can a plan made in advance be a certificate, and
    only if the law of its silence is otafl's own, not somebody else's word.
    """
    return conclude(
        seen._replace(cost=ledger.zcdp()),
        weights=site.deployment.weights,
        num_params=site.message.dim,
        loss_gap=math.log(max(task.classes, 2)),  # without classes the bound is not told
        delta=ledger.budget.delta,
        clip_norm=np.sqrt(site.message.mean_square),
        step_size=server.step_size,
        predictable=known and site.policy.loop == "open" and ours(site.policy.step),
    )


def _notes(server: Server, task: Task, kind: str, gain_error: float) -> list[str]:
    found = ["no convergence bound: the initial gap of a loss without classes is not known"]
    if task.classes:
        gap = f"gap ln({task.classes}) (assumed)"
        found = [f"data-free constants: smoothness 1/(12 step_size), gradient variance G^2, {gap}"]
    extras = [name for name in ("momentum", "weight_decay", "step_decay") if getattr(server, name)]
    if extras:
        found.append(
            f"the bound is for plain descent with a constant step; this server's {', '.join(extras)} is not covered"
        )
    if gain_error:
        found.append(f"the bound assumes exact inversion; estimates that are off by {gain_error:.3g} are charged only")
    if kind not in GRADIENT_KINDS:
        found.append(f"no convergence bound: it is for one gradient per round, these clients are of kind {kind!r}")
    found.append("eps is by zCDP of all that the ledger holds, no subsampling is credited; what holds is on the card")
    return found
