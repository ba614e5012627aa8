"""What a loop keeps in its folder, so that a crash costs no privacy: charges, hashes of messages, the last answer.

    loop.json      the settings, and the seed of the channel where the loop itself has none; never that of any noise
    state.json     rounds charged and their plans' hash, metrics told, the last round sent with its messages' hash
    answer.bin     the last answer: what the server heard, noise included

The charge is written before anyone is asked, the hash before the air is used, the answer before it is given. Every
file is replaced at once and carries its SHA-256. One process at a time: a lock is held while the loop lives. A copy of
a folder is a second air: going on from both releases every further round twice, which nothing here can see.
"""

import dataclasses
import fcntl
import hashlib
import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from otafl.core.errors import InputError
from otafl.core.files import sweep, write_atomic
from otafl.core.plan import Message, Plan
from otafl.runs.replies import Fault
from otafl.runs.schemes import choose
from otafl.runs.settings import Settings, channel_of, sha256_of

FORMAT = "otafl-air-1"


@dataclasses.dataclass(frozen=True)
class State:
    """How far a loop has come."""

    charged: int = 0  # rounds entered
    chain: str = ""  # hash of their plans
    metrics: tuple[float, ...] = ()  # what a closed loop was told before each of them
    last_sent: int = -1
    messages: str = ""  # hash of what was sent there
    last_answered: int = -1
    answers: int = 0
    failed: int = 0
    faults: dict[str, int] = dataclasses.field(default_factory=dict)  # how often each kind

    def entered(self, metric: float, plan: Plan) -> "State":
        told = self.metrics if np.isnan(metric) else (*self.metrics, metric)
        return dataclasses.replace(self, charged=self.charged + 1, chain=_chained(self.chain, plan), metrics=told)

    def sent(self, number: int, messages: str) -> "State":
        return dataclasses.replace(self, last_sent=number, messages=messages)

    def answered(self, number: int, faults: Sequence[Fault], failed: bool) -> "State":
        if number == self.last_answered:  # the stored answer once more
            return self
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
    lock: Any = None

    @staticmethod
    def none(settings: Settings) -> "Folder":
        return Folder(None, settings, _trace_seed(settings), State())

    @staticmethod
    def new(path: str | Path, settings: Settings) -> "Folder":
        path = Path(path)
        if (path / "loop.json").exists():
            raise InputError(f"{path}: holds a loop already; go on with otafl.Air.restore({str(path)!r})")
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock = _locked(path)
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error.strerror})") from None
        return Folder(path, settings, _trace_seed(settings), State(), lock)

    def begin(self) -> None:
        """Write down a loop that could be planned: one that was refused leaves nothing to go on from."""
        if self.path is not None:
            self._write("state.json", dataclasses.asdict(self.state))
            self._write("loop.json", {"settings": self.settings.to_json(), "trace_seed": self.trace_seed})

    @staticmethod
    def open(path: Path) -> "Folder":
        if not (path / "loop.json").exists():
            raise InputError(f"{path}: holds no loop (no loop.json)")
        lock = _locked(path)
        sweep(path)
        loop, state = _read(path / "loop.json"), _read(path / "state.json")
        try:
            settings = _settings(loop["settings"], path)
            kept = State(**{**state, "metrics": tuple(state["metrics"])})
            return Folder(path, settings, int(loop["trace_seed"]), kept, lock)
        except (KeyError, TypeError, ValueError) as problem:
            if isinstance(problem, InputError):
                raise
            raise InputError(f"{path}: was written by another version of otafl ({type(problem).__name__})") from None

    def keep(self, state: State) -> State:
        """Make a state durable before anything depends on it."""
        if self.path is not None:
            self._write("state.json", dataclasses.asdict(state))
        self.state = state
        return state

    def keep_answer(self, number: int, flat: Sequence[np.ndarray]) -> None:
        if self.path is not None:
            body = np.concatenate(flat).astype("<f4").tobytes()
            head = json.dumps({"round": number, "sha256": _seal(f"answer {number}", body)})
            write_atomic(self.path / "answer.bin", head.encode() + b"\n" + body)

    def stored(self, state: State, number: int, messages: str) -> np.ndarray | None:
        """The answer that this round had, for the same messages; None if it was never sent. Others are refused."""
        if number != state.last_sent:
            return None
        if messages != state.messages:
            raise InputError(
                f"round {number} was sent with other messages: an answer to these would be a second release; "
                "send the same ones, or go on with the next round"
            )
        if number != state.last_answered:
            return None
        assert self.path is not None
        content = _bytes(self.path / "answer.bin")
        line, _, body = content.partition(b"\n")
        if _json(line).get("sha256") != _seal(f"answer {number}", body):
            raise InputError(f"{self.path / 'answer.bin'}: is damaged, or not the answer of round {number}")
        return np.frombuffer(body, "<f4").astype(np.float32)

    def close(self) -> None:
        """Let another process go on."""
        if self.lock is not None:
            self.lock.close()
            self.lock = None

    def _write(self, name: str, content: dict[str, Any]) -> None:
        assert self.path is not None
        if self.lock is None:
            raise InputError(f"{self.path}: this loop was closed; go on with otafl.Air.restore({str(self.path)!r})")
        body = json.dumps({"format": FORMAT, **content}, sort_keys=True)
        try:
            write_atomic(self.path / name, f"{_seal(name, body.encode())}\n{body}\n")
        except OSError as error:
            raise InputError(f"{self.path / name}: cannot be written ({error.strerror}); nothing was sent") from None


def _trace_seed(settings: Settings) -> int:
    return secrets.randbits(32) if settings.seed is None else settings.seed


def _locked(path: Path) -> Any:
    """A lock that ends with the process."""
    handle = open(path / "lock", "a")  # noqa: SIM115
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        handle.close()
        raise InputError(f"{path}: another loop goes on with it, in this or another process; close it first") from None
    return handle


def _seal(name: str, body: bytes) -> str:
    return hashlib.sha256(f"{FORMAT} {name}\n".encode() + body).hexdigest()


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def _json(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _read(path: Path) -> dict[str, Any]:
    line, _, body = _bytes(path).partition(b"\n")
    body = body.removesuffix(b"\n")
    if line.decode(errors="replace") != _seal(path.name, body):
        raise InputError(f"{path}: is damaged: its checksum does not match; the loop cannot go on from it")
    found = _json(body)
    found.pop("format", None)
    return found


def _settings(plain: dict[str, Any], path: Path) -> Settings:
    """Settings as `Settings.to_json` wrote them; InputError if a file that they name has changed since."""
    for name, stated in plain.pop("files").items():
        if sha256_of(name) != stated:
            raise InputError(f"{path}: {name} was changed since the loop began; put it back, or begin a new loop")
    for name in ("sizes", "weights", "outside"):
        plain[name] = None if plain[name] is None else tuple(plain[name])
    if plain["message"] is not None:
        one = plain["message"]
        arrays = {name: np.asarray(one[name], float) for name in ("mean_square", "sensitivity", "rate")}
        plain["message"] = Message(**{**one, **arrays})
    plain["scheme"] = choose(plain["scheme"]["name"], plain["scheme"]["config"])
    plain["channel"] = channel_of(plain["channel"])
    return Settings(**plain)
