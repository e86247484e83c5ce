"""Data for the figures about kinds of query: the plane that separates them, and examples.

Q queries, V videos, F frames
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from holmes.data.store import Split, Store
from holmes.evaluation.split_report import queries_about
from holmes.evidence.dirichlet import EvidenceForm, concentration, expected_entropy, opinion
from holmes.evidence.query_kinds import (
    MedianRule,
    PartitionFusion,
    adaptive_thresholds,
    identify,
    label_consistency,
)
from holmes.records import QueryKind
from holmes.report.figures.examples import TOP, Example, Found
from holmes.report.figures.plane import BranchPlane
from holmes.report.moments import Seen, moment_of, track

EXAMPLES = 2  # examples of each kind


class PartitionRules(Protocol):
    """How a run separates kinds: what is needed of its objective."""

    @property
    def evidence(self) -> EvidenceForm: ...
    @property
    def inter_temperature(self) -> float: ...
    @property
    def beta(self) -> float: ...
    @property
    def refine(self) -> MedianRule: ...
    @property
    def fuse_partitions(self) -> PartitionFusion: ...


@dataclass(frozen=True)
class KindBatch:
    """Some videos with all their queries, partitioned together as in training: u and ξ depend on how many."""

    videos_V: Tensor
    queries_Q: Tensor  # rows of the split
    frame: BranchPlane
    clip: BranchPlane
    kinds_Q: np.ndarray  # both branches' partitions, merged

    @property
    def deciding(self) -> np.ndarray:
        """For each query the branch whose kind won, 0 frame or 1 clip; the clip branch where both agree."""
        return (self.clip.kinds_Q == self.kinds_Q).astype(int)


@torch.inference_mode()
def sample_batch(seen: Seen, rules: PartitionRules, batch_videos: int, seed: int = 0) -> KindBatch:
    """A batch of videos drawn at random."""
    videos = seen.score_QV.shape[1]
    order = np.random.default_rng(seed).permutation(videos)[:batch_videos]
    videos_V = torch.from_numpy(np.sort(order)).to(seen.score_QV.device)
    queries_Q, owner_Q = queries_about(videos_V, seen.encoded.owner_Q, videos)

    def plane_of(name: str, similarity_QV: Tensor) -> tuple[BranchPlane, Tensor]:
        return branch_plane(name, similarity_QV[queries_Q][:, videos_V], owner_Q, rules)

    frame, frame_kinds_Q = plane_of("frame", seen.scores.frame_QV)
    clip, clip_kinds_Q = plane_of("clip", seen.scores.clip_QV)
    kinds_Q = rules.fuse_partitions(frame_kinds_Q, clip_kinds_Q).cpu().numpy()
    return KindBatch(videos_V, queries_Q, frame, clip, kinds_Q)


def branch_plane(
    name: str, similarity_QV: Tensor, owner_Q: Tensor, rules: PartitionRules
) -> tuple[BranchPlane, Tensor]:
    """One branch's three quantities, its thresholds and its partition."""
    evidence_QV = rules.evidence(similarity_QV, rules.inter_temperature)
    uncertainty_Q = opinion(evidence_QV).uncertainty_Q
    consistency_Q = label_consistency(similarity_QV, owner_Q)
    entropy_Q = expected_entropy(concentration(evidence_QV))
    correct_Q = similarity_QV.argmax(1) == owner_Q
    everyone_Q = torch.ones_like(correct_Q)
    limits = adaptive_thresholds(uncertainty_Q, consistency_Q, correct_Q, rules.beta)
    kinds_Q = identify(
        uncertainty_Q, consistency_Q, entropy_Q, correct_Q, everyone_Q, rules.beta, rules.refine
    )
    candidate_Q = (uncertainty_Q <= limits.uncertainty_ceiling) & (consistency_Q >= limits.consistency_floor)
    plane = BranchPlane(
        name=name,
        consistency_Q=consistency_Q.cpu().numpy(),
        uncertainty_Q=uncertainty_Q.cpu().numpy(),
        entropy_Q=entropy_Q.cpu().numpy(),
        kinds_Q=kinds_Q.cpu().numpy(),
        uncertainty_ceiling=float(limits.uncertainty_ceiling),
        consistency_floor=float(limits.consistency_floor),
        entropy_cut=entropy_cut(entropy_Q[candidate_Q], kinds_Q[candidate_Q]),
    )
    return plane, kinds_Q


def entropy_cut(entropy_Q: Tensor, kinds_Q: Tensor) -> float | None:
    """The ξ half-way between the candidates that stayed precise and those that did not."""
    precise_Q = kinds_Q == QueryKind.PRECISE
    if not precise_Q.any() or precise_Q.all():
        return None
    return float(entropy_Q[precise_Q].max() + entropy_Q[~precise_Q].min()) / 2


@torch.inference_mode()
def kind_examples(seen: Seen, batch: KindBatch, store: Store, split: Split) -> list[Example]:
    """Of each kind the queries nearest to its median uncertainty: neither the clearest nor the oddest."""
    examples = []
    uncertainty_Q = np.where(batch.deciding, batch.clip.uncertainty_Q, batch.frame.uncertainty_Q)
    for kind in QueryKind:
        members = np.flatnonzero(batch.kinds_Q == kind)
        if len(members) == 0:
            continue
        far = np.abs(uncertainty_Q[members] - np.median(uncertainty_Q[members]))
        chosen = members[np.argsort(far, kind="stable")[:EXAMPLES]]
        examples += [example(seen, batch, store, split, int(position)) for position in chosen]
    return examples


def example(seen: Seen, batch: KindBatch, store: Store, split: Split, position: int) -> Example:
    """One query of the batch with its top videos of the whole split."""
    branch = (batch.frame, batch.clip)[batch.deciding[position]]
    row = int(batch.queries_Q[position])
    query = int(split.queries[row])
    known = int(store.kinds_Q[query])
    best = seen.score_QV[row].topk(min(TOP, len(split.videos)))
    return Example(
        caption=store.captions[query],
        kind=int(batch.kinds_Q[position]),
        known_kind=known if known >= 0 else None,
        uncertainty=float(branch.uncertainty_Q[position]),
        consistency=float(branch.consistency_Q[position]),
        entropy=float(branch.entropy_Q[position]),
        rank=int(seen.rank_Q[row]),
        found=tuple(
            found(seen, store, split, row, video, score)
            for video, score in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ),
    )


def found(seen: Seen, store: Store, split: Split, row: int, video: int, score: float) -> Found:
    query, store_video = int(split.queries[row]), int(split.videos[video])
    right = video == int(split.owner[row])
    fits = store_video in store.also_fits.get(query, [])
    return Found(
        video=store.video_ids[store_video],
        score=score,
        verdict="right" if right else "fits" if fits else "wrong",
        similarity_F=track(seen, row, video).similarity_F,
        moment=moment_of(store, query) if right else None,
    )
