"""Replies to an `otafl.Air`: missing, late, oversized, malformed or odd ones, and kinds of arrays."""

import warnings
from collections import OrderedDict
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import otafl
from otafl.core.errors import InputError, PrivacyViolation
from otafl.core.messages import clip_factors
from otafl.core.plan import Link
from otafl.core.uplink import ANALOG, FLOAT32_SLACK, superpose
from otafl.runs.air.replies import UnusableWarning
from otafl.runs.air.sums import Medium
from otafl.runs.air.trees import square_norm
from small_air import message, opened, replies


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


def test_what_lies_under_a_mask_is_not_sent() -> None:
    r = next(opened("fedavg", weights=(0.25,) * 4))
    hidden = np.ma.array(message(0), mask=[True] + [False] * 5)
    got = r.send({0: hidden, 1: np.ma.array(message(1)), 2: message(2), 3: message(3)})
    np.testing.assert_allclose(got, 0.25 * (message(1) + message(2) + message(3)), atol=1e-7)
    assert [(fault.client, fault.kind, fault.detail) for fault in r.faults] == [
        (0, "malformed", "holds masked values; fill them")
    ]


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
        ({k: np.ones(6, np.int64) for k in range(4)}, r"client 0: malformed \(holds numbers of type int64"),
        ({k: np.ones(5, np.float32) for k in range(4)}, r"client 0: malformed \(5 numbers, expected num_params=6"),
        ({str(k): np.ones(6, np.float32) for k in range(4)}, r"client '0': unknown \(clients are 0 to 3\)"),
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
    numbers = [np.array([0, 0]), float("nan"), 10**5000]  # which Python refuses to write in digits
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


def test_a_state_dict_and_a_plain_dict_of_its_entries_are_one_form() -> None:
    like = OrderedDict(weight=np.ones((2, 2), np.float32), bias=np.zeros(2, np.float32))
    air = otafl.Air("fedavg", site=2, num_params=6, clip_norm=10.0, rounds=1, seed=0, like=like)
    for r in air:
        heard = r.send({0: dict(like), 1: like})
        np.testing.assert_allclose(heard["weight"], like["weight"], rtol=1e-6)
