"""A real Ray cluster on loopback: a head and two nodes as processes; one is killed, and Ctrl-C stops a command."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from otafl.core.errors import InputError
from otafl.runs.remote import check
from otafl.runs.sweep import read
from processes import start_until_checkpoint
from sweeps import LONG, Heard, Here, at_a_checkpoint, content, holds, sweep

ray = pytest.importorskip("ray", reason="Ray is not installed: make test-ray does that in a place of its own")
from ray.cluster_utils import Cluster  # noqa: E402

from otafl.connect.ray import Ray  # noqa: E402

AXES = {"scheme.0.rx_scale": ["0.2", "0.25", "0.3"]}
PATIENCE_S = 30.0  # on a busy machine; seconds otherwise


@pytest.fixture(scope="module")
def cluster():
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, (Path(__file__).parents[2] / "src", Path(__file__).parents[1])))
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    made.add_node(num_cpus=1)
    made.add_node(num_cpus=1)
    yield made
    ray.shutdown()
    made.shutdown()


def workers() -> list[int]:
    """Processes of this user that do Ray's tasks."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if place.read_bytes().startswith(b"ray::"):
                found.append(int(place.parent.name))
        except OSError:
            continue
    return found


def raylet_of(pid: int) -> int:
    """The node's own process that started this worker."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def kill_node(pid: int) -> None:
    """A node dies as when its machine does: its raylet and the worker at once."""
    node = raylet_of(pid)
    os.kill(node, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)


def test_ctrl_c_ends_the_command_in_seconds_and_the_same_command_goes_on(cluster, tmp_path):
    """Exit code 130, no worker left at work, checkpoints kept; begun again, the bytes are those of a local sweep."""
    file, folder = tmp_path / "long.toml", tmp_path / "sweep"
    file.write_text(LONG)
    over = [part for key, values in AXES.items() for part in ("-m", f"{key}={','.join(values)}")]
    executor = ["--executor", f"ray:{cluster.address}"]
    command = [sys.executable, "-m", "otafl.cli", "sweep", str(file), *over, "--out", str(folder), *executor]
    process = start_until_checkpoint(command, folder)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, (out, err)
    assert "the same command goes on from there" in err and "Traceback" not in err
    assert time.monotonic() - began < PATIENCE_S
    kept = sorted(folder.glob("points/*/schemes/*/checkpoints/checkpoint-*"))
    assert kept and not any(holds(pid, point) for pid in workers() for point in folder.glob("points/*"))
    assert not list(folder.glob("points/*/schemes/*/done.json"))  # it was in the middle
    time.sleep(1)
    assert sorted(folder.glob("points/*/schemes/*/checkpoints/checkpoint-*")) == kept  # nobody goes on in secret
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    sweep(file, tmp_path / "here", AXES, Here())
    for point in read(tmp_path / "here"):
        assert content(folder / point["folder"]) == content(tmp_path / "here" / point["folder"])


def test_lost_node_costs_nothing(cluster, tmp_path):
    """Three points on two nodes; a node dies once its point has a checkpoint. The bytes are those of a local sweep."""
    file = tmp_path / "long.toml"
    file.write_text(LONG)
    folder, live, executor = tmp_path / "sweep", Heard(), Ray(cluster.address)
    killed: list[int] = []
    thread = at_a_checkpoint(folder, workers, kill_node, killed)
    try:
        outcomes = sweep(file, folder, AXES, executor, live)
    finally:
        thread.join()
        executor.close()
    assert killed and any("lost" in note for note in live.notes)
    check(outcomes)
    sweep(file, tmp_path / "here", AXES, Here())
    for point in read(tmp_path / "here"):
        assert content(folder / point["folder"]) == content(tmp_path / "here" / point["folder"])


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense", "ray://127.0.0.1:1"])
def test_no_cluster_is_one_clear_line(address):
    with pytest.raises(InputError, match="no Ray cluster"):
        Ray(address)
