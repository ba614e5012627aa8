"""CDPB's claims over the constants that the paper leaves open: shares, and a map."""

from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from otafl.core.arrays import Array
from otafl.reproductions.findings import NOT_STATED, Grid, Record, Verdict, draw, publish, write_records
from otafl.reproductions.pictures import Panel, line
from otafl.runs.comparing.tune import settings_of
from otafl.runs.presets import Preset
from otafl.runs.progress import Reporter
from otafl.systems.cdpb.claims_map import AXES, CLAIMS, Span, claims_map, shares

RULE = "holds at a setting as its rule in cdpb-fig3, 5, 6, 7 and 9 says, with the settings of this preset"
Maps = dict[tuple[str, str], Array]


def claims(path: Path, preset: Preset, folder: Path, overrides: list[str], quick: bool, reporter: Reporter,
           console: Console) -> None:  # fmt: skip
    """The share of all settings in which each claim holds, as printed and as sound."""
    settings = settings_of(path, overrides)
    span = Span(*(tuple(settings["span"][axis]) for axis in AXES))
    found = claims_map(span, settings["rounds"], settings["q"], settings["at_rounds"])
    held, count = shares(found), int(np.prod([len(axis) for axis in span]))
    write_records(folder, "records", records_of(found, span))
    draw(folder, "map", 4, -(-len(found) // 4), lambda axes: paint(found, span, axes))
    rows = [[claim, *(f"{held[claim, how]:.0%}" if how in ways else "–" for how in ("printed", "sound"))]
            for claim, ways in CLAIMS.items()]  # fmt: skip
    grid = Grid(f"share of {count} settings in which a claim holds", ("figure: claim", "as printed", "as sound"), rows)
    verdicts = [
        Verdict(claim, NOT_STATED, " ".join(f"{how}: {held[claim, how]:.0%}" for how in ways), "", RULE)
        for claim, ways in CLAIMS.items()
    ]
    by_alpha = [Panel(f"share of settings, {how}", "Renyi order α", "share of settings in which the claim holds",
                      [line(claim, span.alpha, [np.nanmean(found[claim, how], axis=(1, 2, 3, 4))])
                       for claim, ways in CLAIMS.items() if how in ways], log="x")
                for how in ("printed", "sound")]  # fmt: skip
    notes = [f"{axis}: {', '.join(f'{x:g}' for x in values)}" for axis, values in zip(AXES, span)]
    notes += ["all else as in the other analytic figures; the map of every claim over α and K is map.png"]
    publish(folder, preset, [grid], verdicts, notes, console, by_alpha, settings=settings)


def records_of(found: Maps, span: Span) -> list[Record]:
    """One record per setting, with one column per claim and charge."""
    out = []
    for n, setting in enumerate(span.settings()):
        place = np.unravel_index(n, next(iter(found.values())).shape)
        told = {f"{claim} [{how}]": values[place] for (claim, how), values in found.items()}
        out.append({**setting, **{key: None if np.isnan(x) else int(x) for key, x in told.items()}})
    return out


def paint(found: Maps, span: Span, axes: list[Any]) -> None:
    """Every claim over alpha and K: the share of receiver noises, A and P for which it holds."""
    for one, ((claim, how), values) in zip(axes, found.items()):
        share = np.nanmean(values[..., :-1] if np.isnan(values[..., -1]).all() else values, axis=(1, 2, 3))
        one.imshow(share, vmin=0, vmax=1, cmap="RdYlGn", aspect="auto", origin="lower")
        for (row, column), value in np.ndenumerate(share):
            one.text(column, row, f"{value:.0%}", ha="center", va="center", fontsize=7)
        one.set_title(f"{claim} ({how})", fontsize=6)
        one.set_xticks(range(share.shape[1]), [f"{k:g}" for k in span.K[: share.shape[1]]])
        one.set_yticks(range(share.shape[0]), [f"{a:g}" for a in span.alpha])
        one.set(xlabel="K", ylabel="α")
    for empty in axes[len(found) :]:
        empty.set_visible(False)
