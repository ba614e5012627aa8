"""`otafl.Air` as a tool: what it asks, refuses, reports and says. Numbers are held to the engine's next door."""

import contextlib
import copy
import dataclasses
import errno
import fcntl
import os
import re
import stat
import threading
import warnings
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import otafl
from otafl import systems
from otafl.core.errors import BudgetExceeded, InputError, PrivacyViolation
from otafl.core.messages import clip_factors
from otafl.core.plan import Feedback, Link, Message, Plan, Policy
from otafl.core.uplink import ANALOG, FLOAT32_SLACK, superpose
from otafl.privacy import Ledger
from otafl.privacy.card_text import round_up
from otafl.privacy.events import pick
from otafl.privacy.sums import no_rounds
from otafl.runs.air.replies import UnusableWarning
from otafl.runs.air.state import Folder
from otafl.runs.air.sums import Medium
from otafl.runs.air.trees import square_norm
from otafl.runs.folder.disk import StorageError
from small_air import message, opened, replies

# --- the loop -----------------------------------------------------------------------------------------------------


def test_the_budget_ends_the_loop_and_is_a_cap() -> None:
    air = otafl.Air(otafl.constant(rx_scale=0.3), site=40, num_params=31, clip_norm=1.0, channel="cares", eps=8.0,
                    delta=1e-5, rounds=200, seed=0)  # fmt: skip
    spent = []
    for r in air:
        r.send({k: np.full(31, 0.1, np.float32) for k in r.asked})
        spent.append(r.eps)
    assert len(spent) == air.affordable_rounds == air.rounds_charged < 200
    assert np.all(np.diff(spent) > 0) and spent[-1] <= 8.0
    one_more = Ledger.from_bytes(air.ledger_bytes())
    with pytest.raises(BudgetExceeded):
        one_more.spend(pick(one_more.parts[0], slice(1)))


def test_a_round_is_charged_on_entry_and_stays_charged() -> None:
    air = opened()
    r = next(air)
    assert air.ledger.rounds() == 1
    next(air)  # the first was never sent
    assert air.ledger.rounds() == 2
    with pytest.raises(InputError, match="round 0"):
        r.send(replies(r))


def test_a_reply_that_sends_the_round_while_it_is_read_gets_no_second_answer() -> None:
    """Two answers under one noise: their difference is the difference of the messages."""
    r = next(opened())

    class Lazy:
        def __array__(self, *wanted: Any, **more: Any) -> np.ndarray:
            r.send(replies(r))
            return message(0)

    with pytest.raises(InputError, match="round 0 was sent before"):
        r.send({**replies(r), int(r.asked[0]): Lazy()})


def test_a_loop_and_its_rounds_say_where_they_are() -> None:
    air = opened(eps=8.0)
    assert repr(air) == "<otafl.Air, constant, 4 clients: 0 of 5 rounds, ε = 0 of 8>"
    r = next(air)
    assert repr(r) == "<round 0: 4 of 4 clients asked, open>"
    r.send(replies(r))
    assert repr(r).endswith("answered>") and f"1 of 5 rounds, ε = {round_up(air.eps)} of 8" in repr(air)


def test_a_round_is_sent_once() -> None:
    r = next(opened())
    r.send(replies(r))
    with pytest.raises(InputError, match="once"):
        r.send(replies(r))


