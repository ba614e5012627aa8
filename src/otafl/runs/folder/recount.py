"""What a finished scheme says of its privacy, held against its own ledgers: no page shows less than they count.

Somebody who writes ledgers, summaries and cards that fit each other is not found out here: a seal is no signature.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from otafl.core.engine import cores
from otafl.core.errors import InputError
from otafl.core.markdown import inert
from otafl.privacy import Ledger, attack_success
from otafl.privacy.card import least_multiplier
from otafl.privacy.card_text import is_design_value, markdown, meaning
from otafl.privacy.participation import certified
from otafl.runs.comparing.statistics import numbers
from otafl.runs.folder.sealed import Arrays, reading
from otafl.runs.folder.store import DONE, RunFolder, SchemeFolder

ATTACK = ("mu", "tpr_at_1pct", "advantage")
ROUNDING = 1e-6  # of an eps that was counted along the rounds
KEPT = 256  # verdicts


def believed(run: RunFolder) -> list[SchemeFolder]:
    """All schemes of a run in the order of the config: finished ones whole, and true to their own ledgers.

    They are counted on all cores: a comparison of many devices would else wait for one.
    """
    places, seeds = run.verified(), run.manifest["seeds"]

    def check(place: SchemeFolder) -> None:
        check_privacy(place)
        if place.json("summary")["seeds"] != seeds:
            raise InputError(f"{place.path}: its seeds are not those of the run; {place.mend}")

    with ThreadPoolExecutor(cores()) as pool:
        list(pool.map(check, [place for place in places if place.finished]))  # raises what is first in the config
    return places


def check_privacy(place: SchemeFolder) -> None:
    """InputError where a finished scheme's summary, card or evaluations say less than its ledgers."""
    with reading(place.path, place.mend):
        sealed = (place.path / DONE).read_bytes()
    _check_sealed(place.path, place.label, place.run, sealed)


@lru_cache(KEPT)
def _check_sealed(path: Path, label: str, run: str, sealed: bytes) -> None:
    """The same once for each content: `sealed` has the hash of every file that is read here."""
    _check(SchemeFolder(path, label, run))


def _check(place: SchemeFolder) -> None:
    with reading(place.path, place.mend):
        summary, card = place.json("summary"), place.json("card")
        ledgers = [Ledger.from_bytes(place.content(f"ledger-{seed}.bin")) for seed in summary["seeds"]]
        if summary["label"] != place.label:
            raise ValueError(f"its summary is of {summary['label']!r}")
        for ledger in ledgers:
            _same_terms(ledger, summary, card)
        eps = [ledger.worst() for ledger in ledgers]
        _summary(summary, ledgers, eps)
        _card(card, ledgers, eps)
        _tables(place.read("rounds"), place.read("evaluations"), summary)
        if inert(place.content("card.md").decode()) != markdown(card):  # earlier versions wrote a < as it is
            raise ValueError("card.md and card.json are two different cards")


def _same_terms(ledger: Ledger, summary: dict[str, Any], card: dict[str, Any]) -> None:
    """What every eps is told for."""
    budget, cap = ledger.budget, card["cap"]
    stated = {"delta": budget.holds_at, "adjacency": budget.adjacency, "clients": ledger.clients}
    if budget.unit is not None:
        stated["unit"] = budget.unit
    for name, value in stated.items():
        for told in (summary[name], card[name]):
            if told != value:
                raise ValueError(f"{name}={told} is {value} in its ledger")
    pairs = {
        "accountant": (summary["accountant"], budget.accountant),
        "accounting": (summary.get("accounting", certified(budget.accounting)), budget.accounting),
        "loop": (summary.get("loop", "open") == "round", budget.adaptive),
        "cap.accountant": (cap["accountant"], budget.accountant),
        "cap.eps": (float(cap["eps"]), budget.eps),
        "guarantee.is_cap": (card["guarantee"]["is_cap"], budget.adaptive),
    }
    for name, (told, value) in pairs.items():
        if told != value:
            raise ValueError(f"{name}={told} is {value} in its ledger")
    if (float(summary["target_eps"] or np.inf) if summary["capped"] else np.inf) != budget.eps:
        raise ValueError(f"target_eps={summary['target_eps']} is {budget.eps} in its ledger")


