"""Which samples per-sample clients draw: binomial batches, at the rate that is charged, whole or refused."""

from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import small
from counted import BATCH, SIZES, counting_model, counts_of
from otafl.clients.per_sample import PerSample, drawn_rate, per_sample
from otafl.clients.per_sample_promise import Rooms, poisson_rate
from otafl.core.errors import InputError


def test_batch_sizes_are_binomial_and_independent():
    rounds = 4000
    counts, overflow = counts_of(rounds, BATCH)
    assert not overflow.any()
    for client, size in enumerate(SIZES):
        law = stats.binom(size, BATCH / size)
        low, high = int(law.ppf(0.01)), int(law.ppf(0.99))
        cells = np.clip(counts[:, client], low, high)
        seen = np.bincount(cells - low, minlength=high - low + 1)
        middle = law.pmf(np.arange(low + 1, high))
        expected = rounds * np.array([law.cdf(low), *middle, law.sf(high - 1)])
        assert stats.chisquare(seen, expected).pvalue > 1e-6, client
    correlation = np.corrcoef(counts.T)[np.triu_indices(4, 1)]
    assert np.abs(correlation).max() < 5 / np.sqrt(rounds)


def test_rates_that_are_charged_are_the_rates_that_are_drawn():
    """Declared on the generator's grid and never below batch / size."""
    sizes = np.array([7, 60, 601, 6000, 59_999])
    rate = poisson_rate(PerSample(batch=5), sizes)
    assert np.all(rate >= 5 / sizes) and np.all(rate - 5 / sizes <= 2.0**-23)
    assert per_sample(PerSample(batch=5), counting_model()).promise(sizes).rate.tolist() == rate.tolist()
    many = np.concatenate([np.arange(64, 20_000), np.arange(2**20 - 5000, 2**20 + 5000), 60 * 2 ** np.arange(1, 25)])
    for config in (PerSample(batch=60), PerSample(batch=64), PerSample(batch=0)):
        drawn = jax.jit(lambda sizes, config=config: drawn_rate(config, sizes))(jnp.asarray(many, jnp.int32))
        np.testing.assert_array_equal(np.asarray(drawn) * 2.0**-23, poisson_rate(config, many))
    constant = PerSample(rate=0.3, divisor=5.0, size_max=100)
    assert drawn_rate(constant, jnp.array([7])) * 2.0**-23 == poisson_rate(constant, np.array([7]))


def test_overflow_is_flagged_and_never_truncated_silently():
    """With hardly any room many rounds do not fit; every round without a flag is complete."""
    rounds = 400
    whole, never = counts_of(rounds, BATCH)
    tight, overflow = counts_of(rounds, BATCH, overflow_tail=0.99)
    assert not never.any() and 20 < overflow.sum() < rounds
    complete = np.all(tight == whole, axis=1)
    assert np.all(complete | overflow)
    assert np.any(~complete)  # so that the line above could have failed


def test_a_run_stops_where_a_batch_does_not_fit(tmp_path, monkeypatch):
    from otafl.core.errors import PrivacyViolation
    from otafl.runs import runner
    from otafl.runs.schema import Experiment

    experiment = Experiment.model_validate({
        "rounds": 20, "seeds": 1, "evaluate_every": 20, "channel": "adascale",
        "task": {"clients": 4, "partition": {"kind": "iid"}, "model": {"name": "logistic"}},
        "radio": {"power_dbm": 23.0, "noise_dbm": -90.0},
        "clients": {"kind": "per-sample", "batch": 10},
        "privacy": {"accountant": "rdp"},
        "scheme": [{"name": "adascale-equal", "nu": 0.1}],
    })  # fmt: skip
    few = Rooms(99, 38, 12, 38, 12, 0, 10.0)
    monkeypatch.setattr(import_module("otafl.clients.per_sample"), "rooms", lambda *shape: few)
    with pytest.raises(PrivacyViolation, match="Poisson batch did not fit"):
        runner.start(experiment, tmp_path / "run")


def test_a_batch_larger_than_a_client_is_refused_under_poisson():
    with pytest.raises(InputError, match="client 0 has 20"):
        per_sample(PerSample(batch=30), small.model()).promise(SIZES)
