"""From a run's records to its tables: rounds, devices, evaluations, and the summary that people compare."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from otafl.bounds.merit import learning_snr, learning_snr_max
from otafl.core import uplink
from otafl.core.arrays import Array
from otafl.core.messages import Stats
from otafl.core.plan import NO_CERTIFICATE, STOPS, Events, Plan
from otafl.privacy import Budget, Release, noise_multiplier
from otafl.runs.build import SchemeSetup, Site, Task
from otafl.runs.folder.chunks import Chunk, Evaluation
from otafl.tasks.losses import METRICS

Columns = dict[str, np.ndarray]
AT_LIMIT = 0.999  # share of the limit of a round from which on it binds
AT_ONCE = 1 << 23  # clients x evaluations in memory


class Outcome(NamedTuple):
    """Everything that one scheme's run left, all seeds, before it becomes tables. S seeds, E evaluations."""

    played: Chunk
    events: list[Events]  # per seed, live = rounds that were run
    releases: list[tuple[Release, ...]]  # per seed, what accompanied every live round
    energy: np.ndarray  # (S, T, K) J radiated
    eval_round: np.ndarray  # (S, E) rounds run at each evaluation

    @property
    def seen(self) -> "Seen":
        """What of it is not about single clients."""
        return Seen(self.played.live, self.played.info, self.played.eval, self.eval_round)


class Rounds(NamedTuple):
    """One row per seed and round that was run; the names of its columns."""

    seed: np.ndarray
    round: np.ndarray
    rx_scale: np.ndarray
    noise_std: np.ndarray
    update_norm: np.ndarray
    sent: np.ndarray
    sent_weight: np.ndarray
    heard_weight: np.ndarray
    snr: np.ndarray
    energy_share: np.ndarray
    clipped_share: np.ndarray
    info: Columns

    def columns(self) -> Columns:
        columns = self._asdict()
        return columns | {f"info_{name}": leaf for name, leaf in columns.pop("info").items()}


class Devices(NamedTuple):
    """One row per seed, round and client. A simulation's view: a real server sees none of it."""

    seed: np.ndarray
    round: np.ndarray
    client: np.ndarray
    sent: np.ndarray
    norm: np.ndarray
    raw_norm: np.ndarray
    energy: np.ndarray
    energy_limit: np.ndarray
    noise_multiplier: np.ndarray


class Evaluations(NamedTuple):
    """One row per seed and evaluation."""

    seed: np.ndarray
    round: np.ndarray
    score: np.ndarray  # of the task's metric; the loss where that is the metric
    worst_client: np.ndarray  # label mix of each client over the metric per class
    loss: np.ndarray
    penalty: np.ndarray
    eps: np.ndarray

    def columns(self, metric: str) -> Columns:
        return {metric if name == "score" else name: leaf for name, leaf in self._asdict().items()}


class Seen(NamedTuple):
    """What a run left of its rounds and evaluations, without anything per client. S seeds, T rounds, E evaluations."""

    live: np.ndarray  # (S, T)
    info: Columns  # (S, T) each
    eval: Evaluation  # (S, E, ...)
    eval_round: np.ndarray  # (S, E) rounds run at each evaluation


class Energies(NamedTuple):
    """J, in rows that stand for equally many clients and rounds."""

    seed: np.ndarray
    energy: np.ndarray


class RoundColumns(NamedTuple):
    """What a rounds table says of some rounds of one seed, each (T,)."""

    rx_scale: np.ndarray
    noise_std: np.ndarray
    sent: np.ndarray
    sent_weight: np.ndarray
    heard_weight: np.ndarray
    snr: np.ndarray
    energy_share: np.ndarray
    clipped_share: np.ndarray


def per_round(plan: Plan, gain: np.ndarray, site: Site, stats: Stats, energy: np.ndarray) -> RoundColumns:
    """Of rounds (T, K) of one seed, in which clients radiated this energy."""
    link = uplink.uplink_of(site.policy).lower(plan, gain, site.deployment)
    return RoundColumns(
        rx_scale=plan.rx_scale,
        noise_std=link.noise_std,
        sent=stats.sent.sum(-1),
        sent_weight=np.sum(site.deployment.weights * stats.sent, -1),
        heard_weight=np.where(stats.sent, link.weight, 0.0).sum(-1),
        snr=uplink.received_snr(plan, gain, stats.norm, stats.sent, site.deployment),
        energy_share=np.max(energy / site.deployment.energy, -1),
        clipped_share=np.mean(stats.raw_norm > stats.norm * (1 + 1e-5), -1),
    )


