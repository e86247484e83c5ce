"""Single quantities on polysemous queries, hard queries, kinds, and other gallery sizes.

Q queries, V videos, N videos of a smaller gallery, B weightings of a bootstrap
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holmes.data.bank import FeatureBank
from holmes.data.store import Store
from holmes.encoders.model import HolmesModel
from holmes.evaluation.confidence.answered import OURS, AnsweredSplit, Floats, as_numpy, score_baselines
from holmes.evaluation.confidence.baselines import encode_queries
from holmes.evaluation.confidence.corruptions import Corruption, Reader, corrupted_source, read_source
from holmes.evaluation.confidence.metrics import auroc, auroc_within, calibration_error
from holmes.evaluation.intervals import Counts, bootstrap_counts, estimate, finite
from holmes.evaluation.recall import rank_of_owner
from holmes.evaluation.scoring import score_all
from holmes.evaluation.split_report import agreement
from holmes.evidence.calibration import Calibration
from holmes.evidence.fitting import judge_all, without
from holmes.evidence.kinds import AnswerKind
from holmes.records import QueryKind, Scores

GALLERY_SHARES = (0.25, 0.5, 1.0)
SMALLEST_GALLERY = 10
UNANSWERABLE = "unanswerable"


def doubts(scores: Scores, calibration: Calibration) -> dict[str, Floats]:
    """Every quantity, larger where less is known; the signs of the baselines are flipped."""
    judged = judge_all(scores, calibration)
    ours = {
        "missing": judged.gallery.none_Q,
        "vacuity": judged.gallery.vacuity_Q,
        "uncertainty": judged.quantities.uncertainty_Q,
        "entropy": judged.quantities.entropy_Q,
        "conflict": judged.quantities.conflict_Q,
        OURS: -judged.gallery.probability_top(1),
    }
    baselines = {name: -values_Q for name, values_Q in score_baselines(scores, calibration).items()}
    return {name: as_numpy(values_Q) for name, values_Q in ours.items()} | baselines


def several_fit(
    store: Store, answered: AnsweredSplit, calibration: Calibration, counts_BQ: Counts
) -> dict[str, Any] | None:
    """AUROC of each quantity for queries that other videos fit too: over all, and among equally long ones."""
    queries, inside = answered.split.queries, set(answered.split.videos.tolist())
    fits_Q = np.array([any(v in inside for v in store.also_fits.get(int(q), ())) for q in queries])
    # Nobody lists the videos that fit an under-determined query.
    known_Q = store.kinds_Q[queries] != QueryKind.UNDERDETERMINED
    fits_Q, some_BQ = fits_Q[known_Q], counts_BQ[:, known_Q]
    if not 0 < fits_Q.sum() < len(fits_Q):
        return None
    length_Q = np.diff(store.token_offsets)[queries][known_Q]
    found = {}
    for name, every_Q in doubts(answered.scores, calibration).items():
        doubt_Q = every_Q[known_Q]
        found[name] = {
            "all": estimate(auroc(doubt_Q, fits_Q, some_BQ)).to_json(),
            "equal_length": estimate(auroc_within(doubt_Q, fits_Q, length_Q, some_BQ)).to_json(),
        }
    return {"queries": len(fits_Q), "share": float(fits_Q.mean()), "auroc": found}


def hard_queries(
    model: HolmesModel,
    bank: FeatureBank,
    answered: AnsweredSplit,
    calibration: Calibration,
    other: Store | None,
    reader: Reader | None,
    counts_BQ: Counts,
    seed: int,
    advance: Callable[[int], None] = lambda steps: None,
    most: int | None = None,
) -> dict[str, Any]:
    """AUROC of each quantity for telling hard queries from the split's own.

    Reading captions again takes longest: at most `most` of them are, drawn at random.
    """
    found: dict[str, Any] = {"corrupted": "tokens" if reader is None else "words", "auroc": {}}
    usual_whole, repeats = doubts(answered.scores, calibration), len(counts_BQ) - 1
    for name, scores, video_Q in hard_scores(model, bank, answered, other, reader, seed, most):
        usual, hard = usual_whole, doubts(scores, calibration)
        if name == UNANSWERABLE:  # galleries of equal size: the usual ones lack a wrong video
            usual = doubts(without(answered.scores, some_other(answered, seed)), calibration)
        hard_counts_BQ = counts_BQ if video_Q is None else bootstrap_counts(video_Q, repeats, seed + 1)
        both_BQ = np.concatenate([counts_BQ, hard_counts_BQ], 1)
        is_hard_Q = np.arange(both_BQ.shape[1]) >= counts_BQ.shape[1]
        found["auroc"][name] = {
            quantity: estimate(auroc(np.concatenate([usual_Q, hard[quantity]]), is_hard_Q, both_BQ)).to_json()
            for quantity, usual_Q in usual.items()
        }
        advance(1)
    return found


def hard_scores(
    model: HolmesModel,
    bank: FeatureBank,
    answered: AnsweredSplit,
    other: Store | None,
    reader: Reader | None,
    seed: int,
    most: int | None = None,
) -> Iterator[tuple[str, Scores, NDArray[np.int64] | None]]:
    """Name, scores over the gallery, and for queries from elsewhere the videos they belong to."""
    encoded, queries = answered.encoded, answered.split.queries
    yield UNANSWERABLE, without(answered.scores, encoded.owner_Q), None
    some_Q = None
    if most is not None and most < len(queries):
        some_Q = np.sort(np.random.default_rng(seed).choice(len(queries), most, replace=False))
    for how in Corruption:
        source = corrupted_source(bank, how, reader, seed)
        chosen_Q = queries if some_Q is None else queries[some_Q]
        owner_Q = None if some_Q is None else answered.split.owner[some_Q]
        yield how.value, score_all(encode_queries(model, source, chosen_Q, encoded)), owner_Q
    if other is not None:
        split = other.split("test")
        if other.info.text_width == bank.store.info.text_width:
            source = FeatureBank(other, bank.device, splits=[split], dtype=bank.dtype).queries
        else:
            assert reader is not None, "other token features need a reader"
            source = read_source(reader, other.captions.__getitem__, bank)
        yield (
            "other_collection",
            score_all(encode_queries(model, source, split.queries, encoded)),
            split.owner,
        )


def some_other(answered: AnsweredSplit, seed: int) -> Tensor:
    """A video at random that is not the query's own."""
    owner_Q, videos = answered.encoded.owner_Q, len(answered.split.videos)
    generator = torch.Generator().manual_seed(seed)
    ahead_Q = torch.randint(1, videos, owner_Q.shape, generator=generator).to(owner_Q.device)
    return (owner_Q + ahead_Q) % videos


