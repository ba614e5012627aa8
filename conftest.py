"""Doctests of bridges are collected where the framework they lead to is installed; none leaves a scheme behind."""

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("flwr") else ["src/otafl/connect/flower/*"]


@pytest.fixture(autouse=True)
def registry_as_before(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if isinstance(request.node, pytest.DoctestItem) and request.node.name.endswith("own_scheme.scheme"):
        from otafl import systems

        systems.remove(systems.OWN)
        for follow in systems.WATCHERS:
            follow()
