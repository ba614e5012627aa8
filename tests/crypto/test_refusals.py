"""What a device refuses, whoever drives it: trapdoors, rogue keys, unchecked sums, resent scalars, malformed input."""

import contextlib
import dataclasses
import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from residues import constant, inverse, multiply, opened_by

from otafl.core.errors import InputError, OtaflError
from otafl.crypto import common, messages, modes, overair, participant, randomness, xmkckks
from otafl.crypto import ring as rings
from otafl.crypto.participant import Client, PublicKey


def strangers(params, count=3, seed=5):
    """Devices that have seen nothing of each other yet."""
    agreed = xmkckks.setup(params, randomness.insecure_test_rng(seed))
    return [Client(f"device-{i}", agreed, randomness.insecure_test_rng(100 + i)) for i in range(count)]


def promised_by(devices):
    return {device.device: device.key_commitment for device in devices}


# --- the common polynomial -------------------------------------------------------------------------------------------


def test_expansion_is_the_stream_read_word_by_word():
    ring, seed = rings.toy_ring(16, 3), bytes(range(32))
    head = common.DOMAIN + b"".join(x.to_bytes(8, "little") for x in (16, 3, *ring.primes))
    rows = []
    for i, prime in enumerate(ring.primes):
        stream, row = hashlib.shake_256(head + i.to_bytes(8, "little") + seed).digest(4 * 400), []
        for k in range(400):
            word = int.from_bytes(stream[4 * k : 4 * k + 4], "little") % 2 ** prime.bit_length()
            row += [word] if word < prime else []
        rows.append(row[:16])
    assert common.expand(ring, seed).tolist() == rows


def test_words_above_the_prime_are_dropped_and_never_wrapped():
    """Primes of a ring are close to a power of two; at 17 of 32 nearly half of the words are above."""
    stream = hashlib.shake_256(b"name").digest(4 * 1000)
    words = [int.from_bytes(stream[4 * k : 4 * k + 4], "little") % 32 for k in range(1000)]
    assert common._limb(b"name", 17, 400).tolist() == [word for word in words if word < 17][:400]


def test_expansion_is_uniform_and_depends_on_everything():
    ring = rings.RING_4096
    a = common.expand(ring, bytes(32))
    scaled = (a / ring.moduli).ravel()
    assert np.all(a < ring.moduli) and abs(scaled.mean() - 0.5) < 5 / np.sqrt(12 * scaled.size)
    assert abs(scaled.std() - 12**-0.5) < 0.01
    others = [common.expand(ring, b"\1" * 32), common.expand(rings.Ring(4096, ring.primes[::-1]), bytes(32))[::-1]]
    assert all(np.mean(a == other) < 0.001 for other in others)


def test_a_trapdoor_in_the_common_polynomial_is_refused(params):
    """a = 2^60 / r with a ternary r looks uniform, and r b = -2^60 s + r e then shows s: no device accepts it."""
    honest, ring = xmkckks.setup(params, randomness.insecure_test_rng(1)), params.ring
    source = randomness.insecure_test_rng(3)
    r = randomness.ternary(source, (ring.n,))
    while any(np.any(row == 0) for row in xmkckks.to_ntt(ring, rings.small_residues(ring, r))):
        r = randomness.ternary(source, (ring.n,))
    with jax.enable_x64(True):
        a = np.asarray(multiply(ring, constant(ring, 1 << 60), inverse(ring, rings.small_residues(ring, r))))
    forged = honest._replace(a=a, a_hat=xmkckks.to_ntt(ring, a))
    secret, b = xmkckks.keygen(forged, source)
    with jax.enable_x64(True):
        shown = rings.integers(ring, np.asarray(multiply(ring, rings.small_residues(ring, r), b)))
    assert [-round(x / 2**60) for x in shown] == secret._s.tolist()  # the attack works on whoever takes this a
    for agreed in (forged, honest._replace(a=a), honest._replace(a_hat=forged.a_hat), honest._replace(seed=b"\1" * 32)):
        with pytest.raises(InputError, match="trapdoor"):
            Client("one", agreed)


# --- public keys -----------------------------------------------------------------------------------------------------


