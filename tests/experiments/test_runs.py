"""Runs as a whole: the same bytes from the same config, budgets kept, refusals before anything is written."""

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from otafl.errors import BudgetExceeded, Infeasible, InputError
from otafl.experiments import runner
from otafl.experiments.progress import Reporter
from otafl.experiments.schema import Experiment
from otafl.experiments.store import read_table
from otafl.privacy import Ledger
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


@pytest.mark.parametrize("every", [1, 3, 1000])
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
    config = tiny("scheme=[{name='constant'}]")
    with monkeypatch.context() as patch:
        patch.setattr(import_module("otafl.clients.gradient"), "client_gradients", spoilt)
        folder = runner.start(config, tmp_path / "run", listener) / "schemes/constant"
    sound = runner.start(config, tmp_path / "sound") / "schemes/constant"
    rounds = len(read_table(folder / "rounds.parquet")["round"])  # of both seeds
    assert json.loads((folder / "summary.json").read_text())["zeroed"] == 4 * rounds > 0
    assert f"constant: {4 * rounds} messages were not finite and counted as zero" in notes
    assert (folder / "ledger-0.bin").read_bytes() == (sound / "ledger-0.bin").read_bytes()


def test_a_budget_too_small_for_one_round_is_refused_before_anything_is_written(tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(BudgetExceeded, match="constant: not one round is affordable"):
        runner.start(tiny("privacy.eps=0.01", "scheme=[{name='constant'}]"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_infeasible_later_scheme_is_refused_before_the_first_one_runs(tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(Infeasible, match="cares-adaptive"):
        runner.start(tiny("scheme.1.max_dropped=1e-9"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


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


def test_an_unsuitable_earlier_ledger_is_refused(tiny: Tiny, tmp_path: Path, reference: Path) -> None:
    spent = reference / "schemes/constant/ledger-0.bin"
    broken = tmp_path / "broken.bin"
    broken.write_bytes(spent.read_bytes()[:-1])
    for file, override, said in (
        (spent, "task.clients=5", "has 4 clients but task.clients=5"),
        (broken, "rounds=5", "damaged"),
        (tmp_path / "none.bin", "rounds=5", "cannot be read"),
        (spent, "clients.clip_norm=2.0", "sensitivity changed"),
    ):
        with pytest.raises(InputError, match=said):
            runner.start(tiny(f"privacy.already_spent='{file}'", "privacy.eps=1e4", override), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_earlier_ledger_is_found_beside_the_experiment_file(tiny: Tiny) -> None:
    assert tiny("privacy.already_spent='ledger.bin'").privacy.already_spent.is_absolute()
