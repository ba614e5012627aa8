"""Where CDPB's claims hold: each claim of the analytic figures at each setting of the constants the paper leaves open.

A setting is (alpha, receiver noise, A, P, K); all else is `Params()`. A claim is charged twice: as printed (Theorem 1,
rivals at p = 1) and soundly (the visible loss, all alike). Host, float64.
"""

from collections.abc import Iterable
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from otafl.core.arrays import Array
from otafl.systems.cdpb import figures
from otafl.systems.cdpb.accounting import VISIBLE, eps_round
from otafl.systems.cdpb.model import IDLE, NOISE_FREE, NOISY, Params, Scheme, Stats, stats
from otafl.systems.cdpb.paper import PAPER, best_load, lemma1
from otafl.systems.cdpb.portion import best_portion

AXES = ("alpha", "receiver_noise", "A", "P", "K")
CHARGES = {"printed": "paper", "sound": "visible"}
SHARP = 2.0  # "rises sharply": the last value is at least so many times the least
EQUAL = 1e-6  # relative: the sound gap does not depend on P at all, and rounding is no growth
WITH_NOISE = ("CDPB-i", "CDPB-n", "gbar-based", "h_min-based", "IS")
CLAIMS = {
    "3: all but Noise-Free fall with the rounds": ("printed", "sound"),
    "3: CDPB is ahead of its rivals with noise at every τ": ("printed", "sound"),
    "3: Noise-Free is best early": ("printed", "sound"),
    "3: Noise-Free rises sharply and ends behind CDPB": ("printed", "sound"),
    "5: CDPB-i loses less than CDPB-n": ("printed", "sound"),
    "5: CDPB-i loses less than h_min-based": ("printed", "sound"),
    "5: CDPB-i loses less than IS": ("printed", "sound"),
    "5: CDPB-i loses less than Noise-Free": ("printed", "sound"),
    "6: both have the same τ_ε,max": ("printed",),
    "6: noisy has the smaller set T": ("printed",),
    "7: idle is better than noisy": ("printed", "sound"),
    "7: the difference falls with K": ("printed", "sound"),
    "7: the difference grows with P": ("printed", "sound"),
    "9: a portion between 0 and 1 is best": ("printed",),  # soundly idle always wins: `portion.idle_twin`
}


class Span(NamedTuple):
    """The settings: every combination of these values."""

    alpha: tuple[float, ...]
    receiver_noise: tuple[float, ...]
    A: tuple[float, ...]
    P: tuple[float, ...]
    K: tuple[int, ...]

    def settings(self) -> Iterable[dict[str, float]]:
        return (dict(zip(AXES, values)) for values in product(*self))


def params_of(setting: dict[str, float]) -> Params:
    return Params(K=int(setting["K"]), P=setting["P"], A=setting["A"], alpha=setting["alpha"])


def utility_claims(setting: dict[str, float], taus: list[int], q: float, charge: str) -> dict[str, bool]:
    """The four sentences on Figure 3."""
    found = figures.fig3(params_of(setting), taus, CHARGES[charge], q, setting["receiver_noise"])
    G = {name: np.array([r["G"] for r in found if r["scheme"] == name]) for name in (*WITH_NOISE, "Noise-Free")}
    return dict(zip([name for name in CLAIMS if name[0] == "3"], utility_rules(G)))


def utility_rules(G: dict[str, Array]) -> tuple[bool, bool, bool, bool]:
    """Whether each of them holds for these utilities over the rounds, by scheme; in the order of `CLAIMS`."""
    best, quiet = np.minimum(G["CDPB-i"], G["CDPB-n"]), G["Noise-Free"]
    rivals = np.min([G[name] for name in WITH_NOISE[2:]], axis=0)
    return (
        all(rises(-G[name]) for name in WITH_NOISE),
        bool(np.all(best <= rivals * (1 + 1e-9))),
        bool(quiet[0] < min(G[name][0] for name in WITH_NOISE)),
        bool(quiet[-1] >= SHARP * quiet.min() and quiet[-1] > best[-1]),
    )


def rises(values: Array) -> bool:
    """Every step is upwards, by more than rounding."""
    return bool(np.all(np.diff(values) > EQUAL * np.abs(values[:-1])))


def designs(setting: dict[str, float], tau: int, q: float) -> dict[str, Stats]:
    """The published designs for tau rounds: rho by the printed utility, of gbar-based by the error alone."""
    params = params_of(setting)
    ways = {"CDPB-i": (params, IDLE), "CDPB-n": (params, NOISY), "IS": (params, Scheme(keep=q)),
            "Noise-Free": (_quiet(setting), NOISE_FREE)}  # fmt: skip
    at = {name: stats(own, best_load(own, tau, way), way) for name, (own, way) in ways.items()}
    return at | {"gbar-based": stats(params, lemma1(params)), "h_min-based": figures.weakest(params)}


