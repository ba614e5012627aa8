"""The pictures of the page on channels: closed forms as lines, draws of the code as marks.

`make docs` draws them into the site. Every seed is fixed: the same code gives the same bytes.
"""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from otafl.channels import (
    Channel,
    CsiError,
    Drift,
    Fading,
    Geometry,
    PathLoss,
    Pilots,
    Stale,
    draw,
    jakes_correlation,
    large_scale,
    los_prob,
    loss_db,
    place,
    roll,
    stale_gain_error,
)
from otafl.reports.plots import COLOURS, FOR_SVG, as_svg

Paint = Callable[..., None]
SITES = {
    "UMi 3.5 GHz": PathLoss("38.901-umi", carrier_ghz=3.5, extrapolate=True),
    "UMa 3.5 GHz": PathLoss("38.901-uma", carrier_ghz=3.5, extrapolate=True),
    "RMa 0.7 GHz": PathLoss("38.901-rma", carrier_ghz=0.7, extrapolate=True),
    "InF-DL 3.5 GHz": PathLoss("38.901-inf", carrier_ghz=3.5, scenario="DL", extrapolate=True),
}


def drawn(paint: Paint, panels: int = 1, height: float = 3.2) -> str:
    """An SVG of one row of axes, without dates and versions."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(FOR_SVG):
        figure = Figure(figsize=(3.6 * panels if panels > 1 else 5.2, height), layout="constrained")
        paint(*np.atleast_1d(figure.subplots(1, panels)))
        return as_svg(figure, tight=False)


def fading() -> str:
    """Distribution of the received power |h|^2 / rms^2."""
    from scipy.stats import ncx2

    def paint(axes: Any) -> None:
        level = np.logspace(-2.5, 1, 200)
        for n, k_db in enumerate((None, 0.0, 6.0, 12.0)):
            law = Fading() if k_db is None else Fading("rician", k_factor_db=k_db)
            k = 0.0 if k_db is None else 10 ** (k_db / 10)
            axes.plot(level, ncx2.cdf(2 * (1 + k) * level, 2, 2 * k), color=COLOURS[n], lw=1.2)
            power = np.sort(np.abs(draw(Channel(fading=law), 1, 4000, 0).gain.ravel()) ** 2)[80::160]
            name = "rayleigh" if k_db is None else f"rician, K = {k_db:g} dB"
            axes.plot(power, (np.arange(power.size) + 0.5) / power.size, "o", ms=3, color=COLOURS[n], label=name)
        axes.set(xscale="log", xlim=(3e-3, 10), xlabel="|h|² / rms²", ylabel="probability below")
        axes.legend()

    return drawn(paint)


def memory() -> str:
    """Correlation of the gain over rounds."""

    def paint(axes: Any) -> None:
        lags, turns = np.arange(0, 13), 0.1
        fine = np.linspace(0, 12, 200)
        rho = float(jakes_correlation(turns))
        lines = {"ar1": rho**fine, "jakes": jakes_correlation(turns, fine)}
        for n, (kind, line) in enumerate(lines.items()):
            gain = draw(Channel(fading=Fading(kind, rho=rho)), 20_000, 13, 1).gain  # type: ignore[arg-type]
            axes.plot(fine, line, color=COLOURS[n], lw=1.2)
            axes.plot(lags, np.real(np.mean(gain * gain[0].conj(), axis=1)), "o", ms=4, color=COLOURS[n], label=kind)
        axes.set(xlabel="rounds apart", ylabel="correlation of the gain")
        axes.legend(title="Doppler × round = 0.1")

    return drawn(paint)


def path_loss() -> str:
    """Median loss with and without line of sight, and the probability of line of sight."""

    def paint(loss: Any, sight: Any) -> None:
        for n, (name, law) in enumerate(SITES.items()):
            loss.plot([], [], color=COLOURS[n], lw=1.2, label=name)
            near, far = (1, 600) if "InF" in name else (10, 5000)
            metres = np.logspace(np.log10(near), np.log10(far), 200)
            for state, style in (("los", "-"), ("nlos", "--")):
                fixed = PathLoss(**{**vars(law), "state": state})
                loss.plot(metres, loss_db(fixed, metres), style, color=COLOURS[n], lw=1.2)
            sight.plot(metres, los_prob(law, metres), color=COLOURS[n], lw=1.2)
        loss.set(xscale="log", xlabel="distance, m", ylabel="loss, dB (dashed: no line of sight)")
        sight.set(xscale="log", xlabel="distance, m", ylabel="probability of line of sight")
        loss.legend()

    return drawn(paint, 2)


def site_map() -> str:
    """One drawn urban site: who has line of sight, and what the shadowing makes of the loss."""

    def paint(ground: Any, loss: Any) -> None:
        law, count = PathLoss("38.901-umi", carrier_ghz=3.5), 150
        channel = Channel(geometry=Geometry("ring", low_m=10.0, high_m=300.0), path_loss=law, placement_seed=1)
        metres: Any = place(channel, count, 0).distance_m
        site = large_scale(law, metres, roll(count, 1))
        angle = 2 * np.pi * np.random.default_rng(1).random(count)
        for n, (los, name) in enumerate(((True, "line of sight"), (False, "none"))):
            own = site.los == los
            ground.plot(metres[own] * np.cos(angle[own]), metres[own] * np.sin(angle[own]), "o", ms=3, color=COLOURS[n])
            loss.plot(metres[own], (site.loss_db + site.shadowing_db)[own], "o", ms=3, color=COLOURS[n], label=name)
        ground.plot(0, 0, "k^")
        ground.set(xlabel="east, m", ylabel="north, m", aspect="equal")
        loss.set(xlabel="distance, m", ylabel="loss with shadowing, dB")
        loss.legend()

    return drawn(paint, 2, 3.4)


def placement() -> str:
    """Distribution of distances."""

    def paint(axes: Any) -> None:
        metres = np.linspace(0, 200, 200)
        laws: dict[str, tuple[Geometry, ArrayLike]] = {
            "disc": (Geometry("disc", high_m=200.0), (metres / 200) ** 2),
            "ring": (Geometry("ring", low_m=50.0, high_m=200.0), np.clip((metres**2 - 2500) / 37500, 0, 1)),
            "interval": (Geometry("interval", low_m=50.0, high_m=200.0), np.clip((metres - 50) / 150, 0, 1)),
        }
        for n, (name, (law, line)) in enumerate(laws.items()):
            placed = place(Channel(geometry=law, path_loss=PathLoss("biasvar")), 20_000, 3)
            some = np.sort(np.asarray(placed.distance_m))[400::800]
            axes.plot(metres, line, color=COLOURS[n], lw=1.2)
            axes.plot(some, (np.arange(some.size) + 0.5) / some.size, "o", ms=3, color=COLOURS[n], label=name)
        axes.set(xlabel="distance, m", ylabel="probability below")
        axes.legend()

    return drawn(paint)


def knowledge() -> str:
    """Drift with the limits that pilots give, and estimates within their declared errors."""

    def paint(course: Any, errors: Any) -> None:
        channel = Channel(drift=Drift(every=20), pilots=Pilots(count=64, every=20))
        trace, rounds = draw(channel, 1, 100, 4), np.arange(100)
        course.fill_between(rounds, trace.rms_low[:, 0], trace.rms_high[:, 0], color=COLOURS[0], alpha=0.25, lw=0)
        course.plot(rounds, trace.rms_gain[:, 0], color=COLOURS[0], label="rms gain, 99 % limits")
        course.plot(rounds, np.abs(trace.gain[:, 0]), ".", ms=3, color=COLOURS[1], label="gain")
        course.set(xlabel="round", ylabel="amplitude")
        course.legend()
        trace = draw(Channel(csi=CsiError(0.2, 0.3)), 10, 30, 0)
        ratio = (trace.gain / trace.estimate).ravel()
        errors.plot(ratio.real, ratio.imag, ".", ms=2, color=COLOURS[0])
        turn = np.linspace(-0.3, 0.3, 50)
        for size in (1.2, 0.8 / np.cos(0.3)):
            errors.plot(size * np.cos(turn), size * np.sin(turn), color="black", lw=0.8)
        errors.set(xlabel="Re gain/estimate", ylabel="Im gain/estimate", aspect="equal")

    return drawn(paint, 2)


def stale() -> str:
    """What has to be declared of old estimates, and what is realised."""

    def paint(axes: Any) -> None:
        turns = np.logspace(-3, -1, 60)
        for n, beta in enumerate((1e-2, 1e-6, 1e-12)):
            line = [stale_gain_error(float(jakes_correlation(t)), 0.5, beta) for t in turns]
            axes.plot(turns, line, color=COLOURS[n], lw=1.2, label=f"β = {beta:g}")
        for t in (1e-3, 2e-3, 5e-3, 0.01):
            channel = Channel(
                fading=Fading("jakes", speed_m_s=t, carrier_ghz=0.299792458, round_s=1.0), stale=Stale(miss_prob=0.01)
            )
            trace = draw(channel, 200, 100, 0)
            heard = np.abs(trace.estimate) >= 0.5 * trace.rms_estimate
            found = np.quantile(np.abs(trace.gain / trace.estimate - 1)[heard], 0.99)
            axes.plot(t, found, "o", ms=4, color=COLOURS[0])
        axes.axhline(1, color="black", lw=0.8, ls=(0, (4, 3)))
        axes.set(xscale="log", yscale="log", xlabel="Doppler frequency × round time")
        axes.set_ylabel("gain error (marks: 99 % realised)")
        axes.legend()

    return drawn(paint)


def munich(places: Path) -> str:
    """The ray-traced devices: mean gain, or no path."""
    with places.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))

    def paint(axes: Any) -> None:
        for row in rows:
            x, y, dead = float(row["x_m"]), float(row["y_m"]), row["gain_db"] == "no path"
            axes.plot(x, y, "x" if dead else "o", ms=6, color=COLOURS[3] if dead else COLOURS[0])
            told = row["gain_db"] if dead else f"{float(row['gain_db']):.0f} dB"
            axes.annotate(f"{row['name'].removeprefix('device-')}: {told}", (x, y), xytext=(5, 4),
                          textcoords="offset points", fontsize=7)  # fmt: skip
        axes.plot(8.5, 21.0, "k^", ms=7)
        axes.annotate("base station", (8.5, 21.0), xytext=(-5, 4), textcoords="offset points", fontsize=7, ha="right")
        axes.set(xlabel="east, m", ylabel="north, m", aspect="equal")
        axes.margins(x=0.25)

    return drawn(paint, height=4.0)


PICTURES: dict[str, Callable[[], str]] = {
    "fading": fading, "memory": memory, "path-loss": path_loss, "site": site_map, "placement": placement,
    "knowledge": knowledge, "stale": stale,
}  # fmt: skip
