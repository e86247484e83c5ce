"""From a video file to its passages: subtitles or speech, and text on screen. Read this file first.

Run it again and it continues: finished videos are not heard again, and a long one goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from holmes.base.processes import Parent
from holmes.errors import HolmesError
from holmes.heard import screen
from holmes.heard.audio import has_sound, read_sound
from holmes.heard.folder import HeardFile, HeardFolder, SavedScreen, made_of
from holmes.heard.hearing import Hearing
from holmes.heard.passages import Passage, WordSource, in_order, within
from holmes.heard.screen import Screen, TextReader
from holmes.heard.speech import Recogniser, doubt
from holmes.heard.subtitles import beside, read_embedded, read_subtitles
from holmes.media.containers import VideoError
from holmes.media.encode_video import Sign
from holmes.media.origin import Fingerprint, content_digest
from holmes.media.reader import PositionLostError, VideoReader

SAVE_EVERY = 20.0  # seconds of work that an interrupt may lose
Subtitles = tuple[Sequence[Passage], str]  # and where they come from
NO_SOUND, NO_SPEECH = "it has no sound", "no speech was heard in its sound"


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
        file, found = beside(work.source), list[tuple[WordSource, Callable[[], Subtitles]]]()
        if file is not None:
            found.append((WordSource.SUBTITLES, lambda: (read_subtitles(file), file.name)))
        found.append((WordSource.EMBEDDED, lambda: read_embedded(work.source)))
        for kind, read in found:
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


def hearing_worker(
    parent: Parent, folder: str, hearing: dict[str, Any], threads: int
) -> Callable[[str], dict[str, Any]]:
    """In a worker process, what hears one video: its path → its number of passages, and the seconds."""
    listener = Listener(HeardFolder(Path(folder)), Hearing(**hearing), threads)

    def report(sign: Sign) -> None:
        parent.report({"seconds": sign.seconds, "share": sign.share} if sign.seconds else {})

    def hear(source: str) -> dict[str, Any]:
        kept = listener(Path(source), report)
        return {"passages": len(kept.passages), "seconds": max((p.end for p in kept.passages), default=0.0)}

    return hear
