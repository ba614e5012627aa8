"""Schemes of somebody's own that return, declare or are called something odd: one line each, never a traceback."""

from collections.abc import Iterator
from dataclasses import make_dataclass
from typing import Any

import numpy as np
import pytest

import otafl
from otafl import systems
from otafl.core.errors import InputError
from otafl.core.plan import ours
from otafl.runs.planning.table import PlanTable


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    yield
    systems.remove(systems.OWN)


def planned(function: Any, **words: Any) -> PlanTable:
    made = otafl.scheme("mine", **words)(function)
    return otafl.plan(
        task={"num_params": 20, "clients": 3}, schemes=[made()], channel="cares", rounds=4, seeds=1, eps=8.0,
        noise_std=0.5,
    )  # fmt: skip


def plain(obs: Any, **more: Any) -> dict[str, Any]:
    return {"tx": 0.01 / obs.estimate, "rx_scale": 0.01, **more}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"_x": 1.0}, "key '_x' must be a name"),
        ({"class": 1.0}, "key 'class' must be a name"),
        ({3: 1.0}, "key 3 must be a name"),
        ({"note": "text"}, "'note' must be numbers in one array, not str"),
        ({"note": 1j}, "'note' must be one real number per round"),
        ({"note": np.ones(3)}, "'note' must be one real number per round"),
        ({"tx": [[1], [1, 2]]}, "'tx' must be numbers in one array, not list"),
        ({"tx": np.ma.masked_less([1.0, 2.0, 3.0], 2)}, "'tx' has masked values; fill them"),
        ({"tx": [np.ma.masked, 1.0, 1.0]}, "'tx' has masked values"),
        ({"tx": None}, "'tx' must be numbers in one array"),
        ({"tx": np.ones((2, 2))}, r"plan.tx has shape \(2, 2\)"),
        ({"rx_scale": 1 + 2j}, "plan.rx_scale has dtype complex128 but must be real"),
        ({"live": np.nan}, "plan.live has dtype float64 but must be bool"),
        ({"max_norm": 1j}, "plan.max_norm has dtype complex128"),
        ({"rx_scale": -1.0}, r"plan.rx_scale=-1\.0 in round 0 must be > 0$"),
    ],
)
def test_what_a_scheme_returns_is_checked(changed: dict[Any, Any], said: str) -> None:
    with pytest.raises(InputError, match=f"mine: {said}"):
        planned(lambda obs: {**plain(obs), **changed})


def test_what_a_scheme_is_not_shown_is_told_where_it_plans_with_it() -> None:
    """The privacy target was to be looked at."""
    with pytest.raises(
        InputError, match=r"mine: plan.rx_scale=nan .*; what csi=.none. does not show of the channel is NaN$"
    ):
        planned(lambda obs: plain(obs, rx_scale=obs.rms.sum(-1)), csi="none")


def test_a_scheme_without_a_name_is_told_to_have_one() -> None:
    with pytest.raises(InputError, match="a scheme has a name"):
        otafl.scheme(plain)  # type: ignore[arg-type]


def test_a_scheme_is_its_authors_whoever_calls_it() -> None:
    """What is trusted of otafl's own schemes (the law of their silence, say) is not trusted of it."""
    planned(lambda obs: plain(obs))
    assert not ours(systems.scheme("mine").factory)


def test_a_scheme_is_asked_round_by_round() -> None:
    """One call for all rounds would show it the channels of later ones."""
    seen: list[tuple[Any, Any]] = []

    def curious(obs: Any) -> dict[str, Any]:
        seen.append((obs.round, np.shape(obs.estimate)))
        return plain(obs, best=np.max(np.abs(obs.estimate)))

    planned(curious)
    assert seen == [(t, (3,)) for t in range(4)]


def test_columns_are_those_of_every_round() -> None:
    with pytest.raises(InputError, match="mine: info of round 2 has other fields"):
        planned(lambda obs: plain(obs, **({"late": 1.0} if obs.round == 2 else {})))


def with_a_list(obs: Any, *, levels: list = [1]) -> dict[str, Any]:  # type: ignore[type-arg]  # noqa: B006
    return plain(obs)


def with_an_unknown_type(obs: Any, *, level: "Nowhere" = 1) -> dict[str, Any]:  # type: ignore[name-defined]  # noqa: F821
    return plain(obs)


def with_a_taken_name(obs: Any, *, label: float = 1.0) -> dict[str, Any]:
    return plain(obs)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (with_a_list, "its settings are no plain values"),
        (with_an_unknown_type, "its parameters cannot be read"),
        (with_a_taken_name, "its setting 'label' has a name that every"),
    ],
)
def test_what_a_scheme_asks_for_is_checked(function: Any, said: str) -> None:
    with pytest.raises(InputError, match=f"mine: {said}"):
        otafl.scheme("mine")(function)
    planned(plain_one)  # what was refused is not half registered


def plain_one(obs: Any) -> dict[str, Any]:
    return plain(obs)


@pytest.mark.parametrize("name", ["", "two\nlines", "x" * 101])
def test_names_of_schemes_are_one_line(name: str) -> None:
    with pytest.raises(InputError, match="must be one line of 1 to 100 printable characters"):
        otafl.scheme(name)(plain_one)


def outside_the_table(obs: Any) -> dict[str, Any]:
    return plain(obs, **{"lost": {}["key"]})


def without_a_divisor(obs: Any, deployment: Any) -> dict[str, Any]:
    return plain(obs, share=1 / (len(deployment.weights) - 3))


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (without_a_divisor, r"`return plain\(obs, share=1 / .*\)` \(ZeroDivisionError: division by zero\)$"),
        (outside_the_table, r"`.*` \(KeyError: 'key'\)$"),
    ],
)
def test_what_fails_inside_a_scheme_names_it_and_its_line(function: Any, said: str) -> None:
    """Not the keys with the most extreme numbers, as where otafl's own planning leaves the range of numbers."""
    line = function.__code__.co_firstlineno + 1
    with pytest.raises(InputError, match=rf"^mine: fails in test_own_scheme.py, line {line}, {said}") as refusal:
        planned(function)
    assert isinstance(refusal.value.__cause__, ArithmeticError | LookupError)  # a notebook shows the way there


def test_a_factory_that_fails_is_named_with_its_line() -> None:
    def factory(*site: Any) -> Any:
        return site[7]

    systems.register("mine", factory, make_dataclass("Config", [], frozen=True))
    with pytest.raises(InputError, match=r"^mine: fails in test_own_scheme.py, line \d+, `return site\[7\]`"):
        otafl.plan(task={"num_params": 20, "clients": 3}, schemes=["mine"], channel="cares", rounds=4, seeds=1, eps=8.0)


def test_the_function_in_place_of_the_scheme_that_it_makes_is_told_to_be_called() -> None:
    mine = otafl.scheme("mine")(lambda obs: plain(obs))
    with pytest.raises(InputError, match=r"mine is a function that makes a scheme, not one; call it: mine\(\)"):
        otafl.plan(task={"num_params": 20, "clients": 3}, schemes=[mine], channel="cares", rounds=4, seeds=1)
    with pytest.raises(InputError, match=r"call it: constant\(\)"):
        otafl.Air(otafl.constant, site=3, num_params=3)
