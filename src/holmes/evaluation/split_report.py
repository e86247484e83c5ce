"""All figures of a model on a split, as one JSON object.

Recall of all queries and of groups of them, where moments are found, and whether the kinds that training
gives to queries agree with the known ones.

Q queries, V videos, B videos of a batch
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holmes.config.schema import ScoreConfig
from holmes.data.bank import FeatureBank
from holmes.data.store import Split, Store
from holmes.encoders.model import HolmesModel
from holmes.evaluation.intervals import Draws, draw_videos, recall_intervals
from holmes.evaluation.localisation import ROUNDING, aligned_mass, localisation
from holmes.evaluation.recall import fits_of, rank_of_fitting, rank_of_owner, recall
from holmes.evaluation.scoring import Encoded, encode_split, score_all
from holmes.records import QueryKind, Scores
from holmes.results import METRICS
from holmes.transport.alignment import Alignment

LENGTHS = {"1-5 words": 5, "6-10 words": 10, "11-15 words": 15, "16-20 words": 20, "21+ words": np.inf}
RATIOS = {"(0, .2]": 0.2, "(.2, .4]": 0.4, "(.4, .6]": 0.6, "(.6, .8]": 0.8, "(.8, 1]": 1.0}
Groups = dict[str, NDArray[np.bool_]]
BATCH_VIDEOS = 128  # uncertainty depends on the number of videos: the usual batch
Identify = Callable[[Scores, Tensor], Tensor]  # both branches' cosines and the owners → kinds


@dataclass(frozen=True)
class Evaluated:
    """A split as a model sees it, and the report on it."""

    split: Split
    encoded: Encoded | None  # None for scores from outside
    scores: Scores
    score_QV: torch.Tensor
    rank_Q: NDArray[np.int64]  # of the right video
    fitting_Q: NDArray[np.int64] | None  # of the best video that fits; None where no others are known to fit
    kind_Q: NDArray[np.int64] | None  # by training's rule, which knows the right video; None from outside
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
    also_fits: Mapping[int, Sequence[int]] | None = None,
) -> Evaluated:
    """Recall, recall by group, and where moments and kinds are known: localisation, alignment, partition.

    `also_fits` says which further videos fit a query, in place of what the store says.
    """
    store, encoded = bank.store, encode_split(model, bank, split)
    cosine = score_all(encoded)
    score_QV = cosine.combined(score.frame_weight, score.clip_weight)
    ranked = ranked_split(score_QV, store, split, also_fits)
    kind_Q = partition(cosine, encoded.owner_Q, identify, batch_videos)
    moments_Q2, kinds_Q = store.moments_Q2[split.queries], store.kinds_Q[split.queries]
    report = {
        "localisation": localisation(encoded, moments_Q2),
        "aligned_mass": aligned_mass(encoded, moments_Q2, alignments),
        "partition": agreement(kind_Q, kinds_Q),
    }
    known = {name: value for name, value in report.items() if value is not None}
    return replace(ranked, encoded=encoded, scores=cosine, kind_Q=kind_Q, report=ranked.report | known)


@torch.inference_mode()
def ranked_split(
    score_QV: Tensor, store: Store, split: Split, also_fits: Mapping[int, Sequence[int]] | None = None
) -> Evaluated:
    """What scores alone tell: recall with intervals, by group, and of any video that fits."""
    owner_Q = torch.from_numpy(split.owner).to(score_QV.device)
    ranks_Q = rank_of_owner(score_QV, owner_Q)
    fits = fits_of(store.also_fits if also_fits is None else also_fits, split, score_QV.device)
    fitting_Q = None if fits is None else rank_of_fitting(score_QV, owner_Q, fits)
    draws = draw_videos(split.owner)
    report = {
        "split": split.name,
        "videos": len(split.videos),
        "queries": len(split.queries),
        "metrics": recall(ranks_Q),
        "intervals": bounds_of(ranks_Q, draws),
        "metrics_fitting": None if fitting_Q is None else recall(fitting_Q),
        "intervals_fitting": None if fitting_Q is None else bounds_of(fitting_Q, draws),
        "by": breakdowns(ranks_Q, store, split, fitting_Q),
    }
    return Evaluated(
        split,
        None,
        Scores(score_QV, score_QV),
        score_QV,
        ranks_Q.cpu().numpy(),
        None if fitting_Q is None else fitting_Q.cpu().numpy(),
        None,
        {name: value for name, value in report.items() if value is not None},
    )


def bounds_of(ranks_Q: torch.Tensor, draws: Draws) -> dict[str, list[float | None]]:
    found = recall_intervals(ranks_Q.cpu().numpy()[None], draws)
    return {name: value.bounds() for name, value in found.items()}


def breakdowns(
    ranks_Q: Tensor, store: Store, split: Split, fitting_Q: Tensor | None = None
) -> dict[str, dict[str, dict[str, Any]]]:
    """Breakdown → group → figures; a breakdown of which nothing is known is left out."""
    draws, found = draw_videos(split.owner), {}
    for name, members in groups_of(store, split).items():
        bounds = intervals_by(ranks_Q, members, draws)
        found[name] = {
            group: {**row, "intervals": bounds[group]} for group, row in recall_by(ranks_Q, members).items()
        }
        if fitting_Q is not None:
            fits, bounds = recall_by(fitting_Q, members), intervals_by(fitting_Q, members, draws)
            for group, row in found[name].items():
                row["metrics_fitting"] = {metric: fits[group][metric] for metric in METRICS}
                row["intervals_fitting"] = bounds[group]
    return found


def groups_of(store: Store, split: Split) -> dict[str, Groups]:
    """Breakdown → group → which queries are in it; a breakdown of which nothing is known is left out."""
    found = {
        "kind": by_kind(store.kinds_Q[split.queries]),
        "length": by_length([store.captions[query] for query in split.queries]),
        "moment_ratio": by_moment_ratio(store.moments_Q2[split.queries]),
    }
    return {name: members for name, members in found.items() if members}


def recall_by(ranks_Q: Tensor, groups: Groups) -> dict[str, dict[str, float]]:
    """The figures of each group, and how many queries it has."""
    ranks_Q = ranks_Q.cpu()
    return {
        name: {"queries": int(member_Q.sum()), **recall(ranks_Q[torch.from_numpy(member_Q)])}
        for name, member_Q in groups.items()
    }


def intervals_by(ranks_Q: Tensor, groups: Groups, draws: Draws) -> dict[str, dict[str, list[float | None]]]:
    """The intervals of each group's figures."""
    rank_1Q = ranks_Q.cpu().numpy()[None]
    return {
        name: {metric: e.bounds() for metric, e in recall_intervals(rank_1Q, draws, member_Q).items()}
        for name, member_Q in groups.items()
    }


