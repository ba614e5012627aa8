"""Print-quality plots of a report's data: PNG to look at, PDF to put into a paper."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from otafl.report.tables import numbers


def draw(data: dict[str, Any], folder: Path) -> list[Path]:
    return []
