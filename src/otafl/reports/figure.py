"""A figure that a notebook shows, whether or not somebody has imported pyplot there."""

import io

from matplotlib.figure import Figure


class Shown(Figure):
    """What `run.plot` gives."""

    def _repr_png_(self) -> bytes:
        self.savefig(buffer := io.BytesIO(), format="png", dpi=100)
        return buffer.getvalue()
