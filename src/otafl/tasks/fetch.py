"""Downloads that arrive whole and unaltered, or not at all. Host."""

import hashlib
import os
import tempfile
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from typing import IO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from otafl.core.errors import DataMissing

TIMEOUT_S = 20.0
BLOCK_BYTES = 1 << 20


def file_sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download(urls: Sequence[str], target: Path, sha256: str) -> None:
    """Fetch the first of `urls` whose content has that SHA-256 into `target`, atomically.

    DataMissing lists what went wrong with each address.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    problems = []
    for url in urls:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                digest = _copy(url, file, target.name)
                file.flush()
                os.fsync(file.fileno())
            if digest == sha256:
                os.chmod(temporary, 0o644)
                os.replace(temporary, target)
                return
            problems.append(f"{url}: SHA-256 is {digest} but must be {sha256}")
        except (OSError, HTTPException) as error:
            problems.append(f"{url}: {error}")
        finally:
            temporary.unlink(missing_ok=True)
    raise DataMissing(f"{target.name} could not be downloaded: " + "; ".join(problems))


def _copy(url: str, file: IO[bytes], label: str) -> str:
    """Stream `url` into `file` with a progress bar on the terminal; returns the SHA-256 of what came."""
    digest = hashlib.sha256()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with (
        urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer,
        Progress(*columns, console=console, disable=not console.is_terminal) as progress,
    ):
        length = answer.headers.get("Content-Length")
        task = progress.add_task(label, total=int(length) if length else None)
        while block := answer.read(BLOCK_BYTES):
            digest.update(block)
            file.write(block)
            progress.advance(task, len(block))
    return digest.hexdigest()
