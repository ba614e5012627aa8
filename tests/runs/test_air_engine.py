"""`otafl.Air` against the engine: same seed, same messages, hence the same model and the same ledger bytes.

The engine trains each scheme of a tiny experiment; then a loop of one's own computes the same clients' messages from
its own model, sends them through `Air` and steps the same optimizer. Nothing is handed from the one to the other.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import otafl
from otafl.core.streams import Seed
from otafl.runs import build, runner
from otafl.runs.evaluation import evaluator
from otafl.runs.schema import Experiment, load, options_of
from otafl.runs.schemes import Chosen
from otafl.systems import scheme as scheme_of

SEED = 3
TINY = """
rounds = 6
seeds = [3]
evaluate_every = 3
channel = "cares"

[task]
data = { name = "digits", train_size = 120 }
clients = 5
partition = { kind = "dirichlet", alpha = 1.0 }
model = { name = "logistic" }

[radio]
noise_std = 0.3

[clients]
kind = "gradient"
clip_norm = 0.7
batch = 8

[server]
step_size = 0.5

[privacy]
eps = 200.0
"""
OPEN = """
[[scheme]]
name = "fedavg"
[[scheme]]
name = "fedavg-dp"
[[scheme]]
name = "constant"
rx_scale = 0.4
[[scheme]]
name = "constant"
label = "constant-norm"
rx_scale = 1.5
silence = "norm"
[[scheme]]
name = "constant"
label = "budget"
rx_scale = 5.0
[[scheme]]
name = "weakest"
[[scheme]]
name = "cares-static"
[[scheme]]
name = "adascale"
nu = 0.01
[[scheme]]
name = "adascale-equal"
nu = 0.01
[[scheme]]
name = "adascale-optimal"
nu = 0.01
[[scheme]]
name = "adascale-stat-water"
nu = 0.01
[[scheme]]
name = "cdpb"
[[scheme]]
name = "cdpb"
label = "cdpb-mixed"
strategy = "mixed"
portion = 0.5
mixed_mode = "coin"
[[scheme]]
name = "cdpb-is"
[[scheme]]
name = "cdpb-hmin"
[[scheme]]
name = "biasvar"
[[scheme]]
name = "opc"
[[scheme]]
name = "lcpc"
[[scheme]]
name = "bbfl"
variant = "alternative"
interior = [0, 2, 3]
"""
CLOSED = """
[[scheme]]
name = "cares-adaptive"
[[scheme]]
name = "cares-adaptive"
label = "private"
reward_data = "private_noisy"
reward_noise = 0.5
"""


def engine_run(text: str, folder: Path) -> tuple[Experiment, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tiny.toml").write_text(text)
    experiment = load(folder / "tiny.toml")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("otafl.reports.write_report", lambda runs, out_file=None: [])
        return experiment, runner.start(experiment, folder / "run")


PROGRAMS: dict[str, dict[str, Any]] = {}  # of the clients: the same for all schemes of an experiment, compiled once


class OwnLoop:
    """The clients and the server of an experiment, without its engine."""

    def __init__(self, experiment: Experiment, scheme: Any):
        self.experiment, self.scheme, self.task = experiment, scheme, build.build_task(experiment)
        self.setup = build.build_scheme(experiment, scheme, self.task)
        self.seed = jax.tree.map(lambda leaf: leaf[0], build.seeds_of(experiment, self.task))
        self.params = self.task.model.init(jax.random.fold_in(self.seed.key, Seed.INIT))
        with jax.enable_x64(True):
            self.opt = self.setup.optimizer.init(self.params)
        programs = PROGRAMS.setdefault(experiment.model_copy(update={"scheme": []}).model_dump_json(), {})
        if not programs:
            programs["evaluate"] = jax.jit(evaluator(self.task.model, self.task.classes))
            programs["messages"], programs["lift"] = jax.jit(self._all_messages), jax.jit(self._lifted)
        self.evaluate, self._messages, self._lift = (programs[name] for name in ("evaluate", "messages", "lift"))

    def air(self, **more: Any) -> otafl.Air:
        message, e = self.setup.sites[0].message, self.experiment
        like = self.params if message.dim == self.task.model.num_params else np.zeros(message.dim, np.float32)
        config = options_of(self.scheme, scheme_of(self.scheme.name).config)
        return otafl.Air(
            Chosen(self.scheme.name, config), site=e.task.clients, num_params=message.dim,
            clip_norm=e.clients.clip_norm,
            channel=e.channel, rounds=e.horizon(self.scheme), seed=SEED, sizes=self.task.partitions[0].sizes,
            eps=e.privacy.eps, delta=e.privacy.delta, accountant=e.privacy.accountant, noise_std=e.radio.noise_std,
            step_size=e.server.step_size, classes=self.task.classes, like=jax.tree.map(np.asarray, like), **more,
        )  # fmt: skip

    def _all_messages(self, params: Any, round_: Any) -> Any:
        ids = jnp.arange(self.seed.sizes.shape[0], dtype=jnp.int32)
        client_key, _ = jax.random.split(jax.random.fold_in(self.seed.key, round_))
        keys = jax.vmap(lambda k: jax.random.fold_in(client_key, k))(ids)
        drawn, _ = self.setup.clients.draw(self.seed, keys, ids)
        return self.setup.clients.messages(params, self.task.data, self.seed, drawn, ids, round_)[0]

    def _lifted(self, received: Any, params: Any, round_: Any) -> Any:
        return self.setup.clients.lift(received, params, self.seed, round_)

    def messages(self, number: int) -> list[Any]:
        with jax.enable_x64(True):
            together = jax.tree.map(np.asarray, self._messages(self.params, jnp.int32(number)))
        return [jax.tree.map(lambda leaf: leaf[k], together) for k in range(self.experiment.task.clients)]  # noqa: B023

    def step(self, received: Any, number: int) -> None:
        with jax.enable_x64(True):
            gradient = self._lift(jax.tree.map(jnp.asarray, received), self.params, jnp.int32(number))
            change, self.opt = self.setup.optimizer.update(gradient, self.opt, self.params)
            self.params = optax.apply_updates(self.params, change)

    def accuracy(self) -> float:
        """As the policy's feedback asks for it: on public data, or the weighted mean over the clients' own."""
        if self.setup.sites[0].policy.feedback.data == "public":
            seen = self.evaluate(self.params, self.task.public)
            return float(np.sum(seen.right)) / float(np.sum(seen.total))
        right = np.argmax(np.asarray(self.task.model.logits(self.params, self.task.data.x)), axis=1)
        right, part = right == np.asarray(self.task.data.y), self.task.partitions[0]
        shares = [np.mean(right[rows[:size]]) for rows, size in zip(part.rows, part.sizes)]
        return float(np.dot(part.sizes / part.sizes.sum(), shares))

    def train(self, air: otafl.Air) -> None:
        air.reward(self.accuracy())
        for r in air:
            messages = self.messages(r.number)
            self.step(r.send({int(k): messages[k] for k in r.asked}), r.number)
            r.reward(self.accuracy())


def assert_same(experiment: Experiment, scheme: Any, run: Path, **more: Any) -> otafl.Air:
    loop = OwnLoop(experiment, scheme)
    air = loop.air(**more)
    loop.train(air)
    folder = run / "schemes" / (scheme.label or scheme.name)
    with np.load(folder / "model.npz") as model:
        for n, leaf in enumerate(jax.tree.leaves(loop.params)):
            np.testing.assert_allclose(np.asarray(leaf), model[f"leaf{n:04d}"][0], atol=1e-6, rtol=1e-6)
    assert air.ledger_bytes() == (folder / f"ledger-{SEED}.bin").read_bytes()
    return air


@pytest.fixture(scope="module")
def open_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Experiment, Path]:
    return engine_run(TINY + OPEN, tmp_path_factory.mktemp("open"))


def labels(text: str) -> list[str]:
    blocks = [block for block in text.split("[[scheme]]") if block.strip()]
    values = [dict(line.split(" = ") for line in block.strip().splitlines()) for block in blocks]
    return [(value.get("label") or value["name"]).strip('"') for value in values]


@pytest.mark.parametrize("label", labels(OPEN))
def test_open_loops_equal_the_engine(open_run: tuple[Experiment, Path], label: str) -> None:
    experiment, run = open_run
    air = assert_same(experiment, experiment.scheme[experiment.labels.index(label)], run)
    assert air.rounds_charged == air.affordable_rounds
    if label == "budget":
        assert 0 < air.rounds_charged < experiment.rounds


@pytest.mark.parametrize("label", labels(CLOSED))
def test_closed_loops_equal_the_engine(tmp_path: Path, label: str) -> None:
    text = TINY + next("[[scheme]]" + b for b, n in zip(CLOSED.split("[[scheme]]")[1:], labels(CLOSED)) if n == label)
    experiment, run = engine_run(text, tmp_path)
    air = assert_same(experiment, experiment.scheme[0], run)
    assert air.rounds_charged == experiment.rounds
    assert (label == "private") == bool(air.ledger.releases)


def test_a_closed_loop_that_stops_early_equals_the_engine(tmp_path: Path) -> None:
    """The engine goes on in chunks after the policy has stopped; neither ledger knows of it."""
    text = TINY.replace("rounds = 6", "rounds = 20").replace("eps = 200.0", "eps = 4.0")
    experiment, run = engine_run(text + '[[scheme]]\nname = "cares-adaptive"\n', tmp_path)
    assert 0 < assert_same(experiment, experiment.scheme[0], run).rounds_charged < 20


def test_declared_messages_equal_the_engine(tmp_path: Path) -> None:
    """Poisson batches: no norm bound, a rate below one. The loop is told what the clients promise, and nothing else."""
    text = TINY.replace('kind = "gradient"', 'kind = "per-sample"\nsampling = "poisson"\nunit = "record"')
    text = text.replace("eps = 200.0", 'eps = 200.0\naccountant = "rdp"')
    experiment, run = engine_run(text + '[[scheme]]\nname = "weakest"\n', tmp_path)
    message = OwnLoop(experiment, experiment.scheme[0]).setup.sites[0].message
    assert np.all(message.rate < 1) and message.unit == "record"
    assert_same(experiment, experiment.scheme[0], run, message=message)


SMALL_RING = "n = 64\nallow_insecure = true\n"  # the same arithmetic


@pytest.mark.parametrize(
    ("mode", "ring"),
    [
        ("fixed-point", SMALL_RING),
        *(pytest.param(mode, "", marks=pytest.mark.slow) for mode in ("fixed-point", "plain", "analytic")),
    ],
)
def test_zero_order_rounds_equal_the_engine(tmp_path: Path, mode: str, ring: str) -> None:
    text = TINY.replace('channel = "cares"', 'channel = "eezofl"').replace(
        'kind = "gradient"', 'kind = "zero-order"\ndirections = 2'
    )
    text = text.replace("step_size = 0.5", "step_size = 0.05")  # loss differences magnify the rounding of the model
    scheme = f'[[scheme]]\nname = "eezofl"\nmode = "{mode}"\n' + ("" if mode == "plain" else "dp_noise = 0.3\n")
    experiment, run = engine_run(text + scheme + ring, tmp_path)
    assert_same(experiment, experiment.scheme[0], run)
