"""One device's encryption against TenSEAL's, both with their own randomness, in both arrangements.

    python benchmarks/encryption.py --json FILE [--quick]
    python benchmarks/encryption.py --worker ours | TenSEAL --ring 4096 | 8192

TenSEAL encodes one scalar and encrypts it under one public key: the same ring work as one of our encryptions. Ours
takes ten devices at a time, as a round does; TenSEAL has no batch and takes them one after the other, on as many
threads as it was given. A unit is an encryption.
"""

import argparse
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

from arrangements import Effort, both, serve, threads
from part import part

DEVICES = 10
RINGS = {4096: [36, 36, 37], 8192: [43, 43, 44, 44, 44]}  # n: bits of TenSEAL's primes, 109 and 218 together


def ours(n: int) -> Callable[[], float]:
    import numpy as np

    from otafl.crypto import randomness, scaling, xmkckks
    from otafl.crypto import ring as rings
    from otafl.crypto.parameters import Parameters

    p, source = Parameters({4096: rings.RING_4096, 8192: rings.RING_8192}[n]), randomness.OperatingSystem()
    agreed, key = xmkckks.setup(p, source), randomness.uniform(source, p.ring)
    messages = scaling.encode(p, np.full((DEVICES, 1), 0.5), p.f + p.scale_bits)

    def work() -> float:
        xmkckks.encrypt_batch(agreed, key, xmkckks.ephemeral(p, source, DEVICES), messages)
        return float(DEVICES)

    return work


def tenseal(n: int) -> Callable[[], float]:
    import tenseal as library

    kind = library.SCHEME_TYPE.CKKS
    context = library.context(kind, n, coeff_mod_bit_sizes=RINGS[n], n_threads=threads())
    context.global_scale = 2.0**30

    def work() -> float:
        for _ in range(DEVICES):
            library.ckks_vector(context, [0.5])
        return float(DEVICES)

    return work


def measure(quick: bool) -> dict[str, Any]:
    effort = Effort(0.1, 1) if quick else Effort(1.0, 3)
    found: dict[str, Any] = {}
    for n in list(RINGS)[: 1 if quick else None]:
        command = [sys.executable, "encryption.py", "--ring", str(n), "--worker"]
        mine = both([*command, "ours"], effort)
        rate = mine["one process"]["per_s"]
        found[str(n)] = {"ours": mine}
        print(f"n={n}: {1e3 / rate:.3f} ms per device", flush=True)
        if importlib.util.find_spec("tenseal"):
            theirs = both([*command, "TenSEAL"], effort)
            ratios = {name: rate / told["per_s"] for name, told in theirs.items()}
            found[str(n)]["TenSEAL"] = {**theirs, "time_over_ours": ratios, "quoted": min(ratios.values())}
            print(f"  TenSEAL: {ratios}", flush=True)
    return found


if __name__ == "__main__":
    worker = argparse.ArgumentParser(add_help=False)
    worker.add_argument("--worker", choices=["ours", "TenSEAL"])
    worker.add_argument("--ring", type=int)
    asked, _ = worker.parse_known_args()
    if asked.worker:
        serve({"ours": ours, "TenSEAL": tenseal}[asked.worker](asked.ring))
    else:
        part(__doc__, measure)