def test_two_threads_get_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum waits for both: without a lock each would be answered, and one charge would pay for two releases."""
    r = next(opened(seed=None))
    meeting, add_up = threading.Barrier(2), Medium.add_up

    def waiting(*args: Any) -> Any:
        with contextlib.suppress(threading.BrokenBarrierError):
            meeting.wait(0.5)
        return add_up(*args)

    monkeypatch.setattr(Medium, "add_up", waiting)
    with ThreadPoolExecutor(2) as pool:
        ended = [pool.submit(r.send, replies(r)) for _ in range(2)]
    assert sorted(type(one.exception()) for one in ended if one.exception()) == [InputError]


def test_a_fork_does_not_release_a_round_again(monkeypatch: pytest.MonkeyPatch) -> None:
    air = opened()
    r, own = next(air), os.getpid()
    monkeypatch.setattr("os.getpid", lambda: own + 1)
    for again in (lambda: r.send(replies(r)), lambda: next(air)):
        with pytest.raises(InputError, match="stays in its process"):
            again()
    monkeypatch.undo()
    r.send(replies(r))


@pytest.mark.parametrize("seed", [1, None])
@pytest.mark.parametrize("becomes", [1e3, np.nan])
def test_a_message_that_changes_while_it_is_sent_is_refused(
    seed: int | None, becomes: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured at one length, it would be added at another: as loud as somebody likes, at the same charge."""
    r = next(opened(seed=seed))
    brought, add_up = replies(r), Medium.add_up

    def late(*args: Any) -> Any:
        brought[int(r.asked[0])][:] = becomes
        return add_up(*args)

    monkeypatch.setattr(Medium, "add_up", late)
    with pytest.raises(PrivacyViolation, match="changed while it was sent; nothing was sent"):
        r.send(brought)
    monkeypatch.setattr(Medium, "add_up", add_up)
    assert np.all(np.isfinite(r.send(replies(r))))


class Several(int):
    """A client who is somebody else whenever he is asked."""

    def __int__(self) -> int:
        return -1

    __index__ = __int__


class LooksLikeATensor:
    """Says that it is an array of six numbers, and is none."""

    dtype, shape = np.dtype("float32"), (6,)

    def detach(self) -> "LooksLikeATensor":
        return self

    def cpu(self) -> "LooksLikeATensor":
        return self

    def float(self) -> "LooksLikeATensor":
        return self

    def numpy(self) -> "LooksLikeATensor":
        return self

    @property
    def is_floating_point(self) -> Any:
        raise RuntimeError("no")


class Sized(np.ndarray):
    """An array whose shape is another one."""

    @property
    def shape(self) -> Any:  # type: ignore[override]
        return (2, 3)


def test_numbers_and_arrays_that_only_look_so_are_faults() -> None:
    r = next(opened(seed=None))
    there = [int(k) for k in r.asked]
    listed = [otafl.Reply(Several(there[0]), message(0)), otafl.Reply(there[0], LooksLikeATensor())]
    listed += [otafl.Reply(k, message(k).view(Sized)) for k in there[1:]]
    answer = r.send(listed)
    assert [fault.kind for fault in r.faults] == ["unknown", "malformed"]
    assert type(answer) is np.ndarray and answer.size == 6


def test_nothing_affordable_is_said_at_once() -> None:
    with pytest.raises(BudgetExceeded, match="not one round"):
        opened(otafl.constant(rx_scale=100.0), eps=0.1)


def test_nobody_is_renormalised_for_a_missing_reply() -> None:
    """fedavg without noise: the answer is exactly the weighted sum of what came, weights of those who did not lost."""
    r = next(opened("fedavg", weights=(0.1, 0.2, 0.3, 0.4)))
    got = r.send({0: message(0), 2: message(2)})
    np.testing.assert_allclose(got, 0.1 * message(0) + 0.3 * message(2), atol=1e-7)
    assert [(fault.client, fault.kind) for fault in r.faults] == [(1, "missing"), (3, "missing")]


def test_oversized_messages_are_clipped_below_the_bound() -> None:
    r = next(opened("fedavg", weights=(1.0, 0, 0, 0), clip_norm=0.01))
    big = 1e3 * message(0)
    got = r.send({0: big})
    assert np.linalg.norm(got) <= 0.01
    np.testing.assert_allclose(got, 0.01 * big / np.linalg.norm(big), rtol=1e-5)
    assert [f.kind for f in r.faults if f.client == 0] == ["clipped"]


