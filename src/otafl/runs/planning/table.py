"""`otafl plan FILE`: every scheme of an experiment planned and charged, nothing trained, one row each on common units.

A row is read off the same `Planned` that a run starts from. Where several seeds draw their own channels, rounds, eps
and mu are those of every seed, and the other figures are means over seeds.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from otafl.bounds.merit import DOMAIN, Merit, guessed_agreement, in_domain, learning_snr_max, merit
from otafl.core import validate
from otafl.core.errors import BudgetExceeded, Infeasible
from otafl.privacy import attack_success
from otafl.privacy.participation import CERTIFIED, DESIGN
from otafl.runs import build
from otafl.runs.frames import as_html, as_text
from otafl.runs.limits import check_traces
from otafl.runs.planning.facts import Facts, facts_of
from otafl.runs.planning.figures import Figures, clip_norm
from otafl.runs.planning.planned import Planned
from otafl.runs.schema import Experiment
from otafl.runs.sites import OTHER_LAW, bandwidth_of, rayleigh
from otafl.runs.streamed.choice import goes_by
from otafl.runs.streamed.planned import StreamedPlanned

UNCALIBRATED = {"zero-order"}  # kinds of clients whose messages are no gradients
COUNTED = (
    "under add-remove no ε covers how many records there are: the agreement is guessed from that, and Q with it; say "
    "it with --agreement, or keep both to yourself"
)

TOLD = ("noise_over_clip", "dropped_weight", "bias", "energy_mean", "channel_uses", "csi", "noise_of", "binding",
        "least_eps", "reason")  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One scheme. None: not known in advance (a closed loop), or without meaning (energy of an ideal uplink)."""

    label: str
    scheme: str
    loop: str  # "open", or "round": a closed loop, of which only the cap is known
    feasible: bool  # whether every seed runs a round
    reason: str  # why not; empty where feasible
    least_eps: float | None  # where no round is affordable: the eps that the first one needs
    horizon: int  # rounds asked for
    unit: str = ""  # what eps protects
    adjacency: str = ""
    rounds: list[int] | None = None  # affordable, per seed
    eps: list[float] | None = None  # of the worst client, per seed; the cap of a closed loop; inf without privacy
    mu: list[float | None] | None = None  # the same as a Gaussian; None under sampling
    tpr_at_1pct: float | None = None  # true positives of the best attacker at 1 % false ones, worst seed
    noise_over_clip: float | None = None  # noise norm of an update over (clip norm x heard weight), rms over rounds
    merit: Merit | None = None
    calibrated: bool = True  # whether Q was calibrated on such messages
    dropped_weight: float | None = None  # of silent clients, mean over rounds
    bias: float | None = None  # half the sum of |mean weight in the update - wanted weight|
    energy_mean: float | None = None  # J per device over the whole run, at most (a gate or a batch may send less)
    energy_max: float | None = None
    power_margin_db: float | None = None  # least distance of any device from its limit in any round
    channel_uses: int | None = None  # of the whole run
    seconds: float | None = None  # on the air, where the bandwidth is known
    csi: str | None = None  # channel knowledge that the scheme needs
    noise_of: str | None = None  # whose noise protects
    binding: str = ""  # what keeps the scheme from doing more
    alarm: str = ""  # what its uplink says aloud wherever its eps is shown


@dataclass(frozen=True)
class PlanTable:
    """All rows, and the terms that they share."""

    rows: list[Row]
    terms: dict[str, Any]
    notes: list[str]

    @property
    def feasible(self) -> list[Row]:
        return [row for row in self.rows if row.feasible]

    @property
    def table(self) -> Any:
        """One row per scheme (pandas): per-seed rounds by their mean, eps and what it is worth by the worst."""
        import pandas as pd

        def told(row: Row) -> dict[str, Any]:
            own = {name: getattr(row, name) for name in TOLD}
            worst = None if not row.mu or None in row.mu else max(m for m in row.mu if m is not None)
            seeds = {"rounds": row.rounds and float(np.mean(row.rounds)), "eps": row.eps and max(row.eps), "mu": worst}
            worth = {"tpr_at_1pct": row.tpr_at_1pct, "merit": row.merit and row.merit.quality}
            return {"feasible": row.feasible, **seeds, **worth, **own}

        return pd.DataFrame.from_dict({row.label: told(row) for row in self.rows}, orient="index").rename_axis("scheme")

    def __repr__(self) -> str:
        return "\n".join([as_text(self.table.dropna(axis=1, how="all")), *self.notes])

    def _repr_html_(self) -> str:
        return as_html(self.table)

    def to_dict(self) -> dict[str, Any]:
        """For JSON: the merit of each row as a table of its own."""
        rows = [{**dataclasses.asdict(row), "merit": row.merit and row.merit._asdict()} for row in self.rows]
        return {"feasible": bool(self.feasible), "schemes": rows, "terms": self.terms, "notes": self.notes}


