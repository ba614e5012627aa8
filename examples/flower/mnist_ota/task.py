"""MNIST and a small CNN, as in Flower's PyTorch quickstart. Data: mnist.npz in the folder OTAFL_DATA."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn


class Net(nn.Module):
    """28 x 28 pixels to ten classes, 9,098 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 5, stride=2)
        self.conv2 = nn.Conv2d(8, 16, 5, stride=2)
        self.fc = nn.Linear(16 * 4 * 4, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.conv2(torch.relu(self.conv1(x))))
        return self.fc(x.flatten(1))


def load(part: str, rows: slice) -> tuple[torch.Tensor, torch.Tensor]:
    """Pixels in [0, 1] and labels of some samples of "train" or "test"."""
    with np.load(Path(os.environ["OTAFL_DATA"]) / "mnist.npz") as data:
        x, y = data[f"x_{part}"][rows], data[f"y_{part}"][rows]
    return torch.from_numpy(x[:, None].astype(np.float32) / 255), torch.from_numpy(y.astype(np.int64))


def batches(x: torch.Tensor, y: torch.Tensor, size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    order = torch.randperm(len(y))
    for start in range(0, len(y), size):
        yield x[order[start : start + size]], y[order[start : start + size]]


def train(net: nn.Module, x: torch.Tensor, y: torch.Tensor, epochs: int, lr: float) -> float:
    """Local SGD with momentum 0.9; the mean loss of the last epoch.

    Written out: torch.optim loads PyTorch's compiler, a second of CPU time in every process, and a SuperNode starts
    one for every message.
    """
    leaves = list(net.parameters())
    speeds = [torch.zeros_like(leaf) for leaf in leaves]
    losses: list[float] = []
    for _ in range(epochs):
        losses = []
        for pixels, labels in batches(x, y, 32):
            loss = nn.functional.cross_entropy(net(pixels), labels)
            slopes = torch.autograd.grad(loss, leaves)
            with torch.no_grad():
                for leaf, speed, slope in zip(leaves, speeds, slopes):
                    leaf -= lr * speed.mul_(0.9).add_(slope)
            losses.append(loss.item())
    return float(np.mean(losses))


@torch.no_grad()
def accuracy(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    return float((net(x).argmax(1) == y).float().mean())
