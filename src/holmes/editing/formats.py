"""Write an edit list in the formats of other programs.

OTIO is written by opentimelineio. The EDL is written here: the adapter of opentimelineio leaves out the sound
and the drop-frame mark.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from holmes.base.printing import clock, subtitle_time
from holmes.editing.clips import FoundClip, note_of, one_line
from holmes.editing.fcpxml import as_fcpxml
from holmes.editing.timeline import (
    RATES,
    Edit,
    EditList,
    counted_reels,
    first_frame,
    frames_of,
    timecode,
    timeline_library,
)

COLUMNS = (
    "query", "rank", "video", "start", "end", "score", "video_score", "belief", "probability", "fit",
)  # fmt: skip
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a cell that begins like this would be run by a spreadsheet
MARKERS = (
    "#", "Reel", "V", "C", "Dur", "Source In", "Source Out", "Record In", "Record Out",
    "Name", "Color", "Notes",
)  # fmt: skip
COLOURS = {"fits": "Green", "may fit": "Yellow", "nearest": "Red"}
TITLE = 70  # characters of an EDL's title
YOUTUBE = "YouTube shows chapters only where there are at least three, each of 10 seconds or more."
SHORTEST_CHAPTER, FEWEST_CHAPTERS = 10.0, 3  # as YouTube takes them


def otio_timeline(edits: EditList) -> Any:
    """An `opentimelineio.schema.Timeline`: a track of pictures, one of sound, a marker on every clip."""
    otio = timeline_library()
    pictures = otio.schema.Track("moments", kind=otio.schema.TrackKind.Video)
    sound = otio.schema.Track("sound", kind=otio.schema.TrackKind.Audio)
    for edit in edits.edits:
        pictures.append(_otio_clip(otio, edit))
        if edit.source.channels:
            sound.append(_otio_clip(otio, edit))
        else:
            sound.append(
                otio.schema.Gap(source_range=_range(otio, 0, edit.source_out - edit.source_in, edit))
            )
    timeline = otio.schema.Timeline(one_line(edits.title))
    timeline.global_start_time = otio.opentime.RationalTime(edits.first, float(edits.rate))
    timeline.metadata["holmes"] = {"query": one_line(edits.title)}
    timeline.tracks.append(pictures)
    if any(edit.source.channels for edit in edits.edits):
        timeline.tracks.append(sound)
    return timeline


def as_otio(edits: EditList) -> str:
    return str(otio_timeline(edits).to_json_string(indent=1))


def as_edl(edits: EditList) -> str:
    """CMX 3600: an event per clip, with the sound that its film has.

    An EDL has one rate: films of another rate are counted in the timeline's frames.
    """
    reels = counted_reels(edits.edits)
    lines = [
        f"TITLE: {one_line(edits.title)[:TITLE]}",
        f"FCM: {'DROP' if edits.drop else 'NON-DROP'} FRAME",
        "",
    ]
    for number, edit in enumerate(edits.edits, 1):
        first, after = _source_codes(edit, edits)
        record = [edits.timecode(frame) for frame in (edit.record_in, edit.record_out)]
        lines.append(
            f"{number:03d}  {reels[edit.clip.video]:<8} {_channels(edit):<5} C        "
            f"{first} {after} {' '.join(record)}"
        )
        lines.append(f"* FROM CLIP NAME: {edit.clip.name}")
        lines.append(f"* FROM CLIP: {edit.url}")
        lines.append(f"* COMMENT: {note_of(edit.clip)}")
        lines.append("")
    return "\n".join(lines)


def as_csv(edits: EditList) -> str:
    """A row for each clip, for spreadsheets."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for edit in edits.edits:
        writer.writerow([_cell(getattr(edit.clip, name)) for name in COLUMNS])
    return text.getvalue()


def as_markers_csv(edits: EditList) -> str:
    """Markers of the timeline, in the columns of the edit index of DaVinci Resolve."""
    text, reels = io.StringIO(), counted_reels(edits.edits)
    writer = csv.writer(text)
    writer.writerow(MARKERS)
    for number, edit in enumerate(edits.edits, 1):
        record = [edits.timecode(frame) for frame in (edit.record_in, edit.record_out)]
        length = timecode(edit.record_out - edit.record_in, edits.rate, edits.drop)
        row = (
            number, reels[edit.clip.video], "V1", "C", length,
            *_source_codes(edit, edits), *record, edit.clip.title, _colour(edit.clip), note_of(edit.clip),
        )  # fmt: skip
        writer.writerow([_cell(value) for value in row])
    return text.getvalue()


