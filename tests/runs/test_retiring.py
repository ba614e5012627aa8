"""Who may retire at its own cap, on which uplinks, in which loops; and receivers that are not covered."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import otafl
from otafl import systems
from otafl.core import uplink
from otafl.core.errors import BudgetExceeded, InputError, Interrupted
from otafl.core.plan import (
    ArrayTrace,
    Context,
    Deployment,
    Events,
    Message,
    Obs,
    Plan,
    Policy,
    Receiver,
    Trace,
    cut,
    namespace,
)
from otafl.core.rounds import observe, stack
from otafl.privacy import Budget, Ledger, events, gaussian
from otafl.privacy.array_uplink import array_uplink
from otafl.privacy.eavesdropper import Eavesdropper
from otafl.reports.tables import comparison
from otafl.runs import kept, runner
from otafl.runs.folder.store import read_table
from otafl.runs.folder.summaries import guaranteed
from otafl.runs.planning.facts import facts_of
from otafl.runs.planning.planned import Planned
from otafl.runs.planning.retirement import refuse_retirement
from otafl.runs.planning.table import row_of
from otafl.runs.progress import Reporter, Tick
from otafl.runs.schema import Experiment
from otafl.runs.schemes import choose


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
    "constant": {"rx_scale": 0.3}, "cares-adaptive": {}, "endless": {}, "blinking": {},
    "cares-static": {"max_dropped": 0.5, "max_asymmetry": 0.5},
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


def test_another_uplink_refuses_to_let_clients_retire():
    foreign = uplink.ANALOG._replace(name="mine", add=lambda total, part: uplink.add_leaves(total, part))
    with pytest.raises(InputError, match=r"one: privacy\.stop='each' is not offered on the uplink 'mine'"):
        refuse_retirement("one", foreign)


def test_a_closed_loop_that_retires_is_planned_by_its_cap():
    row = row_of(retiring("cares-adaptive"), 0.5)
    assert row.eps == [60.0] and row.binding == "the training decides; ε is each client’s cap"
    with pytest.raises(InputError, match="'pld' has no filter for adaptive runs; use 'zcdp', 'gaussian' or 'rdp' with"):
        retiring("cares-adaptive", accountant="pld")


@dataclass(frozen=True)
class Nothing:
    pass


def endless(config: Nothing, deployment: Deployment, message: Message, context: Context) -> Policy:
    """A closed loop that never stops by itself and knows no channel."""

    def step(state: Any, obs: Obs) -> tuple[Any, Plan, Any]:
        xp = namespace(obs.coin)
        one = xp.ones(obs.coin.shape)
        return state, Plan(0.01 * one + 0j, 0j * one, np.inf * one, xp.ones(()), one, xp.ones((), bool)), ()

    return Policy("endless", lambda key: np.zeros(1), step, loop="round", csi="none", gate="bound")


def test_somebody_elses_closed_loop_is_held_to_its_cap() -> None:
    """All rounds that the ledger affords are run, and not one more; the policy is shown no gain."""
    systems.register("endless", endless, Nothing)
    try:
        made = retiring("endless", eps=5.0, stop="worst")
        site = made.setup.sites[0]
        state, live = site.policy.init(0), []
        whole = Plan(*(np.asarray(leaf) for leaf in stack([endless(Nothing(), *NOBODY).step(0, seen(site, t))[1]
                                                           for t in range(60)])))  # fmt: skip
        for t in range(60):
            state, plan, _ = site.policy.step(state, seen(site, t))
            live.append(bool(plan.live))
    finally:
        systems.remove(systems.OWN)
    released = events(whole, site.trace, site.deployment, site.message)
    np.testing.assert_array_equal(live, made.ledgers[0].affordable(released))
    assert 0 < sum(live) < 60
    assert made.foreign


NOBODY: Any = (None, None, None)


def seen(site: Any, t: int) -> Obs:
    return observe(site.policy, cut(site.trace, t), t, 0.5)


def test_a_certificate_ends_where_somebody_retires():
    """CARES certifies rounds of everyone: without the heaviest client the dropped weight is no longer within target."""
    made = retiring("cares-static")
    [plan], [info] = made.plans, made.infos
    whole = np.all(plan.max_norm >= 0, axis=1)
    assert np.any(whole) and not np.all(whole[plan.live])
    np.testing.assert_array_equal(info.certified, whole)


class Kept(NamedTuple):
    certified: Any


def blinking(config: Nothing, deployment: Deployment, message: Message, context: Context) -> Policy:
    """Certifies every round; the first client sends in even ones only, and it alone is loud."""

    def step(state: Any, obs: Obs) -> tuple[Any, Plan, Any]:
        one = np.ones(obs.coin.shape)
        sends = (np.arange(one.shape[-1]) > 0) | (np.asarray(obs.round) % 2 == 0)[..., None]
        loud = np.where(np.arange(one.shape[-1]) > 0, 0.001, 0.01) * one
        live = one[..., 0] > 0
        return state, Plan(sends * loud + 0j, 0.05 * one + 0j, np.where(sends, np.inf, -1.0), 0.3 + 0 * one[..., 0],
                           1.0 * sends, live), Kept(live)  # fmt: skip

    return Policy("blinking", lambda key: (), step, loop="open", csi="none", gate="bound")


@pytest.mark.parametrize("privacy", [{}, {"retired_noise": False}, {"stop": "worst"}])
def test_a_loop_of_ones_own_is_silenced_and_certified_as_the_engine_is(privacy):
    """Certificates end in rounds that a retired client would have been in, not in those it would have sat out."""
    systems.register("blinking", blinking, Nothing)
    try:
        made = retiring("blinking", eps=12.0, **privacy)
        air = otafl.Air(
            "blinking", site=4, num_params=200, weights=[0.4, 0.3, 0.2, 0.1], channel="cares", rounds=60, seed=0,
            noise_std=0.05, eps=12.0, **{"stop": "each", **privacy},
        )  # fmt: skip
    finally:
        systems.remove(systems.OWN)
    [plan], [info], count = made.plans, made.infos, air.affordable_rounds
    assert count == made.ran[0] == np.sum(plan.live)
    for of_engine, of_air in zip(cut(plan, slice(count)), air._plans.first(count)):
        np.testing.assert_array_equal(of_engine, of_air)
    np.testing.assert_array_equal(info.certified[:count], air._plans.certified(count))
    assert [air._plans.retired(count)] == (made.retired or [0])
    if made.retires:
        out = int(np.argmax(plan.max_norm[::2, 0] < 0)) * 2
        assert 0 < out < count
        np.testing.assert_array_equal(info.certified, (np.arange(60) < out) | (np.arange(60) % 2 == 1))


@pytest.mark.parametrize(("changed", "said"), [
    ({"uplink": uplink.PERFECT}, "no radio"),
    ({"uplink": uplink.ANALOG._replace(name="digital")}, "is not counted here"),
    ({"loop": "round", "eps": np.inf}, "without a cap"),
    ({"loop": "round", "bound": np.inf}, "at any amplitude"),
    ({"loop": "round", "foreign": True}, "somebody else's closed loop"),  # another path may be all noise
    ({"loop": "round", "noise": 0.1}, "two receivers may take out"),
    ({"earlier": "ledger-0.bin"}, "earlier run is not declared"),
])  # fmt: skip
def test_a_second_receiver_about_whom_nothing_is_proved_is_said_to_be_outside(changed, said):
    privacy = SimpleNamespace(eavesdropper=Eavesdropper(0.1, 0.1), already_spent=changed.get("earlier"))
    site = SimpleNamespace(message=SimpleNamespace(bound=changed.get("bound", 1.0)))
    run = SimpleNamespace(
        uplink=changed.get("uplink", uplink.ANALOG), loop=changed.get("loop", "open"),
        experiment=SimpleNamespace(privacy=privacy), budget=SimpleNamespace(eps=changed.get("eps", 8.0)),
        setup=SimpleNamespace(sites=[site]), foreign=changed.get("foreign", False),
    )  # fmt: skip
    plan = SimpleNamespace(noise=np.full((1, 2, 3), changed.get("noise", 0.0)))
    outcome = SimpleNamespace(played=SimpleNamespace(plan=plan, live=np.ones((1, 2), bool)))
    [observer] = kept._eavesdropper(run, outcome)  # type: ignore[arg-type]
    assert observer.eps is None and observer.why.startswith("not covered: ") and said in observer.why


@pytest.mark.parametrize(("budget", "rate"), [
    (Budget(np.inf, 1e-5, "gaussian", adjacency="replace"), 1.0),
    (Budget(np.inf, 1e-5, "rdp", adjacency="replace", order=3.0), 1.0),
    (Budget(np.inf, 1e-5, "rdp", adjacency="replace"), 0.5),
])  # fmt: skip
def test_a_second_receiver_is_charged_in_the_worst_seed_and_artificial_noise_counts_nothing(budget, rate):
    """Two antennas at the server, three rounds, the first of two seeds twice as near: (O1) by hand."""
    one, plans, sites = np.ones((3, 2)), [], []
    for near in (1.0, 0.5):
        array = near * np.full((3, 2, 2), 1 + 1j)
        trace = ArrayTrace(array[..., 0], array[..., 0], one, one, one, one, one, array, array)
        plans.append(Plan(0.3 * one + 0j, 0.5 * one + 0j, np.inf * one, one[:, 0], one, one[:, 0] > 0))
        message = Message(5, 1.0, one[0], 2 * one[0], rate * one[0], "client", "replace")
        site = Deployment(one[0], 0.04, 0.04, one[0] / 2, 5, receiver=Receiver(2))
        sites.append(SimpleNamespace(trace=trace, message=message, deployment=site))
    privacy = SimpleNamespace(eavesdropper=Eavesdropper(0.2, 0.1, antennas=3), already_spent=None)
    run = SimpleNamespace(
        uplink=array_uplink(Receiver(2)), loop="open", experiment=SimpleNamespace(privacy=privacy),
        budget=budget, setup=SimpleNamespace(sites=sites),
    )  # fmt: skip
    outcome = SimpleNamespace(played=SimpleNamespace(of_seed=lambda s: plans[s]))
    [observer] = kept._eavesdropper(run, outcome)  # type: ignore[arg-type]
    square = 2**2 * 0.3**2 * (4 / 0.04 + 0.2**2 * 3 / 0.1**2)
    alone, ledger = np.ones((3, 1)), Ledger(budget, 1)
    ledger.spend(
        Events(
            math.sqrt(square) * alone,
            0 * alone,
            alone > 0,
            alone,
            alone[:, 0],
            alone[:, 0] > 0,
            rate * alone[0],
            alone[0],
        )
    )
    assert observer.eps == pytest.approx(float(ledger.spent().worst))
    if budget.accountant == "gaussian":
        assert observer.eps == pytest.approx(float(gaussian.eps(math.sqrt(3 * square), 1e-5)))


def test_a_second_receiver_of_a_closed_loop_is_charged_at_the_site_with_most_energy():
    """(O2) by hand, with the cap of what the server hears."""
    one, budget = np.ones((3, 2)), Budget(8.0, 1e-5, "gaussian", adjacency="replace", adaptive=True)
    plan = Plan(0.3 * one + 0j, 0j * one, np.inf * one, one[:, 0], one, one[:, 0] > 0)
    trace = Trace(one + 0j, one + 0j, one, one, one, one, one)
    message = Message(5, 1.0, one[0], 2 * one[0], one[0], "client", "replace")
    sites = [
        SimpleNamespace(trace=trace, message=message, deployment=Deployment(joules * one[0], 4.0, 4.0, one[0] / 2, 5))
        for joules in (2.0, 1.0)
    ]
    privacy = SimpleNamespace(eavesdropper=Eavesdropper(0.2, 0.1), already_spent=None)
    run = SimpleNamespace(
        uplink=uplink.ANALOG, loop="round", foreign=False, scheme=None, budget=budget,
        experiment=SimpleNamespace(privacy=privacy, horizon=lambda scheme: 7), setup=SimpleNamespace(sites=sites),
    )  # fmt: skip
    played = SimpleNamespace(of_seed=lambda s: plan, plan=plan, live=plan.live)
    [observer] = kept._eavesdropper(run, SimpleNamespace(played=played))  # type: ignore[arg-type]
    rho = budget.zcdp + 7 * 2.0 * 2**2 * 0.2**2 / (2 * 0.1**2)
    assert observer.eps == pytest.approx(float(gaussian.eps(math.sqrt(2 * rho), 1e-5)))


# --- a closed loop, run ----------------------------------------------------------------------------------------------

WEIGHTS, EPS, ROUNDS = np.array([0.4, 0.3, 0.2, 0.1]), 100.0, 80
PLACE = "schemes/cares-adaptive"
SECOND = {"gain": 0.02, "noise_std": 0.05, "antennas": 2}


def closed(engine: Any = None, task: Any = None, **scheme: Any) -> Experiment:
    return Experiment.model_validate({
        "rounds": ROUNDS, "seeds": 2, "evaluate_every": 20, "channel": "cares",
        "engine": {"checkpoint_seconds": 0, **(engine or {})},
        "task": {"data": {"name": "digits", "train_size": 80}, "clients": 4, "partition": {"kind": "iid"},
                 "model": {"name": "logistic"}, "weights": WEIGHTS.tolist(), **(task or {})},
        "clients": {"kind": "gradient", "batch": 8},
        "privacy": {"eps": EPS, "stop": "each", **({} if engine else {"eavesdropper": SECOND})},
        "scheme": [{"name": "cares-adaptive", "max_dropped": 0.5, "max_asymmetry": 0.5, **scheme}],
    })  # fmt: skip


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("otafl.reports.write_report", lambda runs, out_file=None: [])
        return runner.start(closed(), tmp_path_factory.mktemp("closed") / "run")


def of(run: Path, name: str) -> Any:
    return json.loads((run / PLACE / f"{name}.json").read_text())


@pytest.mark.parametrize("seed", [0, 1])
def test_a_closed_loop_lets_clients_go_where_a_naive_filter_does(played: Path, seed: int) -> None:
    """By the receive scalings that were played alone: (scaling weight 2 G / noise)^2 / 2 each, fsum against the cap."""
    rounds, devices = (read_table(played / PLACE / f"{name}.parquet") for name in ("rounds", "devices"))
    scale = rounds["rx_scale"][rounds["seed"] == seed]
    own = devices["seed"] == seed
    sends = np.isfinite(devices["noise_multiplier"][own]).reshape(len(scale), 4)
    cap = (math.sqrt(math.log(1e5) + EPS) - math.sqrt(math.log(1e5))) ** 2
    for k, weight in enumerate(WEIGHTS):
        paid: list[float] = []
        for t, eta in enumerate(scale):
            if math.fsum([*paid, cost := (eta * weight * 2 / 0.05) ** 2 / 2]) > cap:
                assert not np.any(sends[t:, k])  # out for good
                break
            paid.append(cost)
            assert sends[t, k]
    ledger = Ledger.load(played / PLACE / f"ledger-{seed}.bin")
    assert np.all(ledger.spent().eps <= EPS) and np.all(ledger.spent().eps > 0.8 * EPS)
    assert ledger.guarantee() == EPS and len(set(sends.sum(0))) == 4


def test_a_closed_loop_that_retires_says_so_on_card_and_tables(played: Path) -> None:
    summary, card = of(played, "summary"), of(played, "card")
    assert summary["stopped_by"] == ["budget"] * 2 and all(0 < n < 4 for n in summary["retired"])
    assert any(text.startswith("no joint certificate in") for text in summary["remarks"])
    [said] = [text for text in card["assumptions"] if "retire at their own cap" in text]
    assert "privacy filter of its own" in said and " of 4 had retired at the end" in said
    assert not any(spent["certified"] for spent in card["spent"]) and card["guarantee"] == {"eps": EPS, "is_cap": True}
    footer = comparison(played)[1]
    assert "its guarantee is the cap" in footer and "of 4 clients had retired" in footer
    assert guaranteed(summary) == EPS > max(summary["final_eps"])


def test_a_second_receiver_of_a_closed_loop_is_charged_the_cap_and_every_round_at_full_energy(played: Path) -> None:
    [row] = [one for one in of(played, "card")["observers"] if one["observer"] == "eavesdropper"]
    cap = (math.sqrt(math.log(1e5) + EPS) - math.sqrt(math.log(1e5))) ** 2
    rho = cap + ROUNDS * 1.0 * 4 * 0.02**2 * 2 / (2 * 0.05**2)
    assert row["eps"] == pytest.approx(rho + 2 * math.sqrt(rho * math.log(1e5)))
    spent = float(row["why"].rpartition("played: ")[2])
    assert EPS * 0.8 < spent < row["eps"]


@pytest.mark.slow
def test_a_closed_loop_whose_filter_is_off_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otafl.runs.planning.retirement.filtered", lambda policy, *given: policy)
    with pytest.raises(BudgetExceeded, match="would pass the privacy budget"):
        runner.start(closed(label="bare"), tmp_path / "run")  # tests share programs by their experiment


class Stop(Reporter):
    def tick(self, tick: Tick) -> None:
        if tick.round == 60:
            raise Interrupted("stop")


@pytest.mark.slow
def test_a_closed_loop_that_retires_goes_on_to_the_same_bits_and_may_go_by_in_blocks(
    played: Path, tmp_path: Path
) -> None:
    with pytest.raises(Interrupted):
        runner.start(closed(), tmp_path / "run", Stop())
    assert {part.name for part in (tmp_path / "run" / PLACE / "checkpoints").iterdir()}
    runner.resume(tmp_path / "run")
    streamed = runner.start(closed(engine={"stream": True}), tmp_path / "streamed")
    for name in ("ledger-0.bin", "ledger-1.bin", "model.npz", "rounds.parquet"):
        whole, resumed, by = ((run / PLACE / name).read_bytes() for run in (played, tmp_path / "run", streamed))
        assert whole == resumed and (whole == by or name.startswith("ledger"))
    assert of(streamed, "summary")["retired"] == of(played, "summary")["retired"]
    for seed in (0, 1):
        kept_whole, summed = (Ledger.load(run / PLACE / f"ledger-{seed}.bin") for run in (played, streamed))
        np.testing.assert_array_equal(kept_whole.zcdp(), summed.zcdp())


@pytest.mark.slow
def test_private_rewards_go_on_reading_retired_clients_and_stay_within_the_cap(tmp_path: Path) -> None:
    """Sizes are the weights; the noisy accuracy of every round is charged to everyone to the end."""
    task = {"weights": "samples", "partition": {"kind": "sizes", "sizes": [24, 12, 8, 36]}}
    run = runner.start(closed(task=task, reward_data="private_noisy", reward_noise=0.8), tmp_path / "run")
    assert any(of(run, "summary")["retired"])
    for seed in (0, 1):
        ledger = Ledger.load(run / PLACE / f"ledger-{seed}.bin")
        [release] = ledger.releases
        assert release.times == ledger.rounds() and np.all(ledger.spent().eps <= EPS)


# --- a loop of one's own ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["constant", "cares-adaptive"])
def test_a_loop_of_ones_own_lets_clients_retire_and_goes_on_with_the_others(scheme: str, tmp_path: Path) -> None:
    settings = {"constant": {"rx_scale": 0.3}, "cares-adaptive": {"max_dropped": 0.5, "max_asymmetry": 0.5}}[scheme]
    air = otafl.Air(
        choose(scheme, settings), site=4, num_params=3, channel="cares", eps=EPS, rounds=20, seed=0, stop="each",
        noise_std=0.05, weights=WEIGHTS.tolist(), folder=tmp_path / "air",
    )  # fmt: skip
    asked = []
    for r in air:
        asked.append(set(map(int, r.asked)))
        r.send({k: np.full(3, 0.1, np.float32) for k in r.asked})
        air.reward(0.1 + 0.01 * r.number)
        if r.number == 9:
            air.close()
            air = otafl.Air.restore(tmp_path / "air")
            air.reward(0.19)
            break
    for r in air:
        asked.append(set(map(int, r.asked)))
        r.send({k: np.full(3, 0.1, np.float32) for k in r.asked})
        air.reward(0.1 + 0.01 * r.number)
    assert 0 < air.retired < 4 and 0 not in set().union(*asked[10:]) and 3 in set().union(*asked[10:])
    spent = air.ledger.spent().eps
    assert np.all(spent <= EPS) and spent[0] > 0.8 * EPS
    assert f"{air.retired} of 4 had retired" in str(air.card) and air.summary["retired"] == air.retired
