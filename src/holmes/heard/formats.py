"""Transcripts as text, SubRip and WebVTT. What a file said stays text: no markup of it is kept."""

from __future__ import annotations

from collections.abc import Iterator

from holmes.heard.passages import Heard, Passage


def clock(seconds: float) -> str:
    """Such as 1:23 or 1:02:03."""
    whole = int(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


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


def to_vtt(heard: Heard, said_only: bool = False) -> str:
    """WebVTT, in which <, > and & are escaped, so that no text is taken for markup."""
    lines = ["WEBVTT\n"]
    for passage in heard.passages:
        if said_only and passage.source.is_written:
            continue
        text = passage.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        lines.append(f"{_time(passage, '.')}\n{text}\n")
    return "\n".join(lines)


def _time(passage: Passage, point: str) -> str:
    return f"{_stamp(passage.start, point)} --> {_stamp(passage.end, point)}"


def _stamp(seconds: float, point: str) -> str:
    milliseconds = round(1000 * seconds)
    hours, rest = divmod(milliseconds, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    whole, part = divmod(rest, 1000)
    return f"{hours:02}:{minutes:02}:{whole:02}{point}{part:03}"
