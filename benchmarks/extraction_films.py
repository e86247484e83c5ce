"""Films for the benchmark of extraction: real clips, scaled up, with grain, coded as people's films are."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

HEIGHTS = {"360p": (640, 360), "720p": (1280, 720), "1080p": (1920, 1080)}
CODECS = {"H.264": "libx264", "H.265": "libx265"}
FRAMES_PER_SECOND = 25
GRAIN = 4  # deviation, in levels of brightness: without it, scaled-up pictures would be too easy to decode
KEY_SECONDS = 2  # frames between key frames, as in streamed films
PRESETS = {"libx264": "fast", "libx265": "superfast"}


def make_film(
    path: Path, clips: list[Path], size: tuple[int, int], codec: str, seconds: int, times: int
) -> Path:
    """`seconds` of pictures from several clips, coded once and repeated `times` over in the file."""
    if path.exists():
        return path
    once = path.with_name(f"{path.stem}-once.mp4")
    with av.open(str(once), "w") as container:
        stream: Any = container.add_stream(codec, rate=FRAMES_PER_SECOND)
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        stream.thread_type = "FRAME"  # or x264 would cut every frame into slices, which few films have
        stream.options = {"preset": PRESETS[codec], "g": str(KEY_SECONDS * FRAMES_PER_SECOND)}
        if codec == "libx265":
            stream.options |= {"x265-params": "log-level=none"}
        for number, picture in enumerate(pictures(clips, size, seconds * FRAMES_PER_SECOND)):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, FRAMES_PER_SECOND)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    _repeat(once, path, times)
    once.unlink()
    return path


def pictures(clips: list[Path], size: tuple[int, int], count: int) -> Iterator[np.ndarray]:
    """Pictures of one clip after the other, each slowly moving, all with grain."""
    rng = np.random.default_rng(0)
    width, height = size
    grain = rng.normal(0, GRAIN, (height + 64, width + 64, 1)).astype(np.int16)
    made = 0
    while made < count:
        for clip in clips:
            with av.open(str(clip)) as container:
                for frame in container.decode(video=0):
                    large = frame.reformat(width + 64, height + 64, "rgb24").to_ndarray().astype(np.int16)
                    for step in range(4):  # the clips have few frames per second
                        x, y = (made + step) % 64, (made // 2) % 64
                        shift = rng.integers(0, 64, 2)
                        noisy = large[y : y + height, x : x + width]
                        noisy = noisy + grain[shift[0] : shift[0] + height, shift[1] : shift[1] + width]
                        yield noisy.clip(0, 255).astype(np.uint8)
                        made += 1
                        if made == count:
                            return


def _repeat(once: Path, path: Path, times: int) -> None:
    """The same packets again and again, without coding them again."""
    with av.open(str(path), "w") as out:
        copied: Any = None
        shift = 0
        for _ in range(times):
            with av.open(str(once)) as source:
                stream = source.streams.video[0]
                if copied is None:
                    copied = out.add_stream_from_template(stream)
                last = 0
                for packet in source.demux(stream):
                    if packet.dts is None or packet.pts is None:
                        continue
                    packet.pts, packet.dts = packet.pts + shift, packet.dts + shift
                    last = max(last, packet.pts + (packet.duration or 0))
                    packet.stream = copied
                    out.mux(packet)
            shift = last
