"""Mechanisms that are broken on purpose must be caught, each beside the same one that is whole.

Every audit here has fixed keys and a total error of 1e-3 (the whole ones 1e-6), so that a pass is no luck of the day.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from audit_cases import charged_eps, message_target, plan_of, record_target, site
from otafl.clients import PerSample
from otafl.core.errors import InputError, PrivacyViolation
from otafl.core.uplink import ANALOG
from otafl.privacy import events, pld_eps
from otafl.runs.audit import canaries
from otafl.runs.audit import target as target_module
from otafl.runs.audit.attack import Canary, attack
from otafl.runs.audit.both_parts import both_parts
from otafl.runs.audit.canary_clients import message_trials
from otafl.runs.audit.canary_records import record_trials
from otafl.runs.audit.single import single_run
from otafl.runs.audit.target import Target, canaries_do, chosen, narrowed, totals, width_of

ERROR, SURE = 1e-3, 1e-6


def refuted(target: Target, runs: int, error: float = ERROR) -> list[Canary]:
    return [canary for canary in attack(target, runs, error) if canary.finding.refuted]


def quieter(target: Target, factor: float) -> Target:
    return target._replace(link=target.link._replace(noise_std=target.link.noise_std * factor))


def charged_for(target: Target, **changed: Any) -> Target:
    """The same mechanism under another charge."""
    run = target.events._replace(**changed)
    return target._replace(events=run, eps=charged_eps(run))


# --- clients -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
def test_a_whole_mechanism_is_not_refuted_and_its_bounds_are_near(adjacency: str) -> None:
    found = attack(message_target(adjacency=adjacency), 1000, SURE)
    assert {(c.client, c.pattern) for c in found} == {
        (k, f"client, {name}") for k in range(3) for name in ("constant", "balanced")
    }
    for canary in found:
        shift, mu = canary.finding.shift, canary.finding.charge.mu
        assert not canary.finding.refuted and not canary.finding.weak
        assert shift is not None and mu is not None and mu - 0.35 < shift.low <= mu and shift.equal > SURE
    assert max(canary.finding.eps for canary in found) > 0.6 * 4.377


@pytest.mark.parametrize(
    ("factor", "runs"),
    [(1 / 64, 6), (np.sqrt(0.7), 2500), (1 / 1.1, 9000)],
    ids=["by the batch", "colluders", "9 % short"],
)
def test_noise_below_the_charge_is_found(factor: float, runs: int) -> None:
    target = message_target(rounds=4, weights=(1.0,))
    assert refuted(quieter(target, factor), runs)
    assert not refuted(target, runs, SURE)


def test_one_run_finds_noise_far_below_the_charge_and_lets_a_whole_mechanism_pass() -> None:
    target = message_target(weights=(0.1,) * 10)
    fine, short = single_run(target, SURE), single_run(quieter(target, 1 / 8), SURE)
    assert fine.low < 1 < fine.high and fine.noise == pytest.approx(1, abs=0.3)
    assert short.low > 1 and short.mu == pytest.approx(8, rel=0.5)
    with pytest.raises(InputError, match="coordinates without a canary"):
        single_run(message_target(weights=(1 / 16,) * 16), SURE)


def with_noise_of(target: Target, used_in: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> Target:
    """The mechanism with the noise of another round in every round; which records are drawn stays its own."""
    whole = canaries.make_round

    def same_noise(*args: Any, **options: Any) -> Any:
        round_ = whole(*args, **options)

        def run(data: Any, public: Any, seed: Any, carry: Any, row: Any) -> Any:
            noise = round_.roll(seed, used_in(carry.round)).air_key
            dice = round_.roll(seed, carry.round)._replace(air_key=noise)
            return round_.run(data, public, seed, carry, row._replace(dice=dice))

        return round_._replace(run=run)

    monkeypatch.setattr(canaries, "make_round", same_noise)
    return target._replace(uplink=ANALOG._replace(name=f"noise used again {used_in}"))  # a program of its own


USED_AGAIN = pytest.mark.parametrize("used_in", [lambda t: 0 * t, lambda t: t % 2, lambda t: t % 4, lambda t: t // 2])


@USED_AGAIN
def test_noise_that_is_used_again_is_found_by_balanced_signs_alone(
    used_in: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = with_noise_of(message_target(rounds=16), used_in, monkeypatch)
    assert {canary.pattern for canary in refuted(target, 6)} == {"client, balanced"}


def test_a_replacement_that_is_charged_once_is_found() -> None:
    target = message_target(rounds=4, mu=2.0, weights=(1.0,))
    assert refuted(charged_for(target, sensitivity=target.events.sensitivity / 2), 120)


def test_the_mean_client_charged_instead_of_the_worst_is_found() -> None:
    target = message_target(rounds=4, weights=(0.5, 0.3, 0.2))
    mean = np.broadcast_to(target.events.amp.mean(-1, keepdims=True), target.events.amp.shape)
    assert {canary.client for canary in refuted(charged_for(target, amp=mean), 500)} == {0}


def test_a_single_run_tosses_a_coin_for_every_canary_and_leaves_records_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    target = message_target(weights=(0.1,) * 10)
    monkeypatch.setattr(canaries, "play", lambda stage, *others: [np.zeros((1, 20, 1, stage.number))])
    monkeypatch.setattr("otafl.runs.audit.single.one_run", lambda scores, signs, others, beta: signs)
    tossed = [np.asarray(single_run(target, SURE, seed)) for seed in (0, 1)]
    assert set(tossed[0]) == set(tossed[1]) == {-1.0, 1.0} and not np.array_equal(*tossed)
    with pytest.raises(InputError, match="records and both parts need worlds of runs"):
        single_run(record_target(PerSample(batch=0, sampling="without-replacement"), 3, 2.0, 6), SURE)


@pytest.mark.parametrize(("adjacency", "other"), [("replace", -1.0), ("zero-out", 0.0)])
def test_worlds_differ_by_opposites_or_by_nothing_and_an_odd_round_out_is_empty_in_both(
    adjacency: str, other: float
) -> None:
    constant, balanced = message_trials(message_target(rounds=3, adjacency=adjacency), 0)
    for trial, signs in ((constant, [1.0, 1.0, 1.0]), (balanced, [1.0, -1.0, 0.0])):
        present, absent = (np.asarray(world.data.amplitude) for world in (trial.present, trial.absent))
        np.testing.assert_array_equal(present, canaries.LOUD * np.outer(signs, np.ones(3)))
        np.testing.assert_array_equal(absent, other * present)


def test_the_best_scalar_of_an_observer_has_the_charged_signal_to_noise() -> None:
    """Amplitude^2 / variance times sensitivity^2 is 1/z^2; by both parts the scalar has unit noise and this signal."""
    target = message_target(rounds=2)
    size, variance = target_module.loudness(target)
    charged = size**2 / variance[:, None] * target.message.sensitivity**2
    np.testing.assert_allclose(charged, target_module.squares(target), rtol=1e-9)
    rng = np.random.default_rng(0)
    root, gain = rng.standard_normal((2, 4, 4)), rng.standard_normal((2, 4, 3))
    noise = root @ root.transpose(0, 2, 1)
    both, who = target._replace(gain=gain, noise=noise), np.array([2, 0])
    size, variance = target_module.loudness(both)
    row = target_module.filtered(both, np.broadcast_to(np.eye(4)[:, None, :, None], (4, 2, 4, 2)), who)  # (R, T, m)
    np.testing.assert_allclose(np.einsum("rtm,trs,stm->tm", row, noise, row), 1, rtol=1e-9)
    np.testing.assert_allclose(np.einsum("rtm,trm->tm", row, gain[..., who]), size[:, who], rtol=1e-9)
    np.testing.assert_array_equal(variance, [1, 1])


def test_directions_within_leaves_are_orthonormal_and_so_is_everybody_elses() -> None:
    basis = canaries.within_leaves([3, 40, 12], 6, 0)
    np.testing.assert_allclose(basis @ basis.T, np.eye(6), atol=1e-6)


def test_a_canary_record_is_far_above_its_clip_norm_whatever_that_is() -> None:
    for clip in (0.1, 5.0):
        target = record_target(PerSample(clip_norm=clip, batch=0, sampling="without-replacement"), 3, 2.0, 6)
        for trial in record_trials(target):
            assert np.abs(trial.present.data.x).max() == pytest.approx(8 * clip)


def test_a_batch_that_does_not_fit_stops_the_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = message_trials(message_target(rounds=3), 0)[0]
    monkeypatch.setattr(canaries, "_runs", lambda *given: (np.zeros((4, 3, 1, 3)), 1.0, True))
    with pytest.raises(PrivacyViolation, match="did not fit its fixed shape"):
        list(canaries.play(trial.stage, trial.absent, 4, 0))


def test_of_many_clients_one_that_is_charged_too_little_is_among_those_attacked() -> None:
    """Not only the dearest: client 33 pays a third of the amplitude that it is heard with."""
    target = message_target(rounds=4, weights=(1 / 40,) * 40)
    paid = np.where(np.arange(40) == 33, 1 / 3, np.linspace(1.1, 1, 40)) * target.events.amp
    who = chosen(*totals(charged_for(target, amp=paid)), width=15)
    assert len(who) == len(set(who)) == 14 and 33 in who and set(range(7)) <= set(who.tolist())


def test_a_clip_that_is_not_enforced_stops_the_audit() -> None:
    target = message_target(rounds=4, weights=(1.0,))
    loose = target._replace(clients=target.clients._replace(clip_norm=float("inf")))
    assert refuted(loose, 20)
    with pytest.raises(PrivacyViolation, match="above its declared bound"):
        canaries._check(canaries.message_stage(target.template, 1.0, ANALOG, target.link, np.array([0]), 0), 1.1, False)


def in_bias(changed: Any, whole: Any) -> Any:
    """The small leaf of one, the rest of the other."""
    return {**whole, "bias": changed["bias"]}


def without_its_clip(link: Any, ids: Any, sent: Any, factor: Any, messages: Any) -> Any:
    whole, loud = (ANALOG.combine(link, ids, sent, by, messages) for by in (factor, jnp.ones_like(factor)))
    return in_bias(loud, whole)


def without_its_noise(total: Any, link: Any, key: Any) -> tuple[Any, Any]:
    heard, failed = ANALOG.decode(total, link, key)
    return in_bias(jax.tree.map(lambda still, noisy: still + (noisy - still) / 8, total, heard), heard), failed


def with_noise_in_common(total: Any, link: Any, key: Any) -> tuple[Any, Any]:
    """One key for all leaves: the numbers of the small one are the first of the large one."""
    return {name: ANALOG.decode({name: leaf}, link, key)[0][name] for name, leaf in total.items()}, jnp.zeros((), bool)


@pytest.mark.parametrize(
    "fault",
    [{"combine": without_its_clip}, {"decode": without_its_noise}, {"decode": with_noise_in_common}],
    ids=["clip", "noise", "noise of its own"],
)
def test_a_small_leaf_without_its_clip_or_noise_is_found_by_canaries_within_it(fault: dict[str, Any]) -> None:
    """Ten numbers of a thousand: of a direction through all of them a tenth lies there, and hides."""
    shapes = {"bias": jax.ShapeDtypeStruct((10,), jnp.float32), "weight": jax.ShapeDtypeStruct((990,), jnp.float32)}
    target = message_target(rounds=4)._replace(template=shapes)
    assert not refuted(target, 400, SURE)
    broken = target._replace(uplink=ANALOG._replace(name=f"a leaf without its {fault}", **fault))
    assert {canary.pattern for canary in refuted(broken, 400)} == {"client, balanced"}


def signs_alone(total: Any, link: Any, key: Any) -> tuple[Any, Any]:
    heard, failed = ANALOG.decode(total, link, key)
    return jax.tree.map(jnp.sign, heard), failed


def test_what_is_decoded_of_a_sum_is_not_taken_for_a_normal_score() -> None:
    """Signs of a sum tell no more than the sum, but lie any number of their own standard deviations apart."""
    votes = ANALOG._replace(name="signs of the sum", decode=signs_alone)
    target = message_target(rounds=1, mu=40.0, weights=(1.0,))
    assert not refuted(target._replace(uplink=votes), 60)
    with pytest.raises(InputError, match="is no such sum"):
        single_run(target._replace(uplink=votes), SURE)


def test_the_imaginary_part_is_attacked_where_phases_are_off() -> None:
    """Ten degrees, 99 % of the noise artificial and the other client's: twice the mu of the real part alone."""
    rounds, turn, message = 4, np.exp(1j * np.deg2rad(10)), message_target(rounds=4).message
    plan, trace = plan_of(rounds, np.array([1.0, 0.0]))
    total = (2.0 * np.sqrt(rounds)) ** 2  # mu = 1 with all noise along the message
    noise = np.zeros((rounds, 2), complex)
    noise[:, 1] = np.sqrt(0.99 * total)
    plan = plan._replace(noise=noise, tx=plan.tx * np.array([turn, 1.0]))
    deployment = site(2, 0.01 * total, message.dim)
    message = message._replace(sensitivity=message.sensitivity[:2], rate=np.ones(2), mean_square=np.ones(2))
    run = events(plan, trace, deployment, message)
    uplink, link, gain, covariance = both_parts(plan, trace, deployment)
    case = message_target(rounds=4, weights=(0.5, 0.5))
    target = case._replace(
        uplink=uplink, link=link, gain=gain, noise=covariance, events=run, eps=charged_eps(run), message=message
    )
    assert not refuted(target, 400, SURE)  # (C3) charges it
    real = charged_for(target, leak_angle=np.zeros(rounds))
    found = refuted(real, 400)
    assert {canary.client for canary in found} == {0}
    shift = found[0].finding.shift
    assert shift is not None and shift.mu == pytest.approx(1.996 * 1.0, rel=0.12)


