"""CARES adaptive: a budgeted bandit picks the receive scaling of every round. CARES 3.8 (Algorithm 1), inside the loop.

Everything that differs between seeds stands in the state; the budget is counted in integer pulls per arm, so that no
float is subtracted round by round. The reward of round t-1 is absorbed at the start of round t.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import Infeasible, InputError
from otafl.core.plan import Context, Deployment, Feedback, Message, Obs, Plan, Policy
from otafl.systems.baselines.constant import truncated_inversion
from otafl.systems.cares.certifier import conv_budget
from otafl.systems.cares.checks import check_reward
from otafl.systems.cares.policy import Config as StaticConfig
from otafl.systems.cares.policy import certified_arms, problem_of, sure
from otafl.systems.cares.problem import Problem, RewardData

FEATURES = 7
BUDGET_MARGIN = 1e-12  # relative; pulls times costs is rounded, the ledger's recount is exact
LASTING = 1e-9  # relative; the last client's filter adds up round by round, and must not retire it before the run ends


@dataclass(frozen=True)
class Config(StaticConfig):
    """The controller's settings on top of the certificate's; the table presets of the paper override several."""

    rule: Literal["ratio_shifted", "ratio", "ucb", "lagrangian"] = "ratio_shifted"  # CARES E11
    features: Literal["scaled", "raw"] = "scaled"
    arms_from: Literal["certified", "safe"] = "certified"  # CARES E6
    shared_model: bool = False
    ucb_width: float = 0.1
    asym_penalty: float = 0.1
    drop_penalty: float = 0.1
    prior_reward: float = 0.01
    acc_ema: float = 0.3
    reward_ema: float = 0.01
    dual_step: float = 0.05  # of the lagrangian rule
    hold_conv_target: bool = False  # CARES App. E.4
    reward_data: RewardData = "public"  # private_noisy: accuracy on the clients' own data, noisy and charged (CARES E9)
    reward_noise: float | None = None  # standard deviation of that noise


class Table(NamedTuple):
    """What does not change during a run, M arms."""

    arms: Array  # (M,)
    cost: Array  # (M,) zCDP of one round, its reward included, to the client whose cap ends the run
    certified: Array  # (M,) bool: F_H
    allowed: Array  # (M,) bool: certified arms, or all
    budget: Array  # () what that client may spend
    weights: Array  # (K,)
    energy: Array  # (K,)
    noise_term: Array  # () A: channel-noise part of the round cost is A / eta^2
    truncation: Array  # () C3 G^2


class State(NamedTuple):
    table: Table
    gram: Array  # (models, 7, 7)
    moment: Array  # (models, 7)
    pulls: Array  # (M,) int64
    arm: Array  # () int32 of the last round, -1 before the first
    phi: Array  # (7,) features of that arm
    penalty: Array  # () of that arm
    acc_base: Array  # ()
    reward_mean: Array  # ()
    rms: Array  # (K,) last round's statistics; NaN before the first
    dual: Array  # () lambda of the lagrangian rule
    conv_left: Array  # () convergence budget; inf where it is not held
    warm: Array  # () int32 arm of the warm start


class Info(NamedTuple):
    """Per round."""

    rx_scale: Array
    arm: Array
    zcdp_left: Array  # before the round
    dropped_weight: Array
    asymmetry: Array
    drift: Array
    safe: Array  # number of safe arms
    certified: Array  # bool: the arm belongs to F_H (CARES E6)
    stopped_by: Array  # index into `plan.STOPS`, 0 while running


@dataclass(frozen=True)
class Controller:
    """Algorithm 1: `init` certifies the arms and warms the bandit, `step` plans one round."""

    config: Config
    deployment: Deployment
    message: Message
    context: Context
    known: Obs  # the statistics before the first round

    def init(self, key: Any) -> State:
        """Certified initialisation, and the warm start."""
        config, site = self.config, (self.deployment, self.message, self.context)
        problem = problem_of(config, self.known, *site, config.reward_data, config.reward_noise)
        answer = certified_arms(config, problem, self.context.rounds)
        arms, chosen, certified = answer.arms.rx_scale, answer.init, answer.verdict.feasible
        assert chosen is not None
        allowed = certified if config.arms_from == "certified" and answer.feasible else np.ones(len(arms), bool)
        conv_left = np.inf
        if config.hold_conv_target:
            held = conv_budget(problem, arms[allowed], self.context.rounds, answer.conv_target)
            if held.held == "infeasible":
                raise Infeasible(f"hold_conv_target over {self.context.rounds} rounds: {'; '.join(held.reasons)}", held)
            conv_left = held.conv_left_0
        cost, budget = answer.arms.zcdp_cost, answer.zcdp_budget
        if self.context.stop == "each":
            cost, budget = longest(problem, arms, self.context.rounds)
        binding = certified & sure(config, self.known, self.deployment, self.context)
        table = Table(arms, cost, binding, allowed, np.float64(budget), problem.weights,
                      np.broadcast_to(problem.max_power, problem.weights.shape), np.float64(problem.noise_term),
                      np.float64(problem.truncation_factor))  # fmt: skip
        models = 1 if config.shared_model else len(arms)
        zero, unseen = np.float64(0), np.full(len(problem.weights), np.nan)
        state = State(
            table, np.tile(np.eye(FEATURES), (models, 1, 1)), np.zeros((models, FEATURES)),
            np.zeros(len(arms), np.int64), np.int32(-1), np.zeros(FEATURES), zero, zero, zero, unseen, zero,
            np.float64(conv_left), np.int32(chosen),
        )  # fmt: skip
        start = self.look(table, self.known, table.budget, zero)[0][chosen]
        model = 0 if config.shared_model else chosen
        state.gram[model] += np.outer(start, start)
        state.moment[model] += config.prior_reward * start
        return state

    def look(self, table: Table, obs: Obs, zcdp_left: Array, drift: Array) -> tuple[Array, Array, Array]:
        """Features (M, 7), dropped weight (M,) and asymmetry (M,) of every arm under this round's statistics.

        NumPy before the run, jax inside it.
        """
        xp: Any = np if isinstance(table.arms, np.ndarray) else jnp
        limits = self.config.certify_with == "limits"  # CARES E16
        low, high = (obs.rms_low, obs.rms_high) if limits else (obs.rms, obs.rms)
        square = table.arms[:, None] ** 2
        rate, least = (
            (table.weights * self.message.bound) ** 2 / (rms**2 * table.energy) for rms in (low, high)
        )  # CARES 3.2, 2 mu^2 = rms^2
        hardest = xp.exp(-xp.max(rate) * square[:, 0])
        easiest = xp.exp(-xp.min(xp.where(table.weights > 0, least, xp.inf)) * square[:, 0])
        dropped = -xp.expm1(-rate * square) @ table.weights  # CARES (8)
        scaled = self.config.features == "scaled"
        first_arm, last_arm = (table.arms[0], table.arms[-1]) if scaled else (1.0, 1.0)
        left = zcdp_left / table.budget if scaled else zcdp_left
        ones = xp.ones_like(table.arms)
        noise, cost = first_arm**2 / square[:, 0], square[:, 0] / last_arm**2
        phi = xp.stack([noise, cost, hardest, easiest, dropped, left * ones, drift * ones], axis=1)
        return phi, dropped, easiest - hardest  # CARES (9)

    def absorb(self, state: State, metric: Array) -> State:
        """Reward of the last round into the model of the arm that was pulled. CARES (21)"""
        config, began = self.config, state.arm >= 0
        gain = metric - state.acc_base
        reward = gain - state.penalty
        pulled = jnp.where(config.shared_model & began, 0, state.arm)
        hot = jax.nn.one_hot(pulled, state.gram.shape[0], dtype=jnp.float64)
        gram = state.gram + hot[:, None, None] * jnp.outer(state.phi, state.phi)
        moment = state.moment + hot[:, None] * (reward - state.reward_mean) * state.phi
        base = jnp.where(began, (1 - config.acc_ema) * state.acc_base + config.acc_ema * metric, metric)
        mean = (1 - config.reward_ema) * state.reward_mean + config.reward_ema * reward
        mean = jnp.where(began, mean, state.reward_mean)
        return state._replace(gram=gram, moment=moment, acc_base=base, reward_mean=mean)

    def step(self, state: State, obs: Obs) -> tuple[State, Plan, Info]:
        """Absorb what the last round brought, then pull the best arm that is safe under this round's statistics."""
        state, table = self.absorb(state, obs.metric), state.table
        spent = jnp.sum(state.pulls * table.cost)
        left = table.budget - spent
        moved = jnp.linalg.norm(obs.rms - state.rms) / np.sqrt(2)  # of the Rayleigh scale
        drift = jnp.where(state.arm >= 0, moved, 0.0)
        phi, dropped, gap = self.look(table, obs, left, drift)
        affordable = table.allowed & (spent + table.cost <= table.budget * (1 - BUDGET_MARGIN))
        fair, present = gap <= self.config.max_asymmetry, dropped <= self.config.max_dropped
        safe = affordable & fair & present  # CARES (19)
        round_cost = table.noise_term / table.arms**2 + table.truncation * dropped
        cheapest = jnp.min(jnp.where(safe, round_cost, jnp.inf))
        remaining = jnp.maximum(self.context.rounds - obs.round - 1, 0)
        within = round_cost + jnp.where(remaining > 0, remaining * cheapest, 0.0) <= state.conv_left  # App. E.4
        chosen_from = safe & within
        arm = self.select(state, phi, chosen_from)
        live = jnp.any(chosen_from)
        plan, _ = truncated_inversion(
            table.arms[arm], table.weights, table.energy, obs, self.message, self.config.silence
        )
        info = Info(
            table.arms[arm], arm, left, dropped[arm], gap[arm], drift, jnp.sum(chosen_from), table.certified[arm],
            emptied_by(affordable, fair, present, within),
        )  # fmt: skip
        penalty = self.config.asym_penalty * gap[arm] + self.config.drop_penalty * dropped[arm]
        new = state._replace(
            pulls=state.pulls.at[arm].add(1), arm=arm.astype(jnp.int32), phi=phi[arm], penalty=penalty, rms=obs.rms,
            dual=self.dual(state, table.cost[arm], left, obs), conv_left=state.conv_left - round_cost[arm],
        )  # fmt: skip
        return new, plan._replace(live=live), info

    def select(self, state: State, phi: Array, safe: Array) -> Array:
        """The arm of this round: the rules of CARES (20) and E11; ties go to the lowest index."""
        count = phi.shape[0]
        gram = jnp.broadcast_to(state.gram, (count, FEATURES, FEATURES))
        moment = jnp.broadcast_to(state.moment, (count, FEATURES))
        theta = jnp.linalg.solve(gram, moment[..., None])[..., 0]
        spread = jnp.einsum("mi,mi->m", phi, jnp.linalg.solve(gram, phi[..., None])[..., 0])
        score = jnp.einsum("mi,mi->m", theta, phi) + self.config.ucb_width * jnp.sqrt(jnp.maximum(spread, 0))
        cost = state.table.cost
        if self.config.rule == "ratio":
            score = score / cost  # CARES (20)
        elif self.config.rule == "ratio_shifted":
            score = (score - jnp.min(jnp.where(safe, score, jnp.inf))) / cost
        elif self.config.rule == "lagrangian":
            score = score - state.dual * cost / cost[-1]
        return jnp.argmax(jnp.where(safe, score, -jnp.inf))

    def dual(self, state: State, cost: Array, left: Array, obs: Obs) -> Array:
        """The price of privacy, up while rounds cost more than an even pace allows."""
        pace = left / jnp.maximum(self.context.rounds - obs.round, 1)
        return jnp.maximum(0.0, state.dual + self.config.dual_step * (cost - pace) / state.table.cost[-1])


