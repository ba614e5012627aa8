"""What an attacker sees, what devices refuse, and where secrets must not turn up. Attacks that work: test_attacks.py.

"Uniform" means std/q in [0.26, 0.31] over at least 2,000 centred coefficients (a uniform one has 0.289).
"""

import copy
import dataclasses
import logging
import pickle

import numpy as np
import pytest
from residues import channel_of, constant, fractions_of_q, opened_by
from scipy import stats

from otafl.core.errors import InputError
from otafl.crypto import budget, modes, overair, participant, randomness, scaling, xmkckks

ROUNDS = 32  # of 64 coefficients


def assert_uniform(ring, pooled):
    x = np.concatenate([fractions_of_q(ring, part) for part in pooled])
    assert x.size >= 2000
    assert 0.26 < x.std() < 0.31


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
            honest[0]._public = honest[0].public._replace(b=stale[0].public.b)
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
        seen = overair.play(devices, np.full((4, 1), 1.0 + k), air, round=k)
        alone.append(seen.c0)
        curious.append(opened_by(params.ring, devices[2]._key._s, seen.c0, seen.c1))
    assert_uniform(params.ring, alone)
    assert_uniform(params.ring, curious)


def test_a_curious_client_cannot_open_another_clients_ciphertext(params, make_clients):
    devices = make_clients(params)
    key = devices[0]._board
    opened = []
    for k in range(ROUNDS):
        sent = devices[0].encrypt(np.full(1, 1.0 + k), 76, k, 0, key)
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
    device = overair.gather_clients(xmkckks.setup(params), 2)[0]  # operating-system randomness
    first = device.encrypt(np.zeros(1), 76, 0, 0, device._board)
    second = device.encrypt(np.zeros(1), 76, 1, 0, device._board)
    assert not first.insecure_test_rng
    assert np.mean(first.c0 == second.c0) < 0.01
    assert np.mean(first.c1 == second.c1) < 0.01


def test_replays_and_second_questions_are_refused(params, make_clients, rng):
    device = make_clients(params)[0]
    device.use("fixed-point")
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
    for later in ((5, 1), (6, 0), (7, 3)):  # neither in this round nor in any other
        with pytest.raises(InputError, match="fresh direction"):
            device.encrypt(np.ones(1), 76, *later, device._board)
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
    sent = participant.encrypt_together(devices, np.ones((4, 1)), bits, 0, 0, devices[0]._board)
    promised = {part.device: participant.commitment(part) for part in sent}
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
    sent = participant.encrypt_together(devices, np.ones((4, 1)), 60, 0, 0, devices[0]._board)
    c1 = xmkckks.add_up(params.ring, np.stack([part.c1 for part in sent]))
    with pytest.raises(InputError, match="no commitments"):
        devices[0].share(0, 0, c1, sent)
    promised = {part.device: participant.commitment(part) for part in sent}
    devices[0].accept_commitments(promised)
    with pytest.raises(InputError, match="cannot change"):
        devices[0].accept_commitments(promised)


def test_server_refuses_missing_doubled_or_foreign_shares(params, make_clients):
    devices = make_clients(params)
    names = [device.device for device in devices]
    sent, c1 = publish(devices)
    shares = participant.share_together(devices, 0, 0, c1, sent)
    assert participant.collect(shares, names, 0, 0, c1).shape[0] == 4
    with pytest.raises(InputError, match="missing share of 'device-3'"):
        participant.collect(shares[:-1], names, 0, 0, c1)
    with pytest.raises(InputError, match="twice"):
        participant.collect([*shares, shares[0]], names, 0, 0, c1)
    with pytest.raises(InputError, match="another round"):
        participant.collect([shares[0]._replace(round=1), *shares[1:]], names, 0, 0, c1)
    for wrong, said in (
        ([*shares[:3], None], "must be a list of Share"),
        ([shares[0]._replace(attempt=1), *shares[1:]], "another round, attempt or c1"),
        ([shares[0]._replace(c1=bytes(32)), *shares[1:]], "another round, attempt or c1"),
        ([shares[0]._replace(d=shares[0].d[:, :-1]), *shares[1:]], "must be residues"),
        ([shares[0]._replace(d=shares[0].d.astype(np.int64)), *shares[1:]], "must be residues"),
    ):
        with pytest.raises(InputError, match=said):
            participant.collect(wrong, names, 0, 0, c1)
    for c1_like, members, said in ((c1.tolist(), names, "c1 must be residues"), (c1, [], "members must be a list")):
        with pytest.raises(InputError, match=said):
            participant.collect(shares, members, 0, 0, c1_like)


def test_boards_with_strangers_twins_or_other_agreements_are_refused(params, make_clients):
    devices, foreign = make_clients(params, seed=1), make_clients(params, seed=2)
    board = [device.public for device in devices]
    with pytest.raises(InputError, match="one each"):
        devices[0].accept_board([*board, board[1]])
    with pytest.raises(InputError, match="another a, q, n, f"):
        devices[0].accept_board([*board[:3], foreign[3].public])
    with pytest.raises(InputError, match="one each"):
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
    fresh = overair.gather_clients(xmkckks.setup(params), 2)[0]
    assert not fresh.insecure_test_rng
    assert not fresh.public.insecure_test_rng


@pytest.mark.parametrize(("job", "keys"), [(False, False), (True, False), (False, True)])
def test_a_device_says_so_where_anything_of_it_could_be_repeated(params, job, keys):
    agreed = xmkckks.setup(params, randomness.insecure_test_rng(1) if job else None)
    device = participant.Client("a", agreed, randomness.insecure_test_rng(2) if keys else None)
    assert device.insecure_test_rng == ("insecure" in repr(device)) == (job or keys)


def test_a_device_that_is_alone_is_warned(params):
    device = participant.Client("a", xmkckks.setup(params))
    device.accept_key_commitments({"a": device.key_commitment})
    with pytest.warns(UserWarning, match="single device"):
        device.accept_board([device.public])


def test_a_prime_is_no_second_spelling_of_zero(params):
    zero = np.zeros((params.ring.limbs, params.ring.n), np.uint32)
    assert np.array_equal(xmkckks.reduced(params.ring, "c1", zero), zero)
    for limb, prime in enumerate(params.ring.primes):
        other = zero.copy()
        other[limb, 5] = prime
        with pytest.raises(InputError, match="below its prime"):
            xmkckks.reduced(params.ring, "c1", other)


def test_nonces_marks_and_share_noise_follow_from_a_secret_of_the_device(params):
    """From what is public alone nobody can tell them; the same device can, again and again."""
    s, public = np.zeros(params.ring.n, np.int8), np.ones((params.ring.limbs, params.ring.n), np.uint32)
    one, again, other = (xmkckks.SecretKey(s, bytes([n]) * 32, True) for n in (1, 1, 2))
    for told in (
        lambda key: key.nonce(public),
        lambda key: key.mark(np.ones(3)),
        lambda key: key.share_noise(public).bytes(64).tobytes(),
    ):
        assert told(one) == told(again) != told(other)
    assert one.nonce(public) != one.nonce(public + 1) and one.mark(np.ones(3)) != one.mark(np.zeros(3))


def test_an_agreement_that_is_changed_after_it_was_checked_changes_no_device(params):
    agreed = xmkckks.setup(params, randomness.insecure_test_rng(1))
    mine = agreed._replace(a=np.array(agreed.a), a_hat=np.array(agreed.a_hat))
    device = participant.Client("a", mine)
    mine.a[:], mine.a_hat[:] = 1, 1
    assert np.array_equal(device.agreed.a, agreed.a) and np.array_equal(device.agreed.a_hat, agreed.a_hat)
