"""From a video file to its passages: subtitles, else speech; and text on screen. The main flow of this part.

    HEARD/NAME-HASH.json    what one video says and shows, how far the recognisers have come, and what made it

Run it again and it continues: finished videos are not heard again, and a long one goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from holmes.base.manifests import FileFormat
from holmes.base.validation import AtMost, Within
from holmes.errors import HolmesError
from holmes.heard import screen, speech
from holmes.heard.audio import has_sound, read_sound
from holmes.heard.passages import MOST_SECONDS, Heard, Passage, WordSource, in_order, within
from holmes.heard.screen import Screen, ScreenLine, TextReader
from holmes.heard.speech import DEFAULT, Recogniser, doubt
from holmes.heard.subtitles import beside, read_embedded, read_subtitles
from holmes.media.containers import VideoError
from holmes.media.encode_video import Sign
from holmes.media.feature_folder import video_id
from holmes.media.origin import Fingerprint, content_digest
from holmes.media.reader import PositionLostError, ReadingPosition, VideoReader

SWITCH = "HOLMES_HEAR"  # set to 'off', nothing is heard unless it is asked for
SAVE_EVERY = 20.0  # seconds of work that an interrupt may lose
NO_SOUND, NO_SPEECH = "it has no sound", "no speech was heard in its sound"
FORMAT = FileFormat("holmes-heard", 1, "what a video says", "remove it, and hear the video again")
Seconds = Annotated[float, Within(0, MOST_SECONDS)]


@dataclass(frozen=True)
class Hearing:
    """What is listened for; `speech` names a Whisper model and is empty where speech is not recognised."""

    subtitles: bool = True
    speech: str = DEFAULT
    screen: bool = True

    @classmethod
    def available(cls, speech_model: str | None = None) -> Hearing:
        """Everything whose packages are installed."""
        able = speech.is_installed()
        return cls(True, speech_model or (DEFAULT if able else ""), screen.is_installed())

    @classmethod
    def default(cls) -> Hearing | None:
        """What is heard where nobody says: everything that can be, unless the environment says 'off'."""
        return None if os.environ.get(SWITCH, "").lower() == "off" else cls.available()

    @property
    def any(self) -> bool:
        return self.subtitles or bool(self.speech) or self.screen

    def check(self) -> None:
        """Refuse what cannot be done here, before the first video."""
        if self.speech:
            speech.model_folder(self.speech)
            if not speech.is_installed():
                raise HolmesError(f"recognising speech needs: pip install {' '.join(speech.PACKAGES)}")
        if self.screen:
            _ = TextReader().identity


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


class Listener:
    """Hears one video after the other; models are loaded when they are first needed."""

    def __init__(self, folder: HeardFolder, hearing: Hearing, threads: int = 1) -> None:
        self.folder, self.hearing = folder, hearing
        self._recogniser = Recogniser(hearing.speech, threads) if hearing.speech else None
        self._reader = TextReader(threads) if hearing.screen else None

    def __call__(self, source: Path, report: Callable[[Sign], None] = lambda sign: None) -> HeardFile:
        """Everything that a video says and shows; it is kept in the folder."""
        if (kept := self.folder.current(source, self.hearing)) is not None:
            return kept
        work = _Work(self.folder, source, self.hearing, report)
        seconds = work.seconds
        said = self._subtitles(work, seconds)
        if not said and self._recogniser is not None:
            self._speech(work, self._recogniser)
        if self._reader is not None:
            self._screen(work, self._reader)
        return work.finish(seconds)

    def _subtitles(self, work: _Work, seconds: float) -> bool:
        """Whether subtitles, beside the video or in it, say what is said."""
        if not self.hearing.subtitles:
            return False
        file = beside(work.source)
        for kind, name, read in (
            (WordSource.SUBTITLES, file.name if file else "", lambda: (read_subtitles(file), file.name)),  # type: ignore[arg-type,union-attr]
            (WordSource.EMBEDDED, "stream", lambda: read_embedded(work.source)),
        ):
            if not name:
                continue
            try:
                passages, origin = read()
            except HolmesError as error:
                work.note(str(error))
                continue
            kept, outside = within(passages, seconds) if seconds else (list(passages), 0)
            if outside:
                work.note(f"{outside} of {len(passages)} subtitles of {origin} begin after the film ends")
            if kept:
                work.kept = replace(work.kept, passages=in_order(kept), sources={kind.value: origin})
                return True
        return False

    def _speech(self, work: _Work, recogniser: Recogniser) -> None:
        try:
            if not has_sound(work.source):
                work.note(NO_SOUND)
                return
            work.add_source(WordSource.SPEECH, recogniser.identity)
            for piece in read_sound(work.source, work.kept.heard_to):
                heard = recogniser(piece)
                kept = work.kept
                work.kept = replace(
                    kept,
                    passages=in_order([*kept.passages, *heard.passages]),
                    heard_to=piece.end,
                    speech_seconds=kept.speech_seconds + heard.speech,
                    dropped_seconds=kept.dropped_seconds + heard.dropped,
                    language=heard.language or kept.language,
                )
                work.reached(piece.end, self.hearing.screen, first=True)
            kept = work.kept
            if note := doubt(recogniser.identity, kept.speech_seconds, kept.dropped_seconds, kept.language):
                work.note(note)
            elif not any(passage.source is WordSource.SPEECH for passage in kept.passages):
                work.note(NO_SPEECH)
        except HolmesError as error:
            work.note(f"its sound could not be heard to the end: {error}")

    def _screen(self, work: _Work, reader: TextReader) -> None:
        work.add_source(WordSource.SCREEN, reader.identity)
        try:
            try:
                self._read_screen(work, reader, work.kept.screen)
            except PositionLostError:
                self._read_screen(work, reader, None)
        except VideoError as error:
            work.note(f"its pictures could not be read: {error}")

    def _read_screen(self, work: _Work, reader: TextReader, earlier: SavedScreen | None) -> None:
        position = earlier.place if earlier else None
        frames = VideoReader(work.source, screen.RATE, screen.SIDE, resume=position)
        state = Screen(reader)
        if earlier is not None:
            state = Screen(
                reader, list(earlier.open), list(earlier.closed), earlier.readings, step=earlier.step
            )
        last: Any = None
        for sample in frames:
            if sample.image is not last:
                state.add(sample.time, sample.image)
                last = sample.image
            if work.is_late and (reached := frames.position()) is not None:
                saved = SavedScreen(
                    reached, tuple(state.open), tuple(state.closed), state.readings, state.step
                )
                work.kept = replace(work.kept, screen=saved)
            work.reached(sample.time, bool(self.hearing.speech), first=False)
        passages, always = state.passages(frames.duration)
        work.kept = replace(work.kept, screen=None, passages=in_order([*work.kept.passages, *passages]))
        if always:
            shown = ", ".join(f"'{line}'" for line in always[:3])
            work.note(f"text that stands there throughout was left out: {shown}")


class _Work:
    """One video while it is heard: what is known so far, saved now and then."""

    def __init__(
        self, folder: HeardFolder, source: Path, hearing: Hearing, report: Callable[[Sign], None]
    ) -> None:
        self.folder, self.source, self._report = folder, source, report
        self._fingerprint = Fingerprint.of(source)
        wanted = made_of(source, hearing)
        earlier = folder.read(source)
        same = (
            earlier is not None
            and earlier.fingerprint == self._fingerprint
            and earlier.made_of == wanted
            and not earlier.complete
        )
        if earlier is not None and same:
            self.kept = replace(earlier, notes=())
        else:
            content = content_digest(source, lambda: report(Sign(source)))
            self.kept = HeardFile(str(source), self._fingerprint, content, wanted)
        self._saved_at = time.monotonic()
        self.seconds = _length(source)

    @property
    def is_late(self) -> bool:
        return time.monotonic() - self._saved_at >= SAVE_EVERY

    def note(self, line: str) -> None:
        if line not in self.kept.notes:
            self.kept = replace(self.kept, notes=(*self.kept.notes, " ".join(line.split())[:500]))

    def add_source(self, source: WordSource, origin: str) -> None:
        self.kept = replace(self.kept, sources={**self.kept.sources, source.value: origin})

    def reached(self, seconds: float, halved: bool, first: bool) -> None:
        """Tell how far it is, and save what there is now and then."""
        share = min(1.0, seconds / max(self.seconds, 1e-9))
        share = share / 2 + (0.0 if first else 0.5) if halved else share
        self._report(Sign(self.source, share * self.seconds, share))
        if self.is_late:
            self.folder.write(self.source, self.kept)
            self._saved_at = time.monotonic()

    def finish(self, seconds: float) -> HeardFile:
        if Fingerprint.of(self.source) != self._fingerprint:
            raise HolmesError("it changed while it was heard; hear it again when it is complete")
        if seconds:
            self.kept = replace(self.kept, passages=in_order(within(self.kept.passages, seconds)[0]))
        self.kept = replace(self.kept, complete=True, screen=None)
        self.folder.write(self.source, self.kept)
        self._report(Sign(self.source, self.seconds, 1.0))
        return self.kept


def _length(source: Path) -> float:
    """The seconds of a file, as it says; 0 where it does not."""
    from holmes.media.containers import av_library, open_container

    with open_container(av_library(), source) as container:
        return max(0.0, float(container.duration or 0) / 1_000_000)


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
    notes = (
        (f"{outside} of {len(passages)} lines of {file.name} begin after the film ends",) if outside else ()
    )
    made = HeardFile(
        source=str(source),
        fingerprint=fingerprint,
        content=earlier.content if earlier else "",
        made_of=earlier.made_of if earlier else "",
        passages=in_order([*kept, *written]),
        sources=sources,
        notes=notes if outside else (),
        complete=True,
        corrected=True,
    )
    folder.write(source, made)
    return made
