"""How often the right video is found: the figures of a split.

Q queries, V videos
"""

from __future__ import annotations

from torch import Tensor

from holmes.config.schema import ScoreConfig
from holmes.data.bank import FeatureBank
from holmes.data.store import Split
from holmes.encoders.model import HolmesModel
from holmes.evaluation.recall import rank_of_owner, recall
from holmes.evaluation.scoring import encode_split, score_all
from holmes.parallel import ALONE, World, gather_rows


def retrieval_metrics(
    model: HolmesModel, bank: FeatureBank, split: Split, score: ScoreConfig, world: World = ALONE
) -> dict[str, float]:
    """R@K and SumR of a split."""
    return recall(retrieval_ranks(model, bank, split, score, world))


def retrieval_ranks(
    model: HolmesModel, bank: FeatureBank, split: Split, score: ScoreConfig, world: World = ALONE
) -> Tensor:
    """The rank of every query's video; with several processes, each ranks its share of the queries."""
    encoded = encode_split(model, bank, split, world)
    scores_QV = score_all(encoded).combined(score.frame_weight, score.clip_weight)
    ranks_Q = gather_rows(rank_of_owner(scores_QV, encoded.owner_Q), world)
    return ranks_Q[: len(split.queries)]
