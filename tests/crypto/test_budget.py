"""Closed forms against Monte Carlo, against each other, and against the numbers they restate."""

import dataclasses

import jax
import numpy as np
import pytest

from otafl.core.errors import Infeasible, InputError
from otafl.crypto import budget, choosing, feasibility
from otafl.crypto.parameters import Parameters, security_level
from otafl.crypto.ring import RING_4096, RING_8192, toy_ring
from otafl.systems.eezofl import convergence

TEN = budget.fading(np.ones(10), 2 * np.ones(10))
P4096 = Parameters(RING_4096, f=16, scale_bits=40, sigma_phi=3.2)


@pytest.mark.parametrize("sigma", [1.0, 10.0])
def test_fourth_moment_sum_by_monte_carlo(sigma, rng):
    """Within 4 standard errors, 400,000 draws of N=10."""
    channel = budget.fading(np.ones(10), (1 + sigma**2) * np.ones(10))
    draws = (rng.normal(1, sigma, (400_000, 10)) ** 2).sum(1) ** 2
    assert abs(draws.mean() - channel.X) < 4 * draws.std() / np.sqrt(draws.size)


def test_average_variance_is_the_mean_of_the_conditional_one(rng):
    Q = (rng.normal(1, 1, (400_000, 10)) ** 2).sum(1)
    for mode in ("fixed-point", "hybrid", "single-key"):
        given = budget.variance_given(P4096, Q, 10, mode)
        spread = 4 * given.std() / np.sqrt(Q.size)
        assert abs(given.mean() - budget.average_variance(P4096, TEN, mode)) < spread


def test_split_blocks_reduce_to_one_block():
    assert budget.variance_given(P4096, 20.0, 10, Q_keys=20.0) == budget.variance_given(P4096, 20.0, 10)


def test_conditional_noise_runs_under_jit():
    h = np.linspace(0.5, 1.5, 10)
    with jax.enable_x64(True):
        inside = jax.jit(lambda g: budget.analytic_noise_std(g, P4096))(h)
    assert float(inside) == pytest.approx(float(budget.analytic_noise_std(h, P4096)), rel=1e-14, abs=0)


@pytest.mark.parametrize("mode", ["fixed-point", "hybrid", "digital"])
def test_smudging_drowns_the_residue_by_its_bits(mode):
    flooded = choosing.flooded(P4096, TEN, 40, mode)
    quiet = budget.average_variance(P4096, TEN, mode, sigma_phi=0.0)
    ratio = budget.average_variance(flooded, TEN, mode) / quiet
    assert 0.5 * np.log2(ratio) == pytest.approx(40, abs=1e-6)


@pytest.mark.parametrize(
    ("mode", "floor", "grid"), [("fixed-point", 0.1, 16), ("hybrid", 1.0, 16), ("digital", 1.0, 0)]
)
def test_one_honest_device_at_the_floor_drowns_the_residue_alone(mode, floor, grid):
    """Its share noise arrives times its gain, or times 1 on a digital link, on a grid of 2^-f."""
    alone = budget.smudging_sigma(P4096, TEN, 40, mode, h_floor=0.1) * floor / 2.0**grid
    residue = np.sqrt(budget.average_variance(P4096, TEN, mode, sigma_phi=0.0)) * P4096.Lambda
    assert np.log2(alone / residue) == pytest.approx(40, abs=1e-6)


@pytest.mark.parametrize(
    ("sigma", "ring", "bits", "most"),
    [
        (10, RING_4096, 20, 26),
        (10, RING_4096, 40, 16),
        (10, RING_4096, 64, 4),
        (10, RING_8192, 40, 70),
        (1, RING_8192, 64, 61),
    ],
)
def test_planned_grid_matches_the_flooding_table(sigma, ring, bits, most):
    channel = budget.fading(np.ones(10), (1 + sigma**2) * np.ones(10))
    choice = choosing.plan_parameters(Parameters(ring, guard=False), channel, bits, 0.01)
    assert choice.parameters.f == most
    assert choice.decoded_std <= 0.01
    assert choice.headroom.least >= 0


def test_plans_are_tight():
    """One more fractional bit breaks the headroom; one bit less of scale breaks tau."""
    choice = choosing.plan_parameters(P4096, TEN, 40, 0.01)
    p = choice.parameters
    with pytest.raises(Infeasible, match="lower f"):
        choosing.plan_parameters(P4096, TEN, 40, 0.01, f=p.f + 1)
    coarser = choosing.flooded(dataclasses.replace(p, scale_bits=p.scale_bits - 1), TEN, 40, "fixed-point")
    assert np.sqrt(budget.average_variance(coarser, TEN)) > 0.01


