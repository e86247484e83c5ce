"""Recall at K from ranks, and the figures of a split.

Q queries, V videos
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from holmes.base.parallel import ALONE, World, gather_rows
from holmes.config.schema import ScoreConfig
from holmes.data.bank import FeatureBank
from holmes.data.store import Split
from holmes.encoders.model import HolmesModel
from holmes.evaluation.scoring import encode_split, score_all


@dataclass(frozen=True)
class Fits:
    """Pairs of a query and a further video that fits it: positions in the split."""

    query_N: Tensor
    video_N: Tensor

    def of_rows(self, first: int, rows: int) -> Fits:
        """Those of some neighbouring queries, counted from the first of them."""
        among_N = (self.query_N >= first) & (self.query_N < first + rows)
        return Fits(self.query_N[among_N] - first, self.video_N[among_N])


def fits_of(also_fits: Mapping[int, Sequence[int]], split: Split, device: torch.device) -> Fits | None:
    """Which other videos of the split fit which queries, each once; None where none is known.

    The labels of others may list a query's own video too: it is no further one.
    """
    column = {int(video): number for number, video in enumerate(split.videos)}
    pairs = [
        (row, column[video])
        for row, query in enumerate(split.queries)
        for video in sorted({*also_fits.get(int(query), ())})
        if column.get(video, split.owner[row]) != split.owner[row]
    ]
    if not pairs:
        return None
    query_N, video_N = torch.tensor(pairs, device=device).T
    return Fits(query_N, video_N)


CUTOFFS = (1, 5, 10, 100)
NOWHERE = 2**62  # the rank of a video without a score


def rank_of_owner(scores_QV: Tensor, owner_Q: Tensor) -> Tensor:
    """The rank of each query's own video, 1 for the first.

    Ties count against it: a model that scores everything alike finds nothing.
    """
    own_Q1 = scores_QV.gather(1, owner_Q.unsqueeze(1))
    # Counted from the end: a comparison with NaN is false, and must not pass for a hit.
    rank_Q = scores_QV.shape[1] - (scores_QV < own_Q1).sum(1)
    return rank_Q.masked_fill(own_Q1.squeeze(1).isnan(), NOWHERE)


def rank_of_fitting(scores_QV: Tensor, owner_Q: Tensor, fits: Fits) -> Tensor:
    """The rank of the best video that fits a query: its own, or one that is known to fit it too."""
    best_Q = scores_QV.gather(1, owner_Q.unsqueeze(1)).squeeze(1)
    fitting_N = scores_QV[fits.query_N, fits.video_N]
    best_Q = best_Q.scatter_reduce(0, fits.query_N, fitting_N, "amax")
    rank_Q = scores_QV.shape[1] - (scores_QV < best_Q.unsqueeze(1)).sum(1)
    # Others that fit may tie with it; that is no reason to count it lower.
    ties_N = (fitting_N == best_Q[fits.query_N]).long()
    spare_Q = torch.zeros_like(rank_Q).scatter_add(0, fits.query_N, ties_N)
    own_Q = scores_QV.gather(1, owner_Q.unsqueeze(1)).squeeze(1) == best_Q
    rank_Q = rank_Q - (spare_Q + own_Q.long() - 1).clamp(min=0)
    return rank_Q.masked_fill(best_Q.isnan(), NOWHERE)


def recall(ranks_Q: Tensor, cutoffs: tuple[int, ...] = CUTOFFS) -> dict[str, float]:
    """R@K in percent, and SumR, their sum. NaN where there is no query."""
    hits_K = (
        (ranks_Q.unsqueeze(0) <= torch.tensor(cutoffs, device=ranks_Q.device).unsqueeze(1)).double().mean(1)
    )
    values = (100 * hits_K).tolist()
    named = {f"R@{cutoff}": value for cutoff, value in zip(cutoffs, values, strict=True)}
    return named | {"SumR": sum(values)}


def retrieval_metrics(
    model: HolmesModel, bank: FeatureBank, split: Split, score: ScoreConfig, world: World = ALONE
) -> dict[str, float]:
    """R@K and SumR of a split."""
    return recall(retrieval_ranks(model, bank, split, score, world))


def retrieval_ranks(
    model: HolmesModel, bank: FeatureBank, split: Split, score: ScoreConfig, world: World = ALONE
) -> Tensor:
    """The rank of every query's video. With several processes, each ranks its share of the queries."""
    return both_ranks(model, bank, split, score, world)[0]


def both_ranks(
    model: HolmesModel,
    bank: FeatureBank,
    split: Split,
    score: ScoreConfig,
    world: World = ALONE,
    fits: Fits | None = None,
) -> tuple[Tensor, Tensor | None]:
    """The rank of every query's video, and with `fits` that of the best one that fits."""
    encoded = encode_split(model, bank, split, world)
    scores_QV = score_all(encoded).combined(score.frame_weight, score.clip_weight)
    ranks = [rank_of_owner(scores_QV, encoded.owner_Q)]
    if fits is not None:
        rows = len(scores_QV)
        ranks.append(rank_of_fitting(scores_QV, encoded.owner_Q, fits.of_rows(world.rank * rows, rows)))
    own_Q, *fitting = (gather_rows(rank_Q, world)[: len(split.queries)] for rank_Q in ranks)
    return own_Q, fitting[0] if fitting else None
