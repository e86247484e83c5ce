"""Teach the pocket model how sure to be: fit its calibration on spliced videos that its heads did not see.

The shipped heads are trained on every clip, so heads of the same recipe, trained without the held-out clips,
are calibrated in their place; the digest is that of the shipped model.

Q sentences, V videos, P positions, D width
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from pocket_data import Items
from torch import Tensor

from holmes.data.pooling import overlapping_clips, video_frames
from holmes.evidence.calibration import Calibration
from holmes.evidence.fitting import fit_calibration
from holmes.index.embedders.zero_shot import CLIP_SECONDS, ZeroShot
from holmes.records import Scores


def calibrate_pocket(
    see: Callable[[Tensor], Tensor], read: Callable[[Tensor], Tensor], items: Items, model: str
) -> Calibration | None:
    """Fit the calibration of the model with this digest."""
    scores, owner_Q = search_scores(see, read, items)
    return fit_calibration(scores, owner_Q, ZeroShot.frame_weight, ZeroShot.clip_weight, model)


@torch.inference_mode()
def search_scores(
    see: Callable[[Tensor], Tensor], read: Callable[[Tensor], Tensor], items: Items
) -> tuple[Scores, Tensor]:
    """Every sentence over every item, scored as a video of one part is, and the item each belongs to."""
    rows = F.normalize(see(items.frames), dim=-1).numpy()
    seen = np.split(rows, items.frame_offsets[1:-1].numpy())
    asked_QD = F.normalize(read(items.sentences), dim=-1)
    clips = partial(overlapping_clips, least=CLIP_SECONDS)  # there is one frame per second
    frame_QV, clip_QV = (
        torch.stack([best_match(asked_QD, pool(rows_ND)) for rows_ND in seen], 1)
        for pool in (video_frames, clips)
    )
    owner_Q = torch.arange(len(items)).repeat_interleave(items.sentence_offsets.diff())
    return Scores(frame_QV, clip_QV), owner_Q


def best_match(asked_QD: Tensor, rows_PD: np.ndarray) -> Tensor:
    return (asked_QD @ F.normalize(torch.from_numpy(rows_PD), dim=-1).T).amax(1)
