"""Child processes that the tests of interrupts start and stop."""

import os
import subprocess
import time
from pathlib import Path

ENVIRONMENT = {**os.environ, "JAX_PLATFORMS": "cpu"}


def start_until_checkpoint(command: list[str], folder: Path) -> subprocess.Popen[str]:
    """Start the command; returns when the first checkpoint of a run appears anywhere below the folder."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    deadline = time.monotonic() + 300
    while not list(folder.glob("**/checkpoints/checkpoint-*")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process
