import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from otafl.core.errors import InputError
from otafl.core.plan import Events
from otafl.privacy import ACCOUNTANTS, Release, account, gaussian, zcdp
from otafl.privacy.by_pld import _alike

PLAIN = ["zcdp", "zcdp-optimal", "gaussian", "rdp", "pld"]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.floats(0.3, 30))
def test_tighter_accountants_are_never_above_looser_ones(make_events, seed, scale):
    z = scale * np.random.default_rng(seed).uniform(0.5, 2, (7, 3))
    eps = {name: account(name, make_events(z), 1e-5).eps for name in PLAIN}
    exact = eps["gaussian"]
    assert eps["pld"] == pytest.approx(exact)
    assert np.all(exact <= eps["zcdp-optimal"] * (1 + 1e-9))
    assert np.all(eps["zcdp-optimal"] <= eps["zcdp"] * (1 + 1e-12))
    assert np.all(eps["zcdp-optimal"] <= eps["rdp"] * (1 + 1e-9) + 1e-12) or np.any(eps["rdp"] == 0)


@pytest.mark.parametrize("name", PLAIN)
def test_clients_may_be_permuted(make_events, name):
    rng = np.random.default_rng(4)
    z, order = rng.uniform(1, 4, (5, 4)), [2, 0, 3, 1]
    assert account(name, make_events(z[:, order]), 1e-5).eps == pytest.approx(
        account(name, make_events(z), 1e-5).eps[order]
    )


@pytest.mark.parametrize("name", PLAIN)
def test_more_noise_costs_less_and_more_rounds_cost_more(make_events, name):
    z = np.random.default_rng(5).uniform(1, 4, (6, 2))
    here = account(name, make_events(z), 1e-5).eps
    assert np.all(account(name, make_events(z * 1.2), 1e-5).eps < here)
    assert np.all(account(name, make_events(z[:4]), 1e-5).eps < here)
    assert np.all(account(name, make_events(z), 1e-4).eps < here)


@pytest.mark.parametrize("name", PLAIN)
def test_a_release_counts_like_a_round(make_events, name):
    z = np.array([[2.0, 3.0], [1.5, 4.0], [2.0, 2.0]])
    release = Release("reward", sensitivity=np.array([0.25, 0.25]), noise_std=0.5)
    expected = account(name, make_events(z), 1e-5).eps
    assert account(name, make_events(z[:2]), 1e-5, releases=[release]).eps == pytest.approx(expected)


def test_published_reward_costs():
    """CARES E9: record level 1.4e-4 at n = 60000, s = 0.001; client level about 10 at p_max = 0.09, s = 0.02."""
    assert zcdp.cost(Release("reward", 1 / 60000, 0.001).square(1))[0] == pytest.approx(1.4e-4, rel=0.01)
    assert zcdp.cost(Release("reward", 0.09, 0.02).square(1))[0] == pytest.approx(10, rel=0.02)


def test_worst_is_the_maximum_and_seeds_stay_apart(make_events):
    z = np.random.default_rng(6).uniform(1, 4, (2, 5, 3))
    for name in PLAIN:
        both = account(name, make_events(z), 1e-5)
        one = account(name, make_events(z[1]), 1e-5)
        assert both.eps.shape == (2, 3)
        assert both.eps[1] == pytest.approx(one.eps)
        assert both.worst[1] == one.eps.max()
        assert both.mean[1] == pytest.approx(one.eps.mean())


def test_sampled_rounds_equal_dp_accounting(make_events):
    """rdp on integer orders at 1e-9; pld on a constant run at 1 %."""
    z, rate, rounds = 1.1, 0.05, 40
    run = make_events(np.full((rounds, 1), z), rate=rate)
    event = dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(z)), rounds
    )
    orders = [float(n) for n in range(2, 40)]
    third = dp_accounting.rdp.RdpAccountant(orders).compose(event).get_epsilon(1e-5)
    assert account("rdp", run, 1e-5, orders=orders).worst == pytest.approx(third, rel=1e-9)
    tight = PLDAccountant().compose(event).get_epsilon(1e-5)
    assert account("pld", run, 1e-5).worst == pytest.approx(tight, rel=0.01)


