"""The front door: own data, own models and own schemes on the engine, and results as values."""

import ast
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import otafl
from otafl.core.errors import DataMissing, InputError, OtaflError
from otafl.runs.folder.store import RunFolder

RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 5)).astype(np.float32)
SLOPE = RNG.normal(size=5).astype(np.float32)
Y = (X @ SLOPE > 0).astype(int)
NET = otafl.model(lambda key: {"w": jnp.zeros((5, 2)), "b": jnp.zeros(2)}, lambda p, x: x @ p["w"] + p["b"])
TASK = otafl.task(X, Y, held_out=0.25, owner=np.arange(240) % 6)
SMALL = {"channel": "cares", "rounds": 12, "seeds": 2, "step_size": 0.5, "progress": False, "evaluate_every": 6}


def share_of_energy(obs, deployment, message, *, share: float = 0.5):
    """Everyone sends at the same share of its energy, phases aligned."""
    level = np.sqrt(share * deployment.energy) / message.bound
    arrives = level * np.abs(obs.estimate)
    return {
        "tx": level * np.exp(-1j * np.angle(obs.estimate)),
        "rx_scale": np.sum(level * obs.rms) * np.sqrt(np.pi) / 2,
        "imbalance": arrives.max(-1) / arrives.min(-1),
    }


@pytest.fixture(scope="module")
def front_share():
    return otafl.scheme("front-share", csi="own")(share_of_energy)


@pytest.fixture(scope="module")
def run(front_share):
    schemes = ["fedavg-dp", otafl.constant(rx_scale=0.3), front_share(share=1e-4)]
    return otafl.run(task=TASK, model=NET, schemes=schemes, eps=500.0, **SMALL)


def test_importing_otafl_costs_nothing():
    code = "import time; t = time.perf_counter(); import otafl; print(time.perf_counter() - t)"
    took = [float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout) for _ in "123"]
    assert min(took) < 0.3


