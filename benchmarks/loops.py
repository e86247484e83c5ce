"""A training step with the loop structure of the released implementation, in plain code of our own.

One Python pass for each parallel block, one for each video in the losses and the alignment, one for each
tensor in the optimiser, and every query encoded twice. Same model, same arithmetic, another structure.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from holmes.encoders.blocks import BlockNorm, ParallelBlocks
from holmes.encoders.gaussian import attend
from holmes.encoders.model import HolmesModel
from holmes.encoders.padding import length_mask
from holmes.encoders.query import TokenEncoder
from holmes.encoders.video import VideoBranch
from holmes.evidence.dirichlet import concentration
from holmes.evidence.label_calibration import calibrated_target, one_hot_label
from holmes.losses.evidential import evidential_loss
from holmes.losses.inter_video import inter_video_loss
from holmes.losses.objective import Objective, QueryOwners
from holmes.records import Batch, Scores
from holmes.transport.alignment import flexible_alignment, scale_to_unit


def looped_blocks(blocks: ParallelBlocks, input_NLD: Tensor, mask_NL: Tensor | None) -> Tensor:
    """The parallel blocks, one after the other."""
    length, outputs = input_NLD.shape[1], []
    weight_KGIO, bias_KGO = blocks.attention_input.weight_KGIO, blocks.attention_input.bias_KGO
    for g in range(blocks.gaussian_GLL.shape[0]):
        projected = torch.stack([input_NLD @ weight_KGIO[k, g] for k in range(3)], dim=2).unsqueeze(3)
        gaussian = blocks.gaussian_GLL[g : g + 1, :length, :length]
        context = attend(
            projected, bias_KGO[:, g : g + 1], gaussian, mask_NL, blocks.heads, blocks.dropout_rate
        )[0]
        attended = looped_norm(blocks.attention_norm, g, input_NLD + context)
        inner = F.relu(attended @ blocks.widen.weight_GIO[g] + blocks.widen.bias_GO[g])
        inner = F.dropout(inner, blocks.dropout_rate)
        narrow = inner @ blocks.narrow.weight_GIO[g] + blocks.narrow.bias_GO[g]
        outputs.append(looped_norm(blocks.output_norm, g, attended + narrow))
    return torch.stack(outputs)


def looped_norm(norm: BlockNorm, block: int, values: Tensor) -> Tensor:
    return F.layer_norm(values, values.shape[-1:], norm.weight_GD[block], norm.bias_GD[block])


def looped_step(
    model: HolmesModel, objective: Objective, batch: Batch, state: list[tuple[Tensor, Tensor]], rate: float
) -> None:
    """A stage-2 step of the single-query model."""
    mask_VF = length_mask(batch.frame_lengths_V, model.config.frames)
    mask_QT = length_mask(batch.token_lengths_Q, batch.tokens_QTD.shape[1])

    def branch(branch: torch.nn.Module, features: Tensor, mask: Tensor | None) -> Tensor:
        assert isinstance(branch, VideoBranch)
        placed = branch.place(branch.project(features))
        mixed: Tensor = branch.mix(looped_blocks(branch.blocks, placed, mask), mask)
        return mixed

    def queries() -> Tensor:
        encoder = model.query_encoder
        assert isinstance(encoder, TokenEncoder)
        placed = model.query_places(encoder.project(batch.tokens_QTD))
        pooled: Tensor = model.pool(looped_blocks(encoder.block, placed, mask_QT)[0], mask_QT)
        return pooled

    frames_VFD, clips_VCD = (
        branch(model.frame_branch, batch.frames_VFD, mask_VF),
        branch(model.clip_branch, batch.clips_VCD, None),
    )
    query_QD, again_QD = queries(), queries()
    owners = QueryOwners(batch.owner_Q, batch.slot_Q, batch.query_mask_Q, batch.queries_per_video)
    loss = looped_losses(objective, query_QD, again_QD, frames_VFD, mask_VF, clips_VCD, owners)
    loss.backward()
    looped_update(model, state, rate)


def looped_losses(
    objective: Objective,
    query_QD: Tensor,
    again_QD: Tensor,
    frames_VFD: Tensor,
    mask_VF: Tensor,
    clips_VCD: Tensor,
    owners: QueryOwners,
) -> Tensor:
    owner_Q, videos = owners.owner_Q[owners.mask_Q], clips_VCD.shape[0]
    query_QD, again_QD = query_QD[owners.mask_Q], again_QD[owners.mask_Q]
    total = query_QD.new_zeros(())
    cosine = {}
    for name, positions in (("frame", frames_VFD), ("clip", clips_VCD)):
        raw_QVP = torch.einsum("qd,vpd->qvp", query_QD, positions)
        unit_QVP = torch.einsum("qd,vpd->qvp", F.normalize(query_QD, dim=-1), F.normalize(positions, dim=-1))
        if name == "frame":
            raw_QVP, unit_QVP = raw_QVP.masked_fill(~mask_VF, -1e4), unit_QVP.masked_fill(~mask_VF, -1e4)
        cosine[name], dot_QV = unit_QVP.amax(-1), raw_QVP.amax(-1)
        for video in range(videos):
            own = owner_Q == video
            column = cosine[name][:, video]
            total = total + F.relu(objective.margin + column[~own].max() - column[own].mean()) / videos
            total = total + 0.04 * (dot_QV[:, video].logsumexp(0) - dot_QV[own, video].logsumexp(0)) / videos
        positive = cosine[name].gather(1, owner_Q[:, None])
        hardest = cosine[name].scatter(1, owner_Q[:, None], -9.0).topk(min(20, videos - 1)).values[:, :1]
        total = total + F.relu(objective.margin + hardest - positive).mean()
        total = total + 0.04 * F.cross_entropy(dot_QV, owner_Q)
    for video in range(videos):
        own = owner_Q == video
        unit = F.normalize(query_QD[own], dim=-1)
        close = unit @ unit.T
        pairs = ~torch.eye(len(unit), dtype=torch.bool)
        total = total + 1e-3 * ((1 + close) * F.softplus(32 * (close + 0.2)))[pairs].sum() / len(owner_Q)
        mask = torch.ones(1, int(own.sum()), dtype=torch.bool)
        clips = F.normalize(clips_VCD[video], dim=-1)
        similarity = scale_to_unit((F.normalize(again_QD[own], dim=-1) @ clips.T)[None], mask)
        target = flexible_alignment(similarity.detach(), mask)
        evidence = objective.evidence(similarity, objective.intra_temperature)
        total = (
            total + objective.weights.intra * evidential_loss(concentration(evidence), target).mean() / videos
        )
    scores = Scores(cosine["frame"], cosine["clip"])
    flat = QueryOwners(owner_Q, owner_Q, torch.ones_like(owner_Q, dtype=torch.bool), owners.queries_per_video)
    kinds_Q = objective.identify_queries(scores, flat)
    label_QV = one_hot_label(owner_Q, videos)
    target_QV = calibrated_target(label_QV, scores.frame_QV, scores.clip_QV, kinds_Q, objective.smoothing)
    frame_evidence, clip_evidence = (
        objective.evidence(value, objective.inter_temperature) for value in cosine.values()
    )
    inter = inter_video_loss(frame_evidence, clip_evidence, target_QV, flat.mask_Q)
    return total + objective.weights.inter * torch.stack(list(inter.values())).sum()


@torch.no_grad()
def looped_update(model: HolmesModel, state: list[tuple[Tensor, Tensor]], rate: float) -> None:
    """Adam, a tensor at a time."""
    for parameter, (first, second) in zip(model.parameters(), state, strict=True):
        if parameter.grad is None:
            continue
        torch.nn.utils.clip_grad_norm_([parameter], 1.0)
        first.mul_(0.9).add_(parameter.grad, alpha=0.1)
        second.mul_(0.999).addcmul_(parameter.grad, parameter.grad, value=0.001)
        parameter.sub_(rate * (first / (second.sqrt() + 1e-6) + 0.01 * parameter))
        parameter.grad = None
