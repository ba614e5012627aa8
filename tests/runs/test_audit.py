"""`otafl audit` on experiments and runs: every scheme stands, what a run broke is found, and the exit codes say so."""

import errno
import functools
import io
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import otafl
from every_scheme import OPTIONS, SITE, UNTUNED
from otafl import cli, systems
from otafl.core.arrays import Array
from otafl.core.errors import InputError, PrivacyViolation
from otafl.core.files import to_json
from otafl.core.plan import Events
from otafl.privacy import Ledger
from otafl.reports import audits
from otafl.runs import limits, runner
from otafl.runs.audit import audit as whole
from otafl.runs.audit import target, targets
from otafl.runs.audit.audit import Audit, audit, rounded_down
from otafl.runs.audit.target import Target
from otafl.runs.board import Board
from otafl.runs.folder.store import SchemeFolder
from otafl.runs.presets import packaged
from otafl.runs.remote import Elsewhere
from otafl.runs.schema import load
from otafl.runs.streamed import choice
from sweeps import Here

SURE = 1e-6  # fixed keys and this error: no luck of the day
HEAD = f'title = "Digits <small>"\n{SITE}'
ONE = '[[scheme]]\nname = "constant"\nrx_scale = 0.1\n'
# One of every system, and the closed loop; encrypted and noncoherent sums are attacked among the slow tests.
ONE_OF_EACH = (
    "constant", "adascale", "biasvar", "blind", "cares-static", "cdpb", "fedavg-dp", "liu-simeone", "obda", "ridge",
    "cares-adaptive",
)  # fmt: skip
RECORDS = '[[scheme]]\nname = "fedavg-dp"\nlabel = "way {}"\nclients = {{ kind = "per-sample", {} }}\n'
KINDS = ("batch = 4", "rate = 0.2, divisor = 4.0, size_max = 40", 'batch = 4, sampling = "without-replacement"')


def experiment_of(folder: Path, text: str, *overrides: str) -> Any:
    path = folder / "experiment.toml"
    path.write_text(HEAD + text)
    return load(path, list(overrides))


def quieter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every scheme draws half the noise that it is charged for."""
    real = whole.attack

    def broken(one: Target, *args: Any) -> Any:
        return real(one._replace(link=one.link._replace(noise_std=one.link.noise_std / 2)), *args)

    monkeypatch.setattr(whole, "attack", broken)


# --- experiments -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["one-of-each", "all"])
def test_no_scheme_is_refuted(every: bool, tmp_path: Path) -> None:
    systems.remove(systems.OWN)  # what another test registered
    schemes = [name for name in (systems.SCHEMES if every else ONE_OF_EACH) if name != UNTUNED]
    text = "".join(f'[[scheme]]\nname = "{name}"\n{OPTIONS.get(name, "")}\n' for name in schemes)
    # So much eps that all run all rounds: one compiled program serves nearly all of them.
    found = audit(experiment_of(tmp_path, text, "privacy.eps=5000"), runs=40, error=SURE)
    assert not found.failed
    attacked = {scheme.label for scheme in found.schemes if scheme.canaries}
    told = {scheme.label: scheme.reason for scheme in found.schemes if scheme.reason}
    assert {*attacked, *told} == set(schemes) and len(attacked) > len(schemes) / 2
    assert all("no promise to refute" in why or "not one round" in why for why in told.values()), told
    closed = next(scheme for scheme in found.schemes if scheme.label == "cares-adaptive")
    assert closed.eps == 5000.0 and any("closed loop" in note for note in closed.notes)


def test_no_records_are_refuted(tmp_path: Path) -> None:
    text = "".join(RECORDS.format(n, kind) for n, kind in enumerate(KINDS))
    found = audit(experiment_of(tmp_path, text, 'task.partition.kind="iid"', "task.weights=equal"), 60, error=SURE)
    assert not found.failed
    patterns = [{canary.pattern for canary in scheme.canaries} for scheme in found.schemes]
    assert patterns == [
        {"record, nulled", "record, nulled, balanced"},
        {"record, removed", "record, removed, balanced", "record, removed from a crowd"},
        {"record, replaced", "record, replaced, balanced"},
    ]


def test_an_observer_of_both_parts_is_tried_where_phases_are_off(tmp_path: Path) -> None:
    off = HEAD.replace('"cares"', "{ csi = { gain_error = 0.05, phase_error = 0.1 } }")
    (tmp_path / "off.toml").write_text(off + '[[scheme]]\nname = "cdpb"\nload = 0.1\n')
    found = audit(load(tmp_path / "off.toml", ["privacy.eps=1000", "radio.noise_std=0.5"]), 40, error=SURE).schemes[0]
    assert any("imaginary" in note for note in found.notes)
    assert {canary.pattern.endswith("both parts") for canary in found.canaries} == {True, False} and not found.failed


def test_executor_finds_the_same(tmp_path: Path) -> None:
    """Schemes attacked elsewhere: the same scores, the same shares of the error."""
    job = experiment_of(tmp_path, ONE + '[[scheme]]\nname = "fedavg"\n')
    there = Here()
    found = audit(job, 20, elsewhere=Elsewhere(there, Board()))
    assert len(there.given) == 2 and to_json(found.to_dict()) == to_json(audit(job, 20).to_dict())


PHASES_OFF = ("channel={csi={gain_error=0.05, phase_error=0.1}}", "privacy.eps=1000", "radio.noise_std=0.5")
TWO_VIEWS = '[[scheme]]\nname = "cdpb"\nload = 0.1\n'
BY_RECORD = RECORDS.format(0, KINDS[2]) + ONE


@pytest.mark.parametrize("most_played", [1024, 3])
@pytest.mark.parametrize(("text", "changes"), [(TWO_VIEWS, PHASES_OFF), (BY_RECORD, ())], ids=["both parts", "records"])
def test_rounds_that_go_by_are_attacked_to_the_same_scores(
    text: str, changes: tuple[str, ...], most_played: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In blocks of two rounds, with all clients and with canaries alone, whose memory is that of a block and theirs."""
    monkeypatch.setattr(target, "MOST_PLAYED", most_played)
    monkeypatch.setattr(target, "MOST", 2)
    monkeypatch.setattr(choice, "BLOCK", 2 * 4)
    job = functools.partial(experiment_of, tmp_path, text, "privacy.accountant=gaussian", "seeds=1", *changes)
    alone = 2 * 4 + 6 * 2  # a block, and canaries
    with monkeypatch.context() as small:
        if most_played < 4:
            small.setattr(limits, "memory_bytes", lambda: alone * limits.BYTES_PER_DEVICE_ROUND)
        by = audit(job("engine.stream=true"), 20)
        small.setattr(limits, "memory_bytes", lambda: (alone - 1) * limits.BYTES_PER_DEVICE_ROUND)
        for whole_run in ("engine.stream=true", "engine.stream=false"):
            with pytest.raises(InputError, match="rounds=6 x clients=4 need about"):
                audit(job(whole_run), 20)
    assert to_json(by.to_dict()) == to_json(audit(job(), 20).to_dict())
    assert all(scheme.canaries for scheme in by.schemes)