def plan(experiment: Experiment, agreement: float | None = None) -> PlanTable:
    """Plan and charge every scheme; a scheme that is infeasible is a row.

    agreement: norm of the mean of clipped messages over the clip norm, in (0, 1]; None guesses it from the samples.
    """
    check_traces(experiment)
    facts = facts_of(experiment)
    if agreement is not None:
        validate.single("agreement", agreement)
        validate.in_left_open("agreement", agreement, 0, 1)
    gamma = guessed_agreement(float(np.mean(facts.sizes[0]))) if agreement is None else agreement
    rows = [plan_scheme(experiment, scheme, facts, gamma) for scheme in experiment.scheme]
    notes = _notes(experiment, facts, rows)
    if agreement is None and any(row.adjacency == "add-remove" for row in rows):
        notes.append(COUNTED)
    return PlanTable(rows, _terms(experiment, facts, gamma, agreement is None), notes)


def refuse_all_infeasible(found: PlanTable) -> None:
    """A scheme that can do nothing is a row; where all are, the command has no plan to show for itself."""
    if found.feasible:
        return
    if all(row.least_eps is not None for row in found.rows):
        raise BudgetExceeded(f"no scheme can afford a round within eps={found.terms['eps']:g}")
    raise Infeasible("no scheme of this file is feasible")


def plan_scheme(experiment: Experiment, scheme: Any, facts: Facts | build.Task, agreement: float) -> Row:
    """One row; bad input is refused as `otafl run` refuses it."""
    label, horizon = scheme.label or scheme.name, experiment.horizon(scheme)
    try:
        planned = (StreamedPlanned if goes_by(experiment) else Planned)(experiment, scheme, facts)
    except (Infeasible, BudgetExceeded) as refusal:
        said = str(refusal).removeprefix(f"{label}: ")
        return Row(label, scheme.name, "open", False, said, None, horizon, binding="infeasible")
    return row_of(planned, agreement)


def row_of(planned: Planned, agreement: float) -> Row:
    """The row of a scheme that could be planned."""
    site, scheme = planned.setup.sites[0], planned.scheme
    horizon = planned.experiment.horizon(scheme)
    about: dict[str, Any] = {
        "label": planned.label, "scheme": scheme.name, "loop": planned.loop, "horizon": horizon,
        "unit": site.message.unit, "adjacency": site.message.adjacency, "csi": planned.csi,
        "alarm": planned.uplink.alarm,
        "calibrated": _kind(planned.experiment, scheme) not in UNCALIBRATED,
    }  # fmt: skip
    if planned.loop == "open" and _ends_early(planned.ran, horizon):
        about["calibrated"] = False
    if planned.loop != "open":
        return _closed_loop(planned, about)
    if planned.least_eps:
        seeds = f" under {len(planned.least_eps)} of {len(planned.ran)} seeds" if planned.affordable else ""
        return Row(**about, feasible=False, reason=f"0 rounds affordable{seeds}", least_eps=planned.least,
                   rounds=planned.ran, binding="privacy")  # fmt: skip
    seen = [Figures(planned, s) for s in range(len(planned.ran))]
    attacks = [attack_success(one.ledger) for one in seen]

    def mean(name: str) -> float:
        return float(np.mean([getattr(one, name) for one in seen]))

    radio = planned.uplink.radio
    uses, fill = max(one.uses for one in seen), max(one.fill for one in seen)
    bandwidth = bandwidth_of(planned.experiment)
    return Row(
        **about, feasible=True, reason="", least_eps=None, rounds=[one.rounds for one in seen],
        eps=[one.ledger.worst() for one in seen], mu=[attack.mu for attack in attacks],
        tpr_at_1pct=max(attack.tpr_at_1pct for attack in attacks), noise_over_clip=mean("noise_over_clip"),
        merit=_merit(planned, seen, agreement), dropped_weight=mean("dropped_weight"), bias=mean("bias"),
        energy_mean=mean("energy_mean") if radio else None,
        energy_max=max(one.energy_max for one in seen) if radio else None,
        power_margin_db=max(0.0, -10 * float(np.log10(fill))) if radio and fill > 0 else None,
        channel_uses=uses if radio else None, seconds=uses / bandwidth if radio and bandwidth else None,
        noise_of=_noise_of(planned, seen), binding=_binding(planned, seen, horizon),
    )  # fmt: skip


def _ends_early(rounds: list[int], horizon: int) -> bool:
    """Whether the budget leaves fewer rounds than Q was calibrated on: it would promise what nobody can train."""
    return float(np.mean(rounds)) < min(DOMAIN["rounds"][0], horizon)


def _kind(experiment: Experiment, scheme: Any) -> str:
    return str(experiment.client_choice(scheme).kind)


