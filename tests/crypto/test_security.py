"""What an attacker sees, what devices refuse, and the attacks that do work: the stated limits, made visible.

"Uniform" means std/q in [0.26, 0.31] over at least 2,000 centred coefficients (a uniform one has 0.289).
"""

import copy
import dataclasses
import logging
import pickle
from functools import partial

import jax
import numpy as np
import pytest
from scipy import stats

from otafl.crypto import budget, clients, modes, overair, randomness, realchannel, scaling, xmkckks
from otafl.crypto import ring as rings
from otafl.errors import InputError

ROUNDS = 32  # of 64 coefficients
multiply = partial(jax.jit, static_argnums=0)(rings.multiply)


def fractions_of_q(ring, residues):
    return np.array(rings.integers(ring, residues), dtype=object).astype(float).ravel() / float(ring.q)


def assert_uniform(ring, pooled):
    x = np.concatenate([fractions_of_q(ring, part) for part in pooled])
    assert x.size >= 2000
    assert 0.26 < x.std() < 0.31


def channel_of(rng, count=4):
    return scaling.quantise_channel(rng.normal(1, 1, count), 16).h


def opened_by(ring, s, c0, c1):
    """c0 + s c1: what somebody with the secret s makes of a ciphertext."""
    with jax.enable_x64(True):
        product = multiply(ring, rings.small_residues(ring, s), np.asarray(c1))
    return xmkckks.reconstruct(ring, c0, np.asarray(product))


class Broken:
    """The honest air with one thing wrong."""

    def __init__(self, air, fault):
        self.air, self.fault = air, fault

    def __call__(self, phase, x, kept=slice(None)):
        air = self.air
        if self.fault == "missing share" and phase == "share":
            x = x.copy()
            x[1] = 0
        steps = {"share weight off by one step": "share", "c0 and c1 weights differ": "c1"}
        if steps.get(self.fault) == phase:
            weights = dict(air.weights)
            weights[phase] = weights[phase].copy()
            weights[phase][0] = (weights[phase][0] + 1) % air.ring.moduli
            air = dataclasses.replace(air, weights=weights)
        return air(phase, x, kept)


FAULTS = ["missing share", "share weight off by one step", "c0 and c1 weights differ"]


@pytest.mark.parametrize(
    "fault", [*FAULTS, "stale key", "wrong secret", "one flipped coefficient", "naive-reuse", "zf", "mmse"]
)
def test_every_fault_leaves_noise_and_is_detected(params, channel, make_clients, rng, fault):
    honest, stale = make_clients(params, seed=1), make_clients(params, seed=2)
    mode = fault if fault in modes.MODES else "fixed-point"
    std = float(np.sqrt(budget.average_variance(params, channel)))
    pooled = []
    for k in range(ROUNDS):
        air = modes.grid_air(mode, params, channel_of(rng), rng, setup_h=channel_of(rng))
        if fault == "wrong secret":
            honest[0]._key._s = stale[0]._key._s
        if fault == "one flipped coefficient" and k == 0:
            honest[0]._key._s = honest[0]._key._s * np.where(np.arange(64) == 5, -1, 1).astype(np.int8)
        if fault == "stale key":
            old = stale[0].public.b
            honest[0].public = honest[0].public._replace(b=old)
        seen = overair.play(honest, rng.normal(size=(4, 1)), Broken(air, fault), mode, round=k)
        pooled.append(seen.received)
        with pytest.raises(overair.RoundFailed, match="empty coefficients"):
            overair.release(params, seen.received, std, budget.decode_bits(params), True)
    assert_uniform(params.ring, pooled)


def test_the_same_loop_without_a_fault_decodes(params, channel, make_clients, rng):
    air = modes.grid_air("fixed-point", params, channel_of(rng), rng)
    seen = overair.play(make_clients(params), np.zeros((4, 1)), Broken(air, None))
    assert np.abs(fractions_of_q(params.ring, seen.received)).max() < 1e-3


def test_server_alone_and_curious_client_see_uniform_values(params, make_clients, rng):
    devices = make_clients(params)
    alone, curious = [], []
    for k in range(ROUNDS):
        air = modes.grid_air("fixed-point", params, channel_of(rng), rng)
        seen = overair.play(devices, np.ones((4, 1)), air, round=k)
        alone.append(seen.c0)
        curious.append(opened_by(params.ring, devices[2]._key._s, seen.c0, seen.c1))
    assert_uniform(params.ring, alone)
    assert_uniform(params.ring, curious)


