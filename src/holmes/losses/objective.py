"""The objective of a stage as a sum of named, weighted parts (eq. 21).

Q queries, V videos of the batch, M queries of one video, D width
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from holmes.evidence.dirichlet import (
    EvidenceForm,
    at_least_float32,
    concentration,
    expected_entropy,
    opinion,
    sharp_evidence,
)
from holmes.evidence.label_calibration import calibrated_target, one_hot_label
from holmes.evidence.query_kinds import (
    MedianRule,
    PartitionFusion,
    ThresholdRule,
    adaptive_thresholds,
    below_batch_median,
    identify,
    label_consistency,
    uncertainty_dominance,
)
from holmes.losses.contrastive import contrastive_loss
from holmes.losses.diversity import diversity_loss
from holmes.losses.inter_video import TERMS, inter_video_loss
from holmes.losses.intra_video import intra_video_loss
from holmes.losses.triplet import triplet_loss
from holmes.records import (
    AtOnce,
    QueryEmbedding,
    QueryKind,
    Scores,
    Stage,
    VideoEmbedding,
    in_float32,
    one_after_another,
)
from holmes.similarity import cosine_and_dot
from holmes.transport.alignment import Alignment, flexible_alignment

Scorer = Callable[[QueryEmbedding, VideoEmbedding], tuple[Scores, Scores]]
FrameLosses = Callable[
    ["QueryEmbedding", "VideoEmbedding", "QueryOwners", Tensor, float, "int | None"], dict[str, Tensor]
]


@dataclass(frozen=True)
class Weights:
    """The weight of each part in the sum; the triplet loss has weight 1."""

    contrastive_clip: float
    contrastive_frame: float
    diversity: float
    intra: float
    inter: float
    contrastive_cosine: float = 0.0


@dataclass(frozen=True)
class QueryOwners:
    """The owners of the queries of a batch: which video each belongs to."""

    owner_Q: Tensor
    slot_Q: Tensor
    mask_Q: Tensor
    queries_per_video: int

    def by_video(self, query_QD: Tensor, videos: int) -> tuple[Tensor, Tensor]:
        """Flat queries regrouped as V × M × D, and the mask of the positions taken.

        Padded queries are sent to a spare position behind the last one, which is cut off.
        """
        count = videos * self.queries_per_video
        position_Q = torch.where(self.mask_Q, self.owner_Q * self.queries_per_video + self.slot_Q, count)
        flat_ND = query_QD.new_zeros(count + 1, query_QD.shape[1]).index_copy(0, position_Q, query_QD)
        mask_N = self.mask_Q.new_zeros(count + 1).index_fill(0, position_Q, True)
        shape = (videos, self.queries_per_video)
        return flat_ND[:-1].unflatten(0, shape), mask_N[:-1].unflatten(0, shape)


@dataclass(frozen=True)
class LossParts:
    """The sum that is minimised, its parts unweighted, and the partition behind the calibrated labels."""

    total: Tensor
    parts: dict[str, Tensor]
    kinds_Q: Tensor


@dataclass(frozen=True)
class LossInputs:
    """The inputs of a custom loss: embeddings, scores of both branches, and the owners of the queries."""

    query: QueryEmbedding
    video: VideoEmbedding
    owners: QueryOwners
    cosine: Scores
    dot: Scores
    kinds_Q: Tensor
    stage: Stage


ExtraLoss = Callable[[LossInputs], Tensor]


@dataclass(frozen=True)
class Objective:
    """L_agg = L_sim + L_div + L_inter (+ L_intra in stage 2). Behaviour is swapped by passing callables."""

    weights: Weights
    inter_temperature: float
    intra_temperature: float
    margin: float = 0.1
    hard_pool: int = 20
    contrastive_temperature: float = 0.07
    diversity_margin: float = 0.15
    diversity_scale: float = 32.0
    beta: float = 0.3
    smoothing: float = 0.2
    calibrate: bool = True
    inter_terms: Collection[str] = TERMS
    evidence: EvidenceForm = sharp_evidence
    thresholds: ThresholdRule = adaptive_thresholds
    refine: MedianRule = below_batch_median
    fuse_partitions: PartitionFusion = uncertainty_dominance
    align: Alignment = flexible_alignment
    diversify: Callable[[Tensor, Tensor, float, float], Tensor] = diversity_loss
    score: Scorer = cosine_and_dot
    frame_losses: FrameLosses | None = None  # triplet and InfoNCE of the frame branch, where they differ
    timeline: int | None = None  # how many clip positions follow the video from start to end; None for all
    extra: Mapping[str, tuple[float, ExtraLoss]] = field(default_factory=dict)  # name → weight and term
    at_once: AtOnce = one_after_another  # how parts that do not depend on each other are computed

    def __call__(
        self,
        query: QueryEmbedding,
        video: VideoEmbedding,
        owners: QueryOwners,
        stage: Stage,
        uniform_QV: Tensor,
        hard_negatives: bool | None = None,
    ) -> LossParts:
        """All parts of a stage. `hard_negatives` follows the stage unless it is given."""
        second = stage is Stage.CALIBRATED
        hard = second if hard_negatives is None else hard_negatives
        cosine, dot = self.score(query, video)
        query, video = in_float32(query), in_float32(video)
        query_VMD, mask_VM = owners.by_video(query.query_QD, video.clips_VCD.shape[0])

        def similar() -> dict[str, Tensor]:
            frame_parts = None
            if self.frame_losses is not None:
                pool = self.hard_pool if hard else None
                frame_parts = self.frame_losses(query, video, owners, uniform_QV, self.margin, pool)
            return self.similarity_loss(cosine, dot, owners, uniform_QV, hard, frame_parts)

        def between_videos() -> tuple[Tensor, dict[str, Tensor]]:
            kinds_Q = self.identify_queries(cosine, owners)
            if not self.weights.inter:
                return kinds_Q, {}
            return kinds_Q, self.inter_video_loss(cosine, owners, kinds_Q, second and self.calibrate)

        def within_videos() -> dict[str, Tensor]:
            if not (second and self.weights.intra):
                return {}
            clips_VCD = video.clips_VCD[:, : self.timeline]
            settings = (self.intra_temperature, self.align, self.evidence)
            return {"intra": intra_video_loss(query_VMD, clips_VCD, mask_VM, *settings)}

        def diverse() -> Tensor:
            return self.diversify(query_VMD, mask_VM, self.diversity_margin, self.diversity_scale)

        found = self.at_once(similar, between_videos, within_videos, diverse)
        parts, (kinds_Q, inter), intra, diversity = found
        parts |= {"diversity": diversity, **inter, **intra}
        inputs = LossInputs(query, video, owners, cosine, dot, kinds_Q, stage)
        parts |= {name: term(inputs) for name, (_, term) in self.extra.items()}
        return LossParts(self.weighted_sum(parts), parts, kinds_Q)

    def similarity_loss(
        self,
        cosine: Scores,
        dot: Scores,
        owners: QueryOwners,
        uniform_QV: Tensor,
        hard: bool,
        frame_parts: dict[str, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """L_sim on both branches: triplet on cosines, InfoNCE on dot products, and on cosines where asked."""
        pool = self.hard_pool if hard else None
        triplet = partial(
            triplet_loss,
            owner_Q=owners.owner_Q,
            mask_Q=owners.mask_Q,
            uniform_QV=uniform_QV,
            margin=self.margin,
            hard_pool=pool,
        )
        contrastive = partial(contrastive_loss, owner_Q=owners.owner_Q, mask_Q=owners.mask_Q)
        given = frame_parts or {}
        pieces: dict[str, Callable[[], Tensor]] = {
            "triplet_frame": partial(triplet, cosine.frame_QV),
            "triplet_clip": partial(triplet, cosine.clip_QV),
            "contrastive_frame": partial(contrastive, dot.frame_QV),
            "contrastive_clip": partial(contrastive, dot.clip_QV),
        }
        if self.weights.contrastive_cosine:
            temperature = self.contrastive_temperature
            pieces["contrastive_cosine_frame"] = lambda: contrastive(cosine.frame_QV / temperature)
            pieces["contrastive_cosine_clip"] = lambda: contrastive(cosine.clip_QV / temperature)
        pieces = {name: piece for name, piece in pieces.items() if name not in given}
        return {**given, **dict(zip(pieces, self.at_once(*pieces.values()), strict=True))}

    @torch.no_grad()
    def identify_queries(self, cosine: Scores, owners: QueryOwners) -> Tensor:
        """The kind of every query: both branches' partitions, merged (section 3.2)."""

        def partition(similarity_QV: Tensor) -> Tensor:
            similarity_QV = at_least_float32(similarity_QV)
            evidence_QV = self.evidence(similarity_QV, self.inter_temperature)
            return identify(
                uncertainty_Q=opinion(evidence_QV).uncertainty_Q,
                label_consistency_Q=label_consistency(similarity_QV, owners.owner_Q),
                entropy_Q=expected_entropy(concentration(evidence_QV)),
                correct_Q=similarity_QV.argmax(1) == owners.owner_Q,
                mask_Q=owners.mask_Q,
                beta=self.beta,
                refine=self.refine,
                thresholds=self.thresholds,
            )

        branches = (partial(partition, cosine.frame_QV), partial(partition, cosine.clip_QV))
        return self.fuse_partitions(*self.at_once(*branches))

    def inter_video_loss(
        self, cosine: Scores, owners: QueryOwners, kinds_Q: Tensor, calibrated: bool
    ) -> dict[str, Tensor]:
        """L_inter on one-hot labels, or on calibrated ones."""
        target_QV = one_hot_label(owners.owner_Q, cosine.frame_QV.shape[1])
        if calibrated:
            target_QV = calibrated_target(target_QV, cosine.frame_QV, cosine.clip_QV, kinds_Q, self.smoothing)
        return inter_video_loss(
            self.evidence(cosine.frame_QV, self.inter_temperature),
            self.evidence(cosine.clip_QV, self.inter_temperature),
            target_QV,
            owners.mask_Q,
            self.inter_terms,
        )

    def weighted_sum(self, parts: dict[str, Tensor]) -> Tensor:
        """The number the optimiser sees."""
        weight = {
            "triplet_frame": 1.0,
            "triplet_clip": 1.0,
            "contrastive_frame": self.weights.contrastive_frame,
            "contrastive_clip": self.weights.contrastive_clip,
            "contrastive_cosine_frame": self.weights.contrastive_cosine,
            "contrastive_cosine_clip": self.weights.contrastive_cosine,
            "diversity": self.weights.diversity,
            "intra": self.weights.intra,
            **{f"inter_{term}": self.weights.inter for term in TERMS},
            **{name: weight for name, (weight, _) in self.extra.items()},
        }
        return torch.stack([weight[name] * value for name, value in parts.items()]).sum()


def kind_shares(kinds_Q: Tensor, mask_Q: Tensor) -> Tensor:
    """The share of each QueryKind among the valid queries."""
    counts = torch.stack([((kinds_Q == kind) & mask_Q).sum() for kind in QueryKind])
    return counts / mask_Q.sum().clamp(min=1)
