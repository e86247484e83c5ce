"""Frames to a video file, the same bytes every time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from holmes.errors import missing_packages


def write_film(path: Path, frames_FHWC: npt.NDArray[np.uint8], frames_per_second: int) -> None:
    """An H.264 file of these RGB frames; `path` ends in .mp4, .mkv or another container's name."""
    try:
        import av
    except ImportError:
        raise missing_packages("writing videos", "av") from None
    # Bit-exact output has no dates and no version strings. One thread, because the number of threads changes
    # the bytes; and no look-ahead, because what the encoder decides from it is not the same every time.
    with av.open(str(path), "w", options={"fflags": "+bitexact", "movflags": "+faststart"}) as container:
        stream: Any = container.add_stream("libx264", rate=frames_per_second)
        stream.height, stream.width = frames_FHWC.shape[1:3]
        stream.pix_fmt = "yuv420p"
        stream.options = {
            "preset": "veryfast",
            "crf": "23",
            "threads": "1",
            "x264-params": "rc-lookahead=0:mbtree=0:sync-lookahead=0",
        }
        stream.codec_context.gop_size = 4 * frames_per_second
        for image in frames_FHWC:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode(None))
