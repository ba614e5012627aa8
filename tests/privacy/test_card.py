import json
import subprocess
import sys

import numpy as np
import pytest

from otafl.errors import InputError
from otafl.plan import Message
from otafl.privacy import OUTSIDE, Budget, Ledger, Release, make_card
from otafl.privacy.card import round_up


def message(rate=1.0, adjacency="replace", unit="client") -> Message:
    return Message(10, 1.0, np.ones(2), np.ones(2), np.full(2, rate), unit, adjacency)


@pytest.fixture
def ledger(make_events) -> Ledger:
    out = Ledger(Budget(60.0, 1e-5, adjacency="replace", adaptive=True), clients=2)
    out.spend(make_events(np.full((5, 2), [2.0, 3.0])))
    out.release(Release("reward", 0.1, 1.0))
    return out


def test_card_states_everything_that_an_eps_needs(ledger):
    card = make_card(ledger, message(), outside=["pca", "simulation-trace", "a sentence"])
    data = json.loads(card.to_json())
    assert data["guarantee"] == {"eps": 60.0, "is_cap": True}
    assert {s["accountant"] for s in data["spent"]} == {"zcdp", "zcdp-optimal", "gaussian", "rdp", "pld"}
    assert all(s["worst_client"] == 0 and s["eps_worst"] >= s["eps_mean"] for s in data["spent"])
    assert data["outside_the_guarantee"] == [OUTSIDE["pca"], OUTSIDE["simulation-trace"], "a sentence"]
    text = card.to_markdown()
    for needed in (
        "ε = 60 at δ = 1e-05",
        "client level",
        "replace",
        "receiver's own noise",
        "E20",
        "reward",
        "a sentence",
    ):
        assert needed in text


def test_numbers_are_those_of_the_ledger(ledger):
    card = make_card(ledger, message(), accountants=["gaussian"])
    assert card.spends[0].worst == ledger.spent("gaussian").worst
    assert f"| gaussian | none | {round_up(ledger.spent('gaussian').worst)} |" in card.to_markdown()


def test_accountants_that_do_not_apply_are_named(make_events):
    ledger = Ledger(Budget(60.0, 1e-5, "rdp", "hidden", adjacency="replace"), clients=2)
    ledger.spend(make_events(np.full((3, 2), 2.0), send_prob=0.5))
    card = make_card(ledger, message())
    assert [name for name, _ in card.refused] == ["zcdp", "zcdp-optimal", "gaussian", "pld"]
    assert "`pld` does not apply" in card.to_markdown()


def test_adjacency_must_match(ledger):
    with pytest.raises(InputError, match="adjacency='add-remove'"):
        make_card(ledger, message(adjacency="add-remove"))


def test_no_noise_prints_inf_as_strict_json(make_events):
    ledger = Ledger(Budget(1.0, 1e-5), clients=2)
    ledger.parts.append(make_events([[1.0, 1.0]])._replace(receiver_var=np.zeros(1)))
    card = make_card(ledger, message(adjacency="add-remove"), accountants=["zcdp"])
    assert json.loads(card.to_json())["spent"][0]["eps_worst"] == "inf"
    assert "nothing protects" in card.trusted_noise


@pytest.mark.parametrize("eps", [1e-7, 0.12345, 1.0, 29.3974, 999.95, 12345.6])
def test_printed_eps_is_never_below(eps):
    assert eps <= float(round_up(eps)) <= eps * 1.0011


def test_package_imports_with_numpy_and_scipy_alone():
    code = (
        "import sys\n"
        "for name in ('jax', 'pydantic', 'dp_accounting', 'optax', 'rich'): sys.modules[name] = None\n"
        "import otafl.privacy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": "src"})
