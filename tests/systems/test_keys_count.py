"""Every key of every planning file changes the answer, or is refused, or the answer says why it does not."""

from pathlib import Path
from typing import Any

import pytest

from otafl.core.errors import Infeasible, InputError
from otafl.core.files import parse
from otafl.systems import planning

LOCAL = {"local_steps": 3, "constants": "tight", "local_step_size": 0.1}
RECORDS = {"granularity": "record", "silence": "bound", "batch_sizes": [5, 5, 5]}
GAINS = [[1.0, 2.0, 1.5]] * 4
PAIR = {"rho": 0.02, "tau": 100}

FILES: dict[str, dict[str, Any]] = {
    "cares": {
        "sizes": [20, 30, 50], "channel_scale": [0.5, 0.7, 1.0], "noise_std": 0.05, "num_params": 1000,
        "loss_gap": 2.3, "eps_target": 50.0, "delta": 1e-5, "arms": [0.1, 0.2, 0.3],
    },
    "adascale": {
        "nu": 0.04, "M": 3, "T": 6, "d": 1000, "n": 600, "B": 6.0, "G": 1.0, "P_max_w": 0.2, "noise_power_w": 1e-12,
        "pld": False, "compare": ["optimal"],
    },
    "cdpb": {"K": 50, "d": 2, "sigma2": 0.5, "sz2": 0.1, "gbar": 0.1, "tau_cap": 200},
    "biasvar": {
        "snr_db": [3.0, -2.0, 10.0], "d": 1000, "G": 10.0, "eta": 0.1, "rho": 0.3, "frontier_points": 2,
    },
    "eezofl": {"ring": "4096", "tau": 0.01, "smudging_bits": 40.0, "devices": {"count": 10}},
    "liu-simeone": {
        "num_clients": 3, "rounds": 4, "noise_std": 0.1, "max_energy": 1.0, "eps": 3.0,
    },
    "seif": {
        "num_clients": 3, "rounds": 4, "noise_std": 0.1, "max_energy": 1.0, "eps": 3.0, "num_params": 100,
    },
    "orthogonal": {"num_params": 100, "snr": [10.0, 5.0]},
}  # fmt: skip

