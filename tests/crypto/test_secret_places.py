"""Where key material must not turn up: run folders, checkpoints, error messages, compiled programs, pickles."""

import copy
import json
import pickle

import numpy as np
import pytest

from otafl.core.errors import InputError
from otafl.core.files import parse
from otafl.crypto import participant, randomness, round_sum, simulation, uplink, xmkckks
from otafl.privacy import Ledger
from otafl.runs import runner
from otafl.runs.folder.store import RunFolder, SchemeFolder, read_table
from otafl.runs.schema import Experiment

RING_DEGREE, ROUNDS = 128, 4


def experiment():
    shared = {"name": "eezofl", "n": RING_DEGREE, "allow_insecure": True, "dp_noise": 2.0}
    return parse(Experiment, {
        "rounds": ROUNDS, "seeds": 1, "evaluate_every": 2,
        "task": {"data": {"name": "digits", "labels": [0, 1], "reward_fraction": 0.0}, "clients": 4,
                 "partition": {"kind": "iid"}, "model": {"name": "binary-logistic", "init": "zero"}},
        "channel": {"fading": {"kind": "real_gaussian", "mean": 1.0, "std": 1.0}},
        "radio": {"max_energy": 1024.0, "noise_std": 1.0},
        "clients": {"kind": "zero-order", "clip_norm": 32.0, "batch": 8},
        "engine": {"checkpoint_seconds": 0.0},
        "scheme": [{**shared, "label": "sound", "mode": "fixed-point"}, {**shared, "label": "failing", "mode": "zf"}],
    }, "test")  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(folder, keys of its schemes): an encrypted run whose checkpoints were not tidied away."""
    made, honest = [], uplink.simulation_keys
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uplink, "simulation_keys", lambda job: made.append(honest(job)) or made[-1])
        patch.setattr(SchemeFolder, "clear_checkpoints", lambda self: None)
        folder = runner.start(experiment(), tmp_path_factory.mktemp("keys") / "run")
    return folder, made


def arrays_of(path):
    """Whatever numbers a file holds."""
    if path.suffix == ".parquet":
        return [column for column in read_table(path).values() if column.dtype.kind in "iufb"]
    if path.suffix == ".npz":
        with np.load(path) as file:
            return [file[name] for name in file.files]
    if "checkpoints" in path.parts:
        kind, round_ = path.name.split("-")
        place = next(p for p in RunFolder.open(path.parents[3]).verified() if p.checkpoints == path.parent)
        found = place.unseal(kind, int(round_))
        assert found, path
        return [value for value in found.values() if value.dtype.kind in "iufb"]
    return []


def holds(array, secret):
    flat, want = np.asarray(array, float).ravel(), np.asarray(secret, float)
    if flat.size < want.size:
        return False
    return bool(np.any(np.all(np.lib.stride_tricks.sliding_window_view(flat, want.size) == want, axis=-1)))


def test_no_file_of_a_run_holds_a_key(run):
    folder, made = run
    secrets = [s[:48] for keys in made for s in keys.s]
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any("checkpoint" in path.name for path in files) and len(secrets) >= 8
    assert holds(np.concatenate([np.zeros(5), secrets[0], np.zeros(5)]), secrets[0])  # the search does find one
    for path in files:
        raw, text = path.read_bytes(), path.read_bytes().decode("utf-8", "ignore")
        for secret in secrets:
            assert secret.tobytes() not in raw, path
            assert str(secret.tolist())[1:-1] not in text, path
        for array in arrays_of(path):
            assert not any(holds(array, secret) for secret in secrets), path
            assert RING_DEGREE not in array.shape, path  # no ring element of any kind


def test_a_refused_round_is_discarded_and_charged_like_any_other(run):
    """Pre-equalised keys fail in every round: nothing is learned, and the ledger still holds all rounds."""
    folder, _ = run
    place = folder / "schemes" / "failing"
    rounds = read_table(place / "rounds.parquet")
    assert np.all(rounds["info_refused"] == 1) and len(rounds["info_refused"]) == ROUNDS
    with np.load(place / "model.npz") as model:
        assert not any(np.any(model[name]) for name in model.files)  # as it was at the start
    (saved,) = place.glob("ledger-*.bin")
    assert Ledger.from_bytes(saved.read_bytes()).rounds() == ROUNDS
    card = json.loads((place / "card.json").read_text(encoding="utf-8"))
    assert card["rounds"] == ROUNDS and 0 < card["guarantee"]["eps"] < np.inf
    sound = read_table(folder / "schemes" / "sound" / "rounds.parquet")
    assert not np.any(sound["info_refused"])


@pytest.mark.parametrize("how", [pickle.dumps, copy.copy, copy.deepcopy])
def test_encryption_randomness_cannot_be_pickled_or_copied(params, how):
    source = randomness.insecure_test_rng(1)
    for holder in (xmkckks.ephemeral(params, source, 2), source):
        with pytest.raises(TypeError, match="never pickled"):
            how(holder)


def test_simulated_secrets_are_not_printed_either(params):
    keys = simulation.keys(params, 2, seed=1)
    draw = round_sum.Draws(*(np.zeros(3),) * 8)
    assert (repr(keys), repr(draw), f"{keys}") == ("Keys(hidden)", "Draws(hidden)", "Keys(hidden)")


@pytest.mark.parametrize("value", [123456.789, np.nan, -np.inf])
def test_an_error_about_a_scalar_does_not_show_it(params, make_clients, value):
    device = make_clients(params)[0]
    with pytest.raises(InputError, match="must be finite and lie in") as caught:
        device.encrypt(np.full(1, value), 76, 0, 0, device._board)
    assert "123456" not in str(caught.value) and "nan" not in str(caught.value)


def test_keys_are_arguments_of_compiled_programs_never_constants(params, make_clients):
    """A constant would end up in the compilation cache on disk, and every other key would compile anew."""
    devices = make_clients(params)
    c1 = randomness.uniform(randomness.insecure_test_rng(1), params.ring)
    xmkckks.share_batch(devices[0].agreed, [devices[0]._key], c1)
    devices[0].encrypt(np.ones(1), 76, 0, 0, devices[0]._board)
    compiled = xmkckks._shares, xmkckks._encrypt, xmkckks._public_keys
    before = [program._cache_size() for program in compiled]
    xmkckks.share_batch(devices[1].agreed, [devices[1]._key], c1)
    devices[1].encrypt(np.zeros(1), 76, 0, 0, devices[1]._board)
    participant.Client("another", devices[0].agreed)
    assert [program._cache_size() for program in compiled] == before


def test_a_broadcast_key_is_taken_in_one_spelling_only(params, make_clients):
    device, ring = make_clients(params)[0], params.ring
    twisted = device._board.copy()
    twisted[1, 3] += ring.primes[1]
    for key in (twisted, device._board.astype(np.int64), device._board[:, ::2]):
        with pytest.raises(InputError, match="aggregated key must be uint32 residues"):
            device.encrypt(np.ones(1), 76, 0, 0, key)
