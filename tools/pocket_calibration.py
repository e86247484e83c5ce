"""Teach the pocket model how sure to be: fit its calibration on spliced videos that its heads did not see.

The shipped heads are trained on every clip, so those to calibrate are the same recipe's, trained without the
held-out clips; the digest is the shipped model's.

Q sentences, V videos, P positions, D width
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from pocket_data import Items
from torch import Tensor

from holmes.config.schema import ScoreConfig
from holmes.data.pooling import video_clips, video_frames
from holmes.evaluation.calibrate import fit_calibration
from holmes.evidence.diagnosis import Calibration
from holmes.records import Scores


@torch.inference_mode()
def calibrate_pocket(
    see: Callable[[Tensor], Tensor], read: Callable[[Tensor], Tensor], items: Items, model: str
) -> Calibration | None:
    """Score sentences over videos as a search does, and fit the calibration of the model with this digest."""
    seen = np.split(see(items.frames).numpy(), items.frame_offsets[1:-1].numpy())
    asked_QD = F.normalize(read(items.sentences), dim=-1)
    owner_Q = torch.arange(len(items)).repeat_interleave(items.sentence_offsets.diff())
    scores = Scores(
        *(
            torch.stack([best_match(asked_QD, pool(rows_ND)) for rows_ND in seen], 1)
            for pool in (video_frames, video_clips)
        )
    )
    return fit_calibration(scores, owner_Q, ScoreConfig(), model)


def best_match(asked_QD: Tensor, rows_PD: np.ndarray) -> Tensor:
    return (asked_QD @ F.normalize(torch.from_numpy(rows_PD), dim=-1).T).amax(1)
