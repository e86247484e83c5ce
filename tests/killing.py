"""Kill a piece of work before each of its file operations in turn.

The work runs in a forked child. There every call that changes files counts: Python reports those that make,
rename or remove them, and `os.fsync`, before which everything written may also be only half there. The child
ends at the chosen one without any cleaning up, as by `kill -9`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink"}
CHANGES |= {"shutil.rmtree"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
KILLED = 77


class Counter:
    """Counts the operations of this process inside `folder`, and ends it at one of them."""

    def __init__(self, folder: Path, end_at: int, torn: bool) -> None:
        self.folder, self.end_at, self.torn = str(folder), end_at, torn
        self.seen: list[bool] = []  # of each operation, whether it syncs a file that others can see
        self.synced: dict[int, int] = {}  # bytes of each file, by its number, that cannot get lost any more
        os.fsync = self.on_fsync  # type: ignore[assignment]
        sys.addaudithook(self.on_event)

    def on_event(self, event: str, arguments: tuple) -> None:
        if event == "open":
            path, _, flags = arguments
            if not (isinstance(path, str | bytes | os.PathLike) and flags & WRITING):
                return
        elif event not in CHANGES:
            return
        named = [os.fsdecode(path) for path in arguments if isinstance(path, str | bytes | os.PathLike)]
        # Names without a folder are relative to an open one, which is ours.
        if any(path.startswith(self.folder) or not os.path.isabs(path) for path in named):
            self.count()

    def on_fsync(self, descriptor: int) -> None:
        """Nothing is synced: a kill, other than a failure of power, loses nothing that was written."""
        self.count(descriptor)
        file = os.fstat(descriptor)
        self.synced[file.st_ino] = file.st_size

    def count(self, descriptor: int | None = None) -> None:
        name = "" if descriptor is None else os.readlink(f"/proc/self/fd/{descriptor}")
        # Half of a file that has no name yet (`atomic_file`) is as good as none of it.
        self.seen.append(os.path.isfile(name) and not name.endswith(".part"))
        if len(self.seen) == self.end_at:
            if self.torn and descriptor is not None:
                file = os.fstat(descriptor)
                safe = min(self.synced.get(file.st_ino, 0), file.st_size)
                os.ftruncate(descriptor, (safe + file.st_size) // 2)
            os._exit(KILLED)


def run_until(folder: Path, work: Callable[[], object], end_at: int = 0, torn: bool = False) -> list[bool]:
    """Run the work in a child that ends at that operation; return what it counted if it was not killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reading)
            counter = Counter(folder, end_at, torn)
            work()
            os.write(writing, bytes(counter.seen))
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, KILLED), f"the work failed at operation {end_at} ({code})"
    return [bool(syncs) for syncs in said]


def every_kill(
    folder: Path, work: Callable[[], object], prepare: Callable[[], object], last: int = 10**9
) -> Iterator[str]:
    """After each kill it yields what was killed; `prepare` makes everything as it was before the work.

    `last` leaves out all but this many operations at the end, where the others are tested elsewhere.
    """
    prepare()
    operations = run_until(folder, work)
    assert operations, "the work changes no file"
    for number, syncs in list(enumerate(operations, start=1))[-last:]:
        for torn in (False, True) if syncs else (False,):
            prepare()
            run_until(folder, work, number, torn)
            yield f"operation {number} of {len(operations)}{', half written' * torn}"


def contents(folder: Path) -> dict[str, bytes]:
    """Every file under a folder, by its name."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
    }
