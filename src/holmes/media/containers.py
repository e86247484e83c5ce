"""Open video files with PyAV: tracks, time bases, and reasons why a file is unusable."""

from __future__ import annotations

import stat
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from holmes.errors import HolmesError, missing_packages

LARGEST_GAP = 3600.0  # seconds; timestamps that jump further, or backwards, continue from the last one
LARGEST_FRAME = 8192 * 8192  # pixels; more means a broken header, or more memory than a frame is worth
WITHOUT_KEY_TABLE = ("mpegts", "mpeg")  # formats without a table of key frames
LEAD = 5.0  # seconds by which to seek earlier in these
USUAL_RATE = 25.0  # frames per second of a file without a frame rate


class VideoError(HolmesError):
    """A file that gives no frames; the message is the reason alone, without the file's name."""


def file_start(container: Any) -> float:
    """Where the file's own clock starts, in seconds: seldom at zero in a recorded broadcast."""
    return float(container.start_time or 0) / 1_000_000


def seek(av: Any, container: Any, time: float) -> None:
    """Seek to a key frame before `time`; broadcast formats have no table of them and miss by seconds."""
    blind = set(container.format.name.split(",")) & set(WITHOUT_KEY_TABLE)
    wanted = max(0.0, time) - (LEAD if blind else 0.0)
    with suppress(av.error.FFmpegError):  # a file that cannot seek is read from where it is
        container.seek(round((file_start(container) + wanted) * 1_000_000))


def open_container(av: Any, path: Path) -> Any:
    """The file's container. We open the file, so that no name is taken for an address or a pattern."""
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
        raise VideoError(f"it is not a video file, or its header is damaged ({reason(error)})") from None


def video_stream(container: Any) -> Any:
    """The first video track that is not a cover picture."""
    from av.stream import Disposition

    streams = [s for s in container.streams.video if not s.disposition & Disposition.attached_pic]
    if not streams:
        raise VideoError("it has no video track" + (", only sound" if container.streams.audio else ""))
    stream = streams[0]
    if stream.codec_context is None:
        raise VideoError("its video has a codec that cannot be decoded here")
    check_size(stream.codec_context)
    return stream


def sound_stream(container: Any) -> Any:
    """The first sound track that can be decoded; None where there is none."""
    return next((stream for stream in container.streams.audio if stream.codec_context is not None), None)


def even(length: float) -> int:
    """The nearest even number of pixels: a colour sample of H.264 covers two pixels by two."""
    return max(2, round(length / 2) * 2)


def check_size(picture: Any) -> None:
    if picture.width * picture.height > LARGEST_FRAME:
        raise VideoError(f"its frames are too large ({picture.width}×{picture.height})")


def frames_per_second(stream: Any) -> float:
    with suppress(ValueError, ZeroDivisionError):
        rate = float(stream.average_rate or stream.base_rate or USUAL_RATE)
        if 0.01 <= rate <= 1000:
            return rate
    return USUAL_RATE


def promised_seconds(container: Any, stream: Any, start: float) -> float:
    """Seconds of pictures that there should be, by the track, or else by the file; 0 where neither says."""
    if stream.duration is None or stream.time_base is None:
        return max(0.0, (container.duration or 0) / 1_000_000 - start)
    # Where pictures come late, some tracks count from the first of them and some from the start of the file.
    lasts, begins = float(stream.duration * stream.time_base), 0.0
    if stream.start_time is not None:
        begins = float(stream.start_time * stream.time_base) - (container.start_time or 0) / 1_000_000
    return max(0.0, min(lasts, begins + lasts - start))


def key_frame_gaps(av: Any, path: Path) -> list[float]:
    """Seconds from each key frame to the next. Decodes nothing."""
    times = []
    with open_container(av, path) as container, suppress(av.error.FFmpegError, ValueError):
        for packet in container.demux(video_stream(container)):
            if packet.pts is not None and packet.is_keyframe:
                times.append(float(packet.pts * packet.time_base))
    times.sort()
    return [after - before for before, after in pairwise(times)]


def pixel_aspect(stream: Any) -> float:
    """Width of a pixel over its height; not 1 on old discs and tapes."""
    aspect = float(stream.sample_aspect_ratio or 1)
    return aspect if 0.1 < aspect < 10 else 1.0


def start_shift(container: Any, first: float) -> float:
    """Added to timestamps to count from the start of the file: where a player shows 0:00."""
    start = container.start_time / 1_000_000 if container.start_time is not None else first
    return -start if 0 <= first - start <= LARGEST_GAP else -first


def reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(text.split())[:120]


def av_library() -> Any:
    try:
        import av
        import av.error
        import av.logging
    except ImportError:
        raise missing_packages("reading videos", "av", "pillow") from None
    av.logging.set_level(None)
    return av
