"""What those learn who read the answers and the folder of an `otafl.Air`: charged noise, one answer, nothing else."""

import json
import os
import random
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import otafl
from otafl import systems
from otafl.core.errors import BudgetExceeded, InputError, PrivacyViolation
from otafl.core.plan import Feedback, Message, Plan, Policy
from otafl.core.uplink import ANALOG, lower
from otafl.runs.air.round import noisy_metric
from otafl.runs.folder.sealed import with_seal
from small_air import opened, replies

# --- who is asked -------------------------------------------------------------------------------------------------


def test_only_public_silence_is_left_out() -> None:
    """With the bound's gate silence is the channel's alone; with the norm's gate it is the message's."""
    by_bound, by_norm = (opened(otafl.constant(rx_scale=5.0, silence=s), noise_std=20.0) for s in ("bound", "norm"))
    silenced = [len(r.asked) for r in by_bound]
    assert min(silenced) < 4
    plan = by_bound._plans.first(5)
    assert silenced == [int(np.sum(plan.max_norm[t] >= 0)) for t in range(5)]
    assert all(len(r.asked) == 4 for r in by_norm)


def test_private_coins_stay_private() -> None:
    """cdpb-is thins by a coin: a device that only its coin silences is asked, and does not send."""
    air, coin_only = opened("cdpb-is", rounds=40), 0
    plain = opened("cdpb-noise-free", rounds=40)
    for r, other in zip(air, plain):
        r.send(replies(r))
        other.send(replies(other))
        coin_only += len(set(r.silent) & {int(k) for k in r.asked})
    assert coin_only > 5
    assert opened("cdpb-is", accountant="rdp", accounting="hidden").asked(0).tolist() == [0, 1, 2, 3]


HIDDEN = otafl.random_participation(participation=0.5, credit="hidden")


