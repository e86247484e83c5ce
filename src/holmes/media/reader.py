"""Frames of a video file at steady times, streamed: no more than a few decoded frames are held at once.

A sample is what a viewer sees at its moment: the last frame that has come on by then. So a file whose frames
come at uneven times, or that shows one picture for half a minute, gives the samples its viewer would expect.
Samples lie in the middle of equal steps: at 2 per second, at .25 s, .75 s, 1.25 s and so on.
"""

from __future__ import annotations

import math
import stat
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from holmes.errors import HolmesError
from holmes.media.backbones.base import Image, missing_extra

LONGEST_HOLD = 60.0  # seconds one picture may fill; a longer pause gets no further samples
LARGEST_GAP = 3600.0  # seconds; timestamps that jump further, or backwards, are counted on from the last one
LARGEST_FRAME = 8192 * 8192  # pixels; more is a broken header, or more memory than a frame is worth
LARGEST_SHAPE = 16  # times the square of `largest_side`: pixels of a picture, however long it is
MOST_SAMPLES = 2**18  # of one file, 36 hours at two per second; what follows is left out
DENSE = 2.0  # seconds between key frames, at most, for which they stand for the rest
FRAMES_LOOKED_AT = 250  # to see how dense they come
BEFORE = 10.0  # seconds before a place to begin decoding at, so that the pictures there are whole
MANY_FAULTS = 500  # packets in a row that do not decode: the rest of the file is not video
MISSED, MISSED_SHARE = 2.0, 0.2  # more seconds and more of the file than this without a picture get a note
BLIND, LEAD = ("mpegts", "mpeg"), 5.0  # containers without a table of key frames; seconds to start before
FAR_BACK = 20.0  # seconds to look back for a picture where there was none
MOST_BETWEEN_KEYS = 1500  # frames decoded to reach one; then the last of them will do
USUAL_RATE = 25.0  # frames per second of a file that says nothing about it


class VideoError(HolmesError):
    """A file that gives no frames; the message is the reason alone, without the file's name."""


class PlaceLostError(VideoError):
    """The place to go on from is not in the file, or looks different; begin at the start."""


@dataclass(frozen=True)
class Place:
    """Where in a file the reading has come to: the frame on the screen, and the sample that is next."""

    pts: int
    look: int  # CRC-32 of the frame's luma
    since: float  # its time, in seconds since the start
    shift: float  # added to the file's timestamps
    start: float
    step: int
    given: int  # samples so far


@dataclass(frozen=True)
class Sample:
    """The picture on the screen `time` seconds after the start."""

    time: float
    image: Image


