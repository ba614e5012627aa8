"""The cap of a ledger: how much, counted how, for which neighbours. What would prove nothing is refused here."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from otafl.core import validate
from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.privacy import participation, rdp
from otafl.privacy.accountants import ACCOUNTANTS, Accountant
from otafl.privacy.spend import ADJACENCIES


@dataclass(frozen=True)
class Budget:
    """A cap (eps, delta), how it is counted, and for which neighbours.

    `adaptive`: the policy may look at the training. Then only accountants with a filter theorem are accepted: those
    with additive costs, and `rdp` at one `order` fixed in advance.
    """

    eps: float
    delta: float
    accountant: str = "zcdp"
    accounting: str = "none"
    adjacency: str = "add-remove"
    adaptive: bool = False
    order: float | None = None
    colluders: tuple[int, ...] = ()
    unit: str | None = None  # whose data differ between neighbours; None: not told
    missed: float = 0.0  # chance that a channel passes what it was declared to do: not in delta, see `holds_at`

    def __post_init__(self) -> None:
        validate.in_left_open("eps", self.eps, 0, np.inf)  # inf: nothing is capped, everything is counted
        validate.in_open("delta", self.delta, 0, 1)
        validate.not_negative("missed", self.missed)
        validate.one_of("accountant", self.accountant, ACCOUNTANTS)
        validate.one_of("accounting", self.accounting, participation.ACCOUNTINGS)
        validate.one_of("adjacency", self.adjacency, ADJACENCIES)
        if self.accounting not in self.counted.supports:
            raise InputError(
                f"accountant {self.accountant!r} does not support accounting={self.accounting!r}; use 'rdp'"
            )
        if self.accounting == "hidden" and self.unit == "record":
            raise InputError("accounting='hidden' needs unit='client': a client's other records tell that it sends")
        if self.order is not None:
            validate.in_left_open("order - 1", self.order - 1, 0, 1e6)
            if self.accountant != "rdp":
                raise InputError(f"order={self.order:g} belongs to accountant='rdp', not to {self.accountant!r}")
        if self.adaptive and self.counted.adaptive == "none":
            raise InputError(
                f"accountant {self.accountant!r} has no filter for adaptive runs; use 'zcdp', 'gaussian' or 'rdp' "
                "with an order"
            )
        if self.adaptive and self.counted.adaptive == "order" and self.order is None:
            raise InputError(
                f"an adaptive run with accountant {self.accountant!r} needs one order fixed in advance: set order "
                "(privacy.order)"
            )

    def __str__(self) -> str:
        return f"eps={self.eps:g}, delta={self.holds_at:g} ({self.accountant})"

    @property
    def holds_at(self) -> float:
        """The delta at which eps holds, whatever the channel does."""
        return self.delta + self.missed

    @property
    def counted(self) -> Accountant:
        """The accountant itself."""
        return ACCOUNTANTS[self.accountant]

    @cached_property
    def zcdp(self) -> float:
        """The zCDP cap of accountants with additive costs, and of `rdp` at its one order, without sampling."""
        if np.isinf(self.eps):
            return np.inf
        if self.order is not None:
            return max(0.0, float(rdp.rdp_budget(self.eps, self.delta, self.orders)[0])) / self.order
        if self.counted.cap is None:
            raise InputError(f"accountant {self.accountant!r} has no single additive cap")
        return float(self.counted.cap(self.eps, self.delta))

    @property
    def orders(self) -> Array:
        return np.asarray(rdp.ORDERS if self.order is None else (self.order,), np.float64)
