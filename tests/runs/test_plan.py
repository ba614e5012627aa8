"""`otafl plan FILE` against `otafl run FILE`, seed by seed, and each figure of a row against a slow, plain version."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import every_scheme
from every_scheme import SITE
from otafl import systems
from otafl.bounds.merit import quality
from otafl.core.errors import InputError
from otafl.privacy import Ledger
from otafl.reports.tables import numbers, summaries
from otafl.runs import build, runner
from otafl.runs.folder.store import read_table
from otafl.runs.planning.facts import Facts, facts_of
from otafl.runs.planning.table import COUNTED, plan
from otafl.runs.schema import Experiment, load, resolved

HEAD = f"evaluate_every = 3{SITE}"
OPTIONS = every_scheme.OPTIONS | {"constant": "rx_scale = 0.3"}
# No round of energies is affordable here, and each compiles its own program.
ELSEWHERE = {every_scheme.UNTUNED, "fsk-mv", "energy-difference"}
SIZE = "num_params = 650\nclients = 30\nsamples = 40"


def text_of(name: str, label: str = "") -> str:
    return f'[[scheme]]\nname = "{name}"\nlabel = "{label or name}"\n{OPTIONS.get(name, "")}\n'


@pytest.fixture(scope="module")
def planned_and_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path, Experiment]:
    """Every scheme there is on one small site, planned, then run."""
    folder = tmp_path_factory.mktemp("plan")
    path = folder / "all.toml"
    systems.remove(systems.OWN)  # what another test registered
    path.write_text(HEAD + "".join(text_of(name) for name in systems.SCHEMES if name not in ELSEWHERE))
    experiment = load(path)
    return plan(experiment), runner.start(experiment, folder / "run"), experiment


def test_plan_and_run_agree(planned_and_run: tuple[Any, Path, Experiment]) -> None:
    """Rounds, eps and mu of every seed; energy is at most what is planned, and just that where messages are full."""
    table, folder, _ = planned_and_run
    for row, ran in zip(table.rows, summaries(folder), strict=True):
        assert (row.label, row.csi) == (ran["label"], ran["csi"] if row.csi else None)
        if row.loop != "open":
            assert np.all(numbers(ran["final_eps"]) <= np.array(row.eps))
            continue
        if row.reason == "" or row.rounds is not None:
            assert row.rounds == [int(value) for value in ran["rounds"]], row.label
        if row.least_eps is not None:
            assert row.least_eps == ran["least_eps"], row.label
            continue
        if row.eps is None:
            continue
        ledgers = [Ledger.load(folder / "schemes" / row.label / f"ledger-{seed}.bin") for seed in (0, 1)]
        assert row.eps == [ledger.spent().worst for ledger in ledgers], row.label
        np.testing.assert_array_equal(numbers(row.mu), numbers(ran["mu"]))
        np.testing.assert_allclose(row.dropped_weight, np.mean(numbers(ran["silent_weight"])), atol=1e-12)
        if row.energy_mean is not None:
            devices = read_table(folder / "schemes" / row.label / "devices.parquet")
            each = np.bincount(devices["client"], devices["energy"]) / 2  # mean over the two seeds
            assert each.mean() <= row.energy_mean * (1 + 1e-6)
            assert each.max() <= row.energy_max * (1 + 1e-6)


def test_runs_say_which_schemes_count_all_clients_alike(planned_and_run: tuple[Any, Path, Experiment]) -> None:
    _, folder, _ = planned_and_run
    assert {ran["scheme"] for ran in summaries(folder) if ran["unweighted"]} == {"eezofl", "obda"}


def experiment_of(tmp_path: Path, head: str, *schemes: str) -> Experiment:
    (tmp_path / "file.toml").write_text(head + "".join(text_of(name) for name in schemes))
    return load(tmp_path / "file.toml")


def test_a_row_says_what_a_plain_recount_says(tmp_path: Path) -> None:
    """S, noise, bias and energy of truncated inversion, from amplitudes and noise written out by hand."""
    head = "rounds = 7\nseeds = [3]\nchannel = 'cares'\nradio = { noise_std = 0.05, max_energy = 0.02 }\n"
    head += f"[task]\n{SIZE}\nweights = 'equal'\n[clients]\nkind = 'gradient'\nclip_norm = 0.5\n[privacy]\neps = 1e4\n"
    experiment = experiment_of(tmp_path, head, "constant")
    row = plan(experiment, agreement=0.6).rows[0]
    site = build.build_scheme(experiment, experiment.scheme[0], facts_of(experiment)).sites[0]
    gain, scale, energy = site.trace.gain, 0.3, 0.0
    heard, told = np.zeros(30), []
    for gains in gain:
        amplitude = scale / 30 / np.abs(gains)
        sends = (amplitude * 0.5) ** 2 <= 0.02
        heard += sends / 30
        told.append(np.sum(sends) / 30)
        energy += np.sum((amplitude * 0.5)[sends] ** 2) / 30
    noise = 0.05 / scale
    snr = 0.5 * sum(told) / np.sqrt(7 * noise**2)
    assert row.merit.snr == pytest.approx(snr, rel=1e-9)
    assert row.merit.quality == pytest.approx(quality(snr, 0.6, 650))
    assert row.noise_over_clip == pytest.approx(np.sqrt(np.mean([650 * noise**2 / (0.5 * a) ** 2 for a in told])))
    assert row.dropped_weight == pytest.approx(1 - np.mean(told))
    assert row.bias == pytest.approx(np.sum(np.abs(heard / heard.sum() - 1 / 30)) / 2)
    assert row.energy_mean == pytest.approx(energy, rel=1e-9)
    assert 0 < row.dropped_weight < 1  # the limit is felt, else this says little
    assert row.mu[0] == pytest.approx(np.sqrt(7) * scale / 30 / 0.05)  # replace: 2 x 0.5 moves the sum by scale/30


def test_efficiency_is_one_where_the_whole_budget_is_spent_by_all(tmp_path: Path) -> None:
    head = f"rounds = 20\nseeds = 1\n[task]\n{SIZE}\n[privacy]\neps = 2.0\n"
    row = plan(experiment_of(tmp_path, head, "fedavg-dp")).rows[0]
    assert row.merit.efficiency == pytest.approx(1, rel=1e-9)
    assert row.noise_of == "devices (no radio)"
    assert row.binding == "rounds"


def test_a_plan_says_aloud_for_whom_alone_its_eps_holds(tmp_path: Path) -> None:
    """ε against a server that forgets all but its beam's output stood there like any other."""
    for server, weaker in (("combined", True), ("full", False)):
        head = f"rounds = 2\nseeds = 1\nchannel = {{ antennas = 2, server = '{server}' }}\n[task]\n{SIZE}\n"
        notes = plan(experiment_of(tmp_path, head, "constant")).notes
        assert any(text.startswith("constant: WEAKER ADVERSARY") for text in notes) == weaker


