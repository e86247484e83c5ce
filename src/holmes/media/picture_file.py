"""Decode a picture given by a user, in a separate process because it may be hostile."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from holmes.base.processes import ONE_THREAD, Child, Parent, bound_resources, run_jobs
from holmes.errors import HolmesError, in_one_line, missing_packages
from holmes.media.backbones.base import Image

Picture: TypeAlias = Path | str | bytes | Image  # a file, its content, or height × width × RGB bytes

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
LARGEST_FILE = 2**26  # bytes
MOST_PIXELS = 100_000_000  # of a picture before it is scaled
LONGEST_SIDE = 768  # pixels it is scaled to: more than encoders look at
SECONDS = 20.0  # until a picture is decoded
TARGET = "holmes.media.picture_file:start"


def read_picture(picture: Picture) -> Image:
    """A picture as RGB bytes, at most 768 pixels long; files are decoded in a child process."""
    if isinstance(picture, np.ndarray):
        if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3 or not picture.size:
            raise HolmesError("a picture as an array must be height × width × 3 bytes (uint8, RGB).")
        return picture
    name = "the picture" if isinstance(picture, bytes) else str(picture)
    content = picture if isinstance(picture, bytes) else _content(Path(picture))
    order = base64.b64encode(content).decode()
    start = partial(Child, TARGET, environment=ONE_THREAD)
    for finished in run_jobs(start, [(name, order)], 1, timeout=SECONDS):
        if finished.failure or finished.ending is not None:
            raise HolmesError(f"{name} cannot be read as a picture ({finished.failure or finished.ending}).")
        return picture_of(finished.result)
    raise HolmesError(f"{name} cannot be read as a picture.")


def _content(path: Path) -> bytes:
    if not path.is_file():
        raise HolmesError(f"{path} does not exist, or is not a file; name a picture.")
    if path.stat().st_size > LARGEST_FILE:
        raise HolmesError(f"{path} has {path.stat().st_size:,} bytes; a picture may have {LARGEST_FILE:,}.")
    return path.read_bytes()


def start(parent: Parent) -> Callable[[str], dict[str, Any]]:
    """What a child process does: the content of a file, as text → the picture, as text."""
    bound_resources()
    return lambda order: in_text(decode_picture(base64.b64decode(order)))


def decode_picture(content: bytes, most: int = MOST_PIXELS) -> Image:
    """The first picture of a file, upright, in RGB, scaled down. Only for a child process."""
    try:
        from PIL import Image as Pillow
        from PIL import ImageOps, UnidentifiedImageError
    except ImportError:
        raise missing_packages("a query by picture", "pillow") from None
    Pillow.MAX_IMAGE_PIXELS = MOST_PIXELS
    try:
        with Pillow.open(io.BytesIO(content), formats=FORMATS) as opened:
            width, height = opened.size
            if width * height > most:
                raise HolmesError(f"it has {width} × {height} pixels, more than {most:,}")
            opened.draft("RGB", (LONGEST_SIDE, LONGEST_SIDE))  # JPEG: decoded smaller
            upright = ImageOps.exif_transpose(opened).convert("RGB")
            upright.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
            return np.asarray(upright)
    except HolmesError:
        raise
    except UnidentifiedImageError:
        raise HolmesError(f"the picture's format is none of {', '.join(FORMATS)}") from None
    except Exception as error:  # the file may hold anything
        raise HolmesError(in_one_line(error)) from None


def in_text(image: Image) -> dict[str, Any]:
    """A picture for a pipe of JSON."""
    return {"shape": list(image.shape), "pixels": base64.b64encode(np.ascontiguousarray(image).data).decode()}


def picture_of(sent: dict[str, Any]) -> Image:
    height, width, _ = sent["shape"]
    return np.frombuffer(base64.b64decode(sent["pixels"]), np.uint8).reshape(height, width, 3)
