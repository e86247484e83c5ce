"""Save parts of films as MP4 files, by copying packets or encoding again.

Copying is fast and loses nothing, but starts at a key frame. Encoding starts and ends at the very frame. A
reel is several moments in one file, each after a title; its frames are encoded.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
    reason,
    seek,
    sound_stream,
    video_stream,
)
from holmes.media.pictures import title_picture
from holmes.media.playable import UNTIMED, packets_of, quarter_turns

# What an MP4 file may hold as it is.
COPIED = ("h264", "hevc", "av1", "mpeg4", "vp9")
COPIED_SOUND = ("aac", "mp3", "ac3", "eac3", "opus", "flac", "alac")
CLOCK = Fraction(1, 90_000)  # of encoded pictures
SOUND_RATE, SOUND_FRAME = 48_000, 1024
SLACK = 1e-4  # seconds by which a frame may seem to miss its time
TITLE_SECONDS, TITLE_STEP = 2.0, 0.04
REORDERED = 16  # pictures that may be decoded before one that is shown earlier, at most
LARGEST_REEL = 1920, 1080
QUALITY = {"preset": "veryfast", "crf": "18"}
WHOLE = {"movflags": "faststart"}
IN_PIECES = {"movflags": "frag_keyframe+delay_moov+default_base_moof+skip_trailer"}  # for what cannot seek


@dataclass(frozen=True)
class FilmClip:
    """Seconds of a film, and what the title before it says in a reel."""

    path: Path
    start: float
    end: float
    title: tuple[str, ...] = ()


@dataclass(frozen=True)
class CutResult:
    """What a file really holds."""

    start: float
    end: float
    copied: bool


def write_clip(clip: FilmClip, out: Any, *, exact: bool = False, pieces: bool = False) -> CutResult:
    """One moment as an MP4 file: copied where its codecs allow, else (or if `exact`) encoded.

    `out` is a path or what the muxer writes to; with `pieces` it need not be able to seek.
    """
    av = av_library()
    with _in_a_line(av):
        if not exact:
            with open_container(av, clip.path) as container:
                if (key := _copy_start(av, container, clip.start)) is not None:
                    return _copied(av, container, key, clip.end, out, pieces)
        with _Encoding(av, out, pieces, [clip]) as encoding:
            first, last = encoding.add(clip)
        return CutResult(first, last, False)


def write_reel(
    clips: Sequence[FilmClip],
    out: Any,
    *,
    pieces: bool = False,
    done: Callable[[int], None] = lambda count: None,
) -> None:
    """All moments in one MP4 file, in the size of the largest film, each after its title."""
    av = av_library()
    with _in_a_line(av), _Encoding(av, out, pieces, clips, LARGEST_REEL) as encoding:
        for clip in clips:
            if clip.title:
                encoding.add_title(clip.title)
            encoding.add(clip)
            done(1)


@contextmanager
def _in_a_line(av: Any) -> Iterator[None]:
    """Faults of a film as one line; a full disk stays what it is."""
    try:
        yield
    except av.error.FFmpegError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise OSError(error.errno, error.strerror) from None
        raise VideoError(f"it cannot be cut ({reason(error)})") from None


def _copy_start(av: Any, container: Any, second: float) -> float | None:
    """The key frame at or before a second; None where packets cannot be copied into an MP4 file."""
    stream = video_stream(container)
    sound = sound_stream(container)
    if _codec(stream) not in COPIED or set(container.format.name.split(",")) & set(UNTIMED):
        return None
    if sound is not None and _codec(sound) not in COPIED_SOUND:
        return None
    origin, key = file_start(container), None
    seek(av, container, second)
    for packet in packets_of(av, container, [stream]):
        if packet.pts is None:
            return None
        time = float(packet.pts * packet.time_base) - origin
        if packet.is_keyframe and (time <= second + SLACK or key is None):
            key = time
        if packet.dts is not None and float(packet.dts * packet.time_base) - origin > second:
            break
    return key


def _copied(av: Any, container: Any, key: float, end: float, out: Any, pieces: bool) -> CutResult:
    video, sound = video_stream(container), sound_stream(container)
    origin = file_start(container)
    with av.open(out, "w", format="mp4", options=IN_PIECES if pieces else WHOLE) as output:
        tracks = {video.index: output.add_stream_from_template(video, opaque=True)}
        if _codec(video) == "hevc":
            tracks[video.index].codec_context.codec_tag = "hvc1"  # QuickTime plays no other
        if sound is not None:
            tracks[sound.index] = output.add_stream_from_template(sound, opaque=True)
        streams = [each for each in (video, sound) if each is not None]
        begun: dict[int, int] = {}  # track → when its last packet was decoded
        last = key  # the time of the last picture
        seek(av, container, key)
        for packet in _with_times(packets_of(av, container, streams), video):
            time = float(packet.pts * packet.time_base) - origin
            track, pictures = packet.stream.index, packet.stream.index == video.index
            # A picture after the end is taken if those before the end, which come later, are built from it.
            if pictures and last >= end - SLACK and time > last:
                break
            if not pictures and time >= end - SLACK:
                continue
            if time < key - SLACK or (pictures and track not in begun and not packet.is_keyframe):
                continue
            shift = round((origin + key) / packet.time_base)
            dts = packet.dts - shift
            packet.dts = max(dts, begun[track] + 1) if track in begun else dts
            packet.pts = max(packet.pts - shift, packet.dts)
            begun[track] = packet.dts
            last = max(last, time) if pictures else last
            packet.stream = tracks[track]
            output.mux(packet)
        if video.index not in begun:
            raise VideoError("it has no picture there")
    return CutResult(key, max(end, last), True)


def _with_times(packets: Iterator[Any], video: Any) -> Iterator[Any]:
    """Packets with both of their times; Matroska leaves out the decoding times of a few at the start."""
    waiting: list[Any] = []
    for packet in packets:
        if packet.pts is None and packet.dts is None:
            continue
        packet.pts = packet.dts if packet.pts is None else packet.pts
        if packet.stream.index != video.index:
            packet.dts = packet.pts if packet.dts is None else packet.dts
        elif packet.dts is None and len(waiting) < REORDERED:
            waiting.append(packet)
            continue
        elif packet.dts is None:
            packet.dts = packet.pts
        for number, early in enumerate(waiting):
            early.dts = min(packet.dts, waiting[0].pts) - (len(waiting) - number)
        yield from waiting
        waiting = []
        yield packet
    for packet in waiting:
        packet.dts = packet.pts
        yield packet


class _Encoding:
    """An MP4 file that pictures and sound are encoded into, one clip after the other."""

    def __init__(
        self,
        av: Any,
        out: Any,
        pieces: bool,
        clips: Sequence[FilmClip],
        largest: tuple[int, int] | None = None,
    ) -> None:
        self.av, self.at = av, 0.0  # seconds that the file has so far
        sizes, rate, sound = [], Fraction(25), False
        for clip in clips:
            with open_container(av, clip.path) as container:
                stream = video_stream(container)
                turned = quarter_turns(av, clip.path) % 2 == 1
                size = round(stream.codec_context.width * pixel_aspect(stream)), stream.codec_context.height
                sizes.append(size[::-1] if turned else size)
                rate = stream.average_rate or rate
                sound = sound or sound_stream(container) is not None
        width, height = max(sizes, key=lambda size: size[0] * size[1])
        scale = 1.0 if largest is None else min(1.0, largest[0] / width, largest[1] / height)
        self.size = even(width * scale), even(height * scale)
        self.output = av.open(out, "w", format="mp4", options=IN_PIECES if pieces else WHOLE)
        self.picture = self.output.add_stream("libx264", rate=min(240, max(1, round(rate))), options=QUALITY)
        self.picture.width, self.picture.height = self.size
        self.picture.pix_fmt = "yuv420p"
        self.picture.codec_context.time_base = CLOCK
        self.sound = self.output.add_stream("aac", rate=SOUND_RATE) if sound else None
        if self.sound is not None:
            self.sound.layout = "stereo"
            self.fifo = av.AudioFifo()
        self.samples = 0  # of sound so far
        self.last = -1  # time of the last picture

    def __enter__(self) -> _Encoding:
        return self

    def __exit__(self, kind: Any, *error: Any) -> None:
        if kind is None:
            self.output.mux(self.picture.encode(None))
            if self.sound is not None:
                self._encode_sound(rest=True)
                self.output.mux(self.sound.encode(None))
        self.output.close()

    def add_title(self, lines: Sequence[str]) -> None:
        image = title_picture(lines, *self.size)
        for step in range(round(TITLE_SECONDS / TITLE_STEP)):
            self._show(self.av.VideoFrame.from_ndarray(image, "rgb24"), self.at + step * TITLE_STEP)
        self.at += TITLE_SECONDS
        self._silence(self.at)

    def add(self, clip: FilmClip) -> tuple[float, float]:
        """Encode a moment; returns the seconds of the film that it really holds.

        It begins with the picture on the screen at its first second.
        """
        turns = quarter_turns(self.av, clip.path)
        resampler = self.av.AudioResampler("fltp", "stereo", SOUND_RATE)
        begin: float | None = None  # the first picture's time in the film
        finish = clip.end
        shown: tuple[float, Any] | None = None  # the last picture that came on by the first second
        waiting: list[tuple[float, Any]] = []  # sound that was read before the first picture
        for is_picture, time, frame in self._frames(clip):
            if not is_picture:
                if begin is None:
                    waiting.append((time, frame))
                else:
                    self._hear(resampler, frame, time - begin, clip.end - begin)
                continue
            if time <= clip.start + SLACK:
                shown = time, frame
                continue
            if begin is None:
                begin, first = shown or (time, frame)
                finish = self._picture(first, begin, begin, turns)
                for heard, sound in waiting:
                    self._hear(resampler, sound, heard - begin, clip.end - begin)
                if first is frame:
                    continue
            if time < clip.end - SLACK:
                finish = self._picture(frame, time, begin, turns)
        if begin is None:  # nothing comes on after the first second
            if shown is None:
                raise VideoError("it has no picture there")
            begin = shown[0]
            finish = self._picture(shown[1], begin, begin, turns)
        end = min(clip.end, finish)
        self.at += max(end - begin, float(CLOCK))
        self._silence(self.at)
        return begin, end

    def _frames(self, clip: FilmClip) -> Iterator[tuple[bool, float, Any]]:
        """Pictures and sound around a moment: whether it is a picture, its time in the film, the frame."""
        with open_container(self.av, clip.path) as container:
            stream, sound = video_stream(container), sound_stream(container)
            stream.thread_type = "AUTO"
            origin = file_start(container)
            streams = [each for each in (stream, sound) if each is not None]
            seek(self.av, container, clip.start)
            for packet in packets_of(self.av, container, streams):
                stamp = packet.pts if packet.dts is None else packet.dts
                if stamp is not None and float(stamp * packet.time_base) - origin > clip.end:
                    if packet.stream.index == stream.index:
                        break
                    continue
                for frame in self._decoded(packet.decode):
                    if frame.pts is not None:
                        yield packet.stream.index == stream.index, float(frame.time) - origin, frame
            for frame in self._decoded(stream.decode):  # what the decoder still holds
                if frame.pts is not None:
                    frame.time_base = stream.time_base
                    yield True, float(frame.time) - origin, frame

    def _decoded(self, decode: Callable[[], list[Any]]) -> list[Any]:
        try:
            return list(decode())
        except (self.av.error.FFmpegError, ValueError):
            return []

    def _picture(self, frame: Any, time: float, begin: float, turns: int) -> float:
        """Show a frame of the film; returns until when the film shows it."""
        length = float((frame.duration or 0) * frame.time_base) or TITLE_STEP
        if turns:
            pixels = np.rot90(frame.to_ndarray(format="rgb24"), turns)
            frame = self.av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), "rgb24")
        self._show(frame, self.at + time - begin)
        return time + length

    def _show(self, frame: Any, time: float) -> None:
        """Encode a picture, fitted into the file's size with black borders."""
        stamp = max(self.last + 1, round(time / CLOCK))
        width, height = self.size
        scale = min(width / frame.width, height / frame.height)
        inner = even(frame.width * scale), even(frame.height * scale)
        if abs(inner[0] - width) <= 2 and abs(inner[1] - height) <= 2:
            fitted = frame.reformat(width=width, height=height, format="yuv420p")
        else:
            canvas = np.zeros((height, width, 3), np.uint8)
            top, left = (height - inner[1]) // 2, (width - inner[0]) // 2
            small = frame.reformat(width=inner[0], height=inner[1], format="rgb24").to_ndarray()
            canvas[top : top + inner[1], left : left + inner[0]] = small
            fitted = self.av.VideoFrame.from_ndarray(canvas, "rgb24").reformat(format="yuv420p")
        fitted.pts, fitted.time_base, fitted.pict_type = stamp, CLOCK, 0
        self.last = stamp
        self.output.mux(self.picture.encode(fitted))

    def _hear(self, resampler: Any, frame: Any, time: float, length: float) -> None:
        """Encode the sound of a clip that begins `time` seconds after the clip and ends with it."""
        if self.sound is None:
            return
        try:
            heard = resampler.resample(frame)
        except (self.av.error.FFmpegError, ValueError):
            return
        position = round((self.at + time) * SOUND_RATE)
        end = round((self.at + length) * SOUND_RATE)
        for part in heard:
            samples = part.to_ndarray()[:, : max(0, end - position)]
            samples = samples[:, max(0, self.samples - position) :]
            position = max(position, self.samples)
            if samples.shape[1]:
                self._silence(position / SOUND_RATE)
                self._take(samples)
            position += samples.shape[1]

    def _silence(self, until: float) -> None:
        missing = round(until * SOUND_RATE) - self.samples
        if self.sound is not None and missing > 0:
            self._take(np.zeros((2, missing), np.float32))

    def _take(self, samples: Any) -> None:
        frame = self.av.AudioFrame.from_ndarray(np.ascontiguousarray(samples, np.float32), "fltp", "stereo")
        frame.sample_rate, frame.time_base, frame.pts = SOUND_RATE, Fraction(1, SOUND_RATE), self.samples
        self.samples += samples.shape[1]
        self.fifo.write(frame)
        self._encode_sound()

    def _encode_sound(self, rest: bool = False) -> None:
        assert self.sound is not None
        while (frame := self.fifo.read(SOUND_FRAME, partial=rest)) is not None:
            self.output.mux(self.sound.encode(frame))


def _codec(stream: Any) -> str:
    """The codec's own name: decoders have names of theirs, such as libdav1d for av1."""
    codec = stream.codec_context.codec
    return str(getattr(codec, "canonical_name", codec.name))
