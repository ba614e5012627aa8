"""`otafl plan eezofl`: noise budget, headroom, flooding, radio, traffic and security of an encrypted job."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from otafl.core.errors import Infeasible, InputError, OtaflError
from otafl.crypto import budget, choosing, feasibility
from otafl.crypto import ring as rings
from otafl.crypto.modes import secrecy
from otafl.crypto.parameters import LEAST_WIDTH, LIMITS, STANDARD, Parameters
from otafl.systems.eezofl import convergence
from otafl.systems.eezofl.from_experiment import keys
from otafl.systems.eezofl.planner_inputs import Devices, Inputs, channel_of, extreme, levelled
from otafl.systems.planning import Planner, example, unread
from otafl.systems.screen import Fitted, say_remarks

RINGS = {"4096": rings.RING_4096, "8192": rings.RING_8192}
NO_FLOODING = "no statistical flooding"
TERM_MEANING = {
    "A": "ephemeral secrets times key errors",
    "B1": "encryption errors of c0",
    "B2": "receiver noise on c0",
    "C1": "keys times encryption errors of c1",
    "C2": "keys times receiver noise on c1",
    "D": "receiver noise on shares",
    "E": "share noise (flooding)",
}


def choose(inputs: Inputs, channel: budget.Fading) -> tuple[Parameters, float | None]:
    """The job's parameters, and its smudging bits if it has any. Given values are kept, missing ones planned."""
    own = inputs.custom_ring
    ring = RINGS[inputs.ring] if inputs.ring else rings.Ring(own.n, tuple(own.primes))  # type: ignore[union-attr]
    shared = inputs.model_dump(
        include={"Mmax", "P", "guard", "short_shares", "sigma_e", "sigma_w", "secret", "allow_insecure"}
    )
    base = Parameters(ring, inputs.f or 0, inputs.Lambda_log2 or 0, **shared)
    if inputs.sigma_phi is not None:
        return dataclasses.replace(base, sigma_phi=inputs.sigma_phi), None
    bits = inputs.smudging_bits or 40.0
    if inputs.Lambda_log2 is not None:
        return choosing.flooded(base, channel, bits, inputs.mode, inputs.h_floor), bits
    limits = inputs.f, inputs.snr_db_max, inputs.h_floor
    return choosing.plan_parameters(base, channel, bits, inputs.tau, inputs.mode, *limits).parameters, bits


def _noise(p: Parameters, channel: budget.Fading, mode: str) -> dict[str, Any]:
    raw = budget.noise_budget(p.ring.n, channel, p.sigma_e, p.sigma_w, p.sigma_phi, p.secret_var)
    terms = budget.mode_terms(dataclasses.replace(p, count_rounding=False), channel, mode)  # EEZOFL 3.7 as it stands
    variance, true_variance = sum(terms.values()), budget.average_variance(p, channel, mode)
    return {
        "terms_real_channel": raw._asdict(),
        "B_eps_squared": raw.B_eps_squared,
        "terms_decoded_variance": terms,
        "decoded_variance": variance,
        "decoded_std": math.sqrt(variance),
        "decoded_std_rounded": math.sqrt(true_variance),  # errors are whole numbers
    }


def _smudging(p: Parameters, channel: budget.Fading, inputs: Inputs, bits: float | None) -> dict[str, Any]:
    residue = math.sqrt(budget.average_variance(p, channel, inputs.mode, sigma_phi=0.0)) * p.Lambda
    one_bit = budget.smudging_sigma(p, channel, 1.0, inputs.mode, inputs.h_floor)
    reached = bits if bits is not None else 1 + math.log2(p.sigma_phi / one_bit)
    hidden = p.layout.kept.size * inputs.rounds
    return {
        "sigma_phi": p.sigma_phi,
        "sigma_phi_log2": math.log2(p.sigma_phi),
        "residue_log2": math.log2(residue),
        "smudging_bits": reached,
        "coefficients_times_rounds": hidden,
        "smudging_bits_total": reached - 0.5 * math.log2(hidden),
        "covers": "all devices together" if inputs.h_floor is None else _one_honest(inputs),
        "label": NO_FLOODING if reached < 10 else f"{reached:.0f} bits per coefficient",
        "as_printed": _as_printed(p, channel, inputs, bits),
    }


