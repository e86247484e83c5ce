"""Several devices as one: every rank sees the whole batch, and their gradients add up to its gradient.

Each rank encodes its share of a batch and receives the others' embeddings. All ranks then compute the same
loss of the whole batch, so the gradient of a rank's own share is simply its slice of what it computed, and
the sum of the ranks' parameter gradients is the gradient of one big batch.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from holmes.base.parallel import World, gather_rows
from holmes.losses.objective import QueryOwners
from holmes.records import QueryEmbedding, VideoEmbedding


class GatherRows(torch.autograd.Function):
    """Every rank's rows, in the order of ranks; the gradient is this rank's slice."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, world: World) -> Tensor:
        ctx.world, ctx.rows = world, len(rows)
        return gather_rows(rows, world)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        start = ctx.world.rank * ctx.rows
        return gradients[0][start : start + ctx.rows], None


def whole_batch(
    query: QueryEmbedding, video: VideoEmbedding, owners: QueryOwners, world: World
) -> tuple[QueryEmbedding, VideoEmbedding, QueryOwners]:
    """The batch of all ranks from this rank's share, with gradients."""
    if world.size == 1:
        return query, video, owners

    def gathered(record: Any) -> Any:
        values = {f.name: getattr(record, f.name) for f in fields(record)}
        return type(record)(
            **{name: None if v is None else GatherRows.apply(v, world) for name, v in values.items()}
        )

    videos = video.clips_VCD.shape[0]
    whole = replace(
        owners,
        owner_Q=gather_rows(owners.owner_Q + world.rank * videos, world),
        slot_Q=gather_rows(owners.slot_Q, world),
        mask_Q=gather_rows(owners.mask_Q, world),
    )
    return gathered(query), gathered(video), whole


def add_up(gradients: Tensor, world: World) -> None:
    """Sum the flat gradient over ranks, in place."""
    if world.size > 1:
        dist.all_reduce(gradients)
