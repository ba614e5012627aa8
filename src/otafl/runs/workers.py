"""The local executor: processes of this machine, a core each. `python -m otafl.runs.workers` is one of them.

A worker does one task after the other, so that libraries load and programs compile once. It leads a session of its own:
Ctrl-C reaches the command, which asks its workers once to end at their next checkpoint. A worker that dies takes its
task with it and nothing else; one whose command was killed dies with it.
"""

import contextlib
import ctypes
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO

from otafl.core.engine import cores
from otafl.core.errors import OtaflError

PR_SET_PDEATHSIG = 1
LENGTH = 8  # bytes before every message


class WorkerLost(OtaflError):
    """A worker process ended before its task did."""


def one_core(share: int = 1) -> dict[str, str]:
    """The environment of a process that is to use so many cores: XLA's, BLAS' and our own threads."""
    names = ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {**dict.fromkeys(names, str(share)), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


class Local:
    """So many worker processes, by default one for every core.

    Examples
    --------
    >>> executor = Local(1)
    >>> executor.submit(abs, -3).result()
    3
    >>> executor.close()
    """

    def __init__(self, processes: int | None = None):
        self.processes = processes or cores()
        self._share = max(1, cores() // self.processes)
        self._threads = ThreadPoolExecutor(self.processes, "otafl-worker")  # each tends one process
        self._own = threading.local()
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._stopping = False

    def submit(self, function: Callable[[Any], Any], argument: Any, /) -> Future[Any]:
        return self._threads.submit(self._send, function, argument)

    def stop(self) -> None:
        """Ask every worker to end at its next checkpoint."""
        self._stopping = True
        self._signal(signal.SIGTERM)

    def close(self) -> None:
        """End all workers; nobody's task is lost but what had not reached a checkpoint."""
        self._stopping = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._signal(signal.SIGKILL)
        self._threads.shutdown()
        for process in self._running.values():
            process.wait()

    def _signal(self, number: signal.Signals) -> None:
        for process in list(self._running.values()):
            if process.poll() is None:
                process.send_signal(number)

    def _send(self, function: Callable[[Any], Any], argument: Any) -> Any:
        """One task to this thread's process, and what comes back; in a thread."""
        if self._stopping:
            raise WorkerLost("the executor is stopping")
        process = self._process()
        assert process.stdin is not None and process.stdout is not None
        try:
            _write(process.stdin, pickle.dumps((function, argument)))
            answer = _read(process.stdout)
        except (OSError, EOFError):
            process.kill()
            code = process.wait()
            self._running.pop(process.pid, None)
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise WorkerLost(f"worker {process.pid} ended by {how}") from None
        fine, value = pickle.loads(answer)
        if not fine:
            raise value
        return value

    def _process(self) -> "subprocess.Popen[bytes]":
        """This thread's worker, started where there is none."""
        process: subprocess.Popen[bytes] | None = getattr(self._own, "process", None)
        if process is None or process.poll() is not None:
            process = subprocess.Popen(
                [sys.executable, "-m", "otafl.runs.workers"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **one_core(self._share)},
            )  # fmt: skip
            self._own.process = self._running[process.pid] = process
        return process


def _write(stream: BinaryIO | Any, content: bytes) -> None:
    stream.write(len(content).to_bytes(LENGTH, "big") + content)
    stream.flush()


def _read(stream: BinaryIO | Any) -> bytes:
    size = stream.read(LENGTH)
    content = stream.read(int.from_bytes(size, "big")) if len(size) == LENGTH else b""
    if len(size) < LENGTH or len(content) < int.from_bytes(size, "big"):
        raise EOFError
    return bytes(content)


def main() -> None:
    """A worker: tasks come on standard input, answers go out where standard output was, prints go to standard error."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            task = _read(sys.stdin.buffer)
        except EOFError:
            return
        try:
            function, argument = pickle.loads(task)
            answer = (True, function(argument))
        except Exception as problem:
            answer = (False, problem)
        try:
            packed = pickle.dumps(answer)
        except Exception as problem:
            packed = pickle.dumps((False, WorkerLost(f"an answer cannot be sent back ({type(problem).__name__})")))
        with contextlib.suppress(BrokenPipeError):
            _write(answers, packed)


if __name__ == "__main__":
    main()