def test_a_coin_that_is_given_away_is_found() -> None:
    """`hidden` participation charges as if nobody saw who sends; one who does is told 5 rounds of 50 at full price."""
    target = message_target(rounds=50, mu=np.sqrt(50), weights=(1.0,), adjacency="zero-out")
    sends = (np.arange(50) % 10 == 0)[:, None]
    link = target.link._replace(max_norm=np.where(sends, np.inf, -1.0), weight=np.where(sends, target.link.weight, 0.0))
    hidden = pld_eps(np.ones(50), 0.1, 1e-5)
    target = target._replace(link=link, events=target.events._replace(rate=np.array([0.1])), eps=np.array([hidden]))
    assert hidden == pytest.approx(5.15, abs=0.02)
    assert refuted(target, 800)


# --- records -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        PerSample(batch=0, sampling="without-replacement"),
        PerSample(batch=5),
        PerSample(batch=5, adjacency="replace"),
        PerSample(rate=0.5, divisor=5.0, size_max=12),
        PerSample(batch=5, sampling="without-replacement", adjacency="add-remove"),
    ],
    ids=["full batch", "zero-out", "replace", "add-remove", "fixed batch"],
)
def test_whole_mechanisms_of_records_are_not_refuted(options: PerSample) -> None:
    target = record_target(options, rounds=10, multiplier=0.7, size=12)
    found = attack(target, 1000, SURE)
    assert found and not [canary for canary in found if canary.finding.refuted]
    assert max(canary.finding.eps for canary in found) > 0


