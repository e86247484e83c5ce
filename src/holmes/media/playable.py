"""Convert films that a browser cannot play to fragmented MP4 (H.264, AAC), while they are watched.

It starts at any second. Pictures that are H.264 already are copied, others are decoded and encoded again.
"""

from __future__ import annotations

import io
from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from holmes.media.containers import (
    VideoError,
    av_library,
    even,
    file_start,
    open_container,
    pixel_aspect,
    seek,
    sound_stream,
    video_stream,
)

COPIED = ("h264",)
COPIED_FORMATS = ("yuv420p", "yuvj420p")
UNTIMED = ("avi",)  # formats that do not say when a picture is shown
TALLEST = 720  # pixels; more cannot be encoded while watching on a small machine
MOST_PER_SECOND = 30  # pictures
SOUND_RATE = 48_000
FRAGMENT = 500_000  # microseconds
FAULTS = 200  # packets in a row that do not decode: the rest is not video


@dataclass(frozen=True)
class Plan:
    """How a file will be converted, and the second at which it will start."""

    copied: bool  # the pictures as they are, only packed anew
    start: float


def plan_conversion(path: Path, start: float) -> Plan:
    """Copied pictures start at a key frame, others at the very second."""
    av = av_library()
    with open_container(av, path) as container:
        stream = video_stream(container)
        codec = stream.codec_context
        formats = container.format.name.split(",")
        if (
            codec.name not in COPIED
            or codec.format is None
            or codec.format.name not in COPIED_FORMATS
            or set(formats) & set(UNTIMED)
        ):
            return Plan(False, start)
        origin = file_start(container)
        seek(av, container, start)
        last = None
        for packet in packets_of(av, container, [stream]):
            if packet.is_keyframe and packet.pts is not None:
                time = max(0.0, float(packet.pts * packet.time_base) - origin)
                if last is not None and time > start:
                    break
                last = time
            elif (
                last is not None and packet.pts is not None and packet.pts * packet.time_base - origin > start
            ):
                break
        return Plan(last is not None, start if last is None else last)


def fragmented_mp4(path: Path, plan: Plan) -> Generator[bytes]:
    """The file from `plan.start` on, piece by piece; closing the iterator ends the work."""
    av = av_library()
    sink = _Sink()
    options = {
        "movflags": "frag_keyframe+empty_moov+default_base_moof+skip_trailer",
        "frag_duration": str(FRAGMENT),
    }
    with (
        open_container(av, path) as container,
        av.open(sink, "w", format="mp4", options=options) as output,
    ):
        video = video_stream(container)
        sound = sound_stream(container)
        video.thread_type = "AUTO"
        tracks: dict[int, _Copy | _Encode | _Sound] = {}
        origin = file_start(container)
        if plan.copied:
            tracks[video.index] = _Copy(output, video, origin + plan.start)
        else:
            tracks[video.index] = _Encode(av, output, video, origin + plan.start, quarter_turns(av, path))
        if sound is not None:
            tracks[sound.index] = _Sound(av, output, sound, origin + plan.start)
        seek(av, container, plan.start)
        chosen = [video] if sound is None else [video, sound]
        for packet in packets_of(av, container, chosen):
            tracks[packet.stream.index].take(packet)
            yield from sink.taken()
        for track in tracks.values():
            track.finish()
    yield from sink.taken()