def test_coins_of_a_loop_that_protects_are_not_those_of_its_channel_s_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever knows the channel could try 2^32 seeds on it: the same one gives the same channel and other coins."""
    monkeypatch.setattr("otafl.runs.air.state.secrets.randbits", lambda bits: 7 if bits == 32 else random_bits(bits))
    random_bits = random.SystemRandom().getrandbits
    one, two = (opened(HIDDEN, seed=None, accountant="rdp") for _ in range(2))
    np.testing.assert_array_equal(one.job.trace.gain, two.job.trace.gain)
    assert not np.any(one.job.trace.coin == two.job.trace.coin)


def test_a_charge_that_counts_on_coins_is_refused_where_a_folder_keeps_them(tmp_path: Path) -> None:
    """Its reader would know who sent. A simulation protects nobody, and other charges do not count on coins."""
    with pytest.raises(InputError, match="its charge counts on private coins, and a folder must keep them"):
        opened(HIDDEN, seed=None, accountant="rdp", folder=tmp_path / "refused")
    assert not (tmp_path / "refused").exists()
    opened(HIDDEN, seed=1, accountant="rdp", folder=tmp_path / "simulated")
    plain = otafl.random_participation(participation=0.5)
    with opened(plain, seed=None, folder=tmp_path / "plain") as air:
        before = next(air).plan
    np.testing.assert_array_equal(next(otafl.Air.restore(tmp_path / "plain")).plan.max_norm, before.max_norm)


def test_the_card_says_whose_coins_are_credited() -> None:
    said = {}
    for credit in ("none", "hidden"):
        air = opened(otafl.random_participation(credit=credit), seed=None, accountant="rdp")
        next(air)
        said[credit] = "private coins were drawn by Philox" in str(air.card)
    assert said == {"none": False, "hidden": True}


@pytest.mark.parametrize("antennas", [1, 2])
def test_the_card_of_an_array_names_artificial_noise_as_trusted(antennas: int) -> None:
    """Its charge is whitened: unit noise of the receiver, whoever sent it."""
    air = opened("cdpb", channel={"antennas": antennas})
    next(air)
    assert ("every antenna's own noise" in air.card.trusted_noise) == (antennas == 2)
    assert "artificial noise" in air.card.trusted_noise
    told = [one.eps for one in air.card.observers if one.observer == "server with clients"]
    assert told == [None]  # whoever hands over noise that counts


@dataclass(frozen=True)
class Nothing:
    """Nothing to set."""


def liar(gate_norm: float = np.inf, quiet: bool = False, rx_scale: float = 1.0) -> Any:
    """A policy whose silence looks at messages under gate="open", whose uplink adds less noise than is charged, or
    which divides noise by more than float32 can hold."""

    def factory(config: Any, deployment: Any, message: Any, context: Any) -> Policy:
        def step(state: Any, obs: Any) -> Any:
            tx = np.broadcast_to(deployment.weights + 0j, obs.coin.shape)
            one = np.ones(tx.shape[:-1])
            return state, Plan(tx, 0 * tx, np.full(tx.shape, gate_norm), rx_scale * one, np.ones(tx.shape), one > 0), ()

        def hushed(plan: Plan, gain: Any, site: Any) -> Any:
            link = lower(plan, gain, site)
            return link._replace(noise_std=0.5 * link.noise_std)

        uplink = ANALOG._replace(name="hushed", lower=hushed) if quiet else "analog"
        return Policy("liar", lambda key: (), step, loop="open", csi="own", gate="open", uplink=uplink)

    return factory


@pytest.mark.parametrize(
    ("factory", "said"),
    [(liar(gate_norm=0.5), "gate"), (liar(quiet=True), "noise"), (liar(rx_scale=1e40), "float32 cannot hold it")],
)
def test_a_scheme_that_breaks_its_promise_is_refused(factory: Any, said: str) -> None:
    systems.register("liar", factory, Nothing, "not to be trusted")
    try:
        with pytest.raises(PrivacyViolation, match=said):
            next(opened("liar", channel={"mean_power_gain": 1.0, "fading": {"kind": "constant"}}))
    finally:
        systems.remove(systems.OWN)


# --- noise --------------------------------------------------------------------------------------------------------


def test_without_a_seed_nobody_can_draw_the_noise_again() -> None:
    """Two loops alike, round for round: an adversary who opens a third one learns nothing about their noise."""
    one, other = (opened(otafl.constant(rx_scale=0.4), seed=None, rounds=2) for _ in range(2))
    for first, second in zip(one, other):
        assert not np.array_equal(first.send({}), second.send({}))


def test_without_a_seed_noise_is_fresh_and_of_the_charged_size() -> None:
    size = 200_000
    air = opened(otafl.constant(rx_scale=0.4), num_params=size, seed=None, rounds=2)
    zero = np.zeros(size, np.float32)
    first, second = (r.send({int(k): zero for k in r.asked}) for r in air)
    want = 0.5 / 0.4
    for drawn in (first, second, (first - second) / np.sqrt(2)):
        assert abs(np.std(drawn) / want - 1) < 5 / np.sqrt(2 * size) and abs(np.mean(drawn)) < 5 * want / np.sqrt(size)
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / np.sqrt(size)
    assert "protects nobody" not in str(air.card) and "noise from the operating system" in str(air.card)


@pytest.mark.parametrize(
    ("scheme", "drawn"), [("constant", "Philox under fresh 128-bit"), ("obda", "Threefry under fresh 64-bit")]
)
def test_a_card_says_who_drew_the_noise(scheme: str, drawn: str) -> None:
    """Votes go through their own compiled functions, which know no other generator."""
    assert f"noise was drawn by {drawn} keys" in str(opened(scheme, channel="cares", seed=None).card)


def test_without_a_seed_no_number_is_possible_for_one_message_alone() -> None:
    """In float32 one number in seven that came with a message could not have come without it."""
    size, std = 200_000, 0.5 / 0.4
    answers = []
    for entry in (0.0, 1e-3):
        with opened(otafl.constant(rx_scale=0.4), num_params=size, seed=None, rounds=1) as air:
            r = next(air)
            answers.append(r.send({int(k): np.full(size, entry, np.float32) for k in r.asked}))
    without, given = (set(answer[np.abs(answer) < 2 * std].tolist()) for answer in answers)
    assert without == given and len(given) > 200


def test_a_private_reward_without_a_seed_is_rounded_under_its_noise() -> None:
    told = SimpleNamespace(
        job=SimpleNamespace(policy=SimpleNamespace(loop="round", feedback=Feedback("private", 0.01))),
        settings=SimpleNamespace(seed=None),
    )
    values = np.array([noisy_metric(told, 0, 0.513) for _ in range(200)])
    assert np.all(values * 2.0**13 == np.round(values * 2.0**13))  # 2^-13 is an 82nd of 0.01
    assert np.unique(values).size > 50


def test_a_seed_is_a_simulation_and_the_card_says_so() -> None:
    air = opened()
    for r in air:
        r.send(replies(r))
    text = str(air.card)
    assert "protects nobody by itself" in text and "clipped to norm 1" in text
    same = opened()
    np.testing.assert_array_equal(
        next(same).send(replies(next(opened()))), next(opened()).send(replies(next(opened())))
    )


def test_declared_sampling_stands_on_the_card_as_an_assertion(tmp_path: Path) -> None:
    ones = np.ones(4)
    declared = Message(6, np.inf, ones, 0.1 * ones, 0.05 * ones, "record", "add-remove")
    air = opened("weakest", message=declared, num_params=None, accountant="rdp", eps=2.0, folder=tmp_path)
    next(air)
    text = str(air.card)
    air.close()
    assert otafl.Air.restore(tmp_path).ledger_bytes() == air.ledger_bytes()
    assert "not seen here: per-sample clipping" in text and "not seen here: the sampling rates" in text
    assert "record level" in text and "rate 0.05" in text


# --- folders ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, None])
@pytest.mark.parametrize("scheme", ["constant", "cares-adaptive"])
def test_a_folder_goes_on_where_it_ended(tmp_path: Path, seed: int | None, scheme: str) -> None:
    more = {"seed": seed, "eps": 300.0, "channel": "cares"}
    whole, first = opened(scheme, **more), opened(scheme, folder=tmp_path / "loop", **more)
    for air in (whole, first):
        for _, r in zip(range(2), air):
            r.send(replies(r))
            r.reward(0.3)
    first.close()
    second = otafl.Air.restore(tmp_path / "loop")
    if scheme == "cares-adaptive":
        with pytest.raises(InputError, match=r"air\.reward\(accuracy\) after a restore"):
            next(second)
    second.reward(0.3)
    numbers, answers = [], []
    for r in second:
        numbers.append(r.number)
        answers.append(r.send(replies(r)))
        r.reward(0.3)
    want = []
    for r in whole:
        want.append(r.send(replies(r)))
        r.reward(0.3)
    assert numbers == [2, 3, 4]
    if seed is not None:  # without one the channel, too, was another
        assert second.ledger_bytes() == whole.ledger_bytes()
        np.testing.assert_array_equal(answers, want)


@pytest.mark.parametrize("seed", [1, None])
def test_an_answered_round_has_one_answer(tmp_path: Path, seed: int | None) -> None:
    air = opened(folder=tmp_path, seed=seed)
    r = next(air)
    first = r.send(replies(r))
    air.close()
    again = otafl.Air.restore(tmp_path, again=True)
    r = next(again)
    assert r.number == 0 and again.ledger.rounds() == 1
    if seed is None:  # nothing tells which messages they were
        np.testing.assert_array_equal(r.send({k: 0.5 * m for k, m in replies(r).items()}), first)
    else:
        with pytest.raises(InputError, match="second release"):
            r.send({k: 0.5 * m for k, m in replies(r).items()})
        np.testing.assert_array_equal(r.send(replies(r)), first)
    assert next(again).number == 1 and again.summary["answers"] == 1


def killed(*_: Any) -> None:
    raise OSError("killed here")


@pytest.mark.parametrize("seed", [1, None])
@pytest.mark.parametrize("where", ["keep_answer", "hear"])
def test_a_crash_while_answering_costs_the_charge_and_no_second_release(
    tmp_path: Path, seed: int | None, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the air, or before the answer is kept: other messages are never answered."""
    air = opened(folder=tmp_path, seed=seed)
    r = next(air)
    monkeypatch.setattr(air._medium if where == "hear" else air._folder, where, killed)
    with pytest.raises(OSError, match="killed here"):
        r.send(replies(r))
    with pytest.raises(InputError, match="second release"):
        r.send({k: 0.5 * m for k, m in replies(r).items()})
    air.close()
    monkeypatch.undo()
    later = otafl.Air.restore(tmp_path)
    r = next(later)
    if seed is None:
        assert r.number == 1 and later.ledger.rounds() == 2  # the first is lost and stays charged
        return
    assert r.number == 0 and later.ledger.rounds() == 1
    with pytest.raises(InputError, match="second release"):
        r.send({k: 0.5 * m for k, m in replies(r).items()})
    whole = next(opened())
    np.testing.assert_array_equal(r.send(replies(r)), whole.send(replies(whole)))


