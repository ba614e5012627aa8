"""The privacy card of a run: every eps with its delta, unit, adjacency, accountant, trust and limits. Host."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from otafl.core.errors import InputError
from otafl.core.plan import Message
from otafl.privacy.accountants import ACCOUNTANTS
from otafl.privacy.attack import ALWAYS, Attack, attack_success
from otafl.privacy.card_text import markdown, meaning, round_up
from otafl.privacy.events import inverse_square, leak_of
from otafl.privacy.ledger import Ledger
from otafl.privacy.participation import CERTIFIED
from otafl.privacy.spend import Spend

__all__ = ["OUTSIDE", "SIMULATION", "Observer", "PrivacyCard", "make_card", "round_up"]

SIMULATION = (
    "Simulation: a run with a given seed has reproducible noise: a simulation that protects nobody by itself; a "
    "deployment must draw its noise fresh and secret."
)

SECRET_NOISE = (
    "clients send their artificial noise in every round and keep it to themselves: noise that an adversary knows, or "
    "of a device that drops out, hides nothing"
)

OUTSIDE = {
    "pca": "features (PCA, scaling) were fitted on private training data",
    "step-size": "step sizes, clip norms and other settings were tuned on the same data",
    "simulation-trace": "the simulation trace (who was silent, powers, norms, what was not finite) is not covered; do "
    "not publish it",
    "data-hash": "the hash of the data (manifest, page) is not covered: it confirms a guess of the last unknown record",
    "reward": "data behind the reward or the reported accuracy, beyond what was charged as a release",
    "sizes": "client sizes and weights are treated as public",
    "other-runs": "ε is that of one seed of one scheme; others are more runs on the same data, and several cost more",
    "constants": "constants of the convergence bound were measured on private data",
}


MANY = 1_000  # clients, each with an eps of its own by every accountant
QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)  # over clients, where they are too many to list


class Observer(NamedTuple):
    """Somebody who looks, and the eps against him; None: not covered."""

    observer: str
    sees: str
    eps: float | None
    why: str


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
    sampled: bool  # whether Poisson sampling is claimed
    assumptions: tuple[str, ...]
    outside: tuple[str, ...]
    alarms: tuple[str, ...] = ()  # above everything else
    reward: str = ""  # where the reward of a policy that looks at the training comes from, and whether it was charged
    attack: Attack | None = None
    observers: tuple[Observer, ...] = ()
    notices: tuple[str, ...] = ()  # sentences beside the guarantee
    identity: Mapping[str, Any] = field(default_factory=dict)  # what was run: see `card_text.IDENTITY`
    listed: bool = True  # eps of every client; else quantiles over the clients
    design: bool = False  # eps averages over who takes part: no certificate

    def to_dict(self) -> dict[str, Any]:
        return {
            "alarms": list(self.alarms),
            "unit": self.unit,
            "adjacency": self.adjacency,
            "delta": self.delta,
            "clients": self.clients,
            "rounds": self.rounds,
            "guarantee": {"eps": _number(self.guarantee_eps), "is_cap": self.adaptive},
            "meaning": meaning(self.unit, self.adjacency, self.guarantee_eps, self.design),
            **({} if self.attack is None else {"attack": _attack(self.attack)}),
            "notices": list(self.notices),
            "cap": {"eps": _number(self.cap_eps), "accountant": self.cap_accountant},
            "spent": [
                {
                    "accountant": s.accountant,
                    "accounting": s.accounting,
                    "certified": s.certified and not self.adaptive,
                    "without_sampling": self.sampled and not ACCOUNTANTS[s.accountant].amplified,
                    "eps_worst": _number(s.worst),
                    "eps_mean": _number(s.mean),
                    "worst_client": int(np.argmax(s.eps)),
                    **self._each(s),
                    "notes": list(s.notes),
                }
                for s in self.spends
            ],
            "not_applicable": dict(self.refused),
            "observers": [{**o._asdict(), "eps": None if o.eps is None else _number(o.eps)} for o in self.observers],
            "identity": {k: _number(v) if isinstance(v, float) else v for k, v in self.identity.items()},
            "trusted_noise": self.trusted_noise,
            "sampling": self.sampling,
            "assumptions": list(self.assumptions),
            "outside_the_guarantee": list(self.outside),
            **({"reward": self.reward} if self.reward else {}),
        }

    def _each(self, spend: Spend) -> dict[str, Any]:
        """eps of every client, or of so many clients' worst: quantiles."""
        if self.listed:
            return {"eps": [_number(e) for e in np.ravel(spend.eps)]}
        found = np.quantile(spend.eps, QUANTILES, method="higher")
        return {"eps_quantiles": {f"{q:g}": _number(e) for q, e in zip(QUANTILES, found)}}

    def to_json(self) -> str:
        """Indented, unless there are so many clients that it takes longer than all else about them."""
        many = any(np.size(spend.eps) > MANY for spend in self.spends)
        return json.dumps(self.to_dict(), indent=None if many else 2, allow_nan=False)

    def __str__(self) -> str:
        return self.to_markdown()

    def to_markdown(self) -> str:
        return markdown(self.to_dict())

    _repr_markdown_ = to_markdown  # in a notebook


