"""An advice as a value: one sentence, a table, what would help, and an experiment file for `otafl run`."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import tomli_w

from otafl.bounds import merit
from otafl.core import validate
from otafl.core.errors import Infeasible
from otafl.core.files import to_json, write_atomic
from otafl.privacy import ACCOUNTANTS
from otafl.privacy.attack import finds, from_eps, worth
from otafl.runs.advice.advise import COVERED, REFERENCE, TIE, Option, Question, asked, consider
from otafl.runs.advice.designs import own_clients
from otafl.runs.advice.forms import mu_of
from otafl.runs.advice.levers import Lever, best_of, free_changes, single_changes
from otafl.runs.advice.stand_in import SEEDS, Prepared, prepare, stand_in_words
from otafl.runs.folder.disk import storage
from otafl.runs.planning.table import COUNTED

RESEMBLES = "if your task resembles digits (ten classes of small images, 85 % or more without privacy)"


@dataclass(frozen=True)
class Advice:
    """The answer. `options`: best first; `useful`: whether the best is worth doing at all."""

    question: Question
    options: list[Option]
    free: list[Lever]  # changes that cost nobody anything, each alone
    after_free: Option | None  # the best plan with all of them
    single: list[Lever]  # then any one of these makes it useful, smallest change first
    prepared: Prepared | None  # the best plan as an experiment, and what it means for each device

    @property
    def able(self) -> list[Option]:
        """Those that can be used, best first."""
        return [o for o in self.options if o.merit is not None and o.name != REFERENCE]

    @property
    def best(self) -> Option | None:
        return next(iter(self.able), None)

    @property
    def neighbours(self) -> tuple[str, str] | tuple[None, None]:
        """Unit and adjacency that ε is for: those of the best plan."""
        first = next(iter([*self.able, *self.options]), None)
        return (None, None) if first is None else (first.unit, first.adjacency)

    @property
    def protects(self) -> str:
        """The same in words; where schemes send something else, whose ε is for what."""
        told: dict[str, list[str]] = {}
        for option in self.options:
            told.setdefault(f"{option.unit} level, {option.adjacency}", []).append(option.name)
        return "; ".join(text if len(told) == 1 else f"{', '.join(names)}: {text}" for text, names in told.items())

    @property
    def verdict(self) -> merit.Verdict:
        return "not useful" if self.best is None or self.best.merit is None else self.best.merit.verdict

    @property
    def useful(self) -> bool:
        return self.verdict != "not useful"

    @property
    def tied(self) -> list[str]:
        """Schemes that cannot be told from the best by Q."""
        best = self.best
        if best is None:
            return []
        enough = (1 - TIE) * best.quality
        return [o.name for o in self.able if o.comparable and o.quality >= enough and o.name != best.name]

    @property
    def sentence(self) -> str:
        """What to do, in one sentence."""
        q, best = self.question, self.best
        if best is None or best.merit is None:
            return f"Not usefully feasible: no scheme affords a round at ε = {q.eps:g}{self._cheapest()}."
        low, high = best.merit.band
        if best.merit.verdict == "not useful":
            return (
                f"Not usefully feasible: ε = {q.eps:g} allows Q = {best.quality:.1f} ({best.name}), and 25 is useful"
                f"{self._cheapest()}."
            )
        word = "Use" if best.merit.verdict == "useful" else "Marginal, but the best is"
        more = self._cheapest() if best.merit.verdict == "marginal" else ""
        heard = best.row.rounds[0] if best.row and best.row.rounds else q.rounds
        rounds = f"{q.rounds}" if heard == q.rounds else f"{heard} of {q.rounds}"
        return (
            f"{word} {best.name} over {rounds} rounds: expect {100 * low:.0f} to {100 * high:.0f} % of the accuracy "
            f"above chance that your task reaches without privacy, {RESEMBLES}{more}."
        )

    def _cheapest(self) -> str:
        """The smallest change that alone, after the free ones, would do."""
        reached = [lever for lever in self.free if lever.quality >= merit.USEFUL]
        if reached:
            return f"; the cheapest single change that makes it useful is {reached[0].said}"
        first = f"; free: {' and '.join(lever.said for lever in self.free)}" if self.free else ""
        if self.after_free is None:  # there is no plan that a change could have started from
            return first
        if self.free and self.after_free.quality >= merit.USEFUL:
            return f"{first}, which together make it useful"
        if not self.single:
            return f"{first}; no single change of devices, ε, parameters, power or rounds makes it useful"
        then = " then" if self.free else ""
        return f"{first}; the cheapest single change that{then} makes it useful is {self.single[0].said}"

    @property
    def assumed_fading(self) -> bool:
        """Whether nobody said how gains are drawn."""
        channel = self.question.blocks.get("channel", {})
        return isinstance(channel, dict) and "fading" not in channel

    def caution(self, folder: Path = Path()) -> str:
        """What must be read beside the sentence: plans of a measured site that do not play its measurements.

        folder: where the advice is saved, for the command.
        """
        site, rounds = self.question.site, self.question.rounds
        if site.measured is None:
            return ""
        fading = "Rayleigh fading" if self.assumed_fading else "the fading of your [channel]"
        drawn = f"Not your measured gains: these plans, and advice.toml, draw {fading} around their means."
        seeds = min(SEEDS, site.rows // rounds)
        if not seeds:
            rows = f"Their {site.rows} rows do not last for {rounds} rounds"
            return f"{drawn} {rows}: gains_file may say repeat = 'cycle'."
        fewer = "" if seeds == SEEDS else f" --set seeds={seeds}"
        return (
            f"{drawn} What the gains themselves make of the first: otafl plan {quote(str(folder / 'advice.toml'))} "
            f"--set {quote(f'devices={site.measured}')}{fewer}"
        )

    @property
    def notes(self) -> list[str]:
        """What a reader must know beside the numbers."""
        q, best = self.question, self.best
        samples = float(np.mean(q.site.devices.samples))
        basis = "given" if q.agreement is not None else f"guessed from {samples:.4g} samples each"
        fading = ["Rayleigh fading"] if self.assumed_fading else []
        notes = [f"ε = {q.eps:g} at δ = {q.delta:g} ({self.protects}) {self._worth}"]
        notes += [f"assumed: {', '.join([*q.site.assumed, *fading])}"] if q.site.assumed or fading else []
        notes.append(f"agreement of the devices (γ) {q.gamma:.2f}, {basis}; measure it with --agreement")
        notes += [COUNTED] if q.agreement is None and any(o.adjacency == "add-remove" for o in self.options) else []
        notes += [f"outside the calibrated domain: {text}" for text in
                  merit.in_domain(q.num_params, q.rounds, q.site.num_devices)]  # fmt: skip
        if best is not None and best.row is not None and (best.row.power_margin_db or 0) > 3:
            some = self.prepared is not None and self.prepared.unheard
            said = "those who are heard send" if some else "power is no limit: all send"
            notes.append(f"{said} {best.row.power_margin_db:.0f} dB or more below theirs")
        biased = [o.name for o in self.options if o.merit is not None and o.covered < COVERED]
        if biased:
            notes.append(f"{', '.join(biased)}: the mean formed is not the one of the weights (covered < {COVERED})")
        unlike = [o.name for o in self.options if own_clients(o.name) and o.merit is not None]
        if unlike:
            notes.append(f"Q was not calibrated on scalars ({', '.join(unlike)}), so they rank after the others")
        if self.prepared is not None and self.prepared.unheard:
            shown = ", ".join(self.prepared.unheard[:5])
            notes.append(f"not heard as their weight says: {shown}{' …' if len(self.prepared.unheard) > 5 else ''}")
        if not q.blocks.get("task") and self.prepared is not None:
            notes.append(stand_in_words(self.prepared.experiment, q.num_params))
        return notes

    @property
    def _worth(self) -> str:
        """What ε is worth to an attacker; no Gaussian says so where sampling is credited."""
        q = self.question
        if ACCOUNTANTS[q.accountant].cap is None and any(o.row and o.row.mu and None in o.row.mu for o in self.options):
            return f"says alone: {finds(from_eps(q.eps, q.delta, q.accountant).tpr_at_1pct)}"
        return f"is {worth(mu_of(q.eps, q.delta, q.accountant))}"

    @property
    def _told(self) -> list[str]:
        return [self.sentence, *filter(None, [self.caution()])]

    @property
    def table(self) -> list[dict[str, Any]]:
        """One row per scheme, best first; `pandas.DataFrame(advice.table)` is a frame."""
        return [option_dict(option) for option in self.options]

    def __repr__(self) -> str:
        """What to do, then every scheme; `table` has the rest."""
        said = ((row["scheme"], row["why_not"] if row["Q"] is None else f"Q = {row['Q']:.1f}") for row in self.table)
        return "\n".join([*self._told, *(f"{name}: {text}" for name, text in said)])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(row['scheme'])}</td><td>{'–' if row['Q'] is None else format(row['Q'], '.1f')}</td></tr>"
            for row in self.table
        )
        told = "".join(f"<p>{escape(text)}</p>" for text in self._told)
        return f"{told}<table><tr><th>scheme</th><th>Q</th></tr>{rows}</table>"

    def to_dict(self) -> dict[str, Any]:
        q, (unit, adjacency) = self.question, self.neighbours
        return {
            "sentence": self.sentence, "verdict": self.verdict, "useful": self.useful,
            "terms": {"site": q.site.name, "devices": q.site.num_devices, "num_params": q.num_params, "eps": q.eps,
                      "delta": q.delta, "accountant": q.accountant, "rounds": q.rounds, "weights": q.weights,
                      "agreement": q.gamma, "unit": unit, "adjacency": adjacency},
            "schemes": self.table, "tied_with_best": self.tied,
            "free": [lever._asdict() for lever in self.free],
            "after_free": None if self.after_free is None else option_dict(self.after_free),
            "any_one_of": [lever._asdict() for lever in self.single],
            "notes": [*self._told[1:], *self.notes],
            "devices": [] if self.prepared is None else self.prepared.devices,
        }  # fmt: skip

    def to_toml(self) -> str:
        """The experiment file; its `devices` is advice-site.toml beside it."""
        if self.prepared is None:
            return ""
        said = [f"# {' '.join(told.split())}\n" for told in self._told[1:]]
        return "".join(said) + tomli_w.dumps({**self.prepared.data, "devices": "advice-site.toml"})

    def save(self, folder: str | Path) -> list[Path]:
        """advice.toml with the site beside it, and advice.json."""
        with _written(folder) as folder:
            written = [self.question.site.write(folder)] if self.prepared is not None else []
            if self.prepared is not None:
                write_atomic(folder / "advice.toml", self.to_toml())
                written.append(folder / "advice.toml")
            write_atomic(folder / "advice.json", to_json(self.to_dict()))
            return [*written, folder / "advice.json"]

    def save_best(self, folder: str | Path, count: int) -> list[Path]:
        """simulate.toml with the best few, the site beside it: what `--simulate` trains."""
        able = self.able[:count]
        if not able:
            raise Infeasible(f"nothing to train: {self.sentence}", None)
        data = {**prepare(self.question, able).data, "devices": "advice-site.toml"}
        with _written(folder) as folder:
            self.question.site.write(folder)
            write_atomic(folder / "simulate.toml", tomli_w.dumps(data))
            return [folder / "simulate.toml"]


@contextmanager
def _written(folder: str | Path) -> Iterator[Path]:
    """A folder to write advice into, made where it is not there."""
    path = validate.path("folder", folder)
    with storage(path):
        path.mkdir(parents=True, exist_ok=True)
        yield path


def option_dict(option: Option) -> dict[str, Any]:
    """One row for JSON and for the page."""
    row, value = option.row, option.merit
    found: dict[str, Any] = {
        "scheme": option.name, "settings": option.options, "why_not": option.why_not, "certified": option.certified,
        "reference": option.name == REFERENCE, "covered": option.covered, "unit": option.unit,
        "adjacency": option.adjacency,
    }  # fmt: skip
    if row is None or value is None:
        return {**found, "Q": None}
    return {
        **found, "Q": value.quality, "e": value.efficiency, "S": value.snr, "S_max": value.snr_max, "lift": value.lift,
        "band": list(value.band), "verdict": value.verdict, "rounds": row.rounds[0] if row.rounds else 0,
        "heard": None if row.dropped_weight is None else 1 - row.dropped_weight,
        "eps": row.eps[0] if row.eps else None, "mu": row.mu[0] if row.mu else None, "tpr_at_1pct": row.tpr_at_1pct,
        "energy_mean": row.energy_mean, "energy_max": row.energy_max, "power_margin_db": row.power_margin_db,
        "channel_uses": row.channel_uses, "seconds": row.seconds, "csi": row.csi, "noise_of": row.noise_of,
        "binding": row.binding,
    }  # fmt: skip


def advise(
    site: Any, num_params: int | None = None, eps: float | None = None, *, delta: float = 1e-5,
    rounds: int | None = None, task: Any = None, weights: str = "samples", accountant: str = "gaussian",
    agreement: float | None = None, samples: int | None = None, radio: dict[str, Any] | None = None,
) -> Advice:  # fmt: skip
    """Which scheme to use on a site at a privacy target, with which settings, and whether it is worth it.

    site: a CSV of devices, a deployment file (TOML), or a number of equal devices. num_params: of the model, unless
    `task` (an experiment file with a [task], or a dict like one) says it. weights: "samples" or "equal".
    agreement: norm of the mean of clipped messages over the clip norm; None guesses it from samples per device.
    radio: what a CSV or a number does not say, with the keys of [radio] in a deployment file.
    """
    question = asked(site, num_params, eps, delta=delta, rounds=rounds, task=task, weights=weights,
                     accountant=accountant, agreement=agreement, samples=samples, radio=radio)  # fmt: skip
    options = consider(question)
    first = Advice(question, options, [], None, [], None)
    best = first.best
    prepared = None if best is None else prepare(question, [best])
    if first.verdict == "useful":
        return dataclasses.replace(first, prepared=prepared)
    better, free = free_changes(question)
    after = best_of(better) if free else best
    single = single_changes(better, after) if after is not None and after.quality < merit.USEFUL else []
    return dataclasses.replace(first, free=free, after_free=after, single=single, prepared=prepared)
