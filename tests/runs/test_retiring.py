"""Who may retire at its own cap, on which uplinks and under which accountants; and receivers that are not covered."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from otafl.core import uplink
from otafl.core.errors import InputError
from otafl.privacy import Ledger, events
from otafl.privacy.eavesdropper import Eavesdropper
from otafl.runs import kept
from otafl.runs.planning.facts import facts_of
from otafl.runs.planning.planned import Planned, refuse_retirement
from otafl.runs.schema import Experiment


def retiring(scheme: str, **privacy: Any) -> Any:
    """Four clients of unequal weight under a cap that the first reaches long before the last."""
    experiment = {
        "rounds": 60, "seeds": 1, "task": {"num_params": 200, "clients": 4, "weights": [0.4, 0.3, 0.2, 0.1]},
        "channel": "eezofl" if scheme == "eezofl" else "cares", "scheme": [{"name": scheme, **SETTINGS[scheme]}],
        "privacy": {"eps": 60.0, "stop": "each", **privacy},
        **({"clients": {"kind": "zero-order", "directions": 4, "clip_norm": 0.2}} if scheme == "eezofl" else {}),
    }  # fmt: skip
    made = Experiment.model_validate(experiment)
    return Planned(made, made.scheme[0], facts_of(made))


SETTINGS: dict[str, dict[str, Any]] = {
    "eezofl": {"mode": "fixed-point", "dp_noise": 0.5, "n": 64, "allow_insecure": True},
    "constant": {"rx_scale": 0.3}, "cares-adaptive": {},
}  # fmt: skip


@pytest.mark.parametrize(("scheme", "privacy"), [
    ("eezofl", {"eps": 8.0}), ("constant", {"accountant": "rdp"}), ("constant", {"retired_noise": False}),
])  # fmt: skip
def test_clients_retire_on_encrypted_uplinks_and_under_any_accountant(scheme, privacy):
    """Everyone's own cap holds, the plan says who is silent, and the last one left goes on longest."""
    made = retiring(scheme, **privacy)
    [plan], site, cap = made.plans, made.setup.sites[0], made.budget.eps
    inside = (plan.max_norm >= 0) & plan.live[:, None]
    rounds = inside.sum(0)
    assert rounds.max() > rounds.min() and np.all(plan.tx[~inside & plan.live[:, None]] == 0)
    spent = Ledger(made.budget, 4, [events(plan, site.trace, site.deployment, site.message)]).spent().eps
    assert np.all(spent <= cap) and np.all(spent > 0)
    link = made._link(plan, site.trace, site, 0)
    assert np.all(link.weight[~inside] == 0) and np.all(link.max_norm[~inside & plan.live[:, None]] < 0)


def test_a_closed_loop_or_another_uplink_refuses_to_let_clients_retire():
    with pytest.raises(InputError, match=r"cares-adaptive: privacy\.stop='each' needs a plan made in advance"):
        retiring("cares-adaptive")
    foreign = uplink.ANALOG._replace(name="mine", add=lambda total, part: uplink.add_leaves(total, part))
    with pytest.raises(InputError, match=r"one: privacy\.stop='each' is not offered on the uplink 'mine'"):
        refuse_retirement("one", "open", foreign)


@pytest.mark.parametrize(("changed", "said"), [
    ({"uplink": uplink.PERFECT}, "no radio"),
    ({"uplink": uplink.ANALOG._replace(name="digital")}, "is not counted here"),
    ({"loop": "round"}, "no guarantee"),
    ({"earlier": "ledger-0.bin"}, "earlier run is not declared"),
])  # fmt: skip
def test_a_second_receiver_about_whom_nothing_is_proved_is_said_to_be_outside(changed, said):
    privacy = SimpleNamespace(eavesdropper=Eavesdropper(0.1, 0.1), already_spent=changed.get("earlier"))
    run = SimpleNamespace(
        uplink=changed.get("uplink", uplink.ANALOG), loop=changed.get("loop", "open"),
        experiment=SimpleNamespace(privacy=privacy),
    )  # fmt: skip
    [observer] = kept._eavesdropper(run, None)  # type: ignore[arg-type]
    assert observer.eps is None and observer.why.startswith("not covered: ") and said in observer.why
