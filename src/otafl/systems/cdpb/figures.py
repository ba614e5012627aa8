"""Data and pictures of CDPB's analytic figures 2, 3, 6, 7 and 9: records in, no training. Host, float64.

Each `figN` returns a list of flat records. Most constants are not published, so the defaults are ours (`Params()`);
what holds and what does not is in docs/systems/cdpb.md.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.systems.cdpb.design import (
    IDLE,
    NOISE_FREE,
    NOISY,
    PAPER,
    VISIBLE,
    Charge,
    Params,
    Scheme,
    Stats,
    best_portion,
    eps_round,
    error_energy,
    gamma_of,
    lemma1,
    stage1,
    stats,
    theorem1,
)
from otafl.systems.cdpb.portion import free_utility, portion_fixed
from otafl.systems.cdpb.solver import GRID, LEAST_LOAD, Problem, top_load, zoom

Record = dict[str, Any]
STRATEGIES = {"idle": IDLE, "noisy": NOISY}


def fig2(params: Params, loads: Sequence[float], taus: Sequence[int], u: float = 0.4, tau: int = 100) -> list[Record]:
    """Convergence bound and privacy loss (a) against rho at `tau` rounds, (b) against tau at load `u`."""
    points = [("a", load, tau) for load in loads] + [("b", u, rounds) for rounds in taus]
    records = []
    for name, way in STRATEGIES.items():
        for panel, load, rounds in points:
            at = stats(params, load, way)
            records.append(
                {
                    "panel": panel,
                    "strategy": name,
                    "u": float(load),
                    "rho": float(at.rho),
                    "tau": int(rounds),
                    "gamma": float(gamma_of(params, error_energy(params, at), rounds)),
                    "eps_paper": float(rounds * theorem1(params.alpha, at.p_top, params.W**2 / (at.v + params.sz2))),
                    "eps_visible": float(rounds * eps_round(params, at, VISIBLE)),
                }
            )
    return records


def weakest(params: Params) -> Stats:
    """Everybody takes part with rho from E[h_min] = 2 sigma2 / K."""
    u = 1 / params.K
    at = stats(params, u)
    one, v = np.asarray(1.0), params.c * (1 - u)
    power, _, count = params.groups
    return at._replace(p=one, p_top=one, K_t=np.asarray(float(params.K)), v=np.asarray(v), s2=v / params.d + params.sz2,
                       energy=np.sum(count * power) / params.K)  # fmt: skip


def best_at(params: Params, tau: int, way: Scheme, loss: Callable[[Stats], Array]) -> float:
    """Least utility over rho at a given tau."""

    def utility(u: Array) -> Array:
        at = stats(params, u, way)
        return params.lam1 * gamma_of(params, error_energy(params, at), tau) + params.lam2 * tau * loss(at)

    return zoom(utility, np.geomspace(LEAST_LOAD * min(1.0, top_load(params)), top_load(params), GRID))[1]


def printed_rival(params: Params, at: Stats) -> Array:
    """What the paper charges a round of a rival whose server sees who takes part: Theorem 1 at p = 1."""
    return theorem1(params.alpha, 1.0, params.W**2 / (at.v + params.sz2))


def fig3(
    params: Params, taus: Iterable[int], charging: str = "paper", q: float = 0.5, receiver_noise: float = 1.0
) -> list[Record]:
    """Utility G against tau, rho chosen anew for each scheme and tau.

    charging: "paper" is Theorem 1, for h_min and independent sampling at p = 1, as published; "plain" gives those two
    the smaller plain-Gaussian alpha W^2 / sigma_q^2 (CDPB E9); "visible" charges all schemes soundly and alike.
    receiver_noise: total receiver noise that protects the noise-free scheme alone.
    """
    validate.one_of("charging", charging, ("paper", "plain", "visible"))
    validate.in_left_open("q", q, 0, 1)
    quiet = params.but(sz2=receiver_noise / params.d)

    def own(at: Stats, p: Params = params) -> Array:
        return eps_round(p, at, VISIBLE if charging == "visible" else PAPER)

    def rival(at: Stats) -> Array:
        if charging == "visible":
            return own(at)
        plain = params.alpha * (params.W**2 / (at.v + params.sz2))
        return plain if charging == "plain" else printed_rival(params, at)

    def at_point(at: Stats, tau: int, loss: Callable[[Stats], Array]) -> float:
        return float(params.lam1 * gamma_of(params, error_energy(params, at), tau) + params.lam2 * tau * loss(at))

    records = []
    for tau in taus:
        values = {
            "CDPB-i": best_at(params, tau, IDLE, own),
            "CDPB-n": best_at(params, tau, NOISY, own),
            "gbar-based": at_point(stats(params, lemma1(params)), tau, own),
            "h_min-based": at_point(weakest(params), tau, rival),
            "IS": best_at(params, tau, Scheme(keep=q), rival),
            "Noise-Free": best_at(quiet, tau, NOISE_FREE, lambda at: own(at, quiet)),
        }
        records += [{"scheme": name, "tau": int(tau), "G": value} for name, value in values.items()]
    return records


def fig6(params: Params, gbars: Iterable[float] = (), clients: Iterable[int] = ()) -> list[Record]:
    """The sets T of both strategies (lemmas repaired, Theorem 1) against gbar and against K."""
    cases = [("gbar", g, params.but(gbar=g)) for g in gbars] + [("K", k, params.but(K=k)) for k in clients]
    records = []
    for axis, value, case in cases:
        (low_i, high_i), (low_n, high_n) = (stage1(case, way, repaired=True) for way in (IDLE, NOISY))
        size_i, size_n = max(0, high_i - low_i + 1), max(0, high_n - low_n + 1)
        records.append(
            {
                "axis": axis,
                "value": value,
                "tau_gmin_idle": low_i,
                "tau_gmin_noisy": low_n,
                "tau_emax_idle": high_i,
                "tau_emax_noisy": high_n,
                "size_gap": size_i - size_n,
            }
        )
    return records


def fig7(
    params: Params, clients: Iterable[int] = (), powers: Iterable[float] = (), charge: Charge = PAPER,
    tau: int | None = None,
) -> list[Record]:  # fmt: skip
    """G_n - G_i at each one's own optimum against K and P: without limits and with real tau, or after tau rounds.

    Sound accounting needs `tau`: its utility improves without end as rho falls and tau grows.
    """
    free = params.but(gbar=None, ebar=None)
    cases = [("K", k, free.but(K=k)) for k in clients] + [("P", x, free.but(P=x)) for x in powers]
    records = []
    for axis, value, case in cases:
        G = {
            name: free_utility(Problem(case, way, charge, "simple", np.inf))[0]
            if tau is None
            else best_at(case, tau, way, partial(eps_round, case, charge=charge))
            for name, way in STRATEGIES.items()
        }
        records.append({"axis": axis, "value": value, "G_idle": G["idle"], "G_noisy": G["noisy"]})
        records[-1]["difference"] = G["noisy"] - G["idle"]
    return records


def fig9(
    params: Params, portions: Sequence[float], u: float | None = None, tau: int | None = None, charge: Charge = PAPER
) -> list[Record]:
    """G of CDPB-mixed over the portion: at a fixed (u, tau), or with both chosen anew; the best portion comes last."""
    free = params.but(gbar=None, ebar=None)
    records = []
    for portion in portions:
        problem = Problem(free, Scheme(float(portion)), charge, "simple", np.inf)
        if u is not None and tau is not None:
            error, eps1 = problem.curves(np.asarray(u))
            records.append(
                {"portion": float(portion), "G": float(problem.utility(error, eps1, tau)), "u": u, "tau": tau}
            )
        else:
            G, load, rounds = free_utility(problem)
            records.append({"portion": float(portion), "G": G, "u": load, "tau": rounds})
    if u is not None and tau is not None:
        best = portion_fixed(free, u, tau, charge)
    else:
        best = best_portion(free, accounting=charge.accounting, adjacency=charge.adjacency)
    return [*records, {"portion": best.portion, "G": best.G, "u": best.u, "tau": best.tau, "best": True}]


# --- pictures ---------------------------------------------------------------------------------------------------


def _columns(records: Iterable[Record], *names: str, **where: Any) -> list[list[Any]]:
    rows = [r for r in records if all(r.get(key) == value for key, value in where.items())]
    return [[row[name] for row in rows] for name in names]


def plot_fig2(records: list[Record], axes: Sequence[Any]) -> None:
    """Four axes: gamma and eps of panel a, gamma and eps of panel b."""
    for (panel, x), pair in zip((("a", "rho"), ("b", "tau")), (axes[:2], axes[2:])):
        for strategy in STRATEGIES:
            across, gamma, paper, visible = _columns(
                records, x, "gamma", "eps_paper", "eps_visible", panel=panel, strategy=strategy
            )
            pair[0].plot(across, gamma, label=strategy)
            (line,) = pair[1].plot(across, visible, label=f"{strategy}, visible")
            pair[1].plot(across, paper, "--", color=line.get_color(), label=f"{strategy}, Theorem 1 as printed")
        pair[0].set(xlabel=x, ylabel="convergence bound", yscale="log")
        pair[1].set(xlabel=x, ylabel="RDP", yscale="log")
        for one in pair:
            one.legend(fontsize="x-small")
