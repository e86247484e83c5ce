"""Everything there is to say about a model on a split, as one JSON object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from holmes.config.schema import ScoreConfig
from holmes.data.bank import FeatureBank
from holmes.data.store import Split, Store
from holmes.encoders.model import HolmesModel
from holmes.evaluation.aligned_mass import aligned_mass
from holmes.evaluation.breakdown import breakdowns
from holmes.evaluation.intervals import Draws, draw_videos, recall_intervals
from holmes.evaluation.localise import localisation
from holmes.evaluation.partition import BATCH_VIDEOS, Identify, agreement, partition
from holmes.evaluation.recall import Fits, rank_of_fitting, rank_of_owner, recall
from holmes.evaluation.scoring import Encoded, encode_split, score_all
from holmes.records import Scores
from holmes.transport.alignment import Alignment


@dataclass(frozen=True)
class Evaluated:
    """A split as a model sees it, and the report on it."""

    split: Split
    encoded: Encoded
    scores: Scores
    score_QV: torch.Tensor
    rank_Q: NDArray[np.int64]  # of the right video
    fitting_Q: NDArray[np.int64] | None  # of the best video that fits; None where no others are known to fit
    kind_Q: NDArray[np.int64]  # by training's rule, which knows the right video
    report: dict[str, Any]


@torch.inference_mode()
def evaluated_split(
    model: HolmesModel,
    bank: FeatureBank,
    split: Split,
    score: ScoreConfig,
    identify: Identify,
    alignments: dict[str, Alignment],
    batch_videos: int = BATCH_VIDEOS,
) -> Evaluated:
    """Recall, recall by group, and where moments and kinds are known: localisation, alignment, partition."""
    store, encoded = bank.store, encode_split(model, bank, split)
    cosine = score_all(encoded)
    score_QV = cosine.combined(score.frame_weight, score.clip_weight)
    ranks_Q = rank_of_owner(score_QV, encoded.owner_Q)
    fits = fits_of(store, split, ranks_Q.device)
    fitting_Q = None if fits is None else rank_of_fitting(score_QV, encoded.owner_Q, fits)
    kind_Q = partition(cosine, encoded.owner_Q, identify, batch_videos)
    moments_Q2, kinds_Q = store.moments_Q2[split.queries], store.kinds_Q[split.queries]
    draws = draw_videos(split.owner)
    report = {
        "split": split.name,
        "videos": len(split.videos),
        "queries": len(split.queries),
        "metrics": recall(ranks_Q),
        "intervals": bounds_of(ranks_Q, draws),
        "metrics_fitting": None if fitting_Q is None else recall(fitting_Q),
        "intervals_fitting": None if fitting_Q is None else bounds_of(fitting_Q, draws),
        "by": breakdowns(ranks_Q, store, split),
        "localisation": localisation(encoded, moments_Q2),
        "aligned_mass": aligned_mass(encoded, moments_Q2, alignments),
        "partition": agreement(kind_Q, kinds_Q),
    }
    return Evaluated(
        split,
        encoded,
        cosine,
        score_QV,
        ranks_Q.cpu().numpy(),
        None if fitting_Q is None else fitting_Q.cpu().numpy(),
        kind_Q,
        {name: value for name, value in report.items() if value is not None},
    )


def bounds_of(ranks_Q: torch.Tensor, draws: Draws) -> dict[str, list[float | None]]:
    found = recall_intervals(ranks_Q.cpu().numpy()[None], draws)
    return {name: value.bounds() for name, value in found.items()}


def evaluate_split(*parts: Any, **settings: Any) -> dict[str, Any]:
    """The report alone."""
    return evaluated_split(*parts, **settings).report


def fits_of(store: Store, split: Split, device: torch.device) -> Fits | None:
    """Which other videos of the split fit which queries; None where none is known."""
    place = {int(video): position for position, video in enumerate(split.videos)}
    pairs = [
        (row, place[video])
        for row, query in enumerate(split.queries)
        for video in store.also_fits.get(int(query), ())
        if video in place
    ]
    if not pairs:
        return None
    query_N, video_N = torch.tensor(pairs, device=device).T
    return Fits(query_N, video_N)
