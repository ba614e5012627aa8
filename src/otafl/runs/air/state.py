"""What a loop keeps in its folder, so that a crash costs no privacy: charges, how far it was sent, the last answer.

    loop.json      the settings, and the seed of channel and coins where the loop itself has none; never one of noise
    state.json     rounds charged and their plans' hash, metrics told, the last round sent; with a seed its sum's hash
    answer.bin     the state with the last answer, a line; then that answer: what the server heard, noise included

The charge is written before anyone is asked, the sending before the air is used, the answer before it is given: the
newer of the two states is how far the loop has come. Every file is replaced at once and carries its SHA-256; states
carry that of their loop too, since those of another would bring its charges. One process at a time: a lock is held
while the loop lives. A copy of a folder is a second air: going on from both releases every further round twice, which
nothing here can see.
"""

import dataclasses
import hashlib
import json
import secrets
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from otafl.core import validate
from otafl.core.errors import InputError
from otafl.core.files import sweep, write_atomic
from otafl.core.plan import Plan
from otafl.runs.air.opening import Settings, from_json
from otafl.runs.air.replies import Fault
from otafl.runs.folder.disk import locked, settle, storage
from otafl.runs.folder.sealed import SEAL, read_sealed, reading, unsealed, with_seal

LOOP, STATE, ANSWER = "loop.json", "state.json", "answer.bin"
MEND = "without it the loop cannot go on; begin a new one, what was charged stays spent"


@dataclasses.dataclass(frozen=True)
class State:
    """How far a loop has come."""

    charged: int = 0  # rounds entered
    chain: str = ""  # hash of their plans
    metrics: tuple[float, ...] = ()  # what a closed loop was told before each of them
    over: bool = False  # the policy, or the budget, has ended the loop
    last_sent: int = -1
    messages: str = ""  # hash of what was sent there; without a seed none: guesses could be tried out on it
    last_answered: int = -1
    answers: int = 0
    failed: int = 0
    faults: dict[str, int] = dataclasses.field(default_factory=dict)  # how often each kind that may be kept

    def entered(self, metric: float, plan: Plan) -> "State":
        told = self.metrics if np.isnan(metric) else (*self.metrics, metric)
        return dataclasses.replace(self, charged=self.charged + 1, chain=_chained(self.chain, plan), metrics=told)

    def ended(self) -> "State":
        return dataclasses.replace(self, over=True)

    def sent(self, number: int, messages: str) -> "State":
        return dataclasses.replace(self, last_sent=number, messages=messages)

    def answered(self, number: int, faults: Sequence[Fault], failed: bool) -> "State":
        counts = dict(self.faults)
        for fault in faults:
            counts[fault.kind] = counts.get(fault.kind, 0) + 1
        return dataclasses.replace(
            self, last_sent=max(self.last_sent, number), last_answered=number, answers=self.answers + 1,
            failed=self.failed + failed, faults=counts,
        )  # fmt: skip

    def check_plans(self, plans: Sequence[Plan], path: Path | None) -> None:
        """The rounds planned again are those that were charged."""
        chain = ""
        for plan in plans:
            chain = _chained(chain, plan)
        if chain != self.chain:
            raise InputError(f"{path}: its rounds are planned otherwise than they were charged; was otafl changed?")

    def next_round(self, again: bool, fresh_noise: bool, path: Path | None) -> int:
        """Where to go on: see `Air.restore`."""
        if again:
            if self.last_answered < 0 or self.last_sent > self.last_answered:
                raise InputError(f"{path}: its last round has no answer; restore it without again=True")
            return self.last_answered
        if self.last_sent > self.last_answered:
            return self.last_sent + 1 if fresh_noise else self.last_sent
        return self.charged - 1 if self.charged - 1 > self.last_answered else self.last_answered + 1


def _consistent(state: State) -> State:
    """A state that this code could have written; ValueError where somebody else sealed another."""
    counts = (state.charged, state.last_sent, state.last_answered, state.answers, state.failed, *state.faults.values())
    in_order = all(type(count) is int for count in counts) and (
        -1 <= state.last_answered <= state.last_sent < state.charged
        and 0 <= state.failed <= state.answers <= state.last_answered + 1
        and len(state.metrics) in (0, state.charged)
        and all(type(metric) is float for metric in state.metrics)
        and isinstance(state.chain, str)
        and type(state.over) is bool
        and isinstance(state.messages, str)
    )
    if not in_order:
        raise ValueError("its numbers contradict each other")
    return state


def _chained(chain: str, plan: Plan) -> str:
    found = hashlib.sha256(chain.encode())
    for leaf in plan:
        found.update(np.ascontiguousarray(leaf).tobytes())
    return found.hexdigest()


