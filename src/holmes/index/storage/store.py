"""Open an index on disk: its segments, names and manifest.

    INDEX/manifest.json      what there is; replaced atomically
    INDEX/segments/00000001  files that are written once
    INDEX/lock               held by the one process that may change the index
    INDEX/sealed-*.json      snapshots: earlier manifests that others still read

A reader opens what one manifest names and keeps seeing just that. A writer writes a segment, syncs it, then
swaps the manifest; killed before, it leaves files that nothing names and that the next writer removes. If
somebody removes or moves the index meanwhile, and another writer makes one in its place, it touches neither.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from holmes.errors import HolmesError
from holmes.heard.passages import Heard, WordSource
from holmes.index.storage.manifest import Manifest, damaged, read_manifest
from holmes.index.storage.passages import PassageSegment
from holmes.index.storage.segments import Segment, StoredVideo
from holmes.results import Json

SEGMENTS = "segments"
FEATURES = "features"  # what was extracted for the index; it outlives an index that is built again
SEARCHES = "searches.json"  # saved searches
SKIPPED = "left_out.json"  # videos that could not be added, and why
OPEN_ATTEMPTS = 20  # for each, a compaction must end within the few ms of opening


@dataclass(frozen=True)
class IndexDescription:
    """What an index holds and which model made it."""

    path: str
    generation: int  # grows by one with every change
    videos: int
    hours: float
    removed: int  # videos whose space 'compact' would free
    bytes: int
    width: int  # of every embedding
    model: Json  # how to load the model again, and the digest of its weights
    extraction: Json  # how videos became features: backbone, rate
    segments: int | None = None  # None for a sharded index
    shards: int | None = None  # None for a single index
    passages: int | None = None  # of the words that are said and shown; None where none were heard

    def to_dict(self) -> Json:
        """Plain JSON values; `segments` or `shards` is omitted where it is None."""
        return {name: value for name, value in asdict(self).items() if value is not None}


class IndexStore:
    """What one manifest names, for reading. Unaffected by later changes; `open` again to see them."""

    def __init__(
        self,
        path: Path,
        manifest: Manifest,
        opened: Iterable[Segment] = (),
        opened_passages: Iterable[PassageSegment] = (),
    ) -> None:
        self.path, self.manifest = path, manifest
        known = {segment.entry.name: segment for segment in opened}
        heard = {segment.entry.name: segment for segment in opened_passages}
        self.segments = [
            known[entry.name].with_entry(entry)
            if entry.name in known
            else Segment(path / SEGMENTS / entry.name, entry, manifest.width, manifest.clips)
            for entry in manifest.segments
        ]
        self.passages = [
            heard[entry.name].with_entry(entry)
            if entry.name in heard
            else PassageSegment(path / SEGMENTS / entry.name, entry)
            for entry in manifest.passages
        ]

    @classmethod
    def open(
        cls,
        path: Path | str,
        opened: Iterable[Segment] = (),
        opened_passages: Iterable[PassageSegment] = (),
    ) -> IndexStore:
        """What the manifest names now; segments that were opened before are not opened again."""
        path = Path(path)
        for attempt in range(OPEN_ATTEMPTS):
            manifest = read_manifest(path)
            try:
                return cls(path, manifest, opened, opened_passages)
            except FileNotFoundError as error:
                missing = error.filename
                # A writer may have replaced segments since the manifest was read; then there is a newer one.
                if attempt and read_manifest(path) == manifest:
                    break
        raise damaged(path, f"{missing} is missing")

    @cached_property
    def positions(self) -> dict[str, tuple[int, int]]:
        """Every video's name, with its segment and its position there, in the order of the index."""
        positions: dict[str, tuple[int, int]] = {}
        for number, segment in enumerate(self.segments):
            removed = set(segment.entry.removed)
            positions.update((n, (number, at)) for at, n in enumerate(segment.names) if at not in removed)
        return positions

    @cached_property
    def durations(self) -> dict[str, float]:
        """Every video's seconds, by its name."""
        seconds = [segment.duration_V.tolist() for segment in self.segments]
        return {name: seconds[number][at] for name, (number, at) in self.positions.items()}

    def __len__(self) -> int:
        return self.manifest.videos

    def find(self, name: str) -> tuple[int, int] | None:
        """A video's segment and its position there, without listing all videos."""
        found = ((number, segment.find(name)) for number, segment in enumerate(self.segments))
        return next(((number, position) for number, position in found if position is not None), None)

    def find_all(self, names: set[str]) -> dict[str, tuple[int, int]]:
        """The same for many names; names that the index does not hold are omitted."""
        return {
            name: (number, segment.positions[name])
            for number, segment in enumerate(self.segments)
            for name in segment.positions.keys() & names
            if segment.positions[name] not in segment.removed
        }

    def __iter__(self) -> Iterator[str]:
        return iter(self.positions)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) is not None

    def stamp(self, name: str) -> int | None:
        """What a video's embedding was made from; None where there is no such video."""
        position = self.find(name)
        return None if position is None else int(self.segments[position[0]].stamp_V[position[1]])

    def __getitem__(self, name: str) -> StoredVideo:
        position = self.find(name)
        if position is None:
            raise KeyError(name)
        return self.segments[position[0]].video(position[1])

    def matching(self, pattern: str) -> list[str]:
        """Videos by path, by folder, by file name, or by a pattern such as *.mp4: the first way that fits.

        What is named exactly is not a pattern: 'clip[1].mkv' is not clip1.mkv where there is such a file.
        """
        return matching(self, pattern, self.path)

    def describe(self) -> IndexDescription:
        manifest = self.manifest
        return IndexDescription(
            path=str(self.path),
            generation=manifest.generation,
            videos=len(self),
            hours=sum(self.durations.values()) / 3600,
            removed=sum(len(segment.removed) for segment in manifest.segments),
            bytes=sum(file.bytes for files in manifest.folders.values() for file in files.values()),
            width=manifest.width,
            model=manifest.model,
            extraction=manifest.extraction,
            segments=len(manifest.segments),
            passages=sum(entry.passages for entry in manifest.passages) or None,
        )

    def heard(self, name: str) -> Heard | None:
        """The spoken and written words of a video; None where it was never heard."""
        for segment in self.passages:
            if name in segment.positions:
                return segment.heard(segment.positions[name])
        return None

    @property
    def heard_videos(self) -> int:
        """How many videos have been heard."""
        return sum(entry.live for entry in self.manifest.passages)

    @cached_property
    def heard_sources(self) -> list[str]:
        """What gave the passages, such as "speech (Whisper tiny.en …)", the most common first."""
        found: Counter[str] = Counter()
        for segment in self.passages:
            for at in segment.positions.values():
                for source, origin in segment.heard(at).sources.items():
                    known = origin if source in (WordSource.SPEECH.value, WordSource.SCREEN.value) else ""
                    found[f"{source} ({known})" if known else source] += 1
        return [f"{source}: {counted}" for source, counted in found.most_common()]

    def heard_stamp(self, name: str) -> str | None:
        """What a video's words were made from; None where it was never heard."""
        found = (segment.stamps[name] for segment in self.passages if name in segment.positions)
        return next(found, None)

    def faults(self) -> list[str]:
        """What is wrong with the files; reads all of them."""
        faults = [fault for segment in self.segments for fault in segment.faults()]
        return faults + [fault for segment in self.passages for fault in segment.faults()]


def matching(names: Collection[str], pattern: str, index: Path | str) -> list[str]:
    """The videos of `index` that a pattern stands for, see `IndexStore.matching`."""
    for exact in (pattern, os.path.abspath(pattern)):
        if exact in names:
            return [exact]
    inside = os.path.join(os.path.abspath(pattern), "")
    found = [name for name in names if name.startswith(inside)]
    found = found or [name for name in names if os.path.basename(name) == pattern]
    if not found:
        fits = re.compile(fnmatch.translate(pattern)).match
        found = [name for name in names if fits(name) or fits(os.path.basename(name))]
    if not found:
        raise HolmesError(f"no video of {index} matches '{pattern}'; 'holmes index info --json' lists them.")
    return found


def only_match(names: Collection[str], pattern: str, index: Path | str) -> str:
    """The one video that a pattern stands for; several are an error."""
    found = matching(names, pattern, index)
    if len(found) > 1:
        raise HolmesError(f"'{pattern}' matches {len(found):,} videos, such as {found[0]}; name one of them.")
    return found[0]
