"""Clips in a row, counted in frames: the input of every timeline, marker list and chapter list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any

from holmes.editing.clips import FoundClip
from holmes.errors import HolmesError, missing_packages
from holmes.media.containers import VideoError
from holmes.media.source_frames import SourceMedia, read_source

# Frames a second that timecodes exist for, and those of them that drop numbers to keep to the clock.
RATES = tuple(
    sorted(
        [Fraction(rate) for rate in (24, 25, 30, 48, 50, 60)]
        + [Fraction(rate * 1000, 1001) for rate in (24, 30, 48, 60)]
    )
)
DROPPED = (Fraction(30000, 1001), Fraction(60000, 1001))
SHOWN_RATES = "23.976, 24, 25, 29.97, 30, 47.952, 48, 50, 59.94 or 60"
STARTS_AT = "01:00:00:00"  # the timecode of a timeline's first frame, as in most editing programs
UNKNOWN = Fraction(25)  # the rate of a film whose file is gone

ReadSource = Callable[[Path, Sequence[tuple[float, float]]], SourceMedia]


@dataclass(frozen=True)
class Edit:
    """One clip on the timeline."""

    clip: FoundClip
    source: SourceMedia
    linked: bool  # whether its file was there to be read
    source_in: int  # frames of the film, at its own rate, from its first frame
    source_out: int  # the frame after the last
    record_in: int  # frames of the timeline, at the timeline's rate, from its first frame
    record_out: int

    @property
    def url(self) -> str:
        path = Path(self.clip.video)
        return path.as_uri() if path.is_absolute() else self.clip.video


@dataclass(frozen=True)
class EditList:
    """Clips end to end on a timeline of one rate."""

    title: str
    rate: Fraction
    drop: bool  # whether its timecodes drop numbers to keep to the clock
    edits: tuple[Edit, ...]

    @property
    def frames(self) -> int:
        return self.edits[-1].record_out if self.edits else 0

    @property
    def first(self) -> int:
        """The frame number of the timeline's first timecode."""
        return frames_of(STARTS_AT, self.rate, self.drop)

    def timecode(self, frame: int) -> str:
        """The timecode of a frame of the timeline."""
        return timecode(self.first + frame, self.rate, self.drop)

    def seconds(self, frame: int) -> float:
        return float(frame / self.rate)


def lay_out(
    clips: Sequence[FoundClip],
    title: str,
    rate: Fraction | None = None,
    read: ReadSource = read_source,
) -> EditList:
    """The clips end to end; frames of a film that two clips share go to the earlier one.

    `rate` is the timeline's; by default the one that most clips have. A film whose file is gone is counted
    at 25 frames a second, and its clips are not linked.
    """
    sources = sources_of(clips, read)
    rate = rate or common_rate([sources[clip.video][0].rate for clip in clips])
    edits: list[Edit] = []
    used: dict[str, int] = {}  # film → the frame after the last one taken
    taken: Counter[str] = Counter()
    at = 0
    for clip in clips:
        source, linked = sources[clip.video]
        first, after = source.ranges[taken[clip.video]]
        taken[clip.video] += 1
        first = max(first, used.get(clip.video, 0))
        if after <= first:
            continue
        used[clip.video] = after
        length = max(1, round((after - first) / source.rate * rate))
        edits.append(Edit(clip, source, linked, first, after, at, at + length))
        at += length
    drop = rate in DROPPED and all(drops(edit.source) for edit in edits if edit.source.rate == rate)
    return EditList(title, rate, drop, tuple(edits))


def sources_of(clips: Sequence[FoundClip], read: ReadSource) -> dict[str, tuple[SourceMedia, bool]]:
    """Every film with the frames of its clips, read once, and whether its file could be read."""
    found: dict[str, tuple[SourceMedia, bool]] = {}
    for video, moments in moments_of(clips).items():
        try:
            found[video] = within(read(Path(video), moments)), True
        except (VideoError, OSError):
            found[video] = without_file(moments), False
    return found


