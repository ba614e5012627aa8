"""Runs as a whole: the same bytes from the same config, budgets kept, refusals before anything is written."""

import io
import json
import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from rich.console import Console

from otafl.core.errors import BudgetExceeded, Infeasible, InputError, PrivacyViolation, RunError
from otafl.core.files import to_json
from otafl.core.plan import Events, Message
from otafl.privacy import OUTSIDE, Budget, Ledger, Release
from otafl.privacy.card import round_up
from otafl.privacy.participation import DESIGN
from otafl.privacy.zcdp import classic_eps
from otafl.reports.data import collect
from otafl.reports.tables import comparison, footer
from otafl.runs import build, runner
from otafl.runs.comparing.compare import rank
from otafl.runs.execution import Execution
from otafl.runs.folder import recount
from otafl.runs.folder.disk import StorageError, locked
from otafl.runs.folder.sealed import with_seal
from otafl.runs.folder.store import SchemeFolder, read_table
from otafl.runs.folder.summaries import guaranteed, is_design, summaries
from otafl.runs.planning.afford import without_rounds
from otafl.runs.planning.planned import Planned
from otafl.runs.planning.prior_spend import eps_left, open_ledger
from otafl.runs.planning.table import plan
from otafl.runs.progress import Reporter, Tick
from otafl.runs.schema import Experiment, Privacy
from otafl.runs.sites import OTHER_LAW
from otafl.tasks.ghost import Ghost
from otafl.tasks.models import Model, client_gradients
from otafl.tasks.models import per_sample as per_sample_gradients

Tiny = Callable[..., Experiment]
SCHEMES = ("constant", "cares-adaptive")


def test_the_same_config_gives_the_same_bytes(
    tiny: Tiny, tmp_path: Path, reference: Path, same_results: Callable[[Path, Path], None]
) -> None:
    same_results(runner.start(tiny(), tmp_path / "run"), reference)


def test_another_seed_gives_another_model(tiny: Tiny, tmp_path: Path, reference: Path) -> None:
    other = runner.start(tiny("seeds=[5,6]"), tmp_path / "run")
    for label in SCHEMES:
        assert (other / "schemes" / label / "model.npz").read_bytes() != (
            reference / "schemes" / label / "model.npz"
        ).read_bytes()


@pytest.mark.released
@pytest.mark.parametrize("every", [3, *(pytest.param(every, marks=pytest.mark.slow) for every in (1, 1000))])
def test_how_a_run_is_cut_into_chunks_does_not_change_the_model(
    every: int, tiny: Tiny, tmp_path: Path, reference: Path
) -> None:
    other = runner.start(tiny(f"evaluate_every={every}"), tmp_path / "run")
    for label in SCHEMES:
        ours, theirs = (np.load(run / "schemes" / label / "model.npz") for run in (other, reference))
        for name in theirs.files:
            np.testing.assert_array_equal(ours[name], theirs[name])
        rounds, expected = (read_table(run / "schemes" / label / "rounds.parquet") for run in (other, reference))
        for name, column in expected.items():
            np.testing.assert_array_equal(rounds[name], column, err_msg=name)


@pytest.mark.released
def test_a_seed_does_not_depend_on_its_company(tiny: Tiny, tmp_path: Path, reference: Path) -> None:
    alone = runner.start(tiny("seeds=[1]"), tmp_path / "run")
    for label in SCHEMES:
        ours, theirs = (np.load(run / "schemes" / label / "model.npz") for run in (alone, reference))
        for name in theirs.files:
            np.testing.assert_array_equal(ours[name][0], theirs[name][1])
        rounds = read_table(alone / "schemes" / label / "rounds.parquet")
        both = read_table(reference / "schemes" / label / "rounds.parquet")
        np.testing.assert_array_equal(rounds["rx_scale"], both["rx_scale"][both["seed"] == 1])


def test_no_run_passes_its_budget(tiny: Tiny, tmp_path: Path) -> None:
    folder = runner.start(tiny("privacy.eps=60"), tmp_path / "run")
    for label in SCHEMES:
        for seed in (0, 1):
            ledger = Ledger.load(folder / "schemes" / label / f"ledger-{seed}.bin")
            assert 0 < float(ledger.spent().worst) <= 60
            assert ledger.rounds() <= 5
    assert len(read_table(folder / "schemes/constant/rounds.parquet")["round"]) < 2 * 5  # the cap was felt


