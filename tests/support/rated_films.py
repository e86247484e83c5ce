"""Tiny films at the rates of the trade, each frame with its number in its pixels, made with PyAV alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path

import av
import numpy as np

SIZE = 72, 48
BITS = 12  # of the number that a frame shows


def numbered(number: int) -> np.ndarray:
    """A picture that says its number: one black or white bar for each bit."""
    bits = [(number >> bit) & 1 for bit in range(BITS)]
    bars = np.repeat(np.array(bits, np.uint8) * 255, -(-SIZE[0] // BITS))[: SIZE[0]]
    return np.ascontiguousarray(np.broadcast_to(bars[None, :, None], (SIZE[1], SIZE[0], 3)))


def number_of(picture: np.ndarray) -> int:
    """The number that a decoded picture shows."""
    width = -(-SIZE[0] // BITS)
    bars = [picture[:, bit * width : (bit + 1) * width].mean() > 127 for bit in range(BITS)]
    return sum(1 << bit for bit, bright in enumerate(bars) if bright)


def uneven_times() -> list[Fraction]:
    """Frames at 15 to 60 a second, as phones and screen recorders leave them."""
    rng, times = random.Random(1), [Fraction(0)]
    while len(times) < 130:
        times.append(times[-1] + Fraction(rng.choice([1500, 3000, 3003, 6000, 4500]), 90000))
    return times


def rated_film(
    path: Path,
    rate: Fraction | None = None,
    frames: int = 0,
    times: Sequence[Fraction] = (),
    *,
    sound: bool = False,
    timecode: str | None = None,
    keys: int = 12,
    channels: int = 2,
) -> Path:
    """A film of numbered frames, at a steady rate or at the given times; sound is a tone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    stamps = list(times) or [Fraction(number) / Fraction(rate or 25) for number in range(frames)]
    base = 1 / Fraction(rate) if rate else Fraction(1, 90000)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=rate or 30)
        stream.width, stream.height, stream.pix_fmt = *SIZE, "yuv420p"
        stream.codec_context.time_base = base
        stream.time_base = base
        stream.options = {"crf": "10", "preset": "ultrafast", "g": str(keys), "bf": "2", "sc_threshold": "0"}
        if timecode:
            stream.metadata["timecode"] = timecode
        voice = container.add_stream("aac", rate=48000) if sound else None
        if voice is not None:
            voice.layout = "stereo" if channels == 2 else "mono"
        for number, stamp in enumerate(stamps):
            frame = av.VideoFrame.from_ndarray(numbered(number), "rgb24")
            frame.pts, frame.time_base = round(stamp / base), base
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
        if voice is not None:
            length = float(stamps[-1]) + 0.04
            tone = np.sin(np.arange(round(48000 * length)) / 20).astype(np.float32) * 0.2
            samples = av.AudioFrame.from_ndarray(
                np.stack([tone] * channels), "fltp", "stereo" if channels == 2 else "mono"
            )
            samples.sample_rate = 48000
            container.mux([*voice.encode(samples), *voice.encode(None)])
    return path


@cache
def frames_in(path: Path) -> list[tuple[float, int]]:
    """Every frame of a film: when it comes on, and the number that it shows."""
    with av.open(str(path)) as container:
        return [
            (float(frame.time), number_of(frame.to_ndarray(format="rgb24")))
            for frame in container.decode(container.streams.video[0])
        ]