def longest(problem: Problem, arms: Array, rounds: int) -> tuple[Array, float]:
    """What the arms cost (M,) the client that stays longest, and its budget, where each retires at its own cap.

    All costs grow with the square of the scaling, so it is the same client whichever arms are pulled. The rewards of
    all rounds are set aside: they read everyone's data to the end.
    """
    left = problem.zcdp_budget - rounds * problem.reward_zcdp()
    air = problem.air_zcdp(arms)
    stays = (left > 0) & (problem.weights > 0)
    if not np.any(stays):
        raise Infeasible(
            f"stop='each': the rewards of {rounds} rounds alone take every client to its cap; raise reward_noise or "
            "privacy.eps, or lower rounds"
        )
    k = int(np.argmin(np.where(stays, air[0] / np.where(stays, left, 1.0), np.inf)))
    return air[:, k], float(left[k]) * (1 - LASTING)


def emptied_by(*filters: Array) -> Array:
    """The first constraint, in the order of `STOPS`, after which no allowed arm is left; 0 if one is."""
    none_left = ~jnp.any(jnp.cumprod(jnp.stack(filters), axis=0).astype(bool), axis=1)
    return jnp.where(none_left[-1], jnp.argmax(none_left) + 1, 0)


def cares_adaptive(config: Config, deployment: Deployment, message: Message, context: Context) -> Policy:
    """Rewards are accuracies on public data, post-processing of what was released, or noisy and charged (CARES E9).

    Which arms are safe, and whether the run goes on, never depends on the reward of the round: a private reward is
    released only before a round that is run, and the ledger charges it with that round.
    """
    check_reward(config.reward_data, config.reward_noise)
    for name in ("ucb_width", "asym_penalty", "drop_penalty", "dual_step"):
        validate.not_negative(name, getattr(config, name))
    for name in ("acc_ema", "reward_ema"):
        validate.in_left_open(name, getattr(config, name), 0, 1)
    if context.first is None:
        raise InputError("cares-adaptive needs the statistics before the first round")
    controller = Controller(config, deployment, message, context, context.first)
    gate: Literal["message", "bound"] = "message" if config.silence == "norm" else "bound"
    feedback = Feedback() if config.reward_noise is None else Feedback("private", config.reward_noise)
    return Policy(
        "cares-adaptive", controller.init, controller.step, loop="round", csi="own", gate=gate, feedback=feedback
    )
