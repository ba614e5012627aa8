"""Papers of a loop that somebody else's training drives."""

from itertools import islice
from pathlib import Path

import pytest

from otafl.privacy import Ledger, attack_success
from otafl.privacy.card_text import round_up
from otafl.privacy.sums import no_rounds
from otafl.reports.federation import federation_page, recounted
from small_air import opened, replies


@pytest.mark.parametrize("summed", [False, True])
def test_rows_have_the_eps_and_mu_of_the_ledger(summed: bool, tmp_path: Path) -> None:
    """With what an earlier run spent; the last row also has the round that was charged and never answered."""
    first = opened(eps=50.0)
    for r in first:
        r.send(replies(r))
    before, run = first.ledger, first.ledger.events
    if summed:
        before = Ledger(before.budget, 4)
        before.charge(no_rounds(run.rate, run.sensitivity).add(run))
    before.save(tmp_path / "ledger.bin")
    air = opened(eps=50.0, already_spent=tmp_path / "ledger.bin")
    wanted = []
    for r in islice(air, 3):
        r.send(replies(r))
        wanted.append((air.eps, attack_success(air.ledger).mu))
    next(air)
    wanted[-1] = (air.eps, attack_success(air.ledger).mu)
    rows = recounted(air, [{"eps": 0.0, "number": n} for n in range(3)])
    assert [row["number"] for row in rows] == [0, 1, 2]
    for row, (eps, mu) in zip(rows, wanted):
        assert row["eps"] == pytest.approx(eps, rel=1e-9) and row["mu"] == pytest.approx(mu, rel=1e-9)
    assert recounted(air, []) == []


def test_the_page_of_a_closed_loop_says_that_its_cap_is_what_holds() -> None:
    air = opened("cares-adaptive", channel="cares", eps=100.0)
    assert "closed loop, ε is what was spent; its guarantee is the cap" in federation_page(air, [], "t", "r", "")


def test_the_page_says_what_an_attacker_finds_beside_its_eps() -> None:
    air = opened(eps=50.0)
    rows = []
    for r in islice(air, 3):
        r.send(replies(r))
        rows.append({"asked": 4, "silent": [], "snr-db": 0.0, "energy-j": [0.0] * 4, "eps": air.eps, "evaluated": {}})
    found = attack_success(air.ledger)
    page = federation_page(air, rows, "t", "r", "")
    ranking = page.partition("id=comparison")[2].partition("</table>")[0]
    assert '<th scope="col">μ</th><th scope="col">TPR@1 %</th>' in ranking
    assert found.mu is not None
    assert f"<td>{round_up(found.mu)}</td><td>{round_up(100 * found.tpr_at_1pct)}</td>" in ranking
    assert '"power":[[' in page.replace(" ", "")  # the curve of all false alarms
