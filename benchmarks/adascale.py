"""How long the whole leakage comparison of AdaScale's Figure 1 takes: every method, 5 caps, 3 seeds, 500 rounds.

    python benchmarks/adascale.py --json FILE [--quick]

Tuning in hindsight (the paper's protocol) for all methods, then AdaScale again with V calibrated on simulated traces.
The naive scalar solver is measured in the same run.
"""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from otafl.systems.adascale import variables
from otafl.systems.adascale.design import MNIST, algorithm1, draw, water_level
from otafl.systems.adascale.methods import METHODS, NU_MNIST, leakage_table
from part import part


def timed(function):
    """Result, wall-clock seconds, CPU seconds (the smaller of the two tells more on a busy machine)."""
    wall, busy = time.perf_counter(), time.process_time()
    return function(), time.perf_counter() - wall, time.process_time() - busy


def naive_algorithm1(floors, V, nu, leakage):
    """One round after the other, one scalar root each: what the vectorised solver is compared with."""
    queue, out = 0.0, []
    for floor in floors:
        slope = lambda y, f=floor, q=queue: float(V * leakage.slopes(f + y)[0] + q + y)  # noqa: E731
        excess = 0.0 if slope(0.0) >= 0 else brentq(slope, 0.0, -slope(0.0), xtol=1e-15, rtol=1e-13)
        queue = max(queue + excess - nu, 0.0)
        out.append(excess)
    return np.array(out)


def measure(quick: bool) -> dict[str, Any]:
    deployment, message = MNIST.deployment(), MNIST.message()
    floors = np.stack([variables.noise_floor(draw(MNIST, seed).gain, deployment, message) for seed in range(3)])
    leakage = variables.leakage_of(deployment, message)

    table, hindsight, busy = timed(lambda: leakage_table(methods=("adascale",)) if quick else leakage_table())
    again, calibrated, busy_too = timed(lambda: leakage_table(methods=("adascale", "adascale-warm"), mode="calibrated"))
    print(f"{len(METHODS)} methods, hindsight {hindsight:.2f} s; AdaScale calibrated {calibrated:.2f} s; "
          f"together {hindsight + calibrated:.2f} s wall, {busy + busy_too:.2f} s CPU")  # fmt: skip

    _, filling, _ = timed(lambda: [water_level(floors[0], 0.04) for _ in range(100)])
    print(f"water-filling, T = 500: {10 * filling:.3f} ms")
    naive, slow, _ = timed(lambda: naive_algorithm1(floors[0], 1.7, 0.04, leakage))
    many = np.geomspace(0.17, 17, 15)
    fast_run, fast, _ = timed(lambda: algorithm1(floors[0], many, 0.04, leakage))
    one = algorithm1(floors[0], 1.7, 0.04, leakage).excess
    print(f"Algorithm 1, 15 values of V at once: {fast:.3f} s, {15 * slow / fast:.1f} times the scalar loop; "
          f"largest difference {np.max(np.abs(one - naive)):.1e}; {fast_run.excess.shape[0]} runs")  # fmt: skip

    print(f"\n{'method':22s}" + "".join(f"{f'nu={nu:g}':>12s}" for nu in NU_MNIST) + "   mean eps at delta = 1e-5")
    for records in (table, again):
        for method in dict.fromkeys(r["method"] for r in records):
            rows = [r for r in records if r["method"] == method]
            print(f"{method:22s}" + "".join(f"{r['eps_mean']:12.3f}" for r in rows) + f"   {rows[0]['mode']}")
    return {
        "methods": len({record["method"] for record in table}),
        "wall_s": hindsight + calibrated, "cpu_s": busy + busy_too,
        "water_filling_ms": 10 * filling, "algorithm1_15_s": fast, "scalar_loop_over_ours": 15 * slow / fast,
    }  # fmt: skip


if __name__ == "__main__":
    part(__doc__, measure)
