"""The files with the passages of an index's videos, one per video.

HEARD/NAME-HASH.json    what one video says and shows, how far the recognisers have come, and what made it
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from holmes.base.manifests import FileFormat
from holmes.base.validation import AtMost, Within
from holmes.errors import HolmesError
from holmes.heard.hearing import Hearing
from holmes.heard.passages import MOST_SECONDS, Heard, Passage, WordSource, in_order, within
from holmes.heard.screen import ScreenLine
from holmes.heard.subtitles import beside, read_subtitles
from holmes.media.feature_folder import video_id
from holmes.media.origin import Fingerprint
from holmes.media.reader import ReadingPosition

FORMAT = FileFormat("holmes-heard", 1, "what a video says", "remove it, and hear the video again")
Seconds = Annotated[float, Within(0, MOST_SECONDS)]


@dataclass(frozen=True)
class SavedScreen:
    """How far the reading of the screen has come."""

    place: ReadingPosition  # the name in the file
    open: tuple[ScreenLine, ...]
    closed: tuple[ScreenLine, ...]
    readings: int
    step: int


@dataclass(frozen=True)
class HeardFile:
    """What is kept of one video."""

    source: Annotated[str, AtMost(1 << 16)]
    fingerprint: Fingerprint
    content: str  # SHA-256 of the video file
    made_of: str  # of the settings, and of the subtitle file
    passages: tuple[Passage, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    complete: bool = False
    corrected: bool = False  # a person set it: it is not heard again
    heard_to: Seconds = 0.0  # of the speech
    speech_seconds: float = 0.0
    dropped_seconds: float = 0.0
    language: str = ""
    screen: SavedScreen | None = None

    @property
    def heard(self) -> Heard:
        parts = [self.content, self.made_of, self.corrected, [p.to_dict() for p in self.passages]]
        stamp = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
        return Heard(self.passages, dict(self.sources), self.notes, stamp)


class HeardFolder:
    """The passages of an index's videos as they were heard; they outlive an index that is built again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def file(self, source: Path) -> Path:
        return self.path / f"{video_id(source)}.json"

    def read(self, source: Path) -> HeardFile | None:
        """What is kept of a video; None where there is nothing, or it is damaged."""
        try:
            if not self.file(source).is_file():
                return None
            return FORMAT.read(self.file(source), HeardFile)
        except (HolmesError, OSError):
            return None

    def write(self, source: Path, kept: HeardFile) -> None:
        FORMAT.write(self.file(source), asdict(kept))

    def current(self, source: Path, hearing: Hearing) -> HeardFile | None:
        """What is kept of this very file, if it is complete and was heard with these settings."""
        kept = self.read(source)
        try:
            if kept is None or not kept.complete or kept.fingerprint != Fingerprint.of(source):
                return None
        except OSError:
            return None
        return kept if kept.corrected or kept.made_of == made_of(source, hearing) else None

    def move(self, before: Path, now: Path) -> None:
        """Keep what was heard for the same content under another path."""
        kept = self.read(before)
        if kept is not None and before != now:
            self.write(now, replace(kept, source=str(now), fingerprint=Fingerprint.of(now)))


def made_of(source: Path, hearing: Hearing) -> str:
    """A digest of all but the video that decides what is heard."""
    file = beside(source) if hearing.subtitles else None
    about: dict[str, Any] = {
        "subtitles": hearing.subtitles,
        "speech": hearing.speech,
        "screen": hearing.screen,
    }
    if file is not None:
        try:
            about["file"] = [file.name, file.stat().st_size, file.stat().st_mtime_ns]
        except OSError:
            about["file"] = [file.name]
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def set_transcript(folder: HeardFolder, source: Path, file: Path, seconds: float) -> HeardFile:
    """Keep a transcript that a person gives for a video; text on screen stays as it was read."""
    passages = read_subtitles(file, WordSource.CORRECTED)
    kept, outside = within(passages, seconds)
    if not kept:
        raise HolmesError(
            f"all {len(passages)} lines of {file} begin after {source.name} ends ({seconds:.0f} s); "
            "is it the transcript of another video?"
        )
    earlier = folder.read(source)
    try:
        fingerprint = Fingerprint.of(source)
    except OSError:  # the file is gone; its words may be set all the same
        fingerprint = earlier.fingerprint if earlier else Fingerprint(0, 0)
    written = [p for p in earlier.passages if p.source is WordSource.SCREEN] if earlier else []
    sources = {WordSource.CORRECTED.value: file.name}
    if earlier is not None and WordSource.SCREEN.value in earlier.sources:
        sources[WordSource.SCREEN.value] = earlier.sources[WordSource.SCREEN.value]
    note = f"{outside} of {len(passages)} lines of {file.name} begin after the film ends"
    made = HeardFile(
        source=str(source),
        fingerprint=fingerprint,
        content=earlier.content if earlier else "",
        made_of=earlier.made_of if earlier else "",
        passages=in_order([*kept, *written]),
        sources=sources,
        notes=(note,) if outside else (),
        complete=True,
        corrected=True,
    )
    folder.write(source, made)
    return made
