"""Three ways to the same federation: Flower, a loop of one's own, and otafl's engine.

The engine trains an experiment whose messages are updates (reply minus model) and whose server adds what it receives,
as a strategy does. The same clients, as a Flower ClientApp, train from what they are sent. Same seed: the same model to
1e-6 and the same ledger bytes.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from grids import LocalGrid

import otafl
from otafl import clients as client_kinds
from otafl.connect.flower import OverTheAir, clip_mod
from otafl.core.messages import draw
from otafl.core.streams import Seed
from otafl.runs import build, execution, runner
from otafl.runs.schema import load

pytestmark = pytest.mark.flower
SEED, DEVICES, ROUNDS = 3, 5, 5
EXPERIMENT = """
rounds = 5
seeds = [3]
evaluate_every = 5
channel = "cares"

[task]
data = { name = "digits", train_size = 120 }
clients = 5
partition = { kind = "dirichlet", alpha = 1.0 }
model = { name = "logistic" }

[radio]
noise_std = 0.05

[clients]
kind = "gradient"
clip_norm = 0.2
batch = 8

[privacy]
eps = 5000.0

[[scheme]]
name = "constant"
rx_scale = 0.4
"""


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    """The experiment, with updates for messages and a server that adds them."""
    config, gradient = client_kinds.KINDS["gradient"]

    def updates(*args):
        made = gradient(*args)

        def messages(*inputs):
            slope, left_out = made.messages(*inputs)
            return jax.tree.map(jnp.negative, slope), left_out

        return made._replace(messages=messages)

    place = tmp_path_factory.mktemp("engine")
    (place / "job.toml").write_text(EXPERIMENT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(client_kinds.KINDS, "gradient", (config, updates))
        patch.setattr(build, "optimizer_of", lambda *_: optax.identity())
        patch.setattr(execution, "with_numbers", lambda state, server: state)
        patch.setattr("otafl.reports.write_report", lambda runs, out_file=None: [])
        found = load(place / "job.toml")
        runner.start(found, place / "run")
        task = build.build_task(found)
        clients = build.build_scheme(found, found.scheme[0], task).clients
        yield found, task, clients, place / "run" / "schemes" / "constant"


def initial(task):
    return jax.tree.map(np.asarray, task.model.init(jax.random.fold_in(jax.random.key(jnp.uint32(SEED)), Seed.INIT)))


def all_updates(found, task, clients, params, number: int):
    """Every client's message of a round, leaves (K, ...)."""
    seed = jax.tree.map(lambda leaf: leaf[0], build.seeds_of(found, task))
    key, _ = jax.random.split(jax.random.fold_in(seed.key, number))
    drawn = draw(clients, seed, key, "vmap")
    ids = jnp.arange(DEVICES, dtype=jnp.int32)
    return clients.messages(params, task.data, seed, drawn.rest, ids, jnp.int32(number))[0]


def own(sent, device: int):
    return jax.tree.map(lambda leaf: np.asarray(leaf[device]), sent)


def settings(found, task):
    return dict(
        site=DEVICES, clip_norm=0.2, channel="cares", noise_std=0.05, eps=5000.0, rounds=ROUNDS, seed=SEED,
        sizes=[int(size) for size in task.partitions[0].sizes],
    )  # fmt: skip


def flat(tree) -> np.ndarray:
    return np.concatenate([np.ravel(np.asarray(leaf)) for leaf in jax.tree.leaves(tree)])


@pytest.fixture(scope="module")
def by_engine(experiment):
    place = experiment[-1]
    with np.load(place / "model.npz") as found:
        return {name: found[name] for name in found}, (place / f"ledger-{SEED}.bin").read_bytes()


@pytest.fixture(scope="module")
def by_loop(experiment):
    found, task, clients, _ = experiment
    params = initial(task)
    air = otafl.Air(otafl.constant(rx_scale=0.4), num_params=flat(params).size, **settings(found, task))
    for r in air:
        sent = all_updates(found, task, clients, params, r.number)
        answer = r.send({int(k): own(sent, int(k)) for k in r.asked})
        params = jax.tree.map(np.add, params, answer)
    return params, air.ledger_bytes()


@pytest.fixture(scope="module")
def by_flower(experiment, tmp_path_factory):
    found, task, clients, _ = experiment
    leaves, tree = jax.tree.flatten(initial(task))
    app = ClientApp(mods=[clip_mod])

    @app.train()
    def train(message: Message, context) -> Message:
        params = jax.tree.unflatten(tree, message.content["arrays"].to_numpy_ndarrays())
        number = message.content["config"]["server-round"] - 1
        sent = all_updates(found, task, clients, params, number)
        own = context.node_config["partition-id"]
        trained = [np.asarray(leaf + new[own]) for leaf, new in zip(jax.tree.leaves(params), jax.tree.leaves(sent))]
        return Message(RecordDict({"arrays": ArrayRecord(trained)}), reply_to=message)

    folder, arrays = tmp_path_factory.mktemp("flower"), ArrayRecord(leaves)
    strategy = OverTheAir(otafl.constant(rx_scale=0.4), arrays, folder, **settings(found, task))
    result = strategy.start(LocalGrid(app, DEVICES), arrays, num_rounds=strategy.affordable_rounds)
    trained = jax.tree.unflatten(tree, result.arrays.to_numpy_ndarrays())
    return trained, (folder / "ledger.bin").read_bytes()


def test_loop_gives_the_engines_model(by_loop, by_engine):
    np.testing.assert_allclose(flat(by_loop[0]), flat_engine(by_engine[0], by_loop[0]), atol=1e-6, rtol=0)


def test_flower_gives_the_engines_model(by_flower, by_engine):
    np.testing.assert_allclose(flat(by_flower[0]), flat_engine(by_engine[0], by_flower[0]), atol=1e-6, rtol=0)


def test_messages_mattered(by_engine, by_flower, experiment):
    """Updates, not only the common noise, are in the sum: without messages the model is another."""
    found, task, _, _ = experiment
    air = otafl.Air(otafl.constant(rx_scale=0.4), num_params=flat(by_flower[0]).size, **settings(found, task))
    noise = sum(flat(r.send({})) for r in air)
    assert np.abs(flat(by_flower[0]) - flat(initial(task)) - noise).max() > 1e-2


def test_ledgers_are_the_same_bytes(by_engine, by_loop, by_flower):
    assert by_engine[1] == by_loop[1] == by_flower[1]


def flat_engine(saved, like) -> np.ndarray:
    """The engine's model file, one seed, as a vector in the order of a pytree."""
    return np.concatenate([np.ravel(saved[name]) for name in sorted(saved)])
