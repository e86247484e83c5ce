"""Kill a piece of work before each of its file operations in turn.

The work runs once, in a forked child. There every call that changes files counts: Python reports those that
make, rename or remove them, and `os.fsync`, before which everything written may also be only half there. The
folder is copied before each of them. The copy is what `kill -9` would leave at this moment: nothing of it was
cleaned up, and what the process has not yet handed to the system is not in it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink"}
CHANGES |= {"shutil.rmtree"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
WHOLE, TORN = "", ", half written"


def changes_files(event: str, arguments: tuple, folder: Path) -> bool:
    """Whether an audit event is about to change files of a folder."""
    if event == "open":
        path, _, flags = arguments
        if not (isinstance(path, str | bytes | os.PathLike) and flags & WRITING):
            return False
    elif event not in CHANGES:
        return False
    named = [os.fsdecode(path) for path in arguments if isinstance(path, str | bytes | os.PathLike)]
    # Names without a folder are relative to an open one, which is ours.
    return any(path.startswith(str(folder)) or not os.path.isabs(path) for path in named)


class Witness:
    """Keeps what `folder` holds before each operation of this process, in folders of `states`."""

    def __init__(self, folder: Path, states: Path) -> None:
        self.folder, self.states = folder, states
        self.operations, self.copying = 0, False
        self.lock = threading.RLock()  # another thread changes nothing while this one copies
        self.synced: dict[int, int] = {}  # bytes of each file, by its number, that cannot get lost any more
        os.fsync = self.on_fsync  # type: ignore[assignment]
        sys.addaudithook(self.on_event)

    def on_event(self, event: str, arguments: tuple) -> None:
        if changes_files(event, arguments, self.folder):
            with self.lock:
                self.keep()

    def on_fsync(self, descriptor: int) -> None:
        """Nothing is synced: a kill, other than a failure of power, loses nothing that was written."""
        with self.lock:
            self.keep()
            file, name = os.fstat(descriptor), os.readlink(f"/proc/self/fd/{descriptor}")
            # Half of a file that has no name yet (`atomic_file`) is as good as none of it.
            if os.path.isfile(name) and not name.endswith(".part"):
                safe = min(self.synced.get(file.st_ino, 0), file.st_size)
                torn = self.copy(TORN) / Path(name).relative_to(self.folder)
                os.truncate(torn, (safe + file.st_size) // 2)
            self.synced[file.st_ino] = file.st_size

    def keep(self) -> None:
        if not self.copying:  # copying is not the work
            self.operations += 1
            self.copy(WHOLE)

    def copy(self, how: str) -> Path:
        self.copying = True
        kept = self.states / f"{self.operations}{how}"
        try:
            shutil.copytree(self.folder, kept, symlinks=True)
        except OSError:  # must not be taken for a failure of the operation, which the work may expect
            traceback.print_exc()
            os._exit(1)
        self.copying = False
        return kept


def die_before(operation: int, folder: Path) -> None:
    """Kill this process with SIGKILL before its operation of that number, counted from 1, on the folder."""
    left = operation

    def on_event(event: str, arguments: tuple) -> None:
        nonlocal left
        if changes_files(event, arguments, folder):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(on_event)


def observe(folder: Path, work: Callable[[], object], states: Path) -> None:
    """Run the work to its end in a child, and keep what the folder holds before each operation."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            Witness(folder, states)
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, "the work failed"


def every_kill(
    folder: Path, work: Callable[[], object], prepare: Callable[[], object], last: int = 10**9
) -> Iterator[str]:
    """After each kill it yields what was killed; `prepare` makes everything as it was before the work.

    `last` leaves out all but this many operations at the end, where the others are tested elsewhere.
    """
    prepare()
    with tempfile.TemporaryDirectory(dir=folder.parent) as kept:
        states = Path(kept)
        observe(folder, work, states)
        operations = sum(not path.name.endswith(TORN) for path in states.iterdir())
        assert operations, "the work changes no file"
        seen = set[str]()  # most operations find what the one before found
        for number in range(max(1, operations - last + 1), operations + 1):
            for how in (WHOLE, TORN):
                state = states / f"{number}{how}"
                if state.exists() and (found := digest(state)) not in seen:
                    seen.add(found)
                    shutil.rmtree(folder)
                    state.rename(folder)
                    yield f"operation {number} of {operations}{how}"


def digest(folder: Path) -> str:
    """The same for folders with the same names, kinds and contents."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        content = os.readlink(path) if path.is_symlink() else "" if path.is_dir() else path.read_bytes()
        found.update(repr((str(path.relative_to(folder)), path.lstat().st_mode, content)).encode())
    return found.hexdigest()


def contents(folder: Path) -> dict[str, bytes]:
    """Every file under a folder, by its name."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
    }