@pytest.mark.parametrize("seed", [1, None])
def test_the_same_messages_are_answered_after_a_failed_write(
    tmp_path: Path, seed: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The noise had been added: what was sent must still be known."""
    air = opened(folder=tmp_path, seed=seed)
    r = next(air)
    with monkeypatch.context() as patch:
        patch.setattr(air._folder, "keep_answer", killed)
        with pytest.raises(OSError, match="killed here"):
            r.send(replies(r))
    other = replies(r)
    other[0][0] += np.float32(1e-3)
    with pytest.raises(InputError, match="second release"):
        r.send(other)
    assert np.all(np.isfinite(r.send(replies(r)))) and air.summary["answers"] == 1


def test_an_encrypted_round_whose_answer_is_on_the_disk_gets_no_other_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted once the answer was kept: an uplink that draws its own noise would answer the same messages anew."""
    air = otafl.Air(
        otafl.eezofl(mode="digital", dp_noise=0.5), site=4, num_params=2, clip_norm=1.0, channel="eezofl", rounds=2,
        folder=tmp_path,
    )  # fmt: skip
    r = next(air)
    keep = air._folder.keep_answer

    def kept_then_killed(*what: Any) -> None:
        keep(*what)
        killed()

    with monkeypatch.context() as patch:
        patch.setattr(air._folder, "keep_answer", kept_then_killed)
        with pytest.raises(OSError, match="killed here"):
            r.send(replies(r, 2))
    on_disk = np.frombuffer((tmp_path / "answer.bin").read_bytes().partition(b"\n")[2], "<f4")
    np.testing.assert_array_equal(r.send(replies(r, 2)), on_disk)


def test_a_power_cut_takes_no_charge_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anyone is asked or answered, the folder knows the new file by its name; its parents know the folder."""
    done: list[Any] = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda old, new: (replace(old, new), done.append("named")))
    monkeypatch.setattr(os, "fsync", lambda handle: done.append(os.fstat(handle).st_ino))
    air = opened(folder=tmp_path / "new" / "loop")
    own, new, above = ((tmp_path / name).stat().st_ino for name in ("new/loop", "new", "."))
    assert {new, above} <= set(done)
    assert [done[n + 1] for n, step in enumerate(done) if step == "named"] == [own] * 3
    done.clear()
    r = next(air)
    assert done[-2:] == ["named", own]
    r.send(replies(r))
    assert done[-2:] == ["named", own] and done.count("named") == done.count(own) == 3


def test_an_entered_round_is_not_charged_again(tmp_path: Path) -> None:
    air = opened(folder=tmp_path)
    next(air)
    air.close()
    later = otafl.Air.restore(tmp_path)
    assert next(later).number == 0 and later.ledger.rounds() == 1


def test_a_kill_between_two_writes_leaves_a_whole_state(tmp_path: Path) -> None:
    """A process that dies by SIGKILL in the middle of its rounds: every charge it made is found again."""
    program = f"""
        import os, numpy as np, otafl
        air = otafl.Air("constant", site=3, num_params=4, rounds=50, seed=5, folder={str(tmp_path / "loop")!r})
        for r in air:
            r.send({{int(k): np.full(4, 0.1, np.float32) for k in r.asked}})
            if r.number == 6:
                next(air)
                os.kill(os.getpid(), 9)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, check=False)
    assert done.returncode == -9, done.stderr.decode()
    later = otafl.Air.restore(tmp_path / "loop")
    assert later.rounds_charged == 8 and next(later).number == 7


