"""One rendering of a privacy card: from its values (card.json) to blocks of words, for Markdown and for pages. Host.

Whoever shows a card formats `blocks(card)` and adds or drops nothing, so that no format says less than another.
"""

from typing import Any, Literal, NamedTuple

import numpy as np

from otafl.core.markdown import inert
from otafl.core.markdown import table as markdown_table

INFINITE = "∞"
UNITS = {"client": "all data of one client", "record": "one record of one client"}
CHANGES = {
    "replace": "were replaced by any other",
    "zero-out": "counted as nothing, its place kept",
    "add-remove": "were absent",
}
IDENTITY = {  # keys of `identity`, in order
    "scheme": "scheme",
    "data": "data",
    "model": "model",
    "seeds": "seeds",
    "date": "date",
    "version": "otafl version",
    "config_sha256": "config hash",
    "clip_norm": "clip norm",
    "noise_multiplier": "noise multiplier (least of all rounds and clients)",
}


class Block(NamedTuple):
    """A piece of a card. `rows` are texts, or of a table its head and its rows of cells."""

    kind: Literal["alarm", "headline", "text", "fact", "list", "table"]
    title: str
    rows: tuple[Any, ...]


def round_up(eps: Any, infinite: str = "inf") -> str:
    """Four digits, never rounded below the value: a printed guarantee must hold.

    >>> round_up(29.3974), round_up(1.23401), round_up("inf"), round_up(0.0)
    ('29.4', '1.235', 'inf', '0')
    """
    eps = float(eps)
    if eps == 0 or not np.isfinite(eps):
        return "0" if eps == 0 else infinite
    unit = 10.0 ** (np.floor(np.log10(eps)) - 3)
    return f"{np.ceil(eps / unit) * unit:.4g}"


def blocks(card: dict[str, Any]) -> list[Block]:
    """The whole card in reading order. Cards of earlier versions lack some keys and have fewer blocks."""
    out = [Block("alarm", "", (f"{alarm}.",)) for alarm in card.get("alarms", [])]
    out += [Block("headline", "", (headline(card),)), Block("text", "", tuple(_basics(card)))]
    out += [Block("table", "ε by accountant", _spent(card))]
    if card.get("observers"):
        rows = [[o["observer"], o["sees"], _eps(o["eps"]), o["why"]] for o in card["observers"]]
        out.append(Block("table", "ε by observer", (["observer", "sees", "ε", "why"], *rows)))
    if identity := card.get("identity"):
        rows = [[IDENTITY.get(key, key), _plain(value)] for key, value in identity.items()]
        out.append(Block("table", "What was run", (["", ""], *rows)))
    out += [Block("fact", "Trusted noise", (card["trusted_noise"],)), Block("fact", "Sampling", (card["sampling"],))]
    out += [Block("fact", "Reward", (f"{card['reward']}.",))] if card.get("reward") else []
    remarks = [f"`{spend['accountant']}`: {note}" for spend in card["spent"] for note in spend["notes"]]
    remarks += [f"`{name}` does not apply: {why}" for name, why in card["not_applicable"].items()]
    lists = {"Remarks": remarks, "Assumptions": card["assumptions"]}
    lists["Outside the guarantee"] = card["outside_the_guarantee"]
    return out + [Block("list", title, tuple(items)) for title, items in lists.items() if items]


def headline(card: dict[str, Any]) -> str:
    """The guarantee in one line."""
    eps = card["guarantee"]["eps"]
    at = f"at δ = {card['delta']:g}"
    if eps == "inf":
        return "No guarantee: ε = ∞"
    if is_design_value(card):
        return f"No guarantee: ε = {round_up(eps)} {at} is a design value"
    return f"Guarantee: ε = {round_up(eps)} {at}"


def is_design_value(card: dict[str, Any]) -> bool:
    """Whether ε averages over who takes part, by probabilities that the plan states: no certificate (CDPB E13b)."""
    return any(spend["accounting"] in ("visible", "hidden") for spend in card["spent"])


def markdown(card: dict[str, Any]) -> str:
    """The card as a page of Markdown."""
    lines = ["# Privacy card", ""]
    for kind, title, rows in blocks(card):
        if kind in ("alarm", "headline"):
            lines += [f"**{rows[0]}**", ""]
        elif kind == "fact":
            lines += [f"{title}: {rows[0]}", ""]
        elif kind == "table":
            head, *body = rows
            lines += [f"{title}:", "", *markdown_table(head, body), ""]
        else:
            lines += [f"{title}:", ""] if title else []
            lines += [*(f"- {text}" if kind == "list" else f"{text}\n" for text in rows), ""]
    return inert("\n".join(lines).replace("\n\n\n", "\n\n"))


def meaning(unit: str, adjacency: str, eps: float, design: bool = False) -> str:
    """One sentence on what the number promises; `design`: it averages over who takes part."""
    if not np.isfinite(eps):
        return "Nothing is promised: whoever sees what the server receives may learn every message."
    if design:
        return "Nothing is promised: ε averages over who takes part, as often as the plan says that they do."
    return (
        f"If {UNITS[unit]} {CHANGES[adjacency]}, nothing that the server sees in the whole run would become more than "
        "e^ε times as likely or less likely, apart from a chance of δ."
    )


def _basics(card: dict[str, Any]) -> list[str]:
    cap = card["cap"]
    kind = "worst client's spend"
    if card["guarantee"]["is_cap"]:
        kind = "the policy looks at the training, so " + ("nothing" if cap["eps"] == "inf" else "the cap") + " holds"
    limit = "no cap" if cap["eps"] == "inf" else f"cap ε = {cap['eps']:g}"
    said = [
        f"{card['unit']} level, {card['adjacency']} adjacency, δ = {card['delta']:g}: {kind}; {limit}, counted by "
        f"`{cap['accountant']}`. {card['rounds']} rounds, {card['clients']} clients."
    ]
    said += [card["meaning"]] if "meaning" in card else []
    return [*said, *([_attack(card["attack"])] if "attack" in card else []), *card.get("notices", [])]


def _attack(told: dict[str, Any]) -> str:
    mu = f"μ = {round_up(told['mu'], INFINITE)}. " if told["mu"] is not None else ""
    found = round_up(min(100 * told["tpr_at_1pct"], 100.0))
    text = (
        f"{mu}Attack: at 1 % false alarms at most {found} % of the true cases are found ({told['words']}); advantage "
        f"at most {round_up(100 * told['advantage'])} % ({told['basis']}; {told['always']})."
    )
    if told["mu_equivalent"] is not None:
        equal = round_up(told["mu_equivalent"], INFINITE)
        text += f" mu_equivalent = {equal}: the Gaussian with the same ε ({told['basis']}) at this δ, no μ of this run."
    return text


def _spent(card: dict[str, Any]) -> tuple[list[str], ...]:
    head = ["accountant", "participation", "ε worst client", "ε mean client", "certified"]
    return (head, *([_name(s), s["accounting"], _eps(s["eps_worst"]), _eps(s["eps_mean"]), _certified(s, card)]
                    for s in card["spent"]))  # fmt: skip


def _name(spend: dict[str, Any]) -> str:
    return f"{spend['accountant']}, without sampling" if spend.get("without_sampling") else str(spend["accountant"])


def _certified(spend: dict[str, Any], card: dict[str, Any]) -> str:
    if spend["certified"]:
        return "yes"
    if card["guarantee"]["is_cap"]:
        return "no: spent, the cap holds"
    return "no: ε = ∞" if spend["eps_worst"] == "inf" else "no: design value"


def _eps(value: Any) -> str:
    return "–" if value is None else round_up(value, INFINITE)


def _plain(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)
