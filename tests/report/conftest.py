"""A run store without any training, and a browser that needs no package: both for the tests of the report."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otafl.core.files import to_json
from otafl.runs.folder.store import RunFolder, parquet

CONFIG = """rounds = 30
[task]
clients = 6
[channel]
kind = "rayleigh"
"""


def _scheme(run: RunFolder, label: str, seeds: list[int], rounds: int, clients: int, rng: Any, **how: Any) -> None:
    """Tables of one scheme: random, but of the shape, type and range that a run writes."""
    place, private, every = run.scheme(label), how.get("private", True), 10
    place.path.mkdir(parents=True)
    contents: dict[str, bytes | str] = {}
    lengths = [rounds - n * how.get("shorter", 0) for n in range(len(seeds))]
    seed = np.concatenate([np.full(length, s) for s, length in zip(seeds, lengths)])
    round_ = np.concatenate([np.arange(length) for length in lengths])
    rows = len(seed)
    sent = rng.random((rows, clients)) > how.get("silence", 0.2)
    energy = rng.exponential(0.01, (rows, clients)) * sent
    contents["rounds.parquet"] = parquet({
        "seed": seed, "round": round_, "rx_scale": rng.random(rows), "noise_std": rng.random(rows),
        "update_norm": rng.random(rows).astype(np.float32), "sent": sent.sum(1), "sent_weight": sent.mean(1),
        "snr": np.full(rows, np.inf) if how.get("noiseless") else rng.random(rows), "energy_share": energy.max(1),
        "clipped_share": np.full(rows, np.nan) if how.get("fused") else rng.random(rows),
        **({"info_queue": rng.random(rows).cumsum()} if how.get("queue") else {}),
    })  # fmt: skip
    if how.get("devices", True):
        contents["devices.parquet"] = parquet({
            "seed": np.repeat(seed, clients), "round": np.repeat(round_, clients), "sent": sent.ravel(),
            "client": np.tile(np.arange(clients), rows), "norm": np.ones(sent.size, np.float32),
            "raw_norm": np.ones(sent.size, np.float32), "energy": energy.ravel(), "energy_limit": np.ones(sent.size),
            "noise_multiplier": np.ones(sent.size),
        })  # fmt: skip
    ends = [np.unique([*range(every, length + 1, every), length]) for length in lengths]
    count = sum(map(len, ends))
    evaluations = {
        "seed": np.concatenate([np.full(len(end), s) for s, end in zip(seeds, ends)]), "round": np.concatenate(ends),
        "accuracy": rng.random(count), "worst_client": rng.random(count) / 2, "loss": 2 * rng.random(count),
        "penalty": np.full(count, how.get("penalty", 0.0)),
        "eps": np.concatenate(ends) * rng.random(count) if private else np.full(count, np.inf),
    }  # fmt: skip
    contents["evaluations.parquet"] = parquet(evaluations)
    last = {s: {k: v[evaluations["seed"] == s][-1] for k, v in evaluations.items()} for s in seeds}
    per_seed = {
        "final_accuracy": [last[s]["accuracy"] for s in seeds], "best_accuracy": [last[s]["accuracy"] for s in seeds],
        "worst_client": [last[s]["worst_client"] for s in seeds], "final_loss": [last[s]["loss"] for s in seeds],
        "final_eps": [last[s]["eps"] for s in seeds], "rounds": [float(n) for n in lengths],
        "accuracy_at_eps": [np.nan] * len(seeds), "worst_client_at_eps": [np.nan] * len(seeds),
        "mean_rx_scale": [0.5] * len(seeds), "silent_weight": [0.2] * len(seeds),
        "energy_per_round": [0.01 if how.get("devices", True) else np.nan] * len(seeds),
    }  # fmt: skip
    spend = {"accounting": "none", "certified": True, "worst_client": 0, "notes": ["a note"], "accountant": "zcdp"}
    eps = (rng.random(clients) * 10).tolist() if private else [np.inf] * clients
    files = {
        "summary": {"label": label, "scheme": "constant", "uplink": "analog", "unit": "client", "adjacency": "replace",
                    "delta": 1e-5, "accountant": "zcdp", "target_eps": 50.0, "capped": private, "private": private,
                    "csi": "own", "loop": "open", "every": every, "channel_uses": 10, "seeds": seeds, **per_seed},
        "card": {"unit": "client", "adjacency": "replace", "delta": 1e-5, "clients": clients, "rounds": rounds,
                 "guarantee": {"eps": max(eps), "is_cap": False}, "cap": {"eps": 50.0, "accountant": "zcdp"},
                 "spent": [{**spend, "eps_worst": max(eps), "eps_mean": float(np.mean(eps)), "eps": eps}],
                 "not_applicable": {"pld": "no <reason>"}, "trusted_noise": "none", "sampling": "every round",
                 "assumptions": ["noise is Gaussian"], "outside_the_guarantee": ["sizes"]},
    }  # fmt: skip
    if how.get("certificate"):
        files["certificate"] = how["certificate"]
    contents |= {f"{name}.json": to_json(content) for name, content in files.items()}
    place.finish(contents, rounds, {"seconds": 1.5, "rounds": rows})


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """make_run("name", {"label": {options}}, seeds=, rounds=, clients=): a finished run folder."""

    def make(name: str, schemes: dict[str, dict[str, Any]], seeds: Any = (0, 1, 2), rounds: int = 30, clients: int = 6,
             title: str = "A run", config: str = CONFIG) -> Path:  # fmt: skip
        manifest = {"title": title, "schemes": list(schemes), "seeds": list(seeds),
                    "data": {"name": "digits", "sha256": "beef"}, "versions": {"jax": "1"}, "machine": {"cores": "2"},
                    "parameters": 10}  # fmt: skip
        run = RunFolder.create(tmp_path / name, config, manifest)
        rng = np.random.default_rng(len(name))
        for label, how in schemes.items():
            if how.get("finished", True):
                _scheme(run, label, list(seeds), rounds, clients, rng, **how)
            else:
                run.scheme(label).prepare()
                (run.scheme(label).checkpoints / "checkpoint-0000020").write_bytes(b"")
        return run.path

    return make


class Browser:
    """Headless Chromium over its debugging pipe: messages are JSON, ended by a zero byte."""

    FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
             "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
             "--remote-debugging-pipe")  # fmt: skip

    def __init__(self, program: str, profile: str):
        to_child, from_child = os.pipe(), os.pipe()

        def wire() -> None:  # Chromium reads descriptor 3 and writes 4; copies first, as either may be in the way
            copies = os.dup(to_child[0]), os.dup(from_child[1])
            os.dup2(copies[0], 3)
            os.dup2(copies[1], 4)

        command = [program, *self.FLAGS, f"--user-data-dir={profile}", "about:blank"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, preexec_fn=wire, close_fds=False, **quiet)
        os.close(to_child[0])
        os.close(from_child[1])
        self.write, self.read = os.fdopen(to_child[1], "wb", 0), os.fdopen(from_child[0], "rb", 0)
        self.buffer, self.number, self.session = b"", 0, ""
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.write.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            piece = self.read.read(1 << 16)
            assert piece, "Chromium has ended"
            self.buffer += piece
        message, _, self.buffer = self.buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        self._listen(answer.get("method"), answer.get("params", {}))
        return answer

    def _listen(self, method: str | None, params: dict[str, Any]) -> None:
        """Errors, warnings and anything fetched from elsewhere are complaints."""
        if method == "Runtime.exceptionThrown":
            self.complaints.append(params["exceptionDetails"].get("exception", {}).get("description", "exception"))
        if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.complaints.append(str(params["args"]))
        if method == "Log.entryAdded":
            self.complaints.append(params["entry"]["text"])
        if method == "Network.requestWillBeSent":
            address = params["request"]["url"]
            if not address.startswith(("file:", "data:", "about:")):
                self.complaints.append(f"fetched {address}")

    def open(self, page: Path, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a page afresh and wait until it has been drawn."""
        self.complaints.clear()
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="", features=[scheme])
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=page.resolve().as_uri())
        self.run("new Promise(go => document.readyState === 'complete' ? go() : addEventListener('load', () => go()))")

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screenshot(self, whole: bool = False) -> bytes:
        return base64.b64decode(self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"])

    def pdf(self) -> bytes:
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def close(self) -> None:
        self.write.close()  # the end of its pipe ends Chromium
        self.process.wait(timeout=20)
        self.read.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests of a session; they are skipped where there is none."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no Chromium found (Debian: apt-get install chromium)")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        running = Browser(program, profile)
        yield running
        running.close()
