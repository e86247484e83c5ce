"""The similarity of a query along a whole video, across its parts.

S parts of a video, P rows of a part, F frames of a part, N positions in time, C clips, T probes, D width
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from holmes.errors import HolmesError
from holmes.index.answer.answers import Timeline
from holmes.index.engine.scan import Probes
from holmes.index.storage.segments import TILE, StoredVideo
from holmes.moments import Moment, shown_moments

Rows = NDArray[np.floating]


def find_moments(video: StoredVideo, probes: Probes, q: int) -> tuple[Moment, ...]:
    """Moments of one video for query `q`, from both branches' similarity along the timeline."""
    timeline, rows_SPD, kept_SF = _along(video, probes, q)
    frames_ND = rows_SPD[:, : video.frames][kept_SF]
    return shown_moments(timeline.similarity_F, timeline.spans_F2, frames_ND)


def frames_of_moment(video: StoredVideo, moment: Moment) -> NDArray[np.bool_]:
    """Which of a video's frames lie in a moment of it."""
    spans_SF2, kept_SF = frames_in_time(video)
    middle_F = _middle(spans_SF2)[kept_SF]
    inside_F: NDArray[np.bool_] = (middle_F >= moment.start) & (middle_F <= moment.end)
    return inside_F


def frames_of(video: StoredVideo) -> NDArray[np.floating]:
    """The embeddings of a video's frames along its timeline."""
    kept_SF = frames_in_time(video)[1]
    return np.asarray(video.rows_SPD[:, : video.frames][kept_SF], np.float32)


def timeline_of(video: StoredVideo, probes: Probes, q: int) -> Timeline:
    """Both branches' similarity to query `q` at every frame of a video."""
    return _along(video, probes, q)[0]


def _along(video: StoredVideo, probes: Probes, q: int) -> tuple[Timeline, Rows, NDArray[np.bool_]]:
    """The timeline, and what it was made from: the video's rows, and which frames make up the timeline."""
    spans_SF2, kept_SF = frames_in_time(video)
    rows_SPD = np.asarray(video.rows_SPD, np.float32)
    similarity_SPT = rows_SPD @ probes.rows_QTD[q].numpy().T
    clips = rows_SPD.shape[1] - -(-video.frames // TILE) * TILE
    frame_SF = similarity_SPT[:, : video.frames] @ probes.frame_weight_QT[q].numpy()
    clip_SC = similarity_SPT[:, -clips:] @ probes.clip_weight_QT[q].numpy()
    ends_SC = video.spans_SP2[:, -clips:, 1]
    clip_of_SF = (ends_SC[:, None] < _middle(spans_SF2)[:, :, None]).sum(axis=2).clip(max=clips - 1)
    similarity_SF = frame_SF + np.take_along_axis(clip_SC, clip_of_SF, axis=1)
    return Timeline(similarity_SF[kept_SF], spans_SF2[kept_SF]), rows_SPD, kept_SF


def frame_at(video: StoredVideo, time: float) -> NDArray[np.floating]:
    """The row of the frame that stands for a time in seconds."""
    spans_SF2, kept_SF = frames_in_time(video)
    rows_ND = frames_of(video)
    at = int(np.searchsorted(spans_SF2[kept_SF][:, 1], time).clip(max=len(rows_ND) - 1))
    row_D: NDArray[np.floating] = rows_ND[at]
    return row_D


def frames_in_time(video: StoredVideo) -> tuple[NDArray[np.floating], NDArray[np.bool_]]:
    """The seconds of every part's frames, and which of them make up the timeline, one part after the other.

    Where two parts overlap, the first half of the overlap belongs to the earlier one: at its end, a
    part knows little of what follows.
    """
    spans_SF2 = video.spans_SP2[:, : video.frames]
    if not np.isfinite(video.spans_SP2).all():
        raise HolmesError(f"the times of {video.name} are damaged; run 'holmes index check'.")
    if len(spans_SF2) == 1:
        return spans_SF2, np.ones(spans_SF2.shape[:2], bool)
    cuts = (spans_SF2[:-1, -1, 1] + spans_SF2[1:, 0, 0]) / 2
    middle_SF = _middle(spans_SF2)
    from_S1 = np.concatenate([[-np.inf], cuts])[:, None]
    to_S1 = np.concatenate([cuts, [np.inf]])[:, None]
    return spans_SF2, (middle_SF >= from_S1) & (middle_SF < to_S1)


def _middle(spans_SF2: Rows) -> Rows:
    middle_SF: Rows = (spans_SF2[..., 0] + spans_SF2[..., 1]) / 2
    return middle_SF
