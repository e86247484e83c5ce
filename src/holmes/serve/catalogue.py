"""The videos of an index for the page: ids that are safe in addresses, titles, folders.

Only what the index names can be reached. An id is looked up, never turned into a path. A link is followed
only to a video in a folder that the index held videos of when it was opened.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property, lru_cache
from pathlib import Path

from holmes.base.printing import shown
from holmes.errors import HolmesError
from holmes.media.feature_folder import video_id
from holmes.media.find import SUFFIXES, is_video_file

FOLDERS_LISTED = 500
DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class NotFoundError(HolmesError):
    """What was asked for does not exist, or access to it is not allowed."""


@dataclass(frozen=True)
class Entry:
    """One video of the index."""

    id: str
    name: str  # the path of its file
    duration: float

    @property
    def title(self) -> str:
        return os.path.basename(self.name) or self.name

    @property
    def folder(self) -> str:
        return os.path.dirname(self.name)


@dataclass(frozen=True)
class Filter:
    """Which videos may be found; dates are those of the files, the last day included."""

    folder: str | None = None
    after: date | None = None
    before: date | None = None
    shortest: float | None = None  # seconds
    longest: float | None = None

    @property
    def by_date(self) -> bool:
        return self.after is not None or self.before is not None


class VideoCatalogue:
    """What one snapshot of the index holds; a changed index gets a new catalogue."""

    def __init__(self, durations: Mapping[str, float]) -> None:
        self.entries = [Entry(video_id(Path(name)), name, seconds) for name, seconds in durations.items()]
        self._by_id = {entry.id: entry for entry in self.entries}
        self.by_name = {entry.name: entry for entry in self.entries}
        self._real_folders = {os.path.realpath(folder) for folder in self.folders}
        self.names = lru_cache(64)(self._names)
        self.listed = lru_cache(16)(self._listed)

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, id: str) -> Entry:
        try:
            return self._by_id[id]
        except KeyError:
            raise NotFoundError("there is no video with this id.") from None

    @cached_property
    def folders(self) -> Counter[str]:
        """How many videos lie in each folder itself."""
        return Counter(entry.folder for entry in self.entries)

    def file(self, entry: Entry) -> Path:
        """The video's file, if it is still there and still the one that the index means."""
        real = os.path.realpath(entry.name)
        try:
            mode = os.stat(real).st_mode
        except (OSError, ValueError):
            raise NotFoundError("the file of this video is gone; it can be found, but not played.") from None
        inside = os.path.dirname(real) in self._real_folders
        renamed = os.path.basename(real) != entry.title and not real.lower().endswith(SUFFIXES)
        if not stat.S_ISREG(mode) or not inside or renamed or not os.path.isabs(entry.name):
            raise NotFoundError("the file of this video is a link that leads out of the index's folders.")
        if not is_video_file(real):  # an index may name any file; only videos are given out
            raise NotFoundError("the file of this video is not a video.")
        return Path(real)

    def has_file(self, entry: Entry) -> bool:
        try:
            self.file(entry)
        except NotFoundError:
            return False
        return True

    def matching(self, filter: Filter) -> list[Entry]:
        wanted = self.names(filter)
        return self.entries if wanted is None else [entry for entry in self.entries if entry.name in wanted]

    def _listed(self, filter: Filter, part: str, sort: str, up: bool | None) -> tuple[Entry, ...]:
        """The videos that fit and have `part` in their path, in order; each order has its own direction."""
        found = [entry for entry in self.matching(filter) if part in entry.name.casefold()]
        if sort == "name":
            found.sort(key=lambda entry: (entry.title.casefold(), entry.name), reverse=up is False)
        elif sort == "length":
            found.sort(key=lambda entry: entry.duration, reverse=not up)
        elif sort == "date":  # files that are gone have no date and come last
            dated = [entry for entry in found if entry.name in self.changed]
            dated.sort(key=lambda entry: self.changed[entry.name], reverse=not up)
            found = dated + [entry for entry in found if entry.name not in self.changed]
        elif sort == "added" and not up:
            found.reverse()
        return tuple(found)

    def fitting(self, pattern: str) -> frozenset[str]:
        """The names of videos whose path or file name fits a pattern such as */2024/*."""
        fits = re.compile(fnmatch.translate(pattern)).match
        names = frozenset(entry.name for entry in self.entries if fits(entry.name) or fits(entry.title))
        if not names:
            raise NotFoundError(f"no video matches '{pattern}'.")
        return names

    def _names(self, filter: Filter) -> frozenset[str] | None:
        """The names of the videos that fit; None where all do."""
        if filter == Filter():
            return None
        below = None if filter.folder is None else filter.folder.rstrip("/") + "/"
        shortest, longest = filter.shortest or 0.0, filter.longest or float("inf")
        return frozenset(
            entry.name
            for entry in self.entries
            if (below is None or entry.name.startswith(below))
            and shortest <= entry.duration <= longest
            and (not filter.by_date or _fits(self.changed.get(entry.name), filter))
        )

    @cached_property
    def changed(self) -> dict[str, datetime]:
        """When each file was last changed; asks the disk about every file, so it is called only if needed."""
        found = ((entry.name, file_time(entry)) for entry in self.entries)
        return {name: time for name, time in found if time is not None}


def file_time(entry: Entry) -> datetime | None:
    try:
        return datetime.fromtimestamp(os.stat(entry.name).st_mtime, UTC)
    except (OSError, ValueError, OverflowError):
        return None


def file_date(entry: Entry) -> date | None:
    changed = file_time(entry)
    return None if changed is None else changed.date()


def _fits(changed: datetime | None, filter: Filter) -> bool:
    if changed is None:
        return False
    day = changed.date()
    return (filter.after is None or day >= filter.after) and (filter.before is None or day <= filter.before)


def parse_day(name: str, text: str | None) -> date | None:
    """A day such as 2024-12-31; `name` is what a message calls it."""
    if text is None:
        return None
    try:
        if not DAY.fullmatch(text):
            raise ValueError
        return date.fromisoformat(text)
    except ValueError:
        raise HolmesError(f"{name}: write a day as 2024-12-31, not {shown(text)}.") from None
