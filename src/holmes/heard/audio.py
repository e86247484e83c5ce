"""The sound of a video in pieces of a few minutes: mono, 16 kHz, cut where it is quiet.

Memory does not grow with the length of the film.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holmes.errors import HolmesError
from holmes.media.containers import av_library, file_start, open_container, reason, seek, sound_stream

RATE = 16_000
PIECE = 300.0  # seconds that are recognised at once
SEARCHED = 20.0  # seconds at the end of a piece in which the quietest moment is searched for
QUIET = 0.25  # seconds of that moment
LARGEST_GAP = 3600.0  # seconds without sound that are filled with silence; a longer jump is a fault
MANY_FAULTS = 500  # packets in a row that do not decode

Sound = NDArray[np.float32]


@dataclass(frozen=True)
class Piece:
    """Sound from `start` seconds of the video on."""

    start: float
    sound: Sound

    @property
    def end(self) -> float:
        return self.start + len(self.sound) / RATE


def has_sound(video: Path) -> bool:
    with open_container(av_library(), video) as container:
        return sound_stream(container) is not None


def read_sound(video: Path, begin: float = 0.0) -> Iterator[Piece]:
    """The first sound track from `begin` seconds on; what does not decode is silence."""
    av = av_library()
    with open_container(av, video) as container:
        stream = sound_stream(container)
        if stream is None:
            return
        if begin:
            seek(av, container, begin - 1.0)
        start, parts, size = begin, list[Sound](), 0  # joined once a piece: a copy each second takes longer
        for time, sound in _decoded(av, container, stream):
            gap = round((time - (start + size / RATE)) * RATE)
            if gap < 0:  # before the time to begin at, or heard already
                sound = sound[-gap:]
            elif RATE // 20 < gap <= LARGEST_GAP * RATE:
                parts.append(np.zeros(gap, np.float32))
            parts.append(sound)
            size = sum(map(len, parts))
            if size < PIECE * RATE:
                continue
            buffered = np.concatenate(parts)
            while len(buffered) >= PIECE * RATE:
                cut = _quietest(buffered[: int(PIECE * RATE)])
                yield Piece(start, buffered[:cut])
                start, buffered = start + cut / RATE, buffered[cut:]
            parts, size = [buffered], len(buffered)
        if size:
            yield Piece(start, np.concatenate(parts))


def _decoded(av: Any, container: Any, stream: Any) -> Iterator[tuple[float, Sound]]:
    """A second or so of sound at a time, with its time in seconds since the start of the file."""
    resampler = av.AudioResampler(format="flt", layout="mono", rate=RATE)
    origin, pending, since, last = file_start(container), list[Sound](), None, 0.0
    packets, faults = container.demux(stream), 0
    while faults < MANY_FAULTS:
        try:
            frames = next(packets).decode()
            faults = 0
        except StopIteration:
            break
        except av.error.EOFError:
            break
        except (av.error.FFmpegError, ValueError):
            faults += 1
            continue
        for frame in frames:
            time = last if frame.pts is None else float(frame.time) - origin
            since = time if since is None else since
            last = time + frame.samples / max(frame.sample_rate, 1)
            frame.pts = None  # the resampler would fill gaps by itself
            try:
                pending += [part.to_ndarray().ravel() for part in resampler.resample(frame)]
            except (av.error.FFmpegError, ValueError) as error:
                raise HolmesError(f"its sound cannot be resampled ({reason(error)})") from None
            if last - since >= 1.0:
                yield since, _finite(pending)
                pending, since = [], None
    if pending and since is not None:
        yield since, _finite(pending)


def _finite(pieces: list[Sound]) -> Sound:
    sound = np.concatenate(pieces) if pieces else np.zeros(0, np.float32)
    cleaned: Sound = np.clip(np.nan_to_num(sound), -1.0, 1.0)
    return cleaned


def _quietest(sound: Sound) -> int:
    """The middle of the quietest moment near the end."""
    first = len(sound) - int(SEARCHED * RATE)
    size = int(QUIET * RATE)
    tail = sound[first : first + (len(sound) - first) // size * size].reshape(-1, size)
    return first + int((tail**2).mean(axis=1).argmin()) * size + size // 2
