"""What the air costs a Flower server per round, beside Flower's own FedAvg aggregation of the same replies, in one run.

Replies of 10 and 100 nodes with a million parameters, already in this process. FedAvg: its `aggregate_train`. Air.send:
norms, sum, and the files that make a restart cost no privacy; the noise was drawn while the devices computed, and is
counted apart. Whole round: `OverTheAir.aggregate_train`, which reads the replies, sends them, keeps model and record.
Nobody is silent and nobody is clipped: the dearest case.
"""

import gc
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity

import otafl
from otafl.connect.flower import OverTheAir, num_params
from otafl.runs.air.round import Round
from part import part

SHAPES = ((1000, 784), (1000,), (200, 1000), (200,), (74, 200), (74,))  # 1,000,074 numbers, as an MLP has them
REPEATS = 7
SEND = Round.send


class NoGrid:
    """The nodes are here already."""

    def __init__(self, nodes: int):
        self.ids = list(range(nodes))

    def get_node_ids(self) -> list[int]:
        return self.ids


def model(seed: int, spread: float) -> ArrayRecord:
    rng = np.random.default_rng(seed)
    return ArrayRecord([spread * rng.standard_normal(shape, np.float32) for shape in SHAPES])


def replies(nodes: int, round_: int) -> list[Message]:
    """Every node's trained model, as a message that answers one of this round."""
    out = []
    for node in range(nodes):
        asked = Message(RecordDict(), dst_node_id=node, message_type=MessageType.TRAIN, group_id=str(round_))
        metrics = MetricRecord({"num-examples": 10})
        out.append(Message(RecordDict({"arrays": model(node, 1e-4), "metrics": metrics}), reply_to=asked))
    return out


class Clock:
    """Seconds of the wall and of all cores together: the second does not care who else is on the machine."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def __call__(self, action: Callable[[], Any]) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        answer = action()
        self.wall.append(time.perf_counter() - wall)
        self.cpu.append(time.process_time() - cpu)
        return answer

    def over(self, other: "Clock") -> str:
        """This beside another: medians without the first round, which compiles."""
        (wall, cpu), (other_wall, other_cpu) = self.typical, other.typical
        return f"{1e3 * wall:.0f} ms (x {wall / other_wall:.2f}), CPU {1e3 * cpu:.1f} ms (x {cpu / other_cpu:.2f})"

    @property
    def typical(self) -> tuple[float, float]:
        return statistics.median(self.wall[1:]), statistics.median(self.cpu[1:])


def compare(nodes: int, seed: int | None) -> dict[str, Any]:
    arrays = model(0, 0.0)
    plain, drawing, sending, whole = Clock(), Clock(), Clock(), Clock()
    Round.send = lambda self, updates: sending(lambda: SEND(self, updates))  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        air = OverTheAir(
            otafl.constant(rx_scale=0.3), arrays, folder, site=nodes, clip_norm=1.0, channel="cares", noise_std=1e-9,
            max_energy=1e9, rounds=REPEATS + 1, seed=seed,
        )  # fmt: skip
        air.nodes.node_of = {node: node for node in range(nodes)}
        air.nodes.device_of = dict(air.nodes.node_of)
        fedavg = FedAvg()
        for round_ in range(1, REPEATS + 2):
            came = replies(nodes, round_)
            gc.collect()
            plain(lambda: fedavg.aggregate_train(round_, came))  # noqa: B023
            air.configure_train(round_, arrays, ConfigRecord(), NoGrid(nodes))  # type: ignore[arg-type]
            air._round._noise[1].result()  # drawn while devices compute; here they have
            drawing(lambda: air.air._medium.draw(air._round._link, SHAPES, round_))  # noqa: B023
            gc.collect()
            whole(lambda: air.aggregate_train(round_, came))  # noqa: B023
    kind = "noise from a seed" if seed is not None else "noise of the system"
    wall, cpu = plain.typical
    both = sending.typical[1] + drawing.typical[1]
    print(f"{nodes:4d} nodes, {num_params(arrays):,} parameters, {kind}: FedAvg {1e3 * wall:.0f} ms, "
          f"CPU {1e3 * cpu:.1f} ms; Air.send {sending.over(plain)}; with its noise CPU x {both / cpu:.2f}; "
          f"whole round {whole.over(plain)}", flush=True)  # fmt: skip
    return {
        "nodes": nodes, "noise": kind, "fedavg_wall_s": wall, "fedavg_cpu_s": cpu,
        **{f"{name}_{unit}_over_fedavg": mine / base
           for name, clock in (("send", sending), ("round", whole))
           for unit, mine, base in zip(("wall", "cpu"), clock.typical, (wall, cpu))},
        "send_and_noise_cpu_over_fedavg": both / cpu,
    }  # fmt: skip


def measure(quick: bool) -> dict[str, Any]:
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1  # this process plays the ServerApp
    sizes = (2,) if quick else (10, 100)
    return {f"{nodes} nodes, {seed}": compare(nodes, seed) for nodes in sizes for seed in (0, None)}


if __name__ == "__main__":
    part(__doc__, measure)
