"""Uplinks that promise one thing and do another, in both loops."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import small
from otafl.core import uplink
from otafl.core.errors import InputError, PrivacyViolation
from otafl.core.plan import Message, namespace
from otafl.privacy import events, uplink_checks
from otafl.privacy.array_uplink import release_combined
from otafl.runs.folder.store import RunFolder
from outsiders import MESSAGE, RECORDS, plan_of, planned, policy, run


def trusting(trace, deployment):
    return trace, deployment._replace(trusted_noise_var=1e9, noise_var=1e9)


def noiseless(plan, gain, deployment):
    link = uplink.lower(plan, gain, deployment)
    return link._replace(noise_std=0 * link.noise_std)


def hardly_quieter(plan, gain, deployment):
    link = uplink.lower(plan, gain, deployment)
    return link._replace(noise_std=(1 - 1e-6) * link.noise_std)


def louder(plan, gain, deployment):
    link = uplink.lower(plan, gain, deployment)
    return link._replace(weight=2 * link.weight)


def opening(plan, gain, deployment):
    link = uplink.lower(plan, gain, deployment)
    return link._replace(max_norm=namespace(gain).full(gain.shape, np.inf))


def without_noise(total, link, key):
    return total, jnp.zeros((), bool)


def with_a_constant(total, link, key):
    return jax.tree.map(lambda leaf: leaf + 1e3, total), jnp.zeros((), bool)


def amplified(link, ids, sent, factor, messages):
    return jax.tree.map(lambda leaf: 3 * leaf, uplink.superpose(link, ids, sent, factor, messages))


def the_same_for_all(total, link, key):
    shift = 3 * link.noise_std * jax.random.normal(key, (), jnp.float32)
    return jax.tree.map(lambda leaf: leaf + shift, total), jnp.zeros((), bool)


def only_some(total, link, key):
    """Twice the variance in one half of the coordinates, none in the other."""
    noisy, refused = uplink.hear(total, link._replace(noise_std=np.sqrt(2) * link.noise_std), key)
    half = lambda new, old: jnp.where(jnp.arange(new.size).reshape(new.shape) % 2, new, old)  # noqa: E731
    return jax.tree.map(half, noisy, total), refused


def opposed(total, link, key):
    """The noise of one half once more in the other with the other sign: gone in sums, twice as large in differences."""
    noisy, refused = uplink.hear(jax.tree.map(jnp.zeros_like, total), link, key)
    first, _, *rest = noisy
    return tuple(old + new for old, new in zip(total, (first, -first, *rest))), refused


def unclipped(link, ids, sent, factor, messages):
    return uplink.superpose(link, ids, sent, jnp.ones_like(factor), messages)


def but_the_first_amplified(link, ids, sent, factor, messages):
    lifted = jax.tree.map(lambda leaf: jnp.where(jnp.arange(leaf.shape[1]) == 0, leaf, 5 * leaf), messages)
    return uplink.superpose(link, ids, sent, factor, lifted)


def louder_by_every_part(total, part):
    return jax.tree.map(lambda a, b: 3 * (a + b), total, part)


def one_key_for_all_leaves(total, link, key):
    noisy = lambda leaf: leaf + link.noise_std * jax.random.normal(key, leaf.shape, jnp.float32)  # noqa: E731
    return jax.tree.map(noisy, total), jnp.zeros((), bool)


def one_bit(link, ids, sent, factor, messages):
    bits = jax.tree.map(lambda leaf: jnp.sign(leaf) / np.sqrt(np.float32(53)), messages)
    return uplink.superpose(link, ids, sent, jnp.ones_like(factor), bits)


def never_silent(link, ids, sent, factor, messages):
    return uplink.superpose(link, ids, jnp.ones_like(sent), factor, messages)


def certain(trace, deployment):
    return trace, deployment._replace(gain_error=-0.5)


def far_away(trace, deployment):
    return trace._replace(gain=1e-3 * trace.gain, estimate=1e-3 * trace.estimate), deployment


def of_known_coins(trace, deployment):
    return trace._replace(coin=np.zeros_like(trace.coin)), deployment


LIES = [
    ({"site": far_away}, "changed the site's gain; it must be unchanged"),
    ({"site": of_known_coins}, "changed the site's coin; it must be unchanged"),
    ({"site": trusting}, "changed the site's trusted_noise_var"),
    ({"site": certain}, "changed the site's gain_error to -0.5; it must be at least 0"),
    ({"lower": noiseless}, "has a noise variance of 0 in round 0: less than was charged"),
    ({"lower": hardly_quieter}, "has a noise variance of .* in round 0: less than was charged"),
    ({"lower": louder}, "hears an amplitude of"),
    ({"lower": opening}, "sends up to norm inf in round"),
    ({"decode": without_noise}, "adds noise of std 0, not"),
    ({"decode": with_a_constant}, "adds noise of std 0, not"),
    ({"combine": amplified}, r"moves by .* for client \d, more than"),
    ({"combine": never_silent}, r"moves by .* for client \d, more than the 0 charged"),
]


@pytest.mark.parametrize("loop", ["open", "round"])
@pytest.mark.parametrize(("changed", "text"), LIES)
def test_an_uplink_that_breaks_the_charge_is_refused(tmp_path, changed, text, loop):
    silent = "lower" in changed and changed["lower"] is opening

    def made(config, deployment, message, context):
        norm = lambda obs: (-1.0 if silent else np.inf) + 0 * obs.coin  # noqa: E731
        step = lambda state, obs: (state, plan_of(obs, max_norm=norm(obs)), ())  # noqa: E731
        built = policy(step, loop=loop, uplink=uplink.ANALOG._replace(name="liar", **changed))
        return built._replace(init=lambda key: () if loop == "open" else np.zeros(1))

    with pytest.raises(PrivacyViolation, match=f"mine: uplink 'liar' {text}" if loop == "open" else text):
        run(tmp_path, made)


def tried(message: Message = MESSAGE, **changed: Any) -> None:
    """An uplink on one plan, its messages in phase: each arrives as loud as it is charged."""
    trace, site = small.trace(3), small.deployment()
    plan = planned(tx=0.01 / trace.gain)
    released = events(plan, trace, site, message)
    uplink_checks.probe(uplink.ANALOG._replace(name="liar", **changed), plan, trace, site, message, released)


@pytest.mark.parametrize(
    ("decode", "where"),
    [(the_same_for_all, "between"), (only_some, "in some"), (one_key_for_all_leaves, "between"), (opposed, "between")],
)
def test_noise_that_leaves_coordinates_bare_is_found(decode, where):
    """The sum of squares over all coordinates is as large as charged, and larger."""
    with pytest.raises(PrivacyViolation, match=f"uplink 'liar' adds less noise {where} coordinates than the"):
        tried(decode=decode)


def noisy_where_it_is_tried(total, link, key):
    return (without_noise if isinstance(key, jax.core.Tracer) else uplink.hear)(total, link, key)


def test_what_is_tried_is_what_is_compiled():
    with pytest.raises(PrivacyViolation, match="adds noise of std 0"):
        tried(decode=noisy_where_it_is_tried)


@pytest.mark.parametrize(
    "changed", [{"combine": unclipped}, {"combine": but_the_first_amplified}, {"add": louder_by_every_part}]
)
def test_messages_are_tried_clipped_in_all_coordinates_and_chunk_by_chunk(changed):
    with pytest.raises(PrivacyViolation, match=r"uplink 'liar' moves by .* for client \d, more than the"):
        tried(**changed)


def test_what_one_bit_tells_is_within_a_clients_charge_and_no_records():
    """A record that hardly moves a short message may turn the sign of all of it."""
    for honest in ({}, {"combine": one_bit}):
        tried(**honest)
    tried(RECORDS)
    with pytest.raises(PrivacyViolation, match="moves by"):
        tried(RECORDS, combine=one_bit)


def two_faced(plan, gain, deployment):
    """Without noise where it is compiled."""
    return (noiseless if isinstance(gain, jax.Array) else uplink.lower)(plan, gain, deployment)


def test_an_uplink_is_asked_as_the_loop_asks_it(tmp_path):
    def made(*told):
        air = uplink.ANALOG._replace(name="liar", lower=two_faced)
        return policy(loop="round", uplink=air)._replace(init=lambda key: np.zeros(1))

    with pytest.raises(PrivacyViolation, match="has a noise variance of 0 in round 0: less than was charged"):
        run(tmp_path, made)


def test_an_uplink_cannot_say_that_it_is_ours():
    def without(total, link, key):
        return without_noise(total, link, key)

    without.__module__ = "otafl.core.uplink"
    assert not uplink_checks.is_own(uplink.ANALOG._replace(decode=without))
    assert uplink_checks.is_own(uplink.ANALOG) and uplink_checks.is_own(uplink.PERFECT)


def test_a_charge_of_otafls_under_another_sum_is_nobodys(tmp_path):
    """Messages turned away from the real axis: what a beam's output tells of them, charged for all that is heard."""
    mixed = uplink.ANALOG._replace(name="mixed", release=release_combined)
    with pytest.raises(PrivacyViolation, match="uplink 'mixed' comes from outside otafl with its own account"):
        run(tmp_path, lambda *told: policy(uplink=mixed))


