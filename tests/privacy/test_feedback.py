"""The noisy accuracy as a release: its sensitivity against brute force, its cost, its refusals."""

import itertools

import numpy as np
import pytest

from otafl.core.errors import InputError
from otafl.privacy import Release, noisy_accuracy

WEIGHTS = np.array([0.5, 0.3, 0.2])
SIZES = np.array([4, 3, 1])


def mean(decisions: tuple[int, ...]) -> float:
    return sum(decisions) / len(decisions) if decisions else 0.0


def neighbours(decisions: tuple[int, ...]) -> list[tuple[int, ...]]:
    """One record replaced, removed or added: all that the model's decisions on a client's data may become."""
    positions = range(len(decisions))
    replaced = [(*decisions[:i], 1 - decisions[i], *decisions[i + 1 :]) for i in positions]
    removed = [decisions[:i] + decisions[i + 1 :] for i in positions]
    return [*replaced, *removed, (*decisions, 0), (*decisions, 1)]


@pytest.mark.parametrize("k", [0, 1, 2])
def test_record_sensitivity_is_the_largest_change_over_all_neighbours(k: int) -> None:
    change = max(
        WEIGHTS[k] * abs(mean(decisions) - mean(other))
        for decisions in itertools.product((0, 1), repeat=int(SIZES[k]))
        for other in neighbours(decisions)
    )
    assert noisy_accuracy("record", WEIGHTS, SIZES, 0.1).sensitivity[k] == pytest.approx(change, rel=1e-12)


def test_record_sensitivity_covers_weights_that_follow_the_sizes() -> None:
    """Weights n_k/n recomputed after a record came or went: the sum is all right decisions over all records."""
    sizes = np.array([3, 2])
    charged = noisy_accuracy("record", sizes / 5, sizes, 0.1).sensitivity
    np.testing.assert_allclose(charged, 1 / 5)
    for decisions in itertools.product((0, 1), repeat=5):
        for other in neighbours(decisions):
            assert abs(mean(decisions) - mean(other)) <= charged.max() * (1 + 1e-12)


def test_client_sensitivity_is_the_weight() -> None:
    np.testing.assert_array_equal(noisy_accuracy("client", WEIGHTS, None, 0.1).sensitivity, WEIGHTS)


def test_costs_of_the_published_examples() -> None:
    """CARES E9: cheap at record level, unaffordable at client level."""
    sizes = np.full(20, 3000)
    cheap = noisy_accuracy("record", np.full(20, 0.05), sizes, 0.001).square(20) / 2
    np.testing.assert_allclose(cheap, 1 / (2 * 60_000**2 * 0.001**2), rtol=1e-12)
    assert cheap.max() == pytest.approx(1.4e-4, rel=0.01)
    dear = noisy_accuracy("client", np.array([0.09, 0.91 - 0.09, 0.09]), sizes[:3], 0.02).square(3) / 2
    assert dear[0] == pytest.approx(0.09**2 / (2 * 0.02**2), rel=1e-12)
    assert dear[0] == pytest.approx(10, rel=0.02)


def test_a_client_without_data_costs_nothing() -> None:
    release = noisy_accuracy("record", np.array([0.0, 1.0]), np.array([0, 10]), 0.1)
    assert isinstance(release, Release)
    np.testing.assert_allclose(release.sensitivity, [0, 0.1])


@pytest.mark.parametrize(
    ("unit", "sizes", "noise", "said"),
    [
        ("client", SIZES, 0.0, "reward_noise=0.0 must be finite and > 0"),
        ("client", SIZES, -1.0, "reward_noise=-1.0"),
        ("client", SIZES, np.nan, "reward_noise=nan"),
        ("client", SIZES, 1e-300, "reward_noise=1e-300 must be at least 1e-12"),
        ("client", SIZES, np.inf, "reward_noise=inf"),
        ("record", None, 0.1, "needs sizes"),
        ("record", SIZES[:2], 0.1, "sizes"),
        ("record", SIZES * 0, 0.1, r"sizes\[0\]=0"),
        ("record", SIZES + 0.5, 0.1, "sizes"),
    ],
)
def test_refused_in_one_line(unit: str, sizes: np.ndarray | None, noise: float, said: str) -> None:
    with pytest.raises(InputError, match=said) as refusal:
        noisy_accuracy(unit, WEIGHTS, sizes, noise)  # type: ignore[arg-type]
    assert "\n" not in str(refusal.value)