def kinds(store: Store, answered: AnsweredSplit) -> dict[str, Any]:
    """How often each kind is given and, where kinds are known, how often it is right."""
    found_Q = answered.judged.kinds_Q.cpu().numpy()
    shares = {kind.name.lower(): float((found_Q == kind).mean()) for kind in AnswerKind}
    right = {
        kind.name.lower(): float((answered.rank_Q[found_Q == kind] == 1).mean())
        for kind in AnswerKind
        if (found_Q == kind).any()
    }
    known = agreement(as_known(found_Q), store.kinds_Q[answered.split.queries])
    return {"shares": shares, "right": right, "agreement": known}


def as_known(found_Q: NDArray[np.int64]) -> NDArray[np.int64]:
    """Kinds of answers as kinds of queries: what seems not to be here counts as under-determined."""
    return np.minimum(found_Q, QueryKind.UNDERDETERMINED)


def gallery_sizes(
    answered: AnsweredSplit, calibration: Calibration, seed: int
) -> list[dict[str, float | None]]:
    """The same queries in random parts of the gallery: does the probability follow?"""
    videos = len(answered.split.videos)
    sizes = {min(videos, max(SMALLEST_GALLERY, round(share * videos))) for share in GALLERY_SHARES}
    rows = []
    for size in sorted(sizes):
        some, owner_Q = smaller_gallery(answered.scores, answered.encoded.owner_Q, size, seed)
        rows.append(size_row(some, owner_Q, calibration))
    return rows


def size_row(scores: Scores, owner_Q: Tensor, calibration: Calibration) -> dict[str, float | None]:
    said_Q = as_numpy(judge_all(scores, calibration, expect_missing=0).gallery.probability_top(1))
    right_Q = (rank_of_owner(calibration.score(scores), owner_Q) == 1).cpu().numpy()
    once_BQ = np.ones((1, len(right_Q)), np.int64)
    return {
        "videos": scores.clip_QV.shape[1],
        "said": float(said_Q.mean()),
        "right": float(right_Q.mean()),
        "ece": float(calibration_error(said_Q, right_Q, once_BQ)[0]),
        "auroc_top1": finite(auroc(said_Q, right_Q, once_BQ)[0]),
    }


def smaller_gallery(scores: Scores, owner_Q: Tensor, videos: int, seed: int) -> tuple[Scores, Tensor]:
    """Each query's own video, first, among others drawn at random."""
    random_QV = torch.rand(scores.clip_QV.shape, generator=torch.Generator().manual_seed(seed))
    random_QV = random_QV.to(owner_Q.device).scatter_(1, owner_Q.unsqueeze(1), -1.0)
    drawn_QN = random_QV.topk(videos, largest=False).indices
    drawn = Scores(scores.frame_QV.gather(1, drawn_QN), scores.clip_QV.gather(1, drawn_QN))
    return drawn, torch.zeros_like(owner_Q)
