"""One training step: encode, gather, loss, gradient, update. No waiting for the device anywhere.

Q queries, V videos
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from holmes.base.parallel import ALONE, World
from holmes.encoders.model import HolmesModel
from holmes.encoders.precision import encoder_precision
from holmes.losses.objective import Objective, QueryOwners, kind_shares
from holmes.records import Batch, QueryEmbedding, QueryKind, Stage, VideoEmbedding
from holmes.training.distributed import add_up, whole_batch
from holmes.training.optimizer import FlatAdam


@dataclass(frozen=True)
class StepReport:
    """What a step leaves for the logbook, still on the device: names and their values."""

    names: tuple[str, ...]
    values_N: Tensor


class TrainStep:
    """Carries a model from one batch to the next."""

    def __init__(
        self,
        model: HolmesModel,
        objective: Objective,
        optimizer: FlatAdam,
        world: World = ALONE,
        compiled: bool = False,
    ) -> None:
        self.model, self.objective, self.optimizer, self.world = model, objective, optimizer, world
        self.device = next(model.parameters()).device
        self.encode = self._encode
        if compiled:
            # Only what is large and the same in both stages; the rest of the losses is small, in many shapes.
            self.encode = torch.compile(self._encode, dynamic=False)
            self.objective = replace(objective, score=torch.compile(objective.score, dynamic=False))
            optimizer.update = torch.compile(optimizer.update, dynamic=False)

    def __call__(self, batch: Batch, stage: Stage, uniform_QV: Tensor, learning_rate: Tensor) -> StepReport:
        owners = QueryOwners(batch.owner_Q, batch.slot_Q, batch.query_mask_Q, batch.queries_per_video)
        query, video, owners = whole_batch(*self.encode(batch), owners, self.world)
        values = self.losses(query, video, owners, stage, uniform_QV)
        values["total"].backward()
        add_up(self.optimizer.collect_gradients(), self.world)
        norms_N = self.optimizer.step(learning_rate)
        values |= {"gradient_norm": norms_N.norm()}
        return StepReport(tuple(values), torch.stack([value.detach() for value in values.values()]))

    def _encode(self, batch: Batch) -> tuple[QueryEmbedding, VideoEmbedding]:
        with encoder_precision(self.device):
            query = self.model.encode_queries(batch.tokens_QTD, batch.token_lengths_Q)
            video = self.model.encode_videos(batch.frames_VFD, batch.frame_lengths_V, batch.clips_VCD)
        return in_float32(query), in_float32(video)

    def losses(
        self,
        query: QueryEmbedding,
        video: VideoEmbedding,
        owners: QueryOwners,
        stage: Stage,
        uniform_QV: Tensor,
    ) -> dict[str, Tensor]:
        """The total, its parts, and the share of each kind of query."""
        loss = self.objective(query, video, owners, stage, uniform_QV)
        shares = kind_shares(loss.kinds_Q, owners.mask_Q)
        named = {f"share_{kind.name.lower()}": shares[kind] for kind in QueryKind}
        return {"total": loss.total, **loss.parts, **named}


def in_float32(record: Any) -> Any:
    """Evidence and losses are computed in float32, whatever the encoders used."""
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    return type(record)(
        **{
            name: value.float() if value is not None and value.is_floating_point() else value
            for name, value in values.items()
        }
    )
