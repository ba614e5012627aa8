"""The map of CDPB's claims: against the figures' own verdicts, and against sums by hand."""

import numpy as np
import pytest

from otafl.systems.cdpb import figures
from otafl.systems.cdpb.claims_map import CLAIMS, Span, claims_map, designs, losses, shares
from otafl.systems.cdpb.design import Params
from otafl.systems.cdpb.reproduce_designs import SHOWN, design_verdicts

SETTING = {"alpha": 3.0, "receiver_noise": 0.3, "A": 4.0, "P": 1.0, "K": 100}
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


def test_designs_by_hand():
    """P = E[h] = 1: idle sends where its gain passes u, independent sampling half of that; noisy and h_min always."""
    at = designs(SETTING, 200, 0.5)
    u = {name: float(one.rho) for name, one in at.items()}
    assert float(at["CDPB-i"].energy) == pytest.approx(np.exp(-u["CDPB-i"]))
    assert float(at["IS"].energy) == pytest.approx(0.5 * np.exp(-u["IS"]))
    assert [float(at[name].energy) for name in ("CDPB-n", "h_min-based")] == pytest.approx([1.0, 1.0])
    assert float(at["IS"].K_t) == pytest.approx(50 * np.exp(-u["IS"]))


@pytest.mark.parametrize(
    ("key", "name", "value", "claim", "word"),
    [
        ("rho", "h_min-based", 1.0, "(h_min based) typically", "does not hold"),
        ("v", "h_min-based", 1.0, "(h_min based) This", "does not hold"),
        ("K_t", "IS", 100.0, "(IS based)", "does not hold"),
        ("v", "CDPB-n", 1.0, "CDPB-n introduces", "does not hold"),
        ("energy", "IS", 100.0, "our methods", "holds"),
    ],
)
def test_each_reason_turns_with_one_value(key: str, name: str, value: float, claim: str, word: str):
    at = designs(SETTING, 200, 0.5)
    told = {shown: {(scheme, 200): float(getattr(one, shown)) for scheme, one in at.items()} for shown in SHOWN}
    before, after = (next(one.verdict for one in design_verdicts(changed, [200]) if one.claim.startswith(claim))
                     for changed in (told, {**told, key: {**told[key], (name, 200): value}}))  # fmt: skip
    assert (before, after) == ({"holds": "does not hold", "does not hold": "holds"}[word], word)


def test_losses_by_hand():
    """h_min: everybody takes part at load 1 / K, so a sound round costs alpha rho W^2 / (2 s^2) in full."""
    told = losses({**SETTING, "alpha": 2.0}, 200, 0.5)
    u, v = 0.01, 100 * (1 - 0.01)
    assert told["sound"]["h_min-based"] == pytest.approx(2.0 * u / (2 * v), rel=1e-12)
    assert told["printed"]["h_min-based"] == pytest.approx(np.log(2) + 2 * np.log(1 + np.exp(1 / v)), rel=1e-12)