def _as_printed(p: Parameters, channel: budget.Fading, inputs: Inputs, bits: float | None) -> dict[str, Any]:
    """The same flooding by the closed forms as they stand, which leave out that errors are rounded to whole numbers.

    The job's own sigma_phi drowns the residue that is there, which is a little wider.
    """
    plain = dataclasses.replace(p, count_rounding=False)
    if bits is not None:
        plain = choosing.flooded(plain, channel, bits, inputs.mode, inputs.h_floor)
    residue = math.sqrt(budget.average_variance(plain, channel, inputs.mode, sigma_phi=0.0)) * p.Lambda
    return {
        "sigma_phi": plain.sigma_phi,
        "sigma_phi_log2": math.log2(plain.sigma_phi),
        "residue_log2": math.log2(residue),
        "decoded_std": math.sqrt(budget.average_variance(plain, channel, inputs.mode)),
    }


def _one_honest(inputs: Inputs) -> str:
    fades = f", |h| >= {inputs.h_floor}" if inputs.mode == "fixed-point" else ""  # elsewhere shares are digital
    return f"one honest device{fades}"


def _radio(p: Parameters, channel: budget.Fading, inputs: Inputs) -> dict[str, Any]:
    """What the air asks for; of digital links, what it would ask for in their place."""
    mode = inputs.mode if _by_radio(inputs.mode) else "fixed-point"
    largest, gain = float(channel.Omega.max()), budget.air_gain(p, channel, mode)
    tolerance = feasibility.grid_tolerance(p, channel, inputs.tau, mode)
    needed = feasibility.accepted_snr_db(p.log2_q, p.scale_bits, inputs.tau, p.ring.n, channel.S_O, gain)
    return {
        "snr_db_unit_noise": feasibility.amplitude_snr_db(p.log2_q, largest, p.sigma_w),
        "snr_db_sum": feasibility.amplitude_snr_db(p.log2_q, channel.S_O, p.sigma_w),  # independent: powers add
        "snr_db_for_tau": needed,
        "receiver_bits": feasibility.receiver_bits(p.log2_q, channel.N, largest),
        "delta_for_tau": tolerance,
        "delta_for_tau_log2": math.log2(tolerance),
        "grid_assumption": feasibility.GRID_ASSUMPTION,
    }


def _by_radio(mode: str) -> bool:
    return mode != "digital"


def _security(p: Parameters) -> dict[str, Any]:
    level = p.security_bits
    return {
        "level_bits": level,
        "statement": f"{level} bits" if level else "none",
        "table": STANDARD,
        "limit_log2_q": LIMITS[128].get(p.ring.n),
        "least_sigma": LEAST_WIDTH[128],
        "secret": p.secret,
        "note": "the table is for ternary secrets; no estimator was run for sign secrets" if p.secret == "sign" else "",
        "insecure": level == 0,
    }


def _theorem(inputs: Inputs, channel: budget.Fading, variance: float) -> dict[str, Any] | None:
    if inputs.convergence is None:
        return None
    c = inputs.convergence
    if inputs.mode == "digital":  # weights are 1
        channel = budget.fading(np.ones(channel.N), np.ones(channel.N))
    constants = convergence.theorem2(channel, variance, **c.model_dump(exclude={"eps", "beta"}))
    start = c.L_f**2 * channel.N**2  # |grad F|^2 is at most this anywhere
    bound = constants.bound(inputs.rounds)
    schedule = convergence.Schedule(c.eta0, c.gamma0)
    constant = convergence.theorem2_schedule(c.eta0, c.gamma0, inputs.rounds)
    return constants._asdict() | {
        "b1": c.b1,
        "b2": c.b2 or math.sqrt(c.d),
        "bound": bound,
        "K_needed": constants.rounds_needed(c.eps, c.beta) if c.eps and c.beta else None,
        "vacuous": bound >= start,
        "trivial_bound": start,
        "schedule_conditions": schedule.check(),
        "constant_steps": {"eta": constant.eta0, "gamma": constant.gamma0},  # those that the bound is for
    }


def plan(inputs: Inputs, folder: Path) -> dict[str, Any]:
    """Everything about one job, JSON-ready. Raises `Infeasible` if the ring is too small for what is asked."""
    try:
        with np.errstate(over="raise", divide="raise", invalid="raise"):
            return _on_site(inputs, folder / inputs.devices) if isinstance(inputs.devices, str) else _plan(inputs)
    except OtaflError:
        raise
    except (ArithmeticError, ValueError) as error:  # overflow, or the logarithm of an underflow
        name, value = extreme(inputs)
        said = f"{name}={value!r} is out of range: the plan leaves double precision; check its unit"
        raise InputError(said) from error


