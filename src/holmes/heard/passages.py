"""A passage (words between two times of a video), and the record of all passages of a video.

Passage(start, end, text, source)    the only thing that storage, search and the page know of words
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated

from holmes.base.printing import JOINERS, UNPRINTABLE
from holmes.base.validation import AtMost, Within

MOST_SECONDS = 1e7  # of a video
LONGEST_TEXT = 2000  # characters of one passage
MOST_PASSAGES = 200_000  # of one video: ten hours have a few thousand
SHORTEST, USUAL = 0.1, 2.0  # seconds of a passage, and of one whose end is missing
# Lines that belong together are joined before they are searched: subtitles break sentences anywhere.
JOIN_GAP = 1.5  # seconds of silence that end a passage
JOIN_SECONDS, JOIN_WORDS = 15.0, 40  # the most that is joined
SENTENCE_END = re.compile(r"[.!?…。！？][\"'”’)\]]*$")
TAG = re.compile(r"</?[A-Za-z][^<>]{0,200}>|\{\\[^{}]{0,200}\}")


class WordSource(StrEnum):
    """Where a passage comes from, the most trusted first."""

    CORRECTED = "corrected"  # a person set the transcript
    SUBTITLES = "subtitles"  # a file beside the video
    EMBEDDED = "embedded"  # a text subtitle stream of the video file
    SPEECH = "speech"  # recognised
    SCREEN = "screen"  # text on screen, recognised

    @property
    def is_written(self) -> bool:
        """Whether it is read on the screen; everything else is said."""
        return self is WordSource.SCREEN


HEARD = "heard"  # the folder of an index in which passages are kept as they were heard
SOURCES = tuple(WordSource)  # their numbers in files: never reorder, only append


@dataclass(frozen=True)
class Passage:
    """Seconds `start` to `end` of a video, and what is said or written there."""

    start: Annotated[float, Within(0, MOST_SECONDS)]
    end: Annotated[float, Within(0, MOST_SECONDS)]
    text: Annotated[str, AtMost(LONGEST_TEXT)]
    source: WordSource

    def to_dict(self) -> dict[str, float | str]:
        return {"start": self.start, "end": self.end, "text": self.text, "source": self.source.value}


@dataclass(frozen=True)
class Heard:
    """All passages of one video, in order of time, which sources gave them, and what went wrong."""

    passages: tuple[Passage, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)  # source → the file, stream or model it came from
    notes: tuple[str, ...] = ()  # one line each
    stamp: str = ""  # changes when the video is heard in another way, or its transcript is set


def in_order(passages: Iterable[Passage]) -> tuple[Passage, ...]:
    return tuple(sorted(passages, key=lambda p: (p.start, p.end, SOURCES.index(p.source), p.text)))


def clean(text: str) -> str:
    """Text of a file in one line: without markup, control characters and marks that hide or reorder."""
    text = TAG.sub("", text.replace("\\N", " ").replace("\\n", " ").replace("\\h", " "))
    kept = (
        char if char in JOINERS or unicodedata.category(char) not in UNPRINTABLE else " " for char in text
    )
    return " ".join("".join(kept).split())[:LONGEST_TEXT].strip()


def make_passage(start: float, end: float, text: str, source: WordSource) -> Passage | None:
    """A passage from what a file or a recogniser says; None where nothing is left of it."""
    text = clean(text)
    if not any(char.isalnum() for char in text) or not 0 <= max(start, 0.0) < MOST_SECONDS:
        return None
    start = max(start, 0.0)
    end = end if end > start else start + USUAL
    return Passage(round(start, 3), round(min(max(end, start + SHORTEST), MOST_SECONDS), 3), text, source)


def within(passages: Iterable[Passage], seconds: float) -> tuple[list[Passage], int]:
    """Passages that begin before the video ends, none ending after it; and how many do not."""
    kept, outside = [], 0
    for passage in passages:
        if passage.start >= seconds:
            outside += 1
        else:
            kept.append(replace(passage, end=min(passage.end, seconds)))
    return kept, outside


def joined(passages: Iterable[Passage]) -> list[Passage]:
    """Passages as they are searched: lines that follow each other make whole sentences."""
    result: list[Passage] = []
    for source in SOURCES:
        current: Passage | None = None
        for passage in (p for p in passages if p.source is source):
            if current is not None and _belongs(current, passage):
                current = replace(
                    current, end=max(current.end, passage.end), text=f"{current.text} {passage.text}"
                )
                continue
            if current is not None:
                result.append(current)
            current = passage
        if current is not None:
            result.append(current)
    return list(in_order(result))


def _belongs(before: Passage, after: Passage) -> bool:
    if before.source is WordSource.SCREEN or SENTENCE_END.search(before.text):
        return False
    whole = len(before.text.split()) + len(after.text.split())
    return (
        after.start - before.end <= JOIN_GAP
        and after.end - before.start <= JOIN_SECONDS
        and whole <= JOIN_WORDS
        and len(before.text) + len(after.text) < LONGEST_TEXT
    )
