"""Keep looking at folders, again and again: network shares do not tell when something changes on them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from holmes.errors import HolmesError
from holmes.index.library import SyncSummary
from holmes.media.find import walk_videos

State = dict[str, tuple[int, int]]  # path → size and time of change


def looks(
    sync: Callable[[], SyncSummary],
    folders: Iterable[Path],
    every: float,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[SyncSummary | str]:
    """What each look gave: a summary, or in one line why there is none; a later look may succeed.

    A folder in which nothing changed since it was last synced is not synced again, and one in which something
    changes between two looks is left until it is at rest: a file that is being copied is not yet a video.
    """
    roots, synced, before = [os.path.abspath(folder) for folder in folders], None, None
    while True:
        now = _state(roots)
        if now != synced and (now == before or synced is None):
            try:
                summary = sync()
                synced = now
                yield summary
            except HolmesError as error:
                yield str(error)
        before = now
        sleep(every)


def _state(roots: list[str]) -> State:
    state: State = {root: (0, int(os.path.isdir(root))) for root in roots}
    closed: list[OSError] = []
    for root in roots:
        for file in walk_videos(root, closed):
            try:
                info = os.stat(file)
                state[file] = (info.st_size, info.st_mtime_ns)
            except OSError:
                state[file] = (-1, -1)
    state.update({str(error.filename): (-2, error.errno or 0) for error in closed})
    return state