@pytest.mark.parametrize("large", [1, 8, 64])
def test_small_numbers_beside_large_ones_count_in_a_norm(large: int) -> None:
    """2^-24 added to one in float32 is one: what 8192 numbers lost so was nearly all the room that clipping leaves."""
    numbers = np.full((10, 2**13), 2.0**-12, np.float32)
    numbers[:, :large] = 1
    found = np.sqrt(square_norm([numbers.reshape(-1)]))
    assert found > np.linalg.norm(numbers.astype(float)) * (1 - FLOAT32_SLACK / 2)


@pytest.mark.parametrize("weight", [1.0, 1e-12, 1e-15, 1e-17, 7.5e-18])
def test_a_huge_message_at_a_tiny_weight_is_never_louder_than_charged(weight: float) -> None:
    """Their product has few digits left below 1e-38: one was 1.87 times as loud."""
    link = Link(np.array([weight], np.float32), np.array([np.inf], np.float32), np.float32(1e-30), np.array(True))
    huge = np.array([1e19, 0], np.float32)
    for seed in (0, None):
        entered = Medium(ANALOG, seed).add_up({0: [huge]}, {0: 1e19}, link, ((2,),), 1e-9)
        assert np.linalg.norm(entered.parts[0][0]) <= weight * 1e-9
    with jax.enable_x64(True):
        everybody, factor = (jnp.arange(1), jnp.ones(1, bool)), clip_factors(jnp.array([1e19], jnp.float32), 1e-9)
        total = superpose(jax.tree.map(jnp.asarray, link), *everybody, factor, jnp.asarray(huge)[None])
    assert np.linalg.norm(total) <= weight * 1e-9


@pytest.mark.parametrize(("bad", "kind"), [
    (np.full(6, 100.0, np.float32), PrivacyViolation),
    (np.full(6, np.nan, np.float32), PrivacyViolation),
    (np.zeros(5, np.float32), InputError),
])  # fmt: skip
def test_strict_refuses_before_anything_is_sent(bad: np.ndarray, kind: type) -> None:
    r = next(opened(strict=True))
    good = replies(r)
    with pytest.raises(kind, match="nothing was sent"):
        r.send({**good, int(r.asked[0]): bad})
    assert r.send(good).shape == (6,)


def test_replies_that_are_no_pytrees_are_malformed() -> None:
    """Cycles, nests too deep to walk, keys without an order: the round goes on without them."""
    cycle: list[Any] = []
    cycle.append(cycle)
    deep: list[Any] = []
    for _ in range(3000):
        deep = [deep]
    r = next(opened())
    r.send({0: cycle, 1: deep, 2: {1: message(0, 3), "a": message(0, 3)}})
    assert [fault.kind for fault in r.faults if fault.client < 3] == ["malformed"] * 3


@pytest.mark.parametrize(
    ("replies", "why"),
    [
        ({k: np.ones(6, np.int64) for k in range(4)}, "malformed: holds numbers of type int64"),
        ({k: np.ones(5, np.float32) for k in range(4)}, "malformed: 5 numbers, expected num_params=6"),
        ({str(k): np.ones(6, np.float32) for k in range(4)}, "unknown: see faults"),
    ],
)
def test_a_round_without_a_usable_reply_warns(replies: dict[Any, Any], why: str) -> None:
    with pytest.warns(UnusableWarning, match=rf"no reply can be used \({why}.*\); the answer is noise alone"):
        next(opened()).send(replies)


