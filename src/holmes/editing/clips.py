"""Choose the moments of an answer that go into timelines and files."""

from __future__ import annotations

import os
from dataclasses import dataclass

from holmes.base.printing import clock
from holmes.errors import HolmesError
from holmes.evidence.wording import percent
from holmes.index.answer.answers import Answer, Hit

AT_LEAST = 0.1  # the least probability of a hit that is taken over
MOST_PADDING = 600.0  # seconds
LONGEST_SLUG = 40  # characters


@dataclass(frozen=True)
class FoundClip:
    """One moment of one hit, in seconds of its film."""

    query: str
    rank: int  # of the hit, counted from 1
    video: str
    start: float
    end: float
    score: float  # of the moment
    video_score: float
    belief: float
    probability: float | None  # of the hit
    fit: str | None

    @property
    def name(self) -> str:
        """The file's name as text in one line."""
        return one_line(os.path.basename(self.video) or self.video)

    @property
    def title(self) -> str:
        """What a marker or a chapter says of the moment."""
        sure = "" if self.probability is None else f", {percent(self.probability)}"
        return f"{self.name} {clock(self.start)}{sure}"


def choose_clips(
    answer: Answer, top: int = 10, at_least: float | None = AT_LEAST, pad: float = 0.0
) -> list[FoundClip]:
    """The moments of the best hits, the best hit first, those of one film in its order.

    Hits that are less probable than `at_least` are left out. Where nothing has a probability, all are taken.
    Each moment gets `pad` seconds before and after; moments of one film that then overlap become one clip.
    """
    if top < 1:
        raise HolmesError(f"top must be a whole number, at least 1, not {top!r}.")
    if at_least is not None and not 0 <= at_least <= 1:
        raise HolmesError(f"at_least must be a probability, 0 to 1, not {at_least!r}.")
    if not 0 <= pad <= MOST_PADDING:
        raise HolmesError(f"pad must be between 0 and {MOST_PADDING:g} seconds, not {pad!r}.")
    clips: list[FoundClip] = []
    for rank, hit in enumerate(answer.hits[:top], 1):
        if improbable(answer, hit, at_least):
            continue
        spans: list[tuple[float, float, float]] = []
        for moment in sorted(hit.moments, key=lambda each: each.start):
            start, end = max(0.0, moment.start - pad), max(moment.end, moment.start) + pad
            if spans and start < spans[-1][1]:
                before = spans.pop()
                spans.append((before[0], max(before[1], end), max(before[2], moment.score)))
            else:
                spans.append((start, end, moment.score))
        clips += [
            FoundClip(
                answer.query,
                rank,
                hit.video,
                start,
                end,
                score,
                hit.score,
                hit.belief,
                hit.probability,
                hit.fit,
            )
            for start, end, score in spans
        ]
    return clips


def improbable(answer: Answer, hit: Hit, at_least: float | None) -> bool:
    """Whether a hit is less probable than asked for; beyond the calibrated candidates it is."""
    if at_least is None or all(each.probability is None for each in answer.hits):
        return False
    return (hit.probability or 0.0) < at_least


def check_clips(clips: list[FoundClip], answer: Answer, at_least: float | None) -> None:
    """Say why there is nothing to take over, if so."""
    if clips:
        return
    if not answer.hits:
        raise HolmesError(f"nothing was found for “{answer.query}”; describe the moment in other words.")
    best = max((hit.probability or 0.0) for hit in answer.hits)
    raise HolmesError(
        f"no hit for “{answer.query}” has a probability of at least {percent(at_least or 0)} "
        f"(best: {percent(best)}); lower --at-least (at_least), or describe the moment more precisely."
    )


def one_line(text: str) -> str:
    """Text that any program reads: control characters, and bytes that are not text, become '?'."""
    return "".join(char if char.isprintable() else "?" for char in text)


def note_of(clip: FoundClip) -> str:
    """What a marker says beside its title: the query, and how sure the hit is."""
    sure = "" if clip.probability is None else f" probability {percent(clip.probability)},"
    return one_line(f"“{clip.query}”:{sure} hit {clip.rank}, score {clip.score:.3f}")


def slug(text: str) -> str:
    """Text as a part of a file name: letters, digits and '-'; never empty, never hidden, never an option."""
    words = "".join(char if char.isalnum() else " " for char in text).split()
    return "-".join(words)[:LONGEST_SLUG].strip("-") or "clip"