def _on_site(inputs: Inputs, path: Path) -> dict[str, Any]:
    """The plan for the devices of a deployment file, with the SNR that they offer beside the one that is needed."""
    site = levelled(path)
    if inputs.bandwidth_hz not in (None, site.bandwidth_hz):
        said = f"bandwidth_hz={inputs.bandwidth_hz:g} but {path.name} says {site.bandwidth_hz:g}"
        raise InputError(f"{said}; give it in one place")
    result = _plan(inputs.model_copy(update={"devices": site.devices, "bandwidth_hz": site.bandwidth_hz}))
    result["site"] = {"file": path.name, "snr_db": site.snr_db}
    result["warnings"].append(f"{path.name}: samples are not used: encrypted sums weigh every device alike")
    if _by_radio(inputs.mode):
        result["warnings"].append(
            f"{path.name}: gains are levelled to the weakest device, which offers an SNR of {site.snr_db:.1f} dB; "
            f"tau needs {result['radio']['snr_db_for_tau']:.1f} dB"
        )
    return result


def _plan(inputs: Inputs) -> dict[str, Any]:
    assert isinstance(inputs.devices, Devices)
    channel = channel_of(inputs.devices)
    p, bits = choose(inputs, channel)
    room = budget.headroom(p, channel, inputs.mode)
    noise = _noise(p, channel, inputs.mode)
    result = {
        "scheme": "eezofl",
        "mode": inputs.mode,
        "secrecy": secrecy(inputs.mode, p),
        "n": p.ring.n,
        "log2_q": p.log2_q,
        "primes": list(p.ring.primes),
        "q": p.ring.q,
        "N": channel.N,
        "K": inputs.rounds,
        "mu": channel.mu.tolist(),
        "Omega": channel.Omega.tolist(),
        "S_O": channel.S_O,
        "X": channel.X,
        "f": p.f,
        "f_max": budget.largest_f(p, channel, inputs.mode),
        "Lambda": p.Lambda,
        "Lambda_log2": p.scale_bits,
        "sigma_phi": p.sigma_phi,
        "P": p.P,
        "noise": noise,
        "tau": inputs.tau,
        "tau_met": noise["decoded_std_rounded"] <= inputs.tau,
        "headroom_bits": room._asdict() | {"least": room.least, "binding": room.binding},
        "smudging": _smudging(p, channel, inputs, bits),
        "radio": _radio(p, channel, inputs),
        "traffic": feasibility.traffic(p, inputs.bandwidth_hz, inputs.mode)._asdict(),
        "security": _security(p),
        "convergence": _theorem(inputs, channel, noise["decoded_variance"]),
        "warnings": unread(inputs, (inputs.mode != "digital", "modes over the air", ("sigma_w",))),
    }
    if channel.N == 1:
        result["warnings"].append("N=1: a sum over one device hides nothing from the server")
    if room.least < 0:
        largest = math.floor(p.scale_bits + room.least)
        raise Infeasible(
            f"f={p.f}, Lambda=2^{p.scale_bits} overflow q=2^{p.log2_q:.1f} by {-room.least:.1f} bits ({room.binding}); "
            + (
                f"the largest f is {result['f_max']} at this Lambda, "
                if result["f_max"] >= 0
                else "no f fits this Lambda, "
            )
            + (f"the largest Lambda 2^{largest} at this f" if largest >= 0 else "no Lambda fits this f"),
            result,
        )
    return result


def show(result: dict[str, Any], console: Console) -> None:
    """Two tables: the noise by term, and what it all costs."""
    terms = result["noise"]["terms_decoded_variance"]
    total = sum(terms.values())
    rows = [(name, TERM_MEANING[name], f"{value:.3e}", f"{value / total:.1%}") for name, value in terms.items()]
    rows.append(("sum", f"standard deviation {result['noise']['decoded_std']:.3e}", f"{total:.3e}", ""))
    title = f"Noise of one decoded sum ({result['mode']}, n={result['n']}, f={result['f']})"
    console.print(Fitted.of(("term", "meaning", "variance", "share"), rows, words=("term", "meaning"), title=title))
    console.print(_facts(result))
    if result["security"]["insecure"]:
        console.print("[bold red]This parameter set is outside the security table: nothing here is secret.[/]")
    say_remarks(console, result["warnings"])
    if result["smudging"]["label"] == NO_FLOODING:
        console.print("[yellow]Share noise floods nothing: decrypted sums leak the size of the keys.[/]")


