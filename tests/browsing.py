"""Headless Chromium without a driver or a package, and what a page must pass in it."""

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any


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
        self.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="", features=[scheme])
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=page.resolve().as_uri())
        self.run("new Promise(go => document.readyState === 'complete' ? go() : addEventListener('load', () => go()))")

    def resize(self, width: int, height: int = 900) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)

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


def violations(browser: Browser) -> list[str]:
    """What axe-core finds wrong with the page that is open: rule, count, first place."""
    import axe_core_python

    script = (Path(axe_core_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    browser.call("Runtime.evaluate", expression=script)
    found = browser.run("axe.run(document, {resultTypes: ['violations']}).then(r => JSON.stringify(r.violations))")
    return [f"{v['id']} ({len(v['nodes'])}): {v['nodes'][0]['html'][:160]}" for v in json.loads(found)]
