"""What a run's store says about its schemes, one summary each."""

from pathlib import Path
from typing import Any

import numpy as np

from otafl.privacy.participation import CERTIFIED
from otafl.runs.comparing.statistics import numbers
from otafl.runs.folder.recount import believed
from otafl.runs.folder.sealed import reading
from otafl.runs.folder.store import AGAIN, RunFolder


def summaries(folder: Path) -> list[dict[str, Any]]:
    """The summary of every finished scheme, in the order of the config, with its time."""
    found = []
    for place in believed(RunFolder.open(folder)):
        if place.finished:
            with reading(place.path, AGAIN):
                own = {"seconds": place.timing()["seconds"], "card": short(place.json("card"))}
                found.append({**place.json("summary"), **own})
    return found


def short(card: dict[str, Any]) -> dict[str, Any]:
    """A card without the eps of every single client, who may be many."""
    spent = [{name: value for name, value in one.items() if name != "eps"} for one in card.get("spent", [])]
    return {**card, "spent": spent}


def without_card(entry: dict[str, Any]) -> dict[str, Any]:
    """A summary for a file of results: the card stands in the run's folder."""
    return {key: value for key, value in entry.items() if key != "card"}


def by_seed(entry: dict[str, Any], metric: str) -> dict[int, float]:
    """A figure of a summary by seed."""
    return dict(zip(entry["seeds"], numbers(entry[metric])))


def is_design(entry: dict[str, Any]) -> bool:
    """Whether a scheme's eps is a design value, no certificate (CDPB E13b)."""
    return entry.get("accounting", "none") not in CERTIFIED


def guaranteed(entry: dict[str, Any]) -> float:
    """The eps that holds: the worst seed's spend; of a closed loop its cap, and without a cap nothing; nothing where it
    averages over who takes part."""
    if is_design(entry):
        return np.inf
    if entry.get("loop") == "round":
        return float(entry["target_eps"] or np.inf) if entry["capped"] else np.inf
    return float(np.max(numbers(entry["final_eps"]))) if entry["private"] else np.inf


def on_air(entry: dict[str, Any]) -> bool:
    """Whether a scheme's energy and channel uses are those of a radio; older folders name the uplink alone."""
    return bool(entry.get("radio", entry["uplink"] == "analog"))