@pytest.mark.parametrize(
    ("changes", "wanted", "ways"),
    [
        ({}, {"lambda_s": 40.0, "tau": 0.01, "f": 30}, {"f", "smudging_bits"}),
        ({"Mmax": 2.0**50}, {"lambda_s": 40.0, "tau": 0.01, "f": None}, {"Mmax", "smudging_bits", "tau"}),
        ({"Mmax": 1e-3}, {"lambda_s": 80.5, "tau": 0.01, "f": None}, {"smudging_bits", "guard"}),
    ],
)
def test_each_relaxation_alone_makes_a_plan_and_one_step_less_does_not(changes, wanted, ways):
    p = dataclasses.replace(P4096, **changes)

    def plan(**eased):
        own = {"Mmax": p.Mmax, "guard": p.guard} | wanted | eased
        ring = dataclasses.replace(p, Mmax=own.pop("Mmax"), guard=bool(own.pop("guard")))
        return choosing.plan_parameters(ring, TEN, **own)

    with pytest.raises(Infeasible) as refusal:
        plan()
    relax = refusal.value.report["relax"]
    assert set(relax) == ways
    for name, value in relax.items():
        key = {"smudging_bits": "lambda_s"}.get(name, name)
        less = {"f": value + 1, "Mmax": 2 * value, "smudging_bits": value + 1, "tau": value / 2, "guard": True}[name]
        assert plan(**{key: int(value) if name == "f" else value}).headroom.least >= 0
        with pytest.raises(Infeasible):
            plan(**{key: int(less) if name == "f" else less})


def test_snr_target_raises_the_scale():
    free = choosing.plan_parameters(P4096, TEN, 20, 0.01)
    bound = choosing.plan_parameters(P4096, TEN, 20, 0.01, snr_db_max=400.0)
    assert bound.snr_db <= 400 < free.snr_db
    assert bound.parameters.scale_bits > free.parameters.scale_bits


def test_grid_tolerance_inverts_its_error_formula():
    delta = feasibility.grid_tolerance(P4096, TEN, 0.01)
    error = delta * 2.0 ** (P4096.log2_q - 40) * np.sqrt(5 / 3 * 10 * 4096 * 20 / 12)
    assert error == pytest.approx(0.01)


@pytest.mark.parametrize("secret", ["sign", "ternary"])
@pytest.mark.parametrize("mode", ["fixed-point", "hybrid", "single-key", "lifted", "digital"])
def test_air_gain_is_what_the_variance_owes_to_receiver_noise(mode, secret):
    p = dataclasses.replace(P4096, secret=secret)
    quiet, loud = (dataclasses.replace(p, sigma_w=level) for level in (0.0, 1.0))
    owed = budget.average_variance(loud, TEN, mode) - budget.average_variance(quiet, TEN, mode)
    assert budget.air_gain(p, TEN, mode) == pytest.approx(owed * p.Lambda**2, rel=1e-4, abs=0)


def test_snr_and_grid_tolerance_by_mode_and_secret():
    """By hand, EEZOFL 7 and 8: hybrid keys are digital, 10 of them; ternary ones have two thirds of the variance."""
    closed = feasibility.accepted_snr_db(109, 40, 0.01, 4096, 20.0)
    gains = {"fixed-point": 5 / 3 * 4096 * 20, "hybrid": 4096 * 10 + 1}
    for mode, gain in gains.items():
        told = feasibility.accepted_snr_db(109, 40, 0.01, 4096, 20.0, budget.air_gain(P4096, TEN, mode))
        assert told - closed == pytest.approx(10 * np.log10(gain / gains["fixed-point"]), abs=1e-9)
        delta = 0.01 * 2.0 ** (40 - P4096.log2_q) / np.sqrt(gain * 10 / 12)
        assert feasibility.grid_tolerance(P4096, TEN, 0.01, mode) == pytest.approx(delta, rel=1e-12, abs=0)
    ternary = dataclasses.replace(P4096, secret="ternary")
    shrunk = feasibility.grid_tolerance(P4096, TEN, 0.01) / feasibility.grid_tolerance(ternary, TEN, 0.01)
    assert shrunk == pytest.approx(np.sqrt(4 / 5))
    assert feasibility.grid_tolerance(P4096, TEN, 0.01, "digital") == np.inf


