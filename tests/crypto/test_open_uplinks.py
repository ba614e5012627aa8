"""`single-key` and `lifted` as uplinks of the round: they decode as predicted and say aloud what they lack."""

import contextlib
import dataclasses
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pages import ROOT, blocks
from test_uplink import COARSE, FADING, ROUNDS, N, P, links, real_trace, train

from otafl import systems
from otafl.core.errors import InputError
from otafl.core.plan import Context, Deployment, Message
from otafl.core.uplink import ANALOG
from otafl.crypto import budget, modes, randomness, realchannel, scaling, simulation, unreduced, uplink, xmkckks
from otafl.crypto import ring as rings
from otafl.crypto.uplink import Job
from otafl.reports import write_report
from otafl.systems.eezofl.policy import Config

pytestmark = pytest.mark.filterwarnings("ignore::otafl.crypto.modes.InsecureModeWarning")
OPEN = ["single-key", "lifted"]
SAID = {"single-key": "NO SECRECY AMONG CLIENTS", "lifted": "NO SECRECY in mode 'lifted'"}


def one_round(job, x, seed=9):
    """The uplink's own path: (link, total, decoded values, refused)."""
    made = uplink.make(job)
    link = jax.tree.map(lambda leaf: leaf[0], links(made, real_trace(1, seed=2))[0])
    with jax.enable_x64(True):
        everybody = np.arange(N), np.ones(N, bool), np.ones(N, np.float32)

        @jax.jit
        def heard(x, link, key):
            return made.decode(made.combine(link, *everybody, x), link, key)

        values, refused = heard(x, link, jax.random.key(seed))
    return link, np.asarray(values), bool(refused)


def draws_of(job, phases, seed=9):
    with jax.enable_x64(True):
        draws = jax.jit(lambda key: simulation.draws(job.computed, N, phases, jax.random.split(key)[0]))
        return jax.device_get(draws(jax.random.key(seed)))


def test_single_key_opens_every_ciphertext_formed_on_its_own():
    """Each device encrypts alone under the one key; the weighted sum, opened by its holder, is what is decoded."""
    job = Job(dataclasses.replace(COARSE, scale_bits=40), FADING, "single-key", seed=5)
    p, keys, x = job.parameters, uplink.simulation_keys(job), np.random.default_rng(3).normal(size=(N, P))
    assert keys.s.shape == (1, 64)  # one key in all
    link, values, refused = one_round(job, x)
    draw = draws_of(job, ("c0", "c1"))
    agreed = xmkckks.Setup(p, b"", np.zeros(0), keys.a_hat, b"", True)
    m = scaling.occupied(p, x * np.asarray(link.extra.prescale)[:, None], p.scale_bits)
    c0, c1 = xmkckks.encrypt_batch(agreed, keys.b[0], xmkckks.Ephemeral(draw.v, draw.e0, draw.e1), m)
    air = modes.Air(p.ring, dict.fromkeys(("c0", "c1"), np.asarray(link.extra.weights)),
                    {"c0": draw.w_c0, "c1": draw.w_c1})  # fmt: skip
    with jax.enable_x64(True):
        secret = rings.small_residues(p.ring, keys.s[0])
        opening = jax.jit(rings.multiply, static_argnums=0)(p.ring, secret, air("c1", c1))
    received = xmkckks.reconstruct(p.ring, air("c0", c0), np.asarray(opening))
    opened = scaling.decode(p, received, p.f + p.scale_bits)
    np.testing.assert_array_equal(values, np.asarray(opened.values, np.float32))
    assert not refused


