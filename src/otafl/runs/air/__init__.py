"""`otafl.Air`: the round of otafl with the messages brought by a loop of your own.

One seed, one trace. The same seed and the same messages give the engine's model (to 1e-6, sums differ in order) and
the engine's ledger, byte for byte. Whoever runs this process stands in for the air: it sees every message in the clear.

    opening, job     what a loop was opened with; the trace, policy and budget that follow
    schedule         its plans: all ahead, or round by round
    round            one round; replies, trees: what came back, as flat vectors; sums: the sum in the air
    state            what its folder keeps, so that a crash costs no privacy
    card             its privacy card
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from otafl.core import validate
from otafl.core.errors import BudgetExceeded, InputError
from otafl.core.plan import Link, Message, Plan
from otafl.privacy import Ledger, PrivacyCard
from otafl.privacy.card_text import round_up
from otafl.runs.air.card import card_of, report_of
from otafl.runs.air.job import open_job
from otafl.runs.air.opening import settings_of
from otafl.runs.air.round import Round, noisy_metric
from otafl.runs.air.schedule import Ahead, Inside, Plans, charged, link_of
from otafl.runs.air.state import Folder, State
from otafl.runs.air.sums import Medium
from otafl.runs.air.trees import Form, flatten


class Air:
    """The rounds of one scheme at one site, charged one by one, ending where the budget ends.

    Parameters
    ----------
    scheme : str or scheme value
        a name of `otafl list schemes`, or a value such as `otafl.constant(rx_scale=0.3)`
    site : int or path
        so many devices, or a deployment file (TOML; or CSV together with `noise_dbm`)
    num_params : int
        real numbers in one message
    clip_norm : float
        bound on the norm of every message, enforced here and charged
    channel : str, Channel, dict or None
        a published channel's name, or a description; None is Rayleigh fading of mean power one
    eps, delta, accountant, order, accounting, adjacency, already_spent
        the target, how it is counted and for which neighbours; eps None counts without a cap
    stop, retired_noise
        "worst" ends the loop at the worst client's cap; with "each" clients retire at their own, and send artificial
        noise on unless retired_noise is False
    rounds : int
        horizon; the budget may end the loop before
    max_energy, power_dbm, noise_std, noise_dbm, trusted_share
        the radio, as in an experiment file
    sizes, weights : sequences of length K
        records of each client (public), which give the weights; or the weights themselves, which sum to 1
    message : Message, optional
        what the messages promise, where that is not "one client, every round, norm at most clip_norm". Its sensitivity
        and sampling rate cannot be checked here and stand on the card as your assertion
    step_size, classes
        what a scheme is told about the learning (CARES certifies with them)
    seed : int, optional
        a simulation that protects nobody by itself; None draws all noise from the operating system and keeps none
    strict : bool
        refuse messages above the bound, or faulty in another way, instead of clipping or leaving them out
    outside : sequence of str
        what else must be said on the card as outside the guarantee
    like : pytree, optional
        a message's form, so that a round in which nobody replies has it too; says num_params
    folder : path, optional
        where charges and answers are kept: `otafl.Air.restore(folder)` goes on after a crash. It keeps private coins:
        without a seed a scheme which is charged less for them is then refused

    Examples
    --------
    >>> import numpy as np, otafl
    >>> air = otafl.Air(otafl.constant(rx_scale=0.3), site=5, num_params=3, clip_norm=1.0, channel="cares", eps=8.0,
    ...                 rounds=4, noise_std=0.5, seed=0)
    >>> for r in air:
    ...     mean = r.send({k: np.full(3, 0.1, np.float32) for k in r.asked})
    >>> air.rounds_charged, mean.shape, air.eps < 8
    (4, (3,), True)
    """

    def __init__(
        self, scheme: Any, *, site: int | str | Path, num_params: int | None = None, clip_norm: float = 1.0,
        channel: Any = None, eps: float | None = None, delta: float = 1e-5, rounds: int = 100,
        accountant: str = "zcdp", order: float | None = None, accounting: str = "none", adjacency: str = "replace",
        stop: str = "worst", retired_noise: bool = True, already_spent: str | Path | None = None,
        max_energy: float | None = None, power_dbm: float | None = None, noise_std: float | None = None,
        noise_dbm: float | None = None, trusted_share: float | None = None,
        sizes: Sequence[int] | None = None, weights: Sequence[float] | None = None, message: Message | None = None,
        step_size: float = 0.1, classes: int = 2, seed: int | None = None, strict: bool = False,
        outside: Sequence[str] = (), like: Any = None, folder: str | Path | None = None,
    ):  # fmt: skip
        given = locals()
        template = _template(like)
        if template is not None and num_params is None:
            given["num_params"] = template[0].size
        kept = Folder.new(folder, settings_of(given))
        self._open(kept, template)
        kept.begin()

    @classmethod
    def restore(cls, folder: str | Path, again: bool = False, like: Any = None) -> "Air":
        """Go on where a folder's loop ended, after a crash or on purpose.

        The first round is the first that has no answer. A round that was entered but not sent is open still and is not
        charged again. A round that was sent but not answered is answered with a seed (the noise is the same), and lost
        without one: it stays charged, and the loop goes on with the next. `again` starts with the last answered round
        once more, for a loop that lost the answer, and gives the stored one: fresh noise on the same round would be a
        second release. With a seed other messages are refused; without one nothing is kept to know them by.
        """
        air = cls.__new__(cls)
        kept = Folder.open(validate.path("folder", folder))
        try:
            air._open(kept, _template(like))
            air._resume(again)
        except BaseException:
            kept.close()
            raise
        return air

    def _open(self, folder: Folder, like: Any) -> None:
        settings = folder.settings
        if like is not None and like[0].size != settings.num_params:
            raise InputError(f"like has {like[0].size} numbers, but num_params={settings.num_params}")
        self.settings, self._folder, self._state = settings, folder, folder.state
        self._turn, self._process = RLock(), os.getpid()
        self.job = open_job(settings, folder.trace_seed, folder.path is not None)
        inside = self.job.policy.loop == "round"
        self._plans: Plans = (Inside if inside else Ahead)(self.job, folder.trace_seed)
        self._medium = Medium(self.job.uplink, settings.seed)
        self._form: Form | None = None if like is None else like[0]
        self._like: list[Any] = [] if like is None else like[2]
        self._metric: float | None = 1 / settings.classes if inside else np.nan
        self._told: tuple[int, float] | None = None  # a round, and the same as the policy is told it there
        self._current: Round | None = None
        self._next = 0

    # --- the loop ------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Round]:
        return self

    def __next__(self) -> Round:
        """The next round, charged."""
        with self.alone():
            return self._enter()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One thing at a time, in one process: two threads, or a fork, would release a round twice for one charge."""
        if os.getpid() != self._process:
            raise InputError("a loop over the air stays in its process: after a fork both would release every round")
        with self._turn:
            yield

    def _enter(self) -> Round:
        number = self._next
        if number >= self._plans.horizon:
            raise StopIteration
        if number >= self._state.charged and not self._charge(number):
            raise StopIteration
        self._current = Round(self, number)
        self._next = number + 1  # now: who breaks in before gets the round that is charged
        return self._current

    def _charge(self, number: int) -> bool:
        """Plan and charge a round, and keep that, before anyone is asked; False where the loop is over."""
        if self._metric is None:
            raise InputError(
                f"round {number}: {self.job.policy.name} plans from the accuracy of the model; call "
                "r.reward(accuracy) in every round, and air.reward(accuracy) after a restore"
            )
        if self._told is None or self._told[0] != number:  # else this round was planned before, and could not be kept
            self._told = number, noisy_metric(self, number, self._metric)
        metric = self._told[1]
        if not self._plan(number, metric):
            # For good: the next reward would be one more release, and whether the loop goes on would tell of it.
            self._plans.horizon = number
            self._state = self._folder.keep(self._state.ended())
            return False
        self._state = self._folder.keep(self._state.entered(metric, self._plans.row(number)))
        self._metric, self._told = None if self.job.policy.loop == "round" else np.nan, None
        return True

    def _plan(self, number: int, metric: float) -> bool:
        """Whether the policy goes on and the budget has room. An open loop was cut at the budget before."""
        if not self._plans.make(number, metric):
            return False
        if self.job.policy.loop == "round":
            try:
                charged(self.job, self._plans, number + 1)
            except BudgetExceeded:
                return False
        return True

    def _resume(self, again: bool) -> None:
        """Plan again what was charged, and find the round to go on with."""
        state, path, rows = self._state, self._folder.path, []
        for number in range(state.charged):
            metric = state.metrics[number] if number < len(state.metrics) else np.nan
            if number >= self._plans.horizon or not self._plan(number, metric):
                raise InputError(f"{path}: its {state.charged} rounds cannot be planned again; was otafl changed?")
            rows.append(self._plans.row(number))
        state.check_plans(rows, path)
        if state.over:
            self._plans.horizon = state.charged
        if self.job.policy.loop == "round" and state.charged:
            self._metric = None
        self._next = state.next_round(again, self.settings.seed is None, path)

    def close(self) -> None:
        """Let go of the folder, for `restore` in this process or another. `with otafl.Air(...) as air:` does it too."""
        self._folder.close()

    def __reduce__(self) -> Any:
        raise InputError("a loop over the air cannot be copied: two of them would release every round twice")

    def __enter__(self) -> "Air":
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def reward(self, accuracy: float) -> None:
        """Tell a closed loop the accuracy of the present model: before the first round, and after every round.

        Public data: neither trained nor reported on. Where the scheme asks for accuracies on private data, give the
        exact weighted mean: the noise is drawn here, and every round charges it. Before the first round chance level
        is assumed if nothing is said. Open loops need none and ignore it.
        """
        validate.single("accuracy", accuracy)
        validate.in_closed("accuracy", accuracy, 0, 1)
        if self.job.policy.loop == "round":
            self._metric = float(accuracy)

    # --- what a round needs ----------------------------------------------------------------------------------------

    def plan(self, number: int) -> Plan:
        """What a round that was entered is charged for."""
        return self._plans.row(number)

    def link(self, number: int) -> Link:
        """The plan after the channel, in float32."""
        return link_of(self.job, self.plan(number), number)

    def asked(self, number: int) -> np.ndarray:
        """Clients whose message is wanted: all whose silence is not public. Encrypted rounds need everyone."""
        everyone = not self._medium.analog or self.job.budget.accounting == "hidden"
        return np.arange(self.num_clients) if everyone else np.flatnonzero(~self._plans.silent(number))

    # --- what may be said about it -----------------------------------------------------------------------------------

    @property
    def num_clients(self) -> int:
        return len(self.job.deployment.weights)

    @property
    def rounds_charged(self) -> int:
        """Rounds entered so far."""
        return self._state.charged

    @property
    def affordable_rounds(self) -> int:
        """Rounds that fit the budget; of a closed loop, whose costs depend on what it sees, the horizon."""
        return self._plans.horizon

    @property
    def retired(self) -> int:
        """Clients who have reached their own cap (`stop="each"`) and are silent for good."""
        return self._plans.retired(self.rounds_charged) if self.job.retires else 0

    @property
    def ledger(self) -> Ledger:
        """What was released so far, under the budget."""
        return self.ledger_after(self.rounds_charged)

    def ledger_after(self, rounds: int) -> Ledger:
        """What the first rounds released."""
        return charged(self.job, self._plans, rounds)

    def ledger_bytes(self) -> bytes:
        """The ledger as a file holds it."""
        return self.ledger.to_bytes()

    @property
    def eps(self) -> float:
        """Spent so far by the worst client, at the budget's delta by its accountant."""
        return float(self.ledger.spent().worst)

    @property
    def state(self) -> State:
        return self._state

    @property
    def card(self) -> PrivacyCard:
        """What may be said about the privacy of this loop; `str(air.card)` is Markdown."""
        return card_of(self)

    @property
    def summary(self) -> dict[str, Any]:
        """Rounds, eps, answers and faults so far."""
        return report_of(self)

    def __repr__(self) -> str:
        cap = "" if np.isinf(self.job.budget.eps) else f" of {self.job.budget.eps:g}"
        rounds = f"{self.rounds_charged} of {self.affordable_rounds} rounds"
        name, spent = self.job.policy.name, round_up(self.eps)
        return f"<otafl.Air, {name}, {self.num_clients} clients: {rounds}, ε = {spent}{cap}>"

    def report(self) -> str:
        """The summary as lines of text, then the card."""
        lines = [f"{name}: {value}" for name, value in self.summary.items()]
        return "\n".join([*lines, "", self.card.to_markdown()])


def _template(like: Any) -> Any:
    try:
        return None if like is None else flatten(like)
    except InputError as problem:
        raise InputError(f"like {problem}") from None