@pytest.mark.parametrize("value", [None, np.full(6, np.nan, np.float32)])
def test_nothing_is_said_of_replies_that_are_missing_or_of_what_they_hold(value: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        next(opened()).send(dict.fromkeys(range(4), value))


def test_a_reply_to_a_round_that_is_no_number_is_late() -> None:
    r = next(opened())
    numbers = [np.array([0, 0]), float("nan"), "0"]
    r.send([otafl.Reply(k, message(k), round=number) for k, number in enumerate(numbers)])
    assert [fault.kind for fault in r.faults if fault.client < 3 and fault.kind != "missing"] == ["late"] * 3


def test_late_duplicate_and_unknown_replies_are_named() -> None:
    r = next(opened("fedavg", weights=(0.25,) * 4))
    sent = [otafl.Reply(0, message(0)), otafl.Reply(0, message(9)), otafl.Reply(1, message(1), round=7),
            otafl.Reply("x", message(1)), otafl.Reply(9, message(1)), otafl.Reply(2, message(2), round=0)]  # fmt: skip
    got = r.send(sent)
    np.testing.assert_allclose(got, 0.25 * (message(0) + message(2)), atol=1e-7)
    kinds = [(fault.client, fault.kind) for fault in r.faults]
    assert kinds == [(0, "duplicate"), (1, "late"), ("x", "unknown"), (9, "unknown"), (1, "missing"), (3, "missing")]


LEAVES = st.one_of(
    st.just(None), st.just("text"), st.just(object()), st.floats(), st.integers(), st.just(np.array(["a"])),
    st.lists(st.floats(width=32), min_size=0, max_size=7), st.just(np.ones(6, complex)), st.just(np.ones(6, bool)),
    st.builds(lambda v: np.full(6, v, np.float32), st.floats(width=32)),
    st.builds(lambda v: np.full(6, v), st.floats()), st.just({"a": np.ones(6, np.float32)}),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.one_of(st.integers(-2, 5), st.text(max_size=2), st.none()), LEAVES, max_size=6))
def test_whatever_comes_back_the_answer_is_finite_and_bounded(updates: dict[Any, Any]) -> None:
    """Nobody can push the sum beyond weights times bound, or make it other than finite."""
    r = next(FUZZED)
    got = r.send({**updates, 3: message(3)})
    flat = np.concatenate([np.ravel(leaf) for leaf in (got.values() if isinstance(got, dict) else [got])])
    assert np.all(np.isfinite(flat)) and np.linalg.norm(flat) <= 1.0


FUZZED = otafl.Air("fedavg", site=4, num_params=6, clip_norm=1.0, rounds=400, seed=0, like=message(0))


# --- kinds of arrays ----------------------------------------------------------------------------------------------


def tree(k: int, array: Any) -> dict[str, Any]:
    flat = message(k)
    return {"w": array(flat[:4].reshape(2, 2)), "b": [array(flat[4:5]), array(flat[5:])]}


def test_numpy_and_jax_trees_come_back_as_they_were() -> None:
    plain = next(opened()).send({k: tree(k, np.array) for k in range(4)})
    from_jax = next(opened()).send({k: tree(k, jnp.asarray) for k in range(4)})
    double = next(opened()).send({k: tree(k, lambda x: np.asarray(x, np.float64)) for k in range(4)})
    assert isinstance(from_jax["w"], jnp.ndarray) and from_jax["w"].dtype == jnp.float32
    assert plain["w"].shape == (2, 2) and plain["w"].flags.writeable and double["b"][1].dtype == np.float64
    for other in (from_jax, double):
        np.testing.assert_array_equal(np.asarray(other["w"]), plain["w"])


def test_one_client_does_not_decide_how_exact_the_answer_is() -> None:
    """The first reply's type used to be everybody's: half precision, or an infinity, for one client's asking."""
    answers = []
    for kind in (np.float32, np.float16):
        r = next(opened())
        updates = {k: np.full(6, 0.125, np.float32) for k in r.asked}
        updates[int(r.asked[0])] = updates[int(r.asked[0])].astype(kind)
        answers.append(r.send(updates))
    assert answers[1].dtype == np.float32 and np.array_equal(*answers)


def test_plain_numbers_come_back_as_plain_numbers() -> None:
    given = {k: [0.1, {"bias": np.float64(0.2)}, *[0.0] * 4] for k in range(4)}
    plain, arrays = opened(), opened()
    answer = next(plain).send(given)
    assert isinstance(answer[0], float) and isinstance(answer[1]["bias"], np.float64)
    same = next(arrays).send({k: [0.1, np.array(0.2), *[0.0] * 4] for k in range(4)})
    assert [answer[0], answer[1]["bias"], *answer[2:]] == pytest.approx([float(leaf) for leaf in same])


