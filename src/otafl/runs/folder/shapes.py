"""What the files of a run folder can say: kinds, ranges and lengths. A seal shows damage; anybody can seal nonsense.

Whatever reads a folder reads it through these shapes, so that no page is made of something that no run can have
written. Whether what is said of privacy is true is `recount`'s question.
"""

import math
import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from otafl.core import validate
from otafl.core.plan import Adjacency, Unit
from otafl.privacy.accountants import ACCOUNTANTS
from otafl.privacy.participation import ACCOUNTINGS
from otafl.runs.folder.sealed import Arrays
from otafl.tasks.losses import METRICS

LARGEST = 2**53  # of a count: whole in every number format
DEEP = 8  # tables within tables
STATED = ("seed", "round", "client")  # columns that say what a row is about
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all of Unicode's, but for new lines and tabs


def _printable(text: str) -> str:
    """Text that cannot steer a terminal; a title may have several lines."""
    if CONTROL.search(text):
        raise ValueError("holds control characters")
    return text


def _among(name: str, known: Collection[str]) -> AfterValidator:
    def check(value: str) -> str:
        validate.one_of(name, value, known)
        return value

    return AfterValidator(check)


def _anything(value: Any, depth: int = 0) -> Any:
    """A value that a page may show without a rule of its own."""
    if isinstance(value, str):
        return _printable(value)
    if isinstance(value, dict | list):
        if depth == DEEP:
            raise ValueError("is nested too deeply")
        for item in [*value, *value.values()] if isinstance(value, dict) else value:
            _anything(item, depth + 1)
    elif isinstance(value, int | float) and not math.isfinite(value):
        raise ValueError("must be finite")
    return value


Text = Annotated[str, AfterValidator(_printable)]
Label = Annotated[Text, Field(min_length=1)]
Count = Annotated[int, Field(ge=0, le=LARGEST)]
Real = Annotated[float, Field(allow_inf_nan=False)]
NotNegative = Annotated[Real, Field(ge=0)]
Share = Annotated[Real, Field(ge=0, le=1)]
Delta = Annotated[Real, Field(gt=0, lt=1)]
Eps = NotNegative | Literal["inf"]
Target = Annotated[Real, Field(gt=0)] | Literal["inf"]
Number = Real | Literal["inf", "-inf"] | None
Accountant = Annotated[str, _among("accountant", ACCOUNTANTS)]
Accounting = Annotated[str, _among("accounting", ACCOUNTINGS)]
Metric = Annotated[str, _among("metric", METRICS)]


class Said(BaseModel):
    """A table that a run has written: no guessing of kinds; keys without a rule hold plain values."""

    model_config = ConfigDict(extra="allow", strict=True)

    @model_validator(mode="after")
    def _plain_beside(self) -> "Said":
        _anything(self.model_extra or {})
        return self


class Manifest(Said):
    """`manifest.json`."""

    title: Text
    schemes: Annotated[list[Label], Field(min_length=1)]
    seeds: Annotated[list[Count], Field(min_length=1)]
    config_sha256: Text
    data: dict[Text, Text]
    files: dict[Text, Text] | None = None
    parameters: Count | None = None
    versions: dict[Text, Text] | None = None
    machine: dict[Text, Text] | None = None

    @model_validator(mode="after")
    def _each_once(self) -> "Manifest":
        if missing := {"name", "sha256"} - set(self.data):
            raise ValueError(f"data.{min(missing)} is missing")
        for name in ("schemes", "seeds"):
            if len(set(getattr(self, name))) < len(getattr(self, name)):
                raise ValueError(f"{name} names one twice")
        return self


class Timing(Said):
    """`timing.json`."""

    seconds: NotNegative


class Done(Said):
    """`done.json`."""

    rounds: Count
    files: dict[Text, Text]


class Summary(Said):
    """`summary.json`: lists have an entry for each seed."""

    label: Label
    seeds: Annotated[list[Count], Field(min_length=1)]
    unit: Unit
    adjacency: Adjacency
    delta: Delta
    accountant: Accountant
    accounting: Accounting = "none"
    target_eps: Target | None
    capped: bool
    private: bool
    hindsight: bool = False
    unweighted: bool = False
    radio: bool | None = None
    uplink: Label
    alarm: Text = ""
    loop: Literal["open", "round"] = "open"
    clients: Annotated[Count, Field(ge=1)]
    metric: Metric = "accuracy"
    every: Count
    rounds: list[NotNegative]
    final_eps: list[Eps]
    final_loss: list[Number]
    worst_client: list[Number]
    worst_client_at_eps: list[Number]
    energy_per_round: list[NotNegative | Literal["inf"] | None]
    silent_weight: list[Number]
    mu: list[Eps | None] | None = None
    tpr_at_1pct: list[Share] | None = None
    advantage: list[Share] | None = None
    stopped_by: list[Text] | None = None
    remarks: list[Text] = []
    least_eps: Eps | None = None
    retired: list[Count] | None = None
    snr: list[Number] | None = None
    snr_max: list[Number] | None = None
    efficiency: list[Number] | None = None
    joules_mean: list[Number] | None = None
    joules_max: list[Number] | None = None

    @model_validator(mode="after")
    def _one_per_seed(self) -> "Summary":
        own = {f"{kind}_{self.metric}" for kind in ("final", "best")} | {f"{self.metric}_at_eps"}
        if missing := own - set(self.model_extra or {}) - set(type(self).model_fields):
            raise ValueError(f"{min(missing)} is missing")
        for name, values in {**dict(self), **(self.model_extra or {})}.items():
            if name != "remarks" and isinstance(values, list) and len(values) != len(self.seeds):
                raise ValueError(f"{name} has {len(values)} entries for {len(self.seeds)} seeds")
            if name in own and not (isinstance(values, list) and all(_is_number(value) for value in values)):
                raise ValueError(f"{name} must hold numbers")
        return self


