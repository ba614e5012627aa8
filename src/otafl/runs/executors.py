"""Many tasks on many machines: one interface, and the loop that survives what happens there.

An executor is anything with `submit(function, argument) -> Future`; a future has `done()` and `result()`. So
`concurrent.futures` fits, Ray by `otafl.connect.ray`, and submitit's executors as they are. An executor may have
`stop()`, which asks its running tasks to end at their next checkpoint, and `close()`.

Tasks here never raise: what went wrong with an experiment is a value (`Outcome`). So an exception out of a future means
that the task is lost, with its worker, its node or its network; out of `submit`, that nobody took it. It is given out
again: tasks can be repeated, because each writes into a folder of its own, goes on from its checkpoints there, and
finds what is finished.
"""

import contextlib
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

from otafl.core.errors import Interrupted, OtaflError, RunError
from otafl.runs.folder.disk import FolderBusy
from otafl.runs.interrupts import GOES_ON, StopFlag

DONE = "done"
BUSY = "busy"
ATTEMPTS = 4  # of a task whose worker is lost each time
POLL_S = 0.1
BUSY_S = 5.0  # before a folder that somebody else holds is tried again
PATIENCE_S = 600.0  # for a folder that somebody else holds


class Outcome(NamedTuple):
    """What became of one task."""

    said: str  # DONE, or one line that says why not
    exit_code: int = 0  # as the command line would have it
    seconds: float = 0.0
    value: Any = None
    fault: str = ""  # a traceback, where the fault is ours

    @property
    def done(self) -> bool:
        return self.said == DONE


class Pending(Protocol):
    """What a future must be able to do."""

    def done(self) -> bool: ...

    def result(self) -> Any: ...


class Executor(Protocol):
    """Where tasks run."""

    def submit(self, function: Callable[[Any], Any], argument: Any, /) -> Pending: ...


def attempt(work: Callable[[], Any]) -> Outcome:
    """Do it, and tell what became of it: inside a task nothing is raised but by a worker that is gone."""
    start = time.perf_counter()
    try:
        value = work()
    except (Interrupted, KeyboardInterrupt):
        return Outcome("interrupted", Interrupted.exit_code, time.perf_counter() - start)
    except FolderBusy as refusal:
        return Outcome(BUSY, refusal.exit_code, time.perf_counter() - start, str(refusal))
    except OtaflError as refusal:
        return Outcome(str(refusal), refusal.exit_code, time.perf_counter() - start)
    except Exception as fault:
        said = f"{type(fault).__name__}: {fault}".splitlines()[0]
        return Outcome(said, RunError.exit_code, time.perf_counter() - start, fault=traceback.format_exc())
    return Outcome(DONE, 0, time.perf_counter() - start, value)


class _Task:
    """A task on its way: which attempt it is, and when it may be given out (again)."""

    def __init__(self, argument: Any):
        self.argument, self.losses, self.ready, self.waited = argument, 0, 0.0, 0.0
        self.future: Pending | None = None
        self.how = ""  # it would be lost

    def give(self, executor: Executor, function: Callable[[Any], Outcome]) -> None:
        """To the executor; one that raises here (a pool that is closed, a queue that is full) has lost it as well."""
        self.how = "its worker was lost"
        try:
            self.future = executor.submit(function, self.argument)
            if not callable(getattr(self.future, "done", None)):
                raise TypeError(f"submit returned a {type(self.future).__name__}, which is no future")
        except Exception as refused:
            self.how, self.future = "the executor did not take it", Future()
            self.future.set_exception(refused)


def each(
    executor: Executor, function: Callable[[Any], Outcome], tasks: Mapping[str, Any], stop: StopFlag,
    note: Callable[[str], None] = lambda text: None,
) -> Iterator[tuple[str, Outcome]]:  # fmt: skip
    """(name, outcome) of every task as they end. Lost tasks are given out again; after `stop`, Interrupted is raised
    as soon as those that run have ended at a checkpoint."""
    left = {name: _Task(argument) for name, argument in tasks.items()}
    stopped = False
    while left:
        if stop.requested and not stopped:
            stopped = True
            left = {name: task for name, task in left.items() if task.future is not None}
            _stop(executor, left.values())
        for name, task in list(left.items()):
            if task.future is None:
                if time.monotonic() >= task.ready:
                    task.give(executor, function)
                continue
            if not task.future.done():
                continue
            outcome = _result(task, name, stopped, note)
            if outcome is None:
                continue
            del left[name]
            if outcome.exit_code != Interrupted.exit_code:
                said = "".join(one if one.isprintable() else "\ufffd" for one in outcome.said)  # a library's colours
                yield name, outcome._replace(said=said)
            elif not stopped:  # somebody else stopped the worker, politely
                stop.requested = True
        if left:
            time.sleep(POLL_S)
    if stopped or stop.requested:
        raise Interrupted(GOES_ON)


def _result(task: _Task, name: str, stopped: bool, note: Callable[[str], None]) -> Outcome | None:
    """The outcome of a task that has ended; None where it is to be given out again."""
    assert task.future is not None
    try:
        outcome = task.future.result()
    except BaseException as lost:  # cancelled futures, too
        if isinstance(lost, KeyboardInterrupt) or stopped:
            return Outcome("interrupted", Interrupted.exit_code)
        task.losses += 1
        why = f"{type(lost).__name__}: {lost}".splitlines()[0][:300]
        if task.losses >= ATTEMPTS:
            return Outcome(f"{task.how}, {task.losses} times; {why}", RunError.exit_code)
        note(f"{name}: {task.how} ({why}); it is given out again")
        task.future, task.ready = None, time.monotonic()
        return None
    if not isinstance(outcome, Outcome):
        return Outcome(f"the executor returned a {type(outcome).__name__}", RunError.exit_code)
    if outcome.said == BUSY and not stopped and task.waited < PATIENCE_S:
        task.future, task.ready, task.waited = None, time.monotonic() + BUSY_S, task.waited + BUSY_S
        return None
    return outcome._replace(said=str(outcome.value), value=None) if outcome.said == BUSY else outcome


def _stop(executor: Executor, running: Any) -> None:
    """Ask everything that runs to end at its next checkpoint; what has not begun is not begun."""
    for task in running:
        cancel = getattr(task.future, "cancel", None)
        if cancel is not None:
            with contextlib.suppress(Exception):
                cancel()
    stop = getattr(executor, "stop", None)
    if stop is not None:
        stop()