def test_torch_tensors_come_back_as_tensors() -> None:
    torch = pytest.importorskip("torch")
    want = next(opened()).send({k: tree(k, np.array) for k in range(4)})
    got = next(opened()).send({k: tree(k, lambda x: torch.tensor(x, requires_grad=True)) for k in range(4)})
    assert isinstance(got["w"], torch.Tensor) and got["w"].dtype == torch.float32
    np.testing.assert_array_equal(got["w"].numpy(), want["w"])


# --- encrypted rounds ---------------------------------------------------------------------------------------------


def encrypted(mode: str) -> otafl.Air:
    return otafl.Air(otafl.eezofl(mode=mode, dp_noise=0.5), site=4, num_params=2, clip_norm=1.0, channel="eezofl",
                     rounds=3, seed=2)  # fmt: skip


def test_all_reply_to_an_encrypted_round_and_a_failed_one_is_charged_again() -> None:
    air = encrypted("naive-reuse")
    answers = []
    for r in air:
        assert r.asked.tolist() == [0, 1, 2, 3]
        answers.append(r.send(replies(r, 2)))
        assert r.failed
    assert air.ledger.rounds() == 3 and air.summary["failed"] == 3
    np.testing.assert_array_equal(answers, np.zeros((3, 2)))


def test_a_silent_device_encrypts_zero() -> None:
    all_of_them, without = encrypted("digital"), encrypted("digital")
    r, other = next(all_of_them), next(without)
    full, less = r.send(replies(r, 2)), other.send({k: m for k, m in replies(other, 2).items() if k != 1})
    weight = r.plan.tx[1].real * all_of_them.job.trace.gain[0, 1].real
    np.testing.assert_allclose(full - less, weight * message(1, 2), atol=1e-4)
    assert not r.failed and not other.failed


# --- closed loops -------------------------------------------------------------------------------------------------


def test_a_closed_loop_asks_for_its_reward() -> None:
    air = opened("cares-adaptive", channel="cares", eps=300.0)
    r = next(air)
    r.send(replies(r))
    with pytest.raises(InputError, match="reward"):
        next(air)
    r.reward(0.5)
    assert next(air).number == 1
    with pytest.raises(InputError, match="accuracy"):
        air.reward(1.5)


@dataclasses.dataclass(frozen=True)
class Nothing:
    """Nothing to set."""


def choosy(config: Any, deployment: Any, *told: Any) -> Policy:
    """Somebody else's closed loop, which ends where a noisy reward on private data is low."""

    def step(state: Any, obs: Any) -> Any:
        ones = jnp.ones(obs.coin.shape)
        return state, Plan(0.05 * ones / obs.estimate, 0j * ones, np.inf * ones, 0.05, ones, obs.metric > 0.5), ()

    return Policy("choosy", lambda key: np.zeros(1), step, "round", "own", "open", feedback=Feedback("private", 0.1))


def test_a_loop_that_has_ended_draws_no_further_reward(tmp_path: Path) -> None:
    """Whether it goes on would tell of a reward that nobody charged."""
    systems.register("choosy", choosy, Nothing)
    air = opened("choosy", eps=300.0, sizes=(5, 5, 5, 5), folder=tmp_path / "loop")
    air.reward(1.0)
    next(air).reward(0.0)
    assert list(air) == [] and air.affordable_rounds == air.rounds_charged == 1
    air.reward(1.0)
    assert list(air) == []
    air.close()
    again = otafl.Air.restore(tmp_path / "loop")
    next(again)  # was entered and not sent
    again.reward(1.0)
    assert list(again) == [] and again.rounds_charged == 1


