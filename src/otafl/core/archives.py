"""Arrays in files of whoever they come from: no pickles, and no more than this machine holds. Host.

A kilobyte of an archive unpacks to a megabyte of zeros, so its size says nothing; what it states of its contents does.
"""

import io
import os
from pathlib import Path

import numpy as np


def memory_bytes() -> int:
    """Physical memory of this machine, or what a container may have of it."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(physical, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):  # no such thing here, or no limit ("max")
        return physical


def in_gib(count: int) -> str:
    """Bytes for a reader.

    >>> in_gib(3 << 29)
    '1.5 GiB'
    """
    return f"{count / 2**30:.3g} GiB"


def check_room(needed: int) -> None:
    """MemoryError now, where the system would end this process later."""
    if needed > memory_bytes():
        raise MemoryError(f"unpacks to {in_gib(needed)}, this machine has {in_gib(memory_bytes())} of memory")


def arrays_of(archive: Path | bytes) -> dict[str, np.ndarray]:
    """The arrays of an NPZ file by name; of a damaged one zipfile, zlib and NumPy raise each something else."""
    with np.load(io.BytesIO(archive) if isinstance(archive, bytes) else archive, allow_pickle=False) as file:
        check_room(sum(member.file_size for member in file.zip.infolist()))
        found = {name: file[name] for name in file.files}
    return {name: value for name, value in found.items() if isinstance(value, np.ndarray)}  # others are bytes
