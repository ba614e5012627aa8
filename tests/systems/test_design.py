"""The door of all planners: refusals name the file, and numbers that leave float64 together are bad input."""

from pathlib import Path

import pytest

from otafl.core.errors import InputError
from otafl.core.files import parse
from otafl.systems import planning


def test_a_refusal_while_planning_names_the_file():
    file = Path("site/plan.toml")
    inputs = planning.load("cares").inputs.model_validate(
        {"weights": [0.5, 0.6], "channel_scale": [1, 1], "noise_std": 1, "num_params": 1, "loss_gap": 1}
        | {"eps_target": 1, "delta": 1e-5}
    )
    with pytest.raises(InputError, match=r"^site/plan.toml: weights sums to 1.1 but must sum to 1"):
        planning.design("cares", inputs, file)


@pytest.mark.parametrize(
    ("system", "symbol", "rest"),
    [
        ("liu-simeone", "G", {"T": 2, "K": 2, "E": 1.0, "noise_std": 1.0, "eps": 1.0}),
        ("seif", "d", {"T": 2, "K": 2, "E": 1.0, "noise_std": 1.0, "eps": 1.0}),
        ("orthogonal", "d", {"snr": [1.0]}),
        ("biasvar", "n_f", {"snr_db": [1.0], "d": 1, "G": 1.0, "eta": 0.1, "rho": 1.0}),
        ("adascale", "clip_norm", {"nu": 1, "M": 1, "T": 1, "d": 1, "n": 9, "B": 1, "P_max": 1, "sigma_n2": 1e-9}),
        ("cdpb", "clip_norm", {"K": 2, "d": 1, "sigma2": 0.5, "tau_cap": 9}),
    ],
)
def test_a_refusal_while_planning_names_the_symbol_of_the_file(system, symbol, rest):
    inputs = parse(planning.load(system).inputs, rest | {symbol: -1}, "plan.toml")
    with pytest.raises(InputError, match=rf"^plan.toml: {symbol}=-1"):
        planning.design(system, inputs, Path("plan.toml"))


@pytest.mark.parametrize("problem", [OverflowError("too large"), ZeroDivisionError(), FloatingPointError("x\ny")])
def test_numbers_that_leave_float64_together_are_one_line(problem, monkeypatch):
    def fails(inputs, folder):
        raise problem

    cares = planning.load("cares")
    monkeypatch.setattr("otafl.systems.cares.planner.PLANNER", cares._replace(plan=fails))
    with pytest.raises(InputError) as refusal:
        planning.design("cares", None, Path("plan.toml"))
    assert str(refusal.value).startswith("plan.toml: cares cannot be planned with these numbers (")
    assert "\n" not in str(refusal.value)
