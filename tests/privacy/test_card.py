import html
import json
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from markdown_it import MarkdownIt

from otafl.core.errors import InputError
from otafl.core.markdown import inert
from otafl.core.plan import Message
from otafl.privacy import OUTSIDE, Budget, Ledger, Release, make_card
from otafl.privacy.card_text import blocks, round_up
from otafl.reports.sections import cards


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


def test_what_somebody_wrote_is_no_html_on_a_page(ledger):
    text = make_card(ledger, message(), outside=["<img src=x onerror=alert(1)> a < b"]).to_markdown()
    assert "<img" not in text and "- &lt;img src=x onerror=alert(1)> a < b" in text


def test_what_somebody_wrote_is_neither_a_link_nor_half_a_span_of_code(ledger):
    text = make_card(ledger, message(), outside=["it`s [here](http://x)", "so`is this"]).to_markdown()
    assert "- it\\`s [here]\\(http:\\//x)\n- so\\`is this" in text and "counted by `zcdp`." in text
    assert inert(text) == text


@pytest.mark.parametrize(
    ("named", "kept"),
    [
        ("`ours", "theirs`"),  # a span from one name to the next
        ("`all of it`", "x"),
        (r"\\`a", r"b\\`"),  # a backslash that is escaped itself
        ("[card]: http://x.example", "[card]"),  # where a link leads, told elsewhere
        ("https://x.example", "WWW.x.example and me@x.example"),
    ],
)
def test_names_are_shown_as_they_are(ledger, named, kept):
    text = make_card(ledger, message(), outside=[named, kept]).to_markdown()
    shown = MarkdownIt("commonmark").render(text[text.index("Outside the guarantee") :])
    unescaped = re.sub(r"\\(.)", r"\1", named), re.sub(r"\\(.)", r"\1", kept)
    assert "<code>" not in shown and "<a " not in shown and all(name in shown for name in unescaped)
    assert not re.search(r"://|www\.|\w@\w", text, re.I), "GitHub makes links of bare addresses"


def test_what_a_closed_loop_spent_is_no_certificate_and_without_a_cap_nothing_holds(make_events, ledger):
    """The realised sum of a policy that looks at the training is no guarantee (CARES E20)."""
    text = make_card(ledger, message()).to_markdown()
    assert "no: spent, the cap holds" in text and "| yes |" not in text
    free = Ledger(Budget(np.inf, 1e-5, adjacency="replace", adaptive=True), clients=2)
    free.spend(make_events(np.full((5, 2), [2.0, 3.0])))
    card = make_card(free, message())
    assert free.guarantee() == np.inf and card.attack.tpr_at_1pct == 1.0
    assert "No guarantee: ε = ∞" in card.to_markdown() and "so nothing holds" in card.to_markdown()


def test_a_card_tells_the_delta_at_which_its_eps_holds(ledger):
    """The chance of a channel that passes its declaration was left out of it."""
    budget = replace(ledger.budget, delta=9e-6, missed=1e-6)
    risky = Ledger(budget, ledger.clients, ledger.parts, ledger.releases)
    card = make_card(risky, message(), accountants=["gaussian"])
    assert card.delta == 9e-6 + 1e-6 == budget.holds_at
    told = [line for line in card.to_markdown().splitlines() if "probability of at most 1e-06" in line]
    assert told == [
        "- channels pass what is declared of them with a probability of at most 1e-06, which is part of delta: eps is "
        "counted at the 9e-06 that it leaves"
    ]
    assert "delta=1e-05" in str(budget), "refusals tell the delta at which eps holds"
    assert card.spends[0].worst == float(risky.spent("gaussian").worst) > float(ledger.spent("gaussian").worst)


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


@pytest.mark.parametrize("accounting", ["visible", "hidden"])
def test_a_design_value_is_no_guarantee(make_events, accounting):
    """By the plan's word that hardly anyone sends: ε = 0 stood there as a guarantee."""
    ledger = Ledger(Budget(60.0, 1e-5, "rdp", accounting, adjacency="replace"), clients=2)
    ledger.spend(make_events(np.full((3, 2), 2.0), send_prob=1e-9))
    card = make_card(ledger, message())
    text = card.to_markdown()
    assert "is a design value" in text.splitlines()[2] and "Guarantee: ε" not in text
    assert card.to_dict()["meaning"].startswith("Nothing is promised") and "the guarantee above" not in text