def _quiet(setting: dict[str, float]) -> Params:
    """With the receiver noise, which protects the noise-free scheme alone."""
    params = params_of(setting)
    return params.but(sz2=setting["receiver_noise"] / params.d)


def losses(setting: dict[str, float], tau: int, q: float) -> dict[str, dict[str, float]]:
    """Renyi loss of one round of the published designs, by charge."""
    params, quiet, at = params_of(setting), _quiet(setting), designs(setting, tau, q)
    free, _ = at.pop("Noise-Free"), at.pop("gbar-based")

    own = {name: float(eps_round(params, at[name], PAPER)) for name in ("CDPB-i", "CDPB-n")}
    printed = own | {name: float(figures.printed_rival(params, at[name])) for name in ("h_min-based", "IS")}
    sound = {name: float(eps_round(params, one, VISIBLE)) for name, one in at.items()}
    return {
        "printed": printed | {"Noise-Free": float(eps_round(quiet, free, PAPER))},
        "sound": sound | {"Noise-Free": float(eps_round(quiet, free, VISIBLE))},
    }


def loss_claims(setting: dict[str, float], tau: int, q: float) -> dict[str, dict[str, bool]]:
    """The four sentences on Figure 5, by charge."""
    return {
        charge: {f"5: CDPB-i loses less than {name}": loss["CDPB-i"] < other
                 for name, other in loss.items() if name != "CDPB-i"}
        for charge, loss in losses(setting, tau, q).items()
    }  # fmt: skip


def set_claims(setting: dict[str, float]) -> dict[str, bool]:
    """The premise of Figure 6 and the size of both sets T, with the lemmas repaired."""
    (at,) = figures.fig6(params_of(setting), clients=[int(setting["K"])])
    held = at["tau_emax_idle"] == at["tau_emax_noisy"], at["size_gap"] > 0
    return dict(zip([name for name in CLAIMS if name[0] == "6"], held))


def gap(setting: dict[str, float], charge: str, most: int) -> float:
    """G_n - G_i, each at its own best rho and tau; sound accounting is asked after `most` rounds."""
    ways = {"printed": (PAPER, None), "sound": (VISIBLE, most)}
    (record,) = figures.fig7(params_of(setting), [int(setting["K"])], (), *ways[charge])
    return float(record["difference"])


def portion_claim(setting: dict[str, float]) -> bool:
    """Whether the best portion lies strictly inside as printed; the gain must be more than rounding."""
    best = best_portion(params_of(setting).but(gbar=None, ebar=None), accounting="paper")
    return 0 < best.portion < 1 and best.gain > 1e-9


def claims_map(span: Span, taus: list[int], q: float, tau: int) -> dict[tuple[str, str], Array]:
    """(claim, charge) -> array over the axes of `span`: 1 holds, 0 does not, NaN where it cannot be asked (an edge)."""
    shape = tuple(len(axis) for axis in span)
    found = {(claim, charge): np.full(shape, np.nan) for claim, charges in CLAIMS.items() for charge in charges}
    gaps = {charge: np.empty(shape) for charge in CHARGES}
    for n, setting in enumerate(span.settings()):
        place = tuple(int(i) for i in np.unravel_index(n, shape))
        answers: dict[tuple[str, str], bool] = {}
        lost = loss_claims(setting, tau, q)
        for charge in CHARGES:
            told = utility_claims(setting, taus, q, charge) | lost[charge]
            answers |= {(claim, charge): held for claim, held in told.items()}
        answers |= {(claim, "printed"): held for claim, held in set_claims(setting).items()}
        if place[1] == 0:  # no receiver noise in these
            for charge in CHARGES:
                gaps[charge][place] = gap(setting, charge, max(taus))
            alike: Any = (place[0], slice(None), *place[2:])
            found["9: a portion between 0 and 1 is best", "printed"][alike] = portion_claim(setting)
        for key, held in answers.items():
            found[key][place] = held
    return found | _shape_of_gaps(gaps, found)


def _shape_of_gaps(gaps: dict[str, Any], found: dict[tuple[str, str], Array]) -> dict[tuple[str, str], Array]:
    """Sign of the difference and its way from one K or P to the next; the last of an axis has no next."""
    out = {}
    for charge, at in gaps.items():
        at = np.broadcast_to(at[:, :1], at.shape)
        out["7: idle is better than noisy", charge] = (at > 0).astype(float)
        for claim, axis, sign in (("falls with K", 4, -1), ("grows with P", 3, 1)):
            key = f"7: the difference {claim}", charge
            step = np.diff(at, axis=axis)
            held = (sign * step > EQUAL * np.abs(np.delete(at, -1, axis))).astype(float)
            out[key] = np.concatenate([held, np.take(found[key], [-1], axis=axis)], axis=axis)
    return out


def shares(found: dict[tuple[str, str], Array]) -> dict[tuple[str, str], float]:
    """Share of the settings in which each claim holds."""
    return {key: float(np.nanmean(values)) for key, values in found.items()}