def test_a_curious_client_cannot_open_another_clients_ciphertext(params, make_clients):
    devices = make_clients(params)
    key = devices[0]._board
    opened = []
    for k in range(ROUNDS):
        sent = devices[0].encrypt(np.ones(1), 76, k, 0, key)
        opened.append(opened_by(params.ring, devices[1]._key._s, sent.c0, sent.c1))
    assert_uniform(params.ring, opened)


def test_ciphertexts_of_zero_and_one_are_not_told_apart_by_simple_statistics(params, make_clients):
    """Kolmogorov-Smirnov on c0 and c1, first coefficient, mean and spread; the unmasked message is told at once."""
    agreed, key, count = make_clients(params)[0].agreed, make_clients(params)[0]._board, 400
    source = randomness.insecure_test_rng(9)
    groups = []
    for bit in (0.0, 1.0):
        draw = xmkckks.ephemeral(params, source, count)
        messages = scaling.encode(params, np.full((count, 1), bit), 76)
        c0, c1 = xmkckks.encrypt_batch(agreed, key, draw, messages)
        f0, f1 = (fractions_of_q(params.ring, c).reshape(count, -1) for c in (c0, c1))
        bare = fractions_of_q(params.ring, messages).reshape(count, -1)[:, 0]
        groups.append({"c0[0]": f0[:, 0], "c1[0]": f1[:, 0], "mean": f0.mean(1), "std": f0.std(1), "bare": bare})
    p_values = {name: stats.ks_2samp(groups[0][name], groups[1][name]).pvalue for name in groups[0]}
    assert p_values.pop("bare") < 1e-100
    assert min(p_values.values()) > 1e-4


def test_two_encryptions_of_one_message_differ(params):
    agreed = xmkckks.setup(params)
    device = clients.Client("one", agreed)  # operating-system randomness
    first = device.encrypt(np.ones(1), 76, 0, 0, device.public.b)
    second = device.encrypt(np.ones(1), 76, 1, 0, device.public.b)
    assert not first.insecure_test_rng
    assert np.mean(first.c0 == second.c0) < 0.01
    assert np.mean(first.c1 == second.c1) < 0.01


def test_replays_and_second_questions_are_refused(params, make_clients, rng):
    device = make_clients(params)[0]
    c1, other = randomness.uniform(randomness.insecure_test_rng(1), params.ring, (2,))
    device.encrypt(np.ones(1), 76, 0, 0, device._board)
    device.share(0, 0, c1)
    with pytest.raises(InputError, match="second c1"):
        device.share(0, 0, other)
    device.encrypt(np.zeros(1) + 2, 76, 1, 0, device._board)
    with pytest.raises(InputError, match="replay refused"):
        device.share(1, 0, c1)
    with pytest.raises(InputError, match="share asked for round=0"):
        device.share(0, 0, other)
    with pytest.raises(InputError, match="nothing is encrypted twice"):
        device.encrypt(np.ones(1), 76, 1, 0, device._board)


def test_an_abandoned_attempt_gets_no_share_and_its_scalars_never_go_out_again(params, make_clients):
    device = make_clients(params)[0]
    c1 = randomness.uniform(randomness.insecure_test_rng(1), params.ring)
    device.encrypt(np.ones(1), 76, 5, 0, device._board)
    with pytest.raises(InputError, match="fresh direction"):
        device.encrypt(np.ones(1), 76, 5, 1, device._board)
    device.encrypt(np.full(1, 0.5), 76, 5, 1, device._board)
    with pytest.raises(InputError, match="attempt=0"):
        device.share(5, 0, c1)


def test_share_noise_depends_on_key_and_c1_only(params, make_clients):
    """Asked again in another round, a device that forgot would answer with the same noise: averaging gains nothing."""
    device, other = make_clients(params)[:2]
    c1 = randomness.uniform(randomness.insecure_test_rng(1), params.ring)
    first, again = (xmkckks.share_batch(device.agreed, [device._key], c1) for _ in range(2))
    assert np.array_equal(first, again)
    moved = c1.copy()
    moved[:, 0] = (moved[:, 0] + 1) % params.ring.moduli[:, 0]
    flood = [randomness.flooding([k.share_noise(c)], params.ring, params.sigma_phi) for k, c in
             ((device._key, c1), (device._key, moved), (other._key, c1))]  # fmt: skip
    assert not np.any(np.all(flood[0] == flood[1], axis=1))
    assert not np.any(np.all(flood[0] == flood[2], axis=1))