@pytest.mark.parametrize("name", ["loop.json", "state.json"])
@pytest.mark.parametrize("harm", ["flip", "cut", "empty", "forge", "gone"])
def test_a_damaged_folder_is_refused_in_one_line(tmp_path: Path, name: str, harm: str) -> None:
    air = opened(folder=tmp_path)
    r = next(air)
    r.send(replies(r))
    air.close()
    path = tmp_path / name
    content = path.read_bytes()
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    forged = content.replace(b'"charged": 1', b'"charged": 0').replace(b'rounds\\": 5', b'rounds\\": 9')
    assert forged != content
    changed = {"flip": flipped, "cut": content[:middle], "empty": b"", "forge": forged}
    path.unlink() if harm == "gone" else path.write_bytes(changed[harm])
    with pytest.raises(InputError) as caught:
        otafl.Air.restore(tmp_path)
    assert "\n" not in str(caught.value) and caught.value.exit_code == 2


@pytest.mark.parametrize("changed", [
    {"charged": 1.5}, {"charged": None}, {"charged": -1}, {"last_sent": 7}, {"last_sent": "x"}, {"last_answered": 3},
    {"last_answered": None}, {"answers": []}, {"answers": 9}, {"failed": True}, {"faults": 3}, {"metrics": ["x"]},
    {"chain": 0}, {"nonsense": 1},
])  # fmt: skip
def test_a_sealed_state_that_contradicts_itself_is_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    with opened(folder=tmp_path / "air", seed=1) as air:
        r = next(air)
        r.send(replies(r))
    path = tmp_path / "air" / "state.json"
    state = json.loads(path.read_text()) | changed
    state.pop("seal")
    path.write_text(json.dumps(with_seal(state)))
    with pytest.raises(InputError, match=r"air.*damaged"):
        otafl.Air.restore(tmp_path / "air")


