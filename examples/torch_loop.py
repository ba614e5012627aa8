"""A training loop of your own, in PyTorch: messages are lists of gradients, and come back as tensors.

python examples/torch_loop.py        # needs torch
"""

import torch

import otafl

torch.manual_seed(0)
x = torch.randn(10, 64, 8)  # ten devices
y = (x[..., 0] + x[..., 1] ** 2 > 0.5).float()
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=1.0)


def update_of(k: int) -> list[torch.Tensor]:
    net.zero_grad()
    torch.nn.functional.binary_cross_entropy_with_logits(net(x[k])[:, 0], y[k]).backward()
    return [p.grad.clone() for p in net.parameters()]


air = otafl.Air(
    otafl.fedavg_dp(), site=10, like=list(net.parameters()), clip_norm=1.0, channel="cares", eps=20.0, rounds=60,
    seed=0,
)  # fmt: skip
for r in air:
    received = r.send({k: update_of(k) for k in r.asked})
    for p, gradient in zip(net.parameters(), received):
        p.grad = gradient
    optimizer.step()
accuracy = float(((net(x)[..., 0] > 0) == (y > 0)).float().mean())
print(air.card)
print(f"{air.rounds_charged} rounds, eps = {air.eps:.3f}, accuracy {accuracy:.3f}")