@pytest.mark.parametrize("mode", ["digital", "hybrid"])
def test_clients_refuse_a_chosen_key_where_keys_are_published(params, make_clients, rng, mode):
    devices = make_clients(params)
    honest = modes.grid_air(mode, params, channel_of(rng), rng)
    forged = randomness.uniform(randomness.insecure_test_rng(1), params.ring)

    def air(phase, x, kept=slice(None)):
        return forged if phase == "key" else honest(phase, x, kept)

    with pytest.raises(InputError, match="not the sum of the published keys"):
        overair.play(devices, np.ones((4, 1)), air, mode)


def publish(devices, bits=60):
    """Encrypt, commit, and add up, as an honest digital round does."""
    sent = clients.encrypt_together(devices, np.ones((4, 1)), bits, 0, 0, devices[0]._board)
    promised = {part.device: clients.commitment(part) for part in sent}
    for device in devices:
        device.accept_commitments(promised)
    return sent, xmkckks.add_up(devices[0].agreed.parameters.ring, np.stack([part.c1 for part in sent]))


@pytest.mark.parametrize("cheat", ["one client's c1", "constant", "changed part", "steered part", "missing part"])
def test_digital_clients_refuse_a_c1_that_is_not_the_sum(params, make_clients, cheat):
    devices = make_clients(params)
    sent, c1 = publish(devices)
    if cheat == "one client's c1":
        c1 = sent[0].c1
    elif cheat == "constant":
        c1 = constant(params.ring, 12345)
    elif cheat == "changed part":
        sent[1] = sent[1]._replace(c1=sent[0].c1)
    elif cheat == "steered part":  # a late client chooses its part so that the sum becomes what it likes
        sent[3] = sent[3]._replace(c1=sent[0].c1)
        c1 = xmkckks.add_up(params.ring, np.stack([part.c1 for part in sent]))
    else:
        sent = sent[:-1]
    with pytest.raises(InputError, match=r"sum of the published|was changed|agreed devices|committed to"):
        devices[1].share(0, 0, c1, sent)


def test_digital_clients_want_commitments_first_and_only_once(params, make_clients):
    devices = make_clients(params)
    sent = clients.encrypt_together(devices, np.ones((4, 1)), 60, 0, 0, devices[0]._board)
    c1 = xmkckks.add_up(params.ring, np.stack([part.c1 for part in sent]))
    with pytest.raises(InputError, match="no commitments"):
        devices[0].share(0, 0, c1, sent)
    promised = {part.device: clients.commitment(part) for part in sent}
    devices[0].accept_commitments(promised)
    with pytest.raises(InputError, match="cannot change"):
        devices[0].accept_commitments(promised)


def test_server_refuses_missing_doubled_or_foreign_shares(params, make_clients):
    devices = make_clients(params)
    names = [device.device for device in devices]
    sent, c1 = publish(devices)
    shares = clients.share_together(devices, 0, 0, c1, sent)
    assert clients.collect(shares, names, 0, 0, c1).shape[0] == 4
    with pytest.raises(InputError, match="missing share of 'device-3'"):
        clients.collect(shares[:-1], names, 0, 0, c1)
    with pytest.raises(InputError, match="twice"):
        clients.collect([*shares, shares[0]], names, 0, 0, c1)
    with pytest.raises(InputError, match="another round"):
        clients.collect([shares[0]._replace(round=1), *shares[1:]], names, 0, 0, c1)


def test_boards_with_strangers_twins_or_other_agreements_are_refused(params, make_clients):
    devices, foreign = make_clients(params, seed=1), make_clients(params, seed=2)
    board = [device.public for device in devices]
    with pytest.raises(InputError, match="duplicate"):
        devices[0].accept_board([*board, board[1]])
    with pytest.raises(InputError, match="another a, q, n, f"):
        devices[0].accept_board([*board[:3], foreign[3].public])
    with pytest.raises(InputError, match="does not hold the key"):
        devices[0].accept_board(board[1:])


