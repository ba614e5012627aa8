"""The phase diagram: which inversion rule learns most, and whether it is useful, over energy, ε and devices."""

from typing import Any

import numpy as np

from otafl.bounds import merit
from otafl.privacy.gaussian import budget_rho
from otafl.reports.phases_trained import overlay
from otafl.reports.plots import FOR_SVG, as_svg
from otafl.systems.ridge import phases

TIE = 0.03  # relative gap of S below which rules count as alike


def diagram(eps: list[float], joules: np.ndarray, terms: dict[str, float]) -> dict[str, Any]:
    """S / S_max of every rule over the energy of a device, and the devices that are needed for Q = 10 and 25."""
    sheets = []
    for one in eps:
        mu = float(np.sqrt(2 * budget_rho(one, terms["delta"])))
        allowed = phases.allowed_energy(joules, mu, terms["noise_var"], terms["clip_norm"], terms["sensitivity"])
        rules = {
            "ridge": phases.ridge(allowed),
            "truncated, realised": phases.truncated(allowed, True),
            "truncated, charged in full": phases.truncated(allowed, False),
        }
        each = merit.quality(merit.learning_snr_max(1, mu, terms["clip_norm"], terms["sensitivity"]),
                             terms["agreement"], int(terms["num_params"]))  # fmt: skip
        needed = {f"Q = {q:g}": (q / (each * rules["ridge"])).tolist() for q in (merit.MARGINAL, merit.USEFUL)}
        best = np.maximum(rules["truncated, realised"], rules["truncated, charged in full"])
        sheets.append({"eps": one, "mu": mu, "efficiency": {name: e.tolist() for name, e in rules.items()},
                       "gain": (rules["ridge"] / best - 1).tolist(), "devices": needed})  # fmt: skip
    return {"joules": joules.tolist(), "terms": terms, "sheets": sheets}


def picture(told: dict[str, Any], points: dict[str, Any] | None = None) -> str:
    """SVG: one panel per ε; colour: lead of the ridge in S, lines: devices from which on it is marginal and useful.

    points: the trained grid, drawn on top.
    """
    import matplotlib
    from matplotlib.figure import Figure

    joules, devices = np.array(told["joules"]), np.geomspace(10, 1e5, 200)
    with matplotlib.rc_context(FOR_SVG):
        figure = Figure(figsize=(9.6, 3.9), layout="constrained")
        panels = figure.subplots(1, len(told["sheets"]), sharey=True, squeeze=False)[0]
        for axes, sheet in zip(panels, told["sheets"]):
            gain = np.broadcast_to(100 * np.array(sheet["gain"]), (len(devices), len(joules)))
            shown = axes.pcolormesh(joules, devices, gain, cmap="Greens", vmin=0, vmax=20, shading="auto",
                                    rasterized=True)  # fmt: skip
            for (name, line), dash in zip(sheet["devices"].items(), ((0, (4, 3)), "-")):
                axes.plot(joules, line, color="#d55e00", linestyle=dash, linewidth=1.2, label=name)
            axes.set(xscale="log", yscale="log", ylim=(10, 1e5), xlabel="J per device, whole run",
                     title=f"ε = {sheet['eps']:g}")  # fmt: skip
        if points is not None:
            overlay({sheet["eps"]: axes for sheet, axes in zip(told["sheets"], panels)}, points)
        panels[0].set_ylabel("devices")
        panels[0].legend(loc="upper right", title="devices it takes", title_fontsize=8)
        figure.colorbar(shown, ax=list(panels), label="lead of the ridge in S (%)")
        return as_svg(figure, tight=False)


def sentence(sheet: dict[str, Any], joules: list[float]) -> str:
    """Where the rules are alike, by how much the ridge leads elsewhere, and how many devices are useful."""
    gain, useful = np.array(sheet["gain"]), sheet["devices"][f"Q = {merit.USEFUL:g}"]
    alike = np.flatnonzero(gain < TIE)
    tie = f"alike (within {TIE:.0%}) from {joules[alike[0]]:.1e} J per device on" if alike.size else "never alike"
    return (
        f"ε = {sheet['eps']:g}: ridge leads by up to {gain.max():.0%} in S, {tie}; useful from {min(useful):,.0f} "
        f"devices with {joules[-1]:.0e} J, from {useful[0]:,.0f} with {joules[0]:.0e} J."
    )
