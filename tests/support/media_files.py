"""Video files for the tests, written with PyAV alone and patched by hand: nothing of Holmes makes them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

TICKS = 1000  # timestamps are in milliseconds


def gray_video(
    path: Path,
    levels: Sequence[int],
    times: Sequence[float],
    size: tuple[int, int] = (64, 48),
    codec: str = "libx264",
    pixel_aspect: Fraction | None = None,
) -> Path:
    """Plain gray frames, each of its level, on the screen from its time in seconds on."""
    images = [np.full((size[1], size[0], 3), level, np.uint8) for level in levels]
    return video(path, images, times, codec, pixel_aspect)


def video(
    path: Path,
    images: Sequence[np.ndarray],
    times: Sequence[float],
    codec: str = "libx264",
    pixel_aspect: Fraction | None = None,
) -> Path:
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=TICKS)
        stream.height, stream.width = images[0].shape[:2]
        stream.pix_fmt = "yuv420p"
        stream.codec_context.time_base = Fraction(1, TICKS)
        if codec == "libx264":
            stream.options = {"crf": "10", "preset": "ultrafast"}
        if pixel_aspect is not None:
            stream.codec_context.sample_aspect_ratio = pixel_aspect
        for image, time in zip(images, times, strict=True):
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = round(time * TICKS), Fraction(1, TICKS)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def moving_video(path: Path, codec: str, options: dict[str, str], frames: int) -> Path:
    """Noise that moves, 25 frames a second, with a new picture every two seconds or so."""
    rng = np.random.default_rng(0)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=25, options=options)
        stream.width, stream.height = 64, 48
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        for number in range(frames):
            if number % 47 == 0:
                scene = rng.integers(0, 255, (12 + 8, 16 + 12, 3), dtype=np.uint8).repeat(4, 0).repeat(4, 1)
            at = number % 32
            image = np.ascontiguousarray(scene[at : at + 48, at : at + 64])
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, 25)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def sound(path: Path, seconds: float = 1.0) -> Path:
    """A file without pictures."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=8000)
        stream.layout = "mono"
        frame = av.AudioFrame.from_ndarray(np.zeros((1, round(8000 * seconds)), np.int16), "s16", "mono")
        frame.sample_rate = 8000
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def long_sound(path: Path, pictures: int, seconds: int) -> Path:
    """Black pictures for some seconds, 10 per second, and silence for longer."""
    with av.open(str(path), "w") as container:
        film, voice = container.add_stream("libx264", rate=10), container.add_stream("aac", rate=8000)
        film.width, film.height, film.pix_fmt = 64, 48, "yuv420p"
        voice.layout = "mono"
        for _ in range(10 * pictures):
            container.mux(film.encode(av.VideoFrame(64, 48, "rgb24")))
        silence = av.AudioFrame.from_ndarray(np.zeros((1, 8000 * seconds), np.float32), "fltp", "mono")
        silence.sample_rate = 8000
        container.mux([*film.encode(None), *voice.encode(silence), *voice.encode(None)])
    return path


def turn_clockwise(path: Path) -> Path:
    """Set the track header's matrix as a phone held upright does: shown a quarter turn clockwise."""
    data = bytearray(path.read_bytes())
    header = data.index(b"tkhd")
    matrix = header + 4 + 4 + 8 + 4 + 4 + 4 + 8 + 2 + 2 + 2 + 2  # version 0: what stands before the matrix
    one = 1 << 16
    assert struct.unpack(">9i", data[matrix : matrix + 36])[0] == one
    data[matrix : matrix + 36] = struct.pack(">9i", 0, one, 0, -one, 0, 0, 0, 0, 1 << 30)
    path.write_bytes(data)
    return path
