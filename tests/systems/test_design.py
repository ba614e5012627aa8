"""The door of all planners: refusals name the file, and numbers that leave float64 together are bad input."""

from pathlib import Path

import pytest

from otafl.core.errors import InputError
from otafl.systems import planning


def test_a_refusal_while_planning_names_the_file():
    file = Path("site/plan.toml")
    inputs = planning.load("cares").inputs.model_validate(
        {"weights": [0.5, 0.6], "channel_scale": [1, 1], "noise_std": 1, "num_params": 1, "loss_gap": 1}
        | {"eps_target": 1, "delta": 1e-5}
    )
    with pytest.raises(InputError, match=r"^site/plan.toml: weights sums to 1.1 but must sum to 1"):
        planning.design("cares", inputs, file)


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
