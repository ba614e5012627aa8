"""The map of CDPB's claims: against the figures' own verdicts, and against sums by hand."""

import numpy as np
import pytest

from otafl.systems.cdpb import figures
from otafl.systems.cdpb.claims_map import CLAIMS, Span, claims_map, losses, shares
from otafl.systems.cdpb.design import Params

SPAN = Span((2.0, 10.0), (0.3,), (4.0,), (0.1, 1.0), (10, 100))


@pytest.fixture(scope="module")
def found():
    return claims_map(SPAN, [10, 200], 0.5, 200)


def test_the_sign_of_noisy_minus_idle_is_that_of_figure_7(found):
    signs = found["7: idle is better than noisy", "printed"][:, 0, 0]
    for a, alpha in enumerate(SPAN.alpha):
        for b, power in enumerate(SPAN.P):
            rows = figures.fig7(Params(alpha=alpha, P=power), SPAN.K)
            assert signs[a, b].tolist() == [row["difference"] > 0 for row in rows]
    assert signs[1, 1].tolist() == [0, 1]  # ten clients, alpha = 10: noisy


def test_what_needs_a_next_value_is_open_at_the_end(found):
    falls, grows = (found[f"7: the difference {way}", "sound"] for way in ("falls with K", "grows with P"))
    assert np.isnan(falls[..., -1]).all() and not np.isnan(falls[..., 0]).any()
    assert np.isnan(grows[..., -1, :]).all() and not grows[..., 0, :].any(), "the sound gap does not depend on P"


def test_every_claim_has_a_share_and_sound_accounting_turns_figure_5(found):
    told = shares(found)
    assert set(told) == {(claim, how) for claim, ways in CLAIMS.items() for how in ways}
    assert all(0 <= share <= 1 for share in told.values())
    assert told["5: CDPB-i loses less than h_min-based", "printed"] == 0.75
    assert told["5: CDPB-i loses less than h_min-based", "sound"] == 0


def test_losses_by_hand():
    """h_min: everybody takes part at load 1 / K, so a sound round costs alpha rho W^2 / (2 s^2) in full."""
    setting = {"alpha": 2.0, "receiver_noise": 0.3, "A": 4.0, "P": 1.0, "K": 100}
    told = losses(setting, 200, 0.5)
    u, v = 0.01, 100 * (1 - 0.01)
    assert told["sound"]["h_min-based"] == pytest.approx(2.0 * u / (2 * v), rel=1e-12)
    assert told["printed"]["h_min-based"] == pytest.approx(np.log(2) + 2 * np.log(1 + np.exp(1 / v)), rel=1e-12)