def rounds_table(columns: RoundColumns, update_norm: np.ndarray, seen: Seen, seeds: list[int]) -> Rounds:
    """What every round that was run did, from columns (S, T)."""
    seed_axis, round_axis = np.nonzero(seen.live)

    def ran(values: Any) -> Array:
        return np.asarray(values)[seen.live]

    return Rounds(
        seed=np.asarray(seeds)[seed_axis],
        round=round_axis,
        update_norm=ran(update_norm),
        **{name: ran(values) for name, values in columns._asdict().items()},
        info={name: ran(values) for name, values in seen.info.items()},
    )


def columns_of(outcome: Outcome, setup: SchemeSetup) -> RoundColumns:
    """What the rounds table needs of a run that was kept, (S, T) each."""
    played, found = outcome.played, []
    for s, site in enumerate(setup.sites):
        plan, gain = played.of_seed(s), site.trace.gain[: played.live.shape[1]]
        stats = Stats(*(leaf if isinstance(leaf, tuple) else leaf[s] for leaf in played.stats))
        found.append(per_round(plan, gain, site, stats, outcome.energy[s]))
    return RoundColumns(*(np.stack([np.asarray(value) for value in values]) for values in zip(*found)))


def devices_table(outcome: Outcome, setup: SchemeSetup, seeds: list[int]) -> Devices:
    """What every client did in every round."""
    live, stats = outcome.played.live, outcome.played.stats
    seed_axis, round_axis = np.nonzero(live)
    clients = stats.norm.shape[-1]
    limit = np.stack([site.deployment.energy for site in setup.sites])[:, None]
    multiplier = np.stack([noise_multiplier(events) for events in outcome.events])
    fields = (stats.sent, stats.norm, stats.raw_norm, outcome.energy, limit, multiplier)
    return Devices(
        np.repeat(np.asarray(seeds)[seed_axis], clients),
        np.repeat(round_axis, clients),
        np.tile(np.arange(clients), len(round_axis)),
        *(np.broadcast_to(values, stats.norm.shape)[live].reshape(-1) for values in fields),
    )


def energy_per_device(outcome: Outcome) -> dict[str, list[float]]:
    """Energy of a whole run, J, one entry per seed: mean over devices, and of the device that spends most."""
    run = np.where(outcome.played.live[..., None], outcome.energy, 0.0).sum(1)
    return {"joules_mean": run.mean(-1).tolist(), "joules_max": run.max(-1).tolist()}


def signal_of(rounds: Rounds, setup: SchemeSetup, budget: Budget, seeds: list[int]) -> dict[str, list[float]]:
    """S of every seed, its limit S_max under the budget, and e = S / S_max (`bounds.merit`).

    Without a cap, and where sampling amplifies privacy, the limit is not known: NaN.
    """
    found: dict[str, list[float]] = {"snr": [], "snr_max": [], "efficiency": []}
    for seed, site in zip(seeds, setup.sites):
        own = rounds.seed == seed
        size = float(np.sqrt(np.max(site.message.mean_square)))
        snr = learning_snr(size, rounds.heard_weight[own], rounds.noise_std[own]) if np.any(own) else 0.0
        known = budget.counted.additive and np.isfinite(budget.eps) and np.all(np.asarray(site.message.rate) == 1)
        mu = np.sqrt(2 * budget.zcdp) if known else np.nan
        largest = learning_snr_max(site.message.sensitivity.size, mu, size, float(np.max(site.message.sensitivity)))
        for name, value in zip(found, (snr, largest, snr / largest)):
            found[name].append(float(value))
    return found


def evaluated_after(live: np.ndarray, every: int, evaluations: int) -> np.ndarray:
    """(S, E) rounds that each seed had run at each evaluation."""
    ends = np.minimum(every * np.arange(1, evaluations + 1), live.shape[1])
    return np.cumsum(live, axis=1)[:, ends - 1]