class _Sink(io.RawIOBase):
    """Where the muxer writes; what is sent cannot be taken back, so it never seeks."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def taken(self) -> Iterator[bytes]:
        if self._pieces:
            piece, self._pieces = b"".join(self._pieces), []
            yield piece


class _Copy:
    """Packets as they are, counted from the start; missing or decreasing timestamps are corrected."""

    def __init__(self, output: Any, stream: Any, start: float) -> None:
        self.output, self.start = output, start
        self.track = output.add_stream_from_template(stream, opaque=True)
        self.last: int | None = None
        self.begun = False

    def take(self, packet: Any) -> None:
        shift = round(self.start / packet.time_base)
        if not self.begun and not (packet.is_keyframe and (packet.pts or 0) >= shift - 1):
            return
        self.begun = True
        pts = packet.pts if packet.pts is not None else packet.dts
        dts = packet.dts if packet.dts is not None else pts
        if pts is None:
            return
        dts = dts - shift if self.last is None else max(dts - shift, self.last + 1)
        packet.dts, packet.pts = dts, max(pts - shift, dts)
        self.last = dts
        packet.stream = self.track
        self.output.mux(packet)

    def finish(self) -> None:
        pass


class _Encode:
    """Pictures decoded, scaled down where they are large, and encoded as H.264."""

    def __init__(self, av: Any, output: Any, stream: Any, start: float, turns: int) -> None:
        self.av, self.output, self.start, self.turns = av, output, start, turns
        rate = min(MOST_PER_SECOND, max(1, round(float(stream.average_rate or 25))))
        self.track = output.add_stream("libx264", rate=rate)
        codec = stream.codec_context
        aspect = pixel_aspect(stream)
        scale = min(1.0, TALLEST / max(min(codec.width * aspect, codec.height), 1))
        self.size = [even(side * scale) for side in (codec.width * aspect, codec.height)]
        self.track.width, self.track.height = self.size[::-1] if turns % 2 else self.size
        self.track.pix_fmt = "yuv420p"
        self.track.options = {"preset": "ultrafast", "crf": "24", "g": str(2 * rate), "tune": "zerolatency"}
        self.track.codec_context.time_base = Fraction(1, 1000)
        self.step = 1 / rate
        self.last = -1.0
        self.faults = 0

    def take(self, packet: Any) -> None:
        try:
            frames = packet.decode()
            self.faults = 0
        except (self.av.error.FFmpegError, ValueError) as error:
            self.faults += 1
            if self.faults > FAULTS:
                raise VideoError("most of it cannot be decoded") from error
            return
        for frame in frames:
            time = self.last + self.step if frame.pts is None else float(frame.time) - self.start
            if time < 0 or time - self.last < 0.5 * self.step:
                continue
            picture = self._upright(frame)
            picture.pts, picture.time_base = round(1000 * time), Fraction(1, 1000)
            picture.pict_type = 0
            self.last = time
            self.output.mux(self.track.encode(picture))

    def _upright(self, frame: Any) -> Any:
        width, height = self.size
        if not self.turns:
            return frame.reformat(width=width, height=height, format="yuv420p")
        pixels = np.rot90(frame.reformat(width=width, height=height, format="rgb24").to_ndarray(), self.turns)
        return self.av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), "rgb24").reformat(
            format="yuv420p"
        )

    def finish(self) -> None:
        self.output.mux(self.track.encode(None))


class _Sound:
    """Sound as AAC; silent where the file has a gap, left out where it cannot be decoded."""

    def __init__(self, av: Any, output: Any, stream: Any, start: float) -> None:
        self.av, self.output, self.start = av, output, start
        self.track = output.add_stream("aac", rate=SOUND_RATE)
        self.track.layout = "stereo"
        self.resampler = av.AudioResampler("fltp", "stereo", SOUND_RATE, frame_size=1024)
        self.shift: int | None = None
        self.next = 0

    def take(self, packet: Any) -> None:
        try:
            frames = packet.decode()
        except (self.av.error.FFmpegError, ValueError):
            return
        for frame in frames:
            time = None if frame.pts is None else float(frame.time) - self.start
            if self.shift is None:
                if time is None or time < 0:
                    continue
                self.next = self.shift = round(time * SOUND_RATE)
            frame.pts = None
            self._encode(self.resampler.resample(frame))

    def _encode(self, frames: list[Any]) -> None:
        for frame in frames:
            frame.pts, frame.time_base = self.next, Fraction(1, SOUND_RATE)
            self.next += frame.samples
            self.output.mux(self.track.encode(frame))

    def finish(self) -> None:
        if self.shift is not None:
            self._encode(self.resampler.resample(None))
            self.output.mux(self.track.encode(None))


def quarter_turns(av: Any, path: Path) -> int:
    """How many times to turn pictures anticlockwise by 90° so that they are upright: phones film sideways."""
    with open_container(av, path) as container, suppress(av.error.FFmpegError, ValueError):
        for frame in container.decode(video_stream(container)):
            return int(round(frame.rotation / 90) % 4)
    return 0


def packets_of(av: Any, container: Any, streams: list[Any]) -> Iterator[Any]:
    """Packets with data, until the file ends or cannot be read further."""
    packets = container.demux(streams)
    faults = 0
    while faults < FAULTS:
        try:
            packet = next(packets)
        except (StopIteration, av.error.EOFError):
            return
        except av.error.FFmpegError:
            faults += 1
            continue
        if packet.size:
            yield packet
