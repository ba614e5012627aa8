"""An open loop planned, charged and cut at the budget before the first message, by the engine and by `otafl.Air`."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from otafl.core.arrays import Array
from otafl.core.errors import InputError
from otafl.core.plan import Events, Plan, check_silence
from otafl.core.rounds import plan_ahead
from otafl.core.uplink import Uplink
from otafl.privacy import Ledger, check_release
from otafl.privacy.participation import credits_coins
from otafl.privacy.retire import certified_where, retired, rounds_in
from otafl.runs.build import Site
from otafl.runs.planning.energy import within_run


class Charged(NamedTuple):
    """All rounds of one seed."""

    plan: Plan  # (T, K); live as long as the budget covers it
    info: Any  # the policy's, without the certificates of rounds in which somebody was silenced
    inside: Array  # (T, K) bool: clients who have not retired
    released: Events  # by the whole plan, before it was cut


def charged_ahead(
    site: Site, state: Any, ledger: Ledger, uplink: Uplink, release: Callable[[Plan], Events], *, capped: bool,
    retires: bool, keep_noise: bool, run_energy: float | None = None,
) -> Charged:  # fmt: skip
    """What the policy wants, less what energy (J of a device's run) and caps leave out, within the ledger's budget."""
    _, wanted, info = plan_ahead(site.policy, state, site.trace)
    check_silence(site.policy, site.message, wanted)
    plan, inside = wanted, np.ones(wanted.tx.shape, bool)
    if run_energy is not None:
        _refuse_private_silence(release(plan), site)
        plan = within_run(plan, site.message, run_energy, uplink)
    if retires:
        inside = rounds_in(ledger, release(plan), keep_noise)
        plan = retired(plan, inside, keep_noise)
    released = release(plan)
    check_release(uplink, released, plan, site.trace, site.deployment, site.message)
    live = ledger.affordable(released) if capped else released.live
    return Charged(plan._replace(live=live), certified_where(info, wanted, plan), inside, released)


def _refuse_private_silence(released: Events, site: Site) -> None:
    """What a client has radiated follows from its coins: so would its last round, and what it is charged for."""
    if credits_coins(released, site.message):
        raise InputError(
            "radio.run_energy silences a client by the coins that its charge counts on as private; "
            "leave out run_energy, or charge every round"
        )
