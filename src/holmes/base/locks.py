"""Locks for one process at a time, released by the kernel when the holder ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from holmes.errors import HolmesError

TIMEOUT = 30  # seconds to wait for another process


@contextmanager
def wait_for_lock(path: Path) -> Iterator[None]:
    """Holds the lock on a file inside the block; waits until other processes have let go of it."""
    try:
        with FileLock(path, timeout=TIMEOUT):
            yield
    except Timeout:
        raise HolmesError(f"another process has held {path} for {TIMEOUT} seconds; try again.") from None


def hold(path: Path, refusal: str) -> FileLock:
    """The lock on a file, held until it is released; refused in one line where another process holds it."""
    lock = FileLock(path, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise HolmesError(refusal) from None
    return lock
