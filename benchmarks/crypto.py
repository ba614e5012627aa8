"""Encryption, shares and whole encrypted rounds, and python-flint; `encryption.py` has the comparison with TenSEAL.

    python benchmarks/crypto.py              both parameter sets
    python benchmarks/crypto.py --device     only what needs jax and numpy (a bare machine with an accelerator)

Times are wall time per device in ms, the least of several repetitions; "CPU" is the mean process time of all threads,
which a busy machine disturbs less.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from otafl.crypto import budget, modes, overair, randomness, realchannel, round_sum, scaling, xmkckks
from otafl.crypto import ring as rings
from otafl.crypto.parameters import Parameters

SETS = {"4096/109": rings.RING_4096, "8192/218": rings.RING_8192}
ROUND_DEVICES = 10
OURS = "encryption with OS randomness, host arrays"


def least(call: Callable[[], Any], seconds: float) -> tuple[float, float]:
    """(least wall, mean CPU) of at least 3 calls within about `seconds`, in ms. The first call compiles."""
    call()
    start, cpu, walls = time.perf_counter(), time.process_time(), []
    while len(walls) < 3 or time.perf_counter() - start < seconds:
        before = time.perf_counter()
        call()
        walls.append(time.perf_counter() - before)
    return min(walls) * 1e3, (time.process_time() - cpu) / len(walls) * 1e3


def check_exact(ring: rings.Ring) -> None:
    """A product on this device against Python's big integers: a fast wrong answer is worth nothing."""
    x, y = randomness.uniform(randomness.OperatingSystem(), ring, (2,))
    with jax.enable_x64(True):
        product = jax.jit(rings.multiply, static_argnums=0)(ring, x, y)
    exact = realchannel.integer_product(rings.integers(ring, x), rings.integers(ring, y))
    if rings.integers(ring, product) != realchannel.reduced(ring, exact):
        raise SystemExit(f"n={ring.n}: wrong product on {jax.devices()[0]}")
    print(f"n={ring.n}: product equals big integers, coefficient by coefficient")


def row(report: list[dict[str, Any]], what: str, size: str, batch: int, timing: tuple[float, float]) -> None:
    wall, cpu = (t / batch for t in timing)
    report.append({"what": what, "set": size, "batch": batch, "wall_ms": wall, "cpu_ms": cpu})
    print(f"{what:42s} {size:9s} batch {batch:4d}   {wall:9.4f} ms/device   CPU {cpu:9.4f}", flush=True)


def ready(compiled: Callable[..., Any], *arrays: Any) -> None:
    jax.block_until_ready(rings.in_chunks(compiled, *arrays))


def ours(report: list[dict[str, Any]], size: str, ring: rings.Ring, seconds: float, batches: tuple[int, ...]) -> None:
    p = Parameters(ring)
    source = randomness.OperatingSystem()
    agreed = xmkckks.setup(p, source)
    key = randomness.uniform(source, ring)
    key_hat = xmkckks.to_ntt(ring, key)
    compiled = jax.jit(xmkckks.encrypt, static_argnums=0)
    product = jax.jit(
        lambda x, y_hat: rings.over_devices(
            lambda v: rings.untransform(ring, rings.pointwise(ring, rings.transform(ring, v), y_hat)), x
        )
    )
    for batch in batches:
        messages = scaling.encode(p, np.full((batch, 1), 0.5), p.f + p.scale_bits)
        draw = xmkckks.ephemeral(p, source, batch)
        with jax.enable_x64(True):
            held = jax.device_put((agreed.a_hat, key_hat, *draw, scaling.spread(p, messages)))
            uniform = jax.device_put(randomness.uniform(source, ring, (batch,)))
            shared, own = held[:2], held[2:]
            times = partial(lambda y_hat, x: product(x, y_hat), shared[1])
            encrypt = partial(compiled, ring, *shared)
            timing = least(partial(ready, times, uniform), seconds)
            row(report, "product, one factor transformed", size, batch, timing)
            row(report, "encryption, arithmetic only", size, batch, least(partial(ready, encrypt, *own), seconds))

        def whole(batch: int = batch, messages: np.ndarray = messages) -> None:
            xmkckks.encrypt_batch(agreed, key, xmkckks.ephemeral(p, source, batch), messages)

        row(report, OURS, size, batch, least(whole, seconds))
        keys = [xmkckks.keygen(agreed, source)[0] for _ in range(batch)]
        flood = partial(randomness.flooding, [source] * batch, ring, p.sigma_phi)
        row(report, "share noise alone, OS randomness", size, batch, least(flood, seconds))
        share = partial(xmkckks.share_batch, agreed, keys, key)
        row(report, "share with noise derived from key and c1", size, batch, least(share, seconds))


