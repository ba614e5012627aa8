"""From a run's records to its tables: rounds, devices, evaluations, and the summary that people compare."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from otafl.bounds.merit import learning_snr, learning_snr_max
from otafl.core import uplink
from otafl.core.plan import STOPS, Events, Plan
from otafl.privacy import Budget, Release, noise_multiplier
from otafl.runs.build import SchemeSetup, Site, Task
from otafl.systems.cares.certifier import NO_CERTIFICATE
from otafl.tasks.losses import METRICS

Columns = dict[str, np.ndarray]
AT_ONCE = 1 << 23  # clients x evaluations in memory


class Outcome(NamedTuple):
    """Everything that one scheme's run left, all seeds, before it becomes tables. S seeds, T rounds, E evaluations."""

    plans: Plan  # (S, T, K) as run
    events: list[Events]  # per seed, live = rounds that were run
    releases: list[tuple[Release, ...]]  # per seed, what accompanied every live round
    live: np.ndarray  # (S, T)
    norm: np.ndarray  # (S, T, K)
    raw_norm: np.ndarray
    sent: np.ndarray
    update_norm: np.ndarray  # (S, T)
    info: dict[str, np.ndarray]  # (S, T, ...) per-round scalars only
    eval_round: np.ndarray  # (S, E) rounds run at each evaluation
    right: np.ndarray  # (S, E, C)
    total: np.ndarray  # (S, E, C)
    loss: np.ndarray  # (S, E)
    penalty: np.ndarray  # (S, E)


class Seen(NamedTuple):
    """What is left of a run whose rounds were not kept client by client: the fields of `Outcome` without a K."""

    live: np.ndarray  # (S, T)
    info: dict[str, np.ndarray]
    eval_round: np.ndarray
    right: np.ndarray
    total: np.ndarray
    loss: np.ndarray
    penalty: np.ndarray


def per_round(
    plan: Plan,
    gain: np.ndarray,
    site: Site,
    norm: np.ndarray,
    raw_norm: np.ndarray,
    sent: np.ndarray,
    energy: np.ndarray,
) -> Columns:
    """What a rounds table says of some rounds (T, K) of one seed, each (T,)."""
    link = uplink.uplink_of(site.policy).lower(plan, gain, site.deployment)
    return {
        "rx_scale": plan.rx_scale,
        "noise_std": link.noise_std,
        "sent": sent.sum(-1),
        "sent_weight": np.sum(site.deployment.weights * sent, -1),
        "heard_weight": np.where(sent, link.weight, 0.0).sum(-1),
        "snr": uplink.received_snr(plan, gain, norm, sent, site.deployment),
        "energy_share": np.max(energy / site.deployment.energy, -1),
        "clipped_share": np.mean(raw_norm > norm * (1 + 1e-5), -1),
    }


COLUMNS = ("rx_scale", "noise_std", "update_norm", "sent", "sent_weight", "heard_weight", "snr", "energy_share",
           "clipped_share")  # fmt: skip


def rounds_table(columns: Columns, info: Columns, live: np.ndarray, seeds: list[int]) -> Columns:
    """One row per seed and round that was run, from columns (S, T)."""
    seed_axis, round_axis = np.nonzero(live)
    table: Columns = {"seed": np.asarray(seeds)[seed_axis], "round": round_axis}
    for name in COLUMNS:
        table[name] = np.asarray(columns[name])[live]
    for name, values in info.items():
        table[f"info_{name}"] = np.asarray(values)[live]
    return table


def columns_of(outcome: Outcome, setup: SchemeSetup) -> Columns:
    """What the rounds table needs of a run that was kept, (S, T) each."""
    found, (energy, _) = [], _energy(outcome, setup)
    for s, site in enumerate(setup.sites):
        plan, gain = Plan(*(leaf[s] for leaf in outcome.plans)), site.trace.gain[: outcome.live.shape[1]]
        found.append(per_round(plan, gain, site, outcome.norm[s], outcome.raw_norm[s], outcome.sent[s], energy[s]))
    stacked = {name: np.stack([np.asarray(one[name]) for one in found]) for name in found[0]}
    return {**stacked, "update_norm": outcome.update_norm}


