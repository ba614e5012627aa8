"""`otafl.Air` as a tool: what it asks, refuses, reports and says. Numbers are held to the engine's next door."""

import contextlib
import copy
import dataclasses
import errno
import fcntl
import os
import re
import stat
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import otafl
from otafl import systems
from otafl.core.errors import BudgetExceeded, InputError, PrivacyViolation
from otafl.core.plan import Feedback, Message, Plan, Policy
from otafl.privacy import Ledger
from otafl.privacy.card_text import round_up
from otafl.privacy.events import pick
from otafl.privacy.sums import no_rounds
from otafl.runs.air.state import Folder
from otafl.runs.air.sums import Medium
from otafl.runs.folder.disk import StorageError
from small_air import message, opened, replies

# --- the loop -----------------------------------------------------------------------------------------------------


def test_the_budget_ends_the_loop_and_is_a_cap() -> None:
    air = otafl.Air(otafl.constant(rx_scale=0.3), site=40, num_params=31, clip_norm=1.0, channel="cares", eps=8.0,
                    delta=1e-5, rounds=200, seed=0)  # fmt: skip
    spent = []
    for r in air:
        r.send({k: np.full(31, 0.1, np.float32) for k in r.asked})
        spent.append(r.eps)
    assert len(spent) == air.affordable_rounds == air.rounds_charged < 200
    assert np.all(np.diff(spent) > 0) and spent[-1] <= 8.0
    one_more = Ledger.from_bytes(air.ledger_bytes())
    with pytest.raises(BudgetExceeded):
        one_more.spend(pick(one_more.parts[0], slice(1)))


def test_a_round_is_charged_on_entry_and_stays_charged() -> None:
    air = opened()
    r = next(air)
    assert air.ledger.rounds() == 1
    next(air)  # the first was never sent
    assert air.ledger.rounds() == 2
    with pytest.raises(InputError, match="round 0 ended when the next was opened; a round is sent once"):
        r.send(replies(r))


def test_a_reply_that_sends_the_round_while_it_is_read_gets_no_second_answer() -> None:
    """Two answers under one noise: their difference is the difference of the messages."""
    r = next(opened())

    class Lazy:
        def __array__(self, *wanted: Any, **more: Any) -> np.ndarray:
            r.send(replies(r))
            return message(0)

    with pytest.raises(InputError, match="round 0 was sent before"):
        r.send({**replies(r), int(r.asked[0]): Lazy()})


def test_a_loop_and_its_rounds_say_where_they_are() -> None:
    air = opened(eps=8.0)
    assert repr(air) == "<otafl.Air, constant, 4 clients: 0 of 5 rounds, ε = 0 of 8>"
    r = next(air)
    assert repr(r) == "<round 0: 4 of 4 clients asked, open>"
    r.send(replies(r))
    assert repr(r).endswith("answered>") and f"1 of 5 rounds, ε = {round_up(air.eps)} of 8" in repr(air)


def test_a_round_is_sent_once() -> None:
    r = next(opened())
    r.send(replies(r))
    with pytest.raises(InputError, match="once"):
        r.send(replies(r))


def test_two_threads_get_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum waits for both: without a lock each would be answered, and one charge would pay for two releases."""
    r = next(opened(seed=None))
    meeting, add_up = threading.Barrier(2), Medium.add_up

    def waiting(*args: Any) -> Any:
        with contextlib.suppress(threading.BrokenBarrierError):
            meeting.wait(0.5)
        return add_up(*args)

    monkeypatch.setattr(Medium, "add_up", waiting)
    with ThreadPoolExecutor(2) as pool:
        ended = [pool.submit(r.send, replies(r)) for _ in range(2)]
    assert sorted(type(one.exception()) for one in ended if one.exception()) == [InputError]


def test_a_fork_does_not_release_a_round_again(monkeypatch: pytest.MonkeyPatch) -> None:
    air = opened()
    r, own = next(air), os.getpid()
    monkeypatch.setattr("os.getpid", lambda: own + 1)
    for again in (lambda: r.send(replies(r)), lambda: next(air)):
        with pytest.raises(InputError, match="stays in its process"):
            again()
    monkeypatch.undo()
    r.send(replies(r))


@pytest.mark.parametrize("seed", [1, None])
@pytest.mark.parametrize("becomes", [1e3, np.nan])
def test_a_message_that_changes_while_it_is_sent_is_refused(
    seed: int | None, becomes: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured at one length, it would be added at another: as loud as somebody likes, at the same charge."""
    r = next(opened(seed=seed))
    brought, add_up = replies(r), Medium.add_up

    def late(*args: Any) -> Any:
        brought[int(r.asked[0])][:] = becomes
        return add_up(*args)

    monkeypatch.setattr(Medium, "add_up", late)
    with pytest.raises(PrivacyViolation, match="changed while it was sent; nothing was sent"):
        r.send(brought)
    monkeypatch.setattr(Medium, "add_up", add_up)
    assert np.all(np.isfinite(r.send(replies(r))))