def _summary(summary: dict[str, Any], ledgers: list[Ledger], eps: list[float]) -> None:
    """Seed by seed. A scheme that is marked as not private is told with an infinite eps whatever it spent."""
    for said, own in zip(numbers(summary["final_eps"]), eps):
        if summary["private"]:
            _not_less("final_eps", said, own)
    for place, ledger in enumerate(ledgers):
        _attack({name: (summary.get(name) or {place: None})[place] for name in ATTACK}, ledger)


def _card(card: dict[str, Any], ledgers: list[Ledger], eps: list[float]) -> None:
    worst = ledgers[int(np.argmax(eps))]
    guarantee = float(card["guarantee"]["eps"])
    _not_less("guarantee.eps", guarantee, worst.guarantee())
    if "meaning" in card and card["meaning"] != meaning(
        card["unit"], card["adjacency"], guarantee, is_design_value(card)
    ):
        raise ValueError("meaning is none of its guarantee")
    _attack(card.get("attack") or {}, worst)
    noise = float(card.get("identity", {}).get("noise_multiplier") or 0)
    if not noise <= least_multiplier(worst) * (1 + ROUNDING):
        raise ValueError(f"noise_multiplier={noise:.6g} is {least_multiplier(worst):.6g} by its ledger")
    if card["rounds"] not in {ledger.rounds() for ledger in ledgers}:
        raise ValueError(f"rounds={card['rounds']} is in none of its ledgers")
    for spent in card["spent"]:
        name = spent["accountant"]
        if spent["accounting"] != worst.budget.accounting:
            raise ValueError(f"accounting={spent['accounting']} by {name} is {worst.budget.accounting} in its ledger")
        if name == "pld" != worst.budget.accountant and worst.sampled:
            continue  # takes seconds, and is not what the run was held to
        counted = worst.spent(name)
        if np.isfinite(counted.worst) and spent["certified"] > (counted.certified and not worst.budget.adaptive):
            raise ValueError(f"eps by {name} is no certificate by its ledger")
        _not_less(f"eps_mean by {name}", float(spent["eps_mean"]), counted.mean)
        for said, own in zip([spent["eps_worst"], *(spent.get("eps") or ())], [counted.worst, *np.ravel(counted.eps)]):
            _not_less(f"eps by {name}", float(said), own)
    for observer in card.get("observers", []):
        if observer["observer"] != "eavesdropper" and observer["eps"] is not None:
            _not_less(f"eps of the {observer['observer']}", float(observer["eps"]), guarantee)


def _attack(said: dict[str, Any], ledger: Ledger) -> None:
    """What an attacker can do at most; under sampling that takes seconds to count and follows from no other number."""
    if ledger.sampled:
        return
    counted = attack_success(ledger)._asdict()
    for name in ATTACK:
        if said.get(name) is not None:
            _not_less(name, float(said[name]), np.inf if counted[name] is None else counted[name])


def _tables(rounds: Arrays, evaluations: Arrays, summary: dict[str, Any]) -> None:
    """A summary has the last row of every seed; ε along a run never falls."""
    seeds, metric = summary["seeds"], summary.get("metric", "accuracy")
    for name, table in (("rounds", rounds), ("evaluations", evaluations)):
        if not np.all(np.isin(table["seed"], seeds)):
            raise ValueError(f"{name} of seeds that were not run")
    last = {f"final_{metric}": metric, "final_loss": "loss", "worst_client": "worst_client", "final_eps": "eps"}
    for place, seed in enumerate(seeds):
        ran = np.sort(rounds["round"][rounds["seed"] == seed])
        if summary["rounds"][place] != len(ran) or not np.array_equal(ran, np.arange(len(ran))):
            raise ValueError(f"rounds of seed {seed} are not those of its table")
        own = np.flatnonzero(evaluations["seed"] == seed)
        own = own[np.argsort(evaluations["round"][own])]
        if np.any(evaluations["round"][own] > len(ran)):
            raise ValueError(f"evaluations of seed {seed} after rounds that were not run")
        eps = evaluations["eps"][own]
        if np.any(eps[1:] < eps[:-1]):
            raise ValueError(f"eps of seed {seed} falls along its rounds")
        for name, column in last.items():
            if not np.array_equal(numbers([summary[name][place]]), evaluations[column][own[-1:]], equal_nan=True):
                raise ValueError(f"{name} of seed {seed} is not what its last evaluation found")


def _not_less(name: str, said: float, counted: float) -> None:
    if not said >= counted * (1 - ROUNDING):
        raise ValueError(f"{name}={said:.6g} is {counted:.6g} by its ledger")