def make_card(
    ledger: Ledger,
    message: Message,
    accountants: Sequence[str] = tuple(ACCOUNTANTS),
    outside: Sequence[str] = ("sizes",),
    assumptions: Sequence[str] = (),
    alarms: Sequence[str] = (),
    reward: str = "",
    identity: Mapping[str, Any] | None = None,
    units: int | None = None,
    simulated: bool = False,
    observers: Sequence[Observer] = (),
    trusted: str = "",
) -> PrivacyCard:
    """The card of what a ledger holds. `outside`: keys of OUTSIDE or sentences of your own; `alarms`: those on top.

    `identity`: what was run, by the keys of `card_text.IDENTITY`; `units`: how many clients or records there are, for
    the warning of a delta that is too large; `observers` beside the server and a buyer, each with an eps of its own;
    `trusted`: whose noise counts where the ledger's events are whitened and cannot tell.
    """
    budget = ledger.budget
    if message.adjacency != budget.adjacency:
        raise InputError(f"messages are for adjacency={message.adjacency!r}, the budget for {budget.adjacency!r}")
    spends, refused = [], []
    for name in accountants:
        try:
            spends.append(ledger.spent(name))
        except InputError as error:
            refused.append((name, str(error)))
    many = ledger.clients if units is None and message.unit == "client" else units
    guarantee = ledger.guarantee()
    return PrivacyCard(
        unit=message.unit,
        adjacency=message.adjacency,
        delta=budget.holds_at,
        clients=ledger.clients,
        rounds=ledger.rounds(),
        cap_eps=budget.eps,
        cap_accountant=budget.accountant,
        adaptive=budget.adaptive,
        guarantee_eps=guarantee,
        spends=tuple(spends),
        refused=tuple(refused),
        trusted_noise=_trusted(ledger, trusted),
        sampling=_sampling(message),
        sampled=bool(np.any(np.asarray(message.rate) < 1)),
        assumptions=(*message.published, *_assumed(ledger), *assumptions),
        outside=tuple(OUTSIDE.get(item, item) for item in outside if item not in alarms),
        alarms=(*alarms, *_large_delta(budget.holds_at, message.unit, many)),
        reward=reward,
        attack=attack_success(ledger),
        observers=(*_observers(ledger, guarantee, {one.observer for one in observers}, bool(trusted)), *observers),
        notices=(SIMULATION,) if simulated else (),
        identity={**(identity or {}), "noise_multiplier": least_multiplier(ledger)},
        listed=ledger.sums is None,
        design=budget.accounting not in CERTIFIED,
    )


def _large_delta(delta: float, unit: str, many: int | None) -> list[str]:
    if many is None or delta * many < 1:
        return []
    return [f"δ = {delta:g} is not below 1/n = {1 / many:.3g} (n = {many} {unit}s): it would allow to publish a {unit}"]