def test_editors_see_what_the_front_door_gives():
    """One list is for Python, the other for type checkers, which cannot follow the first."""
    tree = ast.parse(Path(otafl.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name: node.module for node in block.body for alias in node.names if alias.name == alias.asname}
    assert seen == otafl._FRONT
    assert not {"Any", "TYPE_CHECKING"} & set(dir(otafl))


@pytest.mark.parametrize(("wrong", "right"), [("constnat", "constant"), ("swep", "sweep"), ("air", "Air")])
def test_a_misspelt_name_of_the_front_door_is_told_with_the_right_one(wrong, right):
    with pytest.raises(AttributeError, match=f"module 'otafl' has no attribute '{wrong}'; did you mean '{right}'"):
        getattr(otafl, wrong)
    with pytest.raises(AttributeError, match=r"has no attribute 'xyzzy'$"):
        getattr(otafl, "xyzzy")  # noqa: B009


def test_planning_loads_nothing_that_only_results_need():
    code = "import sys, otafl.commands.before_training, otafl.reports.plans; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout.split()
    assert not {"pyarrow", "pandas", "matplotlib", "sklearn", "dp_accounting", "optax"} & set(loaded)


def test_results_are_values(run):
    assert run.labels == ["fedavg-dp", "constant", "front-share"] == list(run.table.index)
    assert run.table.loc["fedavg-dp", "accuracy"] > 0.8 and np.all(run.table["eps"] <= 500)
    rounds = run.frame("rounds")
    assert set(rounds["scheme"]) == set(run.labels) and rounds.query("scheme == 'constant'").shape[0] == 24
    assert rounds.query("scheme == 'front-share'")["info_imbalance"].gt(1).all()
    card = run.card("constant")
    assert "held-out samples were drawn from the clients' own data" in card
    assert "which labels occur counts as public" in card and "where the model starts, and what its functions" in card
    assert card.startswith("# Privacy card") and card == card._repr_markdown_() and card.data["unit"] == "client"
    assert "accuracy" in run._repr_html_() and "cap ε=500" in repr(run)
    figure = run.plot("accuracy", over="eps")
    assert figure.axes[0].get_ylabel() == "accuracy" and figure._repr_png_().startswith(b"\x89PNG")
    for wrong in (lambda: run.card("none"), lambda: run.frame("none"), lambda: run.plot("none")):
        with pytest.raises(InputError, match="must be one of"):
            wrong()


def compared(**words):
    return otafl.compare(task=TASK, model=NET, schemes=["fedavg-dp"], **words)


@pytest.mark.parametrize("name", ["a\0b", "x" * 256, "x/" * 2500, "\ud800", 3])
def test_what_can_be_the_name_of_no_file_is_refused_before_any_work(run, name):
    site = {"num_params": 5, "eps": 8.0}
    for call in (
        lambda: otafl.run(task=TASK, schemes=["fedavg"], out=name, progress=False),
        lambda: otafl.run(resume=name),
        lambda: otafl.compare(task=TASK, model=NET, schemes=["fedavg-dp"], eps=8.0, out=name),
        lambda: otafl.sweep({}, {"rounds": [1]}, out=name, task=TASK, schemes=["fedavg"]),
        lambda: otafl.audit(task={"num_params": 2, "clients": 2}, schemes=["fedavg"], out=name),
        lambda: otafl.advise(2, **site, out=name),
        lambda: otafl.report(name),
        lambda: otafl.report(run, out=name),
        lambda: otafl.reproduce("cdpb-fig2", out=name),
        lambda: otafl.plan(name),
        lambda: otafl.Run(name),
        lambda: run.save(name),
        lambda: otafl.Air("fedavg-dp", site=2, num_params=2, noise_std=1.0, folder=name),
        lambda: otafl.Air.restore(name),
    ):
        with pytest.raises(InputError, match=r"must be a (path|file)"):
            call()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: otafl.run(task=TASK, schemes=["fedavg"], clients=20),
            "clients=20 must be what they send, a kind or a",
        ),
        (lambda: otafl.sweep({}, {"privacy.eps": 8}, out="x"), "over: privacy.eps=8 must be a list of values"),
        (lambda: otafl.sweep({}, {"privacy.eps": "2,8"}, out="x"), "over: privacy.eps='2,8' must be a list of values"),
        (lambda: otafl.sweep({}, [8], out="x"), "over=list must be a dict"),
        (lambda: otafl.plan({"task": 3, "scheme": []}), "task=3 must be a table"),
        (lambda: otafl.plan(task=TASK, schemes=["fedavg"], privacy=True, eps=8.0), "privacy=True must be a table"),
        (lambda: otafl.plan(task=TASK, schemes=["fedavg"], agreement=[1]), "agreement=list must be one number"),
        (lambda: otafl.plan(task=TASK, schemes=["fedavg"], agreement=1j), "agreement=1j must be one number"),
        (lambda: otafl.plan(task=TASK, schemes=["fedavg"], agreement=np.ma.masked), "must be one number"),
        (lambda: otafl.audit(task=TASK, schemes=["fedavg"], runs=[]), "runs=list must be one number"),
        (lambda: otafl.audit(task=TASK, schemes=["fedavg"], only=[1]), "scheme 1 must be one of 'fedavg'"),
        (lambda: otafl.audit(task=TASK, schemes=["fedavg"], only="fedavg"), "only='fedavg' must be a list"),
        (lambda: compared(eps="24"), 'eps must be a number, not "24"'),
        (lambda: compared(eps=[8, "24"]), 'eps.1. must be a number, not "24"'),
        (lambda: compared(eps=[8.0, 8.00000001]), r"eps=8.00000001 is there twice, or written the same"),
        (lambda: compared(eps=8.0, trials=True), "trials must be a number, not true"),
        (lambda: compared(eps=8.0, trials=10**9), "trials=1000000000 must be <= 10000"),
    ],
)
def test_a_value_in_place_of_a_table_or_a_list_is_told(call, said):
    with pytest.raises(InputError, match=said):
        call()


