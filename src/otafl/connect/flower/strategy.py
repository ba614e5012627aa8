"""A Flower strategy whose uplink is the air: replies add up with the channel's weights, under noise that is charged.

The superposition is computed here, in the ServerApp, which sees every update: eps is that of the modelled uplink, and
the card says so. Weights, noise and charges are those of the plan, made before the first round; who does not reply
changes none of them.
"""

import inspect
from collections.abc import Callable, Iterable, Sequence
from logging import INFO, WARNING
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from flwr.supercore import log

from otafl.connect.flower.folder import PROGRESS, Row, RunFolder, form
from otafl.connect.flower.leaves import Leaves, arrays_of, on_air, replaced, update_of
from otafl.connect.flower.mod import CLIP_NORM, NAMES, RECORD
from otafl.connect.flower.nodes import Nodes
from otafl.connect.flower.record import metrics_of, row_of
from otafl.core import validate
from otafl.core.errors import BudgetExceeded, InputError

Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]

SEES_ALL = (
    "the superposition is computed in the Flower ServerApp, which sees every update in the clear, and so does the "
    "SuperLink: eps is that of the modelled uplink, for an observer of what its receiver hears"
)
MISSING = (
    "the artificial noise of a device that did not reply was added by the simulation all the same; over a real radio "
    "a missing device adds none, and the others are protected by less noise than was charged"
)


