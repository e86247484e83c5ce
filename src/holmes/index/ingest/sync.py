"""Update an index to match a folder: new, changed, moved and deleted videos, once or repeatedly.

The flow: list the folder's videos, add those that are new or changed, rename those that have moved, remove
those that were deleted. A video is removed only if it is known to be deleted: a disk that is not connected
shows an empty folder, or none at all.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from holmes.errors import HolmesError
from holmes.index.embedders.loading import Model
from holmes.index.ingest.builder import BuildSummary, IngestOptions, Session, feature_folder, open_session
from holmes.index.ingest.file_identity import FeatureCatalogue
from holmes.index.storage.writer import IndexWriter
from holmes.media.find import walk_videos
from holmes.media.origin import Origin, is_disconnected

GONE = {errno.ENOENT, errno.ENOTDIR}


@dataclass(frozen=True)
class SyncSummary(BuildSummary):
    """What became of a folder's videos, and of the index's videos that were in it."""

    removed: tuple[str, ...] = ()
    away: tuple[str, ...] = ()  # not found, but perhaps only not connected: kept

    @property
    def changes(self) -> int:
        return self.added + len(self.moved) + len(self.removed)


def sync_index(
    path: Path | str,
    folders: Iterable[Path | str],
    *,
    model: Model | None = None,
    writer: Callable[[Path], Any] = IndexWriter,
    **how: Unpack[IngestOptions],
) -> SyncSummary:
    """Make the index hold just the videos that `folders` hold; videos from elsewhere stay as they are."""
    path, roots = Path(path), [os.path.abspath(folder) for folder in folders]
    for root in roots:
        if not os.path.isdir(root):
            raise HolmesError(f"{root} does not exist; nothing was changed. Is its disk or share connected?")
    with open_session(path, model=model, writer=writer, **how) as session:
        seen, unreadable = _list_videos(roots)
        _refuse_empty(roots, seen, session)
        catalogue = FeatureCatalogue(feature_folder(session))
        store = session.writer.store
        waiting = [s for s in seen if not (str(s) in store and catalogue.is_current(s))]
        unchanged = len(seen) - len(waiting)
        summary = session.add_files(waiting, catalogue)
        gone, away = _missing(roots, set(seen), unreadable, session, catalogue)
        if gone:
            session.writer.remove(gone)
    known = {**vars(summary), "unchanged": unchanged + summary.unchanged}
    return SyncSummary(**known, removed=tuple(gone), away=tuple(away))


def _list_videos(roots: list[str]) -> tuple[list[Path], list[str]]:
    """The videos in the folders, each once, and the folders that could not be searched."""
    unreadable: list[OSError] = []
    found = dict.fromkeys(Path(file) for root in roots for file in walk_videos(root, unreadable))
    return list(found), [str(error.filename) for error in unreadable]


def _refuse_empty(roots: list[str], seen: list[Path], session: Session) -> None:
    """Refuse an empty folder that had videos: it may be a mount point whose disk is away."""
    for root in roots:
        inside = [name for name in session.writer.store.positions if _is_under(name, [root])]
        if inside and not any(_is_under(str(source), [root]) for source in seen):
            raise HolmesError(
                f"{root} contains no videos now, but the index has {len(inside)} from it; nothing was "
                f"changed. Is its disk connected? If they were deleted: "
                f"holmes index remove {session.path} {root}"
            )


def _missing(
    roots: list[str], seen: set[Path], unreadable: list[str], session: Session, catalogue: FeatureCatalogue
) -> tuple[list[str], list[str]]:
    """The index's videos of these folders that are not found there: deleted ones, and perhaps hidden ones."""
    gone, away = list[str](), list[str]()
    for name in session.writer.store.positions:
        if Path(name) in seen or not _is_under(name, roots) or os.path.exists(name):
            continue
        hidden = _is_under(name, unreadable) or _may_be_away(name, catalogue.origin(Path(name)))
        (away if hidden else gone).append(name)
    return gone, away


def _may_be_away(name: str, origin: Origin | None) -> bool:
    """Whether a file that is not found may still exist on a disk or share that is not connected."""
    if origin is not None and is_disconnected(origin):
        return True
    try:
        os.stat(name)
    except OSError as error:
        if error.errno not in GONE:
            return True
    folder = os.path.dirname(name)
    while not os.path.isdir(folder):
        if os.path.islink(folder):  # a link that leads nowhere
            return True
        folder = os.path.dirname(folder)
    return not os.listdir(folder)  # an empty folder may be where a disk is mounted at other times


def _is_under(name: str, folders: Iterable[str]) -> bool:
    return any(name == folder or name.startswith(folder.rstrip(os.sep) + os.sep) for folder in folders)


State = dict[str, tuple[int, int]]  # path → size and time of change


def watch_folders(
    sync: Callable[[], SyncSummary],
    folders: Iterable[Path],
    every: float,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[SyncSummary | str]:
    """Sync again and again: yields a summary, or in one line why a sync failed; a later one may succeed.

    Nothing is synced while the folders are unchanged, or still changing between two polls: a file that is
    being copied is not yet a video.
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
    unreadable: list[OSError] = []
    for root in roots:
        for file in walk_videos(root, unreadable):
            try:
                info = os.stat(file)
                state[file] = (info.st_size, info.st_mtime_ns)
            except OSError:
                state[file] = (-1, -1)
    state.update({str(error.filename): (-2, error.errno or 0) for error in unreadable})
    return state
