"""All methods on the same channels: the leakage of the paper's Figures 1 and 2, without training. Host, float64.

Leakage depends on channels alone, so this is complete. Seeds differ by up to 48 times at the smallest cap (their path
losses do), so a mean over three of them is ruled by one: look at the ratios to Optimal, seed by seed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Floats
from otafl.core.interval import half_width
from otafl.core.plan import Deployment, Message
from otafl.privacy.rdp import EXACT_LIMIT, ORDERS, rdp_to_eps, total_rdp
from otafl.systems.adascale import rivals, tuning, variables
from otafl.systems.adascale.leakage import Leakage
from otafl.systems.adascale.offline import optimal_excess
from otafl.systems.adascale.online import Rule, Run, algorithm1, play
from otafl.systems.adascale.setting import MNIST, Setting, draw

NU_MNIST = (0.01, 0.02, 0.04, 0.08, 0.16)
NU_CIFAR10 = (*NU_MNIST, 0.32)
COARSE_ORDERS = (1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 13.0, 17.0, 23.0, 31.0, 44.0, 63.0)  # to rank runs
RECONSTRUCTIONS = ("liu-simeone", "liu-simeone-decay", "lyapunov")


@dataclass(frozen=True)
class Scene:
    """nu on the first axis (n, 1), seeds on the second; floors (S, T)."""

    nu: Floats  # (n, 1)
    floors: Floats  # (S, T)
    typical: Floats  # (S,)
    optimistic: Floats  # (S,)
    tuned_on: Floats  # (S, R, T) floors to tune on
    setting: Setting
    alpha: int
    delta: float
    grid: int  # weights V' tried for [23]
    given_V: float | None = None
    max_floor: float = np.inf  # AdaScale skips rounds with a larger floor

    @cached_property
    def leakage(self) -> Leakage:
        return variables.leakage_of(self.setting.deployment(), self.setting.message(), self.alpha)

    @cached_property
    def V(self) -> Floats:
        """Penalty weights (n, S): tuned, unless given."""
        if self.given_V is not None:
            return np.full((len(self.nu), len(self.floors)), self.given_V)
        return tuning.tune_V(self.tuned_on, self.nu, self.leakage, self.max_floor)

    def run(self, warm: bool = False) -> tuple[Run, Floats]:
        """AdaScale with V, or warm-started with ten times a tuned V; and the V it used."""
        if not warm:
            return algorithm1(self.floors, self.V, self.nu, self.leakage, max_floor=self.max_floor), self.V
        V = self.V * (tuning.WARM_FACTOR if self.given_V is None else 1)
        first = tuning.warm_start(V, self.nu, self.typical, self.leakage)
        return algorithm1(self.floors, V, self.nu, self.leakage, first, self.max_floor), V


def run_epsilon(
    noise: Any, deployment: Deployment, message: Message, delta: float, orders: Sequence[float] = ORDERS
) -> Floats:
    """eps at delta by RDP of every device: noise energies (..., T) -> (..., K). Integer orders are exact; fractional
    ones too for a few runs, and from above (measured: 3e-4) where many are evaluated together.

    Unit: one record of one device, under the message's adjacency; noise: the receiver's trusted part.
    """
    validate.double("noise", noise)
    noise = np.asarray(noise, float)
    pairs = np.stack([variables.unit_noise(deployment, message), np.asarray(message.rate, float)])
    distinct, member = np.unique(pairs, axis=1, return_inverse=True)
    flat = noise.reshape(-1, noise.shape[-1])
    eps = [_group_epsilon(np.sqrt(flat / c), q, delta, np.asarray(orders)) for c, q in distinct.T]
    return np.stack(eps, axis=-1).reshape(*noise.shape[:-1], -1)[..., member.ravel()]


def device_epsilon(noise: Any, deployment: Deployment, message: Message, delta: float) -> Floats:
    """eps at delta by RDP of every device where not all send in all rounds: noise energies (T, K) -> (K,).

    The noise energy of a device that sends nothing in a round is inf.
    """
    columns, member = np.unique(np.asarray(noise, float), axis=1, return_inverse=True)
    silent = np.all(np.isinf(columns), axis=0)
    eps = np.zeros((columns.shape[1], noise.shape[1]))
    for kind in np.flatnonzero(~silent):
        eps[kind] = run_epsilon(columns[:, kind], deployment, message, delta)
    return eps[member.ravel(), np.arange(noise.shape[1])]


def _group_epsilon(sigma: Floats, rate: float, delta: float, orders: Floats) -> Floats:
    """eps of runs (R, T) at one rate: first by integer orders, then by the fractional ones around the best of these.

    No other order can be better: (order - 1) eps(order) is convex, so eps(order) falls and then rises.
    """
    whole = orders == np.round(orders)
    first = rdp_to_eps(total_rdp([rate], sigma[..., None], orders[whole])[:, 0], delta, orders[whole], warn=False)
    eps, few = np.array(first.eps), sigma.size <= EXACT_LIMIT
    for best in np.unique(first.order):
        rows = np.flatnonzero(first.order == best)
        near = orders[~whole & (np.abs(orders - best) < 1)]
        if near.size:
            rdp = total_rdp([rate], sigma[rows][..., None], near, exact=few)[:, 0]
            eps[rows] = np.minimum(eps[rows], rdp_to_eps(rdp, delta, near, warn=False).eps)
    return eps


def _scene(
    setting: Setting, nus: Sequence[float], seeds: Sequence[int], mode: str, alpha: int, delta: float, grid: int
) -> Scene:
    deployment, message = setting.deployment(), setting.message()
    channels = [draw(setting, seed) for seed in seeds]
    floors = np.stack([variables.noise_floor(c.gain, deployment, message) for c in channels])
    rms = np.stack([c.rms for c in channels])
    if mode == "hindsight":
        tuned_on = floors[:, None, :]
    else:
        tuned_on = np.stack(
            [tuning.simulated_floors(r, setting.T, seed, deployment, message) for seed, r in zip(seeds, rms)]
        )
    typical = variables.typical_floor(rms, deployment, message)
    optimistic = variables.optimistic_floor(rms, deployment, message)
    nu = np.asarray(nus, float)[:, None]
    return Scene(nu, floors, typical, optimistic, tuned_on, setting, alpha, delta, grid)


def _play(scene: Scene, rule: Rule) -> Floats:
    excess, _ = play(rule, scene.floors, scene.typical, scene.optimistic)
    return np.broadcast_to(excess, (len(scene.nu), *scene.floors.shape))


def _liu_simeone(scene: Scene, decay: float) -> Floats:
    budget = tuning.tune_budget(scene.tuned_on, scene.nu, scene.typical, decay)
    return _play(scene, rivals.liu_simeone_rule(budget, scene.setting.T, decay))


def _lyapunov(scene: Scene) -> Floats:
    deployment, message = scene.setting.deployment(), scene.setting.message()
    cost = lambda noise: run_epsilon(noise, deployment, message, scene.delta, COARSE_ORDERS).mean((-2, -1))  # noqa: E731
    found = tuning.tune_lyapunov(scene.tuned_on, scene.nu, cost, scene.grid)
    return _play(scene, rivals.lyapunov_rule(found.budget, found.weight, scene.setting.T))


METHODS: dict[str, Callable[[Scene], Floats]] = {
    "optimal": lambda s: optimal_excess(s.floors, s.nu),
    "adascale": lambda s: s.run()[0].excess,
    "adascale-warm": lambda s: s.run(warm=True)[0].excess,
    "estim-future": lambda s: _play(s, rivals.estim_future_rule(s.nu, s.setting.T)),
    "estim-future-literal": lambda s: _play(s, rivals.estim_future_rule(s.nu, s.setting.T, "min_of_means")),
    "equal-alloc": lambda s: _play(s, rivals.equal_rule(s.nu)),
    "stat-level": lambda s: _play(s, rivals.stat_level_rule(s.nu)),
    "stat-water": lambda s: _play(s, rivals.stat_water_rule(s.nu, s.setting.T)),
    "liu-simeone": lambda s: _liu_simeone(s, 1.0),
    "liu-simeone-decay": lambda s: _liu_simeone(s, 0.99),
    "lyapunov": _lyapunov,
}


def leakage_table(
    setting: Setting = MNIST,
    nus: Sequence[float] = NU_MNIST,
    seeds: Sequence[int] = (0, 1, 2),
    methods: Sequence[str] = tuple(METHODS),
    mode: Literal["hindsight", "calibrated"] = "hindsight",
    alpha: int = 3,
    delta: float = 1e-5,
    grid: int = 49,
) -> list[dict[str, Any]]:
    """One record per method and nu: RDP(alpha) and eps of each seed (mean and worst device), ratios to Optimal, means
    with 95 % Student intervals over the seeds.

    mode: free parameters are tuned on the evaluated trace ("hindsight", the paper's protocol) or on simulated ones.
    """
    validate.one_of("mode", mode, ("hindsight", "calibrated"))
    validate.positive("nu", nus)
    for method in methods:
        validate.one_of("method", method, METHODS)
    scene = _scene(setting, nus, seeds, mode, alpha, delta, grid)
    leakage, deployment, message = scene.leakage, setting.deployment(), setting.message()
    best = leakage.per_device(scene.floors + optimal_excess(scene.floors, scene.nu)).sum(-2)  # (n, S, K)
    excess = [METHODS[method](scene) for method in methods]
    eps = run_epsilon(scene.floors + np.stack(excess), deployment, message, delta)
    rdp = [leakage.per_device(scene.floors + one).sum(-2) for one in excess]
    return [
        {
            "method": method,
            "reconstruction": method in RECONSTRUCTIONS,
            "nu": float(nu),
            "mode": mode,
            "spend": (excess[m][i].mean(-1) / nu).tolist(),
            "ratio": (rdp[m][i].mean(-1) / best[i].mean(-1)).tolist(),
            **_summary("rdp", rdp[m][i]),
            **_summary("eps", eps[m][i]),
        }
        for m, method in enumerate(methods)
        for i, nu in enumerate(nus)
    ]


def _summary(name: str, values: Floats) -> dict[str, Any]:
    """Per seed and over seeds; values (S, K)."""
    mean = values.mean(-1)
    return {
        name: mean.tolist(),
        f"{name}_worst_device": values.max(-1).tolist(),
        f"{name}_mean": float(mean.mean()),
        f"{name}_half_width_95": half_width_95(mean),
    }


def half_width_95(values: Any) -> float:
    """Half of the 95 % interval of the mean of a few seeds; NaN, written as null, for one."""
    return half_width(values) if np.size(values) > 1 else float("nan")