def test_what_a_cell_of_a_notebook_ends_with_is_readable(run, monkeypatch):
    assert repr(NET) == "<otafl model: own, 12 parameters>"
    air = otafl.Air("constant", site=3, num_params=2, rounds=2, eps=50.0, noise_std=0.3, seed=0)
    assert air.card._repr_markdown_().startswith("# Privacy card")
    monkeypatch.setenv("COLUMNS", "80")
    told = repr(run).splitlines()
    assert max(map(len, told[: told.index(next(line for line in told if line.startswith("ε at")))])) <= 80


def test_a_run_tells_small_numbers_and_who_had_no_round():
    """Rounded to four places, an energy of 15 uJ was 0.0000; a row of NaN said nothing."""
    schemes = [otafl.constant(rx_scale=1e-3), otafl.constant(rx_scale=50.0)]
    run = otafl.run(task=TASK, model=NET, schemes=dict(zip("ab", schemes)), eps=8.0, **SMALL)
    energy = run.table.loc["a", "energy_per_round"]
    assert 0 < energy < 1e-4 and f"{energy:.4g}" in repr(run) and f"{energy:.4g}" in run._repr_html_()
    assert "b (0 rounds affordable" in repr(run)


def test_where_all_send_no_weight_is_silent():
    """Twenty equal weights do not add up to one: 2.22e-16 of them were told to be silent."""
    task = {"data": "digits", "clients": 20, "weights": "equal"}
    run = otafl.run(task=task, model="logistic", schemes=["fedavg"], rounds=1, seeds=1, progress=False)
    assert run.table.loc["fedavg", "silent_weight"] == 0


def test_a_wrong_argument_is_told_in_one_line():
    """Arrays in place of a task were written out in full."""
    with pytest.raises(InputError, match=r"task=\(array\(.* must be otafl\.task") as caught:
        otafl.run(task=(np.eye(30), np.arange(30)), schemes=["fedavg"])
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 200
    with pytest.raises(InputError, match=r"must be a file.* data go by task="):
        otafl.run(TASK)
    with pytest.raises(InputError, match="did you mean 'fedavg'"):
        otafl.run(task=TASK, model=NET, schemes=["fedavgg"])
    with pytest.raises(InputError, match=r"otafl\.run: stepsize: unknown key; did you mean 'step_size'\?"):
        otafl.run(task=TASK, model=NET, schemes=["fedavg"], stepsize=0.1)
    with pytest.raises(InputError, match="one class alone"):
        otafl.run(task=otafl.task(X, 0 * Y, clients=6), model="logistic", schemes=["fedavg"])


def test_the_returned_model_is_the_one_that_was_evaluated(run):
    seed = 1
    params = run.params("constant", seed)
    experiment = run._experiment()
    from otafl.runs.build import build_task

    held = build_task(experiment).held_out
    x, y, group = (np.asarray(leaf).reshape(-1, *leaf.shape[2:]) for leaf in held)
    guess = np.argmax(x @ params["w"] + params["b"], axis=1)
    told = run.frame("evaluations").query("scheme == 'constant' and seed == 1")["accuracy"].iloc[-1]
    assert np.mean(guess[group >= 0] == y[group >= 0]) == pytest.approx(told)


def test_an_own_task_and_model_train_like_the_named_ones():
    """The digits as own arrays, logistic regression as own function: the engine's bits up to sums in another order."""
    from otafl.runs.build import build_task
    from otafl.runs.schema import Experiment

    keys = {**SMALL, "eps": 500.0, "schemes": [otafl.constant(rx_scale=0.3)]}
    named = otafl.run(task={"data": "digits", "clients": 4, "partition": {"kind": "iid"}}, model="logistic", **keys)
    task = build_task(Experiment(task={"data": "digits", "clients": 4}, scheme=[{"name": "fedavg"}]))
    held = [np.concatenate([np.asarray(a), np.asarray(b)]) for a, b in zip(_flat(task.held_out), _flat(task.public))]
    x, y = (np.asarray(leaf) for leaf in task.data)
    own = otafl.task(x.reshape(-1, 64), y, clients=4, held_out=(held[0].reshape(-1, 64), held[1]))
    net = otafl.model(lambda key: {"w": jnp.zeros((64, 10)), "b": jnp.zeros(10)}, lambda p, x: x @ p["w"] + p["b"])
    brought = otafl.run(task=own, model=net, **keys)
    a, b = (one.frame("rounds") for one in (named, brought))
    np.testing.assert_allclose(a["update_norm"], b["update_norm"], rtol=1e-4)
    np.testing.assert_allclose(a["noise_std"], b["noise_std"], rtol=1e-12)


