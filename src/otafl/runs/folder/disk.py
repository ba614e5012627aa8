"""The disk under a run folder: failures said in one line, and one writer at a time."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from otafl.core.errors import InputError, OtaflError

LOCK = ".lock"  # in a folder that cannot be locked itself


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


def ready(folder: Path, *files: str) -> None:
    """Refuse a folder into which these files could not be put, before the work that they are to tell of."""
    for file in files:
        if (folder / file).is_dir():
            raise InputError(f"{folder / file}: is a folder, and a file is to be written there; give another folder")
    there = next(place for place in (folder, *folder.absolute().parents) if os.path.lexists(place))
    if not there.is_dir():
        raise InputError(f"{there}: is no folder; give another")
    if not os.access(there, os.W_OK | os.X_OK):
        raise StorageError(f"{there}: cannot be written (read-only, or no permission); give another folder")


def _left_of(path: Path) -> str:
    """What is left of a run, or of runs beneath, whose folder cannot be written."""
    if any((place / "manifest.json").exists() for place in (path, *path.parents[:4])):
        return "everything saved before is whole, and --resume continues from the last checkpoint"
    if next(path.rglob("manifest.json"), None) is not None:
        return "everything saved before is whole, and the same command goes on from there"
    return "no run is left there to resume"


def settle(folder: Path) -> None:
    """Put the names in a folder on the disk: after a power cut a file that was replaced may else be the old one."""
    with suppress(OSError):  # some file systems know no such thing of folders
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def locked(path: Path, needed: bool = False) -> Iterator[None]:
    """One process at a time writes into a folder; the lock goes with the process, however it ends.

    Some file systems lock files that are open for writing alone, and no folders (NFS); where there are no locks at all,
    a process goes on as if alone, unless a lock is `needed`.
    """
    with storage(path):
        path.mkdir(parents=True, exist_ok=True)
        handles = [os.open(path, os.O_RDONLY)]
    try:
        if not _taken(handles[0], path):
            with storage(path):
                handles.append(os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o666))
            if not _taken(handles[1], path) and needed:
                raise StorageError(f"{path}: cannot be locked, and two processes could go on there; use another disk")
        yield
    finally:
        for handle in handles:
            os.close(handle)


def _taken(handle: int, path: Path) -> bool:
    """Whether the lock is ours; False where there are none. FolderBusy if somebody else has it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FolderBusy(f"{path}: another process is writing this run; wait for it, or stop it first") from None
    except OSError:
        return False
    return True