def test_nobodys_uplink_carries_rounds_that_go_by_unseen(tmp_path):
    """It is not tried out there, whatever it is called."""
    with pytest.raises(InputError, match="has the uplink 'analog' of its own"):
        run(tmp_path, lambda *told: policy(uplink=uplink.ANALOG._replace(decode=without_noise)), stream=True)


def test_a_weight_that_float32_cannot_hold_is_refused():
    """Infinite, it gave every sign away under noise that was finite."""
    trace, site = small.trace(3), small.deployment()
    plan = planned(tx=0.5 / trace.gain, rx_scale=1e-39)
    link, charged = uplink.lower(plan, trace.gain, site), events(plan, trace, site, MESSAGE)
    with pytest.raises(
        PrivacyViolation, match=r"lifts a message by 5e\+38 in round 0, client 0: float32 cannot hold it"
    ):
        uplink_checks.check_links(uplink.ANALOG, link, plan, charged)


@pytest.mark.parametrize("rx_scale", [1e-3, 1.0, 20.0])
def test_a_link_is_held_against_its_charge_at_any_receive_scale(rx_scale):
    trace, site = small.trace(3), small.deployment()
    plan = planned(tx=0.5 / trace.gain, rx_scale=rx_scale)
    link, charged = uplink.lower(plan, trace.gain, site), events(plan, trace, site, MESSAGE)
    uplink_checks.check_links(uplink.ANALOG, link, plan, charged)
    quieter, louder = link._replace(noise_std=0.999 * link.noise_std), link._replace(weight=1.001 * link.weight)
    with pytest.raises(PrivacyViolation, match="less than was charged"):
        uplink_checks.check_links(uplink.ANALOG, quieter, plan, charged)
    with pytest.raises(PrivacyViolation, match="more than was charged"):
        uplink_checks.check_links(uplink.ANALOG, louder, plan, charged)


def test_an_honest_uplink_from_outside_is_let_through_and_its_card_says_whose_it_is(tmp_path):
    def hear(total, link, key):
        return uplink.hear(total, link, key)

    folder = run(tmp_path, lambda *told: policy(uplink=uplink.ANALOG._replace(name="honest", decode=hear)))
    told = RunFolder.open(folder).scheme("mine").json("card")["assumptions"]
    assert any("uplink 'honest' comes from outside otafl: it was tried out" in line for line in told)
