"""A small job: n=64, four devices, 40 bits of flooding. Everything random is repeatable, and marked so."""

import dataclasses

import numpy as np
import pytest

from otafl.crypto import budget, overair, randomness, xmkckks
from otafl.crypto.parameters import Parameters
from otafl.crypto.ring import toy_ring

DEVICES = 4


@pytest.fixture(scope="session")
def channel():
    return budget.fading(np.ones(DEVICES), 2 * np.ones(DEVICES))


@pytest.fixture(scope="session")
def params(channel):
    p = Parameters(toy_ring(64), f=16, scale_bits=60, allow_insecure=True)
    return dataclasses.replace(p, sigma_phi=budget.smudging_sigma(p, channel, 40))


@pytest.fixture
def make_clients():
    def make(p, seed=0, count=DEVICES):
        agreed = xmkckks.setup(p, randomness.insecure_test_rng(seed))
        sources = [randomness.insecure_test_rng(1000 * seed + 1 + i) for i in range(count)]
        return overair.gather_clients(agreed, count, sources)

    return make


@pytest.fixture
def rng():
    return np.random.default_rng(7)