def test_one_scheme_without_a_round_is_a_row_with_the_least_eps(tmp_path: Path) -> None:
    head = f"rounds = 20\nseeds = 1\nchannel = 'cares'\n[task]\n{SIZE}\n[privacy]\neps = 0.5\n"
    table = plan(experiment_of(tmp_path, head, "constant", "fedavg-dp", "cares-static"))
    bad, good = table.rows[0], table.rows[1]
    assert (bad.feasible, bad.rounds, good.feasible) == (False, [0], True)
    assert not table.rows[2].feasible
    assert "otafl plan cares" in table.rows[2].reason
    again = plan(experiment_of(tmp_path, head.replace("0.5", repr(bad.least_eps * (1 + 1e-9))), "constant"))
    assert again.rows[0].rounds == [1]


def test_a_task_of_a_size_alone_is_planned_and_not_run(tmp_path: Path) -> None:
    head = f"rounds = 5\nseeds = 1\n[task]\n{SIZE}\n[privacy]\neps = 2.0\n"
    experiment = experiment_of(tmp_path, head, "fedavg-dp")
    with pytest.raises(InputError, match=r"task\.num_params=650 declares a size alone"):
        runner.start(experiment, tmp_path / "run")
    (tmp_path / "again.toml").write_text(resolved(experiment))
    assert resolved(load(tmp_path / "again.toml")) == resolved(experiment)
    with pytest.raises(InputError, match="goes without data"):
        load(tmp_path / "file.toml", ["task.data=digits"])