def test_a_closed_loop_from_outside_has_the_rewards_of_its_horizon_set_aside() -> None:
    systems.register("choosy", choosy, Nothing)
    air = opened("choosy", eps=201.5, sizes=(5, 5, 5, 5), rounds=40)
    air.reward(1.0)
    for r in air:
        r.reward(1.0)
    assert 0 < air.rounds_charged < 40
    ledger, left = air.ledger, 40 - air.rounds_charged
    ledger.release(air.job.releases[0]._replace(times=left))
    assert ledger.spent().worst <= 201.5


def test_a_round_that_could_not_be_kept_is_planned_once(tmp_path: Path, monkeypatch: Any) -> None:
    def full(folder: Folder, state: Any) -> Any:
        raise OSError(28, "no space left on device")

    whole, air = (opened("cares-adaptive", channel="cares", eps=900.0, folder=tmp_path / name) for name in "ab")
    for number in range(3):
        with monkeypatch.context() as broken:
            broken.setattr(Folder, "keep", full)
            with pytest.raises(OSError, match="no space"):
                next(air)
        for loop in (whole, air):
            r = next(loop)
            assert r.number == number
            r.send(replies(r))
            r.reward(0.3 + 0.2 * number)
    assert air.ledger_bytes() == whole.ledger_bytes()
    air.close()
    assert otafl.Air.restore(tmp_path / "b").rounds_charged == 3


# --- sites --------------------------------------------------------------------------------------------------------


def test_a_deployment_file_is_a_site(tmp_path: Path) -> None:
    (tmp_path / "site.csv").write_text("gain_db,power_dbm,samples\n-60,10,100\n-65,10,300\n")
    air = otafl.Air("weakest", site=tmp_path / "site.csv", num_params=6, noise_dbm=-70.0, rounds=2, seed=0)
    np.testing.assert_allclose(air.job.deployment.weights, [0.25, 0.75])
    np.testing.assert_allclose(air.job.deployment.energy, 0.01 * 6)
    np.testing.assert_allclose(air.job.deployment.noise_var, 1e-10 / 2)
    with pytest.raises(InputError, match="noise_dbm"):
        otafl.Air("weakest", site=tmp_path / "site.csv", num_params=6)
    (tmp_path / "site.toml").write_text(
        'devices_file = "site.csv"\n[radio]\nbandwidth_hz = 1e6\nnoise_dbm = -110.0\ntrusted_noise_dbm = -113.0\n'
    )
    air = otafl.Air("weakest", site=tmp_path / "site.toml", num_params=6, rounds=2, seed=0)
    assert air.num_clients == 2 and air.job.deployment.trusted_noise_var < air.job.deployment.noise_var
    with pytest.raises(InputError, match=r"\[radio\]"):
        otafl.Air("weakest", site=tmp_path / "site.toml", num_params=6, noise_std=0.1)
    otafl.Air("weakest", site=tmp_path / "site.toml", num_params=6, rounds=2, folder=tmp_path / "loop").close()
    (tmp_path / "site.csv").write_text("gain_db,power_dbm,samples\n-60,10,100\n-66,10,300\n")
    with pytest.raises(InputError, match=r"site\.csv was changed since the loop began"):
        otafl.Air.restore(tmp_path / "loop")