def _flat(held):
    x, y, _ = (np.asarray(leaf).reshape(-1, *leaf.shape[2:]) for leaf in held)
    return x[y >= 0], y[y >= 0]


def test_regression_is_told_in_its_metric_and_never_in_accuracy(tmp_path, plots):
    y = X @ SLOPE
    net = otafl.model(lambda key: {"w": jnp.zeros(5)}, lambda p, x: x @ p["w"], loss="mse", metric="mae")
    task = otafl.task(X, y, held_out=(X[:40], y[:40]), clients=6, reward_fraction=0.0)
    run = otafl.run(task=task, model=net, schemes=["fedavg", otafl.constant(rx_scale=0.3)], out=tmp_path / "r", **SMALL)
    assert list(run.table.columns[:2]) == ["mae", "sd"] and run.table["worst_client"].isna().all()
    evaluations = run.frame("evaluations")
    assert "accuracy" not in evaluations and evaluations["loss"].gt(0).all()
    params = run.params("fedavg", 0)
    last = evaluations.query("scheme == 'fedavg' and seed == 0").iloc[-1]
    errors = X[:40] @ params["w"] - y[:40]
    assert last["mae"] == pytest.approx(np.mean(np.abs(errors)), rel=1e-4, abs=1e-7)  # float32
    assert last["loss"] == pytest.approx(np.mean(errors**2), rel=1e-4)
    assert (tmp_path / "r" / "plots" / "mae.png").exists() and not (tmp_path / "r" / "plots" / "accuracy.png").exists()
    page = (tmp_path / "r" / "report.html").read_text(encoding="utf-8")
    assert ">mae</th>" in page and ">accuracy</th>" not in page
    assert 'data-chart="loss"' in page and 'data-chart="worst_client"' not in page  # of which nothing is known
    with pytest.raises(InputError, match=r"rewards are accuracies|loss_gap must be given"):
        otafl.run(task=task, model=net, schemes=["cares-adaptive"], eps=500.0, **SMALL)
    with pytest.raises(InputError, match="classifies"):
        otafl.run(task=task, model="logistic", schemes=["fedavg"], **SMALL)


def test_saved_runs_open_resume_and_know_their_task(run, tmp_path):
    folder = run.save(tmp_path / "saved")
    assert otafl.Run(folder).table.equals(run.table)
    with pytest.raises(InputError, match="holds a run already"):
        run.save(folder)
    manifest = RunFolder.open(folder).manifest
    assert manifest["data"]["sha256"] == TASK.sha256 and manifest["data"]["model_sha256"]
    place = folder / "schemes" / "constant"
    before = (place / "done.json").read_bytes()
    for file in place.iterdir():
        file.unlink()
    with pytest.raises(DataMissing, match="given in Python"):
        otafl.run(resume=folder, model=NET)
    with pytest.raises(InputError, match="model 'own'"):
        otafl.run(resume=folder, task=TASK)
    with pytest.raises(InputError, match="data set has changed"):
        otafl.run(resume=folder, task=otafl.task(X + 1, Y, held_out=0.25, owner=np.arange(240) % 6), model=NET)
    other = otafl.model(NET.init, lambda p, x: x @ p["w"] - p["b"])
    with pytest.raises(InputError, match="model has changed"):
        otafl.run(resume=folder, task=TASK, model=other)
    with pytest.raises(InputError, match="resume takes all"):
        otafl.run(resume=folder, task=TASK, model=NET, rounds=3)
    again = otafl.run(resume=folder, task=TASK, model=NET, progress=False)
    assert (place / "done.json").read_bytes() == before
    np.testing.assert_array_equal(again.params("constant")["w"], run.params("constant")["w"])


