"""Divide a film into chapters: its scenes, with titles where they are known.

A title is what is seen, or else what is said there. What is seen is a caption of the vocabulary whose search
finds this film, with at least 60%, and this scene. Where an index is not calibrated nothing is said to be
seen, and a scene without a title is only numbered.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from holmes.base.files import read_file
from holmes.editing.clips import one_line
from holmes.editing.formats import vtt_chapters, youtube_chapters
from holmes.editing.vocabulary import CAPTIONS
from holmes.errors import HolmesError, unknown
from holmes.index.answer.base import SearchIndex
from holmes.index.answer.searcher import Index
from holmes.index.answer.timeline import frames_in_time, frames_of
from holmes.index.embedders.scenes import scene_times
from holmes.moments import Moment
from holmes.results import Json

SHORTEST = 10.0  # seconds of a chapter; YouTube shows no shorter ones
# Longer films get fewer chapters an hour.
PRICE, PRICE_PER_SECOND = 2.0, 1 / 150
FITS, SEEN = "fits", "seen"
SURE = 0.6  # the least probability that the film, of all in the index, is the one that a caption means
COVERED = 0.5  # the share of a scene, or of the caption's moment, that they must have in common
MOST_CAPTIONS, LONGEST_TITLE = 2000, 60
FORMATS = ("text", "vtt", "json")


@dataclass(frozen=True)
class Chapter:
    """Seconds `start` to `end` of a film, and what to call them."""

    start: float
    end: float
    title: str
    seen: str | None = None  # a caption that fits
    said: str | None = None  # the first sentence that is said

    def to_dict(self) -> Json:
        return asdict(self)


def chapters(
    index: SearchIndex,
    video: str,
    *,
    captions: Sequence[str] = CAPTIONS,
    shortest: float = SHORTEST,
) -> tuple[Chapter, ...]:
    """The chapters of one film of an index, in order, from its first second to its last.

    Args:
        index: An open index, where its files are.
        video: The film's name, as the index knows it.
        captions: What may be seen: the titles to choose from.
        shortest: The least seconds of a chapter.

    Example:
        >>> found = holmes.chapters(index, index.videos[0])
        >>> found[0].start, found[-1].end == index.duration(index.videos[0])
        (0.0, True)
    """
    if not isinstance(index, Index):
        raise HolmesError("chapters need the files of one index; open its folder, or the film's shard.")
    if not 0 <= shortest <= 1e6:
        raise HolmesError(f"shortest must be a number of seconds, not {shortest!r}.")
    if video not in index.store:
        raise HolmesError(f"the index contains no video named '{video}'.")
    stored = index.store[video]
    spans_SF2, kept_SF = frames_in_time(stored)
    duration = index.duration(video)
    price = PRICE + duration * PRICE_PER_SECOND
    edges = scene_times(frames_of(stored), spans_SF2[kept_SF][:, 0], duration, price, shortest)
    seen = seen_in(index, video, edges, captions)
    said = said_in(index, video, edges)
    found = []
    for number, (start, end) in enumerate(pairwise(edges)):
        title = seen[number] or said[number] or f"Scene {number + 1}"
        found.append(Chapter(start, end, title, seen[number], said[number]))
    return tuple(found)


def seen_in(index: Index, video: str, edges: Sequence[float], captions: Sequence[str]) -> list[str | None]:
    """For each scene the caption that fits it best, if the judge is sure that one fits."""
    best: list[tuple[float, str] | None] = [None] * (len(edges) - 1)
    if len(index) < 2 or not captions:  # a single film has nothing to be compared with
        return [None] * len(best)
    for answer in index.search_many(list(captions), 1):
        hit = answer.hits[0]
        sure = hit.fit == FITS and (hit.probability or 0.0) >= SURE and SEEN in hit.because
        for moment in hit.moments if sure and hit.video == video else ():
            for number in range(len(best)):
                if common(moment, edges[number], edges[number + 1]) >= COVERED:
                    best[number] = max(best[number] or (-np.inf, ""), (moment.score, answer.query))
    return [found[1] if found else None for found in best]


def common(moment: Moment, start: float, end: float) -> float:
    """The share of the shorter one that a moment and a scene have in common."""
    shared = min(moment.end, end) - max(moment.start, start)
    return shared / max(min(moment.end - moment.start, end - start), 1e-6)


def said_in(index: SearchIndex, video: str, edges: Sequence[float]) -> list[str | None]:
    """For each scene the first sentence that is said in it, where the index has a transcript."""
    try:
        heard = index.transcript(video)
    except HolmesError:  # not every index gives them out
        heard = None
    passages = [] if heard is None else [each for each in heard.passages if not each.source.is_written]
    found: list[str | None] = []
    for start, end in pairwise(edges):
        texts = [each.text for each in passages if start <= each.start < end]
        found.append(first_sentence(" ".join(texts)) if texts else None)
    return found


def first_sentence(text: str) -> str | None:
    """The first sentence of at least three words, shortened at a word."""
    sentences = [each for each in re.split(r"(?<=[.!?…])\s+", " ".join(text.split())) if each]
    long = [each for each in sentences if len(each.split()) >= 3] or sentences
    if not long:
        return None
    if len(long[0]) <= LONGEST_TITLE:
        return long[0]
    return long[0][:LONGEST_TITLE].rsplit(" ", 1)[0].rstrip(",;:") + "…"


def read_captions(file: Path) -> list[str]:
    """A caption a line."""
    try:
        lines = [line.strip() for line in read_file(file, 1 << 22).decode().splitlines()]
    except UnicodeDecodeError:
        raise HolmesError(f"{file} is not valid UTF-8 text; write one caption a line.") from None
    captions = list(dict.fromkeys(line for line in lines if line))
    if not 1 <= len(captions) <= MOST_CAPTIONS:
        raise HolmesError(f"{file} has {len(captions):,} captions; write 1 to {MOST_CAPTIONS:,}, one a line.")
    return captions


def written_chapters(found: Sequence[Chapter], video: str, format: str) -> str:
    """Chapters as a file: lines for YouTube ("text"), WebVTT, or JSON."""
    if format == "vtt":
        return vtt_chapters([(each.start, each.end, each.title) for each in found])
    if format == "json":
        return json.dumps({"video": video, "chapters": [each.to_dict() for each in found]}, indent=1) + "\n"
    if format == "text":
        return youtube_chapters([(each.start, one_line(each.title)) for each in found])
    raise unknown("format", format, FORMATS)
