"""From rays to a trace file: ten devices in Munich, traced with Sionna RT, written for otafl.

    pip install "otafl[rt]"          # no TensorFlow, no PyTorch; on a CPU it needs LLVM: 19 works, 15 aborts
    DRJIT_LIBLLVM_PATH=/usr/lib/x86_64-linux-gnu/libLLVM.so.19.1 python examples/sionna_munich.py --out examples/munich
    otafl run examples/munich/experiment.toml

Devices stand at random places on the ground within 150 m of a base station on a roof and walk at 1 m/s. Paths are
traced once, up to four interactions, one of them perhaps a diffraction; walking turns the phase of each path by its own
Doppler shift.

A device that no ray reaches (inside a house, most often) has a gain of exactly zero in every round: it is reported, and
`without_path` in the deployment file says what becomes of it.
"""

import argparse
from pathlib import Path

import numpy as np

from otafl.channels import TraceFile, to_db, write_trace

BASE_M = (8.5, 21.0, 27.0)  # on a roof near the middle of the scene
RADIUS_M, DEVICE_HEIGHT_M, SPEED_M_S = 150.0, 1.5, 1.0
CARRIER_HZ, ROUND_S = 3.5e9, 0.02


def walkers(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions and velocities, (count, 3): uniform over the disc, in any direction."""
    rng = np.random.default_rng(seed)
    radius, angle, heading = RADIUS_M * np.sqrt(rng.random(count)), *(2 * np.pi * rng.random((2, count)))
    height = np.full(count, DEVICE_HEIGHT_M)
    place = np.stack([BASE_M[0] + radius * np.cos(angle), BASE_M[1] + radius * np.sin(angle), height], axis=1)
    return place, SPEED_M_S * np.stack([np.cos(heading), np.sin(heading), np.zeros(count)], axis=1)


def gains(place_m: np.ndarray, velocity_m_s: np.ndarray, rounds: int) -> np.ndarray:
    """Complex gains (rounds, devices) at the carrier; devices transmit, the base station receives."""
    import sionna.rt as rt

    scene = rt.load_scene(rt.scene.munich)
    scene.frequency = CARRIER_HZ
    scene.tx_array = scene.rx_array = rt.PlanarArray(num_rows=1, num_cols=1, pattern="iso", polarization="V")
    scene.add(rt.Receiver("base", position=list(BASE_M)))
    for number, (where, velocity) in enumerate(zip(place_m.tolist(), velocity_m_s.tolist()), 1):
        scene.add(rt.Transmitter(f"device-{number}", position=where, velocity=velocity))
    paths = rt.PathSolver()(
        scene, max_depth=4, refraction=False, diffraction=True, edge_diffraction=True, samples_per_src=10**6, seed=1
    )
    response = paths.cfr(
        frequencies=np.zeros(1, np.float32), sampling_frequency=1 / ROUND_S, num_time_steps=rounds,
        normalize_delays=False, out_type="numpy",
    )  # fmt: skip
    return np.asarray(response[0, 0, :, 0, :, 0]).T


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--devices", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="of the places")
    options = parser.parse_args()
    place, velocity = walkers(options.devices, options.seed)
    trace = TraceFile(
        gains(place, velocity, options.rounds).astype(np.complex128),
        names=tuple(f"device-{number}" for number in range(1, options.devices + 1)),
    )
    write_trace(options.out / "trace.npz", trace)
    heard = np.mean(np.abs(trace.gain) ** 2, axis=0)
    rows = ["name,x_m,y_m,gain_db"]
    for name, (x, y, _), gone, power in zip(trace.devices, place, trace.without_path, heard):
        told = "no path" if gone else f"{float(to_db(power)):.1f}"
        rows.append(f"{name},{x:.1f},{y:.1f},{told}")
        print(f"{name:10} at ({x:7.1f}, {y:7.1f}) m   {told:>7}{'' if gone else ' dB'}")
    (options.out / "places.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
