"""A Ray cluster as an executor. `pip install otafl[ray]`; every node needs the same otafl and sees the same folder."""

import os
import socket
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from otafl.core.errors import InputError, first_line
from otafl.runs.workers import one_core

ANSWER_S = 10.0


class Ray:
    """Tasks on an existing cluster, a core each.

    Parameters
    ----------
    address : str
        of the cluster's head, "host:port" or "ray://host:port"; "auto" is the one that this machine belongs to
    **resources
        of one task, as `ray.remote` takes them: num_cpus (1 unless said), num_gpus, memory, resources
    """

    def __init__(self, address: str = "auto", **resources: Any):
        try:
            import ray
        except ModuleNotFoundError as missing:
            raise InputError("executor='ray' needs Ray; pip install 'otafl[ray]'") from missing
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # what Ray is about to do, and warns of
        self._ray, self._resources = ray, {"num_cpus": 1, **resources}
        self._began = not ray.is_initialized()
        self._running: dict[Any, Future[Any]] = {}
        if self._began:
            try:
                _reach(address)
                ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=False)
            except (OSError, ValueError, RuntimeError) as problem:
                why = first_line(problem)
                raise InputError(f"executor='ray:{address}': no Ray cluster answers there ({why})") from None

    def submit(self, function: Callable[[Any], Any], argument: Any, /) -> Future[Any]:
        cores = max(1, int(self._resources["num_cpus"]))
        task = self._ray.remote(
            max_retries=0, max_calls=0, runtime_env={"env_vars": one_core(cores)}, **self._resources
        )(function)  # fmt: skip
        reference = task.remote(argument)
        future: Future[Any] = reference.future()
        self._running[reference] = future
        future.add_done_callback(lambda _: self._running.pop(reference, None))
        return future

    def stop(self) -> None:
        """Interrupt what runs, as Ctrl-C would: it ends at its next checkpoint."""
        for reference in list(self._running):
            self._ray.cancel(reference, force=False)

    def close(self) -> None:
        if self._began:
            self._ray.shutdown()


def _reach(address: str) -> None:
    """OSError or ValueError where nobody listens: Ray itself would try for minutes."""
    if address != "auto":
        host, _, port = address.removeprefix("ray://").rpartition(":")
        socket.create_connection((host, int(port)), ANSWER_S).close()
