"""A second receiver is never charged below what it sees."""

import numpy as np
import pytest

from otafl.core.errors import InputError
from otafl.core.plan import Events, Plan
from otafl.privacy.eavesdropper import Eavesdropper, overheard


def parts(values: np.ndarray) -> np.ndarray:
    """(n,) complex -> (2n,) real and imaginary parts."""
    return np.concatenate([values.real, values.imag])


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("downlink", [True, False])
def test_the_charge_covers_all_that_both_receivers_hear(seed, downlink):
    """Artificial noise of three devices reaches both receivers with any gains: the full covariance never shows more."""
    rng = np.random.default_rng(seed)
    draw = lambda *shape: rng.normal(size=shape) + 1j * rng.normal(size=shape)  # noqa: E731
    antennas, server_var, who_std = 2, rng.uniform(0.1, 1), rng.uniform(0.1, 1)
    tx, noise, server_gain = draw(3), draw(3), draw(3)
    gains = draw(3, antennas)
    largest = float(np.abs(gains).max())
    who = Eavesdropper(gain=largest, noise_std=who_std, antennas=antennas, downlink=downlink)
    plan = Plan(tx[None], noise[None], np.full((1, 3), np.inf), np.ones(1), np.ones((1, 3)), np.ones(1, bool))
    run = Events(np.abs(server_gain * tx)[None], np.abs(server_gain * noise)[None] ** 2, np.ones((1, 3), bool),
                 np.ones((1, 3)), np.array([server_var]), np.ones(1, bool), np.ones(3), np.ones(3))  # fmt: skip
    charged = overheard(plan, run, who).amp[0] ** 2
    for k in range(3):
        heard = [parts(gains[k] * tx[k])]
        common = [np.array([parts(gains[j] * noise[j]) for j in range(3)])]
        own = [np.full(2 * antennas, who_std**2)]
        if downlink:
            heard.append(parts(server_gain[k : k + 1] * tx[k]))
            common.append(np.array([parts(server_gain[j : j + 1] * noise[j]) for j in range(3)]))
            own.append(np.full(2, server_var))
        shift, factors = np.concatenate(heard), np.concatenate(common, axis=1)
        covariance = np.diag(np.concatenate(own)) + factors.T @ factors
        assert shift @ np.linalg.solve(covariance, shift) <= charged[k] * (1 + 1e-9)


def test_a_receiver_without_noise_is_refused():
    with pytest.raises(InputError, match=r"eavesdropper\.noise_std"):
        Eavesdropper(gain=1.0, noise_std=0.0)