@pytest.mark.parametrize(("key", "value"), [
    ("site", -1), ("site", None), ("num_params", 1.5), ("num_params", -1), ("clip_norm", "x"), ("rounds", True),
    ("radio", 3), ("privacy", None), ("seed", -1), ("seed", []), ("weights", 7), ("message", "x"), ("scheme", {}),
])  # fmt: skip
def test_sealed_settings_are_checked_as_those_at_the_door(tmp_path: Path, key: str, value: Any) -> None:
    opened(folder=tmp_path / "air").close()
    path = tmp_path / "air" / "loop.json"
    loop = json.loads(path.read_text())
    loop.pop("seal")
    loop["settings"] = json.dumps(json.loads(loop["settings"]) | {key: value})
    path.write_text(json.dumps(with_seal(loop)))
    with pytest.raises(InputError):
        otafl.Air.restore(tmp_path / "air")


@pytest.mark.parametrize("name", ["state.json", "answer.bin"])
def test_the_state_of_another_loop_is_refused(tmp_path: Path, name: str) -> None:
    """Its plans may be the same, as those of two loops that look at no channel are; its charges are not ours."""
    for folder in ("own", "other"):
        with opened("fedavg-dp", folder=tmp_path / folder, seed=None, eps=50.0) as air:
            for r in air:
                r.send(replies(r))
                if folder == "other" or r.number == 2:
                    break
    (tmp_path / "own" / name).write_bytes((tmp_path / "other" / name).read_bytes())
    with pytest.raises(InputError, match=rf"{name}: belongs to another loop"):
        otafl.Air.restore(tmp_path / "own")


