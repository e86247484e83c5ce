"""One process at a time: a lock that the kernel lets go of, however its holder ends."""

from __future__ import annotations

from pathlib import Path

from filelock import FileLock, Timeout

from holmes.errors import HolmesError


def hold(path: Path, refusal: str) -> FileLock:
    """The lock on a file, held until it is released; refused in one line where another process holds it."""
    lock = FileLock(path, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise HolmesError(refusal) from None
    return lock
