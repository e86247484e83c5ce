"""A split's queries, and how sure their answers are: by our confidence and by the baselines.

Q queries, V videos
"""

from __future__ import annotations

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
class AnsweredSplit:
    split: Split
    encoded: Encoded
    scores: Scores
    judged: Judgement
    rank_Q: NDArray[np.int64]
    top1: dict[str, Floats]  # name → confidence that the first video is right
    top10: dict[str, Floats]  # name → confidence that it is among the first ten


@torch.inference_mode()
def answer_split(
    checkpoint: Checkpoint, bank: FeatureBank, split: Split, calibration: Calibration, passes: int, seed: int
) -> AnsweredSplit:
    """Score a split and collect every confidence."""
    encoded = encode_split(checkpoint.model, bank, split)
    scores = score_all(encoded)
    score_QV = calibration.score(scores)
    judged = judge_all(scores, calibration)
    gallery = judge_all(scores, calibration, expect_missing=0).gallery  # every query of a split has an answer
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
    same = {**score_baselines(scores, calibration), "dropout_agreement": as_numpy(agreement_Q)}
    return AnsweredSplit(
        split=split,
        encoded=encoded,
        scores=scores,
        judged=judged,
        rank_Q=rank_of_owner(score_QV, encoded.owner_Q).cpu().numpy(),
        top1={OURS: as_numpy(gallery.probability_top(1)), **same},
        top10={OURS: as_numpy(gallery.probability_top(10)), **same},
    )


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
