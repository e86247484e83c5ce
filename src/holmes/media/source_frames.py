"""The frames of a film as an editor counts them: rate, first timecode, frames of a moment.

Editors count frames at a steady rate. A film with uneven frames gets the usual rate that tells its closest
frames apart; frame number n is then the picture on the screen n / rate seconds after the first one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

from holmes.media.containers import (
    USUAL_RATE,
    av_library,
    file_start,
    open_container,
    promised_seconds,
    seek,
    sound_stream,
    video_stream,
)

# Frames a second that editing programs have timelines for.
USUAL_RATES = tuple(
    sorted(
        [Fraction(rate) for rate in (24, 25, 30, 48, 50, 60, 100, 120)]
        + [Fraction(rate * 1000, 1001) for rate in (24, 30, 48, 60, 120)]
    )
)
SAME_RATE = 3e-4  # relative; 24 and 23.976 differ by .001
FASTEST = 240  # frames a second; more is a wrong header
AROUND = 2.0  # seconds read before and after an end of a moment
MOST_PACKETS = 20_000  # read around one end
TIMECODE = re.compile(r"\d\d:[0-5]\d:[0-5]\d[:;]\d\d")


@dataclass(frozen=True)
class SourceMedia:
    """A film as an editor sees it, and the frames of the moments that were asked for."""

    rate: Fraction  # frames a second
    variable: bool  # whether its frames come at uneven times
    frames: int  # of the whole film, at `rate`
    timecode: str | None  # of its first frame, if the file says
    width: int
    height: int
    channels: int  # of sound; 0 without
    sample_rate: int
    ranges: tuple[tuple[int, int], ...]  # of each moment the first frame, and the frame after its last

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "rate": str(self.rate)}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> SourceMedia:
        ranges = tuple((int(first), int(after)) for first, after in plain["ranges"])
        return cls(**{**plain, "rate": Fraction(plain["rate"]), "ranges": ranges})


def read_source(path: Path, moments: Iterable[tuple[float, float]]) -> SourceMedia:
    """The film's rate, length and sound, and the frames of each moment (seconds, from and to).

    A moment begins with the frame on the screen at its first second, and ends before the first frame that
    comes at its last second or later. Nothing is decoded, and only what surrounds these seconds is read.
    """
    av = av_library()
    with open_container(av, path) as container:
        stream = video_stream(container)
        begin = _first_picture(stream, container)
        wanted = [(start - begin, end - begin) for start, end in moments]
        seconds = {second for pair in wanted for second in pair}
        near = {second: _times_around(av, container, stream, second, begin) for second in seconds}
        times = sorted({time for found in near.values() for time in found})
        rate, variable = choose_rate(times, _stated_rates(stream), float(stream.time_base or 0))
        slack = float(stream.time_base or 0) / 2 + 1e-6
        ranges = tuple(
            (
                _frame_at(near[start], start, rate, slack),
                _frame_after(near[end], end, rate, slack),
            )
            for start, end in wanted
        )
        promised = promised_seconds(container, stream, 0.0)
        counted = stream.frames if stream.frames and not variable else round(promised * rate)
        sound = sound_stream(container)
        return SourceMedia(
            rate=rate,
            variable=variable,
            frames=max(int(counted), frame_number(times[-1], rate, 2 * slack) + 1 if times else 1),
            timecode=_timecode(container),
            width=stream.codec_context.width,
            height=stream.codec_context.height,
            channels=0 if sound is None else max(1, sound.codec_context.channels),
            sample_rate=0 if sound is None else sound.codec_context.sample_rate or 0,
            ranges=tuple((first, max(after, first + 1)) for first, after in ranges),
        )


def choose_rate(
    times: Sequence[float], stated: Sequence[Fraction], tick: float = 0.0
) -> tuple[Fraction, bool]:
    """The rate at which frames at `times` (sorted) are counted, and whether they are unevenly spaced.

    `stated` are the rates that the file names, the likeliest first; `tick` is how finely it tells the time.
    """
    for rate in stated:
        if all(abs(time * rate - round(time * rate)) <= _tolerance(rate, tick) for time in times):
            return rate, False
    gaps = [after - before for before, after in pairwise(times) if after - before > tick / 2]
    closest = 1 / (min(gaps) + tick) if gaps else float(stated[0] if stated else USUAL_RATE)
    fast_enough = [rate for rate in USUAL_RATES if rate >= closest]
    return (fast_enough[0] if fast_enough else USUAL_RATES[-1]), True


def frame_number(time: float, rate: Fraction, tick: float = 0.0) -> int:
    """The first steady frame that shows what comes on the screen at `time`."""
    return max(0, math.ceil(time * rate - _tolerance(rate, tick)))


def _tolerance(rate: Fraction, tick: float) -> float:
    """Frames by which a time may miss its position: half of what the file's clock cannot tell."""
    return min(0.45, 0.5 * tick * float(rate) + 1e-3)


def _frame_at(times: Sequence[float], second: float, rate: Fraction, slack: float) -> int:
    shown = [time for time in times if time <= second + slack]
    return frame_number(shown[-1] if shown else 0.0, rate, 2 * slack)


def _frame_after(times: Sequence[float], second: float, rate: Fraction, slack: float) -> int:
    later = [time for time in times if time >= second - slack]
    if later:
        return frame_number(later[0], rate, 2 * slack)
    if times:  # the last picture stays until the film ends
        return max(frame_number(times[-1], rate, 2 * slack) + 1, math.floor(second * rate + 1e-6))
    return math.ceil(second * rate - 1e-6)


def _first_picture(stream: Any, container: Any) -> float:
    """Seconds from the start of the file to its first picture."""
    if stream.start_time is None or stream.time_base is None:
        return 0.0
    return max(0.0, float(stream.start_time * stream.time_base) - file_start(container))


def _times_around(av: Any, container: Any, stream: Any, second: float, begin: float) -> list[float]:
    """When the frames around a second come on the screen, in seconds after the first picture."""
    origin, found = file_start(container) + begin, []
    seek(av, container, max(0.0, second + begin - AROUND))
    with suppress(av.error.FFmpegError, ValueError):
        for number, packet in enumerate(container.demux(stream)):
            stamp = packet.dts if packet.pts is None else packet.pts
            if stamp is None or packet.is_discard:
                continue
            time = float(stamp * packet.time_base) - origin
            if abs(time - second) <= AROUND or time <= second:
                found.append(time)
            decoded = packet.dts if packet.dts is not None else stamp
            if float(decoded * packet.time_base) - origin > second + AROUND or number > MOST_PACKETS:
                break
    return sorted(found)


def _stated_rates(stream: Any) -> list[Fraction]:
    """The rates that the file names, as the usual rates where they nearly are."""
    rates: dict[Fraction, None] = {}
    for stated in (stream.average_rate, stream.guessed_rate, stream.base_rate):
        with suppress(TypeError, ValueError, ZeroDivisionError):
            rate = Fraction(stated)
            if 1 <= rate <= FASTEST:
                near = min(USUAL_RATES, key=lambda usual: abs(usual - rate))
                rates[near if abs(near / rate - 1) <= SAME_RATE else rate] = None
    return list(rates)


def _timecode(container: Any) -> str | None:
    """The timecode of the first frame, as cameras write it."""
    for tags in (*(stream.metadata for stream in container.streams), container.metadata):
        if TIMECODE.fullmatch(str(tags.get("timecode", ""))):
            return str(tags["timecode"])
    return None