def _facts(result: dict[str, Any]) -> Fitted:
    radio, traffic, smudging, room = (result[k] for k in ("radio", "traffic", "smudging", "headroom_bits"))
    security = result["security"]
    rows = [
        ("target", f"tau {result['tau']:g}: {'met' if result['tau_met'] else 'NOT met'}"),
        ("scale", f"Lambda 2^{result['Lambda_log2']}, f {result['f']} (largest {result['f_max']})"),
        ("headroom", f"{room['least']:.1f} bits ({room['binding']})"),
        ("flooding", f"sigma_phi 2^{smudging['sigma_phi_log2']:.1f}, {smudging['label']}; {smudging['covers']}"),
        ("whole job", f"{smudging['smudging_bits_total']:.1f} bits for {smudging['coefficients_times_rounds']} values"),
        *(_on_the_air(radio) if _by_radio(result["mode"]) else []),
        ("ciphertext", f"{traffic['ciphertext_bytes']:,} bytes, {traffic['expansion']:,.0f} times the scalar"),
        ("uplink", f"{traffic['uplink_bits']:,} bits{_lasting(traffic['digital_seconds'], ' at 1 bit/s/Hz')}"),
        ("analog", f"{traffic['symbols']:,} symbols{_lasting(traffic['analog_seconds'])}"),
        ("secrecy", result["secrecy"]),
        ("security", f"{security['statement']} ({security['table']}); secret {security['secret']}"),
    ]
    if result["convergence"]:
        theorem = result["convergence"]
        word = "vacuous: above the trivial bound" if theorem["vacuous"] else "informative"
        rows.append(("Theorem 2", f"bound {theorem['bound']:.3g}, rho {theorem['rho']:.3g} ({word})"))
    table = Fitted(title="What it takes", show_header=False)
    for row in rows:
        table.add_row(*row)
    return table


def _on_the_air(radio: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("SNR, unit noise", f"{radio['snr_db_unit_noise']:.1f} dB, of the sum {radio['snr_db_sum']:.1f} dB"),
        ("SNR for tau", f"{radio['snr_db_for_tau']:.1f} dB"),
        ("receiver", f"{radio['receiver_bits']} bits"),
        ("grid", f"{radio['grid_assumption']}; tolerance 2^{radio['delta_for_tau_log2']:.1f}"),
    ]


def _lasting(seconds: float | None, rate: str = "") -> str:
    return "" if seconds is None else f", {seconds:.3g} s{rate}"


def pictures(result: dict[str, Any], folder: Path) -> list[Path]:
    """The noise budget as one stacked bar of linear shares, and as points over decades, where no bar begins at zero."""
    from matplotlib.figure import Figure

    terms = {name: value for name, value in result["noise"]["terms_decoded_variance"].items() if value > 0}
    total = sum(terms.values())
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    stacked, decades = figure.subplots(1, 2, width_ratios=(2, 3))
    base = 0.0
    for name, value in terms.items():
        stacked.bar(0, value / total, bottom=base, width=0.5, label=name)
        base += value / total
    stacked.set_xticks([])
    stacked.set_ylabel("share of decoded variance")
    stacked.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    decades.plot(list(terms.values()), list(terms), "o")
    decades.set_xscale("log")
    decades.grid(alpha=0.3)
    decades.invert_yaxis()
    decades.axvline(result["tau"] ** 2, color="black", linestyle="--", linewidth=1, label="tau²")
    decades.set_xlabel("decoded variance")
    decades.legend(frameon=False)
    figure.suptitle(f"Noise budget: {result['mode']}, n={result['n']}, f={result['f']}, Λ=2^{result['Lambda_log2']}")
    path = folder / "noise-budget.png"
    figure.savefig(path, dpi=150)
    return [path]


PLANNER = Planner(Inputs, keys, example(__file__, "eezofl"), plan, show, pictures, errors=True)