OTHER: dict[str, dict[str, Any]] = {  # another value of a key, or (value, what else the file then says)
    "cares": {
        "weights": [0.3, 0.3, 0.4], "num_clients": 4, "sizes": [30, 30, 40], "channel_scale": [0.4, 0.7, 1.0],
        "devices": "none.csv", "noise_std": 0.06, "max_power": 0.5, "clip_norm": 2.0, "step_size": 0.05,
        "smoothness": 0.5, "grad_var": 2.0, "loss_gap": 3.0, "num_classes": 9,
        "zero_output_init": (True, {"loss_gap": None, "num_classes": 9}),
        "num_params": 99, "eps_target": 40.0, "delta": 1e-4, "max_asymmetry": 1e-3, "max_dropped": 1e-3,
        "conv_target": 1e4, "arms": [0.1, 0.2], "num_arms": 7, "eta_min": 0.05, "rounds": 7,
        "rx_scale": (0.2, {"rounds": 7}), "predictable": True, "constants": "tight", "accounting": "gaussian",
        "granularity": ("record", {**RECORDS, "granularity": "client"}), "batch_size": 5,
        "silence": ("bound", {"batch_size": 5}),
        "batch_sizes": [5, 5, 5], "gain_error_max": 0.1, "certify_with": ("limits", {"num_pilots": 9}),
        "mu_low": [0.4, 0.6, 0.9], "mu_high": [0.6, 0.8, 1.1], "num_pilots": 9, "failure_prob": 0.1,
        "independent_channels": True, "independent_batches": True,
        "reward_data": "private_noisy", "reward_noise": 0.5,
        "diagnostic": (True, {"conv_target": 1e-3}),
        "local_steps": (4, LOCAL), "local_step_size": (0.2, LOCAL), "example_smoothness": 1.0, "antennas": 2,
        "exposure": 2.0,
    },
    "adascale": {
        "method": "equal-alloc", "compare": ["equal-alloc"], "nu": 0.05, "gamma": 3.0, "loss_gap": 2.0, "L": 2.0,
        "learning_rate": 0.1, "A1": 1.0, "A2": 1.0, "C1": 1.0, "C2": 1.0, "alpha": 4, "delta": 1e-4,
        "tuning": "hindsight", "V": 1.0, "max_floor": 0.5, "device_rdp": 0.1,
        "device_order": (9, {"device_rdp": 300.0}), "hard_budget": True, "M": 4, "T": 7, "d": 999, "n": 700, "B": 7.0,
        "q": 0.02, "G": 2.0, "P_max_w": 0.1, "P_max_dbm": 20.0, "noise_power_w": 2e-12, "noise_power_dbm": -80.0,
        "privacy_noise_power_w": 5e-13, "privacy_noise_power_dbm": -100.0, "bandwidth_hz": 1e8, "seed": 1,
        "distances_m": [20.0, 30.0, 40.0], "path_loss_db": [70.0, 80.0, 90.0], "PL": [1e7, 1e8, 1e9],
        "h": [[1e-5, 2e-5, 3e-5]] * 6, "rms": [1e-5, 2e-5, 3e-5], "devices": "none.csv", "gains": "none.csv",
        "pld": True,
    },
    "cdpb": {
        "K": 11, "d": 3, "W": 0.5, "P": 2.0, "sigma2": 0.6, "devices": "none.csv", "sz2": 0.2, "A": 5.0, "G": 2.0,
        "mu": 2.0, "a": 9.0, "M": 3.0, "L": 2, "D0": 3.0, "alpha": 3.0, "lam1": 2.0, "lam2": 1e-3, "gbar": 1.0,
        "ebar": 30.0, "rho": 0.02, "u": 0.02, "tau": 99, "capped": (False, PAIR), "strategy": "noisy", "portion": 0.5,
        "accounting": "none", "adjacency": ("replace", {"accounting": "paper", **PAIR}),
        "trust_receiver_noise": (False, {"accounting": "paper", **PAIR}),
        "assume_hidden": (True, {"accounting": "hidden"}), "tau_cap": 150, "bound": "full", "delta": 1e-4,
        "best_portion": True, "seed": 1,
    },
    "biasvar": {
        "N": 4, "devices": "none.csv", "gains": [1e-11, 1e-12, 1e-10], "distances_m": [100.0, 200.0, 300.0],
        "snr_db": [4.0, -2.0, 10.0], "path_loss": {"kind": "adascale"}, "weighting": [0.2, 0.3, 0.5], "E_s": 2.0,
        "power_dbm": (3.0, {"bandwidth_hz": 1e6}), "bandwidth_hz": 1e6, "N0": 3.0, "noise_dbm_per_hz": -170.0, "d": 999,
        "G": 9.0, "eta": 0.2, "L": 5.0, "kappa": 1.0, "rho": 0.4, "sigma2": 3.0, "noise_factor": 1.0,
        "strict": (True, {"L": 50.0}), "solver": "sca", "rounds": (9, {"gap0": 2.0, "rounds": 8}),
        "gap0": (2.0, {"rounds": 9}), "delta": (1e-5, {"rounds": 9}), "adjacency": "zero-out", "trusted_noise": 0.3,
        "frontier_points": 3, "frontier_rho": (0.1, 1.0),
    },
    "eezofl": {
        "mode": "hybrid", "ring": "8192", "custom_ring": {"n": 64, "primes": [257]}, "smudging_bits": 30.0,
        "sigma_phi": 3.2, "h_floor": 0.5, "f": 10, "Lambda_log2": (61, {"f": 10}), "tau": 0.02, "snr_db_max": 300.0,
        "Mmax": 9.0, "P": 4, "guard": False, "short_shares": True, "sigma_e": 4.0,
        "sigma_w": (2.0, {"mode": "digital"}), "secret": "ternary", "bandwidth_hz": 1e6, "rounds": 9,
        "allow_insecure": (True, {"sigma_e": 2.0}), "devices": {"count": 9},
        "convergence": {"d": 9, "eta0": 0.1, "gamma0": 0.1, "L_f": 1.0, "L_g": 1.0, "b": 1.0, "gap": 1.0},
    },
    "liu-simeone": {"conditioning": 0.2, "budget": "paper"},
    "seif": {"num_params": 99, "multiplier": 3.0},
    "orthogonal": {
        "num_params": 99, "bits": 7, "snr": [9.0, 5.0], "gain": [1.0, 2.0], "max_energy": 2.0, "noise_std": 0.2,
        "bandwidth_hz": 1e6, "rounds": 9,
    },
}  # fmt: skip
RIVALS = {
    "num_clients": 4, "weights": [0.2, 0.3, 0.5], "clip_norm": 2.0, "sensitivity": 1.0, "noise_std": 0.2,
    "trusted_share": 0.5, "max_energy": 2.0, "gain": GAINS, "rms_gain": (2.0, {"gain": GAINS}),
    "seed": (1, {"gain": GAINS}), "rounds": 5, "eps": 4.0, "delta": 1e-4,
}  # fmt: skip
OTHER["liu-simeone"] |= RIVALS
OTHER["seif"] |= RIVALS
KEYS = [(system, key) for system, keys in OTHER.items() for key in keys]


def answer(system: str, file: dict[str, Any]) -> dict[str, Any]:
    """A plan, or why there is none."""
    planner = planning.load(system)
    stated = {key: value for key, value in file.items() if value is not None}
    try:
        return planning.design(system, parse(planner.inputs, stated, "f.toml"), Path("f.toml"))
    except Infeasible as refusal:
        return {"infeasible": str(refusal), "report": refusal.report}
    except InputError as refusal:
        return {"refused": str(refusal)}


@pytest.mark.parametrize("system", FILES)
def test_every_key_is_tried(system: str) -> None:
    assert set(OTHER[system]) == set(planning.load(system).inputs.model_fields)


@pytest.mark.parametrize(("system", "key"), KEYS)
def test_a_key_counts_or_is_said_not_to(system: str, key: str) -> None:
    other = OTHER[system][key]
    value, beside = other if isinstance(other, tuple) and isinstance(other[1], dict) else (other, {})
    before = answer(system, FILES[system] | beside)
    after = answer(system, FILES[system] | beside | {key: value})
    assert ("refused" in before) == (key == "allow_insecure")
    if after.get(key) == value:  # it repeats the file: that alone is no effect
        before, after = ({name: entry for name, entry in one.items() if name != key} for one in (before, after))
    assert before != after


@pytest.mark.parametrize(
    ("system", "key", "place"),
    [
        ("cares", "num_arms", "arms = 'auto'"),
        ("cares", "num_pilots", "certify_with = 'limits'"),
        ("cares", "failure_prob", "num_pilots"),
        ("adascale", "A2", "loss_gap"),
        ("biasvar", "trusted_noise", "delta"),
        ("biasvar", "bandwidth_hz", "power_dbm"),
    ],
)
def test_a_key_that_nothing_reads_is_named(system: str, key: str, place: str) -> None:
    report = answer(system, FILES[system] | {key: OTHER[system][key]})
    assert any(said.startswith(f"{key} has no effect: it belongs to {place}") for said in report["warnings"])
