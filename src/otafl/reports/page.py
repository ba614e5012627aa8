"""The page: one HTML file with its style, its script and its data inside. Everything that a user named is escaped."""

import json
from html import escape
from importlib.resources import files
from typing import Any, NamedTuple

from otafl.reports.sections import cards, certificates, comparison, constants, facts, run_details

SCRIPTS = ("numbers.js", "lines.js", "devices.js", "sort.js", "page.js")


class Chart(NamedTuple):
    """One figure: where its numbers are and how to read them. The script draws it, the same words describe it."""

    id: str
    title: str
    caption: str
    kind: str = "line"  # line, bars or heat
    table: str = "rounds"
    column: str = ""
    label: str = ""  # of the vertical axis
    log: bool = False
    over_eps: bool = False
    share: bool = False  # values lie in [0, 1]
    whole: bool = False  # the axis shows all of [0, 1]
    on_air: bool = False  # only schemes that transmit
    wide: bool = False
    over: str = "round"  # what the horizontal axis counts


LEARNING = (
    Chart("accuracy", "Accuracy", "Held-out accuracy of the global model.", table="evaluations", column="accuracy",
          label="accuracy", share=True, over_eps=True, wide=True),
    Chart("worst_client", "Worst client", "Accuracy on the label mix of the client that is served worst.",
          table="evaluations", column="worst_client", label="accuracy", share=True, over_eps=True),
    Chart("loss", "Loss", "Cross-entropy, or the model's own loss, on held-out data, without any penalty.",
          table="evaluations", column="loss", label="loss", over_eps=True),
)  # fmt: skip
PENALTY = Chart("penalty", "Penalty", "The l2 term that training adds to the loss.", table="evaluations",
                column="penalty", label="penalty", over_eps=True)  # fmt: skip
PRIVACY = (
    Chart("eps", "ε spent", "Worst client's ε after so many rounds; the dashed line is the cap.", table="evaluations",
          column="eps", label="ε"),
    Chart("tradeoff", "What an attacker can do",
          "Most true cases found at a share of false alarms, knowing all other data; the diagonal is guessing.",
          table="tradeoff", column="power", label="true cases found, %", over="false alarms, %"),
    Chart("device_eps", "ε of each device", "What each device has spent in the seed that spent most.", kind="bars",
          label="ε"),
)  # fmt: skip
AIR = (
    Chart("silence", "Who was silent", "Share of seeds in which a device did not send its update in a round.",
          kind="heat", wide=True),
    Chart("energy", "Transmit energy", "Dot: mean over rounds and seeds. Tip: largest of all. Level line: limit.",
          kind="bars", label="J per round", log=True, on_air=True),
    Chart("energy_share", "Energy used of the limit", "Largest share over devices, per round.", column="energy_share",
          label="energy / limit", on_air=True),
    Chart("sent_weight", "Weight that was sent", "Sum of the weights of the devices that sent.", column="sent_weight",
          label="weight", share=True, whole=True),
    Chart("snr", "Received SNR", "Energy of the received signal over that of the noise.", column="snr", label="SNR",
          log=True),
    Chart("rx_scale", "Receive scaling", "What the plan makes the server divide by.", column="rx_scale",
          label="rx_scale"),
    Chart("noise_std", "Effective noise", "Standard deviation per coordinate, after dividing by the receive scaling.",
          column="noise_std", label="noise std"),
    Chart("clipped_share", "Clipped", "Share of devices whose message was clipped.", column="clipped_share",
          label="share of devices", share=True, whole=True),
    Chart("update_norm", "Norm of the update", "What the server received, before the step size.", column="update_norm",
          label="norm"),
)  # fmt: skip


def render(data: dict[str, Any]) -> str:
    """The whole page."""
    policy = info_charts(data)
    learning = (*_metric(data["metric"]), *LEARNING)
    learning = (*learning, PENALTY) if _any_positive(data, "evaluations", "penalty") else learning
    sections = [
        ("results", "Results", comparison(data)),
        ("learning", "Learning", axis_choice() + figures(learning, data) + small(data.get("thinned", ""))),
        ("privacy", "Privacy", figures(PRIVACY, data) + cards(data["schemes"])),
        ("air", "On the air", figures(AIR, data)),
        ("policy", "What the policy saw", figures(policy, data) + constants(data)),
        ("certificate", "Certificate", certificates(data["schemes"])),
        ("details", "Config, versions, data", "".join(map(run_details, data["runs"]))),
    ]
    sections = [section for section in sections if section[2]]
    drawn = {chart.id: chart._asdict() for chart in (*learning, *PRIVACY, *AIR, *policy)}
    nav = "".join(f'<a href="#{id_}">{escape(title)}</a>' for id_, title, _ in sections)
    body = "".join(_section(*section, folds=n > 0) for n, section in enumerate(sections))
    inside = asset("page.html").format(
        title=escape(data["title"]),
        facts=facts(data),
        nav=nav,
        notes="".join(f'<p class="note" role="note">{escape(note)}</p>' for note in data["notes"]),
        body=body,
        data=embed({"report": data, "charts": drawn}),
        script="\n".join(asset(name) for name in SCRIPTS),
    )
    return framed(data["title"], inside)


