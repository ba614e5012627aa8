"""docs/performance.md from benchmarks.json: blocks between `<!-- bench:NAME -->` and `<!-- /bench -->`, and its plot.

python benchmarks/page.py             fill the page again from the JSON, measuring nothing
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "performance.md"
PLOT = HERE.parent / "docs" / "images" / "performance-scale.svg"
BLOCK = re.compile(r"(<!-- bench:(\w+) -->\n).*?(<!-- /bench -->)", re.DOTALL)
WAYS = ("one process", "a process per core")
Found = dict[str, Any]


def table(head: str, rows: list[list[str]]) -> str:
    names = head.split(" | ")
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def pair(values: list[float], form: str = ".2f") -> str:
    return " / ".join(format(value, form) for value in values)


def ms(told: Found) -> str:
    """Milliseconds per unit in both arrangements."""
    return pair([1e3 / told[way]["per_s"] for way in WAYS], ".3g")


def mib(told: Found) -> str:
    return pair([told[way]["peak_mib"] for way in WAYS], ".0f")


# --- blocks ------------------------------------------------------------------------------------------------------


def facts(parts: Found, told: Found) -> str:
    versions = ", ".join(f"{name} {value}" for name, value in told["facts"]["versions"].items() if value)
    minutes = sum(part["seconds"] for part in parts.values()) / 60
    dates = " and ".join(sorted({part["date"] for part in parts.values()}))
    return (f"`make bench`, {dates}, {told['facts']['cores']} cores ({told['facts']['processor']}), "
            f"Python {told['facts']['python']}, {versions}; {minutes:.0f} minutes for all of it; load of the machine "
            f"at the start {told['facts']['load_at_start']:.1f}.")  # fmt: skip


def rounds(found: Found) -> str:
    rows = []
    for case, told in found["rounds"].items():
        own = [case, "**otafl**", ms(told["ours"]), "1", f"{told['share_of_peak']:.0%}", mib(told["ours"])]
        rows.append(own)
        for peer, theirs in told["peers"].items():
            ratios = pair([theirs["time_over_ours"][way] for way in WAYS], ".1f")
            share = told["share_of_peak"] / theirs["quoted"]
            rows.append(["", peer, ms(theirs), f"{ratios}: **{theirs['quoted']:.1f}**", f"{share:.0%}", mib(theirs)])
    giga = {library: [told[way]["per_s"] / 1e9 for way in WAYS] for library, told in found["peak"].items()}
    peak = "; ".join(f"{library} {pair(values, '.0f')}" for library, values in giga.items())
    head = "round | software | ms per seed and round | time over ours | share of the peak | peak MiB"
    said = f"The peak is the best of large float32 products in the same run, GFLOP/s: {peak}."
    if turns := found.get("poisson_over_fixed"):
        said += (f" Poisson batches take {turns['time_over_other']:.2f} times as long as fixed ones of that size, both"
                 f" taking {turns['turns']} turns in one process.")  # fmt: skip
    return f"{table(head, rows)}\n\n{said}"


def federation(found: Found) -> str:
    rows = []
    for case in found.values():
        ours = case["ours"]
        size = f"{case['clients']} clients, {case['rounds']} rounds"
        rows.append([size, "**otafl**, one seed", f"{1e3 * ours['round_s']:.2f}", "1", f"{ours['whole_s']:.1f}",
                     f"{ours['peak_mib']:.0f}"])  # fmt: skip
        for way, told in case["Flower"].items():
            ratio = told["round_s"] / ours["round_s"]
            rows.append(["", f"Flower, {way}", f"{1e3 * told['round_s']:.0f}", f"{ratio:.0f}",
                         f"{told['whole_s']:.1f}", f"{told['peak_mib']:.0f}"])  # fmt: skip
    return table("federation | software | ms per round | time over ours | s of the whole process | peak MiB", rows)


def encryption(found: Found) -> str:
    rows = []
    for n, told in found.items():
        rows.append([f"n = {n}", "**otafl**, ten devices at a time", ms(told["ours"]), "1", mib(told["ours"])])
        if theirs := told.get("TenSEAL"):
            ratios = pair([theirs["time_over_ours"][way] for way in WAYS], ".1f")
            rows.append(["", "TenSEAL", ms(theirs), f"{ratios}: **{theirs['quoted']:.1f}**", mib(theirs)])
    return table("ring | software | ms per encryption | time over ours | peak MiB", rows)


def crypto(found: Found) -> str:
    by_work: dict[str, dict[str, str]] = {}
    for row in found["rows"]:
        by_work.setdefault(row["what"], {})[row["set"]] = f"{row['wall_ms']:.2f} / {row['cpu_ms']:.2f}"
    sets = sorted({row["set"] for row in found["rows"]})
    rows = [[what, *(times.get(one, "") for one in sets)] for what, times in by_work.items()]
    return table(f"work | {' | '.join(sets)}", rows)


def scale(found: Found) -> str:
    rows = []
    for axis, points in found["points"].items():
        slopes = found["slopes"][axis]
        for number, point in enumerate(points):
            last = number == len(points) - 1
            told = [f"{slopes[name]:.2f}" if last else "" for name in ("rounds_seconds", "seconds", "peak_mib")]
            rows.append([axis if not number else "", f"{point[axis]:,}", f"{point['rounds_seconds']:.1f}",
                         f"{point['seconds']:.1f}", f"{point['peak_mib']:.0f}",
                         f"{point['updates_per_s_of_rounds']:,.0f}", *told])  # fmt: skip
    head = ("against | how many | s of rounds | s of the command | peak MiB | client updates/s | "
            "slope: rounds | command | memory")  # fmt: skip
    picture = f"![Time and memory against clients, seeds, parameters and rounds](images/{PLOT.name})"
    return f"{picture}\n\n{table(head, rows)}"


def solvers(parts: Found) -> str:
    lines = []
    for name, told in parts.get("accounting", {}).items():
        lines.append(f"- Rényi accounting of {told['rounds']:,} rounds and {told['clients']} devices, a noise level "
                     f"each, {name.replace('1 rates', 'one rate')}, {told['orders']} orders: {told['cpu_s']:.2f} s of "
                     f"CPU time, {told['ratio']:,.0f} times less than dp-accounting's for as many events."
                     )  # fmt: skip
    for name, told in parts.get("biasvar", {}).items():
        if "sca_ms" in told:
            text = f"{told['exact_ms']:.2f} ms, {told['ratio']:.0f} times less than successive convex approximation"
        elif "ratio_to_one_by_one" in told:
            text = f"{1e3 * told['seconds']:.1f} ms, {told['ratio_to_one_by_one']:.1f} times less than one by one"
        else:
            text = f"{told['seconds']:.3f} s"
        lines.append(f"- Bias-variance design, {name}: {text} (CPU time).")
    if told := parts.get("adascale"):
        lines.append(f"- AdaScale's Figure 1, leakage, {told['methods']} methods, 5 caps, 3 seeds, 500 rounds: "
                     f"{told['wall_s']:.1f} s, {told['cpu_s']:.1f} s of CPU time; 15 values of V at once "
                     f"{told['scalar_loop_over_ours']:.0f} times faster than a scalar loop.")  # fmt: skip
    return "\n".join(lines)


def flower_overhead(found: Found) -> str:
    rows = [
        [str(told["nodes"]), told["noise"], f"{1e3 * told['fedavg_wall_s']:.0f} ms",
         f"{told['send_cpu_over_fedavg']:.2f} ({told['send_wall_over_fedavg']:.2f})",
         f"{told['send_and_noise_cpu_over_fedavg']:.2f}",
         f"{told['round_cpu_over_fedavg']:.2f} ({told['round_wall_over_fedavg']:.2f})"]
        for told in found.values()
    ]  # fmt: skip
    return table("nodes | noise | FedAvg's `aggregate_train` | `Air.send` | with its noise | whole round", rows)


SINGLE: dict[str, Callable[[Found], str]] = {
    "rounds": rounds, "federation": federation, "encryption": encryption, "crypto": crypto, "scale": scale,
    "flower_overhead": flower_overhead,
}  # fmt: skip


def filled(text: str, told: Found) -> str:
    """The page with every block made from the numbers; one without numbers says so."""
    parts = {name: part["found"] for name, part in told["parts"].items() if "found" in part}

    def block(match: re.Match[str]) -> str:
        name = match[2]
        if name == "facts":
            body = facts(told["parts"], told)
        elif name == "solvers":
            body = solvers(parts)
        else:
            body = SINGLE[name](parts[name]) if name in parts else "Not measured in the last run."
        return f"{match[1]}{body}\n{match[3]}"

    return BLOCK.sub(block, text)


def plot(found: Found, out: Path) -> None:
    """Cost on logarithmic axes: seconds above, memory below."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator

    from otafl.reports.plots import COLOURS, STYLE, as_svg

    costs = {"seconds": "whole command", "rounds_seconds": "rounds", "peak_mib": "peak memory"}
    with matplotlib.rc_context(STYLE | {"svg.hashsalt": "otafl"}):  # the same numbers make the same bytes
        figure = Figure(figsize=(11, 5.2), layout="constrained")
        panels = figure.subplots(2, len(found["points"]), sharey="row", sharex="col", squeeze=False)
        for column, (axis, points) in enumerate(found["points"].items()):
            for line, names in enumerate((("seconds", "rounds_seconds"), ("peak_mib",))):
                axes = panels[line, column]
                for name, colour in zip(names, COLOURS):
                    label = f"{costs[name]}, slope {found['slopes'][axis][name]:.2f}"
                    axes.loglog([p[axis] for p in points], [p[name] for p in points], "o-", label=label, color=colour)
                axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                axes.set(xlabel=axis if line else "", ylabel="" if column else ("seconds", "MiB")[line])
                axes.legend(loc="upper left")
        panels[0, 0].set_ylim(top=2 * panels[0, 0].get_ylim()[1])  # room for the names
        panels[1, 0].set_ylim(top=1.3 * panels[1, 0].get_ylim()[1])
        out.write_text(as_svg(figure), encoding="utf-8")


def fill(told: Found) -> None:
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), told), encoding="utf-8")
    if "found" in told["parts"].get("scale", {}):
        plot(told["parts"]["scale"]["found"], PLOT)
    print(f"{PAGE.relative_to(HERE.parent)}, {PLOT.relative_to(HERE.parent)}")


if __name__ == "__main__":
    fill(json.loads((HERE / "benchmarks.json").read_text(encoding="utf-8")))
