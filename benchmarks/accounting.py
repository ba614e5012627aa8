"""Time of Renyi accounting for a long run, as a ratio to dp_accounting measured in the same process.

    python benchmarks/accounting.py [--rounds 1000] [--clients 100] [--rates 1]

Every client has another noise in every round, so nothing can be computed once and reused. CPU time of one core is
printed: wall time on a shared machine says little. dp_accounting is timed on a sample of the rounds and extrapolated.
"""

import argparse
import logging
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from otafl.privacy import ORDERS, rdp_to_eps, total_rdp


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rates", type=int, default=1, help="distinct Poisson rates among the clients")
    parser.add_argument("--sample", type=int, default=20, help="rounds given to dp_accounting")
    options = parser.parse_args()

    rng = np.random.default_rng(0)
    z = np.exp(rng.uniform(np.log(0.5), np.log(20), (options.rounds, options.clients)))
    rate = np.resize(np.linspace(0.01, 0.05, options.rates), options.clients)

    total_rdp(rate[:1], z[:, :1], exact=False)  # first-call costs of NumPy and BLAS
    start = time.process_time()
    total = total_rdp(rate, z)
    ours = time.process_time() - start
    theirs = _reference_seconds(rate, z, options.sample) * z.size

    exact = rdp_to_eps(total_rdp(rate[:1], z[:, :1], exact=True), 1e-5, warn=False).eps[0]
    bound = rdp_to_eps(total, 1e-5, warn=False).eps[0]
    print(f"{options.rounds} rounds, {options.clients} clients, {options.rates} rates, {len(ORDERS)} orders")
    print(f"otafl          {ours:8.2f} s  ({1e6 * ours / z.size:.2f} us per event)")
    print(f"dp_accounting  {theirs:8.0f} s  ({1e3 * theirs / z.size:.2f} ms per event, from {options.sample} events)")
    print(f"ratio          {theirs / ours:8.0f}")
    print(f"eps of client 0: {bound:.6f}, integrated exactly {exact:.6f} (excess {bound / exact - 1:.1e})")


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
    main()
