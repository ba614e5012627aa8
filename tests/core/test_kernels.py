"""Rounds as a GPU runs them, with its kernels interpreted here, against the plain rounds."""

import jax
import numpy as np
import pytest

import small
from otafl import systems
from otafl.clients import Gradient, PerSample, gradient, per_sample
from otafl.core import kernels
from otafl.systems.ideal.fedavg import Config as FedAvg

KINDS = {
    "whole": lambda model: gradient(Gradient(batch=16), model),
    "fixed": lambda model: per_sample(PerSample(batch=16, sampling="without-replacement"), model),
    "poisson": lambda model: per_sample(PerSample(batch=8), model),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_rounds_by_kernels_are_the_plain_ones(name, monkeypatch):
    found = []
    for by_kernels in (False, True):
        small.engine_of.cache_clear()
        monkeypatch.setattr(kernels, "compiled_here", lambda answer=by_kernels: answer)
        monkeypatch.setattr("otafl.core.engine.most_ahead", lambda ahead=by_kernels: 2**20 * ahead)
        kind, site = KINDS[name](small.model()), small.deployment()
        promise = kind.promise(np.array([20, 50, 60, 70]))
        policy = systems.make("fedavg", FedAvg(), site, promise, small.CONTEXT)
        found.append(small.train(kind, [policy, policy], [small.trace(3, 0), small.trace(3, 1)], site, [4, 5])[:2])
    small.engine_of.cache_clear()
    (plain, plain_record), (ours, record) = found
    for one, other in zip(jax.tree.leaves(plain.params), jax.tree.leaves(ours.params)):
        np.testing.assert_allclose(one, other, atol=1e-6)
    np.testing.assert_allclose(plain_record.stats.norm, record.stats.norm, rtol=1e-5)
    assert np.asarray(record.stats.norm).std() > 0


@pytest.mark.parametrize(
    ("capability", "has"),
    [("9.0", True), ("8.6", True), ("12.0", True), ("7.5", False), ("gfx90a", False), ("", False)],
)
def test_other_makes_and_older_gpus_have_no_kernel(capability, has):
    assert kernels.tensor_cores(capability) == has