def test_secrets_never_show(params, make_clients, caplog):
    devices = make_clients(params)
    device, secret = devices[0], devices[0]._key._s
    marks = [
        str(secret.tolist())[:60],
        np.array2string(secret)[:40],
        secret.tobytes()[:16].hex(),
        device._key._prf.hex(),
    ]
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("test").debug("%s %r %s", device, device._key, vars(device))
    texts = [repr(device), str(device._key), f"{device._key}", repr(vars(device)), repr(device._source), caplog.text]
    for bad in (lambda: device.share(9, 9, device.public.b), lambda: device.check_key(device.public.b * 0)):
        with pytest.raises(InputError) as caught:
            bad()
        texts.append(str(caught.value))
    assert "hidden" in repr(xmkckks.SecretKey(secret, b"", False))
    assert not any(mark in text for mark in marks for text in texts)


@pytest.mark.parametrize("how", [pickle.dumps, copy.copy, copy.deepcopy])
def test_secrets_cannot_be_pickled_or_copied(params, make_clients, how):
    device = make_clients(params)[0]
    for holder in (device, device._key, [device._key]):
        if how is copy.copy and isinstance(holder, list):
            continue  # a shallow copy of a list copies no key
        with pytest.raises(TypeError, match="never pickled"):
            how(holder)


def test_everything_made_from_a_test_source_says_so(params, channel, make_clients, rng):
    devices = make_clients(params)
    result = overair.run_round(devices, np.ones((4, 1)), np.ones(4), channel, rng)
    marked = [devices[0].agreed, devices[0], devices[0]._key, devices[0].public, result]
    assert all(item.insecure_test_rng for item in marked)
    fresh = clients.Client("one", xmkckks.setup(params))
    assert not fresh.insecure_test_rng
    assert not fresh.public.insecure_test_rng


# ----------------------------------------------------------------- attacks that work: the limit of the security model


def constant(ring, value):
    c1 = np.zeros((ring.limbs, ring.n), dtype=np.uint32)
    c1[:, 0] = [value % p for p in ring.primes]
    return c1