def test_lifted_is_the_protocol_over_python_integers():
    """Nothing reduced, every product of big integers exact: the same scalars to the last bit."""
    job = Job(dataclasses.replace(COARSE, scale_bits=30), FADING, "lifted", seed=5)
    keys, ring, lift = uplink.simulation_keys(job), job.computed.ring, 2**unreduced.REAL_BITS
    x = np.random.default_rng(3).normal(size=(N, P))
    link, values, refused = one_round(job, x)
    draw = draws_of(job, modes.PHASES)

    def whole(residues):
        return np.array(rings.integers(ring, residues), dtype=object)

    def times(y, z):
        return np.array(realchannel.integer_product(y.tolist(), z.tolist()), dtype=object)

    source = randomness.insecure_test_rng(5)
    a = np.array(rings.integers(COARSE.ring, randomness.uniform(source, COARSE.ring)), dtype=object)
    s, H = keys.s.astype(object), whole(np.asarray(link.extra.weights))[:, 0]
    b = np.stack([whole(b_i) for b_i in keys.b])
    for s_i, b_i in zip(s, b):
        assert max(abs(b_i + times(s_i, a))) <= 20  # the error alone: nothing was reduced mod q
    v, e0, e1 = (part.astype(object) for part in (draw.v, draw.e0, draw.e1))
    m = np.zeros((N, 64), dtype=object)
    scaled = x * np.asarray(link.extra.prescale)[:, None] * 2.0**30
    m[:, :P], m[:, 32 : 32 + P] = np.rint(scaled).astype(int), np.rint(scaled / 1024).astype(int)
    key = H @ b + whole(draw.w_key)
    c0 = sum(h_i * (times(v_i, key) + lift * (m_i + e_i)) for h_i, v_i, m_i, e_i in zip(H, v, m, e0))
    c1 = sum(h_i * (times(v_i, a) + e_i) for h_i, v_i, e_i in zip(H, v, e1)) + whole(draw.w_c1)
    shares = sum(h_i * (times(s_i, c1) + lift * whole(e_i)) for h_i, s_i, e_i in zip(H, s, draw.e_star))
    opened = c0 + shares + lift * (whole(draw.w_c0) + whole(draw.w_share))
    assert max(abs(c1)) > 100 * COARSE.ring.q  # symbols far beyond q went out
    np.testing.assert_array_equal(values, [np.float32(int(total) / (lift * lift << 30)) for total in opened[:P]])
    assert not refused


@pytest.mark.slow  # three trainings each; one round of each mode is exact above, its noise is measured below
@pytest.mark.parametrize("mode", OPEN)
def test_training_differs_from_plain_by_the_predicted_noise(mode):
    """Rms over coordinates against eta sqrt(sum tau^2 / P), tau from the budget given the gains."""
    trace = real_trace(ROUNDS)
    coarse = Job(dataclasses.replace(COARSE, scale_bits=20), FADING, mode)
    exact = trace._replace(gain=uplink.effective_gains(coarse, trace.gain.real) + 0j)
    reference = train(ANALOG, exact)[0]
    theta, record = train(uplink.make(coarse), trace)
    tau = np.asarray(budget.analytic_noise_std(exact.gain.real, coarse.parameters, mode))
    predicted = 0.05 * np.sqrt(np.sum(tau**2) / P)
    assert not np.any(record.refused)
    assert 0.3 * predicted < np.sqrt(np.mean((theta - reference) ** 2)) < 3 * predicted and predicted > 1e-6
    fine, record = train(uplink.make(Job(dataclasses.replace(COARSE, scale_bits=60), FADING, mode)), trace)
    assert not np.any(record.refused)
    np.testing.assert_allclose(fine, reference, atol=1e-6)


@pytest.mark.parametrize("mode", OPEN)
def test_noise_has_the_budgets_variance(mode):
    """600 rounds with fresh keys and gains: mean square of error / tau within 4 standard errors of 1."""
    p, count = dataclasses.replace(COARSE, P=1, sigma_phi=40.0), 600
    made = uplink.make(job := Job(p, FADING, mode))
    link, trace = links(made, real_trace(count, seed=4))
    many = [uplink.simulation_keys(dataclasses.replace(job, seed=seed)) for seed in range(count)]
    keys = jax.tree.map(lambda *leaves: np.stack(leaves), *many)

    def one(keys, link, key):
        zero = jnp.zeros((job.computed.ring.limbs, 64), jnp.uint32)
        return uplink._decode(job, keys)(zero, link, key)[0][0]

    with jax.enable_x64(True):
        rows = keys, link, jax.random.split(jax.random.key(0), count)
        errors = np.asarray(jax.jit(lambda *r: jax.lax.map(lambda row: one(*row), r))(*rows), float)
    ratio = (errors / np.asarray(budget.analytic_noise_std(trace.gain.real, p, mode))) ** 2
    assert abs(np.mean(ratio) - 1) < 4 * np.std(ratio) / np.sqrt(count)


