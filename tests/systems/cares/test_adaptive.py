"""CARES adaptive: Algorithm 1 against a naive version, its budget, its stops."""

import math
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cares_cases import (
    ARMS,
    RULES,
    SCALE,
    WEIGHTS,
    adaptive,
    context,
    drifting,
    drive,
    message,
    problem,
    static_policy,
    stepper,
    trace,
    worse_from,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import small
from otafl import systems
from otafl.core.errors import Infeasible
from otafl.core.plan import STOPS, Trace
from otafl.core.rounds import observe, plan_ahead
from otafl.privacy import Budget, Ledger, events, noisy_accuracy
from otafl.privacy.zcdp import classic_budget
from otafl.systems.cares.adaptive import Config, State
from otafl.systems.cares.certifier import Problem, certify, conv_budget


class Naive:
    """CARES 3.8 line by line in NumPy, floats subtracted, one matrix per arm, nothing shared with the policy."""

    def __init__(self, problem: Problem, config: Config, rounds: int):
        self.config, self.rounds, self.arms = config, rounds, np.array(config.arms)
        self.budget, self.p = problem.zcdp_budget, problem.weights
        self.cost = 2 * self.arms**2 * self.p.max() ** 2 / 0.1**2
        self.left, self.gram, self.moment = self.budget, [np.eye(7) for _ in ARMS], [np.zeros(7) for _ in ARMS]
        self.base: float | None = None
        self.mean, self.dual, self.last_scale = 0.0, 0.0, None
        answer = certify(problem, self.arms)
        self.allowed = answer.verdict.feasible if config.arms_from == "certified" else np.ones(len(ARMS), bool)
        assert answer.init is not None
        phi = self.features(answer.init, SCALE, 0.0)
        self.gram[self.model(answer.init)] += np.outer(phi, phi)
        self.moment[self.model(answer.init)] += config.prior_reward * phi

    def model(self, arm: int) -> int:
        return 0 if self.config.shared_model else arm

    def envelope(self, arm: int, scale: np.ndarray) -> tuple[float, float, float, float]:
        c = self.p**2 / (2 * scale**2)
        eta2 = self.arms[arm] ** 2
        hard, easy = math.exp(-max(c) * eta2), math.exp(-min(c) * eta2)
        return hard, easy, sum(p * (1 - math.exp(-ck * eta2)) for p, ck in zip(self.p, c)), easy - hard

    def features(self, arm: int, scale: np.ndarray, drift: float) -> np.ndarray:
        hard, easy, dropped, _ = self.envelope(arm, scale)
        eta, raw = self.arms[arm], self.config.features == "raw"
        first = eta**-2 if raw else (self.arms[0] / eta) ** 2
        second = eta**2 if raw else (eta / self.arms[-1]) ** 2
        return np.array([first, second, hard, easy, dropped, self.left if raw else self.left / self.budget, drift])

    def choose(self, t: int, scale: np.ndarray) -> int | None:
        drift = 0.0 if self.last_scale is None else float(np.sqrt(np.sum((scale - self.last_scale) ** 2)))
        self.last_scale = scale
        config, scores = self.config, {}
        for arm in range(len(self.arms)):
            _, _, dropped, gap = self.envelope(arm, scale)
            if (
                self.allowed[arm]
                and self.cost[arm] <= self.left
                and gap <= config.max_asymmetry
                and dropped <= config.max_dropped
            ):
                phi, inverse = self.features(arm, scale, drift), np.linalg.inv(self.gram[self.model(arm)])
                theta = inverse @ self.moment[self.model(arm)]
                scores[arm] = theta @ phi + config.ucb_width * math.sqrt(phi @ inverse @ phi)
        if not scores:
            return None
        low = min(scores.values())
        ranked = {
            "ratio": lambda m: scores[m] / self.cost[m],
            "ratio_shifted": lambda m: (scores[m] - low) / self.cost[m],
            "ucb": lambda m: scores[m],
            "lagrangian": lambda m: scores[m] - self.dual * self.cost[m] / self.cost.max(),
        }[config.rule]
        self.arm = max(scores, key=ranked)
        self.phi, envelope = self.features(self.arm, scale, drift), self.envelope(self.arm, scale)
        self.penalty = config.asym_penalty * envelope[3] + config.drop_penalty * envelope[2]
        pace = self.left / (self.rounds - t)
        self.dual = max(0.0, self.dual + config.dual_step * (self.cost[self.arm] - pace) / self.cost.max())
        self.left -= self.cost[self.arm]
        return self.arm

    def learn(self, accuracy: float) -> None:
        assert self.base is not None
        reward = accuracy - self.base - self.penalty
        self.base = (1 - self.config.acc_ema) * self.base + self.config.acc_ema * accuracy
        model = self.model(self.arm)
        self.gram[model] = self.gram[model] + np.outer(self.phi, self.phi)
        self.moment[model] = self.moment[model] + (reward - self.mean) * self.phi
        self.mean = (1 - self.config.reward_ema) * self.mean + self.config.reward_ema * reward

    def run(self, metrics: np.ndarray, scales: np.ndarray) -> list[int]:
        chosen: list[int] = []
        self.base = metrics[0]
        for t, scale in enumerate(scales):
            if t:
                self.learn(metrics[t])
            arm = self.choose(t, scale)
            if arm is None:
                break
            chosen.append(arm)
        return chosen


@pytest.mark.parametrize("features", ["raw", "scaled"])
@pytest.mark.parametrize("rule", RULES)
def test_controller_is_algorithm_1_round_by_round(rule: str, features: str):
    """Random accuracies, drifting channels, until the budget ends: the same arm in every round."""
    rounds, shared = 40, rule == "ucb"
    scales = drifting(rounds)
    metrics = np.random.default_rng(1).uniform(0.2, 0.9, rounds + 1)
    options = {"rule": rule, "features": features, "ucb_width": 0.3, "arms_from": "safe", "shared_model": shared}
    told = context(rounds, eps=12.0)._replace(trace=trace(rounds, scale=scales))
    _, _, infos = drive(adaptive(told, **options), told.trace, metrics[:rounds])
    config = Config(arms=ARMS, max_dropped=0.5, max_asymmetry=0.5, **options)
    naive = Naive(problem(12.0), config, rounds).run(metrics, scales)
    ours = [int(info.arm) for info in infos if info.stopped_by == 0]
    assert ours == naive
    assert len(set(ours)) > 1  # otherwise the comparison would say little
    assert len(ours) >= 8


@cache
def compiled(rule: str) -> tuple[systems.Policy, Any]:
    """A whole run of the controller as one program; tables of other arms and budgets go in through the state."""
    policy = adaptive(rule=rule, arms_from="safe")

    def run(state: State, path: Trace, metrics: Any) -> Any:
        def round_(carry: Any, given: Any) -> Any:
            state, live = carry
            row, metric, t = given
            new, plan, info = policy.step(state, observe(policy, row, t, metric))
            live = live & plan.live
            return (jax.tree.map(lambda n, o: jnp.where(live, n, o), new, state), live), (info, live, plan)

        start = (state, jnp.asarray(True))
        return jax.lax.scan(round_, start, (path, metrics, jnp.arange(len(metrics))))

    return policy, jax.jit(run)


def simulate(rule: str, state: State, path: Trace, metrics: np.ndarray) -> Any:
    with jax.enable_x64(True):
        args = jax.tree.map(jnp.asarray, (state, path, metrics))
        return jax.tree.map(np.asarray, compiled(rule)[1](*args))


def test_compiled_controller_equals_the_one_stepped_by_hand():
    policy, _ = compiled("ratio")
    metrics = np.random.default_rng(2).uniform(0.2, 0.9, 60)
    _, (info, live, _) = simulate("ratio", policy.init(None), trace(60), metrics)
    _, _, infos = drive(policy, trace(60), metrics)
    ran = int(live.sum())
    assert [int(one.arm) for one in infos][:ran] == info.arm[:ran].tolist()
    assert int(infos[-1].stopped_by) == int(info.stopped_by[ran]) == STOPS.index("budget")


@settings(max_examples=40, deadline=None)
@given(eps=st.floats(0.05, 60.0), factor=st.floats(0.3, 3.0), spread=st.floats(1.01, 3.0), seed=st.integers(0, 10**6))
def test_controller_never_passes_its_budget_and_leaves_less_than_a_round(
    eps: float, factor: float, spread: float, seed: int
):
    policy, _ = compiled("ratio")
    state: State = policy.init(None)
    arms = 0.1 * factor * spread ** np.arange(3)
    cost = 2 * arms**2 * WEIGHTS.max() ** 2 / 0.1**2
    table = state.table._replace(arms=arms, cost=cost, budget=np.float64(classic_budget(eps, 1e-5)))
    path, metrics = trace(60, seed), np.random.default_rng(seed).uniform(0, 1, 60)
    (final, _), (info, live, plans) = simulate("ratio", state._replace(table=table), path, metrics)
    pulled = [float(cost[arm]) for arm in info.arm[live]]
    assert math.fsum(pulled) <= table.budget
    assert np.array_equal(final.pulls, np.bincount(info.arm[live], minlength=3))
    ledger = Ledger(Budget(eps, 1e-5), 4)
    ledger.spend(events(plans._replace(live=live), path, small.deployment(), message()))  # refuses what passes the cap
    if not live.all() and info.stopped_by[int(live.sum())] == STOPS.index("budget"):
        assert math.fsum([*pulled, cost.min()]) > table.budget * (1 - 1e-11)


@settings(max_examples=40, deadline=None)
@given(eps=st.floats(1.0, 60.0), noise=st.floats(0.1, 3.0), level=st.sampled_from(["client", "record"]),
       seed=st.integers(0, 10**6))  # fmt: skip
def test_budget_holds_with_a_private_reward_in_every_round(eps: float, noise: float, level: str, seed: int):
    """Air and reward of all rounds together stay within the cap, and the next round of the cheapest arm would not."""
    sizes = np.array([20, 50, 60, 70])
    site, promise = small.deployment()._replace(weights=sizes / 200), message(level, batch=2)
    told = context(60, eps, sizes=sizes)
    config = Config(arms=ARMS, max_dropped=0.9, max_asymmetry=0.9, silence="bound", reward_data="private_noisy",
                    reward_noise=noise)  # fmt: skip
    policy = systems.make("cares-adaptive", config, site, promise, told)
    try:
        state: State = policy.init(None)
    except Infeasible:
        assume(False)
    release = noisy_accuracy(promise.unit, site.weights, sizes, policy.feedback.noise_std)
    reward = 0.35**2 / (2 * noise**2) if level == "client" else 1 / (2 * 200**2 * noise**2)
    cost = 2 * np.array(ARMS) ** 2 * 0.35**2 / 0.1**2 / (4 if level == "record" else 1) + reward
    np.testing.assert_allclose(state.table.cost, cost, rtol=1e-12)
    path, metrics = trace(60, seed), np.random.default_rng(seed).uniform(0, 1, 60)
    _, (info, live, plans) = simulate("ratio", state, path, metrics)
    ledger = Ledger(Budget(eps, 1e-5, adjacency="replace", adaptive=True), 4)
    ledger.spend(events(plans._replace(live=live), path, site, promise), each_round=[release])  # refuses what is over
    assert [r.times for r in ledger.releases] == ([int(live.sum())] if live.any() else [])
    if not live.all() and info.stopped_by[int(live.sum())] == STOPS.index("budget"):
        least = state.table.cost[state.table.allowed].min()
        assert float(ledger.zcdp_left().min()) < least * (1 + 1e-9)


@pytest.mark.parametrize("rounds_left", [0, 1, 5])
def test_whether_a_round_is_run_does_not_depend_on_its_reward(rounds_left: int):
    """So a private reward needs to be released only before rounds that are run: it is charged with them."""
    policy = adaptive(arms_from="safe", reward_data="private_noisy", reward_noise=0.5)
    state: State = policy.init(None)
    spent = np.array([0, 0, int(state.table.budget / state.table.cost[2]) - rounds_left])
    state = state._replace(pulls=spent, arm=np.int32(2), phi=np.ones(7), rms=np.sqrt(2) * SCALE)
    step, row = stepper(policy), Trace(*(leaf[0] for leaf in trace(1)))
    with jax.enable_x64(True):
        seen = [step(state, row, 3, metric) for metric in (-1e3, 0.5, 1e3)]
    assert {bool(plan.live) for _, plan, _ in seen} == {rounds_left > 0}
    assert len({(int(info.safe), int(info.stopped_by), float(info.zcdp_left)) for _, _, info in seen}) == 1


def test_smoothed_gain_has_the_variance_ratio_of_the_paper():
    """White accuracies: Var(acc - base) / Var(acc - previous) = 1/(2 - 0.3) = 0.588; six standard errors allowed."""
    policy, _ = compiled("ratio")
    rounds, rng = 6000, np.random.default_rng(3)
    metrics = rng.standard_normal(rounds)
    state = policy.init(None)
    state = state._replace(table=state.table._replace(budget=np.float64(1e9)))
    with jax.enable_x64(True):
        path = Trace(*(jnp.asarray(np.broadcast_to(leaf[:1], (rounds, 4))) for leaf in trace(1)))

        def round_(state: State, given: Any) -> Any:
            row, metric = given
            new, _, _ = policy.step(state, observe(policy, row, 0, metric))
            return new, metric - state.acc_base

        _, gain = jax.jit(lambda s, p, m: jax.lax.scan(round_, s, (p, m)))(state, path, jnp.asarray(metrics))
    ratio = np.var(np.asarray(gain)[1:]) / np.var(np.diff(metrics))
    error = 2 / math.sqrt(rounds)  # each variance has relative error about sqrt(2 / rounds) times its correlation
    assert abs(ratio - 1 / 1.7) < 6 * error / 1.7
    assert abs(ratio - 0.49 / 1.7) > 6 * error  # what the second reading of the misprint would give


# --- choosing ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rule", "expected"), [("ratio", 2), ("ratio_shifted", 0), ("ucb", 0)])
def test_sign_flip_of_the_ratio_rule(rule: str, expected: int):
    """CARES E11: with one negative score on every arm the ratio prefers the dearest, the shifted ratio the first."""
    policy = adaptive(rule=rule, features="raw", ucb_width=0.0, arms_from="safe")
    moment = np.zeros((3, 7))
    moment[:, 5] = -1.0  # the score is then minus the zCDP left, to the last bit the same on every arm
    state = policy.init(None)._replace(gram=np.tile(np.eye(7), (3, 1, 1)), moment=moment)
    with jax.enable_x64(True):
        _, _, info = stepper(policy)(state, Trace(*(leaf[0] for leaf in trace(1))), 0, 0.5)
    assert int(info.arm) == expected


def test_warm_start_is_the_prior_on_the_certified_arm():
    policy = adaptive(prior_reward=0.2, features="raw")
    state = policy.init(None)
    chosen = certify(problem(), ARMS).init
    naive = Naive(
        problem(), Config(arms=ARMS, features="raw", prior_reward=0.2, max_dropped=0.5, max_asymmetry=0.5), 60
    )
    for arm in range(3):
        np.testing.assert_allclose(state.gram[arm], naive.gram[arm], rtol=1e-12)
        np.testing.assert_allclose(state.moment[arm], naive.moment[arm], rtol=1e-12)
    assert state.warm == chosen and np.any(state.moment[chosen] != 0)


def test_certified_arms_only_unless_the_paper_is_asked_for():
    """CARES E6: with `safe` the controller pulls arms outside F_H, and says so; with `certified` it never does."""
    tight = certify(problem(), ARMS).arms.conv_bound.total[-1] * 1.01
    metrics = np.full(60, 0.5)
    options = {"rule": "ratio", "features": "raw", "ucb_width": 1.0, "conv_target": tight}
    _, _, inside = drive(adaptive(arms_from="certified", **options), trace(60), metrics)
    _, _, outside = drive(adaptive(arms_from="safe", **options), trace(60), metrics)
    assert all(info.certified for info in inside if info.stopped_by == 0)
    assert {float(info.rx_scale) for info in inside if info.stopped_by == 0} == {ARMS[-1]}
    assert not all(info.certified for info in outside)
    assert all(info.certified == (info.rx_scale == ARMS[-1]) for info in outside if info.stopped_by == 0)


def test_drift_is_the_change_of_the_rayleigh_scales():
    scales = np.stack([SCALE, 1.1 * SCALE, 1.1 * SCALE])
    told = context(3)._replace(trace=trace(3, scale=scales))
    _, _, infos = drive(adaptive(told), told.trace, np.full(3, 0.5))
    assert [float(info.drift) for info in infos] == pytest.approx([0, 0.1 * np.linalg.norm(SCALE), 0], abs=1e-12)


def test_limits_from_pilots_replace_the_estimate():
    """CARES E16: drop rates from the lower limits, the easiest client from its upper limit."""
    path = trace(1)._replace(rms_low=np.sqrt(2) * SCALE[None] * 0.8, rms_high=np.sqrt(2) * SCALE[None] * 1.2)
    told = context(1)._replace(trace=path)
    by_limits = problem(certify_with="limits", mu_low=0.8 * SCALE, mu_high=1.2 * SCALE)
    _, _, (info,) = drive(adaptive(told, certify_with="limits"), path, np.array([0.5]))
    assert float(info.dropped_weight) == pytest.approx(float(by_limits.dropped_weight(float(info.rx_scale))), rel=1e-12)
    assert float(info.asymmetry) == pytest.approx(float(by_limits.asymmetry(float(info.rx_scale))), rel=1e-12)
    static = static_policy(told, certify_with="limits")
    _, _, told_static = plan_ahead(static, static.init(None), path)
    assert told_static.dropped_weight[0] == pytest.approx(
        float(by_limits.dropped_weight(float(told_static.rx_scale[0])))
    )


# --- stopping ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "factor", "options"),
    [
        ("asymmetry", np.array([1, 1, 1, 0.02]), {"max_asymmetry": 0.05, "max_dropped": 1.0}),
        ("dropped weight", np.full(4, 0.02), {"max_asymmetry": 1.0, "max_dropped": 0.05}),
    ],
)
def test_stop_names_the_constraint_that_emptied_the_set(reason: str, factor: np.ndarray, options: dict[str, float]):
    told = worse_from(5, factor)
    _, plans, infos = drive(adaptive(told, arms_from="safe", **options), told.trace, np.full(12, 0.5))
    assert len(plans) == 6 and not plans[-1].live
    assert STOPS[int(infos[-1].stopped_by)] == reason