def test_the_command_line_asks_for_the_task_again(run, tmp_path):
    folder = run.save(tmp_path / "saved")
    (folder / "schemes" / "constant" / "done.json").unlink()
    done = subprocess.run(
        [sys.executable, "-m", "otafl", "run", "--resume", str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr


def test_per_sample_clipping_of_an_own_model_is_the_ghosts_of_the_same_network():
    """Record level: gradients formed one by one and norms without gradients give one run."""
    from otafl.tasks.models import build

    layers = build("logistic", (5,), 2)
    own = otafl.model(layers.init, layers.logits)
    clients = {"kind": "per-sample", "clip_norm": 0.5, "sampling": "without-replacement", "batch": 10}
    keys = {"task": TASK, "schemes": [otafl.constant(rx_scale=0.3)], "clients": clients, **SMALL}
    a, b = otafl.run(model="logistic", **keys), otafl.run(model=own, **keys)
    np.testing.assert_allclose(a.frame("rounds")["update_norm"], b.frame("rounds")["update_norm"], rtol=1e-4)
    assert a.card("constant").data["spent"] == b.card("constant").data["spent"]


def test_the_card_is_the_same_in_two_adjacent_worlds():
    """It told a hash of the data and, under a large delta, how many records there were: whoever knew all but one
    of them read off the card whether the last was there."""
    clients = {"kind": "per-sample", "rate": 0.1, "divisor": 4.0, "size_max": 50}
    keys = {**SMALL, "rounds": 2, "seeds": 1, "evaluate_every": 2}

    def card(x, y):
        task = otafl.task(x, y, held_out=(X[:20], Y[:20]), owner=np.arange(len(y)) % 6, weights="equal")
        found = otafl.run(task=task, model=NET, schemes=["fedavg-dp"], clients=clients, eps=8.0, delta=0.01, **keys)
        return found.card("fedavg-dp")

    here, gone = card(X, Y), card(X[:-1], Y[:-1])
    assert "n = 300 records" in here.data["alarms"][0]
    assert here.data == gone.data


def test_schemes_by_name_value_table_and_label():
    from otafl.runs import described

    tables = described._schemes([otafl.constant(rx_scale=0.3), otafl.constant(rx_scale=0.1), "fedavg"])
    assert [t.get("label") for t in tables] == ["constant (rx_scale=0.3)", "constant (rx_scale=0.1)", None]
    named = described._schemes({"quiet": otafl.constant(rx_scale=0.1), "free": "fedavg"})
    assert [(t["name"], t["label"]) for t in named] == [("constant", "quiet"), ("fedavg", "free")]
    for wrong, said in ((["fedavgg"], "scheme"), ([3], "scheme"), (7, "must be a list")):
        with pytest.raises(InputError, match=said):
            described._schemes(wrong)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"schemes": ["fedavg"], "roundz": 3}, "roundz"),
        ({}, "give schemes"),
        ({"schemes": ["fedavg"], "task": 3}, "task=3"),
        ({"schemes": ["fedavg"], "model": 3}, "model=3"),
        ({"schemes": ["fedavg"], "task": TASK, "model": "own"}, "given in Python"),
        ({"schemes": ["fedavg"], "eps": -1.0}, "eps"),
    ],
)
def test_mistakes_are_one_line(keys, said):
    with pytest.raises(InputError, match=said) as refusal:
        otafl.run(**keys)
    assert "\n" not in str(refusal.value)


