"""From a run's records to its tables: rounds, devices, evaluations, and the summary that people compare."""

from typing import Any, NamedTuple

import numpy as np

from otafl.bounds.merit import learning_snr, learning_snr_max
from otafl.core import uplink
from otafl.core.plan import STOPS, Events, Plan
from otafl.privacy import Budget, Release, eps_curve, noise_multiplier
from otafl.runs.build import SchemeSetup, Task
from otafl.systems.cares.certifier import NO_CERTIFICATE
from otafl.tasks.losses import METRICS

Columns = dict[str, np.ndarray]


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


class Radiated(NamedTuple):
    """Transmit energy, J."""

    energy: np.ndarray  # (S, T, K)
    limit: np.ndarray  # (S, 1, K)


def radiated(outcome: Outcome, setup: SchemeSetup) -> Radiated:
    """What every client sent in every round."""
    energy = uplink.transmit_energy(outcome.plans, outcome.norm, outcome.sent, setup.sites[0].message.dim)
    return Radiated(energy, np.stack([site.deployment.energy for site in setup.sites])[:, None])


def rounds_table(outcome: Outcome, setup: SchemeSetup, seeds: list[int], sent: Radiated) -> Columns:
    """One row per seed and round that was run."""
    seed_axis, round_axis = np.nonzero(outcome.live)
    columns: Columns = {"seed": np.asarray(seeds)[seed_axis], "round": round_axis}
    weights = np.stack([site.deployment.weights for site in setup.sites])[:, None]
    gains = np.stack([site.trace.gain[: outcome.live.shape[1]] for site in setup.sites])
    own = lambda s: Plan(*(leaf[s] for leaf in outcome.plans))  # noqa: E731
    snr = np.stack([
        uplink.received_snr(own(s), gains[s], outcome.norm[s], outcome.sent[s], site.deployment)
        for s, site in enumerate(setup.sites)
    ])  # fmt: skip
    lower = lambda s, site: uplink.uplink_of(site.policy).lower(own(s), gains[s], site.deployment)  # noqa: E731
    links = [lower(s, site) for s, site in enumerate(setup.sites)]
    noise = np.stack([link.noise_std for link in links])
    heard = np.stack([np.where(who, link.weight, 0.0).sum(-1) for link, who in zip(links, outcome.sent)])
    per_round = {
        "rx_scale": outcome.plans.rx_scale,
        "noise_std": noise,
        "update_norm": outcome.update_norm,
        "sent": outcome.sent.sum(-1),
        "sent_weight": np.sum(weights * outcome.sent, -1),
        "heard_weight": heard,
        "snr": snr,
        "energy_share": np.max(sent.energy / sent.limit, -1),
        "clipped_share": np.mean(outcome.raw_norm > outcome.norm * (1 + 1e-5), -1),
        **{f"info_{name}": value for name, value in outcome.info.items()},
    }
    for name, values in per_round.items():
        columns[name] = np.asarray(values)[outcome.live]
    return columns


def devices_table(outcome: Outcome, seeds: list[int], sent: Radiated) -> Columns:
    """One row per seed, round and client. A simulation's view: a real server sees none of it."""
    seed_axis, round_axis = np.nonzero(outcome.live)
    clients = outcome.norm.shape[-1]
    multiplier = np.stack([noise_multiplier(events) for events in outcome.events])
    columns: Columns = {
        "seed": np.repeat(np.asarray(seeds)[seed_axis], clients),
        "round": np.repeat(round_axis, clients),
        "client": np.tile(np.arange(clients), len(round_axis)),
    }
    fields = {"sent": outcome.sent, "norm": outcome.norm, "raw_norm": outcome.raw_norm, "energy": sent.energy,
              "energy_limit": sent.limit, "noise_multiplier": multiplier}  # fmt: skip
    for name, values in fields.items():
        columns[name] = np.broadcast_to(values, outcome.norm.shape)[outcome.live].reshape(-1)
    return columns