def test_every_format_says_the_same(ledger):
    """The page used to lose the reward: both formats are made of the same blocks."""
    identity = {"scheme": "constant", "data": "digits", "seeds": [0, 1], "date": "2026-01-02", "clip_norm": 1.0}
    card = make_card(
        ledger, message(), reward="accuracy on public data", alarms=["insecure keys"], identity=identity, simulated=True
    )
    data = json.loads(card.to_json())
    page = html.unescape(cards([{"id": "s0", "label": "constant", "card": data}]))
    text = card.to_markdown()
    for block in blocks(data):
        rows = [cell for row in block.rows for cell in row] if block.kind == "table" else block.rows
        for part in rows:
            assert part in text and part.replace("`", "") in page, part
    for needed in ("accuracy on public data", "protects nobody by itself", "2026-01-02", "clip norm", "noise multip"):
        assert needed in text and needed in page
    assert text.splitlines()[2] == "**insecure keys.**"
    assert page.index("insecure keys") < page.index("Guarantee: ε = 60")


def test_the_card_says_what_its_number_means(make_events):
    ledger = Ledger(Budget(60.0, 1e-5, adjacency="zero-out"), clients=2)
    ledger.spend(make_events(np.full((4, 2), [2.0, 8.0])))
    data = make_card(ledger, message(adjacency="zero-out")).to_dict()
    assert "all data of one client counted as nothing" in data["meaning"]
    assert data["identity"]["noise_multiplier"] == 2.0
    assert data["attack"]["mu"] == pytest.approx(1.0)
    assert data["attack"]["tpr_at_1pct"] == pytest.approx(0.09236, abs=1e-5)
    assert data["attack"]["words"].startswith("up to ten times better")
    who = {entry["observer"]: entry["eps"] for entry in data["observers"]}
    assert who["server"] == who["buyer"] == data["guarantee"]["eps"] and who["eavesdropper"] is None


@pytest.mark.parametrize(("noise", "colluders"), [(0.0, ()), (1.0, ()), (1.0, (1,))])
def test_clients_who_hand_over_noise_that_is_counted_are_not_covered(make_events, noise, colluders):
    ledger = Ledger(Budget(60.0, 1e-5, adjacency="zero-out", colluders=colluders), clients=2)
    run = make_events(np.full((4, 2), 4.0))
    ledger.spend(run._replace(artificial_var=np.full((4, 2), noise)))
    card = make_card(ledger, message(adjacency="zero-out")).to_dict()
    told = [one["eps"] for one in card["observers"] if one["observer"].startswith("server with clients")]
    assert told == ([card["guarantee"]["eps"] if colluders else None] if noise else [])
    assert any("keep it to themselves" in line for line in card["assumptions"]) == (noise > 0)


def test_under_sampling_no_mu_is_printed_and_columns_without_it_say_so(make_events):
    ledger = Ledger(Budget(60.0, 1e-5, "pld"), clients=2)
    ledger.spend(make_events(np.full((20, 2), 4.0), rate=0.5))
    card = make_card(ledger, message(rate=0.5, unit="record", adjacency="add-remove"))
    text = card.to_markdown()
    assert card.to_dict()["attack"]["mu"] is None
    assert "μ = " not in text and "mu_equivalent" in text
    assert "| gaussian, without sampling | none |" in text and "| pld | none |" in text


def test_a_large_delta_is_an_alarm(make_events):
    ledger = Ledger(Budget(60.0, 0.1, adjacency="replace"), clients=20)
    ledger.spend(make_events(np.full((2, 20), 2.0)))
    assert "not below 1/n = 0.05" in make_card(ledger, message()).alarms[0]
    assert make_card(ledger, message(), units=9).alarms == ()


def test_adjacency_must_match(ledger):
    with pytest.raises(InputError, match="adjacency='add-remove'"):
        make_card(ledger, message(adjacency="add-remove"))


def test_no_noise_prints_inf_as_strict_json(make_events):
    ledger = Ledger(Budget(1.0, 1e-5), clients=2)
    ledger.parts.append(make_events([[1.0, 1.0]])._replace(receiver_var=np.zeros(1)))
    card = make_card(ledger, message(adjacency="add-remove"), accountants=["zcdp"])
    assert json.loads(card.to_json())["spent"][0]["eps_worst"] == "inf"
    assert "nothing protects" in card.trusted_noise
    assert not card.spends[0].certified and "| no: ε = ∞ |" in card.to_markdown()
    assert "No guarantee: ε = ∞" in card.to_markdown()


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


def test_what_stands_on_top_is_not_said_again(ledger):
    card = make_card(ledger, message(), outside=["sizes", "loud", "quiet"], alarms=["loud"])
    assert card.alarms[0] == "loud" and card.outside == (OUTSIDE["sizes"], "quiet")