def test_an_own_scheme_is_checked_like_any_other(front_share):
    with pytest.raises(InputError, match="must be one of obs, deployment"):
        otafl.scheme("front-wrong")(lambda radio: {})
    with pytest.raises(InputError, match="needs a type or a default"):
        exec("def f(obs, *, share): return {}\nimport otafl\notafl.scheme('front-wrong')(f)", {})
    empty = otafl.scheme("front-empty")(lambda obs: {})
    with pytest.raises(InputError, match="'tx' and 'rx_scale'"):
        otafl.run(task=TASK, model=NET, schemes=[empty()], **SMALL)
    loud = otafl.scheme("front-loud")(lambda obs: {"tx": 1e3 / obs.estimate, "rx_scale": 1.0, "max_norm": np.inf})
    with pytest.raises(OtaflError, match=r"radiate|energy"):
        otafl.run(task=TASK, model=NET, schemes=[loud()], **SMALL)
    shaped = otafl.scheme("front-shape")(lambda obs: {"tx": np.ones(99), "rx_scale": 1.0})
    with pytest.raises(InputError, match=r"tx has shape \(99,\)"):
        otafl.run(task=TASK, model=NET, schemes=[shaped()], **SMALL)
    with pytest.raises(InputError, match="share"):
        front_share(share="much")
    assert otafl.front_share(share=0.2) == front_share(share=0.2)


def test_a_plan_of_own_data_is_the_plan_of_its_run(run, front_share):
    """Nothing is trained: rounds, eps and mu stand before the run, for own data, models and schemes too."""
    schemes = ["fedavg-dp", otafl.constant(rx_scale=0.3), front_share(share=1e-4)]
    keys = {name: value for name, value in SMALL.items() if name != "progress"}
    planned = otafl.plan(task=TASK, model=NET, schemes=schemes, eps=500.0, **keys).table
    np.testing.assert_allclose(planned["eps"], run.table["eps"], rtol=1e-9)
    for name in ("mu", "tpr_at_1pct"):
        np.testing.assert_allclose(planned[name].astype(float), run.table[name], rtol=1e-9)
    np.testing.assert_array_equal(planned["rounds"], run.table["rounds"])
    size_alone = otafl.plan(task={"num_params": 12, "clients": 6}, schemes=schemes, channel="cares", eps=500.0)
    assert list(size_alone.table.index) == run.labels and "feasible" in size_alone._repr_html_()
    assert repr(size_alone).splitlines()[0].split()[:3] == ["feasible", "rounds", "eps"]
    assert all(label in repr(size_alone) for label in run.labels) and "PlanTable(" not in repr(size_alone)


def test_a_run_on_own_data_is_attacked_under_its_own_ledgers(run):
    found = otafl.audit(run, runs=40)
    assert [scheme.label for scheme in found.schemes] == run.labels and not found.failed
    assert found.schemes[1].eps == pytest.approx(run.table.loc["constant", "eps"])
    with pytest.raises(DataMissing, match="given in Python"):
        otafl.audit(run.folder, runs=40)


def test_every_verb_has_a_function():
    for verb in ("run", "plan", "compare", "advise", "audit"):
        assert callable(getattr(otafl, verb)) and verb in dir(otafl)


def test_own_arrays_are_compared_as_they_are_run(run, tmp_path):
    schemes = [otafl.constant(rx_scale=0.3)]
    runs = otafl.compare(task=TASK, model=NET, schemes=schemes, eps=[500.0], out=tmp_path, **SMALL)
    assert "ε = 500: constant reaches" in repr(runs) and "| constant |" in runs._repr_markdown_()
    assert list(runs) == [500.0] and runs[500.0].labels == ["constant"] and (tmp_path / "compare.html").exists()
    for name in ("eps", "accuracy"):
        assert runs[500.0].table.loc["constant", name] == run.table.loc["constant", name]
    assert otafl.report(run, runs[500.0], out=tmp_path / "both.html") == tmp_path / "both.html"
    with pytest.raises(InputError, match="common privacy target"):
        otafl.compare(task=TASK, model=NET, schemes=schemes, **SMALL)
    regress = otafl.model(NET.init, NET.logits, loss="mse")
    with pytest.raises(InputError, match="ranked by accuracy"):
        otafl.compare(task=TASK, model=regress, schemes=schemes, eps=1.0, **SMALL)
