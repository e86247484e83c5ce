"""Notices whatever is opened, read, written, made or removed in a folder, by anyone: Linux counts it."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

CLOSED = 0x8 | 0x10  # that a file was closed says nothing that its opening did not
EVERYTHING = 0xFFF & ~CLOSED
HEAD = struct.Struct("iIII")


class FolderWitness:
    """Watches one folder, not those below it."""

    def __init__(self, folder: Path) -> None:
        system = ctypes.CDLL(None, use_errno=True)
        self._events: int = system.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._events < 0 or system.inotify_add_watch(self._events, os.fsencode(folder), EVERYTHING) < 0:
            raise OSError(ctypes.get_errno(), "the folder cannot be watched", str(folder))

    def seen(self) -> set[str]:
        """The names that were touched since the last call; the folder itself is '.'."""
        names = set()
        while True:
            try:
                events = os.read(self._events, 1 << 16)
            except BlockingIOError:
                return names
            while events:
                *_, length = HEAD.unpack_from(events)
                name = events[HEAD.size : HEAD.size + length].rstrip(b"\0")
                names.add(os.fsdecode(name) or ".")
                events = events[HEAD.size + length :]

    def close(self) -> None:
        os.close(self._events)
