"""Save moments as video files: one clip per moment, or one reel."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from holmes.base.files import UMASK, take_name
from holmes.base.printing import clock
from holmes.base.progress import progress_bar
from holmes.editing.clips import AT_LEAST, FoundClip, check_clips, choose_clips, one_line, slug
from holmes.errors import HolmesError
from holmes.evidence.wording import percent
from holmes.index.answer.answers import Answer
from holmes.media.cutting import CutResult, FilmClip, write_clip, write_reel
from holmes.results import Json

T = TypeVar("T")
SUFFIX = ".mp4"


@dataclass(frozen=True)
class CutFile:
    """One file that was written."""

    file: str
    video: str  # the film; of a reel, the first one
    start: float  # seconds of the film that it holds
    end: float
    copied: bool  # whether the pictures are the film's own, not encoded again


@dataclass(frozen=True)
class CutSummary:
    """The files that were written, and the films that could not be read, with the reason."""

    files: tuple[CutFile, ...]
    failures: tuple[tuple[str, str], ...] = ()

    def to_dict(self) -> Json:
        failures = [{"video": video, "reason": reason} for video, reason in self.failures]
        return {"files": [asdict(each) for each in self.files], "failures": failures}


def cut(
    answer: Answer,
    out: Path | str,
    *,
    top: int = 5,
    at_least: float | None = AT_LEAST,
    pad: float = 0.0,
    exact: bool = False,
    reel: bool = False,
    progress: bool = False,
) -> CutSummary:
    """Write the moments of an answer as MP4 files into a folder; an existing file is never replaced.

    Args:
        answer: What a search answered.
        out: The folder; it is made if need be.
        top: How many hits at most.
        at_least: The least probability of a hit; without any probabilities, all hits are taken.
        pad: Seconds added before and after each moment.
        exact: Encode again, to begin and end with the very frame. Otherwise a clip is copied from the key
            frame before it, where its codecs allow.
        reel: Write one file instead, with a title before each moment.
        progress: Draw a progress bar.

    Example:
        >>> summary = holmes.cut(index.search("a dog runs"), "clips", top=1, at_least=0)
        >>> len(summary.files) >= 1, summary.failures
        (True, ())
    """
    clips = choose_clips(answer, top, at_least, pad)
    check_clips(clips, answer, at_least)
    folder = Path(out)
    files = [folder / name for name in ([reel_name(answer.query)] if reel else clip_names(clips))]
    for file in files:
        if os.path.lexists(file):
            raise _taken(file)
    folder.mkdir(parents=True, exist_ok=True)
    if reel:
        return _reel(clips, files[0], progress)
    made: list[CutFile] = []
    failures: list[tuple[str, str]] = []
    with progress_bar("cutting", len(clips), progress=progress) as advance:
        for clip, file in zip(clips, files, strict=True):
            try:
                held = into_new_file(file, partial(_write, film_clip(clip), exact))
                made.append(CutFile(str(file), clip.video, held.start, held.end, held.copied))
            except HolmesError as error:
                failures.append((clip.video, str(error)))
            advance(1)
    if not made:
        raise HolmesError(f"nothing could be cut; {failures[0][0]}: {failures[0][1]}.")
    return CutSummary(tuple(made), tuple(failures))


def _write(clip: FilmClip, exact: bool, path: str) -> CutResult:
    return write_clip(clip, path, exact=exact)


def _reel(clips: Sequence[FoundClip], file: Path, progress: bool) -> CutSummary:
    chosen = [film_clip(clip) for clip in clips]
    with progress_bar("cutting", len(clips), progress=progress) as advance:
        into_new_file(file, lambda path: write_reel(chosen, path, done=advance))
    seconds = sum(clip.end - clip.start for clip in clips)
    return CutSummary((CutFile(str(file), clips[0].video, 0.0, seconds, False),))


def film_clip(clip: FoundClip) -> FilmClip:
    """A clip with the title that a reel shows before it."""
    sure = "" if clip.probability is None else f" · {percent(clip.probability)}"
    moment = f"{clip.name} · {clock(clip.start)}–{clock(clip.end)}{sure}"
    return FilmClip(Path(clip.video), clip.start, clip.end, (one_line(clip.query), moment))


def clip_names(clips: Sequence[FoundClip]) -> list[str]:
    """A file name for each clip, such as 01-coast-0m04.mp4, whatever the film is called."""
    return [f"{number:02}-{clip_name(clip.video, clip.start)}" for number, clip in enumerate(clips, 1)]


def clip_name(video: str, start: float) -> str:
    return f"{slug(Path(video).stem)}-{clock(start).replace(':', 'm')}{SUFFIX}"


def reel_name(query: str) -> str:
    return f"{slug(query)}-reel{SUFFIX}"


def _taken(file: Path) -> HolmesError:
    return HolmesError(f"{file} exists; choose another folder, or move the file away.")


def into_new_file(file: Path, write: Callable[[str], T]) -> T:
    """Let `write` fill a temporary file, which becomes `file` if there is none by then."""
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=".", suffix=f".part{SUFFIX}")
    os.close(handle)
    try:
        result = write(temporary)
        os.chmod(temporary, 0o666 & ~UMASK)
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        if not take_name(Path(temporary), file):
            raise _taken(file)
        return result
    except BaseException as error:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            error.filename = str(file)  # a full disk names the file that was to be made
        raise