def energy_per_device(outcome: Outcome, sent: Radiated) -> dict[str, list[float]]:
    """J, one entry per seed: of a round, mean over devices; of the run, that mean and the device that spends most."""
    run = np.where(outcome.live[..., None], sent.energy, 0.0).sum(1)
    rounds = outcome.live.sum(1)
    mean = np.where(rounds > 0, run.mean(-1) / np.maximum(rounds, 1), np.nan)
    return {
        "energy_per_round": mean.tolist(), "joules_mean": run.mean(-1).tolist(), "joules_max": run.max(-1).tolist()
    }  # fmt: skip


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


def evaluations_table(outcome: Outcome, task: Task, seeds: list[int], budget: Budget) -> Columns:
    """One row per seed and evaluation; worst client = label mix of each client over the metric per class."""
    larger = METRICS[task.metric].larger_is_better
    rows: list[Columns] = []
    for s, seed in enumerate(seeds):
        # A seed that has stopped is evaluated again with the others; only its first evaluation at that round counts.
        keep = np.concatenate([[True], np.diff(outcome.eval_round[s]) > 0])
        right, total = outcome.right[s, keep].astype(float), outcome.total[s, keep].astype(float)
        per_class = right / np.maximum(total, 1)
        client = per_class @ task.label_mix[s].T
        rounds = outcome.eval_round[s, keep]
        worst = client.min(-1) if larger else client.max(-1)
        worst = worst if task.classes else np.full(len(rounds), np.nan)  # clients are told apart by their labels
        rows.append({
            "seed": np.full(len(rounds), seed),
            "round": rounds,
            task.metric: right.sum(-1) / total.sum(-1),
            "worst_client": worst,
            "loss": outcome.loss[s, keep].astype(float),
            "penalty": outcome.penalty[s, keep].astype(float),
            "eps": eps_curve(outcome.events[s], rounds, budget, outcome.releases[s]),
        })  # fmt: skip
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


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


def stop_reasons(outcome: Outcome, horizon: int) -> list[str]:
    """Why each seed's run ended: its horizon, the budget, or what a policy inside the loop said in its last round."""
    said = outcome.info.get("stopped_by")
    reasons = []
    for s, ran in enumerate(outcome.live.sum(1)):
        code = 0 if ran >= horizon else 1
        if code and said is not None and ran < said.shape[1]:
            code = int(said[s, ran])
        reasons.append(STOPS[code])
    return reasons


def uncertified(outcome: Outcome) -> list[str]:
    """What must stand on every output of rounds that a certifying policy ran without a certificate."""
    said = outcome.info.get("certified")
    if said is None:
        return []
    share = [float(np.mean(said[s, ran])) if np.any(ran) else 1.0 for s, ran in enumerate(outcome.live)]
    if not any(share):
        return [NO_CERTIFICATE]
    return [] if min(share) == 1 else [f"{NO_CERTIFICATE} in {1 - np.mean(share):.1%} of the rounds"]


def summarise(
    evaluations: Columns, rounds: Columns, target: float, every: int, metric: str = "accuracy"
) -> dict[str, Any]:
    """Per-seed figures that tables and paired differences are made of; no accuracy where another metric is told."""
    final, best, at_eps = figures(metric)
    larger = METRICS[metric].larger_is_better
    seeds = list(dict.fromkeys(evaluations["seed"].tolist()))  # in the run's order, as all lists of a summary
    out: dict[str, list[float]] = {name: [] for name in (
        final, best, at_eps, "worst_client", "worst_client_at_eps", "final_loss", "final_eps", "rounds",
        "mean_rx_scale", "silent_weight")}  # fmt: skip
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
    none = {} if metric == "accuracy" else {name: [float("nan")] * len(seeds) for name in figures("accuracy")}
    return {"seeds": [int(s) for s in seeds], "metric": metric, **none, **out}


def figures(metric: str) -> tuple[str, str, str]:
    """What a summary calls a metric after the last round, at its best and at the privacy target."""
    return f"final_{metric}", f"best_{metric}", f"{metric}_at_eps"