def _observers(ledger: Ledger, guarantee: float, declared: set[str], whitened: bool) -> list[Observer]:
    """Whoever sees less than the server is charged as the server; whoever sees something else is not covered.

    `whitened`: events that cannot tell whether clients' noise is in them, so that it may be.
    """
    held = "the guarantee above" if ledger.budget.accounting in CERTIFIED else "the design value above, no guarantee"
    out = [Observer("server", "every received sum, every model", guarantee, held)]
    if ledger.budget.colluders:
        who = f"server with clients {', '.join(map(str, ledger.budget.colluders))}"
        out.append(Observer(who, "also their messages and noise", guarantee, "their noise was not counted"))
    elif whitened or _artificial(ledger):
        why = f"not covered: their noise{', where they send any,' if whitened else ''} is counted"
        out.append(Observer("server with clients", "also their messages and noise", None, why))
    out.append(Observer("buyer", "the final model", guarantee, "charged as the server: less is not certified"))
    if "eavesdropper" not in declared:
        why = "not covered: no such receiver is declared"
        out.append(Observer("eavesdropper", "another receiver's sums", None, why))
    return out


def least_multiplier(ledger: Ledger) -> float:
    """The smallest noise multiplier of all rounds and clients."""
    squares = [float(np.max(inverse_square(part, ledger.colluders), initial=0.0)) for part in ledger.parts]
    largest = max(squares, default=0.0)
    summed = np.inf if ledger.sums is None else ledger.sums.least_multiplier
    return min(summed, float(1 / np.sqrt(largest)) if largest > 0 else np.inf)


def _attack(found: Attack) -> dict[str, Any]:
    finite = {k: None if v is None else _number(v) for k, v in found._asdict().items() if k != "basis"}
    return {**finite, "words": found.words, "basis": found.basis, "always": ALWAYS}


def _trusted(ledger: Ledger, told: str) -> str:
    receiver = any(np.any(part.receiver_var > 0) for part in ledger.parts)
    if ledger.sums is not None:
        receiver = receiver or ledger.sums.receiver
    whose = [
        *([told or "the receiver's own noise (trusted part)"] if receiver else []),
        *(["the clients' artificial noise, each client's own included"] if _artificial(ledger) else []),
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
    if _artificial(ledger):
        out += [SECRET_NOISE, _phases(ledger)]
    if ledger.budget.adaptive:
        at = "" if ledger.budget.order is None else f" at Renyi order {ledger.budget.order:g}, fixed in advance"
        out.append(f"the cap is enforced by a privacy filter{at}; the realised sum is no guarantee (CARES E20)")
    if ledger.budget.missed:
        out.append(
            f"channels pass what is declared of them with a probability of at most {ledger.budget.missed:.3g}, which "
            f"is part of delta: eps is counted at the {ledger.budget.delta:.4g} that it leaves"
        )
    if ledger.releases:
        names = sorted({release.name for release in ledger.releases})
        out.append(f"extra releases charged: {', '.join(names)}")
    return out


def _artificial(ledger: Ledger) -> bool:
    summed = ledger.sums is not None and ledger.sums.artificial
    return summed or any(np.any(part.artificial_var > 0) for part in ledger.parts)


def _phases(ledger: Ledger) -> str:
    """What artificial noise is worth against a server that keeps the imaginary part."""
    angle = max((float(np.max(leak_of(part), initial=0.0, where=part.live)) for part in ledger.parts), default=0.0)
    quiet = any(np.any(part.live & (leak_of(part) > 0) & (part.receiver_var == 0)) for part in ledger.parts)
    if ledger.sums is not None:
        angle, quiet = max(angle, ledger.sums.leak_angle), quiet or ledger.sums.quiet
    if angle == 0:
        return "devices know their phases exactly (no phase error is declared), so the imaginary part carries no data"
    said = (
        f"artificial noise arrives within {angle:.4g} rad of every message's phase; the server keeps the imaginary part"
    )
    return f"{said}, " + ("where no trusted noise covers it: eps is infinite" if quiet else "and eps counts that")


def _number(value: Any) -> float | str:
    value = float(value)
    return value if np.isfinite(value) else "inf"