@dataclasses.dataclass
class Folder:
    """The folder of a loop, or the lack of one."""

    path: Path | None
    settings: Settings
    trace_seed: int
    state: State
    lock: ExitStack | None = None
    loop: str = ""  # what tells it from others

    @staticmethod
    def new(path: str | Path | None, settings: Settings) -> "Folder":
        """Nothing is written before `begin`: a loop that cannot be planned leaves no folder."""
        path = None if path is None else validate.path("folder", path)
        if path is not None and (path / LOOP).exists():
            raise InputError(f"{path}: holds a loop already; go on with otafl.Air.restore({str(path)!r})")
        if path is not None and (path / "manifest.json").exists():
            raise InputError(f"{path}: holds a run of an experiment; give the loop another folder")
        seed = secrets.randbits(32) if settings.seed is None else settings.seed
        return Folder(path, settings, seed, State())

    def begin(self) -> None:
        """Take the folder and write the settings last: a folder without them holds no loop."""
        if self.path is None:
            return
        self.lock = _locked(self.path)
        if (self.path / LOOP).exists():
            self.close()
            raise InputError(f"{self.path}: another loop began there meanwhile; choose another folder")
        # Text inside the file: infinities survive, and what a policy is told stays what it was to the last bit.
        begun = {"settings": json.dumps(self.settings.to_json()), "trace_seed": self.trace_seed}
        self.loop = with_seal(begun)[SEAL]
        self.keep_answer(self.state, [])
        self.keep(self.state)
        self._write(LOOP, begun)
        for parent in self.path.absolute().parents:  # it may have been made with the folder
            settle(parent)

    @staticmethod
    def open(path: Path) -> "Folder":
        if not (path / LOOP).exists():
            raise InputError(f"{path}: holds no loop (no {LOOP})")
        lock = _locked(path)
        try:
            sweep(path)
            loop, state, head = read_sealed(path / LOOP, MEND), read_sealed(path / STATE, MEND), _head(path)[0]
            own = with_seal(loop)[SEAL]
            with reading(path / LOOP, "it was written by another version of otafl"):
                settings = from_json(json.loads(loop["settings"]), path)
                for name, content in ((STATE, state), (ANSWER, head)):
                    if content.pop("loop", None) != own:
                        raise InputError(f"{path / name}: belongs to another loop; {MEND}")
                both = _consistent(_state(state)), _consistent(_state(head))
                kept = max(both, key=lambda one: (one.last_answered, one.charged))
                return Folder(path, settings, int(loop["trace_seed"]), kept, lock, own)
        except BaseException:
            lock.close()
            raise

    def keep(self, state: State) -> State:
        """Make a state durable before anything depends on it."""
        if self.path is not None:
            self._write(STATE, {**dataclasses.asdict(state), "loop": self.loop})
        self.state = state
        return state

    def keep_answer(self, state: State, flat: Sequence[np.ndarray]) -> State:
        """Make an answer durable, and with it that the round has one, in one file."""
        if self.path is not None:
            leaves = [np.ascontiguousarray(leaf, "<f4").data for leaf in flat]
            head = {**dataclasses.asdict(state), "loop": self.loop, "answer": _hash(leaves)}
            self._write(ANSWER, head, leaves)
        self.state = state
        return state

    def stored(self, state: State, number: int, messages: str) -> np.ndarray | None:
        """The answer that this round had; None if it was never sent. A simulation refuses other messages than then."""
        if number != state.last_sent:
            return None
        if messages != state.messages:
            raise other_messages(number)
        if number != state.last_answered:
            return None
        assert self.path is not None
        head, body = _head(self.path)
        if head["last_answered"] != number or head["answer"] != _hash([body]):
            raise InputError(f"{self.path / ANSWER}: is damaged, or not the answer of round {number}; {MEND}")
        return np.frombuffer(body, "<f4").astype(np.float32)

    def close(self) -> None:
        """Let another process go on."""
        if self.lock is not None:
            self.lock.close()
            self.lock = None

    def _write(self, name: str, content: dict[str, Any], body: Sequence[Any] = ()) -> None:
        assert self.path is not None
        if self.lock is None:
            raise InputError(f"{self.path}: this loop was closed; go on with otafl.Air.restore({str(self.path)!r})")
        with storage(self.path):
            write_atomic(self.path / name, [json.dumps(with_seal(content)).encode(), b"\n", *body])
        settle(self.path)  # the charge that a power cut takes back would be answered a second time


def other_messages(number: int) -> InputError:
    return InputError(
        f"round {number} was sent with other messages: an answer to these would be a second release; send the same "
        "ones, or go on with the next round"
    )


def _hash(parts: Sequence[Any]) -> str:
    """SHA-256 of an answer. Plain numbers, no npz: a model is written in every round."""
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return found.hexdigest()


def _head(path: Path) -> tuple[dict[str, Any], bytes]:
    """The state that stands before the last answer, and that answer, not yet compared with its hash."""
    with reading(path / ANSWER, MEND):
        line, _, body = (path / ANSWER).read_bytes().partition(b"\n")
    return unsealed(line, path / ANSWER, MEND), body


def _state(content: dict[str, Any]) -> State:
    kept = {name: value for name, value in content.items() if name != "answer"}
    return State(**{**kept, "metrics": tuple(content["metrics"])})


def _locked(path: Path) -> ExitStack:
    """A lock that ends with the process, or when it is closed: two loops would release every round twice."""
    lock = ExitStack()
    lock.enter_context(locked(path, needed=True))
    return lock
