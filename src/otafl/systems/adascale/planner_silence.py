"""Who is silent in an AdaScale plan, and what that does to its report: skipped fades and refusing devices."""

from typing import Any

import numpy as np

from otafl.core.arrays import Array
from otafl.systems.adascale import variables
from otafl.systems.adascale.methods import Scene
from otafl.systems.adascale.odometer import Odometer, guard
from otafl.systems.adascale.planner_inputs import Inputs


def sending_devices(noise: np.ndarray, gain: np.ndarray, scene: Scene, inputs: Inputs) -> Array:
    """Who sends in which round, (T, M): nobody in a skipped fade, and no device that refuses."""
    deployment, message = scene.setting.deployment(), scene.setting.message()
    sending = np.broadcast_to((scene.floors[0] <= scene.max_floor)[:, None], gain.shape)
    if inputs.device_rdp is None:
        return sending
    odometer = Odometer.checked(inputs.device_rdp, inputs.alpha if inputs.device_order is None else inputs.device_order)
    scale = np.sqrt(variables.receive_scaling(noise, deployment))[:, None]
    tx = np.where(sending, scale * deployment.weights / gain, 0)
    return sending & guard(odometer, tx, gain, deployment, message)[0]


def count_silence(report: dict[str, Any], noise: np.ndarray, sending: np.ndarray, scene: Scene) -> None:
    """Into the report: who was silent, and the planned method's row as it was really sent."""
    report["rounds"]["sending"] = sending.sum(1)
    report["rounds"]["R"] = np.where(sending, scene.leakage.per_device(noise), 0.0).sum(1)
    report["rounds"]["sigma"] = np.where(sending, report["rounds"]["sigma"], np.inf)
    row = next(row for row in report["comparison"] if row["method"] == report["method"])
    totals = report["totals"]
    row["ratio_to_optimal"] *= totals["rdp_mean"] / row["rdp_mean"]
    row |= {key: totals[key] for key in ("rdp_mean", "rdp_worst", "eps_rdp_mean", "eps_rdp_worst")}
    skipped = scene.floors[0] > scene.max_floor
    refused = ~sending & ~skipped[:, None]
    totals |= {
        "rounds_skipped": int(skipped.sum()),
        "refusals": refused.sum(0),
        "mean_f_sent": scene.floors[0][sending.any(1)].mean() if sending.any() else np.nan,
    }
    if refused.any():
        report["warnings"].append(
            f"devices refuse {refused.mean():.1%} of their rounds: the sum then lacks their share, unweighted"
        )
