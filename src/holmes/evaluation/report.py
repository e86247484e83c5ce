"""Everything there is to say about a model on a split, as one JSON object."""

from __future__ import annotations

from typing import Any

import torch

from holmes.config.schema import ScoreConfig
from holmes.data.bank import FeatureBank
from holmes.data.store import Split
from holmes.encoders.model import HolmesModel
from holmes.evaluation.aligned_mass import aligned_mass
from holmes.evaluation.breakdown import breakdowns
from holmes.evaluation.localise import localisation
from holmes.evaluation.partition import BATCH_VIDEOS, Identify, agreement, partition
from holmes.evaluation.recall import rank_of_owner, recall
from holmes.evaluation.scoring import encode_split, score_all
from holmes.similarity import combined_score
from holmes.transport.alignment import Alignment


@torch.inference_mode()
def evaluate_split(
    model: HolmesModel,
    bank: FeatureBank,
    split: Split,
    score: ScoreConfig,
    identify: Identify,
    alignments: dict[str, Alignment],
    batch_videos: int = BATCH_VIDEOS,
) -> dict[str, Any]:
    """Recall, recall by group, and where moments and kinds are known: localisation, alignment, partition."""
    store, encoded = bank.store, encode_split(model, bank, split)
    cosine = score_all(encoded)
    ranks_Q = rank_of_owner(combined_score(cosine, score.frame_weight, score.clip_weight), encoded.owner_Q)
    moments_Q2, kinds_Q = store.moments_Q2[split.queries], store.kinds_Q[split.queries]
    report = {
        "split": split.name,
        "videos": len(split.videos),
        "queries": len(split.queries),
        "metrics": recall(ranks_Q),
        "by": breakdowns(ranks_Q, store, split),
        "localisation": localisation(encoded, moments_Q2),
        "aligned_mass": aligned_mass(encoded, moments_Q2, alignments),
        "partition": agreement(partition(cosine, encoded.owner_Q, identify, batch_videos), kinds_Q),
    }
    return {name: value for name, value in report.items() if value is not None}
