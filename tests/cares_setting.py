"""The setting of CARES' MNIST study, as far as the certifier sees it."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from otafl.systems.cares.certifier import Problem


@pytest.fixture(scope="session")
def arms() -> np.ndarray:
    return np.linspace(0.25, 0.40, 10)


@pytest.fixture(scope="session")
def paper() -> Callable[..., Problem]:
    """A factory: the paper's values with any of them changed."""

    def make(p_max: float = 0.09, num_clients: int = 20, **changes: Any) -> Problem:
        weights = np.full(num_clients, (1 - p_max) / (num_clients - 1))
        weights[0] = p_max
        channel_scale = np.geomspace(0.2, 1.0, num_clients)[np.arange(num_clients) * 7 % num_clients]
        inputs: dict[str, Any] = {
            "weights": weights,
            "channel_scale": channel_scale,
            "noise_std": 0.05,
            "num_params": 9610,
            "loss_gap": math.log(10),
            "eps_target": 500.0,
            "delta": 1e-5,
        }
        return Problem(**{**inputs, **changes})

    return make