@pytest.mark.parametrize("secret", ["sign", "ternary"])
@pytest.mark.parametrize("mode", ["fixed-point", "hybrid"])
def test_a_channel_off_the_grid_costs_what_its_tolerance_says(mode, secret, rng):
    """Keys, ciphertexts and shares in whole numbers, nothing but the channel off its grid; within 5 %."""
    n, N, f, fine, delta, rounds = 16, 3, 8, 64, 1e-9, 400
    p = Parameters(toy_ring(n, 4), f=f, scale_bits=0, sigma_phi=3.2, secret=secret, guard=False, allow_insecure=True)
    q, laws = p.ring.q, {"sign": [-1, 1], "ternary": [-1, 0, 1]}

    def times(x, y):
        full = np.zeros(2 * n, object)
        for i, one in enumerate(x):
            full[i : i + n] += one * y
        return full[:n] - full[n:]

    def reduced(x):
        return (x + q // 2) % q - q // 2

    def polynomials(law):
        return rng.choice(law, (N, n)).astype(object)

    def heard(H, off, sent):
        """On the server's scale 2^f, rounded; `off` has `fine` bits more."""
        return H @ sent + (off @ sent >> fine)

    errors, squares = [], []
    for _ in range(rounds):
        H = np.array([round(g * 2**f) for g in rng.normal(1, 1, N)], object)
        off = np.array([round(g * 2.0 ** (f + fine)) for g in rng.normal(0, delta, N)], object)
        s, v = polynomials(laws[secret]), polynomials([-1, 0, 1])
        a = np.array([int.from_bytes(rng.bytes(32), "big") % q for _ in range(n)], object)
        b = np.array([reduced(-times(one, a)) for one in s])
        B, keys = (heard(H, off, b), H @ s) if mode == "fixed-point" else (b.sum(0), s.sum(0))
        c0, c1 = (np.array([reduced(times(one, y)) for one in v]) for y in (reduced(B), a))
        error = reduced(heard(H, off, c0) + times(keys, reduced(heard(H, off, c1))))
        errors.append(error.astype(float) / 2.0 ** budget.decode_bits(p, mode))
        squares.append((H / 2.0**f) ** 2)
    channel = budget.fading(np.full(N, 0.1), np.mean(squares, 0).astype(float))  # of the gains as drawn
    tau = np.sqrt(np.mean(np.square(errors)))
    assert feasibility.grid_tolerance(p, channel, tau, mode) == pytest.approx(delta, rel=0.05)


def test_a_floor_for_one_honest_device_is_planned_with():
    """The job that reaches tau although one device smudges alone: one bit of Lambda less does not."""
    made = choosing.plan_parameters(P4096, TEN, 40, 0.01, h_floor=0.5)
    p = made.parameters
    assert made.decoded_std <= 0.01 and made.headroom.least >= 0
    assert p.sigma_phi == budget.smudging_sigma(p, TEN, 40, h_floor=0.5)
    less = choosing.flooded(dataclasses.replace(p, scale_bits=p.scale_bits - 1), TEN, 40, "fixed-point", 0.5)
    assert np.sqrt(budget.average_variance(less, TEN)) > 0.01


def test_short_shares_send_less():
    whole, brief = (
        feasibility.traffic(P4096, 1e6),
        feasibility.traffic(dataclasses.replace(P4096, short_shares=True), 1e6),
    )
    assert whole.symbols == 4 * 4096
    assert brief.symbols == 2 * 4096 + 2 * (2 + 32)


@pytest.mark.parametrize(
    ("mode", "up", "down"), [("fixed-point", 4, 2), ("hybrid", 3, 1), ("digital", 3, 1), ("single-key", 2, 0)]
)
def test_a_key_of_the_whole_job_is_sent_once_and_a_shared_one_needs_no_share(mode, up, down):
    """b_i, c0, c1 and the share up; B and C1 down."""
    sent = feasibility.traffic(P4096, None, mode)
    assert (sent.uplink_bits, sent.downlink_bits) == (up * 4096 * 109, down * 4096 * 109)


@pytest.mark.parametrize("mode", ["fixed-point", "hybrid", "digital"])
def test_second_moments_given_the_channel_by_direct_simulation(mode, rng):
    """Draw every noise polynomial as real numbers and multiply them out: an oracle without ring or residues."""
    n, N, rounds, f = 8, 3, 4000, 2
    p = Parameters(
        toy_ring(8, 4), f=f, scale_bits=0, sigma_phi=9.0, sigma_e=2.0, sigma_w=0.7, guard=False, allow_insecure=True
    )
    h = np.array([0.5, -1.25, 2.0])
    gains, keys = (h, h) if mode == "fixed-point" else (np.ones(3) if mode == "digital" else h, np.ones(3))
    air = 0.0 if mode == "digital" else p.sigma_w
    air_keys = p.sigma_w if mode == "fixed-point" else 0.0

    def negacyclic(x, y):
        full = np.array([np.convolve(a, b) for a, b in zip(x, y)])
        full = np.pad(full, ((0, 0), (0, 1)))
        return full[:, :n] - full[:, n:]

    def polynomials(std):
        return rng.normal(0, std, (rounds, N, n))

    error = np.sqrt(p.error_var)
    s = rng.choice([-1.0, 1.0], (rounds, N, n))
    v = rng.integers(-1, 2, (rounds, N, n)).astype(float)
    combine = lambda w, x: np.einsum("i,rij->rj", w, x)  # noqa: E731
    noise = lambda std: rng.normal(0, 1, (rounds, n)) * std  # noqa: E731
    small = 2.0**-f if mode != "digital" else 1.0
    linear = small if mode == "fixed-point" else 1.0  # in hybrid the ciphertext errors meet the message's scale
    total = negacyclic(combine(gains, v), combine(keys, polynomials(error)) + noise(air_keys))
    total += negacyclic(combine(keys, s), combine(gains, polynomials(error)) + noise(air))
    total += linear * (combine(gains, polynomials(error)) + noise(air) + noise(air_keys))
    total += small * combine(keys, polynomials(p.sigma_phi))
    per_round = (total**2).mean(1)
    predicted = budget.variance_given(p, (h**2).sum(), N, mode)
    assert abs(per_round.mean() - predicted) < 4 * per_round.std() / np.sqrt(rounds)


def test_theorem_constants_of_the_published_task():
    constants = convergence.theorem2(
        TEN, 2.6712e-17, 785, 0.05, 0.05, L_f=17.21, L_g=99.31, b=9.931, gap=10 * np.log(2)
    )
    assert pytest.approx(1.29e10, rel=0.01) == constants.R
    assert constants.bound(400) == pytest.approx(6.5e8, rel=0.01)
    assert constants.rho == pytest.approx(1.04e-12, rel=0.01, abs=0)
    with pytest.raises(InputError, match="noise floor"):
        constants.rounds_needed(1e-12, 0.5)
    assert constants.rounds_needed(2.0, 0.5) == pytest.approx(constants.R**2, rel=1e-9)


def test_schedules_say_which_condition_fails():
    assert [k for k, ok in convergence.Schedule().check().items() if not ok] == ["sum eta^2 < inf"]
    assert all(convergence.Schedule(eta_power=0.6, gamma_power=0.25).check().values())
    with pytest.raises(InputError, match="K=0"):
        convergence.Schedule().step(0)


def test_security_table():
    assert [security_level(n, b) for n, b in ((4096, 109), (4096, 110), (8192, 218), (8192, 118), (512, 10))] == [
        128, 0, 128, 256, 0,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"f": -1}, "f=-1"),
        ({"sigma_phi": 0.0}, "sigma_phi"),
        ({"sigma_e": -1.0}, "sigma_e"),
        ({"secret": "gauss"}, "secret"),
        ({"P": 2040}, "guard=False"),
        ({"ring": toy_ring(64)}, "below 128 bits"),
    ],
)
def test_bad_parameters_are_refused(changes, words):
    with pytest.raises(InputError, match=words):
        dataclasses.replace(P4096, **changes)