def evaluations_table(
    seen: Seen, task: Task, seeds: list[int], eps_after: Callable[[int, np.ndarray], np.ndarray]
) -> Evaluations:
    """How good the model was, and what it had cost: eps_after(place of the seed, rounds (E,)) -> (E,)."""
    larger = METRICS[task.metric].larger_is_better
    rows, found = [], seen.eval
    for s, seed in enumerate(seeds):
        # A seed that has stopped is evaluated again with the others; only its first evaluation at that round counts.
        keep = np.concatenate([[True], np.diff(seen.eval_round[s]) > 0])
        right, total = found.right[s, keep].astype(float), found.total[s, keep].astype(float)
        per_class = right / np.maximum(total, 1)
        rounds = seen.eval_round[s, keep]
        worst = worst_client(per_class, task.label_mix[s], larger)
        worst = worst if task.classes else np.full(len(rounds), np.nan)  # clients are told apart by their labels
        loss = found.loss[s, keep].astype(float)
        rows.append(Evaluations(
            seed=np.full(len(rounds), seed),
            round=rounds,
            score=loss if task.metric == "loss" else right.sum(-1) / total.sum(-1),
            worst_client=worst,
            loss=loss,
            penalty=found.penalty[s, keep].astype(float),
            eps=eps_after(s, rounds),
        ))  # fmt: skip
    return Evaluations(*(np.concatenate(leaves) for leaves in zip(*rows)))


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


def stop_reasons(seen: Seen, horizon: int) -> list[str]:
    """Why each seed's run ended: its horizon, the budget, or what a policy inside the loop said in its last round."""
    said = seen.info.get("stopped_by")
    reasons = []
    for s, ran in enumerate(seen.live.sum(1)):
        code = 0 if ran >= horizon else 1
        if code and said is not None and ran < said.shape[1]:
            code = int(said[s, ran]) or 1  # it would have gone on: nobody was left who could pay
        reasons.append(STOPS[code])
    return reasons


def uncertified(info: Columns, live: np.ndarray) -> list[str]:
    """What must stand on every output of rounds (S, T) that a certifying policy ran without a certificate."""
    said = info.get("certified")
    if said is None:
        return []
    share = [float(np.mean(said[s, ran])) if np.any(ran) else 1.0 for s, ran in enumerate(live)]
    if not any(share):
        return [NO_CERTIFICATE]
    return [] if min(share) == 1 else [f"{NO_CERTIFICATE} in {1 - np.mean(share):.1%} of the rounds"]


def summarise(
    evaluations: Evaluations,
    rounds: Rounds,
    devices: Devices | Energies,
    target: float,
    every: int,
    metric: str = "accuracy",
) -> dict[str, Any]:
    """Per-seed figures that tables and paired differences are made of; no accuracy where another metric is told."""
    final, best, at_eps = figures(metric)
    larger = METRICS[metric].larger_is_better
    seeds = list(dict.fromkeys(evaluations.seed.tolist()))  # in the run's order, as all lists of a summary
    out: dict[str, list[float]] = {name: [] for name in (
        final, best, at_eps, "worst_client", "worst_client_at_eps", "final_loss", "final_eps", "rounds",
        "mean_rx_scale", "silent_weight", "energy_per_round", "full_power")}  # fmt: skip
    for seed in seeds:
        e = Evaluations(*(column[evaluations.seed == seed] for column in evaluations))
        own = rounds.seed == seed
        if metric != "loss":  # which every run has
            out[final].append(float(e.score[-1]))
        out[best].append(float(e.score.max() if larger else e.score.min()))
        out["worst_client"].append(float(e.worst_client[-1]))
        out[at_eps].append(value_at_eps(e.round, e.eps, e.score, target, every)[0])
        out["worst_client_at_eps"].append(value_at_eps(e.round, e.eps, e.worst_client, target, every)[0])
        out["final_loss"].append(float(e.loss[-1]))
        out["final_eps"].append(float(e.eps[-1]))
        out["rounds"].append(float(np.sum(own)))
        out["mean_rx_scale"].append(float(np.mean(rounds.rx_scale[own])) if np.any(own) else float("nan"))
        out["silent_weight"].append(float(1 - np.mean(rounds.sent_weight[own])) if np.any(own) else float("nan"))
        out["full_power"].append(float(np.mean(rounds.energy_share[own] >= AT_LIMIT)) if np.any(own) else 0.0)
        spent = devices.energy[devices.seed == seed]
        out["energy_per_round"].append(float(np.mean(spent)) if len(spent) else float("nan"))
    none = {} if metric == "accuracy" else {name: [float("nan")] * len(seeds) for name in figures("accuracy")}
    return {"seeds": [int(s) for s in seeds], "metric": metric, **none, **out}


def figures(metric: str) -> tuple[str, str, str]:
    """What a summary calls a metric after the last round, at its best and at the privacy target."""
    return f"final_{metric}", f"best_{metric}", f"{metric}_at_eps"
