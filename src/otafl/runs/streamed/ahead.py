"""Channel and plan of one seed, some rounds at a time and in order; nothing of them is kept. Host, float64."""

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np

from otafl.core import uplink
from otafl.core.plan import Plan, Trace
from otafl.core.rounds import plan_ahead
from otafl.privacy import uplink_checks
from otafl.runs.build import Site

Made = TypeVar("Made")
Place = TypeVar("Place")


class Block(NamedTuple):
    """Some rounds of one seed, leaves (T, K)."""

    first: int
    trace: Trace
    plan: Plan | None  # None where the policy plans inside the loop
    info: Any


class Ahead:
    """The rounds of one seed. Two of them made alike give the same rounds, in blocks of any sizes."""

    def __init__(self, site: Site, seed: int):
        assert site.rows is not None
        self._site, self._rows, self._done = site, site.rows(), 0
        self._state = site.policy.init(seed)

    def take(self, rounds: int) -> Block:
        """The next rounds."""
        return self._plan(self._draw(rounds))

    def blocks(self, rounds: int, at_once: int) -> Iterator[Block]:
        """So many rounds, in blocks: while one is used the next is planned, and the one after it is drawn."""
        return soon(self._plan, soon(self._draw, [count for _, count in cut(rounds, at_once)]))

    def _draw(self, rounds: int) -> tuple[int, Trace]:
        site, first = self._site, self._done
        trace, _ = uplink_checks.meet(uplink.uplink_of(site.policy), self._rows.take(rounds), site.deployment)
        self._done += rounds
        return first, trace

    def _plan(self, drawn: tuple[int, Trace]) -> Block:
        site, (first, trace) = self._site, drawn
        if site.policy.loop != "open":
            return Block(first, trace, None, ())
        with np.errstate(all="ignore"):
            self._state, plan, info = plan_ahead(site.policy, self._state, trace, first)
        return Block(first, trace, plan, info)

    def skip(self, rounds: int, at_once: int) -> None:
        """Pass over rounds that were run before."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _, count in cut(rounds, at_once):
                self.take(count)


def cut(rounds: int, at_once: int) -> Iterator[tuple[int, int]]:
    """First round and length of every block.

    >>> list(cut(5, 2))
    [(0, 2), (2, 2), (4, 1)]
    """
    return ((first, min(at_once, rounds - first)) for first in range(0, rounds, at_once))


def soon(make: Callable[[Place], Made], places: Iterable[Place]) -> Iterator[Made]:
    """What `make` gives for each place, in order; the next is made on another core while one is used.

    >>> list(soon(lambda n: n * n, range(3)))
    [0, 1, 4]
    """
    waiting: deque[Future[Made]] = deque()
    with ThreadPoolExecutor(1) as worker:
        for place in places:
            waiting.append(worker.submit(make, place))
            if len(waiting) > 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