def _merit(planned: Planned, seen: list[Figures], agreement: float) -> Merit:
    """S is the mean over seeds; S_max counts the whole budget, spent or not, and not where sampling amplifies."""
    site = planned.setup.sites[0]
    sensitivity = np.asarray(site.message.sensitivity, float)
    mu = np.nan
    if np.all(np.asarray(site.message.rate) == 1):
        budget = planned.budget
        total = budget.zcdp if budget.counted.additive else max(float(np.max(one.ledger.zcdp())) for one in seen)
        mu = float(np.sqrt(2 * total))
    even = 1 / float(np.mean(1 / sensitivity)) if np.all(sensitivity > 0) else np.nan
    snr_max = learning_snr_max(len(sensitivity), mu, clip_norm(site.message), even)
    snr = float(np.mean([one.snr for one in seen]))
    rounds = int(np.mean([one.rounds for one in seen]))
    return merit(snr, snr_max, agreement, site.message.dim, rounds)


def _closed_loop(planned: Planned, about: dict[str, Any]) -> Row:
    """Only the cap is known in advance; what is sent depends on how the training goes."""
    attack = attack_success(planned.ledgers[0])
    count = len(planned.setup.sites)
    return Row(**about, feasible=True, reason="", least_eps=None, eps=[float(planned.budget.eps)] * count,
               mu=[attack.mu] * count, tpr_at_1pct=attack.tpr_at_1pct, noise_of="receiver",
               binding=f"the training decides; ε is {'each client’s' if planned.retires else 'the'} cap")  # fmt: skip


def _noise_of(planned: Planned, seen: list[Figures]) -> str:
    """Who adds the noise that the ledger counts."""
    if planned.uplink.release is not None:
        return "receiver, devices" if any(one.devices_add_noise for one in seen) else "receiver"
    if not np.any(seen[0].each.noisy):
        return "nobody"
    own = float(np.mean(seen[0].each.of_devices))
    if own > 1 - 1e-9:
        return "devices" if planned.uplink.radio else "devices (no radio)"
    return "receiver" if own < 1e-9 else f"receiver, devices {own:.0%}"


def _binding(planned: Planned, seen: list[Figures], horizon: int) -> str:
    """What keeps the scheme from more: the budget, somebody's power, or the number of rounds."""
    if min(one.rounds for one in seen) < horizon:
        return "privacy"
    silent, full = max(one.silent for one in seen), max(int(np.sum(one.at_limit)) for one in seen)
    if silent:
        return f"power: {silent} never heard"
    if full and planned.uplink.radio:
        return f"power: {full} at their limit"
    return "rounds"


def _terms(experiment: Experiment, facts: Facts, agreement: float, guessed: bool) -> dict[str, Any]:
    """What all rows have in common."""
    privacy = experiment.privacy
    samples = float(np.mean(facts.sizes[0]))
    basis = f"guessed from {samples:.4g} sample{'' if samples == 1 else 's'} per device" if guessed else "given"
    return {
        "clients": experiment.task.clients, "num_params": facts.model.num_params, "rounds": experiment.rounds,
        "seeds": experiment.seed_list, "eps": privacy.eps, "delta": privacy.delta, "accountant": privacy.accountant,
        "weights": experiment.task.weights, "agreement": agreement, "agreement_basis": basis,
    }  # fmt: skip


def _notes(experiment: Experiment, facts: Facts, rows: list[Row]) -> list[str]:
    """What a reader must know beside the numbers."""
    notes = [f"outside the domain of Q: {text}"
             for text in in_domain(facts.model.num_params, experiment.rounds, experiment.task.clients)]  # fmt: skip
    notes += filter(None, [experiment.remark])
    if experiment.devices is not None and experiment.task.num_params is None:
        notes.append(f"{experiment.devices.name}: samples are not used, the partition deals the data")
    unlike = sorted({_kind(experiment, scheme) for scheme in experiment.scheme} & UNCALIBRATED)
    notes += [f"(Q) was not calibrated on {kind} messages: do not rank by it" for kind in unlike]
    short = [row.label for row in rows if row.feasible and row.rounds and _ends_early(row.rounds, row.horizon)]
    if short:
        fewest = DOMAIN["rounds"][0]
        notes.append(
            f"{', '.join(short)}: the budget ends before {fewest} rounds, where (Q) says too much; do not rank by it"
        )
    notes += [f"{row.label}: {row.alarm}" for row in rows if row.alarm]
    if any(row.loop != "open" for row in rows):
        notes.append("a closed loop looks at the training: its ε is the cap, and nothing else is known in advance")
    if (accounting := experiment.privacy.accounting) not in CERTIFIED:
        law = "" if rayleigh(experiment) else f"; {OTHER_LAW}"
        notes.append(f"privacy.accounting={accounting!r}: {DESIGN}{law}")
    if experiment.privacy.stop == "each" and experiment.privacy.eps is not None:
        notes.append("clients retire at their own cap (privacy.stop='each'); the others go on")
    return notes