@pytest.mark.parametrize(("wrong", "said"), [
    ({"site": 0}, "site"), ({"num_params": None}, "num_params"), ({"clip_norm": -1.0}, "clip_norm"),
    ({"rounds": 0}, "rounds"), ({"channel": "nowhere"}, "channel"), ({"eps": -1.0}, "eps"), ({"delta": 2.0}, "delta"),
    ({"accountant": "best"}, "accountant"), ({"adjacency": "near"}, "adjacency"), ({"seed": -1}, "seed"),
    ({"weights": (0.5, 0.5)}, "weights"), ({"weights": (0.5, 0.5, 0.5, 0.5)}, "weights"), ({"sizes": (1, 2)}, "sizes"),
    ({"site": "nowhere.toml"}, "nowhere.toml"), ({"noise_std": 1.0, "noise_dbm": 3.0}, "noise_dbm"),
    ({"site": 4.0}, "site"), ({"site": True}, "site"), ({"site": 10**18}, "site"), ({"num_params": 10**18}, "memory"),
    ({"rounds": "5"}, "rounds"), ({"sizes": (1.5, 1, 1, 1)}, "sizes"),
    ({"message": 3}, "message"), ({"folder": 3}, "folder"), ({"like": "x"}, "like"), ({"strict": "no"}, "strict"),
    ({"rounds": 10**6, "site": 10**6}, "memory"), ({"delta": None}, "delta"), ({"channel": 3}, "channel"),
    ({"like": np.ones(3, np.float32)}, "like"), ({"channel": {"fading": {"law": "x"}}}, "channel"),
])  # fmt: skip
def test_mistakes_are_one_line(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        opened(**wrong)
    assert said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("promised", "said"),
    [
        ({"bound": 1e-25}, "message.bound=1e-25 must be at least 1e-09"),
        ({"bound": -1.0}, "message.bound=-1.0 must be finite and > 0"),
        ({"mean_square": np.full(4, np.nan)}, "message.mean_square"),
        ({"sensitivity": -np.ones(4)}, "message.sensitivity"),
        ({"unit": "household"}, "message.unit='household' must be one of client, record"),
        ({"adjacency": "none"}, "message.adjacency='none' must be one of"),
        ({"adjacency": "add-remove"}, "adjacency='add-remove' needs unit='record': the roster is published"),
    ],
)
def test_a_promise_that_no_message_can_keep_is_refused(promised: dict[str, Any], said: str) -> None:
    ones = np.ones(4)
    message = Message(6, 1.0, ones, 2 * ones, ones, "client", "replace")._replace(**promised)
    with pytest.raises(InputError, match=re.escape(said)):
        opened(message=message, num_params=None)


@pytest.mark.parametrize(
    ("adjacency", "moved", "asserted"), [("replace", 1.0, True), ("replace", 2.0, False), ("zero-out", 1.0, False)]
)
def test_what_clipping_does_not_enforce_of_a_client_stands_on_the_card(
    adjacency: Any, moved: float, asserted: bool
) -> None:
    """Another client's data may turn a message of norm one round: two apart."""
    ones = np.ones(4)
    air = opened(message=Message(6, 1.0, ones, moved * ones, ones, "client", adjacency), num_params=None)
    said = "asserted by the caller, not seen here: more than the norm bound enforces, so that one client moves"
    assert (said in str(air.card)) == asserted


@pytest.mark.parametrize("scheme", ["constant", "cares-adaptive"])
def test_nothing_that_is_charged_can_be_written_into(scheme: str) -> None:
    """The ledger is counted anew whenever it is asked for."""
    ones, moved = np.ones(4), np.full(4, 2.0)
    promised = Message(6, 1.0, ones, moved, ones, "client", "replace")
    air = opened(scheme, message=promised, num_params=None, channel="cares", eps=500.0)
    r = next(air)
    spent = air.eps
    moved[:] = 1e-6
    for values in (r.plan, air.job.trace, air.job.deployment, air.job.message):
        for leaf in values:
            assert not isinstance(leaf, np.ndarray) or not leaf.flags.writeable
    assert air.eps == spent


@pytest.mark.parametrize("scheme", ["nonsense", 3, None])
def test_a_scheme_is_a_name_or_a_value(scheme: Any) -> None:
    with pytest.raises(InputError, match="scheme"):
        opened(scheme)


