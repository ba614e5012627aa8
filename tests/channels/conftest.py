from collections.abc import Callable

import numpy as np
import pytest


@pytest.fixture
def assert_mean() -> Callable[[np.ndarray, float], None]:
    """Fail when a sample mean lies more than 5 standard errors from its expectation (chance 6e-7 per call)."""

    def check(samples: np.ndarray, expected: float) -> None:
        samples = np.ravel(samples)
        error = samples.std() / np.sqrt(samples.size)
        assert abs(samples.mean() - expected) <= 5 * error + 1e-12 * abs(expected)

    return check
