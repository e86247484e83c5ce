"""Pictures as arrays of RGB bytes: scale, crop, write JPEGs, draw titles."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from holmes.media.backbones.base import Image

LONGEST_SHAPE = 8  # the longest shape: this many times as long as wide
JPEG_LIMIT = 10_000  # bytes of a thumbnail at most


def square(image: Image, side: int, scaled: int | None = None) -> Image:
    """The centre `side` × `side` of `image`, after scaling its short side to `scaled` (default: `side`).

    Only the centre is really scaled: the whole of a picture thousands of times wider than high would not fit
    into memory.
    """
    scale = (scaled or side) / min(image.shape[:2])
    top, bottom = _centre(image.shape[0], side, scale)
    left, right = _centre(image.shape[1], side, scale)
    return _resize(image, (side, side), (left, top, right, bottom))


def _centre(length: int, side: int, scale: float) -> tuple[float, float]:
    """Start and end, along one edge of a picture, of what becomes its `side` centre pixels when scaled."""
    scaled = max(side, round(length * scale))
    start = (scaled - side) // 2
    return start * length / scaled, (start + side) * length / scaled


def middle(image: Image) -> Image:
    """`image` without the ends of a very long or high one, for libraries that scale all of it."""
    most = LONGEST_SHAPE * min(image.shape[:2])
    top, left = (max(0, length - most) // 2 for length in image.shape[:2])
    return image[top : top + most, left : left + most]


def thumbnail(image: Image, width: int = 160, height: int = 90, limit: int = JPEG_LIMIT) -> bytes:
    """`image` scaled to fit into width × height, as a JPEG of at most `limit` bytes: 10 kB."""
    scale = min(width / image.shape[1], height / image.shape[0], 1.0)
    small = _resize(image, (max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale))))
    for quality in (75, 50, 25, 10):
        jpeg = _jpeg(small, quality)
        if len(jpeg) <= limit:
            break
    return jpeg


class ThumbnailStrip:
    """A few thumbnails evenly over a video whose length is not known beforehand.

    Takes every step-th picture; when there are twice too many, drops every other one and doubles the step.
    """

    def __init__(self, most: int = 16) -> None:
        self._most, self._step, self._seen = most, 1, 0
        self._kept: list[tuple[float, bytes]] = []

    def offer(self, time: float, image: Image) -> None:
        if self._seen % self._step == 0:
            if len(self._kept) == self._most:
                del self._kept[1::2]
                self._step *= 2
            if self._seen % self._step == 0:
                self._kept.append((time, thumbnail(image)))
        self._seen += 1

    def state(self) -> tuple[list[tuple[float, bytes]], int, int]:
        """What `resumed` needs to continue from here: pictures kept, step, pictures seen."""
        return list(self._kept), self._step, self._seen

    @classmethod
    def resumed(cls, kept: list[tuple[float, bytes]], step: int, seen: int) -> ThumbnailStrip:
        strip = cls()
        strip._kept, strip._step, strip._seen = list(kept), max(1, step), seen
        return strip

    def thumbnails(self) -> list[tuple[float, bytes]]:
        """(seconds, JPEG) in order of time: `most` at most, half of that at least if there were as many."""
        return list(self._kept)


def resized(image: Image, size: tuple[int, int]) -> Image:
    """All of `image` at another width and height, whatever its shape."""
    return _resize(middle(image), size)


def title_picture(lines: Sequence[str], width: int, height: int) -> Image:
    """White lines on black, height × width × 3."""
    from PIL import Image as Pillow
    from PIL import ImageDraw

    image = Pillow.new("RGB", (width, height))
    draw = ImageDraw.Draw(image)
    side = max(8, min(height // 12, width // 24))
    top = (height - round(1.5 * side * len(lines))) / 2
    for number, line in enumerate(lines):
        font = _font(side if number == 0 else round(side * 0.75))
        while len(line) > 4 and draw.textlength(line, font=font) > 0.9 * width:
            line = line[:-2] + "…" if not line.endswith("…") else line[:-3] + "…"
        left = (width - draw.textlength(line, font=font)) / 2
        draw.text((left, top + 1.5 * side * number), line, fill="white", font=font)
    return np.asarray(image)


def _font(size: int) -> Any:
    """A font with many scripts if the system has one; Pillow's own knows Latin letters."""
    from PIL import ImageFont

    try:
        return ImageFont.truetype("DejaVuSans.ttf", size)
    except OSError:
        return ImageFont.load_default(size)


def _resize(
    image: npt.NDArray[np.uint8],
    size: tuple[int, int],
    part: tuple[float, float, float, float] | None = None,  # left, top, right, bottom; default: all of it
) -> npt.NDArray[np.uint8]:
    from PIL import Image as Pillow

    return np.asarray(Pillow.fromarray(image).resize(size, Pillow.Resampling.BICUBIC, part))


def _jpeg(image: npt.NDArray[np.uint8], quality: int) -> bytes:
    from PIL import Image as Pillow

    buffer = io.BytesIO()
    Pillow.fromarray(image).save(buffer, "JPEG", quality=quality, optimize=True)
    return buffer.getvalue()
