"""Peak memory of a tree of processes, sampled: shared pages are counted once (proportional set size)."""

import contextlib
import threading
from collections.abc import Iterable
from pathlib import Path

FIRST_S, INTERVAL_S = 0.02, 0.5  # a sample costs some ms of a core: often at first, so that short work is seen


class Peak:
    """`with Peak([pid]) as peak: ...; peak.mib`: the most that these processes and all they started held at once."""

    def __init__(self, roots: Iterable[int]):
        self.roots, self.mib = set(roots), 0.0
        self._known: set[int] = set(self.roots)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Peak":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        pause = FIRST_S
        while True:
            self._known |= descendants(self._known)  # who was a child once stays one, whoever adopts it
            self.mib = max(self.mib, sum(map(_held_mib, self._known)))
            if self._end.wait(pause):
                return
            pause = min(2 * pause, INTERVAL_S)


def descendants(roots: set[int]) -> set[int]:
    """Processes that these started, and those that they started."""
    parents = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parents[int(place.parent.name)] = int(place.read_text().rpartition(")")[2].split()[1])
    found = set(roots)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found & (parents.keys() | roots)


def _held_mib(pid: int) -> float:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0