def test_a_channel_that_beats_the_charge_of_a_closed_loop_stops_it(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its plans are known only afterwards: the true channel is held against them there, and nothing is written."""
    kept = import_module("otafl.runs.kept")
    cut = kept.cut
    monkeypatch.setattr(kept, "cut", lambda trace, rounds: (own := cut(trace, rounds))._replace(gain=1.001 * own.gain))
    with pytest.raises(PrivacyViolation, match="received amplitude"):
        runner.start(tiny("scheme=[{name='cares-adaptive'}]"), tmp_path / "run")
    assert not (tmp_path / "run/schemes/cares-adaptive/card.json").exists()


@pytest.mark.parametrize("accounting", ["visible", "hidden"])
def test_participation_that_only_renyi_counts_runs_to_its_card(accounting: str, tiny: Tiny, tmp_path: Path) -> None:
    """It used to train all rounds and then fail: the worst seed was looked for in zCDP, which has no such cost."""
    options = [f"privacy.accounting={accounting}", "privacy.accountant=rdp", "rounds=2", "seeds=1"]
    one = tiny(*options, 'scheme=[{name = "constant", rx_scale = 0.4}]')
    card = json.loads((runner.start(one, tmp_path / "run") / "schemes/constant/card.json").read_text())
    assert [(s["accountant"], s["accounting"], s["certified"]) for s in card["spent"]] == [("rdp", accounting, False)]
    assert 0 < card["guarantee"]["eps"] < 200
    (summary,) = summaries(tmp_path / "run")
    assert is_design(summary) and guaranteed(summary) == np.inf and DESIGN in footer([summary])
    ledger, bare = Ledger.load(tmp_path / "run/schemes/constant/ledger-0.bin"), {**summary, "target_eps": None}
    del bare["accounting"]
    with pytest.raises(ValueError, match=f"accounting=none is {accounting} in its ledger"):
        recount._same_terms(ledger, bare, card)
    table = plan(one)
    assert table.rows[0].eps == pytest.approx(summary["final_eps"]) and any(DESIGN in note for note in table.notes)
    assert OTHER_LAW not in str(card)


def test_a_design_value_says_when_the_law_it_averages_over_is_not_the_channels(tiny: Tiny, tmp_path: Path) -> None:
    """Probabilities of sending are those of Rayleigh fading: without fading they are too small, and so is epsilon."""
    options = ["privacy.accounting=visible", "privacy.accountant=rdp", "rounds=2", "seeds=1"]
    one = tiny(*options, 'scheme=[{name = "constant", rx_scale = 0.4}]', "channel={ fading = { kind = 'constant' } }")
    folder = runner.start(one, tmp_path / "run") / "schemes/constant"
    assert OTHER_LAW in (folder / "card.json").read_text() and OTHER_LAW in (folder / "card.md").read_text()


def test_the_card_names_what_was_run(reference: Path) -> None:
    place = reference / "schemes/constant"
    card, summary = (json.loads((place / f"{name}.json").read_text()) for name in ("card", "summary"))
    manifest = json.loads((reference / "manifest.json").read_text())
    told = card["identity"]
    assert told["scheme"] == "constant" and told["data"] == "digits" and told["model"].startswith("logistic")
    assert told["seeds"] == [0, 1] and told["date"] == manifest["created"]
    assert told["config_sha256"] == manifest["config_sha256"] and told["version"] and told["clip_norm"] == 1.0
    assert 0 < told["noise_multiplier"] < np.inf
    assert any("protects nobody by itself" in text for text in card["notices"])
    assert max(summary["mu"]) == pytest.approx(card["attack"]["mu"]) and len(summary["tpr_at_1pct"]) == 2


def test_samples_that_count_as_zero_are_reported_for_the_rounds_that_were_run(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoilt(model: Model) -> Ghost:
        ghost = per_sample_gradients(model)
        return ghost._replace(sq_norms=lambda saved: ghost.sq_norms(saved).at[0].set(np.inf))

    monkeypatch.setattr(import_module("otafl.clients.per_sample"), "per_sample_gradients", spoilt)
    notes: list[str] = []
    listener = Reporter()
    monkeypatch.setattr(listener, "note", notes.append)
    clients = "clients={kind='per-sample', sampling='without-replacement', batch=8, unit='client'}"
    config = tiny(clients, "privacy.eps=36", "scheme=[{name='constant'}]")
    folder = runner.start(config, tmp_path / "run", listener) / "schemes/constant"
    rounds = len(read_table(folder / "rounds.parquet")["round"])  # of both seeds, cut by the budget
    assert 0 < rounds < 2 * config.rounds
    assert json.loads((folder / "summary.json").read_text())["left_out"] == rounds  # one sample in each
    assert f"constant: {rounds} sample gradients were not finite and counted as zero" in notes


@pytest.mark.parametrize(("field", "place", "error", "said"), [
    ("norm", (1, 2, 3), PrivacyViolation, r"round 12, seed 8: client 3's message is above its declared norm bound 2"),
    ("overflow", (1, 0), PrivacyViolation, "round 10, seed 8: a Poisson batch did not fit its fixed shape"),
    ("finite", (0, 1), RunError, "round 11, seed 7: the model is not finite"),
])  # fmt: skip
def test_rounds_that_break_a_promise_stop_the_run(field: str, place: Any, error: type[Exception], said: str) -> None:
    message = Message(10, 2.0, 4 * np.ones(4), 4 * np.ones(4), np.ones(4), "client", "replace")
    setup = SimpleNamespace(sites=[SimpleNamespace(message=message)])
    run = SimpleNamespace(label="here", setup=setup, experiment=SimpleNamespace(seed_list=[7, 8]))
    stats = SimpleNamespace(norm=np.full((2, 3, 4), 2.0), overflow=np.zeros((2, 3), bool))
    record = SimpleNamespace(stats=stats, finite=np.ones((2, 3), bool), live=np.ones((2, 3), bool))
    Execution._check(run, record, 10)  # type: ignore[arg-type]
    part = {"norm": stats.norm, "overflow": stats.overflow, "finite": record.finite}[field]
    part[place] = {"norm": 2.01, "overflow": True, "finite": False}[field]
    with pytest.raises(error, match=f"here: {said}"):
        Execution._check(run, record, 10)  # type: ignore[arg-type]


def test_a_run_that_would_draw_other_numbers_is_refused_before_its_folder_is_made(tiny: Tiny, tmp_path: Path) -> None:
    with jax.default_prng_impl("rbg"), pytest.raises(InputError, match="seeds would draw other numbers"):
        runner.start(tiny(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("stream", ["false", "true"])
def test_a_model_that_is_not_finite_stops_the_run(stream: str, tiny: Tiny, tmp_path: Path) -> None:
    config = tiny("server.step_size=1e30", "scheme=[{name='constant', rx_scale=1e-12}]", f"engine.stream={stream}")
    with pytest.raises(RunError, match=r"constant: round 0, seed 0: the model is not finite; lower server.step_size"):
        runner.start(config, tmp_path / "run")


def test_messages_that_count_as_zero_are_charged_and_reported(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody ever has a finite message: the run goes on, and its ledger is that of a sound run."""
    honest = client_gradients

    def spoilt(*args: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf * np.float32(np.nan), honest(*args))

    notes: list[str] = []
    listener = Reporter()
    monkeypatch.setattr(listener, "note", notes.append)
    one = "scheme=[{name='constant'}]"
    with monkeypatch.context() as patch:
        patch.setattr(import_module("otafl.clients.gradient"), "client_gradients", spoilt)
        config = tiny(one, "title=spoilt")  # by another title: what is compiled once for a config is not shared
        folder = runner.start(config, tmp_path / "run", listener) / "schemes/constant"
    sound = runner.start(tiny(one), tmp_path / "sound") / "schemes/constant"
    rounds = len(read_table(folder / "rounds.parquet")["round"])  # of both seeds
    assert json.loads((folder / "summary.json").read_text())["zeroed"] == 4 * rounds > 0
    assert f"constant: {4 * rounds} messages were not finite and counted as zero" in notes
    assert (folder / "ledger-0.bin").read_bytes() == (sound / "ledger-0.bin").read_bytes()


def test_a_budget_too_small_for_one_round_is_refused_before_anything_is_written(tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(BudgetExceeded, match="constant: not one round is affordable"):
        runner.start(tiny("privacy.eps=0.01", "scheme=[{name='constant'}]"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("accountant", ["zcdp", "gaussian", "rdp", "pld"])
def test_a_scheme_that_affords_no_round_is_a_row_and_its_least_eps_is_the_least(
    accountant: str, tiny: Tiny, tmp_path: Path
) -> None:
    """The others go on; one round is affordable from that eps on and not below it."""
    both = "scheme=[{name='constant', rx_scale=0.4}, {name='fedavg'}]"
    common = [both, f"privacy.accountant={accountant}", "seeds=1"]
    run = runner.start(tiny(*common, "privacy.eps=0.5"), tmp_path / "none")
    entry, reference = summaries(run)
    assert (entry["rounds"], reference["rounds"]) == ([0.0], [5.0])
    assert entry["final_eps"] == [0.0]
    least = entry["least_eps"]
    assert without_rounds(entry) == f"0 rounds affordable; least ε: {round_up(least)}"
    assert without_rounds(reference) == ""
    assert "not one round is affordable" in (run / "schemes/constant/card.md").read_text()
    for share, rounds in ((1 + 1e-9, 1), (1 - 1e-9, 0)):
        experiment = tiny(*common, f"privacy.eps={least * share!r}")
        task = build.build_task(experiment)
        plan = Execution(experiment, experiment.scheme[0], task, SchemeFolder(tmp_path, "x", ""), Reporter()).plans[0]
        assert int(np.sum(plan.live)) == rounds
    found = rank([entry, reference], 0.5)
    assert (found.ranked, found.refused[0][1]) == ([], without_rounds(entry))
    table, _ = comparison(run)
    console = Console(file=io.StringIO(), width=150)
    console.print(table)
    assert "constant (0 rounds affordable; least ε: " in console.file.getvalue()  # type: ignore[attr-defined]
    collect([run])


def test_two_processes_do_not_write_one_run(tiny: Tiny, tmp_path: Path, reference: Path) -> None:
    with locked(reference), pytest.raises(InputError, match="another process is writing this run"):
        runner.resume(reference)
    with locked(tmp_path / "run"), pytest.raises(InputError, match="another process is writing this run"):
        runner.start(tiny("scheme=[{name='constant'}]"), tmp_path / "run")
    assert not list((tmp_path / "run").iterdir())


def test_a_run_whose_folder_was_removed_says_so(tiny: Tiny, tmp_path: Path) -> None:
    class Remove(Reporter):
        def tick(self, tick: Tick) -> None:
            shutil.rmtree(tmp_path / "run", ignore_errors=True)  # two schemes may tick

    with pytest.raises(StorageError, match=r"its folder is gone.*no run is left there to resume"):
        runner.start(tiny(), tmp_path / "run", Remove())


def test_other_data_under_the_same_name_are_refused(tiny: Tiny, tmp_path: Path, reference: Path) -> None:
    shutil.copytree(reference, tmp_path / "run")
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    del manifest["seal"]
    manifest["data"]["sha256"] = "0" * 64
    (tmp_path / "run/manifest.json").write_text(to_json(with_seal(manifest)))
    with pytest.raises(InputError, match="its data set has changed"):
        runner.resume(tmp_path / "run")


@pytest.mark.parametrize("number", ["clients.clip_norm=1e300", "radio={power_dbm=0.0, noise_dbm=1e308}"])
def test_a_number_that_breaks_the_plan_is_named(number: str, tiny: Tiny, tmp_path: Path) -> None:
    key = number.split("=")[0] if "{" not in number else "radio.noise_dbm"
    with pytest.raises(InputError, match=f"{key}=1e"):
        runner.start(tiny(number), tmp_path / "run")


def test_an_infeasible_later_scheme_is_refused_before_the_first_one_runs(tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(Infeasible, match="cares-adaptive"):
        runner.start(tiny("scheme.1.max_dropped=1e-9"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_cards_say_that_seeds_and_schemes_are_runs_of_their_own(tiny: Tiny, tmp_path: Path, reference: Path) -> None:
    alone = runner.start(tiny("scheme=[{name='constant', rx_scale=0.4}]", "seeds=1", "rounds=2"), tmp_path / "run")
    for folder, several in ((reference, True), (alone, False)):
        card = json.loads((folder / "schemes/constant/card.json").read_text())
        assert (OUTSIDE["other-runs"] in card["outside_the_guarantee"]) == several


def test_cards_say_which_results_are_told_of_private_data(tiny: Tiny, reference: Path) -> None:
    card = json.loads((reference / "schemes/constant/card.json").read_text())
    assert any("worst client's result weighs classes" in text for text in card["outside_the_guarantee"])
    assert not any("own training data" in text for text in card["outside_the_guarantee"])
    assert any("dealt out here (partition" in text for text in card["outside_the_guarantee"])
    assert not any("an earlier run" in text for text in card["assumptions"])
    assert any("own training data" in text for text in build.build_task(tiny("task.report_on=train")).notes)
    tuned = build.build_task(tiny("task.report_on=validation", "task.data.validation_fraction=0.2"))
    assert any("measured on samples set apart of the clients' own data" in text for text in tuned.notes)
    assert not any("counts as public" in text for text in tuned.notes)  # a data set and a network by name are


# --- spent before ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["constant", "cares-adaptive", "cares-static"])
def test_a_spent_ledger_refuses_the_run(scheme: str, tiny: Tiny, tmp_path: Path, reference: Path) -> None:
    """What an earlier run on the same clients has spent counts, in open and in closed loops."""
    spent = reference / "schemes/constant/ledger-0.bin"
    eps = float(Ledger.load(spent).spent().worst) * (1 + 1e-6)
    overrides = [f"privacy.already_spent='{spent}'", f"privacy.eps={eps!r}", f"scheme=[{{name='{scheme}'}}]"]
    with pytest.raises(BudgetExceeded):
        runner.start(tiny(*overrides), tmp_path / "run")
    with pytest.raises(BudgetExceeded, match="already_spent"):
        runner.start(tiny(*overrides[::2], f"privacy.eps={eps / 2!r}"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("scheme", ["constant", "cares-adaptive"])
def test_what_an_earlier_run_left_is_all_that_is_spent(
    scheme: str, tiny: Tiny, tmp_path: Path, reference: Path
) -> None:
    spent = reference / "schemes/constant/ledger-0.bin"
    folder = runner.start(
        tiny(f"privacy.already_spent='{spent}'", "privacy.eps=150", "rounds=40", f"scheme=[{{name='{scheme}'}}]"),
        tmp_path / "run",
    )
    after = Ledger.load(folder / "schemes" / scheme / "ledger-0.bin")
    before = Ledger.load(spent)
    assert before.rounds() < after.rounds() < before.rounds() + 40
    assert float(before.spent().worst) < float(after.spent().worst) <= 150
    told = json.loads((folder / "schemes" / scheme / "summary.json").read_text())["final_eps"][0]
    assert told == pytest.approx(float(after.spent().worst), rel=1e-12)
    certificate = json.loads((folder / "schemes" / scheme / "certificate.json").read_text())
    assert certificate["eps"][0] == pytest.approx(float(after.spent("zcdp").worst), rel=1e-12)
    card = json.loads((folder / "schemes" / scheme / "card.json").read_text())
    assert any("an earlier run on the same clients" in text for text in card["assumptions"])


def test_an_earlier_closed_loop_is_charged_its_cap(tiny: Tiny, tmp_path: Path, reference: Path) -> None:
    """What it happened to spend is no guarantee: rho + 2 sqrt(rho ln(1/delta)) of the cap's rho and the new rounds'."""
    spent = reference / "schemes/cares-adaptive/ledger-0.bin"
    asked = ("privacy.eps=300", "seeds=1", "scheme=[{name='constant', rx_scale=0.4}]")
    alone = runner.start(tiny(*asked), tmp_path / "alone") / "schemes/constant/ledger-0.bin"
    after = runner.start(tiny(*asked, f"privacy.already_spent='{spent}'"), tmp_path / "run") / "schemes/constant"
    log = np.log(1e5)
    rho = (np.sqrt(log + 200) - np.sqrt(log)) ** 2 + float(np.max(Ledger.load(alone).zcdp()))
    card = json.loads((after / "card.json").read_text())
    assert card["guarantee"]["eps"] == pytest.approx(rho + 2 * np.sqrt(rho * log), rel=1e-9)
    with pytest.raises(BudgetExceeded, match="the cap of an earlier closed loop"):
        runner.start(tiny("privacy.eps=200", *asked[1:], f"privacy.already_spent='{spent}'"), tmp_path / "over")


@pytest.mark.parametrize(
    ("budget", "text"),
    [
        (Budget(np.inf, 1e-5, adaptive=True), "without a cap, which guarantees nothing"),
        (Budget(9.0, 1e-5, "rdp", adaptive=True, order=8.0), "counted by 'rdp'"),
    ],
)
def test_an_earlier_closed_loop_without_a_cap_that_adds_is_refused(budget: Budget, text: str, tmp_path: Path) -> None:
    ones = np.ones(2)
    Ledger(budget, 2).save(tmp_path / "ledger.bin")
    with pytest.raises(InputError, match=text):
        open_ledger(
            Budget(50.0, 1e-5), 2, Message(5, 1.0, ones, ones, ones, "client", "add-remove"), tmp_path / "ledger.bin"
        )


def test_a_closed_loop_goes_on_from_what_another_spent_under_the_same_cap_alone(tmp_path: Path) -> None:
    ones = np.ones((3, 2))
    message = Message(5, 1.0, ones[0], ones[0], ones[0], "client", "add-remove")
    ledger = Ledger(Budget(20.0, 1e-5, adaptive=True), 2)
    ledger.spend(Events(ones, 0 * ones, ones > 0, ones, ones[:, 0], ones[:, 0] > 0, ones[0], ones[0]))
    ledger.save(tmp_path / "ledger.bin")
    one_run = open_ledger(Budget(20.0, 1e-5, adaptive=True), 2, message, tmp_path / "ledger.bin")
    assert one_run.zcdp() == pytest.approx([1.5, 1.5])
    larger = open_ledger(Budget(21.0, 1e-5, adaptive=True), 2, message, tmp_path / "ledger.bin")
    assert larger.zcdp() == pytest.approx([ledger.budget.zcdp] * 2), "it may have been chosen for what the first found"
    with pytest.raises(BudgetExceeded):
        open_ledger(Budget(19.0, 1e-5, adaptive=True), 2, message, tmp_path / "ledger.bin")


def test_an_unsuitable_earlier_ledger_is_refused(tiny: Tiny, tmp_path: Path, reference: Path) -> None:
    spent = reference / "schemes/constant/ledger-0.bin"
    broken = tmp_path / "broken.bin"
    broken.write_bytes(spent.read_bytes()[:-1])
    for file, override, said in (
        (spent, "task.clients=5", "has 4 clients but task.clients=5"),
        (broken, "rounds=5", "damaged"),
        (tmp_path / "none.bin", "rounds=5", r"none\.bin: is missing"),
        (spent, "clients.clip_norm=2.0", "sensitivity changed"),
        (spent, "scheme=[{name='fsk-mv'}]", "fsk-mv: sensitivity changed"),  # by what its uplink says that it releases
    ):
        with pytest.raises(InputError, match=said):
            runner.start(tiny(f"privacy.already_spent='{file}'", "privacy.eps=1e4", override), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", ["rounds", "sums", "whitened"])
def test_noise_of_new_colluders_is_taken_out_of_an_earlier_ledger_or_that_is_refused(kind: str, tmp_path: Path) -> None:
    """Noise of variance 1 each of two clients: half of it is left where one of them hands his to the adversary."""
    ones = np.ones((3, 2))
    events = Events(ones, ones, ones > 0, ones, 0 * ones[:, 0], ones[:, 0] > 0, ones[0], ones[0])
    if kind == "whitened":
        events = events._replace(amp=ones / np.sqrt(2), artificial_var=0 * ones, receiver_var=ones[:, 0])
    message = Message(5, 1.0, ones[0], ones[0], ones[0], "client", "add-remove")
    ledger = Ledger(Budget(100.0, 1e-5), 2)
    ledger.charge(ledger.opening(ones[0], ones[0]).add(events)) if kind == "sums" else ledger.spend(events)
    ledger.save(tmp_path / "ledger.bin")
    whole = open_ledger(Budget(100.0, 1e-5), 2, message, tmp_path / "ledger.bin")
    assert whole.zcdp() == pytest.approx([0.75, 0.75])
    told = Budget(100.0, 1e-5, colluders=(1,))
    if kind == "rounds":
        assert open_ledger(told, 2, message, tmp_path / "ledger.bin").zcdp()[0] == pytest.approx(1.5)
    else:
        with pytest.raises(InputError, match="may count the noise of client 1, who colludes in this run"):
            open_ledger(told, 2, message, tmp_path / "ledger.bin")


def test_the_sums_of_an_earlier_run_count_in_the_ledger_and_in_what_policies_plan_with(tmp_path: Path) -> None:
    ones = np.ones((3, 2))
    run = Events(ones, 0 * ones, ones > 0, ones, ones[:, 0], ones[:, 0] > 0, ones[0], ones[0])
    before = Ledger(Budget(100.0, 1e-5, adjacency="zero-out", unit="client"), 2)
    before.charge(before.opening(run.rate, run.sensitivity).add(run))
    before.release(Release("a noisy count", 1.0, 2.0))
    before.save(spent := tmp_path / "ledger.bin")
    message = Message(1, 1.0, ones[0], ones[0], ones[0], "client", "zero-out")
    after = open_ledger(before.budget, 2, message, spent)
    np.testing.assert_allclose(after.zcdp(), 3 / 2 + 1 / 8)
    assert after.rounds() == 3
    left = eps_left(Privacy(eps=100.0, delta=1e-5, already_spent=spent), 2)
    assert left == pytest.approx(classic_eps(before.budget.zcdp - 3 / 2 - 1 / 8, 1e-5))


@pytest.mark.parametrize("accountant", ["gaussian", "zcdp-optimal", "zcdp"])
def test_a_rest_that_delta_alone_covers_is_nothing_left_and_no_target_without_a_limit(
    accountant: str, tmp_path: Path
) -> None:
    """The exact eps of a small enough rest is 0, which a policy must not be told as "no target at all"."""
    ones = np.ones((3, 2))
    ledger = Ledger(Budget(100.0, 1e-5, accountant, adjacency="zero-out"), 2)
    ledger.spend(Events(ones, 0 * ones, ones > 0, ones, ones[:, 0], ones[:, 0] > 0, ones[0], ones[0]))
    ledger.save(spent := tmp_path / "ledger.bin")
    for above in (1e-14, 1e-12):
        eps = ledger.worst() * (1 + above)
        privacy = Privacy(eps=eps, delta=1e-5, accountant=accountant, already_spent=spent)
        if accountant == "zcdp":  # whose classic conversion gives the smallest rest an eps
            assert 0 < (eps_left(privacy, 2) or 0) < 1e-4
        else:
            with pytest.raises(BudgetExceeded, match="nothing is left"):
                eps_left(privacy, 2)


def test_a_card_is_that_of_the_worst_seed_and_the_least_cap_is_enough_for_all(tiny: Tiny, tmp_path: Path) -> None:
    weakest = "scheme=[{name='weakest', headroom=0.5}]"
    place = runner.start(tiny(weakest, "privacy.eps=1e6"), tmp_path / "run") / "schemes" / "weakest"
    spent = json.loads((place / "summary.json").read_text())["final_eps"]
    assert min(spent) < max(spent) == json.loads((place / "card.json").read_text())["guarantee"]["eps"]
    short = tiny(weakest, "privacy.eps=1e-3")
    planned = Planned(short, short.scheme[0], build.build_task(short))
    assert len(set(planned.least_eps)) == 2 and planned.least == max(planned.least_eps)


def test_an_earlier_ledger_is_found_beside_the_experiment_file(tiny: Tiny) -> None:
    assert tiny("privacy.already_spent='ledger.bin'").privacy.already_spent.is_absolute()
