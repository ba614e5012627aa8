"""Doctests of bridges are collected where the framework they lead to is installed; no file leaves a scheme behind."""

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("flwr") else ["src/otafl/connect/flower/*"]


@pytest.fixture(scope="module", autouse=True)
def registry_as_before() -> Iterator[None]:
    from otafl import systems

    before = systems.SYSTEMS.get(systems.OWN)
    yield
    if systems.SYSTEMS.get(systems.OWN) is not before:
        systems.remove(systems.OWN)
        if before is not None:
            systems.add(before)
        for follow in systems.WATCHERS:
            follow()