def test_real_gains_are_kept_in_lifted_mode():
    h = real_trace(50).gain.real
    np.testing.assert_allclose(uplink.effective_gains(Job(COARSE, FADING, "lifted"), h), h, rtol=0, atol=2.0**-53)


def test_a_wrong_key_is_still_noticed_in_both():
    """The empty coefficients tell, as in the sound modes."""
    for mode in OPEN:
        job = Job(dataclasses.replace(COARSE, scale_bits=40), FADING, mode)
        made, keys = uplink.make(job), uplink.simulation_keys(job)
        link = jax.tree.map(lambda leaf: leaf[0], links(made, real_trace(1))[0])
        wrong = keys._replace(s=-keys.s)
        with jax.enable_x64(True):
            zero = jnp.zeros((job.computed.ring.limbs, 64), jnp.uint32)
            values, refused = jax.jit(uplink._decode(job, wrong))(zero, link, jax.random.key(0))
        assert bool(refused) and not np.any(values), mode


def test_lifted_public_keys_give_the_secret_keys():
    """What the alarm says: a and b_i as they are sent, one FFT, every secret."""
    job = Job(COARSE, FADING, "lifted", seed=5)
    keys, ring = uplink.simulation_keys(job), job.computed.ring
    source = randomness.insecure_test_rng(5)
    a = rings.integers(COARSE.ring, randomness.uniform(source, COARSE.ring))
    for b, s in zip(keys.b, keys.s):
        np.testing.assert_array_equal(np.rint(realchannel.divide(rings.integers(ring, b), a)), s)


@pytest.mark.parametrize("mode", OPEN)
def test_the_alarm_is_a_warning_a_field_and_the_first_remark(mode):
    with pytest.warns(modes.InsecureModeWarning, match=SAID[mode]):
        made = uplink.make(Job(COARSE, FADING, mode))
    assert made.alarm.startswith(SAID[mode]) and made.remarks[0] == made.alarm
    assert all(not uplink.make(Job(COARSE, FADING, sound)).alarm for sound in ("fixed-point", "digital", "hybrid"))


@pytest.mark.parametrize("mode", OPEN)
def test_privacy_noise_is_refused_where_single_scalars_are_open(mode):
    site = Deployment(np.full(N, 1e4), 1.0, 1.0, np.full(N, 1 / N), 1)
    message = Message(1, 10.0, np.full(N, 100.0), np.full(N, 20.0), np.ones(N), "client", "replace")
    with pytest.raises(InputError, match="single scalars are open"):
        systems.make("eezofl", Config(mode=mode, dp_noise=1.0), site, message, Context(rounds=2, seed=1))
    remarks = systems.make("eezofl", Config(mode=mode), site, message, Context(rounds=2, seed=1)).uplink.remarks
    assert not any("hides the key-dependent part" in line for line in remarks)


def test_a_run_says_it_aloud_on_the_terminal_the_card_and_the_page(tmp_path, monkeypatch, capsys):
    """The experiment that the documentation shows."""
    from otafl import cli

    shown = next(block.code for block in blocks(ROOT / "docs/systems/eezofl.md") if block.title == "modes.toml")
    (tmp_path / "modes.toml").write_text(shown, encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["otafl", "run", str(tmp_path / "modes.toml"), "--out", str(tmp_path / "modes")])
    with contextlib.suppress(SystemExit):  # whether it worked shows in what it leaves
        cli.main()
    said = capsys.readouterr()
    write_report([tmp_path / "modes"])
    page = (tmp_path / "modes" / "report.html").read_text(encoding="utf-8")
    assert "NO SECRECY" in " ".join(said.err.split())
    for mode in OPEN:
        place = tmp_path / "modes" / "schemes" / mode
        first = (place / "card.md").read_text(encoding="utf-8").splitlines()[2]
        assert first.startswith(f"**{SAID[mode]}")
        assert json.loads((place / "card.json").read_text(encoding="utf-8"))["alarms"][0].startswith(SAID[mode])
        assert SAID[mode] in " ".join(said.out.split())
        assert SAID[mode].split(" in ")[0] in page
    assert "NO SECRECY" not in (tmp_path / "modes/schemes/fixed-point/card.md").read_text(encoding="utf-8")
