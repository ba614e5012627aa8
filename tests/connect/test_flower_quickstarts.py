"""Flower's own quickstart apps, their models and training loops as they are: another strategy, one mod line."""

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from grids import LocalGrid

import otafl
from otafl.connect.flower import OverTheAir, clip_mod
from otafl.core.errors import InputError

pytestmark = pytest.mark.flower
DEVICES = 3
SITE = dict(site=DEVICES, clip_norm=2.0, channel="cares", noise_std=1e-4, eps=1e9, rounds=4, max_energy=1e6, seed=1)


def run(app: ClientApp, arrays: ArrayRecord, folder, **more) -> ArrayRecord:
    strategy = OverTheAir(otafl.constant(rx_scale=0.3), arrays, folder, **SITE, **more)
    return strategy.start(LocalGrid(app, DEVICES), arrays, num_rounds=strategy.affordable_rounds).arrays


def images(partition: int) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of three channels that a small network can tell apart."""
    rng = np.random.default_rng(partition)
    y = rng.integers(0, 10, 64)
    x = rng.standard_normal((64, 3, 32, 32)).astype(np.float32)
    x[np.arange(64), :, y, :] += 4
    return x, y


@pytest.fixture
def torch():
    found = pytest.importorskip("torch", reason="PyTorch is not installed")
    found.set_num_threads(1)
    return found


def cnn(torch, norm=False):
    """The network of quickstart-pytorch; with batch norm if asked."""
    nn = torch.nn
    middle = [nn.BatchNorm2d(16)] if norm else []
    return nn.Sequential(
        nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Conv2d(6, 16, 5), *middle, nn.ReLU(), nn.MaxPool2d(2, 2),
        nn.Flatten(), nn.Linear(16 * 5 * 5, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def torch_app(torch, norm=False) -> ClientApp:
    app = ClientApp(mods=[clip_mod])

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        model = cnn(torch, norm)
        model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
        x, y = images(context.node_config["partition-id"])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        model.train()
        for _ in range(5):
            optimizer.zero_grad()
            loss = torch.nn.CrossEntropyLoss()(model(torch.from_numpy(x)), torch.from_numpy(y))
            loss.backward()
            optimizer.step()
        metrics = MetricRecord({"train_loss": loss.item(), "num-examples": len(y)})
        content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
        return Message(content=content, reply_to=msg)

    return app


def loss_of(torch, arrays: ArrayRecord) -> float:
    model = cnn(torch)
    model.load_state_dict(arrays.to_torch_state_dict())
    x, y = images(0)
    with torch.no_grad():
        return torch.nn.CrossEntropyLoss()(model(torch.from_numpy(x)), torch.from_numpy(y)).item()


def test_pytorch(torch, tmp_path):
    torch.manual_seed(0)
    start = ArrayRecord(cnn(torch).state_dict())
    assert loss_of(torch, run(torch_app(torch), start, tmp_path)) < 0.9 * loss_of(torch, start)


def test_pytorch_with_batch_norm_is_refused_by_name(torch, tmp_path):
    with pytest.raises(InputError, match="running_mean"):
        run(torch_app(torch, norm=True), ArrayRecord(cnn(torch, norm=True).state_dict()), tmp_path)


def test_pytorch_with_batch_norm_excluded(torch, tmp_path):
    start = ArrayRecord(cnn(torch, norm=True).state_dict())
    end = run(torch_app(torch, norm=True), start, tmp_path, exclude=["*.running_*", "*.num_batches_tracked"])
    assert np.array_equal(end["4.running_mean"].numpy(), np.zeros(16))
    assert not np.array_equal(end["0.weight"].numpy(), start["0.weight"].numpy())


def lines(partition: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(partition)
    x = rng.standard_normal((50, 3)).astype(np.float32)
    return x, x @ np.array([1.0, -2.0, 0.5], np.float32)


def test_jax(tmp_path):
    """quickstart-jax: a linear regression, its parameters a list of arrays."""
    import jax
    import jax.numpy as jnp

    app = ClientApp(mods=[clip_mod])
    slope = jax.grad(lambda p, x, y: jnp.mean((x @ p["w"] + p["b"] - y) ** 2))

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        weights = msg.content["arrays"].to_numpy_ndarrays()
        params = {"b": jnp.asarray(weights[0]), "w": jnp.asarray(weights[1])}
        x, y = lines(context.node_config["partition-id"])
        for _ in range(10):
            params = jax.tree.map(lambda p, g: p - 0.05 * g, params, slope(params, x, y))
        trained = ArrayRecord([np.asarray(params["b"]), np.asarray(params["w"])])
        return Message(RecordDict({"arrays": trained, "metrics": MetricRecord({"num-examples": 50})}), reply_to=msg)

    end = run(app, ArrayRecord([np.zeros((), np.float32), np.zeros(3, np.float32)]), tmp_path)
    np.testing.assert_allclose(end["1"].numpy(), [1.0, -2.0, 0.5], atol=0.1)


def test_numpy(tmp_path):
    """quickstart-numpy: float64 arrays, to which every node adds noise of its own."""
    app = ClientApp(mods=[clip_mod])

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        arrays = msg.content["arrays"].to_numpy_ndarrays()
        trained = ArrayRecord([array + 0.25 for array in arrays])
        return Message(RecordDict({"arrays": trained, "metrics": MetricRecord({"num-examples": 1})}), reply_to=msg)

    end = run(app, ArrayRecord([np.zeros((2, 2)), np.ones(3)]), tmp_path)
    assert end["0"].numpy().dtype == np.float64
    np.testing.assert_allclose(end["1"].numpy(), 2.0, atol=0.01)