def test_attack_constant_c1_reads_a_key_from_one_share_despite_flooding(params, make_clients):
    """An active server over the air: c1 = q/4 makes the share s q/4 + e*. No device can tell."""
    device, ring = make_clients(params)[0], params.ring
    device.encrypt(np.ones(1), 76, 0, 0, device._board)
    share = device.share(0, 0, constant(ring, ring.q // 4))
    assert np.array_equal(np.rint(4 * fractions_of_q(ring, share.d)), device._key._s)


def test_attack_chosen_key_reads_a_single_scalar_without_any_share(params, make_clients):
    """An active server broadcasts b = -s' a + e' with its own s' and opens what is encrypted under it."""
    device, agreed = make_clients(params)[0], make_clients(params)[0].agreed
    own, forged = xmkckks.keygen(agreed, randomness.insecure_test_rng(77))
    sent = device.encrypt(np.full(1, 0.3), 76, 0, 0, forged)
    opened = opened_by(params.ring, own._s, sent.c0, sent.c1)
    assert rings.centred_float(params.ring, opened, 76)[0] == pytest.approx(0.3, abs=1e-9)


def test_attack_one_clients_c1_in_place_of_the_sum_opens_that_client(params, channel, make_clients):
    """Digital without the client's check (over the air there is none): the shares decrypt one message."""
    p = dataclasses.replace(params, sigma_phi=budget.smudging_sigma(params, channel, 20, "digital"))
    devices = make_clients(p)
    x = np.array([[0.3], [0.1], [-0.7], [0.9]])
    sent = clients.encrypt_together(devices, x, 60, 0, 0, devices[0]._board)
    shares = clients.share_together(devices, 0, 0, sent[2].c1)  # no parts: unchecked
    opened = xmkckks.reconstruct(p.ring, sent[2].c0, xmkckks.add_up(p.ring, np.stack([s.d for s in shares])))
    assert rings.centred_float(p.ring, opened, 60)[0] == pytest.approx(-0.7, abs=1e-3)


def test_attack_two_nearby_questions_read_the_key(params, make_clients):
    """c1 and c1 + 2^k: no exact replay, and the difference of two shares is s 2^k plus noise."""
    device, ring = make_clients(params)[0], params.ring
    first = randomness.uniform(randomness.insecure_test_rng(1), ring)
    step = 1 << 80
    second = xmkckks.reconstruct(ring, first, constant(ring, step))
    answers = []
    for k, c1 in enumerate((first, second)):
        device.encrypt(np.full(1, 1.0 + k), 76, k, 0, device._board)
        answers.append(np.array(rings.integers(ring, device.share(k, 0, c1).d), dtype=object))
    difference = (answers[1] - answers[0] + ring.q // 2) % ring.q - ring.q // 2
    assert np.array_equal(np.rint(difference.astype(float) / step), device._key._s)


def test_attack_averaging_fresh_noise_reads_the_key_and_derived_noise_stops_it(params, make_clients):
    """With narrow fresh e*, 1,000 answers to one c1 average out; noise derived from c1 does not move."""
    device, ring, source = make_clients(params)[0], params.ring, randomness.insecure_test_rng(5)
    c1 = randomness.uniform(source, ring)
    silent = opened_by(ring, device._key._s, np.zeros_like(c1), c1)
    exact = np.array(rings.integers(ring, silent), dtype=object)
    fresh = randomness.gaussian(source, 3.2, (1000, ring.n))
    assert np.array_equal(np.rint(fresh.mean(0)), np.zeros(ring.n))  # the rounded mean is s c1 itself
    narrow = dataclasses.replace(params, sigma_phi=3.2)
    agreed = device.agreed._replace(parameters=narrow)
    answers = np.stack([xmkckks.share_batch(agreed, [device._key], c1)[0] for _ in range(5)])
    total = sum(np.array(rings.integers(ring, a), dtype=object) for a in answers)
    assert max(abs(x) for x in total - 5 * exact) > 5  # the mean is off by more than one somewhere, however often asked


def test_attack_without_share_noise_one_answer_is_the_key(params, make_clients):
    """s c1 mod q with c1 known: transform, divide, transform back."""
    device, ring = make_clients(params)[0], params.ring
    c1 = randomness.uniform(randomness.insecure_test_rng(1), ring)
    bare = opened_by(ring, device._key._s, np.zeros_like(c1), c1)
    c1_hat, bare_hat = xmkckks.to_ntt(ring, c1), xmkckks.to_ntt(ring, bare)
    inverse = np.array([[pow(int(x), -1, p) for x in row] for row, p in zip(c1_hat, ring.primes)], dtype=np.uint32)
    with jax.enable_x64(True):
        found = jax.jit(lambda x, y: rings.untransform(ring, rings.pointwise(ring, x, y)))(bare_hat, inverse)
    assert rings.integers(ring, found) == device._key._s.tolist()


def test_attack_repeated_rounds_with_the_same_scalars_give_every_scalar(params, channel, make_clients, rng):
    """N rounds, one set of scalars, fading known from the public keys: a linear system. So scalars are never resent."""
    x = rng.normal(size=4)
    rows, sums = [], []
    for k in range(8):
        devices, h = make_clients(params, seed=20 + k), channel_of(rng)  # new devices: the honest ones would refuse
        rows.append(h)
        sums.append(overair.run_round(devices, x[:, None], h, channel, rng).values[0])
    found = np.linalg.lstsq(np.array(rows), np.array(sums), rcond=None)[0]
    np.testing.assert_allclose(found, x, atol=0.05)


def test_attack_on_lifted_mode_division_returns_the_keys(params, rng):
    p = dataclasses.replace(params, sigma_phi=3.2, scale_bits=40)
    with pytest.warns(modes.InsecureModeWarning):
        done = realchannel.lifted_round(p, np.ones((4, 1)), rng.normal(1, 1, 4), rng, randomness.insecure_test_rng(5))
    source = randomness.insecure_test_rng(5)
    randomness.uniform(source, p.ring)
    secrets = xmkckks.secret_polynomial(p, source, (4,))
    for b, s in zip(done.b, secrets):
        assert np.array_equal(np.rint(realchannel.divide(b, done.a)), s)
        reduced = realchannel.reduced(p.ring, b)  # the same division on what a sound mode sends is guessing
        assert np.mean(np.sign(realchannel.divide(reduced, done.a)) == s) < 0.8