@pytest.mark.slow
def test_no_scheme_of_the_demo_is_refuted_in_a_long_audit() -> None:
    demo = load(packaged()["demo"])
    private = [label for label, scheme in zip(demo.labels, demo.scheme) if scheme.name != "eezofl"]
    found = audit(demo, 1000, private)
    assert not found.failed and sum(not scheme.weak for scheme in found.schemes if scheme.canaries) >= 5


def test_noise_that_is_short_is_refuted_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quieter(monkeypatch)
    found = audit(experiment_of(tmp_path, ONE), 60)
    assert found.schemes[0].verdict.startswith("REFUTED: client")
    with pytest.raises(PrivacyViolation, match=r"AUDIT FAILED at a total error of 0\.001: constant"):
        found.check()


def test_what_is_no_audit_is_refused(tmp_path: Path) -> None:
    experiment = experiment_of(tmp_path, ONE)
    with pytest.raises(InputError, match="'nobody' must be one of 'constant'"):
        audit(experiment, 10, ["nobody"])
    for runs in (1, 10**12):
        with pytest.raises(InputError, match=r"runs=.* must be a whole number from 4 to 1000000"):
            audit(experiment, runs)


def test_both_measured_bounds_stand_on_a_narrow_screen(tmp_path: Path) -> None:
    attacked = audit(experiment_of(tmp_path, ONE.replace("rx", 'label = "constant scaling"\nrx')), 40)
    screen = Console(file=io.StringIO(), width=80)
    audits.show(attacked, screen)
    head = screen.file.getvalue().splitlines()[0]
    assert "charged ε  measured ε ≥" in head and "charged μ  measured μ ≥" in head


def test_that_one_seed_of_several_was_attacked_is_said(tmp_path: Path) -> None:
    said = [audits.lines(audit(experiment_of(tmp_path, ONE, f"seeds={n}"), 4)) for n in (1, 3)]
    assert ["the first of 3" in " ".join(lines) for lines in said] == [False, True]


def test_a_scheme_is_weakly_attacked_where_its_dearest_clients_are(tmp_path: Path) -> None:
    scheme = audit(experiment_of(tmp_path, ONE), 60).schemes[0]
    cheap = next(canary for canary in scheme.canaries if not canary.finding.weak)
    charge = cheap.finding.charge
    dear = cheap._replace(finding=cheap.finding._replace(charge=charge._replace(eps=9 * charge.eps, mu=9 * charge.mu)))
    assert scheme._replace(canaries=[cheap, dear]).weak and not scheme._replace(canaries=[cheap]).weak


