"""Schemes of one run side by side: while one is compiled or written down, another trains.

On a CPU all lanes share one pool with a thread per core (`core.engine`); a scheme's bits depend on nobody's company.
An accelerator takes rounds in turn, but their programs are compiled side by side. Large models follow each other: the
memory of several would be needed at once. So do programs over several devices, which wait for each other there.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax

from otafl.core.engine import Engine, cores
from otafl.core.errors import Interrupted
from otafl.runs.device_mapping import SMALL_MODEL
from otafl.runs.execution import Execution
from otafl.runs.interrupts import StopFlag


def lanes_for(executions: Sequence[Execution]) -> int:
    """As many schemes at once as give every core a seed, and one that is compiled or written meanwhile.

    On an accelerator as many as there are programs.
    """
    if cores() == 1 or not executions or any(one.streamed for one in executions):
        return 1
    if executions[0].task.model.num_params >= SMALL_MODEL:
        return 1
    if all(one.seed_map == "vmap" for one in executions) and _one_accelerator():
        return min(cores(), len({one.program for one in executions}))
    if any(one.seed_map != "threads" for one in executions):
        return 1
    seeds = len(executions[0].experiment.seed_list)
    return min(len(executions), 1 + -(-cores() // seeds))


def _one_accelerator() -> bool:
    return jax.default_backend() != "cpu" and len(jax.local_devices()) == 1


def programs_first(executions: Sequence[Execution]) -> list[Execution]:
    """The first scheme of each compiled program before the others, so that programs are compiled side by side."""
    known = [one.program for one in executions]
    return sorted(executions, key=lambda one: known.index(one.program) != executions.index(one))


def run_all(executions: Sequence[Execution], stop: StopFlag, engines: dict[Any, Engine]) -> None:
    """Every scheme to its end. The first that fails stops the others at their next chunk; its error is raised."""
    lanes = lanes_for(executions)

    def run(execution: Execution) -> None:
        if stop.requested:
            raise Interrupted("between two schemes")
        try:
            execution.run(stop, engines)
        except BaseException:
            stop.requested = True
            raise

    if lanes == 1:
        for execution in executions:
            run(execution)
        return
    with ThreadPoolExecutor(lanes) as pool:
        running = [pool.submit(run, execution) for execution in programs_first(executions)]
    problems = [problem for future in running if (problem := future.exception())]
    others = [problem for problem in problems if not isinstance(problem, Interrupted)]
    if others:
        raise others[0]
    if problems:
        said = sorted({str(problem) for problem in problems}, key=lambda text: text.startswith("between"))
        raise Interrupted("; ".join(said))
