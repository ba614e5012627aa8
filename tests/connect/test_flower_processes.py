"""A real federation: SuperLink, SuperNodes, ServerApp and ClientApps as processes on loopback, a CNN on real MNIST.

One node is killed in the third round; in a second federation the ServerApp is killed, and started again. What must
hold whatever happens: the ledger is that of the plan.
"""

import importlib.util
import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

import otafl

pytestmark = [pytest.mark.flower, pytest.mark.slow]
pytest.importorskip("torch", reason="PyTorch is not installed")

ROOT = Path(__file__).parents[2]
APP = ROOT / "examples" / "flower"
MINUTES = 60.0
SITE = dict(clip_norm=2.0, channel="cares", noise_std=0.012, eps=5000.0, seed=0)


def load_federation():
    spec = importlib.util.spec_from_file_location("federation", APP / "federation.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["federation"] = module
    spec.loader.exec_module(module)
    return module


federation = load_federation()


def charged(folder: Path) -> int:
    """Rounds entered so far, as the air has written them down."""
    place = folder / "state.json"
    return json.loads(place.read_text())["charged"] if place.exists() else 0


def wait_for_round(number: int, folder: Path, run, patience_s: float) -> None:
    reached = lambda: charged(folder) >= number or run.poll() is not None  # noqa: E731
    federation.wait_until(reached, patience_s, f"round {number} does not begin")
    assert charged(folder) == number


def wait_for_end(run) -> None:
    federation.wait_until(lambda: run.poll() is not None, 8 * MINUTES, "the run does not end")


def processes_of(home: Path, name: str = "") -> list[int]:
    """Processes of one federation, known by its FLWR_HOME, perhaps only those with a name."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            ours = f"FLWR_HOME={home}".encode() in (entry / "environ").read_bytes().split(b"\0")
            if ours and name.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def planned_ledger(devices: int, rounds: int) -> bytes:
    """The charges of the plan: who sent what is no part of them."""
    air = otafl.Air(otafl.constant(rx_scale=0.3), site=devices, num_params=5994, rounds=rounds, **SITE)
    for r in air:
        r.send({})
    return air.ledger_bytes()


def start(place, folder: Path, rounds: int, name: str = "run"):
    config = f"devices={place.nodes} rounds={rounds} eps=5000.0 samples=100 timeout-s=90.0 folder='{folder}'"
    return place.run(APP, config, name)


@pytest.fixture(scope="module")
def lost_node(tmp_path_factory, request):
    """Ten nodes, five rounds; device 9 dies as the third round begins."""
    if not os.environ.get("OTAFL_DATA"):
        pytest.skip("OTAFL_DATA is not set to a folder with mnist.npz")
    place, folder = tmp_path_factory.mktemp("federation"), tmp_path_factory.mktemp("run")
    with federation.Federation(10, place) as running:
        run = start(running, folder, rounds=5)
        wait_for_round(3, folder, run, 6 * MINUTES)
        running.end("node-9", how=signal.SIGKILL)
        wait_for_end(run)
        assert (folder / "card.md").exists(), running.log("run")
    return place, folder


def test_all_rounds_are_run(lost_node):
    assert len(json.loads((lost_node[1] / "rounds.json").read_text())) == 5


def test_killed_node_is_reported_missing(lost_node):
    rounds = json.loads((lost_node[1] / "rounds.json").read_text())
    assert [9 in row.get("missing", []) for row in rounds] == [False, False, *(9 in row["asked"] for row in rounds[2:])]


def test_ledger_is_that_of_the_plan(lost_node):
    assert (lost_node[1] / "ledger.bin").read_bytes() == planned_ledger(10, 5)


def test_model_has_learned(lost_node):
    """Chance is 10 %; what is received is far noisier than one device's update."""
    import torch

    sys.path.insert(0, str(APP))
    try:
        from mnist_ota.task import Net, accuracy, load
    finally:
        sys.path.remove(str(APP))
    net = Net()
    with np.load(lost_node[1] / "model.npz") as found:
        state = {name: torch.from_numpy(found[f"leaf{n}"]) for n, name in enumerate(found["names"].tolist())}
    net.load_state_dict(state)
    assert accuracy(net, *load("test", slice(0, 1000))) > 0.3


def test_no_process_is_left(lost_node):
    federation.wait_until(lambda: not processes_of(lost_node[0] / "home"), 20, "processes are left")


def test_killed_server_goes_on_at_no_cost(tmp_path):
    if not os.environ.get("OTAFL_DATA"):
        pytest.skip("OTAFL_DATA is not set to a folder with mnist.npz")
    folder = tmp_path / "run"
    with federation.Federation(3, tmp_path) as running:
        first = start(running, folder, rounds=3)
        wait_for_round(2, folder, first, 4 * MINUTES)
        (server,) = processes_of(tmp_path / "home", "flwr-serverapp")
        os.kill(server, signal.SIGKILL)
        wait_for_end(start(running, folder, rounds=3, name="again"))
        assert (folder / "card.md").exists(), running.log("again")
    assert (folder / "ledger.bin").read_bytes() == planned_ledger(3, 3)
    assert [row.get("lost", 0) for row in json.loads((folder / "rounds.json").read_text())] == [0, 0, 0]
