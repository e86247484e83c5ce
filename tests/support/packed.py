"""A video of a single part, as an index keeps it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from holmes.index.storage.segments import StoredVideo, pack_parts


def pack_video(name: str, duration: float, *arrays: NDArray[Any], stamp: int = 0) -> StoredVideo:
    """`arrays` are frames, clips, and the spans of both."""
    frames_SFD, clips_SCD, spans_SF2, spans_SC2 = (np.asarray(array)[None] for array in arrays)
    return pack_parts(name, duration, frames_SFD, clips_SCD, spans_SF2, spans_SC2, stamp)