def test_a_key_chosen_after_the_others_is_refused(params):
    """A member who publishes last picks b = own - sum of the others and would open everything alone."""
    honest = strangers(params, 2)
    own, b = xmkckks.keygen(honest[0].agreed, randomness.insecure_test_rng(9))
    decoy = PublicKey("rogue", b, honest[0].agreed.digest, True, b"\7" * 32)
    promised = promised_by(honest) | {"rogue": messages.key_commitment(decoy)}
    for device in honest:
        with pytest.raises(InputError, match="only after all have committed"):
            device.public  # noqa: B018
        device.accept_key_commitments(promised)
    keys = [device.public for device in honest]
    ring = params.ring
    others = xmkckks.add_up(ring, np.stack([key.b for key in keys]))
    late = decoy._replace(b=((b.astype(np.uint64) + ring.moduli - others) % ring.moduli).astype(np.uint32))
    total = xmkckks.add_up(ring, np.stack([*(key.b for key in keys), late.b]))
    small = opened_by(ring, own._s, total, honest[0].agreed.a)
    assert max(map(abs, rings.integers(ring, small))) < 20  # the sum is the rogue's own key
    for device in honest:
        with pytest.raises(InputError, match="not the one it committed to"):
            device.accept_board([*keys, late])
        assert device.accept_board([*keys, decoy]).shape == total.shape


@pytest.mark.parametrize("value", [bytes(31), bytes(33), b"", bytearray(32), "0" * 32, None])
def test_a_commitment_is_32_bytes_that_nobody_can_change(value):
    with pytest.raises(InputError, match="keys: the commitment of 'b' must be 32 bytes"):
        messages.promises("keys", {"a": bytes(32), "b": value})


def test_commitments_to_keys_cannot_be_changed_copied_or_left_out(params):
    devices = strangers(params)
    promised = promised_by(devices)
    with pytest.raises(InputError, match="call accept_key_commitments first"):
        devices[0].accept_board([])
    with pytest.raises(InputError, match="do not hold that of 'device-0'"):
        devices[0].accept_key_commitments(promised | {"device-0": bytes(32)})
    for device in devices:
        device.accept_key_commitments(promised)
    with pytest.raises(InputError, match="cannot change"):
        devices[0].accept_key_commitments(promised)
    board = [device.public for device in devices]
    for twisted in (
        [*board[:2], board[2]._replace(b=board[1].b)],
        [*board[:2], board[2]._replace(nonce=board[1].nonce)],
        [*board[:2], board[1]._replace(device="device-2")],  # a copied key under one's own name
    ):
        with pytest.raises(InputError, match="not the one it committed to"):
            devices[0].accept_board(twisted)


@pytest.mark.parametrize("spoil", [
    lambda b: b.astype(float), lambda b: b.astype(float) * np.nan, lambda b: b + np.uint32(1 << 28),
    lambda b: b[:, :-1], lambda b: b.astype(complex), lambda b: b.tolist(), lambda b: None,
], ids=["float", "nan", "unreduced", "short", "complex", "list", "none"])  # fmt: skip
def test_a_board_of_anything_but_residues_is_refused(params, make_clients, spoil):
    devices = make_clients(params)
    board = [device.public for device in devices]
    with pytest.raises(InputError, match="must be uint32 residues"):
        devices[0].accept_board([board[0]._replace(b=spoil(board[0].b)), *board[1:]])


# --- sums ------------------------------------------------------------------------------------------------------------