def devices_table(outcome: Outcome, setup: SchemeSetup, seeds: list[int]) -> Columns:
    """One row per seed, round and client. A simulation's view: a real server sees none of it."""
    seed_axis, round_axis = np.nonzero(outcome.live)
    clients = outcome.norm.shape[-1]
    energy, limit = _energy(outcome, setup)
    multiplier = np.stack([noise_multiplier(events) for events in outcome.events])
    columns: Columns = {
        "seed": np.repeat(np.asarray(seeds)[seed_axis], clients),
        "round": np.repeat(round_axis, clients),
        "client": np.tile(np.arange(clients), len(round_axis)),
    }
    fields = {"sent": outcome.sent, "norm": outcome.norm, "raw_norm": outcome.raw_norm, "energy": energy,
              "energy_limit": limit, "noise_multiplier": multiplier}  # fmt: skip
    for name, values in fields.items():
        columns[name] = np.broadcast_to(values, outcome.norm.shape)[outcome.live].reshape(-1)
    return columns


def _energy(outcome: Outcome, setup: SchemeSetup) -> tuple[np.ndarray, np.ndarray]:
    energy = uplink.transmit_energy(outcome.plans, outcome.norm, outcome.sent, setup.sites[0].message.dim)
    return energy, np.stack([site.deployment.energy for site in setup.sites])[:, None]


def energy_per_device(outcome: Outcome, setup: SchemeSetup) -> dict[str, list[float]]:
    """Energy of a whole run, J, one entry per seed: mean over devices, and of the device that spends most."""
    energy, _ = _energy(outcome, setup)
    run = np.where(outcome.live[..., None], energy, 0.0).sum(1)
    return {"joules_mean": run.mean(-1).tolist(), "joules_max": run.max(-1).tolist()}


def signal_of(rounds: Columns, setup: SchemeSetup, budget: Budget, seeds: list[int]) -> dict[str, list[float]]:
    """S of every seed, its limit S_max under the budget, and e = S / S_max (`bounds.merit`).

    Without a cap, and where sampling amplifies privacy, the limit is not known: NaN.
    """
    found: dict[str, list[float]] = {"snr": [], "snr_max": [], "efficiency": []}
    for seed, site in zip(seeds, setup.sites):
        own = rounds["seed"] == seed
        size = float(np.sqrt(np.max(site.message.mean_square)))
        snr = learning_snr(size, rounds["heard_weight"][own], rounds["noise_std"][own]) if np.any(own) else 0.0
        known = budget.counted.additive and np.isfinite(budget.eps) and np.all(np.asarray(site.message.rate) == 1)
        mu = np.sqrt(2 * budget.zcdp) if known else np.nan
        largest = learning_snr_max(site.message.sensitivity.size, mu, size, float(np.max(site.message.sensitivity)))
        for name, value in zip(found, (snr, largest, snr / largest)):
            found[name].append(float(value))
    return found