@pytest.mark.parametrize("changed", ["adjacency", "unit"])
def test_a_ledger_of_other_neighbours_is_refused_though_sensitivities_agree(changed: str, tmp_path: Path) -> None:
    """Two under zero-out is four under replacement, and what a record moves is not what a client moves."""
    ones = np.ones(4)
    first = Message(6, 2.0, 4 * ones, 2 * ones, ones, "client", "zero-out")
    second = first._replace(**{"adjacency": {"adjacency": "replace"}, "unit": {"unit": "record"}}[changed])
    before = opened(message=first, num_params=None, eps=50.0)
    for r in before:
        r.send(replies(r))
    (tmp_path / "ledger.bin").write_bytes(before.ledger_bytes())
    opened(message=first, num_params=None, eps=50.0, already_spent=tmp_path / "ledger.bin")
    with pytest.raises(InputError, match=f"was counted for {changed}="):
        opened(message=second, num_params=None, eps=50.0, already_spent=tmp_path / "ledger.bin")


def test_what_an_earlier_run_spent_counts(tmp_path: Path) -> None:
    first = opened(eps=8.0)
    for r in first:
        r.send(replies(r))
    first.ledger.save(tmp_path / "ledger.bin")
    later = opened(eps=8.0, rounds=50, already_spent=tmp_path / "ledger.bin", folder=tmp_path / "loop")
    assert later.affordable_rounds == opened(eps=8.0, rounds=50).affordable_rounds - 5
    next(later)
    assert later.eps > opened().eps and later.ledger.rounds() == 6
    later.close()
    opened(rounds=1).ledger.save(tmp_path / "ledger.bin")  # a smaller debt
    with pytest.raises(InputError, match="was changed"):
        otafl.Air.restore(tmp_path / "loop")


def test_an_earlier_ledger_of_sums_counts_as_one_of_rounds(tmp_path: Path) -> None:
    first = opened(eps=50.0)
    for r in first:
        r.send(replies(r))
    whole, run = Ledger(first.ledger.budget, 4), first.ledger.events
    whole.charge(no_rounds(run.rate, run.sensitivity).add(run))
    spent = []
    for name, ledger in (("rounds", first.ledger), ("sums", whole)):
        ledger.save(tmp_path / name)
        air = opened(eps=50.0, already_spent=tmp_path / name)
        next(air)
        spent.append((air.eps, air.ledger.rounds()))
    assert spent[0] == spent[1] and spent[0][0] > first.eps


def test_a_loop_cannot_be_copied() -> None:
    with pytest.raises(InputError, match="copied"):
        copy.deepcopy(opened())


def test_rounds_without_a_certificate_are_said() -> None:
    air = opened(otafl.cares_static(diagnostic=True, max_dropped=1e-9), channel="cares", eps=50.0)
    next(air)
    assert "certificate" in air.summary["remarks"][0] and air.summary["remarks"][0] in str(air.card)


def test_a_state_dict_and_a_plain_dict_of_its_entries_are_one_form() -> None:
    like = OrderedDict(weight=np.ones((2, 2), np.float32), bias=np.zeros(2, np.float32))
    air = otafl.Air("fedavg", site=2, num_params=6, clip_norm=10.0, rounds=1, seed=0, like=like)
    for r in air:
        heard = r.send({0: dict(like), 1: like})
        np.testing.assert_allclose(heard["weight"], like["weight"], rtol=1e-6)


@pytest.mark.parametrize("files", [True, False], ids=["files alone", "nothing"])
def test_a_disk_that_locks_no_folders_still_has_one_loop_at_a_time_or_none(
    files: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NFS: two loops in one folder would release every round twice for one charge."""
    whole = fcntl.flock

    def flock(handle: int, how: int) -> None:
        if not files or stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EBADF, "no locks here")
        whole(handle, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    if not files:
        with pytest.raises(StorageError, match="cannot be locked"):
            opened(folder=tmp_path / "loop")
        return
    air = opened(folder=tmp_path / "loop")
    next(air)
    with pytest.raises(InputError, match="another process is writing"):
        otafl.Air.restore(tmp_path / "loop")
    air.close()
    with otafl.Air.restore(tmp_path / "loop") as again:
        assert again.rounds_charged == 1