def test_planning_deals_the_sizes_that_training_has(tmp_path: Path) -> None:
    head = HEAD.replace("train_size = 80", "train_size = 90, pca = { components = 8 }")
    experiment = experiment_of(tmp_path, head, "fedavg")
    task, facts = build.build_task(experiment), facts_of(experiment)
    assert [sizes.tolist() for sizes in facts.sizes] == [sizes.tolist() for sizes in task.sizes]
    assert (facts.model.num_params, facts.classes, facts.public_samples) == (
        task.model.num_params, task.classes, task.public_samples)  # fmt: skip


SITE = "name,distance_m,power_dbm,samples,owner\na,100,10,30\nb,200,10,10\nc,400,10,20\n"
RADIO = "radio = { bandwidth_hz = 1e6, noise_figure_db = 6.0, path_loss = { kind = 'adascale' } }\n"


@pytest.mark.filterwarnings("ignore::otafl.channels.IgnoredWarning")
def test_a_declared_task_has_as_many_clients_as_its_site_has_devices(tmp_path: Path) -> None:
    (tmp_path / "site.csv").write_text(SITE)
    task = "task = { num_params = 50, clients = 4 }\n"
    head = f"rounds = 4\nseeds = 1\ndevices = 'site.csv'\n{RADIO}{task}privacy = {{ eps = 1e6 }}\n"
    with pytest.raises(InputError, match=r"site\.csv: has 3 devices but task\.clients=4"):
        plan(experiment_of(tmp_path, head, "weakest"))


@pytest.mark.filterwarnings("ignore::otafl.channels.IgnoredWarning")
def test_a_csv_of_devices_reaches_every_scheme(tmp_path: Path) -> None:
    """Powers, noise, samples as weights and bandwidth, from one file; clients are counted there."""
    (tmp_path / "site.csv").write_text(SITE)
    head = (
        f"rounds = 4\nseeds = 1\ndevices = 'site.csv'\n{RADIO}task = {{ num_params = 50 }}\nprivacy = {{ eps = 1e6 }}\n"
    )
    experiment = experiment_of(tmp_path, head, "weakest")
    site = build.build_scheme(experiment, experiment.scheme[0], facts_of(experiment)).sites[0]
    np.testing.assert_allclose(site.deployment.weights, [1 / 2, 1 / 6, 1 / 3])
    np.testing.assert_allclose(site.deployment.energy, 0.01 * 50 / 1e6)
    np.testing.assert_allclose(site.deployment.noise_var, 10 ** ((-174 + 6) / 10 - 3) / 2)  # per Hz: N0 / 2
    loss_db = 33.44 + 35.22 * np.log10([100, 200, 400])
    np.testing.assert_allclose(site.trace.rms_gain[0] ** 2, 10 ** (-loss_db / 10))
    row = plan(experiment).rows[0]
    assert row.seconds == pytest.approx(4 * 50 / 1e6)


def test_weights_by_samples_or_equal(tmp_path: Path) -> None:
    head = "rounds = 3\nseeds = 1\nprivacy = {{ eps = 2.0 }}\n[task]\nnum_params = 20\nclients = 2\n"
    head += "samples = [10, 30]\nweights = '{}'\n"
    found = {}
    for word in ("samples", "sizes", "equal"):
        experiment = experiment_of(tmp_path, head.format(word), "fedavg-dp")
        sites = build.build_scheme(experiment, experiment.scheme[0], facts_of(experiment)).sites
        found[word] = sites[0].deployment.weights.tolist()
    assert found == {"samples": [0.25, 0.75], "sizes": [0.25, 0.75], "equal": [0.5, 0.5]}


def test_channels_are_drawn_once_for_all_schemes_and_cannot_be_altered(tmp_path: Path) -> None:
    head = "rounds = 3\nseeds = 2\nradio = { noise_std = 0.05 }\ntask = { num_params = 20, clients = 2 }\n"
    channels = ("channel = 'cares'\n", "channel = 'adascale'\n")
    one, other = (experiment_of(tmp_path, channel + head, "weakest", "constant") for channel in channels)
    facts = facts_of(one)

    def gains(experiment: Experiment, number: int, facts: Facts) -> list[np.ndarray]:
        return [site.trace.gain for site in build.build_scheme(experiment, experiment.scheme[number], facts).sites]

    first, second = gains(one, 0, facts), gains(one, 1, facts)
    assert all(np.shares_memory(a, b) and not b.flags.writeable for a, b in zip(first, second))
    assert not np.array_equal(*first)
    np.testing.assert_array_equal(gains(other, 0, facts), gains(other, 0, facts_of(other)))


