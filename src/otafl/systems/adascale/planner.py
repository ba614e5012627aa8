"""`otafl plan adascale`: the receive scaling of every round, its leakage, and what is certain about it. No training."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from otafl.core.errors import InputError
from otafl.core.files import plain
from otafl.privacy.attack import finds, from_eps
from otafl.privacy.card_text import round_up
from otafl.privacy.pld import pld_eps
from otafl.systems.adascale import variables
from otafl.systems.adascale.design import certify
from otafl.systems.adascale.from_experiment import keys
from otafl.systems.adascale.methods import METHODS, RECONSTRUCTIONS, Scene, device_epsilon, run_epsilon
from otafl.systems.adascale.online import cut_to_budget, queue_of
from otafl.systems.adascale.planner_inputs import Inputs, convergence, read_site
from otafl.systems.adascale.planner_pictures import pictures
from otafl.systems.adascale.planner_silence import count_silence, sending_devices
from otafl.systems.adascale.setting import Setting
from otafl.systems.adascale.stationary import stationary_leakage, stationary_level
from otafl.systems.adascale.tuning import simulated_floors
from otafl.systems.planning import Planner, example, unread
from otafl.systems.screen import Fitted, say_remarks

PLD_LIMIT = 100.0  # beyond, a tighter epsilon is no protection either
PLD_GROUPS = 3  # kinds of device up to which every kind gets a PLD epsilon; beyond, the worst device alone


def plan(inputs: Inputs, folder: Path) -> dict[str, Any]:
    """Run the method over the channels; totals, certificates and a comparison on the same channels."""
    setting, channels, doubts = read_site(inputs, folder)
    floors = variables.noise_floor(channels.gain, setting.deployment(), setting.message())
    theorem = convergence(inputs)
    nu = theorem.nu(inputs.gamma, floors) if theorem and inputs.gamma is not None else inputs.nu
    assert nu is not None
    scene = _scene(inputs, nu, floors, channels.rms, setting)
    excess: dict[str, np.ndarray] = {m: _excess(m, scene) for m in dict.fromkeys([inputs.method, *inputs.compare])}
    if inputs.hard_budget:
        excess[inputs.method] = cut_to_budget(excess[inputs.method], nu)
    noise = floors + excess[inputs.method]
    sending = sending_devices(noise, channels.gain, scene, inputs)
    report: dict[str, Any] = {
        "scheme": "adascale",
        "method": inputs.method,
        "reconstruction": inputs.method in RECONSTRUCTIONS,
        "tuning": inputs.tuning,
        "nu": nu,
        "alpha": inputs.alpha,
        "delta": inputs.delta,
        "setting": _described(setting),
        "rounds": _rounds(excess[inputs.method], floors, setting) | {"R": scene.leakage.total(noise)},
        "totals": _totals(excess[inputs.method], sending, scene, inputs),
        "comparison": _compared(excess, scene, inputs.delta),
        "guarantee": _guarantee(setting),
        "warnings": setting.cautions() + doubts + _remarks(inputs, scene),
    }
    if inputs.pld and "eps_pld" not in report["totals"]:
        report["warnings"].append(
            f"no eps by PLD, which is counted up to an RDP eps of {PLD_LIMIT:g} where its grid holds"
        )
    report["warnings"] += unread(
        inputs, (theorem is not None, "loss_gap, L and learning_rate (lambda)", ("A1", "A2", "C1", "C2"))
    )
    if not sending.all():
        count_silence(report, noise, sending, scene)
    if theorem is not None:
        report["convergence"] = {
            "gamma": inputs.gamma,
            "phi": theorem.phi(setting.T),
            "phi_prime": theorem.bound(floors),
            "conv_bound": theorem.bound(noise),
        }
        report["warnings"] += _missed(inputs.gamma, report["convergence"]["conv_bound"], excess[inputs.method], nu)
    if nu > 0:
        level, typical = float(stationary_level(nu, scene.typical[0])), float(scene.typical[0])
        report["stationary"] = {"W_inf": level, "R_inf": stationary_leakage(level, typical, scene.leakage)}
    if inputs.method in ("adascale", "adascale-warm") and nu > 0:
        _tell_queue(report, excess[inputs.method], inputs.method, scene)
    return plain(report)


def _scene(inputs: Inputs, nu: float, floors: np.ndarray, rms: np.ndarray, setting: Setting) -> Scene:
    """What the methods are compared on: one nu, one trace."""
    deployment, message = setting.deployment(), setting.message()
    tuned_on = floors[None]
    if inputs.tuning != "hindsight":
        tuned_on = simulated_floors(rms, setting.T, inputs.seed, deployment, message)
    return Scene(
        nu=np.array([[nu]]),
        floors=floors[None],
        typical=variables.typical_floor(rms, deployment, message)[None],
        optimistic=variables.optimistic_floor(rms, deployment, message)[None],
        tuned_on=tuned_on[None],
        setting=setting,
        alpha=inputs.alpha,
        delta=inputs.delta,
        grid=17,
        given_V=inputs.V if nu > 0 else 1.0,
        max_floor=np.inf if inputs.max_floor is None else inputs.max_floor,
    )


def _tell_queue(report: dict[str, Any], excess: np.ndarray, method: str, scene: Scene) -> None:
    """V and the queue of the online method, with its certificate where the plan is what Algorithm 1 gives."""
    run, V = scene.run(warm=method == "adascale-warm")
    report["V"] = float(V[0, 0])
    report["rounds"]["Q"] = queue_of(excess, float(scene.nu[0, 0]), run.queue[0, 0, 0])[:-1]
    if _is_algorithm1(excess, V, method, scene):
        found = certify(run, V, scene.nu, scene.leakage)
        report["certificate"] = {name: value[0, 0] for name, value in found._asdict().items()}


def _excess(method: str, scene: Scene) -> np.ndarray:
    """(T,); nu = 0 leaves full power to every method."""
    return METHODS[method](scene)[0, 0] if scene.nu.item() > 0 else np.zeros(scene.floors.shape[-1])


def _is_algorithm1(excess: np.ndarray, V: np.ndarray, method: str, scene: Scene) -> bool:
    """Certificates are about Algorithm 1 itself: not where a skipped fade or a hard budget changed its schedule."""
    plain, _ = replace(scene, max_floor=np.inf, given_V=float(V[0, 0])).run(warm=method == "adascale-warm")
    return bool(np.allclose(plain.excess[0, 0], excess, rtol=1e-9, atol=1e-12))


def _described(setting: Setting) -> dict[str, Any]:
    return {
        **{key: getattr(setting, key) for key in ("M", "T", "d", "n", "B", "G", "P_max", "noise_power", "x_max")},
        "privacy_noise_power": setting.trusted_noise,
        "q": setting.q,
        "k_squared": setting.k_squared,
        "c": variables.unit_noise(setting.deployment(), setting.message()),
    }


def _rounds(excess: np.ndarray, floors: np.ndarray, setting: Setting) -> dict[str, Any]:
    deployment, message, noise = setting.deployment(), setting.message(), floors + excess
    energy = floors * setting.x_max  # D = d sigma_n^2 / h_min^2
    return {
        "t": np.arange(len(noise)),
        "h_min": np.sqrt(setting.d * setting.noise_power / energy),
        "D": energy,
        "f": floors,
        "y": excess,
        "N": noise,
        "x": setting.x_max * floors / noise,
        "eta": variables.receive_scaling(noise, deployment),
        "sigma": variables.noise_multiplier(noise, deployment, message),
    }


def _totals(excess: np.ndarray, sending: np.ndarray, scene: Scene, inputs: Inputs) -> dict[str, Any]:
    deployment, message, noise = scene.setting.deployment(), scene.setting.message(), scene.floors[0] + excess
    per_round = np.where(sending, scene.leakage.per_device(noise), 0.0)
    rdp = per_round.sum(0)
    if sending.all():
        eps = run_epsilon(noise, deployment, message, inputs.delta)
    else:
        eps = device_epsilon(np.where(sending, noise[:, None], np.inf), deployment, message, inputs.delta)
    totals = {
        "rdp": rdp,
        "rdp_mean": rdp.mean(),
        "rdp_worst": rdp.max(),
        "eps_rdp": eps,
        "eps_rdp_mean": eps.mean(),
        "eps_rdp_worst": eps.max(),
        "worst_device": int(np.argmax(eps)),
        "rdp_per_round_worst": per_round.max(-1),
        "mean_y": excess.mean(),
        "mean_f": scene.floors[0].mean(),
    }
    if np.any(np.isnan(rdp)) or np.any(np.isnan(eps)):
        raise FloatingPointError("the leakage of a round is no number")
    wanted = inputs.pld and eps.max() <= PLD_LIMIT
    return totals | (_pld(noise, sending, scene.setting, eps, inputs.delta) if wanted else {})


def _pld(noise: np.ndarray, sending: np.ndarray, setting: Setting, eps: np.ndarray, delta: float) -> dict[str, Any]:
    """Tighter epsilons. The mean over devices only where their kinds are few: each costs seconds."""
    sigma = np.where(sending, variables.noise_multiplier(noise, setting.deployment(), setting.message()), np.inf)
    kinds, member = np.unique(np.concatenate([sigma, setting.q[None]]), axis=1, return_inverse=True)
    member = member.ravel()
    worst = int(np.argmax(eps))
    wanted = range(kinds.shape[1]) if kinds.shape[1] <= PLD_GROUPS else [int(member[worst])]
    found = np.full(kinds.shape[1], np.nan)
    for kind in wanted:
        device = int(np.flatnonzero(member == kind)[0])
        try:
            found[kind] = pld_eps(sigma[:, device], setting.q[device], delta)
        except InputError:  # numbers that PLD cannot count; RDP has
            return {}
    per_device = found[member]
    mean = per_device.mean()  # NaN, written as null, where only the worst device was computed
    return {"eps_pld": per_device, "eps_pld_mean": mean, "eps_pld_worst": np.nanmax(per_device)}


def _compared(excess: dict[str, np.ndarray], scene: Scene, delta: float) -> list[dict[str, Any]]:
    noise = scene.floors[0] + np.stack(list(excess.values()))
    rdp = scene.leakage.per_device(noise).sum(-2)
    eps = run_epsilon(noise, scene.setting.deployment(), scene.setting.message(), delta)
    best = scene.leakage.per_device(scene.floors[0] + _excess("optimal", scene)).sum(-2).mean()
    return [
        {
            "method": method,
            "reconstruction": method in RECONSTRUCTIONS,
            "mean_y": excess[method].mean(),
            "rdp_mean": rdp[i].mean(),
            "rdp_worst": rdp[i].max(),
            "ratio_to_optimal": rdp[i].mean() / best,
            "eps_rdp_mean": eps[i].mean(),
            "eps_rdp_worst": eps[i].max(),
        }
        for i, method in enumerate(excess)
    ]


def _guarantee(setting: Setting) -> dict[str, str]:
    return {
        "unit": "one record of one device; the system's guarantee is that of the worst device",
        "adjacency": "zero-out: a record becomes an empty one that keeps its place; B, n and q = B / n are published",
        "accountant": "sum of sampled-Gaussian RDP, converted at the best order; PLD with sigma rounded down",
        "noise": f"receiver noise, {setting.trusted_noise:.4g} W of it trusted; no artificial noise",
        "sampling": "a fresh Poisson batch per round and device, hidden from the server together with its size",
        "outside": "replacement of a record, other releases, channel knowledge errors, clipping norms set from data",
    }


def _remarks(inputs: Inputs, scene: Scene) -> list[str]:
    found = []
    if inputs.tuning == "hindsight" or inputs.method == "optimal":
        found.append(
            "hindsight: the trace itself was used for tuning; a constant scaling tuned this way is the optimum"
        )
    if inputs.hard_budget:
        found.append(
            "hard_budget: once the cap is spent the last rounds run at full power; up to 53 times the optimum's "
            "leakage was measured; method = 'stat-water' re-solves instead"
        )
    if inputs.method in RECONSTRUCTIONS:
        found.append(f"{inputs.method} is a reconstruction of a method the paper only names")
    middle = float(np.median(scene.floors))
    if scene.floors.mean() > 3 * middle:
        found.append(
            f"deep fades rule the mean floor ({scene.floors.mean():.3g}, median {middle:.3g}): "
            "nu says little about accuracy"
        )
    return found


def _missed(gamma: float | None, conv_bound: float, excess: np.ndarray, nu: float) -> list[str]:
    """A method that spends more than its cap misses the target that the cap was made for."""
    if gamma is None or conv_bound <= gamma * (1 + 1e-12):
        return []
    return [
        f"gamma={gamma:g} IS NOT MET: conv_bound={conv_bound:.6g}, because the mean excess {excess.mean():.6g} is "
        f"above nu={nu:.6g}; hard_budget = true or method = 'stat-water' keeps it"
    ]


def show(report: dict[str, Any], console: Console) -> None:
    """Loud warnings first, then the run, what is certain about it, and the methods side by side."""
    say_remarks(console, report["warnings"])
    totals, rounds = report["totals"], report["rounds"]
    console.print(
        f"[bold]{report['method']}[/bold], nu {report['nu']:g}"
        + (f", V {report['V']:.4g} ({report['tuning']})" if "V" in report else "")
        + f": eta {min(rounds['eta']):.3g} to {max(rounds['eta']):.3g}, mean excess {totals['mean_y']:.4g}, "
        f"mean floor {totals['mean_f']:.4g}"
    )
    pld = f", {round_up(totals['eps_pld_worst'])} by PLD" if "eps_pld_worst" in totals else ""
    console.print(
        f"  RDP({report['alpha']}) {totals['rdp_worst']:.4g} worst device, {totals['rdp_mean']:.4g} mean; "
        f"eps {round_up(totals['eps_rdp_worst'])} by RDP{pld} at delta {report['delta']:g} (worst device)"
    )
    least = min(totals[name] for name in ("eps_rdp_worst", "eps_pld_worst") if name in totals)
    console.print(f"    {finds(from_eps(least, report['delta'], '').tpr_at_1pct)}")
    if "rounds_skipped" in totals:
        console.print(
            f"  {totals['rounds_skipped']} of {len(rounds['t'])} rounds skipped (deep fades), "
            f"{sum(totals['refusals'])} refusals by devices"
        )
    if "certificate" in report:
        _show_certificate(report["certificate"], console)
    heads = ("method", "mean excess", "RDP mean", "to Optimal", "eps mean", "eps worst")
    keys = ("mean_y", "rdp_mean", "ratio_to_optimal", "eps_rdp_mean", "eps_rdp_worst")
    rows = []
    for row in report["comparison"]:
        name = row["method"] + (" (reconstruction)" if row["reconstruction"] else "")
        rows.append([name, *(round_up(row[key]) if key in keys[-2:] else f"{row[key]:.4g}" for key in keys)])
    console.print(Fitted.of(heads, rows, words=("method",), title="the same channels, other methods"))
    for key, text in report["guarantee"].items():
        console.print(f"[dim]{key}: {text}[/dim]")


def _show_certificate(proof: dict[str, Any], console: Console) -> None:
    def paper(name: str) -> str:
        return f"paper {proof[name]:.3g}" + (", vacuous" if proof[f"{name}_vacuous"] else "")

    console.print(
        f"  violation {proof['violation']:.3g} <= {proof['violation_bound']:.3g} ({paper('violation_bound_paper')}); "
        f"queue {proof['final_queue']:.3g} <= {proof['queue_bound']:.3g} (paper {proof['queue_bound_paper']:.3g})"
    )
    console.print(
        f"  regret per round {proof['regret']:.3g} exact, <= {proof['regret_bound']:.3g} "
        f"({paper('regret_bound_paper')}) of leakage {proof['leakage']:.3g}; water level {proof['water_level']:.4g}, "
        f"full power in {proof['share_full_power']:.0%} of rounds"
    )


PLANNER = Planner(Inputs, keys, example(__file__, "adascale"), plan, show, pictures)
