"""Write transcripts as text, SubRip and WebVTT, with markup escaped."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from holmes.base.printing import clock, subtitle_time
from holmes.heard.passages import Heard, Passage


def to_text(heard: Heard) -> Iterator[str]:
    """One line for each passage: its time, and what is said; what is written is marked."""
    for passage in heard.passages:
        mark = "[on screen] " if passage.source.is_written else ""
        yield f"{clock(passage.start):>8}  {mark}{passage.text}"


def to_srt(heard: Heard) -> str:
    lines = []
    for number, passage in enumerate(heard.passages, 1):
        lines.append(f"{number}\n{_time(passage, ',')}\n{passage.text.replace('-->', '→')}\n")
    return "\n".join(lines)


def to_vtt(heard: Heard) -> str:
    """WebVTT, in which <, > and & are escaped, so that no text is taken for markup."""
    cues = [f"{_time(passage, '.')}\n{escape(passage.text, quote=False)}\n" for passage in heard.passages]
    return "\n".join(["WEBVTT\n", *cues])


def _time(passage: Passage, point: str) -> str:
    return f"{subtitle_time(passage.start, point)} --> {subtitle_time(passage.end, point)}"
