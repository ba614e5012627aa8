"""FedAvg with Gaussian noise calibrates itself: there is nothing to choose."""

from typing import Any

from otafl.systems.simulated import Options


def settings(*site: Any) -> Options:
    """No options: `noise_std` follows from the experiment's target."""
    return {}
