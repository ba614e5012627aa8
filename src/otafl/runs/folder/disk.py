"""The disk under a run folder: failures said in one line, and one writer at a time."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from otafl.core.errors import InputError, OtaflError


class StorageError(OtaflError):
    """The folder cannot be written; what was saved before is still whole."""


class FolderBusy(InputError):
    """Another process holds the folder."""


@contextmanager
def storage(path: Path) -> Iterator[None]:
    """Turn a full disk or a read-only folder into one clear line."""
    reasons = {
        errno.ENOSPC: "the disk is full",
        errno.EROFS: "it is read-only",
        errno.EACCES: "permission denied",
        errno.EPERM: "permission denied",
        errno.EDQUOT: "the disk quota is used up",
        errno.ENOENT: "its folder is gone",
    }
    try:
        yield
    except OSError as error:
        reason = reasons.get(error.errno or 0, error.strerror or str(error))
        raise StorageError(f"{path}: cannot be written ({reason}); {_left_of(path)}") from error


def _left_of(path: Path) -> str:
    """What is left of a run, or of runs beneath, whose folder cannot be written."""
    if any((place / "manifest.json").exists() for place in (path, *path.parents[:4])):
        return "everything saved before is whole, and --resume continues from the last checkpoint"
    if next(path.rglob("manifest.json"), None) is not None:
        return "everything saved before is whole, and the same command goes on from there"
    return "no run is left there to resume"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time writes into a folder; the lock goes with the process, however it ends."""
    with storage(path):
        path.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderBusy(f"{path}: another process is writing this run; wait for it, or stop it first") from None
        except OSError:  # a file system without locks of folders: as if alone
            pass
        yield
    finally:
        os.close(handle)
