"""The audit of an experiment or of a run: every scheme attacked, one total error, a verdict in words."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from otafl.core import validate
from otafl.core.errors import InputError, PrivacyViolation, RunError
from otafl.privacy.audit import ERROR
from otafl.privacy.card_text import round_up
from otafl.runs.audit.attack import Canary, attack
from otafl.runs.audit.target import Target
from otafl.runs.audit.targets import Prepared, prepare
from otafl.runs.beside import named_by
from otafl.runs.executors import Outcome, attempt
from otafl.runs.folder.store import RunFolder, run_of
from otafl.runs.remote import Elsewhere, Task, arrived, task_of, values_of
from otafl.runs.schema import Experiment, Own, config_hash, load

DEAREST = 0.99  # of the largest charge: such clients decide whether an attack was weak
RUNS = 1000  # of each world of each pattern
MOST_RUNS = 10**6  # whose scores are kept
Progress = Callable[[str, int], None]  # scheme, runs more that are done

LIMITS = (
    "an audit that refutes nothing proves nothing: it bounds ε from below, the charge bounds it from above",
    "the attacker knows all other messages, the channel and the plan, and scores what the server receives each round",
)


class SchemeAudit(NamedTuple):
    """What was found about one scheme."""

    label: str
    eps: float  # charged, as the card of the seed that was attacked says
    rounds: int
    unit: str
    adjacency: str
    delta: float
    canaries: list[Canary]
    notes: tuple[str, ...]
    reason: str = ""  # why nothing was attacked

    @property
    def failed(self) -> list[Canary]:
        return [canary for canary in self.canaries if canary.finding.refuted]

    @property
    def measured(self) -> float:
        """Largest lower bound on eps of any client."""
        return max((canary.finding.eps for canary in self.canaries), default=0.0)

    @property
    def worst(self) -> Canary:
        """The canary to show: one that refuted, else the one with the largest bound."""
        return max(self.canaries, key=lambda canary: (bool(canary.finding.refuted), canary.finding.eps))

    @property
    def weak(self) -> bool:
        """Whether no canary of those that are charged most came near its charge."""
        most = max((canary.finding.charge.eps for canary in self.canaries), default=0.0)
        dearest = [canary for canary in self.canaries if canary.finding.charge.eps >= DEAREST * most]
        return bool(dearest) and all(canary.finding.weak for canary in dearest)

    @property
    def verdict(self) -> str:
        if self.reason:
            return f"not attacked: {self.reason}"
        if self.failed:
            canary = self.failed[0]
            return f"REFUTED: client {canary.client} ({canary.pattern}): {canary.finding.refuted}"
        said = f"not refuted: charged ε {round_up(self.eps)}, measured ε ≥ {rounded_down(self.measured)}"
        return f"{said} (weak: the attack stays well below the charge)" if self.weak else said


class Audit(NamedTuple):
    """All schemes of one audit."""

    title: str
    schemes: list[SchemeAudit]
    runs: int
    error: float

    @property
    def failed(self) -> list[SchemeAudit]:
        return [scheme for scheme in self.schemes if scheme.failed]

    def __repr__(self) -> str:
        """The verdicts: scores by the thousand are in `schemes`."""
        return "\n".join(f"{scheme.label}: {scheme.verdict}" for scheme in self.schemes)

    def check(self) -> None:
        """PrivacyViolation where a measured lower bound passed its charge."""
        if self.failed:
            said = "; ".join(f"{scheme.label}: {scheme.verdict}" for scheme in self.failed)
            raise PrivacyViolation(f"AUDIT FAILED at a total error of {self.error:g}: {said}")

    def to_dict(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "runs_per_world": self.runs,
            "total_error": self.error,
            "refuted": bool(self.failed),
            "schemes": [_plain(scheme) for scheme in self.schemes],
            "limits": list(LIMITS),
        }


def audit(
    what: Experiment | Path,
    runs: int = RUNS,
    schemes: list[str] | None = None,
    error: float = ERROR,
    seed: int = 0,
    progress: Progress | None = None,
    own: Own | None = None,
    elsewhere: Elsewhere | None = None,
) -> Audit:
    """Attack every scheme of an experiment, or of a run folder under what its own ledgers say.

    `own`: data or a model of somebody's own that the run was made with. `elsewhere`: where schemes are attacked side by
    side.
    """
    validate.single("runs", runs)
    validate.whole("runs", runs, 4, MOST_RUNS)
    validate.in_open("error", error, 0, 1)
    experiment, folder = (what, None) if isinstance(what, Experiment) else _run(what, own or Own())
    prepared = [_prepared(experiment, scheme, folder) for scheme in _chosen(experiment, schemes)]
    share = error / max(1, sum(len(one.targets) for one in prepared))
    if elsewhere is None:
        found = [_attack(one, runs, share, seed, progress or _quiet) for one in prepared]
    else:
        sent = task_of(experiment, *((folder.path, folder.path) if folder else (Path("/"), Path("/"))))
        tasks = {one.label: Assault(sent, folder is not None, one.label, runs, share, seed) for one in prepared}
        told = values_of(elsewhere.executor, attack_scheme, tasks, elsewhere.live)
        found = [_of_its_own(label, value) for label, value in told.items()]
    return Audit(experiment.title or "audit", found, runs, error)


def _of_its_own(label: str, value: Any) -> SchemeAudit:
    """What a worker found, if it is about the scheme that it was given."""
    if not isinstance(value, SchemeAudit) or value.label != label:
        raise RunError(f"{label}: its worker brought no audit of it; call again")
    return value


class Assault(NamedTuple):
    """One scheme to attack, as it travels to a worker."""

    task: Task
    of_a_run: bool
    label: str
    runs: int
    share: float  # of the error, for each of its targets
    seed: int


def attack_scheme(asked: Assault) -> Outcome:
    """Prepare and attack one scheme; in a worker."""

    def work() -> SchemeAudit:
        experiment = arrived(asked.task)
        folder = RunFolder.open(Path(asked.task.folder)) if asked.of_a_run else None
        (scheme,) = _chosen(experiment, [asked.label])
        one = _prepared(experiment, scheme, folder)
        return _attack(one, asked.runs, asked.share, asked.seed, _quiet)

    return attempt(work)


def _quiet(label: str, count: int) -> None:
    """Nobody watches."""


def _prepared(experiment: Experiment, scheme: Any, folder: RunFolder | None) -> Prepared:
    place = None if folder is None else folder.scheme(scheme.label or scheme.name)
    if place is not None and not place.finished:
        return Prepared(place.label, np.nan, 0, [], "the run has not finished it")
    return prepare(experiment, scheme, place)


def _run(path: Path, own: Own) -> tuple[Experiment, RunFolder]:
    folder = RunFolder.open(run_of(path))
    folder.verified()
    experiment = load(folder.path / "config.toml").bring(own)
    if config_hash(experiment) != folder.config:
        raise InputError(f"{folder.path}/config.toml: is read otherwise by this version; run the experiment again")
    folder.check_files(named_by(experiment))
    return experiment, folder


def _chosen(experiment: Experiment, labels: list[str] | None) -> list[Any]:
    if labels is None or (isinstance(labels, Sequence) and not labels):
        return list(experiment.scheme)
    if isinstance(labels, str) or not isinstance(labels, Sequence):
        raise InputError(f"only={validate.shown(labels)} must be a list of labels")
    unknown = [label for label in labels if label not in experiment.labels]
    if unknown:
        near = validate.meant(str(unknown[0]), experiment.labels)
        known = ", ".join(map(repr, experiment.labels))
        raise InputError(f"scheme {validate.shown(unknown[0])} must be one of {known}{near}")
    return [scheme for scheme, label in zip(experiment.scheme, experiment.labels) if label in labels]


def _attack(one: Prepared, runs: int, share: float, seed: int, progress: Progress) -> SchemeAudit:
    if not one.targets:
        return SchemeAudit(one.label, one.eps, one.rounds, "", "", np.nan, [], (), one.reason)
    canaries = []
    for number, target in enumerate(one.targets):
        found = attack(target, runs, share, seed + number, lambda count: progress(one.label, count))
        canaries += [canary._replace(pattern=canary.pattern + _observer(target)) for canary in found]
    message, notes = one.targets[0].message, dict.fromkeys(note for target in one.targets for note in target.notes)
    return SchemeAudit(
        one.label, one.eps, one.rounds, message.unit, message.adjacency, one.delta, canaries, tuple(notes)
    )


def _observer(target: Target) -> str:
    if target.gain is None:
        return ""
    antennas = target.gain.shape[1] // 2
    return ", both parts" if antennas == 1 else f", all {antennas} antennas"


def rounded_down(value: float) -> str:
    """Rounded down to four digits: a lower bound stays one."""
    if value == 0 or not np.isfinite(value):
        return f"{value:g}"
    unit = 10.0 ** (np.floor(np.log10(value)) - 3)
    return f"{np.floor(value / unit) * unit:.4g}"


def _plain(scheme: SchemeAudit) -> dict[str, Any]:
    """For JSON."""
    return {
        "label": scheme.label, "verdict": scheme.verdict, "refuted": bool(scheme.failed), "weak": scheme.weak,
        "charged_eps": scheme.eps, "measured_eps": None if scheme.reason else scheme.measured, "delta": scheme.delta,
        "unit": scheme.unit, "adjacency": scheme.adjacency, "rounds": scheme.rounds, "notes": list(scheme.notes),
        "canaries": [_canary(canary) for canary in scheme.canaries],
    }  # fmt: skip


def _canary(canary: Canary) -> dict[str, Any]:
    finding = canary.finding
    return {
        "client": canary.client, "pattern": canary.pattern, "refuted": finding.refuted, "weak": finding.weak,
        "charged_eps": finding.charge.eps, "measured_eps": finding.eps, "charged_mu": finding.charge.mu,
        "shift": None if finding.shift is None else finding.shift._asdict(), "counts": finding.curve._asdict(),
        "error": finding.beta,
    }  # fmt: skip
