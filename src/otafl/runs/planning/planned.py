"""One scheme of an experiment, planned and charged for all seeds before a single gradient is computed.

`otafl plan` shows a `Planned`; `runs.execution.Execution` is one that goes on to train. So the two cannot disagree.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from otafl import systems
from otafl.core import uplink
from otafl.core.arrays import Array
from otafl.core.draws import check_generator
from otafl.core.errors import BudgetExceeded, Infeasible, InputError, PrivacyViolation
from otafl.core.plan import Events, Link, Plan, Trace, ours
from otafl.privacy import Ledger, check_release, release, uplink_checks
from otafl.runs import build
from otafl.runs.compilation import use_compilation_cache
from otafl.runs.feedback import check_public, releases_of
from otafl.runs.planning.afford import least_eps, unaffordable
from otafl.runs.planning.energy import check_energy
from otafl.runs.planning.facts import Facts
from otafl.runs.planning.left import budget_of, left_of, with_target
from otafl.runs.planning.open_loop import charged_ahead
from otafl.runs.planning.prior_spend import open_ledger
from otafl.runs.planning.retirement import held, refuse_retirement
from otafl.runs.schema import Experiment, extreme_numbers


class Planned:
    """One scheme: sites, ledgers and, for an open loop, the plans of all seeds, cut where the budget ends.

    A closed loop has no plans in advance; its ledgers hold the cap.
    """

    streamed = False  # whether rounds go by in blocks (`runs.streamed`)

    def __init__(self, experiment: Experiment, scheme: Any, task: build.Task | Facts):
        check_generator()
        self.experiment, self.scheme = experiment, scheme
        self.label = scheme.label or scheme.name
        private = systems.SCHEMES[scheme.name].private
        self.hindsight = systems.in_hindsight(scheme.name, scheme)
        count = experiment.task.clients
        self.left = left_of(experiment.privacy, experiment.channel, experiment.horizon(scheme), count, private)
        with self._planning():
            self.setup = build.build_scheme(with_target(experiment, self.left), scheme, task, self.streamed)
        first = self.setup.sites[0]
        self.loop, self.uplink = first.policy.loop, uplink.uplink_of(first.policy)
        self.capped = experiment.privacy.eps is not None and scheme.stop_at_budget and private
        self.budget = budget_of(experiment.privacy, self.capped, self.left, first.message, self.loop != "open")
        earlier = experiment.privacy.already_spent
        self.ledgers = [open_ledger(self.budget, count, site.message, earlier) for site in self.setup.sites]
        self.releases = [releases_of(site, sizes) for site, sizes in zip(self.setup.sites, task.sizes)]
        if self.loop == "round":
            check_public(self.label, first.policy.feedback, task.public_samples, task.metric)
        self.run_energy = experiment.radio.run_energy if self.uplink.radio else None
        if self.run_energy is not None and self.loop != "open":
            raise InputError(f"{self.label}: radio.run_energy needs a plan made in advance; a closed loop has none")
        self.retires = experiment.privacy.stop == "each" and self.capped
        if self.retires:
            refuse_retirement(self.label, self.uplink)
        self.retired: list[int] = []  # clients who have reached their own cap before the last round, per seed
        self.plans: list[Plan] = []
        self.ran: list[int] = []  # rounds that each seed affords, where they are planned ahead
        self.infos: list[Any] = []
        self.least_eps: list[float] = []  # of the seeds that can afford no round: what the first one costs
        with self._planning():
            self.foreign = not ours(systems.scheme(scheme.name).factory)
            self.setup = self.setup._replace(sites=[self._held(s) for s in range(len(self.ledgers))])
            self.states = [site.policy.init(seed) for site, seed in zip(self.setup.sites, experiment.seed_list)]
            if self.loop == "open":
                self._plan_everything()

    @property
    def csi(self) -> str:
        """What the scheme is told of the channel, as tables say it."""
        return "hindsight" if self.hindsight else self.setup.sites[0].policy.csi

    @contextmanager
    def _planning(self) -> Iterator[None]:
        """Whatever goes wrong while planning is said with the scheme's label."""
        privacy = self.experiment.privacy
        try:
            with warnings.catch_warnings(record=True) as said, np.errstate(all="ignore"):
                yield
            for warning in said:  # not before: a refusal is one line
                warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        except Infeasible as refusal:
            if self.left.eps == privacy.eps:
                raise Infeasible(f"{self.label}: {refusal}", refusal.report) from None
            raise BudgetExceeded(
                f"{self.label}: {privacy.already_spent} left eps={self.left.eps:.4g}: {refusal}"
            ) from None
        except (InputError, PrivacyViolation) as refusal:
            text = str(refusal).removeprefix(f"{self.label}: ")  # a scheme of somebody's own says its name itself
            kind = InputError if isinstance(refusal, InputError) else PrivacyViolation
            raise kind(f"{self.label}: {text}") from refusal.__cause__
        except (ArithmeticError, np.linalg.LinAlgError) as problem:
            text = f"{self.label}: planning failed numerically ({problem})"
            raise InputError(f"{text}; look at {extreme_numbers(self.experiment)}") from None

    def _plan_everything(self) -> None:
        """An open loop is planned, charged and cut before a single gradient is computed."""
        keep_noise = self.experiment.privacy.retired_noise
        for s, (site, state, ledger) in enumerate(zip(self.setup.sites, self.states, self.ledgers)):
            release = partial(self.released, trace=site.trace, site=site)
            found = charged_ahead(
                site, state, ledger, self.uplink, release, capped=self.capped, retires=self.retires,
                keep_noise=keep_noise, run_energy=self.run_energy,
            )  # fmt: skip
            self._check_radiated(s, found.plan, found.plan.live, 0)
            self._try_uplink(found.plan, site.trace, site)
            if self.capped and not np.any(found.plan.live):
                self.least_eps.append(least_eps(ledger, found.released))
            if self.retires:
                last = np.flatnonzero(np.any(found.inside, axis=-1))[-1:]
                self.retired.append(int(np.sum(~found.inside[last])))
            self.plans.append(found.plan)
            self.ran.append(int(np.sum(found.plan.live)))
            self.infos.append(found.info)

    def released(self, plan: Plan, trace: Trace, site: build.Site) -> Events:
        """What plans of some rounds (T, K) release through this scheme's uplink."""
        return release(self.uplink, plan, trace, site.deployment, site.message)

    def checked_release(self, plan: Plan, trace: Trace, site: build.Site, first: int = 0) -> Events:
        """The same of rounds from `first` on, held against the true channel."""
        released = self.released(plan, trace, site)
        check_release(self.uplink, released, plan, trace, site.deployment, site.message, first=first)
        return released

    def _check_radiated(self, s: int, plan: Plan, live: Array, first: int) -> None:
        """Planned or played rounds (T, K) of one seed stay within the radios' limits."""
        site, where = self.setup.sites[s], f"{self.label}: seed {self.experiment.seed_list[s]}"
        check_energy(plan, live, site.deployment, site.message, where, first, self.uplink)

    def _held(self, s: int) -> build.Site:
        """The site of one seed, a closed loop that retires or is somebody else's with its privacy filters."""
        site, horizon = self.setup.sites[s], self.experiment.horizon(self.scheme)
        given = (self.ledgers[s], site.deployment, site.message, horizon, self.releases[s])
        keep_noise = self.experiment.privacy.retired_noise
        return site._replace(policy=held(site.policy, self.foreign, self.retires, *given, keep_noise))

    def _try_uplink(self, plan: Plan, trace: Trace, site: build.Site) -> None:
        """An uplink from outside is tried out on plans that it is to carry, or has carried."""
        if uplink_checks.is_own(self.uplink):
            return
        use_compilation_cache()  # a factory makes its parts anew for every seed: compiling them is most of the trial
        released = self.released(plan, trace, site)
        self._link(plan, trace, site, 0, released)
        uplink_checks.probe(self.uplink, plan, trace, site.deployment, site.message, released)

    def _link(self, plan: Plan, trace: Trace, site: build.Site, first: int, released: Events | None = None) -> Link:
        """The rounds as learning sees them, never louder or less noisy than they are charged (`released`, if known)."""
        air, compiled = uplink.uplink_of(site.policy), self.loop == "round"
        link = uplink_checks.lowered(air, plan, trace.gain, site.deployment, compiled)
        released = self.released(plan, trace, site) if released is None else released
        uplink_checks.check_links(self.uplink, link, plan, released, first)
        return link

    @property
    def affordable(self) -> bool:
        """Whether any seed can run a round within the budget, as far as that is known in advance."""
        return len(self.least_eps) < len(self.setup.sites)

    @property
    def least(self) -> float | None:
        """The cap that the first round of every seed would need; None where all of them afford it."""
        return max(self.least_eps, default=None)

    @property
    def unaffordable(self) -> str:
        """Why not one round is run."""
        return unaffordable(self.label, self.budget, self.least)

    def blocks(self, s: int) -> Iterator[tuple[Trace, Plan]]:
        """Channels and plans of one seed of an open loop, some rounds at a time."""
        yield self.setup.sites[s].trace, self.plans[s]

    def count(self, ledger: Ledger, released: Events) -> Ledger:
        """A ledger with these rounds besides; nothing is spent."""
        return ledger.besides(released)

    def spend(self, ledger: Ledger, released: Events) -> None:
        """Charge the first seed's rounds and what accompanies them; refuses as `Ledger.spend` does."""
        ledger.spend(released, each_round=self.releases[0])
