"""The ServerApp of Flower's PyTorch quickstart, with the air for a strategy. Model and card land in `folder`."""

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

import otafl
from mnist_ota.task import Net, accuracy, load
from otafl.connect.flower import OverTheAir

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Plan and charge all rounds, then train as many as the budget pays for."""
    settings = context.run_config
    torch.manual_seed(0)
    net = Net()
    arrays = ArrayRecord(net.state_dict())
    x, y = load("test", slice(0, 2000))

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        net.load_state_dict(arrays.to_torch_state_dict())
        return MetricRecord({"accuracy": accuracy(net, x, y)})

    strategy = OverTheAir(
        otafl.constant(rx_scale=float(settings["rx-scale"])),
        arrays,
        folder=str(settings["folder"]),
        site=int(settings["devices"]),
        clip_norm=float(settings["clip-norm"]),
        channel="cares",
        noise_std=float(settings["noise-std"]),
        eps=float(settings["eps"]),
        rounds=int(settings["rounds"]),
        seed=int(settings["seed"]),
    )
    strategy.start(
        grid=grid,
        initial_arrays=arrays,
        num_rounds=strategy.affordable_rounds,
        timeout=float(settings["timeout-s"]),
        evaluate_fn=evaluate,
    )
