"""Write an answer as a file for editing programs, in the format of the file name."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from holmes.base.files import atomic_file
from holmes.editing.clips import AT_LEAST, check_clips, choose_clips, improbable, slug
from holmes.editing.formats import FORMATS, YOUTUBE, otio_timeline, youtube_takes
from holmes.editing.timeline import EditList, lay_out, parse_rate, timeline_library
from holmes.errors import HolmesError, unknown
from holmes.index.answer.answers import Answer
from holmes.results import Json


@dataclass(frozen=True)
class ExportSummary:
    """What was written."""

    file: str
    format: str
    clips: int
    improbable: int  # hits less probable than asked for, which were not written
    rate: float  # frames a second of the timeline
    notes: tuple[str, ...] = ()

    def to_dict(self) -> Json:
        return {**asdict(self), "notes": list(self.notes)}


def export(
    answer: Answer,
    file: Path | str,
    *,
    format: str | None = None,
    top: int = 10,
    at_least: float | None = AT_LEAST,
    pad: float = 0.0,
    rate: str | float | None = None,
    replace: bool = False,
) -> ExportSummary:
    """Write the moments of an answer for an editing program, end to end on a timeline.

    Args:
        answer: What a search answered.
        file: A file whose name ends in .otio, .fcpxml, .edl, .csv, .markers.csv, .markers.edl, .vtt or .txt
            (chapters for YouTube); or in what an installed adapter of OpenTimelineIO writes.
        format: The format, if the name does not say it: otio, fcpxml, edl, csv, markers, markers-edl, vtt
            or youtube.
        top: How many hits at most.
        at_least: The least probability of a hit; without any probabilities, all hits are taken.
        pad: Seconds added before and after each moment.
        rate: Frames a second of the timeline, such as 25 or 29.97; by default that of most films.
        replace: Whether an existing file may be replaced.

    Example:
        >>> summary = holmes.export(index.search("a dog runs"), "dogs.edl", top=2, at_least=0)
        >>> summary.format, summary.clips >= 2
        ('edl', True)
    """
    file = Path(file)
    if file.exists() and not replace:
        raise HolmesError(
            f"{file} exists; choose another name (--out), or allow it to be replaced (--replace)."
        )
    written = format or format_of(file)
    if written not in FORMATS and written not in adapters():
        raise unknown("format", written, (*FORMATS, *adapters()))
    clips = choose_clips(answer, top, at_least, pad)
    check_clips(clips, answer, at_least)
    edits = lay_out(clips, answer.query, None if rate is None else parse_rate(str(rate)))
    with atomic_file(file) as out:
        out.write(content_of(edits, written))
    return ExportSummary(
        str(file), written, len(edits.edits), count_improbable(answer, top, at_least), float(edits.rate),
        notes_of(edits, written),
    )  # fmt: skip


def content_of(edits: EditList, format: str) -> bytes:
    """The bytes of the file."""
    if format in FORMATS:
        return FORMATS[format][0](edits).encode("utf-8", "replace")
    text = timeline_library().adapters.write_to_string(otio_timeline(edits), adapters()[format])
    return str(text).encode()


def format_of(file: Path) -> str:
    """The format that a file's name says."""
    name = file.name.lower()
    fitting = [(len(end), format) for format, (_, end) in FORMATS.items() if name.endswith(end)]
    if fitting:
        return max(fitting)[1]
    suffix = file.suffix.lower().lstrip(".")
    if suffix in adapters():
        return suffix
    known = ", ".join(end for _, end in FORMATS.values())
    raise HolmesError(f"the format of '{file.name}' is unknown; use a name that ends in one of {known}.")


def adapters() -> dict[str, str]:
    """Suffix → the installed OpenTimelineIO adapter that writes it as text, besides our own formats."""
    library = timeline_library()
    own = {end.lstrip(".") for _, end in FORMATS.values()}
    found: dict[str, str] = {}
    for adapter in library.plugins.ActiveManifest().adapters:
        for suffix in adapter.suffixes:
            if suffix not in own and adapter.has_feature("write_to_string"):
                found[str(suffix)] = str(adapter.name)
    return found


def count_improbable(answer: Answer, top: int, at_least: float | None) -> int:
    """How many of the best hits are less probable than asked for."""
    return sum(improbable(answer, hit, at_least) for hit in answer.hits[:top])


def notes_of(edits: EditList, format: str) -> tuple[str, ...]:
    """What the reader of the file should know."""
    notes = []
    gone = len({edit.clip.video for edit in edits.edits if not edit.linked})
    if gone:
        notes.append(f"{gone} of the films cannot be read; their clips are counted at 25 frames a second.")
    uneven = len({edit.clip.video for edit in edits.edits if edit.source.variable})
    if uneven and format != "csv":
        notes.append(f"{uneven} of the films have uneven frames; they are counted at a steady rate.")
    starts = [edits.seconds(edit.record_in) for edit in edits.edits]
    if format == "youtube" and not youtube_takes(starts, edits.seconds(edits.frames)):
        notes.append(YOUTUBE)
    return tuple(notes)


def file_name(query: str, format: str) -> str:
    """A name for the file of an answer, such as a-dog-runs.edl."""
    ends = {name: end for name, (_, end) in FORMATS.items()} | {"json": ".json"}
    return f"{slug(query)}{ends[format]}"