def test_budget_stop_counts_only_allowed_arms():
    """A cheap arm outside F_H is affordable, but not allowed: the run is over by its budget."""
    tight = certify(problem(), ARMS).arms.conv_bound.total[-1] * 1.01
    _, _, infos = drive(adaptive(context(200), conv_target=tight), trace(200), np.full(200, 0.5))
    ran = sum(info.stopped_by == 0 for info in infos)
    assert STOPS[int(infos[-1].stopped_by)] == "budget"
    assert ran == certify(problem(), ARMS).arms.horizon[-1]


def test_convergence_budget_is_kept_or_the_run_stops():
    """App. E.4: rounds never cost more than T (target - initial terms); a channel that worsens stops the run."""
    rounds, arms, loose = 12, (0.8, 1.0, 1.2), {"max_dropped": 1.0, "max_asymmetry": 1.0}
    base = problem(eps=2000.0, **loose)
    target = float(base.conv_bound(arms[1], rounds).total) * 1.02
    told = worse_from(6, np.full(4, 0.3), rounds)._replace(eps=2000.0)
    options = {"arms": arms, "hold_conv_target": True, "conv_target": target, "arms_from": "safe", **loose}
    _, _, infos = drive(adaptive(told, **options), told.trace, np.full(rounds, 0.5))
    assert STOPS[int(infos[-1].stopped_by)] == "convergence budget"
    start = conv_budget(base, arms, rounds, target).conv_left_0
    spent = sum(
        base.noise_term / info.rx_scale**2 + base.truncation_factor * info.dropped_weight for info in infos[:-1]
    )
    assert spent <= start
    still = context(rounds, eps=2000.0)
    _, _, calm = drive(adaptive(still, **options), still.trace, np.full(rounds, 0.5))
    assert len(calm) == rounds and all(info.stopped_by == 0 for info in calm)


def test_convergence_target_that_cannot_be_held_is_infeasible_before_training():
    options = {"hold_conv_target": True, "conv_target": 1e3}
    with pytest.raises(Infeasible, match="rounds\\*zcdp_cost"):
        adaptive(context(10**5), **options).init(None)


# --- certificates ------------------------------------------------------------------------------------------------
