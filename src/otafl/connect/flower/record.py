"""One round as it is remembered: numbers for Flower's metrics, words for the report.

Who was silent, SNR and energies are known to a simulation alone and covered by no guarantee: do not publish them.
"""

import math
from typing import Any

import numpy as np
from flwr.app import MetricRecord

from otafl.connect.flower.folder import Row
from otafl.runs.air.replies import OF_CONTENT, Fault


def row_of(current: Any, air: Any) -> Row:
    """The record of a round that was answered."""
    snr = float(current.snr)
    row: Row = {
        "asked": current.asked.tolist(),
        "silent": current.silent.tolist(),
        "eps": float(current.eps),
        **mu_of(air),
        "snr-db": 10 * math.log10(snr) if snr > 0 else -math.inf,
        "energy-j": current.energy.tolist(),
        "faults": [str(fault) for fault in _told(current.faults, air.settings.seed is not None)],
    }
    for fault in current.faults:
        row.setdefault(fault.kind.replace(" ", "-"), []).append(int(fault.client))
    return {**row, **({"failed": 1} if current.failed else {})}


def _told(faults: list[Fault], simulated: bool) -> list[Fault]:
    """Without a seed, as in the air's own folder, no numbers of a message before it was clipped."""
    return [one if simulated or one.kind not in OF_CONTENT else one._replace(detail="") for one in faults]


def mu_of(air: Any) -> Row:
    """mu of Gaussian differential privacy, worst client; none where units are sampled: it says nothing there."""
    from otafl.privacy.attack import attack_success

    sampled = np.any(np.asarray(air.job.message.rate) < 1)
    mu = None if sampled else attack_success(air.ledger).mu
    return {} if mu is None else {"mu": float(mu)}


def metrics_of(row: Row) -> MetricRecord:
    """A round's numbers as Flower keeps them; text stays in the report."""
    told = (item for item in row.items() if item[0] not in ("faults", "evaluated"))
    numbers = {name: value for name, value in told if value is not None}
    return MetricRecord({name: float(value) if isinstance(value, str) else value for name, value in numbers.items()})
