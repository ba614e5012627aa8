import numpy as np
import pytest

from otafl.privacy import Budget, Ledger, Release, account, gaussian, pld_eps
from otafl.privacy.replacement import certified_eps


@pytest.mark.parametrize(
    ("rate", "z", "rounds", "assumed", "certified", "plain"),
    [(0.1, 1.0, 100, 4.368, 4.604, 91.8), (0.01, 1.0, 1000, 1.206, 1.288, 634), (0.5, 2.0, 50, 8.516, 8.555, 20.7)],
)
def test_the_cost_of_certainty(rate, z, rounds, assumed, certified, plain, make_events):
    """z relative to the whole replacement; opposed contributions are only an assumed worst pair."""
    run = make_events(np.full((rounds, 1), z), rate=rate)
    assert pld_eps(np.full(rounds, z), rate, 1e-5, "replace") == pytest.approx(assumed, abs=2e-3)
    spend = account("pld", run, 1e-5, adjacency="replace")
    assert assumed < spend.worst == pytest.approx(certified, rel=4e-3)
    assert spend.certified and any("certified through" in note for note in spend.notes)
    assert account("gaussian", run, 1e-5).worst == pytest.approx(plain, rel=2e-3)
    renyi = account("rdp", run, 1e-5, adjacency="replace")
    assert spend.worst <= renyi.worst < account("rdp", make_events(np.full((rounds, 1), z)), 1e-5).worst


def test_a_first_step_too_dear_for_any_delta_to_be_left_certifies_nothing():
    """e^-800 of delta is no double: what joins the run would be counted at a delta that is not there."""
    assert certified_eps(lambda delta: 800.0, lambda delta: 1.0, 1e-5) == np.inf
    assert certified_eps(lambda delta: 2.0, lambda delta: 1.0, 1e-5) == 3.0


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_never_above_the_run_without_sampling(accountant, make_events):
    """Two steps cost more than one Gaussian; then the whole replacement without sampling is charged."""
    run = make_events(np.full((30, 1), 2.0), rate=0.999)
    assert account(accountant, run, 1e-5, adjacency="replace").worst <= (
        account(accountant, make_events(np.full((30, 1), 2.0)), 1e-5).worst * (1 + 1e-9)
    )


@pytest.mark.parametrize("accountant", ["rdp", pytest.param("pld", marks=pytest.mark.slow)])
def test_releases_count_once_and_chunks_change_nothing(accountant, make_events):
    run = make_events(np.full((40, 2), [1.0, 2.0]), rate=0.05)
    release = Release("reward", 1.0, 4.0)
    alone = account(accountant, run, 1e-5, adjacency="replace")
    both = account(accountant, run, 1e-5, adjacency="replace", releases=[release])
    assert np.all(alone.eps < both.eps)
    assert np.all(both.eps < alone.eps + gaussian.eps(2 * 0.25, 1e-6))
    ledger = Ledger(Budget(60.0, 1e-5, accountant, adjacency="replace"), 2)
    for _ in range(2):
        ledger.spend(make_events(np.full((20, 2), [1.0, 2.0]), rate=0.05))
    ledger.release(release)
    assert ledger.spent().eps == pytest.approx(both.eps, rel=1e-9)
    assert Ledger.from_bytes(ledger.to_bytes()).affordable(run).sum() == ledger.affordable(run).sum()


def test_the_way_through_holds_for_two_gaussians():
    """Two Gaussian steps of mu/2 in the same direction are one of mu: the bound holds and is not far off."""
    half = lambda delta: gaussian.eps(0.5, delta)  # noqa: E731
    exact, bound = gaussian.eps(1.0, 1e-5), certified_eps(half, half, 1e-5)
    assert exact < bound < 1.1 * exact