def evaluations_table(
    outcome: Outcome | Seen, task: Task, seeds: list[int], eps_after: Callable[[int, np.ndarray], np.ndarray]
) -> Columns:
    """One row per seed and evaluation; worst client = label mix of each client over the metric per class.

    eps_after(place of the seed, rounds (E,)) -> (E,) what the worst client has spent by then.
    """
    larger = METRICS[task.metric].larger_is_better
    rows: list[Columns] = []
    for s, seed in enumerate(seeds):
        # A seed that has stopped is evaluated again with the others; only its first evaluation at that round counts.
        keep = np.concatenate([[True], np.diff(outcome.eval_round[s]) > 0])
        right, total = outcome.right[s, keep].astype(float), outcome.total[s, keep].astype(float)
        per_class = right / np.maximum(total, 1)
        rounds = outcome.eval_round[s, keep]
        worst = worst_client(per_class, task.label_mix[s], larger)
        worst = worst if task.classes else np.full(len(rounds), np.nan)  # clients are told apart by their labels
        rows.append({
            "seed": np.full(len(rounds), seed),
            "round": rounds,
            task.metric: right.sum(-1) / total.sum(-1),
            "worst_client": worst,
            "loss": outcome.loss[s, keep].astype(float),
            "penalty": outcome.penalty[s, keep].astype(float),
            "eps": eps_after(s, rounds),
        })  # fmt: skip
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def worst_client(per_class: np.ndarray, label_mix: np.ndarray, larger: bool) -> np.ndarray:
    """(E,) from (E, C) and (K, C); some evaluations at a time where all of them times all clients are many."""
    step = max(1, AT_ONCE // len(label_mix))
    found = [per_class[e : e + step] @ label_mix.T for e in range(0, len(per_class), step)]
    return np.concatenate([client.min(-1) if larger else client.max(-1) for client in found])


def value_at_eps(
    rounds: np.ndarray, eps: np.ndarray, value: np.ndarray, target: float, every: int
) -> tuple[float, bool]:
    """A curve's value at a privacy target (CARES `acc_at_eps`): (value, reached).

    Linear in eps between evaluations; NaN where the target lies before the first of them. A run that keeps its budget
    never reaches the target: its last value counts if one more evaluation interval at the pace of the last one would
    have passed it; otherwise NaN.
    """
    if eps[-1] >= target:
        return (float(np.interp(target, eps, value)), True) if eps[0] <= target else (float("nan"), True)
    before = (eps[-2], rounds[-2]) if len(eps) > 1 else (0.0, 0)
    pace = (eps[-1] - before[0]) / max(rounds[-1] - before[1], 1)
    near = np.isfinite(target) and eps[-1] + pace * every >= target
    return (float(value[-1]), False) if near else (float("nan"), False)


def stop_reasons(outcome: Outcome | Seen, horizon: int) -> list[str]:
    """Why each seed's run ended: its horizon, the budget, or what a policy inside the loop said in its last round."""
    said = outcome.info.get("stopped_by")
    reasons = []
    for s, ran in enumerate(outcome.live.sum(1)):
        code = 0 if ran >= horizon else 1
        if code and said is not None and ran < said.shape[1]:
            code = int(said[s, ran])
        reasons.append(STOPS[code])
    return reasons


def uncertified(outcome: Outcome | Seen) -> list[str]:
    """What must stand on every output of rounds that a certifying policy ran without a certificate."""
    said = outcome.info.get("certified")
    if said is None:
        return []
    share = [float(np.mean(said[s, ran])) if np.any(ran) else 1.0 for s, ran in enumerate(outcome.live)]
    if not any(share):
        return [NO_CERTIFICATE]
    return [] if min(share) == 1 else [f"{NO_CERTIFICATE} in {1 - np.mean(share):.1%} of the rounds"]


def summarise(
    evaluations: Columns, rounds: Columns, devices: Columns | None, target: float, every: int, metric: str = "accuracy"
) -> dict[str, Any]:
    """Per-seed figures that tables and paired differences are made of; no accuracy where another metric is told."""
    final, best, at_eps = figures(metric)
    larger = METRICS[metric].larger_is_better
    seeds = np.unique(evaluations["seed"])
    out: dict[str, list[float]] = {name: [] for name in (
        final, best, at_eps, "worst_client", "worst_client_at_eps", "final_loss", "final_eps", "rounds",
        "mean_rx_scale", "silent_weight", "energy_per_round")}  # fmt: skip
    for seed in seeds:
        e = {name: column[evaluations["seed"] == seed] for name, column in evaluations.items()}
        r = {name: column[rounds["seed"] == seed] for name, column in rounds.items()}
        if metric != "loss":  # which every run has
            out[final].append(float(e[metric][-1]))
        out[best].append(float(e[metric].max() if larger else e[metric].min()))
        out["worst_client"].append(float(e["worst_client"][-1]))
        out[at_eps].append(value_at_eps(e["round"], e["eps"], e[metric], target, every)[0])
        out["worst_client_at_eps"].append(value_at_eps(e["round"], e["eps"], e["worst_client"], target, every)[0])
        out["final_loss"].append(float(e["loss"][-1]))
        out["final_eps"].append(float(e["eps"][-1]))
        out["rounds"].append(float(len(r["round"])))
        out["mean_rx_scale"].append(float(np.mean(r["rx_scale"])) if len(r["round"]) else float("nan"))
        out["silent_weight"].append(float(1 - np.mean(r["sent_weight"])) if len(r["round"]) else float("nan"))
        spent = np.zeros(0) if devices is None else devices["energy"][devices["seed"] == seed]
        out["energy_per_round"].append(float(np.mean(spent)) if len(spent) else float("nan"))
    none = {} if metric == "accuracy" else {name: [float("nan")] * len(seeds) for name in figures("accuracy")}
    return {"seeds": [int(s) for s in seeds], "metric": metric, **none, **out}


def figures(metric: str) -> tuple[str, str, str]:
    """What a summary calls a metric after the last round, at its best and at the privacy target."""
    return f"final_{metric}", f"best_{metric}", f"{metric}_at_eps"