def test_an_undirected_device_checks_key_and_c1(params, make_clients):
    """Nobody has to remember a check: a device takes the board's sum and the sum of published parts only."""
    device, ring = make_clients(params)[0], params.ring
    for key in (randomness.uniform(randomness.insecure_test_rng(1), ring), device.public.b):
        with pytest.raises(InputError, match="not the sum of the published keys"):
            device.encrypt(np.ones(1), 60, 0, 0, key)
    device.encrypt(np.ones(1), 60, 0, 0, device._board)
    for parts in (None, []):
        with pytest.raises(InputError, match="no commitments to the c1 parts"):
            device.share(0, 0, constant(ring, ring.q // 4), parts)
    with pytest.raises(InputError, match="what it checks cannot change"):
        device.use("fixed-point")
    with pytest.raises(InputError, match="has seen no board"):
        strangers(params)[0].encrypt(np.ones(1), 60, 0, 0, device._board)


def test_parts_stay_necessary_after_commitments(params, make_clients):
    devices = make_clients(params)
    sent = participant.encrypt_together(devices, np.ones((4, 1)), 60, 0, 0, devices[0]._board)
    promised = {part.device: participant.commitment(part) for part in sent}
    with pytest.raises(InputError, match="was changed"):
        devices[0].accept_commitments(promised | {"device-0": bytes(32)})
    fewer = {name: value for name, value in promised.items() if name != "device-3"}
    for others in (fewer, promised | {"stranger": bytes(32)}, fewer | {"stranger": bytes(32)}):
        with pytest.raises(InputError, match="do not come from the agreed devices"):
            devices[0].accept_commitments(others)
    devices[0].accept_commitments(promised)
    with pytest.raises(InputError, match="must be a list of Ciphertext"):
        devices[0].share(0, 0, constant(params.ring, params.ring.q // 4))
    c1 = xmkckks.add_up(params.ring, np.stack([part.c1 for part in sent]))
    assert devices[0].share(0, 0, c1, sent).d.shape == c1.shape


def test_a_part_of_an_earlier_round_is_refused_with_the_commitment_it_opens(params, make_clients):
    """Otherwise the server could bring back a device's old c1, whose scalars and randomness it may know by now."""
    devices = make_clients(params)
    old, new = (
        participant.encrypt_together(devices, np.full((4, 1), value), 60, round_, 0, devices[0]._board)
        for round_, value in ((0, 1.0), (1, 2.0))
    )
    parts = [new[0], old[1], *new[2:]]
    devices[0].accept_commitments({part.device: participant.commitment(part) for part in parts})
    c1 = xmkckks.add_up(params.ring, np.stack([part.c1 for part in parts]))
    with pytest.raises(InputError, match="'device-1' belongs to another round or attempt"):
        devices[0].share(1, 0, c1, parts)


def test_strangers_and_twins_do_not_act_together(params, make_clients):
    ours, theirs = make_clients(params, 1), make_clients(params, 2)
    key, rows = ours[0]._board, np.ones((2, 1))
    with pytest.raises(InputError, match="must agree on a"):
        participant.encrypt_together([ours[0], theirs[1]], rows, 60, 0, 0, key)
    with pytest.raises(InputError, match="duplicate device id"):
        participant.encrypt_together([ours[0], ours[0]], rows, 60, 0, 0, key)


def test_hybrid_devices_check_keys_however_they_are_driven(params, make_clients):
    device = make_clients(params)[0]
    device.use("hybrid")
    with pytest.raises(InputError, match="not the sum of the published keys"):
        device.encrypt(np.ones(1), 60, 0, 0, device.public.b)
    with pytest.raises(InputError, match="cannot change"):
        device.use("fixed-point")


# --- scalars and order -----------------------------------------------------------------------------------------------


def test_scalars_are_never_sent_twice_whatever_the_round(params, make_clients):
    device = make_clients(params)[0]
    for k, x in enumerate((0.3, 0.0, -0.0, 0.0, 0.4)):  # zeros may repeat
        device.encrypt(np.array([x]), 60, k, 0, device._board)
    for k in range(5, 9):
        with pytest.raises(InputError, match="were sent before"):
            device.encrypt(np.array([0.3]), 60, k, 0, device._board)
    assert max(len(mark) for mark in device._sent) == participant.MARK_BYTES and len(device._sent) == 2


def test_another_spelling_of_zero_is_the_same_vector_of_scalars(params, make_clients):
    device = make_clients(dataclasses.replace(params, P=2))[0]
    device.encrypt(np.array([0.3, 0.0]), 60, 0, 0, device._board)
    with pytest.raises(InputError, match="were sent before"):
        device.encrypt(np.array([0.3, -0.0]), 60, 1, 0, device._board)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1.0, -1, True, "1", None, 1 << 70, np.float32(2), [1], 1j])
def test_only_whole_numbers_name_a_round(params, make_clients, bad):
    device = make_clients(params)[0]
    device.encrypt(np.ones(1), 60, 3, 0, device._board)
    for at in ((bad, 0), (4, bad)):
        with pytest.raises(InputError, match="must be a whole number"):
            device.encrypt(np.full(1, 2.0), 60, *at, device._board)
        with pytest.raises(InputError, match="must be a whole number"):
            device.share(*at, device._board)
    assert device._attempt == (3, 0)


@pytest.mark.parametrize("bad", [np.ones(1, complex), np.ones(2), np.ones((1, 1)), [[1], [1, 2]], "x", None, [1j], 1.0])
def test_only_real_scalars_of_the_right_shape_are_encrypted(params, make_clients, bad):
    device = make_clients(params)[0]
    with pytest.raises(InputError, match="values must be real numbers"):
        device.encrypt(bad, 60, 0, 0, device._board)
    assert device._attempt is None


# --- anything at all -------------------------------------------------------------------------------------------------

ARRAYS = [
    np.zeros((4, 64), np.uint32), np.full((4, 64), 2**32 - 1, np.uint32), np.zeros((4, 64)), np.full((4, 64), np.nan),
    np.zeros((3, 64), np.uint32), np.array(["a"]), np.array([None]), np.ones(1), np.ones((4, 1)),
    np.full((4, 1), np.nan), np.ones(4), np.ones(1, complex), object(),
]  # fmt: skip
JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.complex_numbers(), st.text(max_size=3),
    st.binary(max_size=40), st.lists(st.integers(0, 5), max_size=3),
    st.dictionaries(st.text(max_size=2), st.binary(max_size=32)),
    st.integers(0, len(ARRAYS) - 1).map(ARRAYS.__getitem__),
)  # fmt: skip
KINDS = (messages.Ciphertext, messages.PublicKey, messages.Share)
BUILT = [st.builds(kind, *[JUNK] * len(kind._fields)) for kind in KINDS]
PARTS = st.one_of(JUNK, st.lists(st.one_of(JUNK, *BUILT), max_size=4))
CALLS = {
    "Client": (lambda job: Client, 2),
    "verified": (lambda job: lambda a, b, c: xmkckks.verified(job[0].agreed._replace(seed=a, a=b, digest=c)), 3),
    "expand": (lambda job: lambda seed: common.expand(job[0].agreed.parameters.ring, seed), 1),
    "accept_key_commitments": (lambda job: job[0].accept_key_commitments, 1),
    "accept_board": (lambda job: job[0].accept_board, 1),
    "use": (lambda job: job[0].use, 1),
    "check_key": (lambda job: job[0].check_key, 1),
    "encrypt": (lambda job: job[0].encrypt, 5),
    "encrypt near": (lambda job: lambda x, r: job[0].encrypt(x, 60, r, 0, job[0]._board), 2),
    "share": (lambda job: job[0].share, 4),
    "share near": (lambda job: lambda parts: job[1].share(0, 0, job[0]._board, parts), 1),
    "accept_commitments": (lambda job: job[0].accept_commitments, 1),
    "encrypt_together": (lambda job: participant.encrypt_together, 6),
    "share_together": (lambda job: participant.share_together, 5),
    "collect": (lambda job: lambda shares, r: participant.collect(shares, ["a", "b"], r, 0, job[0]._board), 2),
    "collect near": (lambda job: lambda d: participant.collect(
        [messages.Share("a", 0, 0, participant.digest(job[0]._board), d, True)], ["a"], 0, 0, job[0]._board), 1),
    "play": (lambda job: lambda who, x, mode, r: overair.play(who, x, job[2], mode, r), 4),
    "play near": (lambda job: lambda x, r: overair.play(job[3], x, job[2], "fixed-point", r), 2),
    "run_round": (lambda job: lambda x, h, mode: overair.run_round(job[3], x, h, job[4], job[5], mode), 3),
    "release": (lambda job: lambda x, rms: overair.release(job[0].agreed.parameters, x, rms, 60, True), 2),
}  # fmt: skip


@pytest.fixture(scope="module")
def job(params, channel):
    """(fresh device, one that has encrypted, an air, a round's devices, channel, generator)."""
    agreed = xmkckks.setup(params, randomness.insecure_test_rng(0))

    def gather(first):
        return overair.gather_clients(agreed, 4, [randomness.insecure_test_rng(first + i) for i in range(4)])

    fresh, begun, playing, rng = gather(1), gather(5), gather(9), np.random.default_rng(1)
    begun[0].encrypt(np.ones(1), 60, 0, 0, begun[0]._board)
    begun[0].accept_commitments({key: begun[0]._own_promise for key in begun[0]._key_promises})
    return fresh[0], begun[0], modes.grid_air("fixed-point", params, np.ones(4), rng), playing, channel, rng


@pytest.mark.parametrize("name", CALLS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_arrives_only_typed_refusals_leave(job, name, data):
    make, count = CALLS[name]
    arguments = data.draw(st.tuples(*[PARTS] * count))
    call, said = make(job), "accepted"
    try:
        call(*arguments)
    except OtaflError as refusal:
        said = str(refusal)
    assert said and "\n" not in said


ODD = [None, "x", b"x", [], [[1], [1, 2]], {}, True, 1j, np.zeros((2, 2)), np.array(["a"]), float("nan")]


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_whatever_stands_in_a_message_is_refused_and_not_raised(params, make_clients, odd):
    """Fields that are compared with bytes, sizes and widths, seeds: nothing odd is taken for a number or a name."""
    one, two, *_ = make_clients(params)
    board = [one.public._replace(setup=odd), two.public]
    calls = [
        lambda: one.accept_board(board),
        lambda: Client("z", one.agreed._replace(digest=odd)),
        lambda: Client("z", one.agreed._replace(insecure_test_rng=odd)) if odd is not True else one.check_key(None),
        lambda: participant.collect([], odd, 0, 0, np.zeros((1, 1), np.uint32)),
        lambda: randomness.insecure_test_rng(odd) if odd is not True else one.check_key(None),
        *(lambda name=name: dataclasses.replace(params, **{name: odd}) for name in ("f", "sigma_phi", "sigma_e", "P")),
        lambda: dataclasses.replace(params, secret=odd),
    ]
    for call in calls:
        with pytest.raises(InputError):
            call()


def test_masked_scalars_are_no_scalars(params, make_clients):
    client, *_ = make_clients(params)
    with pytest.raises(InputError, match="values must be real numbers"):
        client.encrypt(np.ma.masked_array([1.0], [True]), 60, 0, 0, client._board)


class Agrees(np.ndarray):
    """Residues that are equal to whatever they are compared with."""

    def __array_function__(self, func, types, args, kwargs):
        if func is np.array_equal:
            return True
        return super().__array_function__(func, types, args, kwargs)


def encrypted_for(clients, params):
    for client in clients:
        client.use("digital")
    key = clients[0].accept_board([client.public for client in clients])
    sent = participant.encrypt_together(clients, np.full((len(clients), params.P), 0.5), 16, 0, 0, key)
    for client in clients:
        client.accept_commitments({part.device: messages.commitment(part) for part in sent})
    return key, sent


def test_residues_that_call_themselves_equal_are_compared_all_the_same(params, make_clients):
    clients = make_clients(params)
    _, sent = encrypted_for(clients, params)
    chosen = np.full_like(sent[0].c1, 5).view(Agrees)
    with pytest.raises(InputError, match="C1 is not the sum of the published parts"):
        clients[0].share(0, 0, chosen, sent)
    with pytest.raises(InputError, match="not the sum of the published keys"):
        clients[0].encrypt(np.full(params.P, 0.25), 16, 1, 0, chosen)


def test_the_board_that_a_device_gives_back_is_not_the_one_it_keeps(params, make_clients):
    client = make_clients(params)[0]
    board = client.accept_board([other.public for other in make_clients(params)])
    chosen = np.full_like(board, 5)
    board[:] = chosen
    with pytest.raises(InputError, match="not the sum of the published keys"):
        client.encrypt(np.full(params.P, 0.25), 16, 0, 0, board)
    for own in (client.agreed.a, client.agreed.a_hat, client.public.b):
        with pytest.raises(ValueError, match="read-only"):
            own[:] = chosen


def test_parts_that_change_between_two_looks_are_refused(params, make_clients):
    clients = make_clients(params)
    _, sent = encrypted_for(clients, params)

    class Twice(list):
        looks = 0

        def __iter__(self):
            self.looks += 1
            return iter(sent if self.looks < 4 else [part._replace(c1=5 + 0 * part.c1) for part in sent])

    total = np.full_like(sent[0].c1, 5 * len(sent))
    with pytest.raises(InputError, match="must be a list of Ciphertext"):
        clients[0].share(0, 0, total, Twice(sent))


def test_two_questions_at_once_get_one_share(params, make_clients, monkeypatch):
    clients = make_clients(params)
    _, sent = encrypted_for(clients, params)
    total = xmkckks.add_up(params.ring, np.stack([part.c1 for part in sent]))
    meeting, check = threading.Barrier(2), participant.Client._check_parts

    def waiting(*args):
        with contextlib.suppress(threading.BrokenBarrierError):
            meeting.wait(0.5)
        check(*args)

    monkeypatch.setattr(participant.Client, "_check_parts", waiting)
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(clients[0].share, 0, 0, total, sent) for _ in range(2)]
    assert sum(one.exception() is None for one in asked) == 1
