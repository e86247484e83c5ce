"""One training step: encode, gather, loss, gradient, update, without waiting for the device.

On several devices every rank encodes its share of the batch and receives the others' embeddings. All ranks
compute the same loss of the whole batch. So the gradient of a rank's own share is its slice of what it
computed, and the sum of the ranks' parameter gradients is the gradient of one big batch.

Q queries, V videos, S steps, N values of a step
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from holmes.base.parallel import ALONE, World, gather_rows
from holmes.encoders.fused import at_once, fused_kernels
from holmes.encoders.model import HolmesModel
from holmes.encoders.padding import longest
from holmes.encoders.precision import encoder_precision
from holmes.losses.objective import Objective, QueryOwners, kind_shares
from holmes.records import (
    AtOnce,
    Batch,
    QueryEmbedding,
    QueryKind,
    Stage,
    VideoEmbedding,
    each_tensor,
    one_after_another,
)
from holmes.similarity import cosine_and_dot
from holmes.training.kernel_compiler import compiling_only
from holmes.training.optimizer import FlatAdam

STEPS_BEFORE = 3
STREAMS = 16  # pieces may have pieces themselves


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
        kernels: bool = False,
    ) -> None:
        self.model, self.objective, self.optimizer, self.world = model, objective, optimizer, world
        self.device = next(model.parameters()).device
        self.encode = self._encode
        self.at_once: AtOnce = one_after_another
        self.kernels, self.compiled = kernels, set[Stage]()
        if kernels:
            self._fuse()

    def __call__(self, batch: Batch, stage: Stage, uniform_QV: Tensor, learning_rate: Tensor) -> StepReport:
        if self.kernels and self.device.type == "cuda" and stage not in self.compiled:
            self.compiled.add(stage)
            with torch.random.fork_rng([self.device]), compiling_only(self.device):
                self.take(batch, stage, uniform_QV, learning_rate)
        return self.take(batch, stage, uniform_QV, learning_rate)

    def take(self, batch: Batch, stage: Stage, uniform_QV: Tensor, learning_rate: Tensor) -> StepReport:
        self.model.keep_bounds()
        owners = owners_of(batch)
        query, video, owners = whole_batch(*self.encode(batch), owners, self.world)
        values = self.losses(query, video, owners, stage, uniform_QV)
        values["total"].backward()
        add_up(self.optimizer.collect_gradients(), self.world)
        norms_N = self.optimizer.step(learning_rate)
        values |= {"gradient_norm": norms_N.norm()}
        return StepReport(tuple(values), torch.stack([value.detach() for value in values.values()]))

    def _fuse(self) -> None:
        """Use the fused kernels between the matrix products, and several streams."""
        self.encode = self._encode_fused
        self.optimizer.fuse()
        if self.device.type == "cuda":
            self.at_once = Streams()
            self.objective = replace(self.objective, at_once=self.at_once)
        if self.objective.score is cosine_and_dot:
            from holmes.training.similarity_kernel import best_of_both_fused

            score = partial(cosine_and_dot, best=best_of_both_fused)
            self.objective = replace(self.objective, score=score)

    def _encode_fused(self, batch: Batch) -> tuple[QueryEmbedding, VideoEmbedding]:
        with fused_kernels(True, self.at_once):
            return self._encode(batch)

    def _encode(self, batch: Batch) -> tuple[QueryEmbedding, VideoEmbedding]:
        batch = self._without_padding(batch)
        with encoder_precision(self.device):
            query, video = at_once(
                lambda: self.model.encode_queries(batch.tokens_QTD, batch.token_lengths_Q),
                lambda: self.model.encode_videos(batch.frames_VFD, batch.frame_lengths_V, batch.clips_VCD),
            )
            query_VMD, mask_VM = owners_of(batch).by_video(query.query_QD, len(video.clips_VCD))
            video = self.model.meet_queries(video, query_VMD, mask_VM)
        return query, self._without_padded_frames(video)

    def _without_padding(self, batch: Batch) -> Batch:
        """On a CPU no token is encoded behind the longest query; a GPU and other ranks need a fixed shape."""
        if self.device.type != "cpu" or self.world.size > 1:
            return batch
        longest = int(batch.token_lengths_Q.max())
        return replace(batch, tokens_QTD=batch.tokens_QTD[:, :longest])

    def _without_padded_frames(self, video: VideoEmbedding) -> VideoEmbedding:
        """On a CPU no frame is scored behind the longest video of the batch."""
        if self.device.type != "cpu" or self.world.size > 1 or self.model.guided:
            return video
        frames = longest(video.frame_mask_VF)
        return replace(
            video, frames_VFD=video.frames_VFD[:, :frames], frame_mask_VF=video.frame_mask_VF[:, :frames]
        )

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


class Streams:
    """Runs pieces at once on a GPU: the first on the current stream, each of the others on one of its own.

    The backward pass of a piece runs on its stream too.
    """

    def __init__(self) -> None:
        self.free = deque(torch.cuda.Stream() for _ in range(STREAMS))

    def __call__(self, *pieces: Callable[[], Any]) -> list[Any]:
        current, first, *others = torch.cuda.current_stream(), *pieces
        # In turn: on a stream that was used just before, a piece would wait for what it does not need.
        taken = [self.free.popleft() for _ in others]
        results = []
        for stream, piece in zip(taken, others, strict=True):
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                results.append(piece())
        results = [first(), *results]
        for stream, result in zip(taken, results[1:], strict=True):
            current.wait_stream(stream)
            for tensor in tensors_in(result):
                tensor.record_stream(current)
        self.free.extend(taken)
        return results


def tensors_in(result: Any) -> list[Tensor]:
    """Those of a tensor, a record, a dictionary or a tuple of them."""
    if isinstance(result, Tensor):
        return [result]
    if is_dataclass(result):
        result = [getattr(result, each.name) for each in fields(result)]
    values = result.values() if isinstance(result, Mapping) else result
    return [tensor for value in values if value is not None for tensor in tensors_in(value)]


def owners_of(batch: Batch) -> QueryOwners:
    return QueryOwners(batch.owner_Q, batch.slot_Q, batch.query_mask_Q, batch.queries_per_video)


def what_broke(values_SN: Tensor, names: tuple[str, ...], weights: Tensor, epoch: int) -> str | None:
    """What is not finite: the first such part of a loss, or the weights; None if all is well."""
    broken_SN = ~values_SN.isfinite()
    if broken_SN.any():
        step = int(broken_SN.any(1).nonzero()[0])
        parts = [name for name, broken in zip(names, broken_SN[step].tolist(), strict=True) if broken]
        blamed = [name for name in parts if name not in ("total", "gradient_norm")] or parts
        return f"the loss is not finite: {', '.join(blamed)} at epoch {epoch + 1}, step {step + 1}"
    if not bool(weights.isfinite().all()):  # broken by the last update, after which no loss was computed
        return f"the weights are not finite after epoch {epoch + 1}"
    return None


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
        return each_tensor(record, lambda rows: GatherRows.apply(rows, world))

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


@dataclass(frozen=True)
class Recording:
    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    report: StepReport


class GraphedStep:
    """Called like the step it wraps."""

    def __init__(self, step: TrainStep) -> None:
        self.step = step
        self.stage: Stage | None = None
        self.seen = 0
        self.recording: Recording | None = None

    def __call__(self, batch: Batch, stage: Stage, uniform_QV: Tensor, learning_rate: Tensor) -> StepReport:
        if stage is not self.stage:
            self.stage, self.seen, self.recording = stage, 0, None
        self.seen += 1
        if self.seen <= STEPS_BEFORE:
            return self._aside(batch, stage, uniform_QV, learning_rate)
        if self.recording is None:
            self.recording = self._record(batch, stage, uniform_QV, learning_rate)
        recording = self.recording
        torch._foreach_copy_(recording.inputs, [*tensors_of(batch), uniform_QV, learning_rate])
        recording.graph.replay()
        return StepReport(recording.report.names, recording.report.values_N.clone())

    def _aside(self, *inputs: Any) -> StepReport:
        """Run a step on a stream of its own, as the steps before a recording must be."""
        current, side = torch.cuda.current_stream(), torch.cuda.Stream()
        side.wait_stream(current)
        with torch.cuda.stream(side):
            report = self.step(*inputs)
        current.wait_stream(side)
        return report

    def _record(self, batch: Batch, stage: Stage, uniform_QV: Tensor, learning_rate: Tensor) -> Recording:
        copies = [tensor.clone() for tensor in (*tensors_of(batch), uniform_QV, learning_rate)]
        *batch_copies, uniform_copy, rate_copy = copies
        fixed: dict[str, Any] = dict(zip(tensor_fields(batch), batch_copies, strict=True))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            report = self.step(replace(batch, **fixed), stage, uniform_copy, rate_copy)
        return Recording(graph, copies, report)


def tensor_fields(batch: Batch) -> list[str]:
    return [field.name for field in fields(batch) if isinstance(getattr(batch, field.name), Tensor)]


def tensors_of(batch: Batch) -> list[Tensor]:
    return [getattr(batch, name) for name in tensor_fields(batch)]
