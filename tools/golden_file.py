"""A golden file: a tiny model, its inputs, and what the released configuration computes from them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from holmes.encoders.model import HolmesModel
from holmes.encoders.released import released_config, released_state
from holmes.losses.objective import Objective, QueryOwners
from holmes.records import QueryEmbedding, Scores, Stage, VideoEmbedding
from holmes.similarity import reference_scores
from holmes.training.setup import build_objective

TOLERANCE = 1e-4


@dataclass(frozen=True)
class Row:
    quantity: str
    error: float
    note: str = ""
    tolerance: float = TOLERANCE

    @property
    def agrees(self) -> bool:
        return self.error <= self.tolerance  # false for NaN


class Golden:
    """A golden file with the model it describes, rebuilt as ours."""

    def __init__(self, path: Path) -> None:
        self.arrays = np.load(path, allow_pickle=False)
        state = {key[6:]: self.tensor(key) for key in self.arrays.files if key.startswith("state/")}
        self.config = released_config(json.loads(str(self.arrays["config"])), state)
        self.model = HolmesModel(replace(self.config.model, dropout=0.0))
        self.model.load_state_dict(released_state(state, self.config.model))
        self.frame_lengths_V = self.tensor("batch/frame_mask").sum(1).long()
        self.token_lengths_Q = self.tensor("batch/query_mask").sum(1).long()
        owner_Q = self.tensor("batch/query_owner")
        slot_Q = torch.tensor([int((owner_Q[:i] == owner).sum()) for i, owner in enumerate(owner_Q)])
        self.owners = QueryOwners(owner_Q, slot_Q, self.token_lengths_Q > 0, int(slot_Q.max()) + 1)
        self.videos = len(self.frame_lengths_V)
        self.objective = build_objective(self.config)
        if self.has_padding:
            self.objective = replace(self.objective, score=released_scores)

    def tensor(self, key: str) -> Tensor:
        return torch.from_numpy(self.arrays[key])

    @property
    def has_padding(self) -> bool:
        return bool((self.frame_lengths_V < self.config.model.frames).any())

    def encode(self) -> tuple[QueryEmbedding, VideoEmbedding]:
        video = self.model.encode_videos(
            self.tensor("batch/frames"), self.frame_lengths_V, self.tensor("batch/clips")
        )
        return self.model.encode_queries(self.tensor("batch/query_tokens"), self.token_lengths_Q), video

    def loss(self, stage: Stage, objective: Objective) -> Tensor:
        query, video = self.encode()
        uniform_QV = torch.rand(len(self.token_lengths_Q), self.videos)
        return objective(query, video, self.owners, stage, uniform_QV, hard_negatives=True).total


def released_scores(query: QueryEmbedding, video: VideoEmbedding) -> tuple[Scores, Scores]:
    """Cosine and raw scores in which padded frames compete with similarity 0, as released."""
    visible = video.frame_mask_VF.unsqueeze(-1)
    blanked = replace(
        video,
        frames_VFD=video.frames_VFD * visible,
        frame_mask_VF=torch.ones_like(video.frame_mask_VF),
    )
    return reference_scores(query, blanked), reference_scores(query, blanked, normalised=False)


def relative_error(ours: Tensor | np.ndarray | float, golden: Tensor | np.ndarray | float) -> float:
    """Largest absolute difference over the largest golden magnitude; infinite for NaN or another shape."""
    ours, golden = np.asarray(ours, dtype=np.float64), np.asarray(golden, dtype=np.float64)
    if ours.shape != golden.shape or not np.isfinite(ours).all():
        return float("inf")
    return float(np.abs(ours - golden).max() / max(np.abs(golden).max(), 1e-12))
