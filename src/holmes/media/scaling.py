"""Decoded frames as arrays of RGB bytes, scaled on the way."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from holmes.media.backbones.base import Image

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
