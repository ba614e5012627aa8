"""What would make an advice useful: free changes first, then the least single change of each kind, all re-planned.

While nearly all are heard, S is proportional to the number of devices and to mu, and Q falls as D^-0.14; so each
answer is one division, and is then checked on a plan of its own.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from otafl.bounds import merit
from otafl.privacy import ACCOUNTANTS
from otafl.privacy.gaussian import eps_from_rho
from otafl.runs.advice.advise import HEARD, HORIZONS, REFERENCE, Option, Question, consider
from otafl.runs.advice.forms import mu_of

LARGEST = 20_000  # devices of a plan that is made only to check an answer
UNEVEN = 1.02  # K wmax above which unequal weights cost something worth a word
POWER_DB = (3.0, 6.0, 10.0, 20.0)
CHECKS, STEP = 6, 1.04  # a plan that falls short of its closed form is asked for 4 % more, so often


class Lever(NamedTuple):
    """One change."""

    what: str  # "weights", "accountant", "devices", "eps", "num_params", "power", "rounds"
    said: str
    ratio: float  # how large the change is; 1 is free
    quality: float  # Q of the plan after it
    scheme: str


Tries = Iterator[Lever | None]  # of one kind, the smallest change first; None where nothing can be planned


def best_of(question: Question, names: list[str] | None = None) -> Option | None:
    """The first of the ranking, if anything can be planned."""
    found = [o for o in consider(question, names) if o.merit is not None and o.name != REFERENCE]
    return found[0] if found else None


def free_changes(question: Question) -> tuple[Question, list[Lever]]:
    """Changes that cost nobody anything, together; and each of them alone."""
    better, levers = question, []
    samples = np.asarray(question.site.devices.samples, float)
    spread = len(samples) * float(samples.max() / samples.sum())
    if question.weights == "samples" and spread > UNEVEN:
        changed = dataclasses.replace(question, weights="equal")
        said = f"equal weights (your largest device sets everyone's noise, {spread:.2g} times too loud)"
        levers.append(_lever("weights", said, 1.0, changed))
        better = dataclasses.replace(better, weights="equal")
    if question.accountant not in ("gaussian", "pld"):
        changed = dataclasses.replace(question, accountant="gaussian")
        levers.append(_lever("accountant", "exact accounting (accountant = gaussian)", 1.0, changed))
        better = dataclasses.replace(better, accountant="gaussian")
    return better, [lever for lever in levers if lever is not None]


def single_changes(question: Question, best: Option) -> list[Lever]:
    """Each kind of change that alone makes this question useful, the smallest first."""
    q, names = best.quality, [best.name]
    kinds = (_devices(question, q, names), _eps(question, q, names), _size(question, q),
             _power(question, best, names), _rounds(question, names))  # fmt: skip
    found = [next((one for one in tries if one and one.quality >= merit.USEFUL), None) for tries in kinds]
    return sorted((lever for lever in found if lever is not None), key=lambda lever: lever.ratio)


def _lever(what: str, said: str, ratio: float, question: Question, names: list[str] | None = None) -> Lever | None:
    option = best_of(question, names)
    return None if option is None else Lever(what, said, ratio, option.quality, option.name)


def _devices(question: Question, q: float, names: list[str]) -> Tries:
    now = question.site.num_devices
    count = merit.devices_for(q, now)
    for _ in range(CHECKS):
        if not now < count <= LARGEST:
            return
        changed = dataclasses.replace(question, site=question.site.copied(count))
        yield _lever("devices", f"{count} devices like these instead of {now}", count / now, changed, names)
        count = math.ceil(count * STEP)


def _eps(question: Question, q: float, names: list[str]) -> Tries:
    convert = ACCOUNTANTS[question.accountant].convert or eps_from_rho
    target = merit.mu_for(q, mu_of(question.eps, question.delta, question.accountant))
    for _ in range(CHECKS):
        eps = math.ceil(100 * float(np.asarray(convert(np.asarray(target**2 / 2), question.delta)))) / 100
        changed = dataclasses.replace(question, eps=eps)
        yield _lever("eps", f"ε = {eps:g} instead of {question.eps:g}", eps / question.eps, changed, names)
        target *= STEP


def _size(question: Question, q: float) -> Tries:
    size = merit.params_for(q, question.num_params)
    if size is not None and size < question.num_params and not question.blocks.get("task"):
        said = f"{size:,} parameters instead of {question.num_params:,}"
        yield Lever("num_params", said, question.num_params / size, merit.USEFUL, "")


def _power(question: Question, best: Option, names: list[str]) -> Tries:
    row = best.row
    wanting = row is not None and (row.binding.startswith("power") or (row.dropped_weight or 0.0) > 1 - HEARD)
    for db in POWER_DB if wanting else ():
        changed = dataclasses.replace(question, site=question.site.louder(db))
        yield _lever("power", f"{db:g} dB more transmit power", 10 ** (db / 10), changed, names)


def _rounds(question: Question, names: list[str]) -> Tries:
    for rounds in HORIZONS:
        if rounds > question.rounds:
            changed = dataclasses.replace(question, rounds=rounds)
            said = f"{rounds} rounds instead of {question.rounds}"
            yield _lever("rounds", said, rounds / question.rounds, changed, names)