def by_kind(kinds_Q: NDArray[np.int8]) -> Groups:
    return non_empty({kind.name.lower(): kinds_Q == kind for kind in QueryKind})


def by_length(captions: list[str]) -> Groups:
    return by_bounds(np.array([len(caption.split()) for caption in captions], float), LENGTHS)


def by_moment_ratio(moments_Q2: NDArray[np.float32]) -> Groups:
    return by_bounds(moments_Q2[:, 1].astype(float) - moments_Q2[:, 0] - ROUNDING, RATIOS)


def by_bounds(values_Q: NDArray[np.floating], bounds: dict[str, float]) -> Groups:
    """Groups by upper bounds, which belong to the group; unknown values (NaN) are in none."""
    number_Q = np.searchsorted(list(bounds.values()), values_Q)
    return non_empty({name: number_Q == number for number, name in enumerate(bounds)})


def non_empty(groups: Groups) -> Groups:
    """Only the groups that have members."""
    return {name: member_Q for name, member_Q in groups.items() if member_Q.any()}


@torch.inference_mode()
def partition(
    cosine: Scores, owner_Q: Tensor, identify: Identify, batch_videos: int = BATCH_VIDEOS, seed: int = 0
) -> NDArray[np.int64]:
    """The kind of every query, found as in training: in batches of videos drawn at random.

    The last batch reaches back to be as large as the others, so a few queries are judged a second time.
    """
    videos, device = cosine.clip_QV.shape[1], owner_Q.device
    order_V = torch.from_numpy(np.random.default_rng(seed).permutation(videos)).to(device)
    kinds_Q = torch.empty_like(owner_Q)
    for start in range(0, videos, batch_videos):
        members_B = order_V[max(0, min(start, videos - batch_videos)) :][:batch_videos]
        rows_Q, own_Q = queries_about(members_B, owner_Q, videos)
        among = Scores(cosine.frame_QV[rows_Q][:, members_B], cosine.clip_QV[rows_Q][:, members_B])
        kinds_Q[rows_Q] = identify(among, own_Q)
    return kinds_Q.cpu().numpy()


def queries_about(members_B: Tensor, owner_Q: Tensor, videos: int) -> tuple[Tensor, Tensor]:
    """The queries of some of all videos, and the position of each one's video among them."""
    position_V = torch.full((videos,), -1, device=owner_Q.device)
    position_V[members_B] = torch.arange(len(members_B), device=owner_Q.device)
    rows_Q = (position_V[owner_Q] >= 0).nonzero().squeeze(1)
    return rows_Q, position_V[owner_Q[rows_Q]]


def agreement(found_Q: NDArray[np.int64], known_Q: NDArray[np.int8]) -> dict[str, Any] | None:
    """Confusion matrix (rows known, columns found), F1 of each kind, and their mean.

    `chance_macro_F1` is what drawing each query's kind with the found shares would give. None where no kind
    is known.
    """
    rows_Q = known_Q >= 0
    if not rows_Q.any():
        return None
    kinds = len(QueryKind)
    pairs_Q = known_Q[rows_Q].astype(np.int64) * kinds + found_Q[rows_Q]
    return agreement_of(np.bincount(pairs_Q, minlength=kinds * kinds).reshape(kinds, kinds))


def agreement_of(confusion: NDArray[Any]) -> dict[str, Any]:
    """The figures of a confusion matrix."""
    by_chance = np.outer(confusion.sum(1), confusion.sum(0)) / confusion.sum()
    return {
        "kinds": [kind.name.lower() for kind in QueryKind],
        "confusion": confusion.tolist(),
        "F1": f1_scores(confusion).tolist(),
        "macro_F1": float(f1_scores(confusion).mean()),
        "chance_macro_F1": float(f1_scores(by_chance).mean()),
        "accuracy": float(confusion.trace() / confusion.sum()),
    }


def f1_scores(confusion: NDArray[Any]) -> NDArray[np.float64]:
    """2·right / (known + found) of each kind; 0 for a kind that occurs on neither side."""
    return 2 * confusion.diagonal() / np.maximum(confusion.sum(0) + confusion.sum(1), 1e-12)
