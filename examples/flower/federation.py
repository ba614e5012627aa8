"""A Flower federation on this machine: SuperLink, SuperNodes and apps as processes of their own, loopback only.

    python examples/flower/federation.py --nodes 10 --run-config "rounds=5"

Nothing leaves the machine (no telemetry, no update check, nothing installed at run time), nothing is shared with other
federations (own FLWR_HOME, free ports), and what was started here is ended by its process id.
"""

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

APP = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent


class Federation:
    """`with Federation(10, folder) as federation: federation.run(APP)`; every process writes a log into `folder`."""

    def __init__(self, nodes: int, folder: Path, **environment: str):
        self.nodes, self.folder = nodes, Path(folder).resolve()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.superlink_port, *self.node_ports = free_ports(nodes + 1)
        self.environment = {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",  # Flower starts its own helpers by name
            "FLWR_HOME": str(self.folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.3",  # s
            "OMP_NUM_THREADS": "1",  # many processes on few cores
            "MKL_NUM_THREADS": "1",
            **environment,
        }

    def __enter__(self) -> "Federation":
        home = self.folder / "home"
        home.mkdir(parents=True, exist_ok=True)
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "local"\n\n[superlink.local]\naddress = "{self.address}"\ninsecure = true\n'
        )
        try:
            host = ["--host", "127.0.0.1", "--port", str(self.superlink_port)]
            self.start("superlink", ["flower-superlink", "--insecure", *host])
            wait_until(lambda: healthy(self.superlink_port), 120, f"the SuperLink at {self.address} does not answer")
            for number in range(self.nodes):
                self.start_node(number)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end(*self.processes, how=signal.SIGTERM)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.superlink_port}"

    def start_node(self, number: int) -> None:
        """The SuperNode of one device: its partition is its place in the site."""
        host = ["--host", "127.0.0.1", "--port", str(self.node_ports[number])]
        config = f"partition-id={number} num-partitions={self.nodes}"
        command = ["flower-supernode", "--insecure", "--superlink", self.address, *host, "--node-config", config]
        self.start(f"node-{number}", command)

    def run(self, app: Path, run_config: str = "", name: str = "run") -> "subprocess.Popen[bytes]":
        """`flwr run APP local --stream` as a process; it ends when the run has ended."""
        config = ["--run-config", run_config] if run_config else []
        self.start(name, ["flwr", "run", str(app), "local", "--stream", *config])
        return self.processes[name]

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def start(self, name: str, command: list[str]) -> None:
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(BIN / command[0]), *command[1:]],
                env=self.environment, cwd=self.folder, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def end(self, *names: str, how: signal.Signals = signal.SIGKILL) -> None:
        """End processes with all that they started: each leads a group of its own, and none is left behind."""
        ending = [self.processes.pop(name) for name in names]
        for order, patience_s in ((how, 5.0), (signal.SIGKILL, 10.0)):
            for process in ending:
                if alive(process):
                    os.killpg(process.pid, order)
            deadline = time.monotonic() + patience_s
            while any(alive(process) for process in ending) and time.monotonic() < deadline:
                time.sleep(0.1)


def alive(process: "subprocess.Popen[bytes]") -> bool:
    """Whether anybody of its group is there still."""
    process.poll()
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on; all are held at once, so that they differ."""
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


def free_folder(first: Path) -> Path:
    """The folder, or the first free one with a number behind its name."""
    folder, number = first, 1
    while folder.exists():
        number += 1
        folder = first.with_name(f"{first.name}-{number}")
    return folder


def healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def wait_until(true: Callable[[], bool], patience_s: float, otherwise: str) -> None:
    deadline = time.monotonic() + patience_s
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{otherwise} after {patience_s:g} s")
        time.sleep(0.2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--folder", type=Path, help="for card, ledger and report; one that holds a run goes on with it")
    parser.add_argument("--run-config", default="")
    asked = parser.parse_args()
    folder = asked.folder or free_folder(Path("runs/flower"))
    place = Path(tempfile.mkdtemp(prefix="federation-"))
    started = time.monotonic()
    with Federation(asked.nodes, place) as federation:
        config = f"devices={asked.nodes} folder='{folder.resolve()}' {asked.run_config}".strip()
        run = federation.run(APP, config)
        shown = 0
        while run.poll() is None or shown < len(federation.log("run")):
            text = federation.log("run")
            print(text[shown:], end="", flush=True)
            shown = len(text)
            time.sleep(0.3)
    finished = (folder / "card.md").exists()
    if not finished:
        print(f"the run did not finish; logs are in {place}", file=sys.stderr)
        return 1
    print((folder / "card.md").read_text(encoding="utf-8"))
    print(f"{asked.nodes} nodes, {time.monotonic() - started:.0f} s; see {folder}")
    shutil.rmtree(place, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