@pytest.mark.parametrize(
    ("mu", "Omega", "fourth", "words"),
    [
        ([0.0], [1.0], None, "mu"),
        ([1.0], [0.5], None, "mu\\^2"),
        ([1.0], [2.0], [1.0], "h\\^4"),
        ([1.0], [2.0, 1.0], None, "shape"),
    ],
)
def test_bad_fading_is_refused(mu, Omega, fourth, words):
    with pytest.raises(InputError, match=words):
        budget.fading(mu, Omega, fourth)


def test_headroom_is_what_q_leaves_above_message_failure_check_and_guard():
    """q/2 above the largest message and 8 std; q/8 above 32 std; q/4 above 32 std of the guard copy, 2^10 as noisy."""
    p = dataclasses.replace(P4096, Mmax=3.0)
    std, unit = np.sqrt(budget.average_variance(p, TEN)), 2.0 ** (2 * 16 + 40)
    room, q = budget.headroom(p, TEN), float(p.ring.q)
    assert 2**room.message == pytest.approx(q / 2 / (unit * (3.0 + 8 * std)))
    assert 2**room.failure_check == pytest.approx(q / 8 / (unit * 32 * std))
    assert 2**room.guard == pytest.approx(q / 4 / (unit * 32 * std * 2**10))
    assert budget.headroom(dataclasses.replace(p, guard=False), TEN).guard == np.inf


def test_every_condition_on_the_ring_is_held():
    loud = dataclasses.replace(P4096, sigma_phi=3.2 * 2.0**60)
    while budget.headroom(loud, TEN).guard >= 0:
        loud = dataclasses.replace(loud, sigma_phi=2 * loud.sigma_phi)
    room = budget.headroom(loud, TEN)
    assert room.message >= 0 and room.failure_check >= 0 and room.binding == "guard"
    with pytest.raises(InputError, match="guard"):
        budget.check_headroom(loud, TEN)
    budget.check_headroom(dataclasses.replace(loud, guard=False), TEN)
    for floor in (0.0, -1.0):
        with pytest.raises(InputError, match="h_floor"):
            budget.smudging_sigma(P4096, TEN, 40, h_floor=floor)
