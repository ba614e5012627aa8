"""The plans of a loop: all of them before the first round, or one by one where the policy looks at the learning.

Both answer the same questions: the plan of a round, whom to ask in it, and all plans so far for the ledger.
"""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from otafl.core.arrays import Array
from otafl.core.errors import BudgetExceeded
from otafl.core.plan import Link, Plan, Trace, check_silence, cut, read_only
from otafl.core.rounds import ask, observe, plan_ahead, stack
from otafl.core.uplink import to_float32
from otafl.privacy import Ledger, check_release
from otafl.privacy.uplink_checks import check_links, is_own, probe
from otafl.runs.air.job import Job, numerically
from otafl.runs.build import Site
from otafl.runs.planning.afford import least_eps, unaffordable
from otafl.runs.planning.energy import check_energy
from otafl.runs.planning.open_loop import charged_ahead

COINS = (0.0, float(np.nextafter(1, 0)))  # the two ends of a private coin


class Plans(Protocol):
    """What a loop asks about its plans."""

    horizon: int  # rounds at most

    def make(self, number: int, metric: float) -> bool:
        """Plan a round, once; False if the policy has stopped."""

    def row(self, number: int) -> Plan:
        """The plan of one round, (K,)."""

    def first(self, count: int) -> Plan:
        """The plans of the first rounds, (count, K)."""

    def silent(self, number: int) -> np.ndarray:
        """(K,) bool: silent whatever the private coins say."""

    def certified(self, count: int) -> np.ndarray | None:
        """(count,) bool of a policy that certifies its rounds; None of others."""

    def retired(self, count: int) -> int:
        """Clients who had reached their own cap in the last of these rounds."""


class Ahead:
    """An open loop: planned, charged and cut at the budget before the first message."""

    def __init__(self, job: Job, seed: int):
        state = numerically(job.policy.name, job.policy.init, seed)
        site = Site(job.trace, job.deployment, job.message, job.policy)
        plan, self._info, self._inside, released = numerically(
            job.policy.name, partial(charged_ahead, capped=job.capped, retires=job.retires, keep_noise=job.keep_noise),
            site, state, job.ledger, job.uplink, partial(job.released, trace=job.trace),
        )  # fmt: skip
        self.horizon = int(np.sum(plan.live))
        if job.capped and not self.horizon:
            raise BudgetExceeded(unaffordable(job.policy.name, job.budget, least_eps(job.ledger, released)))
        self.plan: Plan = read_only(plan)
        check_energy(plan, plan.live, job.deployment, job.message, job.policy.name, uplink=job.uplink)
        try_uplink(job, plan)
        self._silent = np.asarray(plan.max_norm) < 0
        for coin in COINS if np.any(self._silent) else ():
            other = job.trace._replace(coin=np.full_like(job.trace.coin, coin))
            again = plan_ahead(job.policy, job.policy.init(seed), other)[1]
            self._silent = self._silent & ((again.max_norm < 0) | ~self._inside)

    def make(self, number: int, metric: float) -> bool:
        return number < self.horizon

    def row(self, number: int) -> Plan:
        return cut(self.plan, number)

    def first(self, count: int) -> Plan:
        return cut(self.plan, slice(count))

    def silent(self, number: int) -> Array:
        return self._silent[number]

    def certified(self, count: int) -> np.ndarray | None:
        said = getattr(self._info, "certified", None)
        return None if said is None else np.asarray(said)[:count]

    def retired(self, count: int) -> int:
        return int(np.sum(~self._inside[max(count - 1, 0)]))


class _Made(NamedTuple):
    """One round of a closed loop; kept in one step, so that nothing that breaks in leaves half of it."""

    state: Any  # of the policy, afterwards
    plan: Plan  # (K,)
    silent: np.ndarray  # (K,)
    info: Any


class Inside:
    """A closed loop: one compiled step of the policy before every round, in float64, as inside the engine."""

    def __init__(self, job: Job, seed: int):
        self._job, self.horizon = job, job.trace.gain.shape[0]
        state = numerically(job.policy.name, job.policy.init, seed)
        self._step = jax.jit(lambda state, row, number, metric: ask(
            job.policy, state, observe(job.policy, row, number, metric), row.gain.shape))  # fmt: skip
        with jax.enable_x64(True):
            self._initial = jax.tree.map(jnp.asarray, state)
        self._made: list[_Made] = []

    def make(self, number: int, metric: float) -> bool:
        if number < len(self._made):
            return True
        row = cut(self._job.trace, number)
        state, plan, info = self._ask(row, number, metric)
        if not plan.live:
            return False
        self._check(number, cut(plan, None))
        silent = plan.max_norm < 0
        for coin in COINS if np.any(silent) else ():
            _, other, _ = self._ask(row._replace(coin=np.full_like(row.coin, coin)), number, metric)
            silent = silent & (other.max_norm < 0)
        self._made.append(_Made(state, read_only(plan), silent, info))
        if number:
            self._made[-2] = self._made[-2]._replace(state=None)  # the last alone goes on
        return True

    def _ask(self, row: Trace, number: int, metric: float) -> tuple[Any, Plan, Any]:
        with jax.enable_x64(True):
            given = jax.tree.map(jnp.asarray, row)
            state, plan, info = self._step(self._state, given, jnp.int32(number), jnp.float64(metric))
        return state, jax.tree.map(np.asarray, plan), info

    def _check(self, number: int, plan: Plan) -> None:
        """What an open loop is held to before its first round, of one round (1, K)."""
        job = self._job
        check_silence(job.policy, job.message, plan, number)
        check_energy(plan, plan.live, job.deployment, job.message, job.policy.name, number, job.uplink)
        if number == 0:
            try_uplink(job, plan)

    def row(self, number: int) -> Plan:
        return self._made[number].plan

    def first(self, count: int) -> Plan:
        return stack([made.plan for made in self._made[:count]])

    def silent(self, number: int) -> np.ndarray:
        return self._made[number].silent

    def certified(self, count: int) -> np.ndarray | None:
        known = [getattr(made.info, "certified", None) for made in self._made[:count]]
        return None if any(one is None for one in known) else np.asarray(known, bool)

    def retired(self, count: int) -> int:
        return int(np.sum(~np.asarray(self._state.active)))

    @property
    def _state(self) -> Any:
        return self._made[-1].state if self._made else self._initial


def try_uplink(job: Job, plan: Plan) -> None:
    """An uplink from outside otafl is tried out on plans (T, K) from the first round on before it carries data."""
    if not is_own(job.uplink):
        trace = cut(job.trace, slice(len(plan.live)))
        released = job.released(plan, trace)
        probe(job.uplink, plan, trace, job.deployment, job.message, released)


def link_of(job: Job, plan: Plan, number: int) -> Link:
    """One round's plan (K,) after the channel, in float32; never louder or less noisy than it is charged."""
    one = cut(plan, None)
    trace = cut(job.trace, slice(number, number + 1))
    link = job.uplink.lower(one, trace.gain, job.deployment)
    check_links(job.uplink, link, one, job.released(one, trace), number)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[0], to_float32(link))


def charged(job: Job, plans: Plans, count: int) -> Ledger:
    """The ledger after `count` rounds, all in one part as the engine's: BudgetExceeded if they do not fit."""
    parts, releases = list(job.ledger.parts), list(job.ledger.releases)
    ledger = replace(job.ledger, parts=parts, releases=releases)
    if count:
        trace = cut(job.trace, slice(count))
        run = plans.first(count)
        released = job.released(run, trace)
        check_release(job.uplink, released, run, trace, job.deployment, job.message)
        ledger.spend(released, each_round=job.releases)
    return ledger