def test_nothing_affordable_is_said_at_once() -> None:
    with pytest.raises(BudgetExceeded, match="not one round"):
        opened(otafl.constant(rx_scale=100.0), eps=0.1)


# --- encrypted rounds ---------------------------------------------------------------------------------------------


def encrypted(mode: str) -> otafl.Air:
    return otafl.Air(otafl.eezofl(mode=mode, dp_noise=0.5), site=4, num_params=2, clip_norm=1.0, channel="eezofl",
                     rounds=3, seed=2)  # fmt: skip


def test_all_reply_to_an_encrypted_round_and_a_failed_one_is_charged_again() -> None:
    air = encrypted("naive-reuse")
    answers = []
    for r in air:
        assert r.asked.tolist() == [0, 1, 2, 3]
        answers.append(r.send(replies(r, 2)))
        assert r.failed
    assert air.ledger.rounds() == 3 and air.summary["failed"] == 3
    np.testing.assert_array_equal(answers, np.zeros((3, 2)))


def test_a_silent_device_encrypts_zero() -> None:
    all_of_them, without = encrypted("digital"), encrypted("digital")
    r, other = next(all_of_them), next(without)
    full, less = r.send(replies(r, 2)), other.send({k: m for k, m in replies(other, 2).items() if k != 1})
    weight = r.plan.tx[1].real * all_of_them.job.trace.gain[0, 1].real
    np.testing.assert_allclose(full - less, weight * message(1, 2), atol=1e-4)
    assert not r.failed and not other.failed


# --- closed loops -------------------------------------------------------------------------------------------------


def test_a_closed_loop_asks_for_its_reward() -> None:
    air = opened("cares-adaptive", channel="cares", eps=300.0)
    r = next(air)
    r.send(replies(r))
    with pytest.raises(InputError, match="reward"):
        next(air)
    r.reward(0.5)
    assert next(air).number == 1
    with pytest.raises(InputError, match="accuracy"):
        air.reward(1.5)


@dataclasses.dataclass(frozen=True)
class Nothing:
    """Nothing to set."""


def choosy(config: Any, deployment: Any, *told: Any) -> Policy:
    """Somebody else's closed loop, which ends where a noisy reward on private data is low."""

    def step(state: Any, obs: Any) -> Any:
        ones = jnp.ones(obs.coin.shape)
        return state, Plan(0.05 * ones / obs.estimate, 0j * ones, np.inf * ones, 0.05, ones, obs.metric > 0.5), ()

    return Policy("choosy", lambda key: np.zeros(1), step, "round", "own", "open", feedback=Feedback("private", 0.1))


def test_a_loop_that_has_ended_draws_no_further_reward(tmp_path: Path) -> None:
    """Whether it goes on would tell of a reward that nobody charged."""
    systems.register("choosy", choosy, Nothing)
    air = opened("choosy", eps=300.0, sizes=(5, 5, 5, 5), folder=tmp_path / "loop")
    air.reward(1.0)
    next(air).reward(0.0)
    assert list(air) == [] and air.affordable_rounds == air.rounds_charged == 1
    air.reward(1.0)
    assert list(air) == []
    air.close()
    again = otafl.Air.restore(tmp_path / "loop")
    next(again)  # was entered and not sent
    again.reward(1.0)
    assert list(again) == [] and again.rounds_charged == 1


