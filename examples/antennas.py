"""Does a second antenna leak more? Charges and attacks at M antennas, the tables of docs/antennas.md.

python examples/antennas.py [RUNS]
"""

import sys

import numpy as np

import otafl
from otafl.channels import Channel, draw, receive
from otafl.core.plan import Deployment
from otafl.privacy.antennas import full_charge

SITE = {"task": {"num_params": 200, "clients": 6}, "clients": {"kind": "gradient"}, "noise_std": 0.05}
ROUNDS, SCALE, LOOSE = 10, 0.05, 1e6  # nothing is capped: what a plan costs is what is asked
ANTENNAS = (1, 2, 4, 8)


def charged(antennas: int, beam: str, server: str = "full") -> float:
    """eps of the worst client for one plan: everybody arrives with 1/K of the same scale."""
    return float(otafl.plan(**asked(antennas, beam, server)).rows[0].eps[0])


def measured(antennas: int, beam: str, runs: int) -> float:
    """Lower bound on eps by an attacker who keeps both parts of all antennas; refuses where it passes the charge."""
    found = otafl.audit(runs=runs, **asked(antennas, beam))
    found.check()
    return float(found.schemes[0].measured)


def asked(antennas: int, beam: str, server: str = "full") -> dict:
    array = {"antennas": antennas, "beam": beam, "server": server} if antennas > 1 else {}
    scheme = {"name": "constant", "rx_scale": SCALE, "silence": "bound"}
    return {**SITE, "schemes": [scheme], "channel": array, "rounds": ROUNDS, "seeds": 1, "eps": LOOSE}


def attacks(runs: int) -> list[tuple]:
    """(beam, M, eps if the combined gain were charged, eps charged, eps measured)."""
    rows = []
    for beam in ("fixed", "iterated"):
        for antennas in ANTENNAS:
            if antennas == 1 and beam == "iterated":
                continue
            part = charged(antennas, beam, "combined") if antennas > 1 else charged(1, beam)
            rows.append((beam, antennas, part, charged(antennas, beam), measured(antennas, beam, runs)))
    return rows


def beams_gain(clients: int = 10, draws: int = 200) -> list[tuple]:
    """(M, received power of the weakest over one antenna, mean charge over that of the combined gain)."""
    rows = []
    for antennas in (2, 4, 8, 16):
        channel = Channel(antennas=antennas, beam="iterated")
        site = Deployment(np.ones(clients), 1.0, 1.0, np.full(clients, 1 / clients), 1, receiver=channel.receiver)
        trace, _ = receive(draw(channel, clients, draws, 0), site)
        alone = np.abs(trace.array[..., 0]).min(1)
        cos2 = np.abs(trace.gain) ** 2 / np.sum(np.abs(trace.array) ** 2, -1)
        rows.append((antennas, np.median((np.abs(trace.gain).min(1) / alone) ** 2), np.mean(1 / cos2)))
    return rows


def whose_noise(draws: int = 200, clients: int = 5) -> list[tuple]:
    """(M, 1/z^2 under receiver noise alone, with own noise, with somebody else's noise of the same power)."""
    rng, rows = np.random.default_rng(0), []
    for antennas in (1, 2, 4, 8, 16, 64):
        shape = (draws, clients, antennas)
        h = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)) / np.sqrt(2)
        phase = np.exp(-1j * np.angle(h[..., 0]))  # aligned at the first antenna
        own, other = np.zeros((draws, clients)), np.zeros((draws, clients))
        own[:, 0], other[:, 1] = 3.0, 3.0
        kinds = (0 * own, own, other)
        rows.append((antennas, *(full_charge(h, 0.3 * phase, kind * phase, 1.0, 1.0)[:, 0].mean() for kind in kinds)))
    return rows


def table(head: str, rows: list[tuple]) -> None:
    print(f"| {head} |\n|{'---|' * len(head.split('|'))}")
    for row in rows:
        print("| " + " | ".join(value if isinstance(value, str) else f"{value:.4g}" for value in row) + " |")
    print()


def main(runs: int) -> None:
    table("beam | antennas | ε by the combined gain | ε charged | ε measured, at least", attacks(runs))
    table("antennas | power of the weakest | charge at equal learning noise", beams_gain())
    table("antennas | receiver noise alone | own noise | somebody else's", whose_noise())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
