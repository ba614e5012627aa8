"""The plans of a loop: all of them before the first round, or one by one where the policy looks at the learning.

Both answer the same questions: the plan of a round, whom to ask in it, and all plans so far for the ledger.
"""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from otafl.errors import BudgetExceeded, RunError
from otafl.plan import Plan, Policy, Trace
from otafl.privacy import Ledger, check_realised, events
from otafl.rounds import observe, plan_ahead, stack
from otafl.runs.settings import Job

COINS = (0.0, float(np.nextafter(1, 0)))  # the two ends of a private coin


class Plans(Protocol):
    """What a loop asks about its plans."""

    horizon: int  # rounds at most

    def make(self, number: int, metric: float) -> bool:
        """Plan a round that was not planned before; False if the policy has stopped."""

    def row(self, number: int) -> Plan:
        """The plan of one round, (K,)."""

    def first(self, count: int) -> Plan:
        """The plans of the first rounds, (count, K)."""

    def silent(self, number: int) -> np.ndarray:
        """(K,) bool: silent whatever the private coins say."""


class Ahead:
    """An open loop: planned, charged and cut at the budget before the first message."""

    def __init__(self, job: Job):
        state = job.policy.init(0)
        _, plan, _ = _numerically(job.policy, plan_ahead, job.policy, state, job.trace)
        released = events(plan, job.trace, job.deployment, job.message)
        check_realised(released, plan, job.trace)
        live = job.ledger.affordable(released) if job.capped else released.live
        self.horizon = int(np.sum(live))
        if job.capped and not self.horizon:
            raise BudgetExceeded(
                f"{job.policy.name}: not one round is affordable within eps={job.budget.eps:g}, "
                f"delta={job.budget.delta:g} ({job.budget.accountant}); raise eps or the noise, or lower the receive "
                "scaling"
            )
        # Policies broadcast; bytes of a ledger know the order in memory, so it is always the same.
        self.plan = Plan(*map(np.ascontiguousarray, plan._replace(live=live)))
        self._silent = np.asarray(plan.max_norm) < 0
        for coin in COINS if np.any(self._silent) else ():
            other = job.trace._replace(coin=np.full_like(job.trace.coin, coin))
            self._silent = self._silent & (plan_ahead(job.policy, job.policy.init(0), other)[1].max_norm < 0)

    def make(self, number: int, metric: float) -> bool:
        return number < self.horizon

    def row(self, number: int) -> Plan:
        return Plan(*(leaf[number] for leaf in self.plan))

    def first(self, count: int) -> Plan:
        return Plan(*(leaf[:count] for leaf in self.plan))

    def silent(self, number: int) -> np.ndarray:
        return self._silent[number]


class Inside:
    """A closed loop: one compiled step of the policy before every round, in float64, as inside the engine."""

    def __init__(self, job: Job, seed: int):
        self.policy, self.trace, self.horizon = job.policy, job.trace, job.trace.gain.shape[0]
        state = _numerically(job.policy, job.policy.init, seed)
        self._step = jax.jit(lambda state, row, number, metric: job.policy.step(
            state, observe(job.policy, row, number, metric)))  # fmt: skip
        with jax.enable_x64(True):
            self._state = jax.tree.map(jnp.asarray, state)
        self._plans: list[Plan] = []
        self._silent: list[np.ndarray] = []

    def make(self, number: int, metric: float) -> bool:
        row = Trace(*(leaf[number] for leaf in self.trace))
        state, plan = self._ask(row, number, metric)
        if not plan.live:
            return False
        silent = plan.max_norm < 0
        for coin in COINS if np.any(silent) else ():
            _, other = self._ask(row._replace(coin=np.full_like(row.coin, coin)), number, metric)
            silent = silent & (other.max_norm < 0)
        self._state = state
        self._plans.append(plan)
        self._silent.append(silent)
        return True

    def _ask(self, row: Trace, number: int, metric: float) -> tuple[Any, Plan]:
        with jax.enable_x64(True):
            given = jax.tree.map(jnp.asarray, row)
            state, plan, _ = self._step(self._state, given, jnp.int32(number), jnp.float64(metric))
        return state, jax.tree.map(np.asarray, plan)

    def row(self, number: int) -> Plan:
        return self._plans[number]

    def first(self, count: int) -> Plan:
        return stack(self._plans[:count])  # type: ignore[no-any-return]

    def silent(self, number: int) -> np.ndarray:
        return self._silent[number]


def _numerically(policy: Policy, function: Any, *args: Any) -> Any:
    try:
        return function(*args)
    except (ArithmeticError, np.linalg.LinAlgError) as problem:
        raise RunError(f"{policy.name}: planning failed numerically ({problem}); look for extreme numbers") from None


def charged(job: Job, plans: Plans, count: int) -> Ledger:
    """The ledger after `count` rounds, all in one part as the engine's: BudgetExceeded if they do not fit."""
    parts, releases = list(job.ledger.parts), list(job.ledger.releases)
    ledger = Ledger(job.budget, job.ledger.clients, parts, releases, job.ledger._rdp)
    if count:
        trace = Trace(*(leaf[:count] for leaf in job.trace))
        run = plans.first(count)
        released = events(run, trace, job.deployment, job.message)
        check_realised(released, run, trace)
        ledger.spend(released, each_round=job.releases)
    return ledger