def interrupting(line: int) -> Any:
    """Ctrl-C at the line of that number while a round is planned, as a tracer."""
    left = [line]

    def trace(frame: Any, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.endswith("air/schedule.py"):
            return None
        left[0] -= event == "line"
        if event == "line" and left[0] == 0:
            raise KeyboardInterrupt
        return trace

    return trace


def test_ctrl_c_while_a_closed_loop_plans_leaves_no_half_of_a_round(tmp_path: Path) -> None:
    """At every line: the round is planned as if nothing had been, and its folder can be gone on with.

    In a thread of its own: whoever breaks in right before the end of a `with jax.enable_x64` leaves its thread in it.
    """
    with ThreadPoolExecutor(1) as alone:
        alone.submit(broken_into, tmp_path).result()


def broken_into(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"eps": 200.0, "rounds": 3}
    undisturbed, air = opened("cares-adaptive", **settings), opened("cares-adaptive", folder=tmp_path, **settings)
    for accuracy in (0.5, 0.6, 0.55):
        undisturbed.reward(accuracy)
        air.reward(accuracy)
        whole, r, line, usual = next(undisturbed), None, 0, sys.gettrace()
        while r is None:
            line += 1
            sys.settrace(interrupting(line))
            with contextlib.suppress(KeyboardInterrupt):
                r = next(air)
            sys.settrace(usual)
        assert line > 15 and np.array_equal(r.asked, whole.asked)
        np.testing.assert_array_equal(r.send(replies(r)), whole.send(replies(whole)))
    assert air.ledger_bytes() == undisturbed.ledger_bytes()
    air.close()
    assert otafl.Air.restore(tmp_path).ledger_bytes() == air.ledger_bytes()


def test_a_closed_loop_from_outside_has_the_rewards_of_its_horizon_set_aside() -> None:
    systems.register("choosy", choosy, Nothing)
    air = opened("choosy", eps=201.5, sizes=(5, 5, 5, 5), rounds=40)
    air.reward(1.0)
    for r in air:
        r.reward(1.0)
    assert 0 < air.rounds_charged < 40
    ledger, left = air.ledger, 40 - air.rounds_charged
    ledger.release(air.job.releases[0]._replace(times=left))
    assert ledger.spent().worst <= 201.5


def test_a_round_that_could_not_be_kept_is_planned_once(tmp_path: Path, monkeypatch: Any) -> None:
    def full(folder: Folder, state: Any) -> Any:
        raise OSError(28, "no space left on device")

    whole, air = (opened("cares-adaptive", channel="cares", eps=900.0, folder=tmp_path / name) for name in "ab")
    for number in range(3):
        with monkeypatch.context() as broken:
            broken.setattr(Folder, "keep", full)
            with pytest.raises(OSError, match="no space"):
                next(air)
        for loop in (whole, air):
            r = next(loop)
            assert r.number == number
            r.send(replies(r))
            r.reward(0.3 + 0.2 * number)
    assert air.ledger_bytes() == whole.ledger_bytes()
    air.close()
    assert otafl.Air.restore(tmp_path / "b").rounds_charged == 3


# --- sites --------------------------------------------------------------------------------------------------------


def test_a_deployment_file_is_a_site(tmp_path: Path) -> None:
    (tmp_path / "site.csv").write_text("gain_db,power_dbm,samples\n-60,10,100\n-65,10,300\n")
    air = otafl.Air("weakest", site=tmp_path / "site.csv", num_params=6, noise_dbm=-70.0, rounds=2, seed=0)
    np.testing.assert_allclose(air.job.deployment.weights, [0.25, 0.75])
    np.testing.assert_allclose(air.job.deployment.energy, 0.01 * 6)
    np.testing.assert_allclose(air.job.deployment.noise_var, 1e-10 / 2)
    with pytest.raises(InputError, match="noise_dbm"):
        otafl.Air("weakest", site=tmp_path / "site.csv", num_params=6)
    (tmp_path / "site.toml").write_text(
        'devices_file = "site.csv"\n[radio]\nbandwidth_hz = 1e6\nnoise_dbm = -110.0\ntrusted_noise_dbm = -113.0\n'
    )
    air = otafl.Air("weakest", site=tmp_path / "site.toml", num_params=6, rounds=2, seed=0)
    assert air.num_clients == 2 and air.job.deployment.trusted_noise_var < air.job.deployment.noise_var
    with pytest.raises(InputError, match=r"\[radio\]"):
        otafl.Air("weakest", site=tmp_path / "site.toml", num_params=6, noise_std=0.1)
    otafl.Air("weakest", site=tmp_path / "site.toml", num_params=6, rounds=2, folder=tmp_path / "loop").close()
    (tmp_path / "site.csv").write_text("gain_db,power_dbm,samples\n-60,10,100\n-66,10,300\n")
    with pytest.raises(InputError, match=r"site\.csv was changed since the loop began"):
        otafl.Air.restore(tmp_path / "loop")


@pytest.mark.parametrize(("wrong", "said"), [
    ({"site": 0}, "site"), ({"num_params": None}, "num_params"), ({"clip_norm": -1.0}, "clip_norm"),
    ({"rounds": 0}, "rounds"), ({"channel": "nowhere"}, "channel"), ({"eps": -1.0}, "eps"), ({"delta": 2.0}, "delta"),
    ({"accountant": "best"}, "accountant"), ({"adjacency": "near"}, "adjacency"), ({"seed": -1}, "seed"),
    ({"weights": (0.5, 0.5)}, "weights"), ({"weights": (0.5, 0.5, 0.5, 0.5)}, "weights"), ({"sizes": (1, 2)}, "sizes"),
    ({"site": "nowhere.toml"}, "nowhere.toml"), ({"noise_std": 1.0, "noise_dbm": 3.0}, "noise_dbm"),
    ({"site": 4.0}, "site"), ({"site": True}, "site"), ({"site": 10**18}, "site"), ({"num_params": 10**18}, "memory"),
    ({"rounds": "5"}, "rounds"), ({"sizes": (1.5, 1, 1, 1)}, "sizes"),
    ({"message": 3}, "message"), ({"folder": 3}, "folder"), ({"like": "x"}, "like"), ({"strict": "no"}, "strict"),
    ({"rounds": 10**6, "site": 10**6}, "memory"), ({"delta": None}, "delta"), ({"channel": 3}, "channel"),
    ({"like": np.ones(3, np.float32)}, "like"), ({"channel": {"fading": {"law": "x"}}}, "channel"),
])  # fmt: skip
def test_mistakes_are_one_line(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        opened(**wrong)
    assert said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("promised", "said"),
    [
        ({"bound": 1e-25}, "message.bound=1e-25 must be at least 1e-09"),
        ({"bound": -1.0}, "message.bound=-1.0 must be finite and > 0"),
        ({"mean_square": np.full(4, np.nan)}, "message.mean_square"),
        ({"sensitivity": -np.ones(4)}, "message.sensitivity"),
        ({"unit": "household"}, "message.unit='household' must be one of client, record"),
        ({"adjacency": "none"}, "message.adjacency='none' must be one of"),
        ({"adjacency": "add-remove"}, "adjacency='add-remove' needs unit='record': the roster is published"),
    ],
)
def test_a_promise_that_no_message_can_keep_is_refused(promised: dict[str, Any], said: str) -> None:
    ones = np.ones(4)
    message = Message(6, 1.0, ones, 2 * ones, ones, "client", "replace")._replace(**promised)
    with pytest.raises(InputError, match=re.escape(said)):
        opened(message=message, num_params=None)


def test_a_message_of_another_size_is_refused_before_every_reply_is() -> None:
    ones = np.ones(4)
    with pytest.raises(InputError, match=r"num_params=6 but message\.dim=7"):
        opened(message=Message(7, 1.0, ones, 2 * ones, ones, "client", "replace"), num_params=6)


@pytest.mark.parametrize(
    ("adjacency", "moved", "asserted"), [("replace", 1.0, True), ("replace", 2.0, False), ("zero-out", 1.0, False)]
)
def test_what_clipping_does_not_enforce_of_a_client_stands_on_the_card(
    adjacency: Any, moved: float, asserted: bool
) -> None:
    """Another client's data may turn a message of norm one round: two apart."""
    ones = np.ones(4)
    air = opened(message=Message(6, 1.0, ones, moved * ones, ones, "client", adjacency), num_params=None)
    said = "asserted by the caller, not seen here: more than the norm bound enforces, so that one client moves"
    assert (said in str(air.card)) == asserted


@pytest.mark.parametrize("scheme", ["constant", "cares-adaptive"])
def test_nothing_that_is_charged_can_be_written_into(scheme: str) -> None:
    """The ledger is counted anew whenever it is asked for."""
    ones, moved = np.ones(4), np.full(4, 2.0)
    promised = Message(6, 1.0, ones, moved, ones, "client", "replace")
    air = opened(scheme, message=promised, num_params=None, channel="cares", eps=500.0)
    r = next(air)
    spent = air.eps
    moved[:] = 1e-6
    for values in (r.plan, air.job.trace, air.job.deployment, air.job.message):
        for leaf in values:
            assert not isinstance(leaf, np.ndarray) or not leaf.flags.writeable
    assert air.eps == spent


@pytest.mark.parametrize("scheme", ["nonsense", 3, None])
def test_a_scheme_is_a_name_or_a_value(scheme: Any) -> None:
    with pytest.raises(InputError, match="scheme"):
        opened(scheme)


@pytest.mark.parametrize("changed", ["adjacency", "unit"])
def test_a_ledger_of_other_neighbours_is_refused_though_sensitivities_agree(changed: str, tmp_path: Path) -> None:
    """Two under zero-out is four under replacement, and what a record moves is not what a client moves."""
    ones = np.ones(4)
    first = Message(6, 2.0, 4 * ones, 2 * ones, ones, "client", "zero-out")
    second = first._replace(**{"adjacency": {"adjacency": "replace"}, "unit": {"unit": "record"}}[changed])
    before = opened(message=first, num_params=None, eps=50.0)
    for r in before:
        r.send(replies(r))
    (tmp_path / "ledger.bin").write_bytes(before.ledger_bytes())
    opened(message=first, num_params=None, eps=50.0, already_spent=tmp_path / "ledger.bin")
    with pytest.raises(InputError, match=f"was counted for {changed}="):
        opened(message=second, num_params=None, eps=50.0, already_spent=tmp_path / "ledger.bin")


def test_what_an_earlier_run_spent_counts(tmp_path: Path) -> None:
    first = opened(eps=8.0)
    for r in first:
        r.send(replies(r))
    first.ledger.save(tmp_path / "ledger.bin")
    later = opened(eps=8.0, rounds=50, already_spent=tmp_path / "ledger.bin", folder=tmp_path / "loop")
    assert later.affordable_rounds == opened(eps=8.0, rounds=50).affordable_rounds - 5
    next(later)
    assert later.eps > opened().eps and later.ledger.rounds() == 6
    assert "an earlier run on the same clients" in str(later.card) and "an earlier run" not in str(first.card)
    later.close()
    opened(rounds=1).ledger.save(tmp_path / "ledger.bin")  # a smaller debt
    with pytest.raises(InputError, match="was changed"):
        otafl.Air.restore(tmp_path / "loop")


def test_an_earlier_ledger_of_sums_counts_as_one_of_rounds(tmp_path: Path) -> None:
    first = opened(eps=50.0)
    for r in first:
        r.send(replies(r))
    whole, run = Ledger(first.ledger.budget, 4), first.ledger.events
    whole.charge(no_rounds(run.rate, run.sensitivity).add(run))
    spent = []
    for name, ledger in (("rounds", first.ledger), ("sums", whole)):
        ledger.save(tmp_path / name)
        air = opened(eps=50.0, already_spent=tmp_path / name)
        next(air)
        spent.append((air.eps, air.ledger.rounds()))
    assert spent[0] == spent[1] and spent[0][0] > first.eps


def test_a_card_says_first_what_a_refused_round_tells() -> None:
    """strict=True: one client's message decides whether a round is sent at all, which is seen."""
    loud = {k: np.full(6, 1e3 if k == 1 else 1e-3, np.float32) for k in range(4)}
    for strict in (True, False):
        air = opened(strict=strict)
        if strict:
            with pytest.raises(PrivacyViolation, match="nothing was sent"):
                next(air).send(loud)
        else:
            next(air).send(loud)
        assert ("strict=True: a message above its bound" in "".join(air.card.alarms)) == strict


def test_a_loop_cannot_be_copied() -> None:
    with pytest.raises(InputError, match="copied"):
        copy.deepcopy(opened())


def test_rounds_without_a_certificate_are_said() -> None:
    air = opened(otafl.cares_static(diagnostic=True, max_dropped=1e-9), channel="cares", eps=50.0)
    next(air)
    assert "certificate" in air.summary["remarks"][0] and air.summary["remarks"][0] in str(air.card)


@pytest.mark.parametrize("files", [True, False], ids=["files alone", "nothing"])
def test_a_disk_that_locks_no_folders_still_has_one_loop_at_a_time_or_none(
    files: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NFS: two loops in one folder would release every round twice for one charge."""
    whole = fcntl.flock

    def flock(handle: int, how: int) -> None:
        if not files or stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EBADF, "no locks here")
        whole(handle, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    if not files:
        with pytest.raises(StorageError, match="cannot be locked"):
            opened(folder=tmp_path / "loop")
        return
    air = opened(folder=tmp_path / "loop")
    next(air)
    with pytest.raises(InputError, match="another process is writing"):
        otafl.Air.restore(tmp_path / "loop")
    air.close()
    with otafl.Air.restore(tmp_path / "loop") as again:
        assert again.rounds_charged == 1


def test_figures_of_a_loop_say_what_an_attacker_finds() -> None:
    """Before the first round nothing; then what the card says."""
    air = opened(eps=50.0)
    assert air.summary["mu"] == 0 and air.summary["tpr_at_1pct"] == pytest.approx(0.01)
    for r in air:
        r.send(replies(r))
    attack = air.card.to_dict()["attack"]
    assert air.summary["mu"] == pytest.approx(attack["mu"]) and air.summary["mu"] > 0
    assert air.summary["tpr_at_1pct"] == pytest.approx(norm.sf(norm.isf(0.01) - attack["mu"]))
