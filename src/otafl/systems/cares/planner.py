"""`otafl plan cares`: which receive scalings meet convergence, privacy and participation targets. No training."""

import math
from pathlib import Path
from typing import Any

from rich.console import Console

from otafl.core import validate
from otafl.core.errors import Infeasible, InputError
from otafl.core.files import plain
from otafl.privacy.attack import equivalent_mu, worth
from otafl.privacy.card_text import round_up
from otafl.systems.cares.certifier import NO_CERTIFICATE, Certificate, auto_grid, certify
from otafl.systems.cares.from_experiment import keys
from otafl.systems.cares.picture import draw_trilemma
from otafl.systems.cares.planned_sequence import certify_planned
from otafl.systems.cares.planner_inputs import Inputs, problem_of
from otafl.systems.cares.relax import reward_alone, rounded_up
from otafl.systems.cares.summary import summarise
from otafl.systems.planning import Planner, example, unread
from otafl.systems.screen import Fitted, say_left_out, say_remarks, some_of

MAX_CLIENTS = 100_000
MAX_CELLS = 3e6  # drop probabilities, arms times clients
MAX_ROUNDS = 1_000_000  # of a sequence
MAX_SEQUENCE = 2e7  # its rounds times clients
ESTIMATED = (
    "channel_scale is an estimate, and envelopes of an estimate bound nothing (CARES E16); certify_with = 'limits' "
    "certifies by mu_low and mu_high"
)


def plan(inputs: Inputs, folder: Path) -> dict[str, Any]:
    """Certify the arms; raises Infeasible with the whole report unless diagnostic = true."""
    problem, warned = problem_of(inputs, folder)
    if inputs.rounds is not None:
        validate.whole("rounds", inputs.rounds)
    _check_sizes(inputs, problem.weights.size)
    arms = auto_grid(problem, inputs.num_arms, inputs.eta_min) if inputs.arms == "auto" else inputs.arms
    if inputs.num_clients not in (None, problem.weights.size):
        raise InputError(f"num_clients={inputs.num_clients} but {problem.weights.size} clients are given")
    certificate = certify(problem, arms, inputs.conv_target, inputs.diagnostic)
    report: dict[str, Any] = plain(summarise(problem, certificate, inputs.rounds))
    report["warnings"] += warned + _unread(inputs)
    if inputs.antennas > 1 and "exposure" not in inputs.model_fields_set:
        report["label"] = NO_CERTIFICATE
        report["warnings"].append(
            "exposure is not stated: costs and horizons are those of clients that lie along the beam in every round "
            "(1/cos^2 = 1)"
        )
    limited = (inputs.num_pilots, inputs.mu_low, inputs.mu_high) != (None, None, None)
    if inputs.certify_with == "estimate" and limited:
        report["label"] = NO_CERTIFICATE
        report["warnings"].append(ESTIMATED)
    if inputs.rx_scale is not None:
        scale = inputs.rx_scale if isinstance(inputs.rx_scale, list) else [inputs.rx_scale] * (inputs.rounds or 1)
        report["sequence"] = plain(certify_planned(problem, scale, inputs.predictable)._asdict())
    if not certificate.feasible and not inputs.diagnostic:
        raise Infeasible(reward_alone(problem) or _explain(report, certificate), report)
    return report


def _unread(inputs: Inputs) -> list[str]:
    return unread(
        inputs,
        (inputs.arms == "auto", "arms = 'auto'", ("num_arms", "eta_min")),
        (inputs.rx_scale is not None, "rx_scale", ("predictable",)),
        (inputs.certify_with == "limits", "certify_with = 'limits'", ("num_pilots",)),
        (inputs.num_pilots is not None, "num_pilots", ("failure_prob",)),
        (inputs.silence == "bound", "silence = 'bound'", ("batch_size", "batch_sizes")),
        (inputs.local_steps > 1, "local_steps > 1", ("example_smoothness",)),
    )


def _check_sizes(inputs: Inputs, clients: int) -> None:
    """What would not end within a minute is refused before it is tried."""
    validate.at_most("clients", clients, MAX_CLIENTS, "group those that are alike")
    arms = inputs.num_arms if inputs.arms == "auto" else len(inputs.arms)
    validate.at_most(f"arms x clients = {arms} x {clients}", arms * clients, MAX_CELLS, "give fewer arms")
    if inputs.rx_scale == []:
        raise InputError("rx_scale must be a non-empty list")
    if inputs.rx_scale is not None:
        rounds = len(inputs.rx_scale) if isinstance(inputs.rx_scale, list) else inputs.rounds or 1
        validate.whole("rounds", rounds, 1, MAX_ROUNDS)
        sizes = f"rounds of rx_scale x clients = {rounds} x {clients}"
        validate.at_most(sizes, rounds * clients, MAX_SEQUENCE, "plan fewer rounds")


SETS = {"C": "convergence target kept", "P": "privacy", "Q": "asymmetry", "U": "dropped weight", "F": "all four"}