class VideoReader:
    """The samples of one file, `rate` a second. Iterate once; `start`, `duration`, `note` are known then.

    Frames come upright, with square pixels, scaled down where their short side exceeds `largest_side`.
    """

    def __init__(
        self,
        path: Path,
        rate: float,
        largest_side: int | None = None,
        threads: int = 1,
        fast: bool = False,
        resume: Place | None = None,
    ) -> None:
        """`fast` decodes key frames alone where they are dense; `resume` goes on after an earlier reading."""
        self.path, self.rate, self.largest_side, self.threads = path, rate, largest_side, threads
        self.fast, self._resume = fast, resume
        self.start = 0.0  # seconds until the first picture
        self.duration = 0.0  # seconds, as far as frames were seen
        self.promised = 0.0  # seconds, as the file says; 0 where it does not
        self.note = ""  # a fault that did not stop the reading
        self._pixel_aspect = 1.0
        self._shown: Any = None
        self._since, self._shift, self._step, self._given = 0.0, 0.0, 0, 0

    def __iter__(self) -> Iterator[Sample]:
        for time, frame in self._frames():
            if self._resume is not None:  # this is the very frame the earlier reading had come to
                self._step, self._given, self._resume = self._resume.step, self._resume.given, None
            elif self._shown is None:  # sound may come before the first picture
                self._step = max(0, math.ceil(time * self.rate - 0.5))
            else:
                yield from self._hold(min(time, self._since + LONGEST_HOLD))
                self._step = max(self._step, int(time * self.rate))
            if self._given >= MOST_SAMPLES:
                self.note = f"only its first {time / 3600:.1f} hours were taken"
                return
            self._shown, self._since = frame, time
        if self._shown is None:
            raise VideoError(self.note or "it has a video track, but no picture in it")
        yield from self._hold(self.duration)
        if not self._given:  # the pictures fall between two samples
            yield Sample(self._since, self._picture(self._shown))

    def at(self, time: float) -> Image:
        """The picture on the screen at `time` seconds, found from the key frame before it."""
        av = _av()
        with _open(av, self.path) as container:
            stream = _video_stream(container)
            self._pixel_aspect = _pixel_aspect(stream)
            stream.thread_type, stream.codec_context.thread_count = "AUTO", self.threads
            if container.duration:
                time = min(time, container.duration / 1_000_000)
            for earlier in (0.0, FAR_BACK, time):  # a file that ends early, or that cannot be searched
                seek(av, container, time - earlier)
                shown = self._last_by(self._decode(av, container, stream), file_start(container) + time)
                if shown is not None:
                    return self._picture(shown)
            raise VideoError(self.note or "it has no picture there")

    def _last_by(self, frames: Iterator[Any], time: float) -> Any:
        shown = None
        for frame in islice(frames, MOST_BETWEEN_KEYS):
            if shown is not None and frame.pts is not None and float(frame.time) > time:
                break
            shown = frame
        return shown

    def place(self) -> Place | None:
        """Where the reading is now; None where it cannot be gone on with from here."""
        if self._shown is None or self._shown.pts is None or self.note:
            return None
        if abs(float(self._shown.time) + self._shift - self._since) > 1e-6:  # the timestamps jump just here
            return None
        look = zlib.crc32(memoryview(self._shown.planes[0]))
        return Place(self._shown.pts, look, self._since, self._shift, self.start, self._step, self._given)

    def _hold(self, until: float) -> Iterator[Sample]:
        """Samples of the frame that is shown, up to the time the next one comes."""
        image = None
        while (moment := (self._step + 0.5) / self.rate) < until and self._given < MOST_SAMPLES:
            image = self._picture(self._shown) if image is None else image
            self._step, self._given = self._step + 1, self._given + 1
            yield Sample(moment, image)

    def _frames(self) -> Iterator[tuple[float, Any]]:
        """Every decoded frame with its time in seconds since the start, never going backwards."""
        av = _av()
        container = _open(av, self.path)
        with container:
            stream = _video_stream(container)
            self._pixel_aspect = _pixel_aspect(stream)
            usual_length = 1 / _frames_per_second(stream)
            stream.thread_type = "AUTO"
            stream.codec_context.thread_count = self.threads
            stream.codec_context.skip_frame = self._skipped(av)
            self.promised = _promised(container, stream, 0.0)
            shift, last = None, 0.0
            frames = self._decode(av, container, stream)
            if self._resume is not None:
                frames = self._seek(frames, av, container, stream, self._resume)
                shift, last, self.start = self._resume.shift, self._resume.since, self._resume.start
            for frame in frames:
                raw = last + usual_length - (shift or 0.0) if frame.pts is None else float(frame.time)
                if shift is None:
                    shift = _start_shift(container, raw)
                    self.start = raw + shift
                elif not 0 <= raw + shift - last <= LARGEST_GAP:
                    shift = last + usual_length - raw
                last, self._shift = raw + shift, shift
                length = float((frame.duration or 0) * frame.time_base) if frame.time_base else 0.0
                self.duration = last + (length if 0 < length <= LONGEST_HOLD else usual_length)
                yield last, frame
            self._note_missing(_promised(container, stream, self.start))

    def _skipped(self, av: Any) -> str:
        """Which frames need no decoding."""
        if self.fast and max(_gaps(av, self.path, keys_only=True), default=math.inf) <= DENSE:
            return "NONKEY"
        # Frames no other refers to come few in a row: where frames are dense, less than half a step is lost.
        gaps = _gaps(av, self.path, most=FRAMES_LOOKED_AT)
        usual = gaps[len(gaps) * 9 // 10] if gaps else math.inf
        return "NONREF" if usual * self.rate <= 1 / 8 else "DEFAULT"

    def _seek(
        self, frames: Iterator[Any], av: Any, container: Any, stream: Any, place: Place
    ) -> Iterator[Any]:
        """The frames from `place` on; of what lies before it, only the last seconds are decoded again."""
        try:
            container.seek(place.pts - round(BEFORE / stream.time_base), stream=stream)
        except (av.error.FFmpegError, ValueError, OverflowError):
            raise PlaceLostError("its place cannot be found again") from None
        found = False
        for frame in frames:
            if not found:
                if frame.pts is None or frame.pts < place.pts:
                    continue
                if frame.pts != place.pts or zlib.crc32(memoryview(frame.planes[0])) != place.look:
                    raise PlaceLostError("its place looks different now")
                found = True
            yield frame
        if not found:
            raise PlaceLostError("its place cannot be found again")

    def _note_missing(self, promised: float) -> None:
        """Note pictures that end long before the file says: it was cut short, or its end is damaged."""
        seen = self.duration - self.start
        if 0 < seen < promised - max(MISSED, MISSED_SHARE * promised):
            missing = f"it has pictures for {seen:.1f} of its {promised:.1f} seconds"
            self.note = f"{missing}; {self.note}" if self.note else missing

    def _decode(self, av: Any, container: Any, stream: Any) -> Iterator[Any]:
        """Frames in order; packets that do not decode are left out and noted."""
        packets, faults, faults_in_a_row = container.demux(stream), 0, 0
        while faults_in_a_row < MANY_FAULTS:
            try:
                frames = next(packets).decode()
                faults_in_a_row = 0
            except StopIteration:
                break
            except av.error.EOFError:
                break
            except (av.error.FFmpegError, ValueError) as error:
                faults, faults_in_a_row = faults + 1, faults_in_a_row + 1
                self.note = f"{faults} of its packets could not be decoded ({_reason(error)})"
                continue
            for frame in frames:
                _check_size(frame)
                yield frame

    def _picture(self, frame: Any) -> Image:
        width, height = round(frame.width * self._pixel_aspect), frame.height
        if self.largest_side:
            room = math.sqrt(LARGEST_SHAPE / (width * height)) * self.largest_side
            if (scale := min(self.largest_side / min(width, height), room)) < 1:
                width, height = max(1, round(width * scale)), max(1, round(height * scale))
        if (width, height) != (frame.width, frame.height):
            frame_rgb = frame.reformat(width=width, height=height, format="rgb24", interpolation="AREA")
        else:
            frame_rgb = frame.reformat(format="rgb24")
        # The display matrix says how far to turn anticlockwise, which is NumPy's direction too.
        return np.ascontiguousarray(np.rot90(frame_rgb.to_ndarray(), round(frame.rotation / 90)))


def file_start(container: Any) -> float:
    """Where the file's own clock starts, in seconds: seldom at zero in a recorded broadcast."""
    return float(container.start_time or 0) / 1_000_000


def seek(av: Any, container: Any, time: float) -> None:
    """To a key frame before `time` seconds; broadcast formats have no table of them and miss by seconds."""
    blind = set(container.format.name.split(",")) & set(BLIND)
    wanted = max(0.0, time) - (LEAD if blind else 0.0)
    with suppress(av.error.FFmpegError):  # what cannot be searched is read from where it is
        container.seek(round((file_start(container) + wanted) * 1_000_000))


def _open(av: Any, path: Path) -> Any:
    """The file's container. Opened by us, so that no name is taken for an address or a pattern."""
    try:
        info = path.stat()
    except FileNotFoundError:
        raise VideoError("the link leads nowhere" if path.is_symlink() else "it does not exist") from None
    except OSError as error:
        raise VideoError(f"it cannot be read ({error.strerror})") from None
    if stat.S_ISDIR(info.st_mode):
        raise VideoError("it is not a file but a folder, which cannot be searched")
    if not stat.S_ISREG(info.st_mode):
        raise VideoError("it is not a file")
    if info.st_size == 0:
        raise VideoError("it is empty")
    try:
        file = open(path, "rb")  # noqa: SIM115 (the container closes it)
    except OSError as error:
        raise VideoError(f"it cannot be read ({error.strerror})") from None
    try:
        # A playlist or session description names other files or addresses: none of them is opened.
        return av.open(
            file,
            mode="r",
            metadata_errors="ignore",
            buffer_size=1 << 18,
            options={"protocol_whitelist": "none"},
        )
    except (av.error.FFmpegError, ValueError, OSError) as error:
        file.close()
        raise VideoError(f"it is not a video file, or its header is damaged ({_reason(error)})") from None


def _video_stream(container: Any) -> Any:
    """The first video track that is not a cover picture."""
    from av.stream import Disposition

    streams = [s for s in container.streams.video if not s.disposition & Disposition.attached_pic]
    if not streams:
        raise VideoError("it has no video track" + (", only sound" if container.streams.audio else ""))
    stream = streams[0]
    if stream.codec_context is None:
        raise VideoError("its video has a codec that cannot be decoded here")
    _check_size(stream.codec_context)
    return stream


def _check_size(picture: Any) -> None:
    if picture.width * picture.height > LARGEST_FRAME:
        raise VideoError(f"its frames are too large ({picture.width}×{picture.height})")


def _frames_per_second(stream: Any) -> float:
    with suppress(ValueError, ZeroDivisionError):
        rate = float(stream.average_rate or stream.base_rate or USUAL_RATE)
        if 0.01 <= rate <= 1000:
            return rate
    return USUAL_RATE


def _promised(container: Any, stream: Any, start: float) -> float:
    """Seconds of pictures there should be, by the track, or else by the file; 0 where neither says."""
    if stream.duration is None or stream.time_base is None:
        return max(0.0, (container.duration or 0) / 1_000_000 - start)
    # Where pictures come late, some tracks count from the first of them and some from the start of the file.
    lasts, begins = float(stream.duration * stream.time_base), 0.0
    if stream.start_time is not None:
        begins = float(stream.start_time * stream.time_base) - (container.start_time or 0) / 1_000_000
    return max(0.0, min(lasts, begins + lasts - start))


def _gaps(av: Any, path: Path, keys_only: bool = False, most: int | None = None) -> list[float]:
    """Seconds from each frame, or key frame, to the next, the short ones first. Decodes nothing."""
    times = []
    with _open(av, path) as container, suppress(av.error.FFmpegError, ValueError):
        for packet in islice(container.demux(_video_stream(container)), most):
            if packet.pts is not None and (packet.is_keyframe or not keys_only):
                times.append(float(packet.pts * packet.time_base))
    times.sort()
    return sorted(after - before for before, after in pairwise(times))


def _pixel_aspect(stream: Any) -> float:
    """Width of a pixel over its height; not 1 on old discs and tapes."""
    aspect = float(stream.sample_aspect_ratio or 1)
    return aspect if 0.1 < aspect < 10 else 1.0


def _start_shift(container: Any, first: float) -> float:
    """Added to timestamps to count from the start of the file: where a player shows 0:00."""
    start = container.start_time / 1_000_000 if container.start_time is not None else first
    return -start if 0 <= first - start <= LARGEST_GAP else -first


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(text.split())[:120]


def _av() -> Any:
    try:
        import av
        import av.error
        import av.logging
    except ImportError:
        raise missing_extra("reading videos", "video") from None
    av.logging.set_level(None)
    return av