class Spent(Said):
    """What one accountant counts."""

    accountant: Accountant
    accounting: Accounting
    certified: bool
    without_sampling: bool = False
    eps_worst: Eps
    eps_mean: Eps
    worst_client: Count
    eps: list[Eps] | None = None
    eps_quantiles: dict[Text, Eps] | None = None
    notes: list[Text]


class Guarantee(Said):
    """The number of a card."""

    eps: Eps
    is_cap: bool


class Cap(Said):
    """What a run may spend."""

    eps: Target
    accountant: Accountant


class Attack(Said):
    """What the best attacker can do."""

    mu: Eps | None
    mu_equivalent: Eps | None
    tpr_at_1pct: Share
    advantage: Share
    words: Text
    basis: Text
    always: Text


class Observer(Said):
    """Somebody who looks."""

    observer: Text
    sees: Text
    eps: Eps | None
    why: Text


class Card(Said):
    """`card.json`."""

    alarms: list[Text] = []
    unit: Unit
    adjacency: Adjacency
    delta: Delta
    clients: Annotated[Count, Field(ge=1)]
    rounds: Count
    guarantee: Guarantee
    meaning: Text = ""
    attack: Attack | None = None
    notices: list[Text] = []
    cap: Cap
    spent: list[Spent]
    not_applicable: dict[Text, Text]
    observers: list[Observer] = []
    identity: dict[Text, Any] = {}
    trusted_noise: Text
    sampling: Text
    assumptions: list[Text]
    outside_the_guarantee: list[Text]
    reward: Text = ""

    @model_validator(mode="after")
    def _hangs_together(self) -> "Card":
        _anything(self.identity)
        for spent in self.spent:
            if spent.worst_client >= self.clients or len(spent.eps or []) not in (0, self.clients):
                raise ValueError(f"{spent.accountant} counts other clients than the {self.clients} of the card")
        return self


class Certificate(Said):
    """`certificate.json`: what a scheme certifies is its own affair."""


SHAPES: dict[str, type[Said]] = {"summary": Summary, "card": Card, "certificate": Certificate}
COLUMNS: dict[str, tuple[str, ...]] = {
    "rounds": ("seed", "round", "rx_scale", "noise_std", "update_norm", "sent", "sent_weight", "heard_weight", "snr",
               "energy_share", "clipped_share"),
    "evaluations": ("seed", "round", "loss", "worst_client", "penalty", "eps"),
    "devices": ("seed", "round", "client", "sent", "norm", "energy", "energy_limit"),
    "device_quantiles": (),
}  # fmt: skip
NOT_NEGATIVE = ("rx_scale", "noise_std", "update_norm", "sent", "snr", "energy_share", "clipped_share", "penalty",
                "norm", "energy", "energy_limit")  # fmt: skip


def check(shape: type[Said], content: Any) -> Any:
    """The content, unchanged; ValueError names the key and the rule where no run can have written it."""
    try:
        shape.model_validate(content)
    except ValidationError as found:
        first = found.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"][:3])
        raise ValueError(f"{where}: {first['msg']}" if where else first["msg"]) from None
    return content


def check_table(name: str, columns: Arrays) -> Arrays:
    """The same columns; ValueError where one is missing, is no number, or says something that no round has."""
    if missing := [column for column in COLUMNS.get(name, ()) if column not in columns]:
        raise ValueError(f"column {missing[0]} is missing")
    for column, values in columns.items():
        if not column.isprintable() or values.ndim != 1 or values.dtype.kind not in "biuf":
            raise ValueError(f"column {column!r} holds no numbers")
        if column in STATED and (values.dtype.kind not in "iu" or np.any(values < 0) or np.any(values > LARGEST)):
            raise ValueError(f"column {column} must hold whole numbers from 0 on")
        if column in NOT_NEGATIVE and np.any(values < 0):
            raise ValueError(f"column {column} must not be negative")
    if "eps" in columns and not np.all(columns["eps"] >= 0):
        raise ValueError("column eps must not be negative")
    if name in ("rounds", "evaluations"):
        _each_once(columns)
    return columns


def _each_once(columns: Mapping[str, np.ndarray]) -> None:
    rows = np.stack([columns["seed"].astype(np.int64), columns["round"].astype(np.int64)])
    if np.unique(rows, axis=1).shape[1] < rows.shape[1]:
        raise ValueError("has two rows of one seed and round")


def _is_number(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return value is None or value in ("inf", "-inf") or isinstance(value, int | float)
