"""Extract the words of an index's videos in worker processes, and add them to the index.

Pictures come first, so a collection can be searched while its words are still being recognised.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holmes.base import processes
from holmes.base.processes import Child, available_cores
from holmes.errors import HolmesError
from holmes.heard.folder import HeardFile, HeardFolder, set_transcript
from holmes.heard.hearing import Hearing
from holmes.heard.passages import HEARD
from holmes.index.storage.passages import StoredWords, pack_words, searched
from holmes.index.storage.store import only_match
from holmes.index.storage.writer import IndexWriter
from holmes.media.encode_video import Outcome, Sign
from holmes.media.extraction import Failure
from holmes.media.film_progress import film_bar
from holmes.media.pool import ONE_THREAD
from holmes.results import Json, plainly

TIMEOUT = 1800.0  # seconds without a sign of life: five minutes of sound on a slow, busy core
MOST_SECONDS = 20.0  # seconds that finished videos wait at most before they are committed


@dataclass(frozen=True)
class HearSummary:
    """What became of every video that was to be heard."""

    heard: int
    unchanged: int  # heard before, in the same way
    passages: int  # of those that were heard now
    failures: tuple[Failure, ...] = ()
    notes: tuple[Failure, ...] = ()  # videos with something to say about them, such as no sound

    def to_dict(self) -> Json:
        plain: Json = plainly(asdict(self))
        return plain


def hear_index(
    path: Path | str,
    hearing: Hearing | None = None,
    *,
    workers: int | None = None,
    progress: bool = False,
    writer: Callable[[Path], Any] = IndexWriter,
) -> HearSummary:
    """Hear the videos of an index, and add their words; their pictures are not read again."""
    path, hearing = Path(path), hearing or Hearing.available()
    hearing.check()
    with writer(path) as opened:
        sources = [Path(name) for name in opened.store.positions]
        return hear_files(opened, path, sources, hearing, workers, progress)


def hear_files(
    writer: Any, path: Path, sources: Sequence[Path], hearing: Hearing, workers: int | None, progress: bool
) -> HearSummary:
    """Hear these videos of an open index; those whose words are current are left as they are."""
    folder = HeardFolder(path / HEARD)
    pending = PendingWords(writer)
    waiting, unchanged, failures, notes = list[Path](), 0, list[Failure](), list[Failure]()
    for source in sources:
        kept = folder.current(source, hearing)
        if kept is None and not source.is_file():
            failures.append(Failure(source, "its file is not there"))
        elif kept is None:
            waiting.append(source)
        elif writer.store.heard_stamp(str(source)) == kept.heard.stamp:
            unchanged += 1
        else:
            pending.offer(source, kept)
    with film_bar(waiting, unchanged, progress, "hearing") as shown:
        for source, failure in _heard(waiting, folder, hearing, workers, shown.sign):
            kept = folder.read(source)
            if failure or kept is None:
                failures.append(Failure(source, failure or "its passages were not kept"))
            else:
                notes += [Failure(source, note) for note in kept.notes]
                pending.offer(source, kept)
            shown.done(Outcome(source, failure))
    pending.commit()
    return HearSummary(pending.heard, unchanged, pending.passages, tuple(failures), tuple(notes))


def _heard(
    waiting: list[Path],
    folder: HeardFolder,
    hearing: Hearing,
    workers: int | None,
    report: Callable[[Sign], None],
) -> Iterable[tuple[Path, str]]:
    """Each source and why it failed, in the order they finish; a crash fails one video alone."""
    if not waiting:
        return
    cores = available_cores()
    workers = min(workers or cores, len(waiting))
    setup = {"folder": str(folder.path), "hearing": asdict(hearing), "threads": max(1, cores // workers)}
    jobs = processes.run_jobs(
        partial(Child, "holmes.heard.listen:hearing_worker", setup=setup, environment=ONE_THREAD),
        ((source, str(source)) for source in waiting),
        workers,
        report=lambda source, value: report(Sign(source, **value)),
        timeout=TIMEOUT,
    )
    with closing(jobs):
        for finished in jobs:
            crashed = finished.ending is not None and finished.ending.signal
            yield finished.job, f"the recogniser crashed ({crashed})" if crashed else finished.failure


class PendingWords:
    """Heard videos that wait for their vectors and to be added, in batches."""

    def __init__(self, writer: Any) -> None:
        self._writer, self._since = writer, time.monotonic()
        self._waiting: dict[Path, HeardFile] = {}
        self.heard, self.passages = 0, 0

    def offer(self, source: Path, kept: HeardFile) -> None:
        if not self._waiting:
            self._since = time.monotonic()
        self._waiting[source] = kept
        if time.monotonic() - self._since >= MOST_SECONDS:
            self.commit()

    def commit(self) -> None:
        """Add what is pending; when this returns it is on the disk."""
        waiting, self._waiting = self._waiting, {}
        words = [with_vectors(str(source), kept) for source, kept in waiting.items()]
        words = [video for video in words if video.name in self._writer.store]
        if words:
            self._writer.hear(words, encoder_digest())
        self.heard += len(words)
        self.passages += sum(len(video.passages) for video in words)


def with_vectors(name: str, kept: HeardFile) -> StoredWords:
    heard = kept.heard
    return pack_words(name, heard, sentence_vectors([passage.text for passage in searched(heard)]))


def set_words(
    path: Path, video: str, file: Path, *, writer: Callable[[Path], Any] = IndexWriter
) -> HeardFile:
    """Set the transcript of a video, which a path or file name stands for, by a subtitle file."""
    with writer(path) as opened:
        name = only_match(opened.store, video, path)
        kept = set_transcript(HeardFolder(path / HEARD), Path(name), file, opened.store[name].duration)
        opened.hear([with_vectors(name, kept)], encoder_digest())
    return kept


@cache
def _encoder() -> Any:
    """The encoder of what passages mean; None where its package is not installed."""
    from holmes.media.backbones.text import load_minilm

    try:
        return load_minilm(device="cpu")
    except HolmesError:
        return None


def encoder_digest() -> str:
    """The digest of the encoder of meaning; empty where there is none."""
    encoder = _encoder()
    return "" if encoder is None else str(encoder.digest)


def sentence_vectors(sentences: Sequence[str]) -> NDArray[np.float32] | None:
    """A unit vector for the meaning of each sentence; None without the encoder."""
    encoder = _encoder()
    if encoder is None or not sentences:
        return None
    return np.asarray(encoder.sentences(list(sentences)), np.float32)
