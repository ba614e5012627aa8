"""Properties of every recipe, and each recipe's own promise."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otafl.core.errors import InputError
from otafl.tasks import partitions

BALANCED = np.repeat(np.arange(10), 60)


def make(name, y, clients, seed=0, **options):
    return partitions.make(name, y, clients, np.random.default_rng(seed), **options)


def owned(partition, client):
    return partition.rows[client, : partition.sizes[client]]


@st.composite
def cases(draw):
    """Labels in any order, a recipe, and options that fit them."""
    seed = draw(st.integers(0, 10**6))
    classes = draw(st.integers(2, 6))
    name = draw(st.sampled_from(sorted(set(partitions.PARTITIONS) - {"owner", "shared"})))
    clients = classes if name == "two-digits" else draw(st.integers(1, 7))
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.concatenate([np.arange(classes).repeat(20), rng.integers(0, classes, 30)]))
    options = {
        "iid": {},
        "sizes": {"sizes": tuple(int(n) for n in rng.integers(0, 6, clients))},
        "dirichlet": {"alpha": draw(st.sampled_from([0.1, 1.0, 100.0])), "min_size": 0},
        "labels": {"labels": draw(st.integers(1, classes))},
        "two-digits": {"per_class": draw(st.sampled_from([None, 7, 10]))},
        "shards": {"shards_per_client": draw(st.integers(1, 3))},
    }[name]
    return name, y, clients, seed, options


@given(cases())
@settings(max_examples=150, deadline=None)
def test_every_sample_at_most_once_and_all_views_agree(case):
    name, y, clients, seed, options = case
    partition = make(name, y, clients, seed, **options)
    lists = [owned(partition, client) for client in range(clients)]
    everything = np.concatenate(lists)
    assert len(np.unique(everything)) == len(everything) == partition.sizes.sum()
    for client, own in enumerate(lists):
        assert (partition.owner[own] == client).all()
        assert (np.isin(partition.rows[client], own) | (len(own) == 0)).all()  # padding is the client's own
    assert (partition.owner >= 0).sum() == len(everything)
    assert partition.rows.dtype == partition.sizes.dtype == partition.owner.dtype == np.int32
    again = make(name, y, clients, seed, **options)
    for a, b in zip(partition, again):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("name", "options"), [("iid", {}), ("dirichlet", {}), ("labels", {"labels": 3}), ("shards", {})]
)
def test_recipes_that_use_every_sample(name, options):
    assert (make(name, BALANCED, 10, **options).owner >= 0).all()


def test_iid_sizes():
    assert set(make("iid", BALANCED, 7).sizes) == {85, 86}
    assert make("iid", BALANCED, 7, per_client=11).sizes.tolist() == [11] * 7


def test_given_sizes():
    assert make("sizes", BALANCED, 3, sizes=(5, 0, 590)).sizes.tolist() == [5, 0, 590]


def test_dirichlet_shares_have_the_moments_of_dirichlet():
    """Shares of a class: mean 1/K, variance (1/K)(1 - 1/K)/(K alpha + 1); 4000 draws, 5 standard errors."""
    clients, alpha = 4, 0.5
    y = np.repeat(np.arange(4), 2000)
    shares = np.concatenate(
        [
            np.array([[(y[owned(p, k)] == c).mean() * p.sizes[k] / 2000 for k in range(clients)] for c in range(4)])
            for p in (make("dirichlet", y, clients, seed, alpha=alpha, min_size=0) for seed in range(250))
        ]
    )
    variance = (1 / clients) * (1 - 1 / clients) / (clients * alpha + 1)
    assert abs(shares.mean() - 1 / clients) < 1e-12
    first = shares[:, 0]
    assert abs(first.mean() - 1 / clients) < 5 * np.sqrt(variance / len(first))
    assert abs(first.var() - variance) < 5 * np.std((first - first.mean()) ** 2) / np.sqrt(len(first))


def test_dirichlet_leaves_no_client_below_the_least_size():
    for seed in range(20):
        assert make("dirichlet", BALANCED, 20, seed, alpha=0.3, min_size=3).sizes.min() >= 3


def test_small_alpha_concentrates_labels():
    mix = [
        partitions.label_mix(make("dirichlet", BALANCED, 10, alpha=a), BALANCED, 10).max(1).mean() for a in (0.1, 100)
    ]
    assert mix[0] > 0.5 > 0.3 > mix[1]


@pytest.mark.parametrize(("clients", "labels"), [(10, 2), (7, 3), (20, 1)])
def test_labels_per_client_holds_exactly_so_many(clients, labels):
    partition = make("labels", BALANCED, clients, labels=labels)
    assert ((partitions.label_mix(partition, BALANCED, 10) > 0).sum(1) == labels).all()


def test_two_digits_recipe():
    partition = make("two-digits", BALANCED, 10, per_class=40)
    mix = partitions.label_mix(partition, BALANCED, 10)
    expected = 0.5 * (np.eye(10) + np.roll(np.eye(10), 1, axis=1))
    np.testing.assert_array_equal(mix, expected)
    assert partition.sizes.tolist() == [40] * 10


def test_shards_are_runs_of_the_sorted_samples():
    y = np.random.default_rng(0).permutation(BALANCED)
    partition = make("shards", y, 10)
    rank = np.empty(600, int)
    rank[np.argsort(y, kind="stable")] = np.arange(600)
    for client in range(10):
        shards = np.unique(rank[owned(partition, client)] // 30, return_counts=True)
        assert shards[1].tolist() == [30, 30]


def test_label_mix_counts():
    y = np.array([0, 0, 1, 2, 1])
    partition = partitions.from_lists([np.array([0, 1, 2]), np.array([3]), np.array([], int)], 5)
    np.testing.assert_allclose(partitions.label_mix(partition, y, 3), [[2 / 3, 1 / 3, 0], [0, 0, 1], [0, 0, 0]])
    assert partition.owner.tolist() == [0, 0, 0, 1, -1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make("even", BALANCED, 3), "partition='even' must be one of"),
        (lambda: make("iid", BALANCED, 0), "num_clients=0 must be"),
        (lambda: make("iid", BALANCED, 7, per_client=100), "ask for 700 samples but there are 600"),
        (lambda: make("sizes", BALANCED, 3, sizes=(1, 2)), "must have shape"),
        (lambda: make("dirichlet", BALANCED, 3, alpha=0.0), "alpha=0.0 must be"),
        (lambda: make("dirichlet", BALANCED, 30, alpha=0.05, min_size=20), "raise alpha or lower min_size"),
        (lambda: make("labels", BALANCED, 3, labels=11), "labels=11 must lie in"),
        (lambda: make("two-digits", BALANCED, 9), "num_clients=9 must equal the number of classes"),
        (lambda: make("two-digits", BALANCED, 10, per_class=61), "per_class=61 must lie in"),
        (lambda: make("shards", BALANCED, 500), "1000 shards do not fit 600 samples"),
        (lambda: partitions.from_lists([np.array([1]), np.array([1])], 3), "already owned"),
        (lambda: partitions.from_lists([np.array([5])], 3), "outside 0..2"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_shared_samples_differ_within_a_client_and_serve_more_clients_than_samples():
    split = make("shared", BALANCED, 3000, per_client=9)
    assert split.rows.shape == (3000, 9) and set(split.sizes) == {9} and (split.owner == -1).all()
    assert all(len(set(row)) == 9 for row in split.rows.tolist())
    counts = np.bincount(split.rows.ravel(), minlength=600)
    assert np.abs(counts - 45).max() < 6 * np.sqrt(45)  # uniform: six standard deviations of a Poisson count
    naive = np.stack([np.bincount(BALANCED[row], minlength=10) / 9 for row in split.rows])
    np.testing.assert_array_equal(partitions.label_mix(split, BALANCED, 10), naive)


def test_shared_samples_are_refused_where_a_client_would_want_most_of_them():
    with pytest.raises(InputError, match="per_client=25 must be at most the root of the 600 samples"):
        make("shared", BALANCED, 3, per_client=25)