def test_no_amplification_is_said(make_events):
    spend = account("zcdp", make_events([[2.0]], rate=0.1), 1e-5)
    assert spend.worst == account("zcdp", make_events([[2.0]]), 1e-5).worst
    assert "charged as rate 1" in spend.notes[0]
    assert account("gaussian", make_events([[2.0]], rate=0.0), 1e-5).worst == 0


def test_many_distinct_clients_share_what_dominates_the_cheaper_ones(make_events, monkeypatch):
    z = np.random.default_rng(7).uniform(2, 3, (3, 4))
    each = account("pld", make_events(z, rate=0.1), 1e-5)
    assert np.unique(each.eps).size == 4
    monkeypatch.setattr("otafl.privacy.by_pld.MECHANISMS", 6)
    shared = account("pld", make_events(z, rate=0.1), 1e-5)
    assert "too many distinct clients: 2 of 4" in shared.notes[-1]
    dearest = np.argsort(each.eps)[2:]
    assert shared.eps[dearest] == pytest.approx(each.eps[dearest])
    assert np.all(each.eps <= shared.eps * (1 + 1e-9))
    assert shared.mean < shared.worst


@pytest.mark.parametrize("clients", [3, 40])
def test_losses_stay_below_renyi_where_rates_and_weights_run_against_each_other(clients, make_events):
    """Few records (high rate) and small weights go together; the largest of both is nobody's."""
    rate = np.geomspace(0.005, 0.3, clients)
    z = np.full((60, 1), 4.0) * np.geomspace(1, 30, clients)
    run = make_events(z, rate=rate)
    tight, loose = account("pld", run, 1e-5), account("rdp", run, 1e-5)
    assert np.all(tight.eps <= loose.eps)
    assert tight.worst < loose.worst and tight.mean < tight.worst


def test_quiet_rounds_stay_below_renyi(make_events):
    """Multipliers above 50 are not charged as 50."""
    run = make_events(np.full((3000, 1), 300.0), rate=0.9)
    assert account("pld", run, 1e-5).worst <= account("gaussian", run, 1e-5).worst
    assert account("pld", run, 1e-5).worst <= account("rdp", run, 1e-5).worst


@pytest.mark.parametrize(("delta", "adjacency", "z"), [(1e-15, "zero-out", 1.0), (1e-5, "replace", 0.7)])
def test_where_losses_are_lost_in_rounding_renyi_bounds_stand(make_events, delta, adjacency, z):
    """Replacement goes by two steps, the second at delta times e^-eps of the first."""
    run = make_events(np.full((100, 1), z), rate=0.5)
    spend = account("pld", run, delta, adjacency=adjacency)
    assert spend.worst == account("rdp", run, delta, adjacency=adjacency).worst
    assert "below the rounding of loss distributions" in spend.notes[-1]


@pytest.mark.parametrize("name", ["zcdp", "zcdp-optimal", "gaussian", "pld"])
@pytest.mark.parametrize("accounting", ["visible", "hidden"])
def test_mixtures_are_refused_by_name(make_events, name, accounting):
    with pytest.raises(InputError, match=f"'{name}' does not support accounting='{accounting}'"):
        account(name, make_events([[2.0]]), 1e-5, accounting=accounting)


def test_design_values_are_not_certified(make_events):
    run = make_events(np.full((5, 1), 2.0), send_prob=0.4)
    assert not account("rdp", run, 1e-5, accounting="visible").certified
    assert account("rdp", run, 1e-5, accounting="realised").certified


def test_no_noise_is_no_privacy(make_events):
    run = make_events([[2.0, 2.0]])._replace(receiver_var=np.zeros(1))
    for name in PLAIN:
        assert np.all(np.isinf(account(name, run, 1e-5).eps))
        assert not account(name, run, 1e-5).certified


@pytest.mark.parametrize("name", ["gaussian", "zcdp"])
def test_of_two_runs_one_of_which_has_no_noise_nothing_is_certified(name, make_events):
    both = make_events(np.full((2, 3, 1), 2.0))._replace(receiver_var=np.array([np.ones(3), np.zeros(3)]))
    spend = account(name, both, 1e-5)
    assert np.isfinite(spend.worst).tolist() == [True, False] and not spend.certified


