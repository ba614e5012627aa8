"""The published SCA against the exact optimum."""

import builtins

import numpy as np
import pytest

from otafl.core.errors import InputError
from otafl.systems.biasvar.design import Radio, params_from_rho, solve_exact
from otafl.systems.biasvar.sca import solve_sca


def site(n, seed, spread=3.0):
    return Radio(10 ** np.random.default_rng(seed).uniform(-11 - spread / 2, -11 + spread / 2, n), 1e-9, 5e-21, 1000)


@pytest.mark.parametrize("n", [2, 5, 10])
@pytest.mark.parametrize("rho", [0.1, 1.0, 10.0])
def test_history_falls_to_the_exact_optimum(n, rho):
    radio, par = site(n, n), params_from_rho(rho, 10.0, sigma2=0.5)
    best, sca = solve_exact(radio, par), solve_sca(radio, par)
    assert sca.status == "converged"
    assert np.all(np.diff(sca.history) <= 0)
    assert -1e-12 <= sca.normal_objective / best.normal_objective - 1 <= 1e-5
    np.testing.assert_allclose(sca.p, best.p, atol=0.02)
    assert len(sca.history) == sca.iterations + 1


@pytest.mark.parametrize("anchor", ["half", np.linspace(0.1, 1.0, 6)], ids=["half", "given"])
@pytest.mark.parametrize("keep_11d", [True, False])
def test_every_anchor_leads_to_the_same_place(anchor, keep_11d):
    radio, par = site(6, 1), params_from_rho(0.5, 10.0)
    sca = solve_sca(radio, par, anchor=anchor, tol=1e-8, keep_11d=keep_11d)
    assert sca.normal_objective == pytest.approx(solve_exact(radio, par).normal_objective, rel=1e-5)


def test_rho_zero_and_one_device():
    radio = site(1, 0)
    par = params_from_rho(0.0, 10.0)
    assert solve_sca(radio, par).normal_objective == pytest.approx(solve_exact(radio, par).normal_objective, rel=1e-5)


def test_hundred_devices():
    radio, par = site(100, 2, spread=2.0), params_from_rho(1.0, 10.0)
    assert solve_sca(radio, par).normal_objective == pytest.approx(solve_exact(radio, par).normal_objective, rel=1e-5)


@pytest.mark.slow
def test_thousand_devices_keep_the_last_feasible_anchor():
    radio, par = site(1000, 3, spread=2.0), params_from_rho(1.0, 10.0)
    best, sca = solve_exact(radio, par), solve_sca(radio, par)
    assert sca.status in ("converged", "solver_failed")
    assert np.all(np.diff(sca.history) <= 0)
    assert sca.normal_objective >= best.normal_objective * (1 - 1e-12)
    assert sca.normal_objective < sca.history[0]
    assert sca.status == "solver_failed" or sca.normal_objective <= best.normal_objective * (1 + 1e-5)


def test_refusals():
    radio = site(3, 0)
    with pytest.raises(InputError, match="anchor"):
        solve_sca(radio, params_from_rho(1.0, 10.0), anchor="middle")
    with pytest.raises(InputError, match="anchor"):
        solve_sca(radio, params_from_rho(1.0, 10.0), anchor=[0.5, 0.5, 1.5])
    with pytest.raises(InputError, match="zero_bias"):
        solve_sca(radio, params_from_rho(np.inf, 10.0))


def test_without_cvxpy_the_message_says_what_to_do(monkeypatch):
    real = builtins.__import__

    def absent(name, *args, **kwargs):
        if name == "cvxpy":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(InputError, match=r"otafl\[sca\]"):
        solve_sca(site(3, 0), params_from_rho(1.0, 10.0))
