"""A video as a segment holds it: its rows, its spans, its codes."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holmes.errors import HolmesError
from holmes.index.codes import encode_parts

TILE = 16  # rows; frames are padded to a multiple of it


@dataclass(frozen=True)
class StoredVideo:
    """One video as an index keeps it."""

    name: str  # the path of its file, or any other unique name
    duration: float  # seconds
    frames: int  # how many of a part's rows are frames, before padding
    rows_SPD: NDArray[np.float16]  # unit length: frames, repeats of the last one, clips
    codes_SPD: NDArray[np.int8]
    numbers_S3: NDArray[np.float32]  # of each part's codes
    spans_SP2: NDArray[np.float32]
    stamp: int = 0


def pack_parts(
    name: str,
    duration: float,
    frames_SFD: NDArray[Any],
    clips_SCD: NDArray[Any],
    frame_spans_SF2: NDArray[Any],
    clip_spans_SC2: NDArray[Any],
    stamp: int = 0,
) -> StoredVideo:
    """Embeddings in the layout of a segment: unit length, float16, frames padded to whole tiles."""
    if not name or "\0" in name:
        raise HolmesError(f"{name!r} cannot name a video.")
    frames = np.shape(frames_SFD)[1]
    if not len(frames_SFD) or not frames:
        raise HolmesError(f"{name} has no frames.")
    padded = np.minimum(np.arange(-frames // TILE * -TILE), frames - 1)
    rows_SPD = np.concatenate([frames_SFD[:, padded], clips_SCD], axis=1, dtype=np.float32)
    norms_SP1 = np.linalg.norm(rows_SPD, axis=2, keepdims=True)
    if not np.isfinite(norms_SP1).all():
        raise HolmesError(f"{name} has an embedding that is not finite.")
    spans_SP2 = np.concatenate([frame_spans_SF2[:, padded], clip_spans_SC2], axis=1).astype(np.float32)
    unit_SPD = (rows_SPD / np.maximum(norms_SP1, 1e-12)).astype(np.float16)
    codes_SPD, numbers_S3 = encode_parts(unit_SPD, clips_SCD.shape[1])
    return StoredVideo(name, duration, frames, unit_SPD, codes_SPD, numbers_S3, spans_SP2, stamp)


def pack_video(
    name: str,
    duration: float,
    frames_FD: NDArray[Any],
    clips_CD: NDArray[Any],
    frame_spans_F2: NDArray[Any],
    clip_spans_C2: NDArray[Any],
    stamp: int = 0,
) -> StoredVideo:
    """A video of a single part."""
    frames_SFD, clips_SCD, frame_spans_SF2, clip_spans_SC2 = (
        np.asarray(array)[None] for array in (frames_FD, clips_CD, frame_spans_F2, clip_spans_C2)
    )
    return pack_parts(name, duration, frames_SFD, clips_SCD, frame_spans_SF2, clip_spans_SC2, stamp)


def video_key(name: str) -> int:
    """A number that no two names share and that depends on the name alone."""
    return int.from_bytes(hashlib.sha256(os.fsencode(name)).digest()[:8], "little", signed=True)
