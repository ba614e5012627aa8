"""EEZOFL's Figure 3 over what it does not state: the grid and the scale at which a failed round reaches its loss."""

import numpy as np

from otafl.reproductions.claims import fact
from otafl.reproductions.curves import collect
from otafl.reproductions.findings import Grid
from otafl.reproductions.pictures import Line, Panel, Said
from otafl.reproductions.reproduction import Reproduction
from otafl.systems.eezofl.reproduce import final, trained

TENFOLD = 10.0  # how "near" is read
RING_BITS = 109


def scan(job: Reproduction) -> None:
    """The last loss of every seed for each grid and scale, beside where the wrap of the ring puts it."""
    runs, settings = trained(job), job.settings
    schemes, level = collect(runs), float(job.preset.targets["plateau"])
    bits, spread, rows = {}, {}, []
    for name in runs:
        first = job.experiment(*settings["runs"][name]).scheme[0]
        grid, scale = int(getattr(first, "f")), int(getattr(first, "scale_bits"))  # noqa: B009 (a scheme's own keys)
        bits[name] = RING_BITS - (2 * grid + 1 + scale)
        spread[name] = np.concatenate([final(one, name, "cross_entropy") for one in schemes])
        losses = [f"{final(one, name, 'cross_entropy').min():.1e} – {final(one, name, 'cross_entropy').max():.1e}"
                  for one in schemes]  # fmt: skip
        rows.append([f"2^-{grid}", f"2^{scale}", f"{2.0 ** bits[name]:.1e}", *losses, _near(spread[name], level)])
    head = ("grid", "Λ", "wrap q / (2^(2f + 1) Λ)", *(one.label for one in schemes), f"within ten of {level:.0e}")
    fits = [f"{row[0]}, {row[1]}" for row in rows if row[-1] == "all seeds"]
    verdict = fact("the training loss saturates near 10^14 from the first iteration regardless of estimator or channel "
                   "variance", bool(fits), f"for {'; '.join(fits) or 'no setting tried'}", "Section VI, Fig. 3",
                   "for some grid and scale every seed's last loss is within a factor of ten of 1e14")  # fmt: skip
    order = sorted(runs, key=lambda name: bits[name])
    x = [2.0 ** bits[name] for name in order]
    lines = [
        Line(one.label, x, *([float(f"{fold(final(one, name, 'cross_entropy')):.4g}") for name in order]
                             for fold in (np.median, np.min, np.max)))
        for one in schemes
    ]  # fmt: skip
    panel = Panel("last loss, median and range over seeds", "wrap q / (2^(2f + 1) Λ)", "training loss", lines,
                  [Said("", level)], log="xy")  # fmt: skip
    job.publish([Grid("last loss by grid and scale", head, rows)], [verdict], list(settings["notes"]), [panel])


def _near(values: np.ndarray, level: float) -> str:
    good = (values > level / TENFOLD) & (values < level * TENFOLD)
    return "all seeds" if good.all() else "no seed" if not good.any() else f"{good.mean():.0%} of the seeds"
