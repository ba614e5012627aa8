"""The federation of `flower_simulation.py`: a module of its own, because Ray's workers must be able to import it."""

import functools
import time

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from torch import nn

from peers import BATCH, Problem, mlp

STEP = 0.1


@functools.cache
def problem(clients: int) -> Problem:
    return Problem((64,), mlp(), clients)


def client_app(clients: int, threads: int) -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(threads)
        own = problem(clients)
        own.model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        own.model.zero_grad()
        x, y = own.batch(int(context.node_config["partition-id"]), BATCH)
        nn.functional.cross_entropy(own.model(x), y).backward()
        nn.utils.clip_grad_norm_(own.model.parameters(), 1.0)
        with torch.no_grad():
            for p in own.model.parameters():
                p -= STEP * p.grad
        told = {"arrays": ArrayRecord(own.model.state_dict()), "metrics": MetricRecord({"num-examples": BATCH})}
        return Message(RecordDict(told), reply_to=message)

    return app


def server_app(clients: int, rounds: int, ends: list[float]) -> ServerApp:
    app, seen = ServerApp(), []

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        if server_round % 10 == 0:
            held = problem(clients)
            held.model.load_state_dict(arrays.to_torch_state_dict())
            held.evaluate()
        ends.append(time.perf_counter())
        first = arrays.to_torch_state_dict()["0.weight"][0]
        if seen and torch.equal(seen[-1], first):
            raise RuntimeError(f"round {server_round} changed nothing: no client has answered")
        seen.append(first)
        return MetricRecord({})

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = FedAvg(
            fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients
        )
        strategy.start(grid, ArrayRecord(mlp().state_dict()), num_rounds=rounds, evaluate_fn=evaluate)

    return app