def test_unknown_names_and_bad_values(make_events):
    assert list(ACCOUNTANTS) == PLAIN == [entry.name for entry in ACCOUNTANTS.values()]
    with pytest.raises(InputError, match="accountant='moments'"):
        account("moments", make_events([[1.0]]), 1e-5)
    with pytest.raises(InputError, match=r"delta=0\.0"):
        account("zcdp", make_events([[1.0]]), 0.0)
    for name, bad in (("sensitivity", -1.0), ("noise_std", 0.0), ("times", 0.5)):
        with pytest.raises(InputError, match=f"release 'r' {name}={bad}"):
            account("zcdp", make_events([[1.0]]), 1e-5, releases=[Release("r", 1.0, 1.0)._replace(**{name: bad})])
    with pytest.raises(InputError, match=r"release 'r' sensitivity has shape \(2,\)"):
        Release("r", [1.0, 2.0], 1.0).square(3)


def test_cap_and_conversion_of_one_accountant_are_inverse():
    additive = [entry for entry in ACCOUNTANTS.values() if entry.additive]
    assert [entry.name for entry in additive] == ["zcdp", "zcdp-optimal", "gaussian"]
    for entry in additive:
        assert entry.convert(entry.cap(3.0, 1e-5), 1e-5) == pytest.approx(3.0, rel=1e-9)


def test_exact_gaussian_composes():
    z = np.array([1.0, 2.0, 3.0])
    assert gaussian.eps_from_rho(np.sum(z**-2.0) / 2, 1e-6) == gaussian.eps(np.sqrt(np.sum(z**-2.0)), 1e-6)


def test_pld_treats_equal_devices_as_one_although_their_amplitudes_are_rounded(monkeypatch):
    """Twelve devices, two kinds, amplitudes off by a few last digits: two sequences, not one that dominates all."""
    rounds = 4
    monkeypatch.setattr("otafl.privacy.by_pld.MECHANISMS", 6 * rounds)
    rng = np.random.default_rng(0)
    kinds = np.where(np.arange(12) < 6, 1.0, 0.5)
    level = np.exp(rng.normal(-0.5, 0.3, (rounds, 1)))
    amp = level * kinds * (1 + 2e-16 * rng.integers(-4, 5, (rounds, 12)))
    ones = np.ones((rounds, 12))
    run = Events(amp, 0 * ones, ones > 0, ones, np.ones(rounds), np.ones(rounds, bool), np.full(12, 0.05), np.ones(12))
    spend = account("pld", run, 1e-5)
    assert not any("distinct clients" in note for note in spend.notes)
    assert np.unique(spend.eps).size == 2
    for kind in (0, 6):  # never below what the device alone costs
        alone = run._replace(amp=amp[:, [kind]], artificial_var=0 * ones[:, :1], possible=ones[:, :1] > 0,
                             send_prob=ones[:, :1], rate=np.full(1, 0.05), sensitivity=np.ones(1))  # fmt: skip
        exact = account("pld", alone, 1e-5).eps[0]
        assert exact * (1 - 1e-9) <= spend.eps[kind] <= exact * (1 + 1e-6)
    apart = run._replace(amp=level * np.linspace(0.5, 1, 12))
    assert any("distinct clients" in note for note in account("pld", apart, 1e-5).notes)


def test_rows_that_differ_by_rounding_share_the_larger_of_every_entry() -> None:
    up = 1 + 4e-13
    rows = np.array([[0.1, 2.0 * up, 3.0], [0.1 * up, 2.0, 3.0 * up], [0.1, 2.0, 3.0 * (1 + 1e-9)]])
    shared, where = _alike(rows)
    assert where.tolist() == [where[0], where[0], 1 - where[0]]
    assert np.all(shared[where] >= rows)


@pytest.mark.parametrize("other", [0.05, 1.0])
def test_a_client_whose_samples_are_never_drawn_costs_nothing_by_pld(other: float) -> None:
    ones = np.ones((4, 2))
    run = Events(ones, 0 * ones, ones > 0, ones, np.ones(4), np.ones(4, bool), np.array([0.0, other]), np.ones(2))
    idle, busy = account("pld", run, 1e-5).eps
    assert idle == 0 < busy
