"""Speed of the bias-variance solvers, as ratios measured in this very run.

    python benchmarks/biasvar.py --json FILE [--quick]

Prints one line per case, CPU seconds of one process (other work on the machine then matters little).
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from otafl.systems.biasvar.design import Radio, params_from_rho, solve_exact
from otafl.systems.biasvar.sca import solve_sca
from otafl.systems.biasvar.tradeoff import frontier
from part import part


def site(devices: int, seed: int = 0) -> Radio:
    """Uniform in a disc of 1750 m, path loss 50 + 22 log10(r) dB, 113 dB between E_s and N_0."""
    radius = np.maximum(1750 * np.sqrt(np.random.default_rng(seed).random(devices)), 10)
    return Radio(10 ** (-(50 + 22 * np.log10(radius)) / 10), 1e-9, 10**-20.3, 814_090)


def best_of(repeats: int, call: Callable[[], Any], loop: int = 1) -> tuple[float, Any]:
    """Least CPU time of one call and the last result; the first call only warms up."""
    call()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        for _ in range(loop):
            result = call()
        times.append((time.process_time() - start) / loop)
    return min(times), result


def against_sca(devices: int, rho: float) -> dict[str, Any]:
    radio, par = site(devices), params_from_rho(rho, 10.0)
    exact_s, exact = best_of(5, lambda: solve_exact(radio, par), loop=20)
    sca_s, sca = best_of(5, lambda: solve_sca(radio, par))
    return {
        "case": f"exact against SCA, N={devices}, rho={rho}",
        "exact_ms": 1e3 * exact_s,
        "sca_ms": 1e3 * sca_s,
        "ratio": sca_s / exact_s,
        "sca_gap": sca.normal_objective / exact.normal_objective - 1,
        "sca_status": sca.status,
        "kkt_residual": exact.kkt_residual,
    }


def large(devices: int) -> dict[str, Any]:
    radio, par = site(devices), params_from_rho(1.0, 10.0)
    seconds, design = best_of(1, lambda: solve_exact(radio, par))
    return {
        "case": f"exact, N={devices}",
        "seconds": seconds,
        "steps": design.iterations,
        "kkt_residual": design.kkt_residual,
    }


def whole_frontier(devices: int, points: int) -> dict[str, Any]:
    radio, par, rhos = site(devices), params_from_rho(1.0, 10.0), np.geomspace(1e-3, 1e3, points)
    together_s, line = best_of(3, lambda: frontier(radio, par, rhos))
    one_by_one_s, _ = best_of(1, lambda: [solve_exact(radio, params_from_rho(rho, 10.0)) for rho in rhos])
    return {
        "case": f"frontier, N={devices}, {points} points",
        "seconds": together_s,
        "ratio_to_one_by_one": one_by_one_s / together_s,
        "worst_kkt_residual": float(line.kkt_residual.max()),
    }


def measure(quick: bool) -> dict[str, Any]:
    cases = [against_sca(10, rho) for rho in ((1.0,) if quick else (0.1, 1.0, 10.0))]
    if not quick:
        cases += [against_sca(100, 1.0), large(1000), large(100_000), whole_frontier(100, 50)]
    for case in cases:
        print(json.dumps({key: round(v, 12) if isinstance(v, float) and v > 1e-6 else v for key, v in case.items()}))
    return {case.pop("case"): case for case in cases}


if __name__ == "__main__":
    part(__doc__, measure)