def _explain(report: dict[str, Any], certificate: Certificate) -> str:
    lines = [f"none of {len(certificate.arms.rx_scale)} arms meets all four targets (certified infeasible)"]
    possible = [r["text"] for r in report["relaxations"] if r["value"] is not None]
    if not possible:
        nearest = report["nearest_arm"]
        needs = ", ".join(f"{name} >= {rounded_up(value)}" for name, value in nearest["needs"].items())
        possible = [f"no single target helps; nearest arm rx_scale={nearest['rx_scale']:.6g} needs {needs}"]
    if not certificate.conv_target_given and math.isfinite(certificate.conv_target):
        possible.append(f"conv_target held at {certificate.conv_target:.6g}, twice the best bound on the grid")
    return "; ".join(lines + possible)


def show(report: dict[str, Any], console: Console) -> None:
    """A table of arms, then the choice, the sets, both privacy levels and what to know about them."""
    rows = _shown(report)
    console.print(_table(report, rows))
    say_left_out(console, len(rows), len(report["arms"]), "arms")
    if report["feasible"]:
        i = report["init"]
        default = math.isclose(report["conv_target"], 2 * min(report["conv_bound"]))
        console.print(
            f"[bold]rx_scale = {report['eta_init']:.6g}[/bold] for {report['horizon'][i]} rounds: "
            f"convergence bound {report['conv_bound'][i]:.4g} (target {report['conv_target']:.4g}"
            f"{', twice the best of all arms' if default else ''})"
        )
    else:
        console.print(
            f"[bold]{report['label']}[/bold]"
            + (f", going on from rx_scale = {report['eta_init']:.6g}" if report["eta_init"] else "")
        )
    _show_privacy(report, console)
    _show_reward(report, console)
    sets = report["sets"]
    for name, kept in SETS.items():
        pieces = " ∪ ".join(f"[{low:.5g}, {high:.5g}]" for low, high in sets[name]) or "empty"
        console.print(f"  {name}, {kept}, at {sets['rounds']} rounds: {pieces}")
    console.print("  F_H: arms that keep all four, each at its own number of rounds")
    if "sequence" in report:
        run = report["sequence"]
        bound = run["conv_bound"]["total"]
        console.print(f"  rx_scale as given, {run['label']}: bound {bound:.4g}, eps {round_up(run['eps'])}")
    console.print(f"  closed forms: eta_LT {report['eta_LT']:.4g}, eta_budget {report['eta_budget']:.4g}")
    for line in [r["text"] for r in report["relaxations"]]:
        console.print(f"  {line}")
    say_remarks(console, report["warnings"], report["notes"])


def _shown(report: dict[str, Any]) -> list[int]:
    """The arms to print, the chosen one and the ends of F_H among them."""
    feasible = [i for i, good in enumerate(report["feasible_arms"]) if good]
    chosen = [] if report["init"] is None else [report["init"]]
    return some_of(len(report["arms"]), [*chosen, *feasible[:1], *feasible[-1:]])


def _table(report: dict[str, Any], rows: list[int]) -> Fitted:
    table = Fitted(title=f"CARES: {report['label']} ({report['constants']['set']} constants)")
    for column in ("rx_scale", "rounds", "F_H", "conv. bound", "fails", "zCDP/round", "dropped", "asymmetry", "binds"):
        table.add_column(column, justify="left" if column in ("binds", "fails") else "right")
    for i in rows:
        fails = [name for name, good in report["passes"].items() if not good[i]]
        bound, *numbers = (report[key][i] for key in ("conv_bound", "zcdp_cost", "dropped_weight", "asymmetry"))
        chosen = "[bold]" if i == report["init"] else ""
        table.add_row(
            f"{chosen}{report['arms'][i]:.5g}",
            str(report["horizon"][i]),
            "yes" if report["feasible_arms"][i] else "no",
            f"{float(bound):.4g}",
            ", ".join(fails),
            *(f"{float(number):.4g}" for number in numbers),
            report["binding"][i],
        )
    return table


def _show_privacy(report: dict[str, Any], console: Console) -> None:
    """Two promises, two lines: they are never mixed in one column."""
    if report["init"] is None:
        return
    for level, entry in report["privacy"].items():
        if entry is None:
            console.print("  record level: not defined without batch_sizes and silence = 'bound'")
            continue
        classic, exact = (entry[f"eps_{name}_at_horizon"][report["init"]] for name in ("classic", "gaussian"))
        budgeted = " (the budget)" if level == report["granularity"] else ""
        console.print(
            f"  {level} level{budgeted}: eps {round_up(classic)} classic, {round_up(exact)} exact, "
            f"delta {report['delta']:g}; {entry['unit']}"
        )
        console.print(f"    {worth(equivalent_mu(exact, report['delta']))}")


def _show_reward(report: dict[str, Any], console: Console) -> None:
    if report["reward_data"] == "public":
        console.print("  reward (of the controller): on public data, free")
        return
    console.print(
        f"  reward (of the controller): noisy accuracy on the clients' data, std {report['reward_noise']:g}: "
        f"zCDP {report['reward_zcdp']:.4g} at {report['granularity']} level in every round, included above"
    )


PLANNER = Planner(Inputs, keys, example(__file__, "cares"), plan, show, draw_trilemma, antennas=True, errors=True)