def rounds(report: list[dict[str, Any]], size: str, ring: rings.Ring, seconds: float) -> None:
    """A whole round of ten devices: keys, ciphertexts, shares, decoding; operating-system randomness throughout."""
    p, rng, N = Parameters(ring), np.random.default_rng(0), ROUND_DEVICES
    channel = budget.fading(np.ones(N), 2 * np.ones(N))
    clients = overair.gather_clients(xmkckks.setup(p), N)
    h = scaling.quantise_channel(rng.normal(1, 1, N), p.f).h
    counter = iter(range(10**9))

    def play() -> None:
        overair.run_round(clients, rng.normal(size=(N, 1)), h, channel, rng, round=next(counter))

    row(report, f"round of {N} devices, per-device path", size, 1, least(play, seconds))
    source = randomness.OperatingSystem()
    weights = scaling.grid_weights(ring, h, p.f)
    compiled = jax.jit(round_sum.fused_round, static_argnums=0)
    draws = round_sum.Draws(
        *xmkckks.ephemeral(p, source, N),
        randomness.flooding([source] * N, ring, p.sigma_phi),
        *(modes.receiver_noise(p, rng) for _ in modes.PHASES),
    )
    keys = round_sum.Keys(
        clients[0].agreed.a_hat,
        np.stack([client.public.b for client in clients]),
        xmkckks.secret_polynomial(p, source, (N,)),
    )
    with jax.enable_x64(True):
        held = jax.device_put((keys, draws, np.zeros((ring.limbs, ring.n), np.uint32), weights))
        row(report, f"round of {N} devices, fused arithmetic", size, 1,
            least(lambda: jax.block_until_ready(compiled(ring, *held)), seconds))  # fmt: skip


def flint_rows(report: list[dict[str, Any]], size: str, ring: rings.Ring, seconds: float) -> None:
    try:
        import flint
    except ImportError:
        print("python-flint is not installed: skipped")
        return
    context = flint.fmpz_mod_poly_ctx(flint.fmpz_mod_ctx(ring.q))
    modulus = context([1] + [0] * (ring.n - 1) + [1])
    source = randomness.OperatingSystem()
    a, b = (context(rings.integers(ring, randomness.uniform(source, ring))) for _ in range(2))
    v, e0, e1 = (context([int(x) for x in part]) for part in (
        randomness.ternary(source, (ring.n,)), *randomness.gaussian(source, 3.2, (2, ring.n))))  # fmt: skip
    row(report, "python-flint product mod X^n+1", size, 1, least(lambda: a * b % modulus, seconds))
    row(report, "python-flint encryption, arithmetic only", size, 1,
        least(lambda: (v * b % modulus + e0, v * a % modulus + e1), seconds))  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", action="store_true", help="only parts that need jax and numpy alone")
    parser.add_argument("--quick", action="store_true", help="smallest sizes: does everything run?")
    parser.add_argument("--json", help="write the rows here too")
    options = parser.parse_args()
    seconds = 0.01 if options.quick else 0.5  # spent on each row
    print(f"jax {jax.__version__} on {jax.devices()[0]}")
    report: list[dict[str, Any]] = []
    for size, ring in SETS.items():
        check_exact(ring)
        ours(report, size, ring, seconds, (1, 10, 100) if options.device else (10,))
        if not options.device:
            flint_rows(report, size, ring, seconds)
        rounds(report, size, ring, seconds)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"jax": jax.__version__, "device": str(jax.devices()[0]), "rows": report}, file, indent=2)


if __name__ == "__main__":
    main()
