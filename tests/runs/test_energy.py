"""No policy may radiate more than the limit, whatever the messages: refused before anything runs, or in its chunk."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otafl import systems as policies
from otafl.core.errors import InputError, RunError
from otafl.core.plan import Deployment, Message, Plan
from otafl.runs import runner
from otafl.runs.planning import open_loop
from otafl.runs.planning.energy import check_energy, check_sent, planned_energy, within_run

ONES = np.ones(2)
SITE = Deployment(np.array([4.0, 9.0]), 0.01, 0.01, ONES / 2, 10)
BOUNDED = Message(10, 2.0, 4 * ONES, 4 * ONES, ONES, "client", "replace")
POISSON = Message(10, np.inf, 1.5 * ONES, 0.1 * ONES, 0.1 * ONES, "record", "zero-out")


def plan(tx: Any = 0.5, noise: Any = 0.0, max_norm: Any = np.inf) -> Plan:
    full = lambda value: np.broadcast_to(value, (3, 2))  # noqa: E731
    return Plan(full(tx), full(noise), full(max_norm), np.ones(3), full(1.0), np.ones(3, bool))


def test_planned_energy_by_hand() -> None:
    np.testing.assert_allclose(planned_energy(plan(0.5j, 0.1), BOUNDED), 0.25 * 4 + 10 * 0.01)
    np.testing.assert_allclose(planned_energy(plan(0.5, 0.1, max_norm=1.0), BOUNDED), 0.25 * 1 + 10 * 0.01)
    np.testing.assert_allclose(planned_energy(plan(0.5, 0.1, max_norm=-1.0), BOUNDED), 10 * 0.01)
    np.testing.assert_allclose(planned_energy(plan(0.5, 0.1), POISSON), 0.25 * 1.5 + 10 * 0.01)


@pytest.mark.parametrize("message", [BOUNDED, POISSON])
def test_a_plan_to_the_limit_passes_and_one_above_it_names_round_and_client(message: Message) -> None:
    most = np.sqrt(SITE.energy / message.mean_square)
    live = np.ones(3, bool)
    check_energy(plan(most), live, SITE, message, "here")
    for tx, noise in ((most * 1.001, 0.0), (most, 0.01), (0.0, np.sqrt(0.41)), (0.0, np.nan)):
        over = plan(tx, noise)
        bad = over._replace(tx=np.array(over.tx), noise=np.array(over.noise))
        bad.tx[:2], bad.noise[:2] = 0, 0
        with pytest.raises(RunError, match="here, round 12: client 0 would radiate"):
            check_energy(bad, live, SITE, message, "here", first=10)
        check_energy(bad, np.array([True, True, False]), SITE, message, "here")  # a round that is never run


@pytest.mark.parametrize("message", [BOUNDED, POISSON])
def test_what_was_sent_is_held_to_its_limit_but_for_rounding(message: Message) -> None:
    """In rounds that were run, of messages with a bound: a Poisson sum's limit is one on the mean."""
    live = np.array([True, True, False])
    for above in (1e-12, 1e-7, 0.5):
        energy = SITE.energy * np.ones((3, 1))
        energy[1, 1] *= 1 + above
        energy[2] *= 9
        if above > 1e-10 and message is BOUNDED:
            with pytest.raises(RunError, match=r"here, round 8: client 1 would radiate .* limit 9 J"):
                check_sent(energy, live, SITE, message, "here", first=7)
        else:
            check_sent(energy, live, SITE, message, "here")


POISSON_RUN = (
    "clients={kind='per-sample', batch=4}", "privacy={accountant='rdp'}", "channel='adascale'",
    "radio={power_dbm=23.0, noise_dbm=-90.0}", "scheme=[{name='adascale-equal', nu=0.1}]",
)  # fmt: skip


@pytest.mark.parametrize("spoil", [{"tx": 100.0}, {"noise": 100.0}])
def test_a_policy_that_radiates_too_much_under_poisson_sampling_is_refused_before_anything_runs(
    spoil: dict[str, float], tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """|tx| a hundred times the plan's; or as artificial noise, which would even lower epsilon."""
    honest = open_loop.plan_ahead

    def greedy(*args: Any) -> Any:
        state, found, info = honest(*args)
        if "tx" in spoil:
            return state, found._replace(tx=spoil["tx"] * found.tx), info
        return state, found._replace(noise=found.noise + spoil["noise"]), info

    monkeypatch.setattr(open_loop, "plan_ahead", greedy)
    with pytest.raises(RunError, match=r"adascale-equal: seed 0, round \d+: client \d would radiate .* on average"):
        runner.start(tiny(*POISSON_RUN), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_policy_inside_the_loop_is_held_to_the_limit_too(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = policies.make

    def greedy(*args: Any) -> Any:
        policy = honest(*args)

        def step(state: Any, obs: Any) -> Any:
            state, found, info = policy.step(state, obs)
            return state, found._replace(noise=found.noise + 10.0), info

        return policy._replace(step=step)

    monkeypatch.setattr(policies, "make", greedy)
    with pytest.raises(RunError, match=r"cares-adaptive: seed 0, round 0: client 0 would radiate"):
        runner.start(tiny("title=greedy", "scheme=[{name='cares-adaptive'}]"), tmp_path / "run")  # compiled for itself


# --- what else is refused before the first round ----------------------------------------------------------------------


def test_a_visible_stop_must_not_be_felt_in_delta(tiny: Any, tmp_path: Path) -> None:
    clients = "clients={kind='per-sample', batch=4, overflow_tail=1e-6}"
    with pytest.raises(InputError, match="overflow_tail=1e-06 over 5 rounds"):
        runner.start(tiny(clients, *POISSON_RUN[1:]), tmp_path / "run")


def test_add_remove_needs_declared_weights(tiny: Any, tmp_path: Path) -> None:
    clients = "clients={kind='per-sample', rate=0.2, divisor=4.0, size_max=30}"
    with pytest.raises(InputError, match=r"task\.weights='samples' is false"):
        runner.start(tiny(clients, *POISSON_RUN[1:]), tmp_path / "run")
    with pytest.raises(InputError, match="sums to"):
        tiny("task.weights=[0.1, 0.2, 0.3, 0.3]")
    folder = runner.start(tiny(clients, *POISSON_RUN[1:], "task.weights='equal'"), tmp_path / "run")
    card = (folder / "schemes/adascale-equal/card.md").read_text()
    assert "add-remove adjacency" in card and "client sizes and weights are treated as public" not in card


def test_a_run_of_limited_energy_is_spent_round_by_round_and_never_passed() -> None:
    """Against a loop over clients; a round that does not fit is skipped, a later one that does is sent."""
    rng = np.random.default_rng(3)
    rounds, clients, joules = 40, 5, 3.0
    tx = rng.exponential(0.3, (rounds, clients)) + 0j
    made = Plan(tx, 0.01 * tx, np.full(tx.shape, np.inf), np.ones(rounds), np.ones(tx.shape), np.arange(rounds) < 35)
    message = Message(7, 2.0, np.full(clients, 4.0), np.full(clients, 4.0), np.ones(clients), "client", "replace")
    found = within_run(made, message, joules)
    for k in range(clients):
        spent = 0.0
        for t in range(rounds):
            cost = abs(tx[t, k]) ** 2 * 4 + 7 * abs(0.01 * tx[t, k]) ** 2
            sends = t < 35 and spent + cost <= joules
            spent += cost * sends
            assert (found.max_norm[t, k] >= 0) == sends
            assert (found.noise[t, k] != 0) == sends
    assert np.all(planned_energy(found, message)[found.live].sum(0) <= joules)