def moments_of(clips: Sequence[FoundClip]) -> dict[str, list[tuple[float, float]]]:
    """The seconds that are taken of each film."""
    moments: dict[str, list[tuple[float, float]]] = {}
    for clip in clips:
        moments.setdefault(clip.video, []).append((clip.start, clip.end))
    return moments


def within(source: SourceMedia) -> SourceMedia:
    """The same film, its ranges no longer than it is: a moment may end a little after the last frame."""
    ranges = tuple(
        (min(first, source.frames - 1), min(after, source.frames)) for first, after in source.ranges
    )
    return replace(source, ranges=ranges)


def without_file(moments: Sequence[tuple[float, float]]) -> SourceMedia:
    ranges = [(int(start * UNKNOWN + 1e-6), ceil(end * UNKNOWN - 1e-6)) for start, end in moments]
    ranges = [(first, max(after, first + 1)) for first, after in ranges]
    last = max(after for _, after in ranges)
    return SourceMedia(UNKNOWN, False, last, None, 0, 0, 0, 0, tuple(ranges))


def common_rate(rates: Sequence[Fraction]) -> Fraction:
    """The rate of most clips, or where timecodes have no such rate one that shows every frame of it."""
    ((rate, _),) = Counter(rates).most_common(1) or [(UNKNOWN, 0)]
    if rate in RATES:
        return rate
    multiples = [each for each in RATES if (each / rate).denominator == 1]
    divisors = [each for each in reversed(RATES) if (rate / each).denominator == 1]
    faster = [each for each in RATES if each >= rate]
    return (multiples or divisors or faster or RATES[-1:])[0]


def parse_rate(text: str) -> Fraction:
    """A rate such as 25, 29.97 or 24000/1001."""
    try:
        given = Fraction(text)
    except (ValueError, ZeroDivisionError):
        given = Fraction(0)
    near = min(RATES, key=lambda rate: abs(rate - given))
    if abs(near - given) > Fraction(1, 100):
        raise HolmesError(f"the rate '{text[:40]}' has no timecodes; write {SHOWN_RATES}.")
    exact = [rate for rate in RATES if rate == given]
    return exact[0] if exact else near


def drops(source: SourceMedia) -> bool:
    """Whether a film's timecodes drop numbers: at 29.97 and 59.94, unless its own has a colon."""
    return source.rate in DROPPED and ":" not in (source.timecode or ";")[-3:]


def timecode(frame: int, rate: Fraction, drop: bool) -> str:
    """HH:MM:SS:FF; with a semicolon where numbers are dropped."""
    opentime = timeline_library().opentime
    return str(opentime.to_timecode(opentime.RationalTime(frame, float(rate)), float(rate), drop))


def frames_of(code: str, rate: Fraction, drop: bool) -> int:
    """The number of frames before a timecode, which is read as one that drops numbers, or not."""
    opentime = timeline_library().opentime
    code = code[:-3] + (";" if drop else ":") + code[-2:]
    return int(opentime.from_timecode(code, float(rate)).value)


def first_frame(source: SourceMedia) -> int:
    """The frame number of a film's own first timecode; 0 where it has none."""
    if source.timecode is None or source.rate not in RATES:
        return 0
    try:
        return frames_of(source.timecode, source.rate, drops(source))
    except ValueError:
        return 0


def timeline_library() -> Any:
    try:
        import opentimelineio
    except ImportError:
        raise missing_packages("timelines", "opentimelineio") from None
    return opentimelineio


def counted_reels(edits: Sequence[Edit]) -> Mapping[str, str]:
    """A name of at most eight letters and digits for each film, all different."""
    reels: dict[str, str] = {}
    for edit in edits:
        if edit.clip.video in reels:
            continue
        stem = "".join(char for char in Path(edit.clip.video).stem if char.isascii() and char.isalnum())
        name, number = (stem.upper() or "FILM")[:8], 1
        while name in reels.values():
            number += 1
            name = f"{(stem.upper() or 'FILM')[: 8 - len(str(number))]}{number}"
        reels[edit.clip.video] = name
    return reels