def test_lower_bounds_are_rounded_down() -> None:
    assert [rounded_down(x) for x in (1.23459, 0.0, np.inf, 12345.6)] == ["1.234", "0", "inf", "1.234e+04"]


# --- runs --------------------------------------------------------------------------------------------------------


def test_a_run_is_audited_under_its_own_ledgers(reference: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = audit(reference, 20, error=SURE)
    assert [scheme.label for scheme in found.schemes] == ["constant", "cares-adaptive"] and not found.failed
    assert all(scheme.canaries for scheme in found.schemes)

    whole_content = SchemeFolder.content

    def forged(place: SchemeFolder, change: dict[str, Callable[[Events], Array]], name: str) -> bytes:
        content = whole_content(place, name)
        if not name.startswith("ledger"):
            return content
        ledger = Ledger.from_bytes(content)
        ledger.parts[-1] = ledger.parts[-1]._replace(**{key: made(ledger.parts[-1]) for key, made in change.items()})
        return ledger.to_bytes()

    said = "constant: its ledger charges client 0 less in round 0 than its plan"
    for change, refusal in (
        ({"amp": lambda part: part.amp * 0.9}, said),
        ({"rate": lambda part: part.rate * 0.5}, said),
        ({"amp": lambda part: part.amp * 1.1}, "constant: its summary says ε = .*, its ledger"),
    ):
        monkeypatch.setattr(SchemeFolder, "content", functools.partialmethod(forged, change))
        with pytest.raises(PrivacyViolation, match=refusal):
            audit(reference, 20, ["constant"])


def test_a_run_whose_rounds_went_by_is_audited_under_its_sums(tiny: Any, tmp_path: Path) -> None:
    run = runner.start(tiny("engine.stream=true", "scheme=[{name='constant', rx_scale=0.4}]"), tmp_path / "run")
    assert audit(run, 20, error=SURE).schemes[0].canaries
    record = Ledger.from_bytes((run / "schemes/constant/ledger-0.bin").read_bytes())
    assert record.sums is not None
    less = replace(record, sums=record.sums._replace(terms=record.sums.terms * 0.9))
    with pytest.raises(PrivacyViolation, match="constant: its ledger charges client 0 less in 5 rounds than its plan"):
        targets._check_sums("constant", less, record)


# --- the command and the page --------------------------------------------------------------------------------------


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["otafl", "audit", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return int(stop.value.code or 0)


def full(found: Audit) -> str:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_the_command_writes_a_page_and_exits_5_where_a_charge_is_refuted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.toml").write_text(HEAD + ONE)
    assert call(monkeypatch, "one.toml", "--runs", "40", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["schemes"][0]["verdict"].startswith("not refuted: charged ε") and not said["refuted"]
    assert json.loads((tmp_path / "runs/audit-one/audit.json").read_text()) == said
    page = (tmp_path / "runs/audit-one/audit.html").read_text()
    assert page.count("<svg") == 1 and "Digits &lt;small&gt;" in page and "private" not in page.split("<main>")[1]
    quieter(monkeypatch)
    assert call(monkeypatch, "one.toml", "--runs", "60", "--out", "bad") == 5
    out, err = capsys.readouterr()
    (tmp_path / "file").touch()
    assert call(monkeypatch, "one.toml", "--runs", "60", "--out", "file") == 2  # before the work
    monkeypatch.setattr(audits, "render", full)
    assert call(monkeypatch, "one.toml", "--runs", "60", "--out", "none") == 5  # no page, and yet as loud
    assert "REFUTED" in out and "AUDIT FAILED" in err and 'role="alert"' in (tmp_path / "bad/audit.html").read_text()


def test_a_run_takes_no_overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call(monkeypatch, str(tmp_path), "--set", "rounds=3") == 2


def test_a_scheme_that_was_not_attacked_is_a_row() -> None:
    nothing = whole.SchemeAudit("x", np.inf, 3, "", "", np.nan, [], (), "charged ε = ∞")
    found = Audit("t", [nothing], 10, 1e-3)
    assert "not attacked" in audits.row(nothing) and "not attacked" in audits.render(found)
    assert found.to_dict()["schemes"][0]["measured_eps"] is None


def test_what_the_table_says_is_not_said_again() -> None:
    terms = {"channel": "cares", "eps": 0.1, "rounds": 2, "seeds": 1}
    found = otafl.audit(task={"num_params": 20, "clients": 2}, schemes=[otafl.constant(rx_scale=100.0)], **terms)
    assert audits.lines(found)[0].startswith("constant: not attacked: not one round is affordable")
    held = found._replace(schemes=[found.schemes[0]._replace(reason="")])
    assert not any(text.startswith("constant") for text in audits.lines(held))