def as_markers_edl(edits: EditList) -> str:
    """Markers of the timeline, as DaVinci Resolve imports "Timeline Markers from EDL"."""
    lines = [
        f"TITLE: {one_line(edits.title)[:TITLE].replace('|', '/')}",
        f"FCM: {'DROP' if edits.drop else 'NON-DROP'} FRAME",
        "",
    ]
    for number, edit in enumerate(edits.edits, 1):
        codes = " ".join([edits.timecode(edit.record_in), edits.timecode(edit.record_in + 1)] * 2)
        note, name = (text.replace("|", "/") for text in (note_of(edit.clip), edit.clip.title))
        lines.append(f"{number:03d}  001      V     C        {codes}  ")
        length = edit.record_out - edit.record_in
        lines.append(f"{note} |C:ResolveColor{_colour(edit.clip)} |M:{name} |D:{length}")
        lines.append("")
    return "\n".join(lines)


def as_vtt(edits: EditList) -> str:
    """WebVTT chapters of the timeline, counted from its first frame."""
    spans = [(edits.seconds(edit.record_in), edits.seconds(edit.record_out)) for edit in edits.edits]
    return vtt_chapters([(*span, edit.clip.title) for span, edit in zip(spans, edits.edits, strict=True)])


def as_youtube(edits: EditList) -> str:
    """A line for each clip, `0:07 title`, to paste into the description of the uploaded timeline."""
    return youtube_chapters([(edits.seconds(edit.record_in), edit.clip.title) for edit in edits.edits])


def vtt_chapters(chapters: Sequence[tuple[float, float, str]]) -> str:
    """Chapters (from, to, title) as a WebVTT file."""
    cues = [
        f"{number}\n{subtitle_time(start, '.')} --> {subtitle_time(end, '.')}\n{_vtt_text(title)}\n"
        for number, (start, end, title) in enumerate(chapters, 1)
    ]
    return "\n".join(["WEBVTT\n", *cues])


def youtube_chapters(chapters: Sequence[tuple[float, str]]) -> str:
    """Chapters (start, title), a line each; the first one starts at 0:00."""
    lines = [
        f"{clock(start if number else 0)} {one_line(title)}" for number, (start, title) in enumerate(chapters)
    ]
    return "\n".join([*lines, ""])


def youtube_takes(starts: Sequence[float], end: float) -> bool:
    """Whether YouTube shows chapters that start at these seconds."""
    lengths = [after - start for start, after in zip(starts, [*starts[1:], end], strict=True)]
    return len(starts) >= FEWEST_CHAPTERS and min(lengths) >= SHORTEST_CHAPTER


# Format → how it is written, and the end of its files' names.
FORMATS: dict[str, tuple[Callable[[EditList], str], str]] = {
    "otio": (as_otio, ".otio"),
    "fcpxml": (as_fcpxml, ".fcpxml"),
    "edl": (as_edl, ".edl"),
    "csv": (as_csv, ".csv"),
    "markers": (as_markers_csv, ".markers.csv"),
    "markers-edl": (as_markers_edl, ".markers.edl"),
    "vtt": (as_vtt, ".vtt"),
    "youtube": (as_youtube, ".txt"),
}


def _otio_clip(otio: Any, edit: Edit) -> Any:
    source, clip = edit.source, edit.clip
    start = first_frame(source)
    reference = otio.schema.MissingReference()
    if edit.linked:
        reference = otio.schema.ExternalReference(edit.url, _range(otio, start, source.frames, edit))
    reference.name = clip.name
    found = otio.schema.Clip(
        clip.name, reference, _range(otio, start + edit.source_in, edit.source_out - edit.source_in, edit)
    )
    facts = {
        "query": one_line(clip.query), "rank": clip.rank, "score": clip.score,
        "video_score": clip.video_score, "start": clip.start, "end": clip.end,
        "probability": clip.probability, "fit": clip.fit,
    }  # fmt: skip
    found.metadata["holmes"] = facts
    marked = _range(otio, start + edit.source_in, 1, edit)
    found.markers.append(otio.schema.Marker(clip.title, marked, _colour(clip).upper()))
    return found


def _range(otio: Any, start: int, length: int, edit: Edit) -> Any:
    time, rate = otio.opentime.RationalTime, float(edit.source.rate)
    return otio.opentime.TimeRange(time(start, rate), time(length, rate))


def _source_codes(edit: Edit, edits: EditList) -> tuple[str, str]:
    """The timecodes of a clip in its film, at the timeline's rate, as long as the clip on the timeline."""
    source, rate = edit.source, edits.rate
    if source.rate == rate:
        first = first_frame(source) + edit.source_in
    else:
        known = source.timecode is not None and source.rate in RATES
        own = frames_of(source.timecode or "", rate, edits.drop) if known else 0
        first = own + round(edit.source_in / source.rate * rate)
    last = first + edit.record_out - edit.record_in
    return timecode(first, rate, edits.drop), timecode(last, rate, edits.drop)


def _channels(edit: Edit) -> str:
    return "V" if not edit.source.channels else "B" if edit.source.channels == 1 else "AA/V"


def _colour(clip: FoundClip) -> str:
    return COLOURS.get(clip.fit or "", "Blue")


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        text = value.encode("utf-8", "replace").decode()
        return "'" + text if text.startswith(FORMULA) else text
    return "" if value is None else value


def _vtt_text(text: str) -> str:
    return escape(one_line(text), quote=False) or "-"
