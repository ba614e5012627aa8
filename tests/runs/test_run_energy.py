"""A budget of energy for the whole run: kept by every scheme, and used better by settings that know of it."""

import numpy as np
import pytest

from otafl.channels import Channel
from otafl.core.plan import Deployment, Message
from otafl.privacy import Budget
from otafl.runs.comparing.run_energy import settings, softened
from otafl.runs.planning.energy import planned_energy, within_run
from otafl.runs.sites import limited
from otafl.systems import settings as rules
from otafl.systems import simulated

CLIENTS, ROUNDS, JOULES = 12, 20, 1e-3
ONES = np.ones(CLIENTS)
SITE = Deployment(0.03 * ONES, 0.05**2, 0.05**2, ONES / CLIENTS, 650)
MESSAGE = Message(650, 1.0, ONES, 2 * ONES, ONES, "client", "replace")
AT = simulated.bench(SITE, MESSAGE, Budget(8.0, 1e-5, "gaussian", adjacency="replace"), ROUNDS, Channel(), 0)


def signal(name: str, options: simulated.Options) -> float:
    own = dict(options)
    limit = own.pop("max_energy", np.inf)
    site = SITE._replace(energy=np.minimum(SITE.energy, limit))
    cut = lambda plan: within_run(plan, MESSAGE, JOULES)  # noqa: E731
    return simulated.trial(name, own, AT._replace(deployment=site), cut).snr


@pytest.mark.parametrize("name", ["constant", "weakest", "biasvar"])
def test_settings_for_a_run_of_limited_energy_hear_more(name: str) -> None:
    rule = lambda limit, budget: rules.settings(name, limited(SITE, limit), MESSAGE, budget, ROUNDS, Channel())  # noqa: E731
    found = settings(name, rule, AT, JOULES)
    assert isinstance(found, dict)
    assert signal(name, found) > 1.05 * signal(name, rule(None, AT.budget))


def test_a_scheme_that_plans_with_joules_is_told_them() -> None:
    found = settings("ridge", lambda limit, budget: {}, AT, JOULES)
    assert found == {"joules": JOULES}
    _, plan, _, _ = simulated.planned("ridge", found, AT)
    assert np.all(planned_energy(plan, MESSAGE).sum(0) <= JOULES * (1 + 1e-9))


def test_an_ideal_uplink_pays_nothing() -> None:
    assert settings("fedavg-dp", lambda limit, budget: {}, AT, JOULES) == {}


def test_a_softer_target_costs_its_share() -> None:
    assert softened(AT.budget, 0.25).zcdp == pytest.approx(AT.budget.zcdp / 4, rel=1e-9)
