"""EEZOFL presets: they parse, run small, and their verdicts come from the runs; real keys train the same model."""

import json

import jax
import numpy as np
import pytest
from rich.console import Console

from otafl.core.errors import InputError
from otafl.crypto import budget
from otafl.crypto.randomness import insecure_test_rng
from otafl.crypto.ring import RING_4096, RING_8192
from otafl.reproductions.preset_run import reproduce
from otafl.runs import runner
from otafl.runs.presets import find, read_preset
from otafl.runs.progress import Reporter
from otafl.runs.schema import load
from otafl.systems.eezofl.host_training import train_on_host
from otafl.systems.eezofl.reproduce_tables import noise_law, noise_verdicts, of_the_dimension, overhead

TRAINED = ("eezofl-table3", "eezofl-fig2", "eezofl-fig3", "eezofl-packing", "eezofl-he-dp")


def quick(name, *more):
    return [*read_preset(find(name)).overrides(quick=True), *more]


def reproduced(name, folder, *more):
    reproduce(name, folder, list(more), True, Reporter(), Console(quiet=True))
    return json.loads((folder / "results.json").read_text())


@pytest.mark.parametrize("name", TRAINED)
def test_presets_parse_and_say_what_the_paper_says(name):
    preset = read_preset(find(name))
    for own in preset.settings["runs"].values():
        experiment = load(find(name), own)
        spread = experiment.channel.fading.std
        assert all(scheme.sigma == spread for scheme in experiment.scheme)
        assert set(preset.targets.get("accuracy", {})) <= set(experiment.labels)
    load(find(name), quick(name))


def test_table_two_is_the_arithmetic_of_the_parameter_sets():
    """Byte counts by hand: 2 n 109 / 8 and 2 n 218 / 8; rho >= (d / 2) (eta / gamma) L_g var (EEZOFL 7.3)."""
    settings = read_preset(find("eezofl-table2")).settings
    for ring, bits in ((RING_4096, 109), (RING_8192, 218)):
        column = overhead(ring, settings)
        assert column["ciphertext bytes"] == 2 * ring.n * bits / 8
        assert column["uplink Mbit"] == 4 * ring.n * bits / 1e6
        assert column["rho"] == pytest.approx(785 / 2 * 99.31 * column["decoded variance"])


@pytest.mark.parametrize(("share", "word"), [(1.0, "holds, at σ = 1 only"), (1e-4, "holds"), (10.0, "does not hold")])
def test_sixteen_orders_are_asked_at_both_channel_spreads(share: float, word: str):
    """σ̄² is 2.7e-17 and 5.3e-17 at σ = 1, 101² / 2² times as much at σ = 10 (EEZOFL V-A)."""
    preset, name = read_preset(find("eezofl-table2")), "decoded variance / Ω²"
    found = {str(ring.n): overhead(ring, preset.settings) for ring in (RING_4096, RING_8192)}
    found = {n: {**column, name: share * column[name]} for n, column in found.items()}
    verdicts = {one.claim: one.verdict for one in noise_verdicts(found, preset.settings, preset.targets)}
    assert next(verdicts[claim] for claim in verdicts if "typical channel noise" in claim) == word


@pytest.mark.parametrize(("power", "word"), [(2, "holds"), (1, "does not hold")])
def test_the_law_of_the_decoded_noise_is_asked(power: int, word: str, monkeypatch: pytest.MonkeyPatch):
    """A variance over the scale instead of its square would be noticed."""
    monkeypatch.setattr(budget, "decoded_variance", lambda noise, n, scale: noise.B_eps_squared / n / scale**power)
    assert noise_law(read_preset(find("eezofl-table2")).settings).verdict == word


def test_sizes_of_a_round_do_not_depend_on_the_model_and_the_noise_floor_does():
    settings = read_preset(find("eezofl-table2")).settings
    assert of_the_dimension(settings).verdict == "holds"
    large = {**settings, "task": {**settings["task"], "d": 10**6}}
    assert overhead(RING_4096, large)["rho"] > 1000 * overhead(RING_4096, settings)["rho"]


@pytest.mark.slow
def test_table_one_shows_each_line_on_a_round_with_real_keys(tmp_path):
    reproduce("eezofl-table1", tmp_path / "out", [], False, Reporter(), Console(quiet=True))
    words = [one["verdict"] for one in json.loads((tmp_path / "out" / "results.json").read_text())["verdicts"]]
    assert words == ["holds", "holds", "holds, but for the mean gain", "holds", "holds", "not stated"]


@pytest.mark.slow
def test_where_a_failed_round_ends_is_scanned(tmp_path):
    told = reproduced("eezofl-fig3-scan", tmp_path / "out")
    (panel,) = told["panels"]
    assert len(panel["lines"][0]["x"]) == 2 and told["grids"][0]["rows"][0][0] == "2^-16"


def test_packing_end_to_end(tmp_path):
    one = "preset.settings.runs={sigma-1=[]}"
    found = reproduced("eezofl-packing", tmp_path / "out", one)
    assert len(found["verdicts"]) == 1 and (tmp_path / "out" / "results.svg").exists()
    again = reproduced("eezofl-packing", tmp_path / "out", one)  # finished runs are used as they are
    assert again["verdicts"] == found["verdicts"]


def test_operating_system_keys_train_the_model_of_the_noiseless_run(tmp_path):
    """The protocol on devices with real keys against the compiled plain run: 3 rounds, n = 64, same stream."""
    keep = ("rounds=3", "evaluate_every=3", "seeds=[4]")
    experiment = load(find("eezofl-table3"), quick("eezofl-table3", *keep))
    plain = experiment.model_copy(update={"scheme": [experiment.scheme[-1]]})
    folder = runner.start(plain, tmp_path / "plain")
    with np.load(next(folder.glob("schemes/*/model.npz"))) as stored:
        reference = [stored[name][0] for name in sorted(stored)]
    run = train_on_host(experiment, 0, 3)
    assert not run.insecure_test_rng and not run.refused.any()
    for ours, theirs in zip(jax.tree.leaves(run.params), reference):
        np.testing.assert_allclose(ours, theirs, atol=2e-6)  # gains on the grid 2^-16 move the sum by 1e-6


def test_noise_that_the_clients_owe_is_not_left_out_in_silence():
    experiment = load(find("eezofl-he-dp"), quick("eezofl-he-dp"))
    owing = next(n for n, one in enumerate(experiment.scheme) if one.name == "eezofl" and one.dp_noise)
    with pytest.raises(InputError, match="devices on the host add no noise"):
        train_on_host(experiment, owing, 1)


@pytest.mark.slow
def test_a_test_generator_marks_the_run_and_literal_decoding_fails():
    experiment = load(find("eezofl-table3"), quick("eezofl-table3", "seeds=[4]"))
    sources = [insecure_test_rng(i) for i in range(11)]
    run = train_on_host(experiment, 0, 2, mode="literal", discard=False, sources=sources)
    assert run.insecure_test_rng and run.refused.all() and not run.losses[-1] < 1e6


@pytest.mark.slow
@pytest.mark.parametrize("name", ["eezofl-table3", "eezofl-fig2", "eezofl-fig3", "eezofl-he-dp"])
def test_trained_presets_end_to_end(name, tmp_path):
    one = [] if name == "eezofl-table3" else ["preset.settings.runs={sigma-1=[]}"]
    found = reproduced(name, tmp_path / "out", *one)
    words = [verdict[1] if isinstance(verdict, list) else verdict["verdict"] for verdict in found["verdicts"]]
    assert words
    if name == "eezofl-fig3":
        assert words[0] == "holds", "divergence"
