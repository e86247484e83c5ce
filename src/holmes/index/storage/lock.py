"""The lock of an index: one process may change it at a time.

Unlike `holmes.base.locks.hold`, the lock keeps its open file: the index may be replaced while it is changed,
so a writer compares the lock file under the path with the one that it holds. A refused writer is told which
process holds the lock.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

from holmes.base.files import inside
from holmes.errors import HolmesError

LOCK = "lock"  # a file of the index


def lock_index(path: Path) -> IO[str]:
    """The writer's lock; the kernel releases it when the process ends, however it ends."""
    lock = open(inside(path, LOCK), "a+")  # noqa: SIM115 - open for as long as the lock is held
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        holder = lock.read(20).strip() or "unknown"
        lock.close()
        raise _busy(path, f"process {holder}") from None
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


def lock_folder(folder: int, path: Path) -> None:
    """Lock the folder itself too: the lock file can be deleted, and a second writer would make a new one."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _busy(path, "another process") from None
    except OSError:
        pass  # network file systems lock files only


def _busy(path: Path, who: str) -> HolmesError:
    return HolmesError(f"{who} is changing {path}; try again when it is done.")
