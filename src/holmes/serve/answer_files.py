"""Hits for other programs: CSV for spreadsheets, EDL (CMX 3600) and OpenTimelineIO for editors."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COLUMNS = ("rank", "video", "start", "end", "score", "belief", "probability")
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a cell that begins like this would be run by a spreadsheet
REEL = 8  # characters of a reel's name in an EDL
TITLE = 70


@dataclass(frozen=True)
class Cut:
    """One moment of one hit."""

    rank: int
    video: str
    start: float
    end: float
    score: float
    belief: float
    probability: float | None
    duration: float


def cuts(hits: Sequence[dict[str, Any]]) -> list[Cut]:
    """Every hit's moments, best first."""
    return [
        Cut(
            rank,
            hit["name"],
            moment["start"],
            max(moment["end"], moment["start"]),
            hit["score"],
            hit["belief"],
            hit["probability"],
            hit["duration"],
        )
        for rank, hit in enumerate(hits, 1)
        for moment in hit["moments"]
    ]


def as_csv(chosen: Sequence[Cut]) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for cut in chosen:
        row = {name: getattr(cut, name) for name in COLUMNS}
        row["video"] = "'" + cut.video if cut.video.startswith(FORMULA) else cut.video
        writer.writerow(["" if value is None else value for value in row.values()])
    return text.getvalue()


def as_edl(chosen: Sequence[Cut], title: str, rate: int) -> str:
    """One event per moment, laid end to end, each with a whole number of frames and at least one."""
    lines, at = [f"TITLE: {_line(title)[:TITLE]}", "FCM: NON-DROP FRAME", ""], 0
    for number, cut in enumerate(chosen, 1):
        first = math.floor(cut.start * rate + 1e-6)
        frames = max(1, math.ceil(cut.end * rate - 1e-6) - first)
        times = [timecode(frame, rate) for frame in (first, first + frames, at, at + frames)]
        lines.append(f"{number:03d}  {'AX':<{REEL}} V     C        {' '.join(times)}")
        lines.append(f"* FROM CLIP NAME: {_line(os.path.basename(cut.video))}")
        lines.append(f"* SOURCE FILE: {_line(cut.video)}")
        if cut.probability is not None:
            lines.append(f"* COMMENT: PROBABILITY {cut.probability:.3f}")
        lines.append("")
        at += frames
    return "\n".join(lines)


def timecode(frame: int, rate: int) -> str:
    seconds, frames = divmod(frame, rate)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}:{frames:02d}"


def as_otio(chosen: Sequence[Cut], title: str, rate: int) -> str:
    clips = [_clip(cut, rate) for cut in chosen]
    track: dict[str, Any] = {
        "OTIO_SCHEMA": "Track.1",
        "name": "moments",
        "kind": "Video",
        "source_range": None,
        "effects": [],
        "markers": [],
        "enabled": True,
        "metadata": {},
        "children": clips,
    }
    stack = {**track, "OTIO_SCHEMA": "Stack.1", "name": "tracks", "children": [track]}
    del stack["kind"]
    timeline = {
        "OTIO_SCHEMA": "Timeline.1",
        "name": title,
        "global_start_time": None,
        "metadata": {"holmes": {"query": title}},
        "tracks": stack,
    }
    return json.dumps(timeline, indent=1)


def _clip(cut: Cut, rate: int) -> dict[str, Any]:
    def time(seconds: float) -> dict[str, Any]:
        return {"OTIO_SCHEMA": "RationalTime.1", "rate": float(rate), "value": round(seconds * rate)}

    def span(start: float, end: float) -> dict[str, Any]:
        return {
            "OTIO_SCHEMA": "TimeRange.1",
            "start_time": time(start),
            "duration": {**time(0), "value": max(1, round(end * rate) - round(start * rate))},
        }

    file = Path(cut.video)
    media = {
        "OTIO_SCHEMA": "ExternalReference.1",
        "name": file.name,
        "available_range": span(0.0, cut.duration),
        "target_url": file.as_uri() if file.is_absolute() else cut.video,
        "metadata": {},
    }
    return {
        "OTIO_SCHEMA": "Clip.1",
        "name": file.name,
        "source_range": span(cut.start, cut.end),
        "media_reference": media,
        "effects": [],
        "markers": [],
        "enabled": True,
        "metadata": {"holmes": {"score": cut.score, "probability": cut.probability, "rank": cut.rank}},
    }


def _line(text: str) -> str:
    """Text as one line that any editor can read: what is not a plain character becomes '?'."""
    return "".join("?" if unicodedata.category(char)[0] == "C" else char for char in text)