class OverTheAir(Strategy):
    """`OverTheAir(scheme, arrays, folder, site=10, clip_norm=1.0, eps=8.0, rounds=50, ...)` in place of FedAvg.

    Parameters
    ----------
    scheme : str or scheme value
        as for `otafl.Air`, for example `otafl.constant(rx_scale=0.3)`
    arrays : ArrayRecord
        the initial model, which says what a message looks like
    folder : path
        of this run: charges, model, card, ledger, report. A folder that holds a run goes on where that one ended,
        with the settings it was started with
    exclude : sequence of str
        names or patterns of leaves that are not sent (integers, batch-norm statistics); they keep their first values
    patience_s : float
        so long is waited for all devices before the first round
    air
        everything else goes to `otafl.Air`: site, clip_norm, channel, eps, delta, rounds, seed, ...

    Pass `num_rounds=strategy.affordable_rounds` to `start`. Federated evaluation would release functions of private
    data that nobody charges, so there is none: evaluate on public data with `evaluate_fn`. A scheme that learns from
    rewards takes "accuracy" from there.
    """

    def __init__(
        self, scheme: Any, arrays: ArrayRecord, folder: str | Path, *, exclude: str | Sequence[str] = (),
        patience_s: float = 600.0, **air: Any,
    ):  # fmt: skip
        from otafl.runs.air import Air
        from otafl.runs.schemes import chosen

        known = inspect.signature(Air).parameters
        if unknown := [name for name in air if name not in known]:
            told = f"OverTheAir: {unknown[0]}: unknown key{validate.meant(unknown[0], [*known])}"
            raise InputError(
                f"{told}; it takes those of otafl.Air, and the scheme says who takes part with which weight"
            )
        self.names, self.patience_s = on_air(arrays, exclude), patience_s
        like = list(arrays_of(arrays, self.names).values())
        self.folder = RunFolder(folder, arrays)
        asked = {"scheme": repr(chosen(scheme)), "leaves": self.names, **air}
        if (Path(folder) / "loop.json").exists():
            self.folder.check_asked(asked)
            self.air = Air.restore(folder, like=like)
        else:
            outside = [*air.pop("outside", ()), SEES_ALL, MISSING]
            self.air = Air(scheme, like=like, folder=folder, outside=outside, **air)
            self.folder.keep_asked(asked)
        self.nodes = Nodes(self.air.num_clients)
        self._first = len(self.folder.rows)  # rounds that an earlier start has finished
        charged, answered = self.air.rounds_charged, self.air.state.answers
        if self._first > charged or answered > self._first + 1:
            told = f"{self._first} rounds, {charged} were charged and {answered} answered"
            raise InputError(f"{folder}/{PROGRESS}: its record has {told}; the run cannot go on")
        self._round: Any = None

    @property
    def affordable_rounds(self) -> int:
        """Rounds that fit the budget: what `start` takes as num_rounds."""
        return int(self.air.affordable_rounds)

    @property
    def card(self) -> Any:
        return self.air.card

    def start(
        self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int = 3, timeout: float = 3600,
        train_config: ConfigRecord | None = None, evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Evaluate | None = None,
    ) -> Result:  # fmt: skip
        """As Flower's, for at most `affordable_rounds`; goes on after the last round of the folder."""
        if not self.folder.rows:
            self.folder.model = initial_arrays
        if form(initial_arrays) != form(self.folder.model):
            raise InputError("initial_arrays have another form than the arrays that this strategy was planned for")
        self._check_rounds(num_rounds)
        if self.closed_loop and evaluate_fn is None:
            raise InputError("evaluate_fn is missing: this scheme learns from the accuracy that it returns")
        if self._first < num_rounds:
            self.nodes.wait_for_all(grid, self.patience_s)
        try:
            evaluation = self._evaluation(evaluate_fn)
            return super().start(
                grid, self.folder.model, num_rounds, timeout, train_config, evaluate_config, evaluation
            )
        finally:
            self.folder.write_papers(self.air)

    def _check_rounds(self, wanted: int) -> None:
        """Every round that is run was planned and, of an open loop, charged before the first."""
        validate.whole("num_rounds", wanted, 0)
        most, planned, budget = self.affordable_rounds, self.air.settings.rounds, self.air.job.budget
        if wanted > planned:
            raise InputError(f"num_rounds={wanted}: this strategy was planned for rounds={planned}; plan it for more")
        if wanted > most:
            raise BudgetExceeded(
                f"num_rounds={wanted}: eps={budget.eps:g} at delta={budget.holds_at:g} allows {most} of the {planned} "
                "rounds that were planned; pass num_rounds=strategy.affordable_rounds, or plan for more eps or noise"
            )

    @property
    def closed_loop(self) -> bool:
        return bool(self.air.job.policy.loop == "round")

    def _evaluation(self, evaluate_fn: Evaluate | None) -> Evaluate | None:
        """The app's, for rounds that are not over; a closed loop learns from it."""
        if evaluate_fn is None:
            return None

        def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            if server_round < self._first:
                return None
            found = evaluate_fn(server_round, arrays)
            if found is not None:
                self.folder.evaluated(server_round, {n: v for n, v in found.items() if isinstance(v, int | float)})
            if self.closed_loop:
                if found is None or "accuracy" not in found:
                    raise InputError("evaluate_fn returned no 'accuracy', and this scheme learns from it")
                self.air.reward(float(found["accuracy"]))  # type: ignore[arg-type]
            return found

        return evaluate

    # --- one round -------------------------------------------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Enter the round, which charges it, and ask every device whose silence is not public."""
        current = self._entered(server_round)
        if current is None or current.number + 1 > server_round:
            return []
        here = self.nodes.look(grid)
        config["server-round"] = server_round
        told = ConfigRecord({CLIP_NORM: float(self.air.job.message.bound), NAMES: "\n".join(self.names)})
        content = RecordDict({"arrays": arrays, "config": config, RECORD: told})
        asked = [here[int(device)] for device in current.asked if int(device) in here]
        log(INFO, "configure_train: %d of %d devices are asked", len(asked), self.air.num_clients)
        return [
            Message(content, dst_node_id=node, message_type=MessageType.TRAIN, group_id=str(server_round))
            for node in asked
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """What the receiver hears of the replies, added to the model; faults are reported and change nothing else."""
        if server_round <= self._first:
            return None, metrics_of(self.folder.rows[server_round - 1])
        current = self._entered(server_round)
        if current is None:
            return None, None
        if current.number + 1 > server_round:
            return None, self._lost(server_round, "its answer was given before the start that ended, and is gone")
        model = arrays_of(self.folder.model, self.names)
        sent_before = self.air.state.last_sent >= current.number
        try:
            answer = current.send(self._read(replies, model) or {})
        except InputError as refusal:
            if not sent_before:
                raise
            return None, self._lost(server_round, str(refusal))  # other messages would be a second release
        ends = {name: leaf + heard for (name, leaf), heard in zip(model.items(), answer)}
        changed = replaced(self.folder.model, ends)
        for fault in current.faults:
            log(WARNING, "Round %d: %s", server_round, fault)
        row = row_of(current, self.air)
        self.folder.keep(row, changed)
        return changed, metrics_of(row)

    def _entered(self, server_round: int) -> Any:
        """The air's round, charged; None where an earlier start has finished it, or where the loop is over.

        Its number is larger than asked for where the air has gone on without us.
        """
        if server_round <= self._first:
            return None
        if self._round is None or self._round.number + 1 < server_round:
            self._round = next(self.air, None)
        return self._round

    def _lost(self, server_round: int, why: str) -> MetricRecord:
        """A round that was charged and left no answer: the model stays."""
        log(WARNING, "Round %d is lost and stays charged: %s", server_round, why)
        row: Row = {"asked": [], "eps": float(self.air.eps), "lost": 1, "faults": [f"lost: {why}"]}
        self.folder.keep(row, self.folder.model)
        return metrics_of(row)

    def _read(self, replies: Iterable[Message], model: Leaves) -> list[Any]:
        """Updates of this and perhaps other rounds, by device. An error is no reply."""
        from otafl.runs.air.replies import Reply

        out = []
        for reply in replies:
            device = self.nodes.device_of.get(reply.metadata.src_node_id, -1)
            if reply.has_error():
                log(WARNING, "Device %d failed: %s", device, " ".join(reply.error.reason.split())[:500])
                continue
            out.append(Reply(device, _update(reply, model, device), _round_of(reply)))
        return out

    # --- what this strategy does not do, or only says -----------------------------------------------------------------

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nobody is asked: metrics on private data would be releases without a charge."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> None:
        return None

    def summary(self) -> None:
        for name, value in self.air.summary.items():
            log(INFO, "\t├──> %s: %s", name, value)
        log(INFO, "\t└──> folder: %s", self.folder.path)


def _round_of(reply: Message) -> int:
    """The air's round that a reply says it answers; -1 where it says no number that this strategy gives."""
    said = reply.metadata.group_id
    return int(said) - 1 if said.isdecimal() and len(said) < 10 else -1


def _update(reply: Message, model: Leaves, device: int) -> list[np.ndarray]:
    """reply - model in the model's order; nothing where it is no such model, which the air reports as malformed."""
    records = list(reply.content.array_records.values())
    try:
        if len(records) != 1:
            raise InputError(f"{len(records)} ArrayRecords, expected one")
        return list(update_of(records[0], model).values())
    except InputError as problem:
        log(WARNING, "Device %d: %s", device, problem)
        return []
