"""A budget of energy for the whole run: kept by every scheme, and used better by settings that know of it."""

import numpy as np
import pytest

from otafl.channels import Channel
from otafl.core.errors import InputError
from otafl.core.plan import Deployment, Message
from otafl.privacy import Budget
from otafl.runs.comparing.run_energy import settings, softened
from otafl.runs.planning.energy import planned_energy, within_run
from otafl.runs.planning.facts import facts_of
from otafl.runs.planning.planned import Planned
from otafl.runs.schema import Experiment
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


def test_private_coins_do_not_decide_when_energy_ends():
    """Two rounds of which one can be paid for: whoever sends at once is charged one sampled round (ε 3.534 at z = 1);
    what is sent by such a rule has ε 3.540, whatever the coins came to be."""

    def planned(**more):
        told = {
            "rounds": 2, "seeds": 1, "channel": {"fading": {"kind": "constant"}},
            "task": {"num_params": 20, "clients": 1}, "clients": {"kind": "gradient", "adjacency": "zero-out"},
            "radio": {"max_energy": 100.0, "noise_std": 1.0, "run_energy": 1.0},
            "privacy": {"eps": 1000.0, "accountant": "pld"},
            "scheme": [{"name": "random-participation", "participation": 0.5, "rx_scale": 0.5, **more}],
        }  # fmt: skip
        experiment = Experiment.model_validate(told)
        return Planned(experiment, experiment.scheme[0], facts_of(experiment))

    assert planned().run_energy == 1.0
    with pytest.raises(InputError, match="run_energy silences a client by the coins"):
        planned(credit="hidden")
