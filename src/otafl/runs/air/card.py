"""The privacy card of a loop: what its ledger holds, what the loop enforced, and what only its caller can vouch for."""

from typing import TYPE_CHECKING, Any

import numpy as np

from otafl import __version__
from otafl.privacy import PrivacyCard, attack_success, make_card
from otafl.privacy.participation import credits_coins
from otafl.runs.feedback import in_words as reward_in_words
from otafl.runs.finish import alarms_of, remarks_of
from otafl.runs.planning.channel_risk import said_of
from otafl.runs.planning.prior_spend import said_of_earlier
from otafl.runs.planning.retirement import in_words
from otafl.systems import in_hindsight

if TYPE_CHECKING:
    from otafl.runs.air import Air

STRICT = (
    "strict=True: a message above its bound, or not finite, ends its round before anything is sent; what that tells "
    "about the message is not covered by eps"
)


def card_of(air: "Air") -> PrivacyCard:
    job, seed = air.job, air.settings.seed
    alarms = [*alarms_of(job.uplink, job.policy), *([STRICT] if air.settings.strict else [])]
    known = [] if job.message.adjacency == "add-remove" else ["sizes"]
    return make_card(
        air.ledger,
        job.message,
        outside=[*known, "simulation-trace", *air.settings.outside, *_remarks(air)],
        assumptions=[*job.uplink.assumed, *said_of_earlier(air.settings.privacy["already_spent"]), *_assertions(air)],
        alarms=alarms,
        reward=reward_in_words(job, job.releases, air.rounds_charged),
        identity={
            "scheme": repr(air.settings.scheme),
            "model": f"a loop of its own, {air.settings.num_params} parameters",
            "seeds": "none: noise from the operating system" if seed is None else [seed],
            "version": __version__,
            "clip_norm": float(job.message.bound),
        },
        simulated=seed is not None,
        trusted=job.uplink.trusted,
    )


def _remarks(air: "Air") -> list[str]:
    said, rounds = air._plans.certified(air.rounds_charged), np.ones((1, air.rounds_charged), bool)
    told = in_hindsight(air.settings.scheme.name, air.settings.scheme.config)
    return remarks_of(told, {} if said is None else {"certified": said[None]}, rounds, air.job.uplink)


def _assertions(air: "Air") -> list[str]:
    """What this process did, and what it was told and could not see."""
    message, settings = air.job.message, air.settings
    job, clients = air.job, len(air.job.deployment.weights)
    lines = said_of(settings.channel)
    if job.retires:
        lines.append(in_words(job.policy.loop, air.retired, clients, job.keep_noise))
    if np.isfinite(message.bound):
        lines.append(f"every message was clipped to norm {message.bound:g} before it was scaled; enforced here")
    lines.append("asserted by the caller: a client's message depends on no data but its own, and on earlier answers")
    moved, enforced = (
        float(np.max(message.sensitivity)),
        message.bound * (1.0 if message.adjacency == "zero-out" else 2.0),
    )
    if message.unit == "record" or np.any(np.asarray(message.sensitivity) < enforced):
        how = "per-sample clipping" if message.unit == "record" else "more than the norm bound enforces"
        lines.append(
            f"asserted by the caller, not seen here: {how}, so that one {message.unit} moves a message by at most "
            f"{moved:.6g}"
        )
    if np.any(np.asarray(message.rate) < 1):
        lines.append("asserted by the caller, not seen here: the sampling rates, fresh Poisson batches every round")
    if air.job.policy.loop == "round" and not air.job.releases:
        lines.append("asserted by the caller, not seen here: rewards came from public data")
    lines.append("whoever runs the loop stands in for the air and sees every message in the clear: it is trusted")
    if air.settings.seed is None:
        own = air._medium.analog  # other uplinks draw their own
        by = "Philox under fresh 128-bit keys" if own else "Threefry under fresh 64-bit keys"
        how = "in floating point" if own else "in single precision, whose last bits may tell what lies under it"
        lines.append(f"noise was drawn by {by} of the operating system, {how}")
        if any(credits_coins(part, message) for part in air.ledger.parts):
            lines.append("private coins were drawn by Philox under a fresh 128-bit key of the operating system, unkept")
    return lines


def report_of(air: "Air") -> dict[str, Any]:
    """Figures of a loop so far."""
    state, job, attack = air.state, air.job, attack_success(air.ledger)
    return {
        "scheme": repr(air.settings.scheme),
        "clients": air.num_clients,
        "num_params": air.settings.num_params,
        "rounds": state.charged,
        "affordable_rounds": air.affordable_rounds,
        "retired": air.retired if job.retires else None,
        "eps": air.eps,
        "mu": attack.mu,
        "tpr_at_1pct": attack.tpr_at_1pct,
        "target_eps": air.settings.privacy["eps"],
        "delta": job.budget.holds_at,
        "accountant": job.budget.accountant,
        "unit": job.message.unit,
        "adjacency": job.message.adjacency,
        "uplink": job.uplink.name,
        "simulation": air.settings.seed is not None,
        "answers": state.answers,
        "failed": state.failed,
        "faults": dict(state.faults),
        "remarks": _remarks(air),
    }
