"""Worker: the same rounds as `engine.py` in PyTorch, as papers' authors write them: a loop, torch.func, Opacus.

    python benchmarks/peers.py "torch loop" | "torch.func" | "Opacus" | "Opacus, Poisson" | "Opacus cnn, Poisson"

A unit is a round of one seed: every client's batch, clipped and averaged, noise added, one step; 10,000 test images
every 10 rounds included. Only for the benchmark's own environment (torch 2.13.0 CPU, Opacus).
"""

import sys
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from arrangements import serve, threads

CLIENTS, BATCH, SAMPLES, HELD_OUT = 20, 64, 60_000, 10_000


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=3), nn.Tanh(), nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2), nn.Tanh(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(512, 32), nn.Tanh(), nn.Linear(32, 10),
    )  # fmt: skip


def stretch(round_: Callable[[], None], evaluate: Callable[[], None], rounds: int = 10) -> Callable[[], float]:
    """So many rounds and an evaluation."""

    def work() -> float:
        for _ in range(rounds):
            round_()
        evaluate()
        return float(rounds)

    return work


class Problem:
    def __init__(self, shape: tuple[int, ...], model: nn.Module, clients: int):
        rng = np.random.default_rng(0)
        self.x = torch.from_numpy(rng.standard_normal((SAMPLES, *shape), np.float32))
        self.y = torch.from_numpy(rng.integers(0, 10, SAMPLES))
        self.rows = np.array_split(rng.permutation(SAMPLES), clients)
        self.model, self.clients, self.rng = model, clients, rng

    def batch(self, k: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        index = torch.from_numpy(self.rng.choice(self.rows[k], size, replace=False))
        return self.x[index], self.y[index]

    def poisson(self, k: int, rate: float) -> tuple[torch.Tensor, torch.Tensor]:
        index = torch.from_numpy(self.rows[k][self.rng.random(len(self.rows[k])) < rate])
        return self.x[index], self.y[index]

    @torch.no_grad()
    def evaluate(self) -> None:
        (self.model(self.x[:HELD_OUT]).argmax(1) == self.y[:HELD_OUT]).float().mean()

    @torch.no_grad()
    def step(self, total: list[torch.Tensor]) -> None:
        for p, g in zip(self.model.parameters(), total):
            p -= 0.1 * (g + 0.01 * torch.randn_like(g))


def loop_over_clients() -> Callable[[], float]:
    problem = Problem((64,), mlp(), CLIENTS)
    loss = nn.CrossEntropyLoss()

    def round_() -> None:
        total = [torch.zeros_like(p) for p in problem.model.parameters()]
        for k in range(CLIENTS):
            problem.model.zero_grad()
            x, y = problem.batch(k, BATCH)
            loss(problem.model(x), y).backward()
            scale = 1 / max(1.0, float(nn.utils.get_total_norm([p.grad for p in problem.model.parameters()])))
            for sum_, p in zip(total, problem.model.parameters()):
                sum_ += scale / CLIENTS * p.grad
        problem.step(total)

    return stretch(round_, problem.evaluate)


def vmapped() -> Callable[[], float]:
    problem = Problem((64,), mlp(), CLIENTS)
    names = [n for n, _ in problem.model.named_parameters()]

    def loss(params: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(torch.func.functional_call(problem.model, params, (x,)), y)

    gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))

    def round_() -> None:
        batches = [problem.batch(k, BATCH) for k in range(CLIENTS)]
        x, y = torch.stack([b[0] for b in batches]), torch.stack([b[1] for b in batches])
        found = gradients({n: p.detach() for n, p in problem.model.named_parameters()}, x, y)
        norm = torch.sqrt(sum((g.reshape(CLIENTS, -1) ** 2).sum(1) for g in found.values()))
        weight = torch.clamp(1 / norm, max=1.0) / CLIENTS
        problem.step([torch.einsum("k,k...->...", weight, found[n]) for n in names])

    return stretch(round_, problem.evaluate)


def opacus(shape: tuple[int, ...], model: nn.Module, clients: int, batch: int, poisson: bool) -> Callable[[], float]:
    from opacus.grad_sample import GradSampleModule

    problem = Problem(shape, model, clients)
    wrapped = GradSampleModule(model, loss_reduction="sum")
    loss = nn.CrossEntropyLoss(reduction="sum")

    def round_() -> None:
        total = [torch.zeros_like(p) for p in wrapped.parameters()]
        for k in range(clients):
            wrapped.zero_grad(set_to_none=True)
            x, y = problem.poisson(k, batch / len(problem.rows[k])) if poisson else problem.batch(k, batch)
            loss(wrapped(x), y).backward()
            norm = torch.sqrt(sum((p.grad_sample.reshape(len(x), -1) ** 2).sum(1) for p in wrapped.parameters()))
            weight = torch.clamp(1 / norm, max=1.0) / batch / clients
            for sum_, p in zip(total, wrapped.parameters()):
                sum_ += torch.einsum("b,b...->...", weight, p.grad_sample)
        problem.step(total)

    return stretch(round_, problem.evaluate)


CASES: dict[str, Callable[[], Callable[[], float]]] = {
    "torch loop": loop_over_clients,
    "torch.func": vmapped,
    "Opacus": lambda: opacus((64,), mlp(), CLIENTS, BATCH, poisson=False),
    "Opacus, Poisson": lambda: opacus((64,), mlp(), CLIENTS, BATCH, poisson=True),
    "Opacus cnn, Poisson": lambda: opacus((1, 28, 28), cnn(), 10, 60, poisson=True),
}


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(threads())
    serve(CASES[sys.argv[1]]())


if __name__ == "__main__":
    main()
