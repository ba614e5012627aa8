"""Targets of CDPB's analytic figures with our defaults, and the claims they bear on."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from otafl.systems.cdpb import figures
from otafl.systems.cdpb.design import IDLE, NOISY, Params, best_load, eps

TEN = Params(alpha=10)


def test_fig2_error_is_u_shaped_and_the_loss_changes_direction():
    """(a) argmin idle .390, noisy .363; printed eps falls with rho, the sound one rises. (b) 1 / tau and tau: holds."""
    loads = np.linspace(0.01, 1, 991)
    records = figures.fig2(Params(), loads, [50, 100, 200])
    for strategy, least in (("idle", 0.390), ("noisy", 0.363)):
        rows = [r for r in records if r["panel"] == "a" and r["strategy"] == strategy]
        gamma = np.array([r["gamma"] for r in rows])
        assert loads[np.argmin(gamma)] == pytest.approx(least, abs=2e-3)
        assert np.all(np.diff(np.sign(np.diff(gamma))) >= 0)
        assert np.all(np.diff([r["eps_paper"] for r in rows]) < 0)
        assert np.all(np.diff([r["eps_visible"] for r in rows]) > 0)
        over_tau = [r for r in records if r["panel"] == "b" and r["strategy"] == strategy]
        assert [r["gamma"] * r["tau"] for r in over_tau] == pytest.approx([over_tau[0]["gamma"] * 50] * 3)
        assert [r["eps_paper"] / r["tau"] for r in over_tau] == pytest.approx([over_tau[0]["eps_paper"] / 50] * 3)


FIG3 = {
    "CDPB-i": [0.0582, 0.0120, 0.0043, 0.0051],
    "CDPB-n": [0.0601, 0.0124, 0.0044, 0.0049],
    "gbar-based": [0.0582, 0.0120, 0.0043, 0.0064],
    "h_min-based": [0.618, 0.124, 0.033, 0.015],
    "IS": [0.116, 0.024, 0.0078, 0.0094],
    "Noise-Free": [0.0276, 0.0103, 0.0210, 0.0726],
}


def by_scheme(records, name):
    return [r["G"] for r in records if r["scheme"] == name]


def test_fig3_targets():
    """alpha = 10, printed accounting, tau = 10, 50, 200, 800: noise-free wins early and loses late."""
    records = figures.fig3(TEN, [10, 50, 200, 800])
    for name, wanted in FIG3.items():
        assert by_scheme(records, name) == pytest.approx(wanted, rel=0.03), name
    late = {name: by_scheme(records, name)[-1] for name in FIG3}
    assert max(late, key=late.get) == "Noise-Free"
    assert late["CDPB-n"] < late["CDPB-i"]


def test_fig3_rivals_are_charged_too_much():
    """E9: IS with the valid plain Gaussian ties CDPB-i at tau = 400 and beats it at 800."""
    records = figures.fig3(TEN, [400, 800], charging="plain")
    assert by_scheme(records, "IS") == pytest.approx([0.00405, 0.00359], rel=0.01)
    assert by_scheme(records, "CDPB-i") == pytest.approx([0.00401, 0.00506], rel=0.01)


def test_fig3_under_one_sound_accountant():
    """Charged alike, CDPB-i is never behind CDPB-n or independent sampling."""
    records = figures.fig3(TEN, [50, 800], charging="visible")
    idle, noisy, thinned = (np.array(by_scheme(records, name)) for name in ("CDPB-i", "CDPB-n", "IS"))
    assert np.all(idle <= noisy * (1 + 1e-9))
    assert np.all(idle <= thinned)


def test_fig6_targets():
    """alpha = 10: the gap in tau_gmin shrinks (holds), but T_n is the larger set."""
    records = figures.fig6(TEN, (0.002, 0.005, 0.01, 0.02, 0.05), (10, 20, 50, 100, 200, 500))
    over_g, over_k = ([r for r in records if r["axis"] == axis] for axis in ("gbar", "K"))
    gap = lambda rows: [r["tau_gmin_noisy"] - r["tau_gmin_idle"] for r in rows]  # noqa: E731
    assert gap(over_g) == [10, 4, 2, 1, 1]
    assert gap(over_k) == [19, 10, 4, 2, 1, 1]
    assert [r["size_gap"] for r in over_g[1:]] == [-10, -12, -13, -13]
    assert [r["size_gap"] for r in over_k[2:]] == [-22, -12, -7, -2]


def test_fig6_the_claim_holds_only_for_order_two():
    two = figures.fig6(Params(), (0.01, 0.02, 0.05), (100, 200, 500))
    assert [r["size_gap"] for r in two if r["axis"] == "gbar"] == [1, 0, 0]
    assert all(r["size_gap"] >= 0 for r in two if r["axis"] == "K")


@pytest.mark.parametrize(
    ("alpha", "clients", "wanted"),
    [
        (2, (10, 50, 100, 500, 1000), (4.0, 2.2, 1.6, 0.73, 0.52)),
        (10, (10, 20, 50, 100, 200, 1000), (-2.0, -0.41, 0.68, 0.89, 0.82, 0.45)),
    ],
)
def test_fig7a_targets(alpha, clients, wanted):
    """x 1e-4; "idle is always better" fails for alpha = 10 and few clients."""
    records = figures.fig7(Params(alpha=alpha), clients=clients)
    assert [r["difference"] * 1e4 for r in records] == pytest.approx(wanted, abs=0.051, rel=0.01)


def test_fig7b_targets():
    """x 1e-4, alpha = 2; the sign flips at small P; for alpha = 10 noisy wins up to P = 0.1."""
    records = figures.fig7(Params(), powers=(0.01, 0.03, 0.1, 1, 10, 100))
    assert [r["difference"] * 1e4 for r in records] == pytest.approx((-0.64, 0.52, 1.27, 1.61, 1.64, 1.65), abs=0.01)
    ten = figures.fig7(TEN, powers=(0.01, 0.03, 0.1))
    assert all(r["difference"] < 0 for r in ten)


def test_fig5_claim_on_privacy():
    """Printed eps1 at each one's optimum: idle lower for alpha = 2, K = 100; higher for alpha = 10, K = 10."""
    for params, wanted in ((Params(), (1.710, 1.737)), (Params(alpha=10, K=10), (1.487, 1.410))):
        loads = [best_load(params, 100, way) for way in (IDLE, NOISY)]
        found = [float(eps(params, u, scheme=way, accounting="paper")) for u, way in zip(loads, (IDLE, NOISY))]
        assert found == pytest.approx(wanted, abs=1e-3)
        sound = [
            float(eps(params, u, scheme=way, accounting="hidden", assume_hidden=True))
            for u, way in zip(loads, (IDLE, NOISY))
        ]
        assert sound[0] > sound[1]


@pytest.mark.parametrize(("alpha", "K", "portion"), [(10, 100, 0.0), (10, 25, 0.66), (10, 10, 1.0)])
def test_fig9_targets(alpha, K, portion):
    records = figures.fig9(Params(alpha=alpha, K=K), np.linspace(0, 1, 11))
    assert records[-1]["portion"] == pytest.approx(portion, abs=0.01)
    assert records[-1]["G"] <= min(r["G"] for r in records[:-1]) * (1 + 1e-12)


def test_fig9_at_fixed_load_and_rounds():
    records = figures.fig9(Params(alpha=10), np.linspace(0, 1, 11), u=1.0, tau=500)
    assert records[-1]["portion"] == pytest.approx(0.20, abs=5e-3)


def test_the_planners_figure_can_be_drawn():
    """Curves arrive on the axes; nothing else is asserted of a picture."""
    axes = Figure().subplots(2, 2).ravel()
    figures.plot_fig2(figures.fig2(Params(), [0.1, 0.5], [10, 20]), axes)
    assert [len(a.lines) for a in axes] == [2, 4, 2, 4]
