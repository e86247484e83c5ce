"""A golden file: a tiny model, its inputs, and what the released configuration computes from them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holmes.encoders.build import build_model
from holmes.encoders.released_names import released_config, released_state
from holmes.losses.objective import Objective, QueryOwners
from holmes.records import QueryEmbedding, Scores, Stage, VideoEmbedding
from holmes.similarity import reference_scores
from holmes.training.setup import build_objective

TOLERANCE = 1e-4
PADDING_NOTE = "on purpose: released lets padded frames score 0, ours masks them (compared as released)"


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
        self.path, self.arrays = path, np.load(path, allow_pickle=False)
        self.state = {key[6:]: self.tensor(key) for key in self.arrays.files if key.startswith("state/")}
        self.settings = json.loads(str(self.arrays["config"]))
        self.config = released_config(self.settings, self.state)
        self.model: Any = build_model(replace(self.config.model, dropout=0.0))
        self.model.load_state_dict(released_state(self.state, self.config.model))
        self.frame_lengths_V = self.tensor("batch/frame_mask").sum(1).long()
        self.token_lengths_Q = self.tensor("batch/query_mask").sum(1).long()
        self.owners = self.owners_in("batch")
        self.videos = len(self.frame_lengths_V)
        self.objective = build_objective(self.config)
        # MS-SL gathers frames into vectors and GMMFormer pools them: neither leaves a padded frame to score.
        if self.has_padding and self.config.model.encoder not in ("ms_sl", "gmmformer"):
            self.objective = replace(self.objective, score=released_scores)
        self.draws = 0  # of random numbers, which the file has where the method draws any
        if self.config.model.encoder == "dreamprvr":
            self.model.draw = self.draw  # type: ignore[assignment]

    def owners_in(self, part: str) -> QueryOwners:
        """Who belongs to whom in the batch, or among the synthetic scores."""
        owner_Q = self.tensor(f"{part}/query_owner")
        slot_Q = torch.tensor([int((owner_Q[:i] == owner).sum()) for i, owner in enumerate(owner_Q)])
        return QueryOwners(owner_Q, slot_Q, torch.ones_like(owner_Q) > 0, int(slot_Q.max()) + 1)

    def draw(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """The file's random numbers of this pass."""
        self.draws += 1
        return self.tensor("noise/alpha")[self.draws - 1], self.tensor("noise/beta")[self.draws - 1]

    def published(self) -> dict[str, Tensor]:
        """The model's weights under their published names, in their published shapes."""
        # Every published number gets a name of its own; ours are found by where those names end up.
        names, count = {}, 0
        for key, value in self.state.items():
            names[key] = torch.arange(count, count + value.numel()).view(value.shape)
            count += value.numel()
        numbers = torch.full((count,), torch.nan)
        ours = self.model.state_dict()
        for key, name in released_state(names, self.config.model).items():
            numbers[name.flatten()] = ours[key].detach().flatten()
        return {key: numbers[name] for key, name in names.items()}

    def tensor(self, key: str) -> Tensor:
        values = torch.from_numpy(self.arrays[key])
        return values.to(torch.get_default_dtype()) if values.is_floating_point() else values

    @property
    def has_padding(self) -> bool:
        return bool((self.frame_lengths_V < self.config.model.frames).any())

    def encode(self) -> tuple[QueryEmbedding, VideoEmbedding]:
        video = self.model.encode_videos(
            self.tensor("batch/frames"), self.frame_lengths_V, self.tensor("batch/clips")
        )
        query = self.model.encode_queries(self.tensor("batch/query_tokens"), self.token_lengths_Q)
        if self.model.training:
            query_VMD, mask_VM = self.owners.by_video(query.query_QD, self.videos)
            video = self.model.meet_queries(video, query_VMD, mask_VM)
        return query, video

    def loss(self, stage: Stage, objective: Objective) -> Tensor:
        self.model.keep_bounds()
        query, video = self.encode()
        uniform_QV = torch.rand(len(self.token_lengths_Q), self.videos)
        return objective(query, video, self.owners, stage, uniform_QV, hard_negatives=True).total


@contextmanager
def in_float64() -> Iterator[None]:
    """Inside the block new tensors and models are float64, and so is what the code would cast to float32."""
    usual, cast = torch.get_default_dtype(), torch.Tensor.float
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.Tensor.float = cast  # type: ignore[method-assign]
        torch.set_default_dtype(usual)


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