def test_a_record_in_a_fixed_batch_of_opposed_ones_is_told_by_the_likelihood_ratio() -> None:
    """Without it 5 of 11 make -w clip; with it, by chance 5/12, it takes the place of one: -w clip (1 - 2/5)."""
    options = PerSample(clip_norm=2.0, batch=5, sampling="without-replacement", adjacency="add-remove")
    target = record_target(options, rounds=3, multiplier=0.7, size=12)
    (crowd,) = [trial for trial in record_trials(target) if trial.pattern == "record, removed from a crowd"]
    weight, std = target.link.weight[0, 0], target.link.noise_std[0]
    seen = np.random.default_rng(0).normal(-2 * weight, 3 * std, (8, 3))
    apart, drawn = (np.exp(-(((seen + 2 * weight * part) / std) ** 2) / 2) for part in (1, 3 / 5))
    ratio = np.log(7 / 12 + 5 / 12 * drawn / apart).sum(1)
    np.testing.assert_allclose(crowd.score(seen[:, :, None, None])[:, 0], ratio, rtol=1e-4, atol=1e-4)


def test_noise_below_the_charge_is_found_under_sampling() -> None:
    target = record_target(PerSample(batch=5), rounds=10, multiplier=1.0, size=10)
    assert refuted(quieter(target, 0.5), 1500)


