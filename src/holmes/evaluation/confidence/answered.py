"""The answers to a split's queries, with our confidence and that of the baselines.

Q queries, V videos
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holmes.data.bank import FeatureBank
from holmes.data.store import Split
from holmes.encoders.checkpoint import Checkpoint
from holmes.evaluation.confidence import baselines
from holmes.evaluation.recall import rank_of_owner
from holmes.evaluation.scoring import Encoded, encode_split, score_all
from holmes.evidence.calibration import Calibration
from holmes.evidence.fitting import judge_all
from holmes.evidence.judging import Judgement
from holmes.records import Scores

Floats = NDArray[np.float64]

OURS = "confidence"


@dataclass(frozen=True)
class Answers:
    """Ranks of the right videos, and how sure each way of telling is of them."""

    rank_Q: NDArray[np.int64]
    top1: dict[str, Floats]  # name → confidence that the first video is right
    top10: dict[str, Floats]  # name → confidence that it is among the first ten


@dataclass(frozen=True)
class AnsweredSplit(Answers):
    split: Split
    encoded: Encoded
    scores: Scores
    judged: Judgement


def answers_of(
    scores: Scores, owner_Q: Tensor, calibration: Calibration, more: Mapping[str, Floats] | None = None
) -> Answers:
    """Our confidence and the baselines that need only scores, with `more` of them."""
    gallery = judge_all(scores, calibration, expect_missing=0).gallery  # every query of a split has an answer
    others = score_baselines(scores, calibration) | dict(more or {})
    return Answers(
        rank_Q=rank_of_owner(calibration.score(scores), owner_Q).cpu().numpy(),
        top1={OURS: as_numpy(gallery.probability_top(1)), **others},
        top10={OURS: as_numpy(gallery.probability_top(10)), **others},
    )


@torch.inference_mode()
def answer_split(
    checkpoint: Checkpoint, bank: FeatureBank, split: Split, calibration: Calibration, passes: int, seed: int
) -> AnsweredSplit:
    """Score a split and collect every confidence."""
    encoded = encode_split(checkpoint.model, bank, split)
    scores = score_all(encoded)
    score_QV = calibration.score(scores)
    agreement_Q = baselines.dropout_agreement(
        checkpoint.model,
        bank.queries,
        split.queries,
        encoded,
        calibration.score,
        score_QV.argmax(1),
        passes,
        seed,
    )
    found = answers_of(scores, encoded.owner_Q, calibration, {"dropout_agreement": as_numpy(agreement_Q)})
    judged = judge_all(scores, calibration)
    return AnsweredSplit(found.rank_Q, found.top1, found.top10, split, encoded, scores, judged)


def score_baselines(scores: Scores, calibration: Calibration) -> dict[str, Floats]:
    """Baselines that need only the scores. The tuned entropy has our fitted temperature, the other has 1."""
    score_QV = calibration.score(scores)
    found = {
        "top1_score": baselines.top_score(score_QV),
        "margin": baselines.margin(score_QV),
        "softmax_entropy": baselines.negative_entropy(score_QV),
        "softmax_entropy_tuned": baselines.negative_entropy(score_QV, calibration.score_temperature),
    }
    return {name: as_numpy(values_Q) for name, values_Q in found.items()}


def as_numpy(values: Tensor) -> Floats:
    return values.double().cpu().numpy()
