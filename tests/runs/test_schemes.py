"""Schemes as values: every entry of the registry has a function that completion, help() and doctest can use."""

import doctest
import inspect
import pickle
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import otafl
from otafl import systems
from otafl.core.errors import InputError
from otafl.core.plan import Plan, Policy, always
from otafl.runs.schemes import Chosen, choose

NAMES = sorted(systems.SCHEMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_scheme_has_a_function_that_describes_itself(name: str) -> None:
    attribute = name.replace("-", "_")
    make = getattr(otafl, attribute)
    assert attribute in dir(otafl) and "import_module" not in dir(otafl) and make.__name__ == attribute
    config = systems.scheme(name).config
    assert list(inspect.signature(make).parameters) == list(inspect.signature(config).parameters)
    for parameter, other in zip(
        inspect.signature(make).parameters.values(), inspect.signature(config).parameters.values()
    ):
        assert parameter.default == other.default
    assert make.__doc__.startswith(systems.SCHEMES[name].summary[:1].upper())
    runner = doctest.DocTestRunner(verbose=False)
    for test in doctest.DocTestFinder().find(make, attribute, module=False, globs={}):
        runner.run(test)
    assert runner.summarize(verbose=False) == doctest.TestResults(failed=0, attempted=2)


def test_settings_are_described_where_they_are_declared() -> None:
    assert "variance of the noisy count" in otafl.cdpb.__doc__
    assert "None: 1/(12 step_size)" in otafl.cares_adaptive.__doc__  # of the Config it inherits from


def test_a_value_is_a_name_with_settings() -> None:
    one = otafl.constant(rx_scale=1)
    assert (
        one
        == Chosen("constant", systems.scheme("constant").config(rx_scale=1.0))
        == choose("constant", {"rx_scale": 1})
    )
    assert repr(one) == "otafl.constant(rx_scale=1.0)"
    assert pickle.loads(pickle.dumps(one)) == one


@pytest.mark.parametrize(("settings", "said"), [
    ({"rx_scal": 1.0}, "did you mean 'rx_scale'"), ({"rx_scale": "1.0"}, "rx_scale"), ({"silence": "loud"}, "silence"),
])  # fmt: skip
def test_mistakes_are_one_line(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        otafl.constant(**settings)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="nu"):
        otafl.adascale()


def test_what_is_no_scheme_is_no_attribute() -> None:
    assert not hasattr(otafl, "nonsense") and not hasattr(otafl, "_private")


@dataclass(frozen=True)
class Half:
    share: float = 0.5


def half(config: Half, deployment: Any, message: Any, context: Any) -> Policy:
    def step(state: Any, obs: Any) -> Any:
        tx = np.broadcast_to(config.share * deployment.weights / obs.estimate, obs.coin.shape)
        one = np.ones(tx.shape[:-1])
        return state, Plan(tx, 0 * tx, always(tx), one, np.ones(tx.shape), one > 0), ()

    return Policy("half", lambda key: (), step, loop="open", csi="own", gate="open")


def test_a_registered_scheme_joins_them() -> None:
    systems.register("half-of-it", half, Half, "sends half")
    try:
        assert repr(otafl.half_of_it(share=0.25)) == "otafl.half_of_it(share=0.25)"
        air = otafl.Air(
            otafl.half_of_it(share=0.25), site=2, num_params=3, noise_std=0.0, rounds=1, seed=0, weights=(0.5, 0.5)
        )
        got = next(air).send({0: np.ones(3, np.float32) / 2, 1: np.ones(3, np.float32) / 2})
        np.testing.assert_allclose(got, 0.125, rtol=1e-6)
    finally:
        systems.remove(systems.OWN)


def test_importing_otafl_imports_nothing_heavy() -> None:
    code = "import sys, otafl; print([m for m in ('numpy', 'jax', 'pydantic', 'scipy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
