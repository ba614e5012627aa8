"""A small `otafl.Air` that its tests share, and what its clients reply."""

from typing import Any

import numpy as np

import otafl

SMALL: dict[str, Any] = {
    "site": 4, "num_params": 6, "clip_norm": 1.0, "channel": "cdpb", "rounds": 5, "noise_std": 0.5, "seed": 1,
}  # fmt: skip


def opened(scheme: Any = "constant", **more: Any) -> otafl.Air:
    return otafl.Air(scheme, **{**SMALL, **more})


def message(k: int, size: int = 6) -> np.ndarray:
    return np.random.default_rng([k, 7]).uniform(-0.3, 0.3, size).astype(np.float32)


def replies(r: Any, size: int = 6) -> dict[int, np.ndarray]:
    return {int(k): message(int(k), size) for k in r.asked}
