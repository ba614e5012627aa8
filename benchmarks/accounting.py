"""Time of Renyi accounting for a long run, as a ratio to dp_accounting measured in the same process.

    python benchmarks/accounting.py --json FILE [--quick]

Every client has another noise in every round, so nothing can be computed once and reused. CPU time of one core is
printed: wall time on a shared machine says little. dp_accounting is timed on a sample of the rounds and extrapolated.
"""

import logging
import os
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from otafl.privacy import ORDERS, rdp_to_eps, total_rdp
from part import part

ROUNDS, CLIENTS = 1000, 100
SAMPLE = 20  # events given to dp_accounting


def measure(quick: bool) -> dict[str, Any]:
    if quick:
        return {"1 rates": _with_rates(1, 50)}
    return {f"{rates} rates": _with_rates(rates, ROUNDS) for rates in (1, CLIENTS)}


def _with_rates(rates: int, rounds: int) -> dict[str, Any]:
    """rates: distinct Poisson rates among the clients."""
    rng = np.random.default_rng(0)
    z = np.exp(rng.uniform(np.log(0.5), np.log(20), (rounds, CLIENTS)))
    rate = np.resize(np.linspace(0.01, 0.05, rates), CLIENTS)

    total_rdp(rate[:1], z[:, :1], exact=False)  # first-call costs of NumPy and BLAS
    start = time.process_time()
    total = total_rdp(rate, z)
    ours = time.process_time() - start
    theirs = _reference_seconds(rate, z, SAMPLE) * z.size

    exact = rdp_to_eps(total_rdp(rate[:1], z[:, :1], exact=True), 1e-5, warn=False).eps[0]
    bound = rdp_to_eps(total, 1e-5, warn=False).eps[0]
    print(f"{rounds} rounds, {CLIENTS} clients, {rates} rates, {len(ORDERS)} orders")
    print(f"otafl          {ours:8.2f} s  ({1e6 * ours / z.size:.2f} us per event)")
    print(f"dp_accounting  {theirs:8.0f} s  ({1e3 * theirs / z.size:.2f} ms per event, from {SAMPLE} events)")
    print(f"ratio          {theirs / ours:8.0f}")
    print(f"eps of client 0: {bound:.6f}, integrated exactly {exact:.6f} (excess {bound / exact - 1:.1e})", flush=True)
    return {"rounds": rounds, "clients": CLIENTS, "orders": len(ORDERS), "cpu_s": ours, "dp_accounting_cpu_s": theirs,
            "ratio": theirs / ours, "excess": float(bound / exact - 1)}  # fmt: skip


def _reference_seconds(rate: np.ndarray, z: np.ndarray, sample: int) -> float:
    """CPU seconds of one event in dp_accounting, all default orders."""
    import dp_accounting

    logging.getLogger("absl").setLevel(logging.ERROR)
    accountant = dp_accounting.rdp.RdpAccountant(ORDERS)
    start = time.process_time()
    for value in z[:sample, 0]:
        accountant.compose(
            dp_accounting.PoissonSampledDpEvent(float(rate[0]), dp_accounting.GaussianDpEvent(float(value)))
        )
    return (time.process_time() - start) / sample


if __name__ == "__main__":
    part(__doc__, measure)