def test_measured_gains_are_played_once_each(tmp_path: Path) -> None:
    gains = np.random.default_rng(1).exponential(1e-5, (8, 3))
    np.savetxt(tmp_path / "gains.csv", gains, delimiter=",")
    (tmp_path / "site.csv").write_text("power_dbm,samples\n10,30\n10,10\n10,20\n")
    (tmp_path / "site.toml").write_text(
        'devices_file = "site.csv"\ngains_file = { file = "gains.csv", unit = "amplitude", phase = "zero" }\n'
        "[radio]\nbandwidth_hz = 1e6\nnoise_figure_db = 5\n"
    )
    head = "rounds = 4\nseeds = [7, 5]\ndevices = 'site.toml'\ntask = { num_params = 50 }\nprivacy = { eps = 1e9 }\n"
    experiment = experiment_of(tmp_path, head, "weakest")
    sites = build.build_scheme(experiment, experiment.scheme[0], facts_of(experiment)).sites
    np.testing.assert_allclose(np.concatenate([site.trace.gain for site in sites]), gains)
    np.testing.assert_allclose(sites[0].trace.rms_gain[0] ** 2, np.mean(gains**2, axis=0))
    assert plan(experiment).rows[0].rounds == [4, 4]
    with pytest.raises(InputError, match="2 seeds x 5 rounds need 10 measured rows, the file has 8"):
        plan(load(tmp_path / "file.toml", ["rounds=5"]))


def test_clients_that_retire_at_their_own_cap_train_longer_and_are_charged_no_more(tmp_path):
    from otafl.runs import runner
    from otafl.runs.folder.store import RunFolder
    from otafl.runs.schema import Experiment

    said = {
        "rounds": 40, "seeds": 1, "channel": "cares", "evaluate_every": 20,
        "task": {"data": "digits", "clients": 5, "model": {"name": "logistic"}, "weights": [0.4, 0.3, 0.15, 0.1, 0.05]},
        "scheme": [{"name": "constant", "rx_scale": 0.3}],
    }  # fmt: skip
    rounds = {}
    second = {"gain": 0.01, "noise_std": 0.05}
    for stop in ("worst", "each"):
        experiment = Experiment(**said, privacy={"eps": 150.0, "stop": stop, "eavesdropper": second})
        place = RunFolder.open(runner.start(experiment, tmp_path / stop)).scheme("constant")
        summary = place.json("summary")
        rounds[stop] = summary["rounds"][0]
        assert summary["final_eps"][0] <= 150.0
        assert ("retire at their own cap" in (place.path / "card.md").read_text()) == (stop == "each")
        [heard] = [one for one in place.json("card")["observers"] if one["observer"] == "eavesdropper"]
        assert heard["eps"] > summary["final_eps"][0]  # it has the server's sums, and its own
    assert rounds["each"] > rounds["worst"] > 0


@pytest.mark.parametrize(("adjacency", "given", "said"), [
    ("add-remove", None, True), ("add-remove", 0.5, False), ("zero-out", None, False),
])  # fmt: skip
def test_that_record_numbers_are_no_public_matter_is_said_where_they_are_secret(
    adjacency: str, given: float | None, said: bool
) -> None:
    """Q is of an agreement that is guessed from them; the row of a scheme says no more than its ledger."""
    records = {"kind": "per-sample", "rate": 0.1, "divisor": 4.0, "size_max": 100, "adjacency": adjacency}
    task = {"num_params": 650, "clients": 4, "samples": 40, "weights": "equal"}
    asked = {"rounds": 3, "channel": "cares", "task": task, "clients": records, "scheme": [{"name": "weakest"}]}
    assert (COUNTED in plan(Experiment.model_validate(asked), agreement=given).notes) == said
