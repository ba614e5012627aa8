"""Frames of results as people read them: four digits however small a number is, and no guarantee rounded down."""

import shutil
from typing import TYPE_CHECKING, Any

import numpy as np

from otafl.privacy.card_text import round_up

if TYPE_CHECKING:
    import pandas as pd

NONE = "–"


def as_text(frame: "pd.DataFrame") -> str:
    """For a terminal.

    >>> import pandas as pd
    >>> print(as_text(pd.DataFrame({"eps": [7.99991], "energy": [1.234567e-9]}, index=["a"])))
      eps    energy
    a   8 1.235e-09
    """
    return str(frame.to_string(line_width=shutil.get_terminal_size((120, 24)).columns, **_forms(frame)))


def as_html(frame: "pd.DataFrame") -> str:
    """For a notebook."""
    return str(frame.to_html(**_forms(frame)))


def _forms(frame: "pd.DataFrame") -> dict[str, Any]:
    promised = {name: _above for name in ("eps", "mu", "tpr_at_1pct", "least_eps") if name in frame}
    return {"float_format": "{:.4g}".format, "formatters": promised, "na_rep": NONE}


def _above(value: Any) -> str:
    return NONE if value is None or np.isnan(value) else round_up(value)