def test_a_closed_loop_of_more_rounds_than_its_settings_have_is_refused(tmp_path: Path) -> None:
    with opened("cares-adaptive", folder=tmp_path, eps=50.0) as air:
        for r in air:
            r.send(replies(r))
            r.reward(0.5)
    loop = json.loads((tmp_path / "loop.json").read_text())
    loop.pop("seal")
    loop["settings"] = json.dumps(json.loads(loop["settings"]) | {"rounds": 1})
    (tmp_path / "loop.json").write_text(json.dumps(sealed := with_seal(loop)))
    for name in ("state.json", "answer.bin"):
        line, _, body = (tmp_path / name).read_bytes().partition(b"\n")
        state = json.loads(line) | {"loop": sealed["seal"]}
        state.pop("seal")
        (tmp_path / name).write_bytes(json.dumps(with_seal(state)).encode() + b"\n" + body)
    with pytest.raises(InputError, match=r"cannot be planned again"):
        otafl.Air.restore(tmp_path)


def test_a_damaged_answer_is_refused(tmp_path: Path) -> None:
    air = opened(folder=tmp_path)
    r = next(air)
    r.send(replies(r))
    air.close()
    path = tmp_path / "answer.bin"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    r = next(otafl.Air.restore(tmp_path, again=True))
    with pytest.raises(InputError, match="damaged"):
        r.send(replies(r))


def test_one_process_at_a_time(tmp_path: Path) -> None:
    air = opened(folder=tmp_path)
    with pytest.raises(InputError, match="another process"):
        otafl.Air.restore(tmp_path)
    with pytest.raises(InputError, match="holds a loop already"):
        opened(folder=tmp_path)
    air.close()
    with pytest.raises(InputError, match="was closed"):
        next(air)
    assert otafl.Air.restore(tmp_path).rounds_charged == 0
    with pytest.raises(InputError, match="holds no loop"):
        otafl.Air.restore(tmp_path / "elsewhere")


def test_what_cannot_be_planned_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(BudgetExceeded):
        opened(otafl.constant(rx_scale=100.0), eps=0.1, folder=tmp_path / "loop")
    assert not (tmp_path / "loop").exists()
    opened(folder=tmp_path / "loop")


def test_no_noise_is_kept(tmp_path: Path) -> None:
    """Without a seed a folder holds the channel's seed and the last answer: nothing to draw noise from again."""
    air = opened(folder=tmp_path, seed=None)
    r = next(air)
    r.send(replies(r))
    kept = json.loads((tmp_path / "loop.json").read_text())
    assert json.loads(kept["settings"])["seed"] is None and sorted(kept) == ["seal", "settings", "trace_seed"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answer.bin", "loop.json", "state.json"]


def test_a_folder_without_a_seed_is_the_same_for_all_messages_but_for_the_answer(tmp_path: Path) -> None:
    """The hash of a sum without its noise told guesses of a message apart, whatever eps is; so did counted faults."""
    states = []
    for factor in (1.0, 0.5, 1e3, np.nan):
        folder = tmp_path / str(factor)
        with opened(folder=folder, seed=None) as air:
            r = next(air)
            r.send({k: factor * m for k, m in replies(r).items()})
        head = json.loads((folder / "answer.bin").read_bytes().partition(b"\n")[0])
        states.append({**json.loads((folder / "state.json").read_text()), "with answer": head})
    own = {"chain", "seal", "answer", "loop"}  # of another channel
    for state in states:
        states[0]["with answer"] |= {key: state["with answer"][key] for key in own}
        assert {key for key in state if states[0][key] != state[key]} <= own