@USED_AGAIN
@pytest.mark.parametrize(
    ("options", "runs", "name"),
    [
        (PerSample(batch=0, sampling="without-replacement"), 6, "replaced"),
        (PerSample(batch=5, adjacency="replace"), 200, "replaced"),
        (PerSample(rate=0.5, divisor=5.0, size_max=10), 400, "removed"),
    ],
    ids=["full batch", "replace", "add-remove"],
)
def test_noise_that_is_used_again_is_found_by_records_that_turn(
    options: PerSample, runs: int, name: str, used_in: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = record_target(options, rounds=16, multiplier=4.0, size=10)
    found = refuted(with_noise_of(target, used_in, monkeypatch), runs)
    assert {canary.pattern for canary in found} == {f"record, {name}, balanced"}


def test_a_rate_that_follows_the_size_is_no_add_remove() -> None:
    """Removing a record lifts the rate of all others: found among others that oppose it, against the curve alone."""
    target = record_target(PerSample(batch=5), rounds=20, multiplier=5.0444, size=10)
    label = target._replace(message=target.message._replace(adjacency="add-remove"))
    assert {canary.pattern for canary in refuted(label, 3000)} == {"record, removed from a crowd"}
    honest = record_target(PerSample(rate=0.5, divisor=5.0, size_max=10), rounds=20, multiplier=5.0444, size=10)
    assert not refuted(honest, 3000, SURE)


def test_a_gate_that_looks_at_the_message_gives_one_record_its_whole_client() -> None:
    target = record_target(PerSample(batch=0, sampling="without-replacement"), rounds=4, multiplier=2.0, size=64)
    gated = target._replace(link=target.link._replace(max_norm=np.full((4, 1), 0.7)))
    assert {canary.pattern for canary in refuted(gated, 6)} == {"record, at the gate"}


@pytest.mark.parametrize("records", [False, True])
def test_a_sum_of_many_is_attacked_with_its_canaries_alone(records: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Along the canaries' directions the others are not heard: the same scores, but for rounding."""
    full_batch = PerSample(batch=0, sampling="without-replacement")
    many = (
        record_target(full_batch, rounds=4, multiplier=2.0, size=3, count=6)
        if records
        else message_target(rounds=4, weights=(0.1, 0.3, 0.2, 0.15, 0.15, 0.1))
    )
    monkeypatch.setattr(target_module, "MOST", 3)
    everyone = attack(many, 40, SURE)
    assert not canaries_do(many)
    monkeypatch.setattr(target_module, "MOST_PLAYED", 5)
    few = narrowed(many, chosen(*totals(many), width_of(many)))
    alone = attack(few._replace(eps=many.eps[few.ids]), 40, SURE)
    assert canaries_do(many) and len(few.seed.sizes) == 3 and len(everyone) == len(alone)
    for one, other in zip(everyone, alone):
        assert one.client == other.client
        assert np.allclose(one.present, other.present, atol=1e-3) and np.allclose(one.absent, other.absent, atol=1e-3)
