"""CDPB's claims over the constants that the paper leaves open: shares, and a map."""

from typing import Any

import numpy as np

from otafl.core.arrays import Array
from otafl.reproductions.findings import NOT_STATED, Grid, Record, Verdict, draw
from otafl.reproductions.reproduction import Reproduction
from otafl.systems.cdpb.claims_map import AXES, CLAIMS, Span, claims_map, shares

WAYS = ("printed", "sound")
Maps = dict[tuple[str, str], Array]


def claims(job: Reproduction) -> None:
    """The share of all settings in which each claim holds, as printed and as sound."""
    settings = job.settings
    span = Span(*(tuple(settings["span"][axis]) for axis in AXES))
    found = claims_map(span, settings["rounds"], settings["q"], settings["at_rounds"])
    held, count = shares(found), int(np.prod([len(axis) for axis in span]))
    job.record(records_of(found, span))
    draw(job.folder, "map", 3, 2, lambda axes: paint(found, span, axes))
    rows = [[claim, *(f"{held[claim, how]:.0%}" if how in ways else "–" for how in WAYS)]
            for claim, ways in CLAIMS.items()]  # fmt: skip
    grid = Grid(f"share of {count} settings in which a claim holds", ("figure: claim", "as printed", "as sound"), rows)
    always = {how: sum(share == 1 for (_, way), share in held.items() if way == how) for how in WAYS}
    asked = {how: sum(way == how for _, way in held) for how in WAYS}
    told = "; ".join(f"as {how}: {always[how]} of {asked[how]}" for how in WAYS)
    rule = "every combination of the constants below; a claim holds at one by its rule in cdpb-fig3, 5, 6, 7 and 9"
    verdict = Verdict("claims that hold whatever the constants are", NOT_STATED, told, "", rule)
    notes = [f"{axis}: {', '.join(f'{x:g}' for x in values)}" for axis, values in zip(AXES, span)]
    notes += ["all else as in the other analytic figures; the picture over α and K is map.png"]
    job.publish([grid], [verdict], notes, settings=settings)


def records_of(found: Maps, span: Span) -> list[Record]:
    """One record per setting, with one column per claim and charge."""
    out = []
    for n, setting in enumerate(span.settings()):
        place = np.unravel_index(n, next(iter(found.values())).shape)
        told = {f"{claim} [{how}]": values[place] for (claim, how), values in found.items()}
        out.append({**setting, **{key: None if np.isnan(x) else int(x) for key, x in told.items()}})
    return out


def paint(found: Maps, span: Span, axes: list[Any]) -> None:
    """Two maps, as printed and as sound: claims against (α, K), the share over receiver noise, A and P in colour."""
    grid = axes[0].get_gridspec()
    for one in axes:
        one.remove()
    figure, columns = grid.figure, [(alpha, K) for alpha in span.alpha for K in span.K]
    for row, how in enumerate(WAYS):
        names = [claim for claim, ways in CLAIMS.items() if how in ways]
        shares = np.array([np.nanmean(_whole(found[name, how]), axis=(1, 2, 3)).ravel() for name in names])
        one = figure.add_subplot(grid[row, :])
        one.imshow(shares, vmin=0, vmax=1, cmap="RdYlGn", aspect="auto")
        for (y, x), share in np.ndenumerate(shares):
            one.text(x, y, f"{share:.0%}", ha="center", va="center", fontsize=5)
        one.set_yticks(range(len(names)), names, fontsize=6)
        one.set_xticks(range(len(columns)), [f"{alpha:g}, {K}" for alpha, K in columns], fontsize=6)
        one.set(xlabel="α, K", title=f"share of the settings in which a claim holds, as {how}")
        one.grid(visible=False)


def _whole(values: Array) -> Array:
    """A claim about the next K says nothing of the last one: shown as the one before."""
    last = np.isnan(values[..., -1:]).all()
    return np.concatenate([values[..., :-1], values[..., -2:-1]], -1) if last else values