def framed(title: str, body: str, style: str = "") -> str:
    """A page that stands on its own; `body` is HTML."""
    style = asset("page.css") + style
    return asset("frame.html").format(title=escape(title), style=style, theme=asset("theme.js"), body=body)


def _section(id_: str, title: str, content: str, folds: bool) -> str:
    """One part of the page; all but the first can be folded, and are on a phone."""
    head = f'<h2 id="{id_}-title">{title}</h2>'
    inside = f'<details class="fold" open><summary>{head}</summary>{content}</details>' if folds else head + content
    return f'<section id="{id_}" aria-labelledby="{id_}-title">{inside}</section>'


def embed(value: Any) -> str:
    """JSON that no text inside it can end: `<`, `>` and `&` are written as escapes, which JSON reads back."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def info_charts(data: dict[str, Any]) -> list[Chart]:
    """One chart per quantity that some policy reports about itself and that changes over its run."""
    tables = [scheme["rounds"]["columns"] for scheme in data["schemes"] if scheme.get("rounds")]
    names = dict.fromkeys(
        name for table in tables for name in table if name.startswith("info_") and len(distinct(table[name])) > 1
    )
    return [
        Chart(name, name.removeprefix("info_").replace("_", " "), "As the policy reports it.", column=name,
              label=name.removeprefix("info_").replace("_", " "))
        for name in names
    ]  # fmt: skip


def distinct(matrix: list[list[Any]]) -> set[Any]:
    """The different values of a column, over seeds and rounds."""
    return {value for row in matrix for value in row if value is not None}


def _metric(name: str) -> tuple[Chart, ...]:
    """The chart of another metric, where accuracy is not what a run is told in."""
    if name in ("accuracy", "loss"):
        return ()
    caption = f"Held-out {name} of the global model."
    return (Chart(name, name, caption, table="evaluations", column=name, label=name, over_eps=True, wide=True),)


def figures(charts: Any, data: dict[str, Any]) -> str:
    """A frame for each chart that has something to show; the script draws into it."""
    shown = [chart for chart in charts if _has_data(chart, data)]
    wide = "".join(_frame(chart) for chart in shown if chart.wide)
    rest = "".join(_frame(chart) for chart in shown if not chart.wide)
    return wide + (f'<div class="figures">{rest}</div>' if rest else "")


def axis_choice() -> str:
    return (
        '<fieldset class="choice" id="axis"><legend>Horizontal axis</legend>'
        '<label><input type="radio" name="axis" value="round" checked> rounds</label>'
        '<label><input type="radio" name="axis" value="eps"> privacy spent (ε)</label></fieldset>'
    )


def small(text: str) -> str:
    return f'<p class="small">{escape(text)}</p>' if text else ""


def _frame(chart: Chart) -> str:
    id_, title = escape(chart.id, quote=True), escape(chart.title)
    log = "" if chart.kind == "heat" else '<button type="button" class="log" aria-pressed="false">log</button>'
    return (
        f'<figure class="chart" data-chart="{id_}"><figcaption><h3>{title}</h3>{log}'
        f'<p>{escape(chart.caption)}</p></figcaption><div class="plot"></div></figure>'
    )


def _has_data(chart: Chart, data: dict[str, Any]) -> bool:
    if chart.id == "device_eps":
        return any(scheme.get("card") and scheme["card"]["device_eps"] for scheme in data["schemes"])
    if chart.kind != "line":
        return any(scheme.get("devices") for scheme in data["schemes"])
    tables = [(scheme.get(chart.table) or {}).get("columns", {}) for scheme in data["schemes"]]
    return any(distinct(table.get(chart.column, [])) for table in tables)


def _any_positive(data: dict[str, Any], table: str, column: str) -> bool:
    rows = [row for s in data["schemes"] for row in (s.get(table) or {}).get("columns", {}).get(column, ())]
    return any(isinstance(value, float) and value > 0 for row in rows for value in row)


def stored(name: str) -> dict[str, Any]:
    """A dated run of a preset, which travels with the package."""
    return json.loads(asset(name))


def asset(name: str) -> str:
    return files("otafl.reports").joinpath("assets", name).read_text(encoding="utf-8")
