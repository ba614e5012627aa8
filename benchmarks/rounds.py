"""Rounds of learning against PyTorch, torch.func and Opacus, each in both arrangements, beside this machine's peak.

    python benchmarks/rounds.py --json FILE [--quick]

The ratio that counts takes the peer's better arrangement, and ours as users run it: one process.
Arithmetic is counted as what a round cannot do without: products of the forward pass, of the weights' gradients and of
the gradients of hidden layers, twice per multiplication; clipping, sampling and noise count nothing.
"""

import importlib.util
import json
import subprocess
import sys
from typing import Any, NamedTuple

from arrangements import HERE, Effort, both
from part import part

EVALUATED_PER_ROUND = 10_000 / 10


class Layer(NamedTuple):
    products: int  # multiplications per sample, forward
    first: bool = False  # no gradient of its input is needed


MLP = (Layer(64 * 128, first=True), Layer(128 * 10))
CNN = (Layer(14 * 14 * 16 * 64, first=True), Layer(5 * 5 * 32 * 16 * 16), Layer(512 * 32), Layer(32 * 10))
SAMPLES = {"mlp": 20 * 64, "cnn": 10 * 60}
PEERS = {
    "mlp": ("torch loop", "torch.func"),
    "mlp per sample": ("Opacus",),
    "mlp per sample, Poisson": ("Opacus, Poisson",),
    "cnn per sample, Poisson": ("Opacus cnn, Poisson",),
}


def flop(case: str) -> float:
    """Floating-point operations of one round of one seed, with its share of an evaluation."""
    kind = case[:3]
    layers = {"mlp": MLP, "cnn": CNN}[kind]
    forward = sum(layer.products for layer in layers)
    backward = forward + sum(layer.products for layer in layers if not layer.first)
    return 2.0 * (SAMPLES[kind] * (forward + backward) + EVALUATED_PER_ROUND * forward)


def peaks(effort: Effort, libraries: tuple[str, ...]) -> dict[str, Any]:
    found = {}
    for library in libraries:
        if importlib.util.find_spec(library):
            found[library] = both([sys.executable, "peak.py", library], effort)
    return found


def poisson_over_fixed() -> dict[str, Any]:
    command = [sys.executable, "engine.py", "mlp per sample, Poisson", "--beside", "mlp per sample"]
    found: dict[str, Any] = json.loads(subprocess.check_output(command, cwd=HERE, text=True))
    print(f"Poisson batches take {found['time_over_other']:.2f} times as long as fixed ones, in turns", flush=True)
    return found


def measure(quick: bool) -> dict[str, Any]:
    effort = Effort(0.2, 1) if quick else Effort()
    peak = peaks(effort, ("numpy",) if quick else ("numpy", "jax", "torch"))
    top = max(each["per_s"] for library in peak.values() for each in library.values())
    print(f"most that large float32 products reach: {top / 1e9:.0f} GFLOP/s", flush=True)
    rounds = {}
    for case, peers in PEERS.items():
        if quick and case != "mlp":
            continue
        ours = both([sys.executable, "engine.py", case], effort)
        rate = ours["one process"]["per_s"]
        rounds[case] = {"flop": flop(case), "ours": ours, "share_of_peak": rate * flop(case) / top, "peers": {}}
        print(f"{case}: {1e3 / rate:.3f} ms per seed and round, {rate * flop(case) / top:.0%} of it", flush=True)
        for peer in peers[: 1 if quick else None]:
            if not importlib.util.find_spec("opacus" if "Opacus" in peer else "torch"):
                print(f"{peer}: not installed")
                continue
            theirs = both([sys.executable, "peers.py", peer], effort)
            ratios = {name: rate / told["per_s"] for name, told in theirs.items()}
            rounds[case]["peers"][peer] = {**theirs, "time_over_ours": ratios, "quoted": min(ratios.values())}
            print(f"  {peer}: " + ", ".join(f"{ratio:.1f} times ours ({name})" for name, ratio in ratios.items()),
                  flush=True)  # fmt: skip
    found = {"peak": peak, "peak_flop_per_s": top, "rounds": rounds}
    return found if quick else found | {"poisson_over_fixed": poisson_over_fixed()}


if __name__ == "__main__":
    part(__doc__, measure)
