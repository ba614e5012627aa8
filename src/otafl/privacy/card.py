"""The privacy card of a run: every eps with its delta, unit, adjacency, accountant, trust and limits. Host."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from otafl.errors import InputError
from otafl.plan import Message
from otafl.privacy.accountants import ACCOUNTANTS, Spend
from otafl.privacy.ledger import Ledger

OUTSIDE = {
    "pca": "features (PCA, scaling) were fitted on private training data",
    "step-size": "step sizes, clip norms and other settings were tuned on the same data",
    "simulation-trace": "the simulation trace (who was silent, powers, norms) is not covered; do not publish it",
    "reward": "data behind the reward or the reported accuracy, beyond what was charged as a release",
    "sizes": "client sizes and weights are treated as public",
    "constants": "constants of the convergence bound were measured on private data",
}


@dataclass(frozen=True)
class PrivacyCard:
    """What may be said about a run's privacy, and what may not."""

    unit: str
    adjacency: str
    delta: float
    clients: int
    rounds: int
    cap_eps: float
    cap_accountant: str
    adaptive: bool
    guarantee_eps: float
    spends: tuple[Spend, ...]
    refused: tuple[tuple[str, str], ...]  # (accountant, why it does not apply)
    trusted_noise: str
    sampling: str
    assumptions: tuple[str, ...]
    outside: tuple[str, ...]
    alarms: tuple[str, ...] = ()  # above everything else
    reward: str = ""  # where the reward of a policy that looks at the training comes from, and whether it was charged

    def to_dict(self) -> dict[str, Any]:
        return {
            "alarms": list(self.alarms),
            "unit": self.unit,
            "adjacency": self.adjacency,
            "delta": self.delta,
            "clients": self.clients,
            "rounds": self.rounds,
            "guarantee": {"eps": _number(self.guarantee_eps), "is_cap": self.adaptive},
            "cap": {"eps": _number(self.cap_eps), "accountant": self.cap_accountant},
            "spent": [
                {
                    "accountant": s.accountant,
                    "accounting": s.accounting,
                    "certified": s.certified,
                    "eps_worst": _number(s.worst),
                    "eps_mean": _number(s.mean),
                    "worst_client": int(np.argmax(s.eps)),
                    "eps": [_number(e) for e in np.ravel(s.eps)],
                    "notes": list(s.notes),
                }
                for s in self.spends
            ],
            "not_applicable": dict(self.refused),
            "trusted_noise": self.trusted_noise,
            "sampling": self.sampling,
            "assumptions": list(self.assumptions),
            "outside_the_guarantee": list(self.outside),
            **({"reward": self.reward} if self.reward else {}),
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def __str__(self) -> str:
        return self.to_markdown()

    def to_markdown(self) -> str:
        kind = "cap (the policy looks at the training)" if self.adaptive else "worst client's spend"
        lines = [
            "# Privacy card",
            "",
            *[f"**{alarm}.**\n" for alarm in self.alarms],
            f"**Guarantee: ε = {round_up(self.guarantee_eps)} at δ = {self.delta:g}**, "
            f"{self.unit} level, {self.adjacency} adjacency: {kind}.",
            f"Cap ε = {self.cap_eps:g}, counted by `{self.cap_accountant}`.",
            f"{self.rounds} rounds, {self.clients} clients.",
            "",
            "| accountant | participation | ε worst client | ε mean client | δ | certified |",
            "|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {s.accountant} | {s.accounting} | {round_up(s.worst)} | {round_up(s.mean)} | {s.delta:g} | "
            f"{'yes' if s.certified else 'no: design value'} |"
            for s in self.spends
        ]
        lines += ["", *[f"- `{s.accountant}`: {note}" for s in self.spends for note in s.notes]]
        lines += [f"- `{name}` does not apply: {why}" for name, why in self.refused]
        lines += ["", f"Trusted noise: {self.trusted_noise}", "", f"Sampling: {self.sampling}", ""]
        lines += [f"Reward: {self.reward}.", ""] if self.reward else []
        lines += ["Assumptions:", ""]
        lines += [f"- {text}" for text in self.assumptions]
        lines += ["", "Outside the guarantee:", "", *[f"- {text}" for text in self.outside], ""]
        return "\n".join(lines)


def make_card(
    ledger: Ledger,
    message: Message,
    accountants: Sequence[str] = tuple(ACCOUNTANTS),
    outside: Sequence[str] = ("sizes",),
    assumptions: Sequence[str] = (),
    alarms: Sequence[str] = (),
    reward: str = "",
) -> PrivacyCard:
    """The card of what a ledger holds. `outside`: keys of OUTSIDE or sentences of your own; `alarms` stand on top."""
    budget = ledger.budget
    if message.adjacency != budget.adjacency:
        raise InputError(f"messages are for adjacency={message.adjacency!r}, the budget for {budget.adjacency!r}")
    spends, refused = [], []
    for name in accountants:
        try:
            spends.append(ledger.spent(name))
        except InputError as error:
            refused.append((name, str(error)))
    return PrivacyCard(
        unit=message.unit,
        adjacency=message.adjacency,
        delta=budget.delta,
        clients=ledger.clients,
        rounds=ledger.rounds(),
        cap_eps=budget.eps,
        cap_accountant=budget.accountant,
        adaptive=budget.adaptive,
        guarantee_eps=ledger.guarantee(),
        spends=tuple(spends),
        refused=tuple(refused),
        trusted_noise=_trusted(ledger),
        sampling=_sampling(message),
        assumptions=(*_assumed(ledger), *assumptions),
        outside=tuple(OUTSIDE.get(item, item) for item in outside),
        alarms=tuple(alarms),
        reward=reward,
    )


def _trusted(ledger: Ledger) -> str:
    receiver = any(np.any(part.receiver_var > 0) for part in ledger.parts)
    artificial = any(np.any(part.artificial_var > 0) for part in ledger.parts)
    whose = [
        *(["the receiver's own noise (trusted part)"] if receiver else []),
        *(["the clients' artificial noise, each client's own included"] if artificial else []),
        *(["the noise drawn for each charged release"] if ledger.releases else []),
    ]
    text = " and ".join(whose) or "none: nothing protects the clients"
    if ledger.budget.colluders:
        text += f"; without the noise of colluding clients {', '.join(map(str, ledger.budget.colluders))}"
    return text + "."


def _sampling(message: Message) -> str:
    if np.all(np.asarray(message.rate) == 1):
        return "every round sees the unit; no amplification is claimed."
    low, high = float(np.min(message.rate)), float(np.max(message.rate))
    rates = f"rate {low:.4g}" if low == high else f"rates {low:.4g} to {high:.4g}"
    return f"fresh Poisson batches every round, {rates}, hidden from the server, realised batch sizes included."


def _assumed(ledger: Ledger) -> list[str]:
    out = [
        "the adversary sees what the server receives, every round, and no quieter or second receiver (CARES E21)",
        "noise is Gaussian, fresh in every round and coordinate",
        "channels and coins carry no information about the data",
        "clients enforce the declared sensitivity",
    ]
    if any(np.any(part.artificial_var > 0) for part in ledger.parts):
        out.append(
            "phases are aligned: artificial noise covers the real part only, so the imaginary part must carry no "
            "data or stay away from the adversary"
        )
    if ledger.budget.adaptive:
        out.append("the cap is enforced by a privacy filter; the realised sum is no guarantee (CARES E20)")
    if ledger.releases:
        names = sorted({release.name for release in ledger.releases})
        out.append(f"extra releases charged: {', '.join(names)}")
    return out


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


def _number(value: Any) -> float | str:
    value = float(value)
    return value if np.isfinite(value) else "inf"
