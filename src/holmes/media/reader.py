"""Frames of a video at regular times, streamed, with only a few decoded frames in memory.

A sample is what a viewer sees at its moment: the last frame that has come on by then. So a file whose frames
come at uneven times, or that shows one picture for half a minute, gives the samples its viewer would expect.
Samples lie in the middle of equal steps: at 2 per second, at .25 s, .75 s, 1.25 s and so on.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from holmes.media.backbones.base import Image
from holmes.media.containers import (
    LARGEST_GAP,
    VideoError,
    av_library,
    check_size,
    file_start,
    frames_per_second,
    key_frame_gaps,
    open_container,
    pixel_aspect,
    promised_seconds,
    reason,
    seek,
    start_shift,
    video_stream,
)
from holmes.media.sampled_packets import SampledPackets

LONGEST_HOLD = 60.0  # seconds one picture may fill; a longer pause gets no further samples
LARGEST_SHAPE = 16  # times the square of `largest_side`: pixels of a picture, however long it is
SLACK = 1e-6  # seconds by which a moment may seem to miss the frame that is shown at it
MOST_SAMPLES = 2**18  # of one file, 36 hours at two per second; what follows is left out
DENSE = 2.0  # at most this many seconds between key frames for decoding only these
BEFORE = 10.0  # seconds before a position at which to begin decoding, so that the pictures there are whole
MANY_FAULTS = 500  # packets in a row that do not decode: the rest of the file is not video
MISSED, MISSED_SHARE = 2.0, 0.2  # more seconds and more of the file than this without a picture get a note
FAR_BACK = 20.0  # seconds to look back for a picture where there was none
MOST_BETWEEN_KEYS = 1500  # frames decoded to reach one; after that the last of them will do
PLANAR = "yuv"  # begins the names of formats that are scaled as they are


class Scaler:
    """Scales the frames of one video; what it prepares for the first one serves the others.

    Brightness and colours that lie in planes of their own are scaled there, and few pixels are left to turn
    into RGB: several times as fast as both in one step, and closer to scaling RGB.
    """

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads

    def rgb(self, frame: Any, width: int, height: int) -> Image:
        """`frame` in this size, as it is stored: not turned."""
        if (width, height) != (frame.width, frame.height):
            name = frame.format.name
            frame = self._in_size.reformat(
                frame,
                width=width,
                height=height,
                format=name if name.startswith(PLANAR) else "rgb24",
                interpolation="AREA",
                threads=self._threads,
            )
        coloured = self._in_colour.reformat(frame, format="rgb24", threads=self._threads)
        array: Image = np.asarray(coloured.to_ndarray())
        return array

    @cached_property
    def _in_size(self) -> Any:
        from av.video.reformatter import VideoReformatter

        return VideoReformatter()

    @cached_property
    def _in_colour(self) -> Any:
        from av.video.reformatter import VideoReformatter

        return VideoReformatter()


class PositionLostError(VideoError):
    """The position to go on from is not in the file, or shows another picture; begin at the start."""


@dataclass(frozen=True)
class ReadingPosition:
    """Where in a file the reading has come to: the frame on the screen, and the sample that is next."""

    pts: int
    look: int  # CRC-32 of the frame's luma; the name in saved files
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
    """The samples of one file, `rate` per second. Iterate once; then `start`, `duration`, `note` are known.

    Frames come upright, with square pixels, scaled down where their short side exceeds `largest_side`: to
    `scaled_side`, or else to just that.
    """

    def __init__(
        self,
        path: Path,
        rate: float,
        largest_side: int | None = None,
        threads: int = 1,
        fast: bool = False,
        resume: ReadingPosition | None = None,
        scaled_side: int | None = None,
    ) -> None:
        """`fast` decodes only key frames where they are dense; `resume` continues an earlier reading."""
        self.path, self.rate, self.largest_side, self.threads = path, rate, largest_side, threads
        self.fast, self._resume, self.scaled_side = fast, resume, scaled_side
        self._scaler = Scaler(threads)
        self.start = 0.0  # seconds until the first picture
        self.duration = 0.0  # seconds, as far as frames were seen
        self.promised = 0.0  # seconds, as the file says; 0 where it does not
        self.note = ""  # a fault that did not stop the reading
        self._pixel_aspect = 1.0
        self._shown: Any = None
        self._sampled: Image | None = None
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
        av = av_library()
        with open_container(av, self.path) as container:
            stream = video_stream(container)
            self._pixel_aspect = pixel_aspect(stream)
            stream.thread_type, stream.codec_context.thread_count = "AUTO", self.threads
            if container.duration:
                time = min(time, container.duration / 1_000_000)
            for earlier in (0.0, FAR_BACK, time):  # a file that ends early, or that cannot be searched
                seek(av, container, time - earlier)
                shown = self._last_by(self._decode(av, container.demux(stream)), file_start(container) + time)
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

    def position(self) -> ReadingPosition | None:
        """Where the reading is now; None where it cannot be continued from here."""
        if self._shown is None or self._shown.pts is None or self.note:
            return None
        if abs(float(self._shown.time) + self._shift - self._since) > 1e-6:  # the timestamps jump just here
            return None
        checksum = zlib.crc32(memoryview(self._shown.planes[0]))
        return ReadingPosition(
            self._shown.pts, checksum, self._since, self._shift, self.start, self._step, self._given
        )

    def _hold(self, until: float) -> Iterator[Sample]:
        """Samples of the frame that is shown, up to the time the next one comes."""
        image = None
        while (moment := (self._step + 0.5) / self.rate) < until and self._given < MOST_SAMPLES:
            image = self._same_or_new(self._picture(self._shown)) if image is None else image
            self._step, self._given = self._step + 1, self._given + 1
            yield Sample(moment, image)

    def _same_or_new(self, image: Image) -> Image:
        """The sample before, where this one is the same to the last bit: slides and screens stand still."""
        if self._sampled is None or not np.array_equal(image, self._sampled):
            self._sampled = image
        return self._sampled

    def _frames(self) -> Iterator[tuple[float, Any]]:
        """Every decoded frame with its time in seconds since the start, never going backwards."""
        av = av_library()
        container = open_container(av, self.path)
        with container:
            stream = video_stream(container)
            self._pixel_aspect = pixel_aspect(stream)
            usual_length = 1 / frames_per_second(stream)
            stream.thread_type = "AUTO"
            stream.codec_context.thread_count = self.threads
            self.promised = promised_seconds(container, stream, 0.0)
            shift, last = None, 0.0
            keys_only = self.fast and self._keys_are_dense(av)
            if keys_only:
                stream.codec_context.skip_frame = "NONKEY"
                frames = self._decode(av, container.demux(stream))
            else:
                frames = self._decode_shown(av, container, stream)
            if self._resume is not None:
                frames = self._seek(frames, av, container, stream, self._resume)
                shift, last, self.start = self._resume.shift, self._resume.since, self._resume.start
            for frame in frames:
                raw = last + usual_length - (shift or 0.0) if frame.pts is None else float(frame.time)
                if shift is None:
                    shift = start_shift(container, raw)
                    self.start = raw + shift
                elif not 0 <= raw + shift - last <= LARGEST_GAP:
                    shift = last + usual_length - raw
                last, self._shift = raw + shift, shift
                length = float((frame.duration or 0) * frame.time_base) if frame.time_base else 0.0
                self.duration = last + (length if 0 < length <= LONGEST_HOLD else usual_length)
                yield last, frame
            promised = promised_seconds(container, stream, self.start)
            if keys_only:  # the last one stands for what follows it too
                self.duration = max(self.duration, min(self.start + promised, last + DENSE))
            self._note_missing(promised)

    def _keys_are_dense(self, av: Any) -> bool:
        return max(key_frame_gaps(av, self.path), default=math.inf) <= DENSE

    def _decode_shown(self, av: Any, container: Any, stream: Any) -> Iterator[Any]:
        """Frames in order, without most of those that no sample shows."""
        packets = SampledPackets(container.demux(stream), stream, self._shows)

        def marked() -> Iterator[Any]:
            for packet, shown in packets:
                stream.codec_context.skip_frame = "DEFAULT" if shown else "NONREF"
                yield packet

        for frame in self._decode(av, marked()):
            if frame.interlaced_frame:  # it may come in two packets
                packets.stop()
            yield frame

    def _shows(self, start: float, end: float) -> bool:
        """Whether a sample may show what is on the screen between two times of the file's own clock."""
        if self._shown is None:
            return True
        step = math.floor((start + self._shift - SLACK) * self.rate - 0.5) + 1
        return (step + 0.5) / self.rate < end + self._shift + SLACK

    def _seek(
        self, frames: Iterator[Any], av: Any, container: Any, stream: Any, position: ReadingPosition
    ) -> Iterator[Any]:
        """The frames from `position` on; of what lies before it, only the last seconds are decoded again."""
        try:
            container.seek(position.pts - round(BEFORE / stream.time_base), stream=stream)
        except (av.error.FFmpegError, ValueError, OverflowError):
            raise PositionLostError("its position cannot be found again") from None
        found = False
        for frame in frames:
            if not found:
                if frame.pts is None or frame.pts < position.pts:
                    continue
                if frame.pts != position.pts or zlib.crc32(memoryview(frame.planes[0])) != position.look:
                    raise PositionLostError("the picture at its position is another one now")
                found = True
            yield frame
        if not found:
            raise PositionLostError("its position cannot be found again")

    def _note_missing(self, promised: float) -> None:
        """Note pictures that end long before the file says: it was cut short, or its end is damaged."""
        seen = self.duration - self.start
        if 0 < seen < promised - max(MISSED, MISSED_SHARE * promised):
            missing = f"it has pictures for {seen:.1f} of its {promised:.1f} seconds"
            self.note = f"{missing}; {self.note}" if self.note else missing

    def _decode(self, av: Any, packets: Iterator[Any]) -> Iterator[Any]:
        """Frames in order; packets that do not decode are left out and noted."""
        faults, faults_in_a_row = 0, 0
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
                self.note = f"{faults} of its packets could not be decoded ({reason(error)})"
                continue
            for frame in frames:
                check_size(frame)
                yield frame

    def _picture(self, frame: Any) -> Image:
        width, height = round(frame.width * self._pixel_aspect), frame.height
        if self.largest_side:
            short = min(width, height)
            side = self.largest_side if short <= self.largest_side else self.scaled_side or self.largest_side
            largest = math.sqrt(LARGEST_SHAPE / (width * height)) * side
            if (scale := min(side / short, largest)) < 1:
                width, height = max(1, round(width * scale)), max(1, round(height * scale))
        # The display matrix says how far to turn anticlockwise, which is NumPy's direction too.
        upright = np.rot90(self._scaler.rgb(frame, width, height), round(frame.rotation / 90))
        return np.ascontiguousarray(upright)
