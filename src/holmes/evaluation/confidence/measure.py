"""Evaluate the confidence of a model, compared with baseline confidences.

For our confidence and each baseline: risk-coverage, how well right answers are told from wrong ones, and
calibration. What the single quantities are good for is measured in `quantities.py`.

Q queries, B weightings of a bootstrap
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holmes.data.bank import FeatureBank
from holmes.data.store import Split, Store
from holmes.encoders.checkpoint import Checkpoint
from holmes.evaluation.confidence.answered import OURS, AnsweredSplit, Answers, Floats, answer_split
from holmes.evaluation.confidence.baselines import PASSES, logistic_curve, standardised
from holmes.evaluation.confidence.corruptions import Reader
from holmes.evaluation.confidence.metrics import (
    area_under_risk_coverage,
    auroc,
    calibration_error,
    reliability,
    risk_coverage,
)
from holmes.evaluation.confidence.quantities import gallery_sizes, hard_queries, kinds, several_fit
from holmes.evaluation.intervals import Counts, bootstrap_counts, estimate
from holmes.evidence.calibration import Calibration

REPEATS = 1000
STEPS = 8  # of `evaluate_uncertainty` that `advance` is told of, four of them kinds of hard queries


def evaluate_uncertainty(
    checkpoint: Checkpoint,
    bank: FeatureBank,
    split: Split,
    calibration: Calibration,
    held: Split | None = None,
    other: Store | None = None,
    reader: Reader | None = None,
    abstain_below: float | None = None,
    repeats: int = REPEATS,
    passes: int = PASSES,
    seed: int = 0,
    advance: Callable[[int], None] = lambda steps: None,
    most_corrupted: int | None = None,
) -> dict[str, Any]:
    """`uncertainty`: AURC, AUROC, ECE of our confidence and the baselines; `uncertainty_details`: the rest.

    `held` are the videos the calibration was fitted on: with them the baselines become probabilities too.
    `other` is a store whose queries have no answer here. `reader` reads corrupted captions; without one,
    token features are corrupted instead. At most `most_corrupted` queries are read again.
    """
    answered = answer_split(checkpoint, bank, split, calibration, passes, seed)
    advance(1)
    counts_BQ = bootstrap_counts(split.owner, repeats, seed)
    before = None if held is None else answer_split(checkpoint, bank, held, calibration, passes, seed)
    advance(1)
    values = drawn_figures(answered, before, counts_BQ)
    advance(1)
    fitting = several_fit(bank.store, answered, calibration, counts_BQ)
    advance(1)
    hard = hard_queries(
        checkpoint.model,
        bank,
        answered,
        calibration,
        other,
        reader,
        counts_BQ,
        seed,
        advance,
        most_corrupted,
    )
    return {
        "uncertainty": with_intervals(values),
        "uncertainty_details": {
            "queries": len(split.queries),
            "videos": len(split.videos),
            "top1": float((answered.rank_Q == 1).mean()),
            "top10": float((answered.rank_Q <= 10).mean()),
            "advantage": advantages(values),
            "risk_coverage": curves(answered),
            "reliability": reliabilities(answered),
            "several_fit": fitting,
            "hard_queries": hard,
            "kinds": kinds(bank.store, answered),
            "gallery_sizes": gallery_sizes(answered, calibration, seed),
            "abstention": None if abstain_below is None else abstention(answered, abstain_below),
            "calibration": calibration.to_dict(),
        },
    }


def drawn_figures(answered: Answers, held: Answers | None, counts_BQ: Counts) -> dict[str, dict[str, Floats]]:
    """AURC, AUROC and ECE of every confidence, for each weighting of the bootstrap."""
    probabilities = {OURS: answered.top1[OURS]} | (as_probabilities(answered, held) if held else {})
    return {name: figures(answered, name, probabilities.get(name), counts_BQ) for name in answered.top1}


def with_intervals(values: dict[str, dict[str, Floats]]) -> dict[str, dict[str, Any]]:
    return {
        name: {figure: estimate(values_B).to_json() for figure, values_B in of_one.items()}
        for name, of_one in values.items()
    }


def as_probabilities(answered: Answers, held: Answers) -> dict[str, Floats]:
    """Each baseline as a probability, by a logistic curve through the held-out queries."""
    right_Q = held.rank_Q == 1
    return {
        name: logistic_curve(comparable(name, values_Q), right_Q)(comparable(name, answered.top1[name]))
        for name, values_Q in held.top1.items()
        if name != OURS
    }


def comparable(name: str, values_Q: Floats) -> Floats:
    """Values that mean the same in galleries of all sizes: entropy is standardised in each."""
    return standardised(values_Q) if name.startswith("softmax_entropy") else values_Q


def figures(
    answered: Answers, name: str, probability_Q: Floats | None, counts_BQ: Counts
) -> dict[str, Floats]:
    first_Q, among_ten_Q = answered.rank_Q == 1, answered.rank_Q <= 10
    found = {
        "aurc": area_under_risk_coverage(answered.top1[name], first_Q, counts_BQ),
        "auroc_top1": auroc(answered.top1[name], first_Q, counts_BQ),
        "auroc_top10": auroc(answered.top10[name], among_ten_Q, counts_BQ),
    }
    if probability_Q is not None:
        found["ece"] = calibration_error(probability_Q, first_Q, counts_BQ)
    return found


def advantages(values: dict[str, dict[str, Floats]]) -> dict[str, dict[str, dict[str, float | None]]]:
    """How much better ours is than each baseline, on the same resamples; above 0 is better."""
    sign = {"aurc": -1, "auroc_top1": 1, "auroc_top10": 1}
    return {
        name: {f: estimate(s * (values[OURS][f] - of_one[f])).to_json() for f, s in sign.items()}
        for name, of_one in values.items()
        if name != OURS
    }


def curves(answered: AnsweredSplit) -> dict[str, dict[str, list[float]]]:
    points = {}
    for name, confidence_Q in answered.top1.items():
        coverage, risk = risk_coverage(confidence_Q, answered.rank_Q == 1)
        points[name] = {"coverage": coverage.tolist(), "risk": risk.tolist()}
    return points


def reliabilities(answered: AnsweredSplit) -> dict[str, dict[str, list[float]]]:
    points = {}
    for k, confidence in ((1, answered.top1), (10, answered.top10)):
        bins = reliability(confidence[OURS], answered.rank_Q <= k)
        points[f"top{k}"] = {
            "said": bins.said.tolist(),
            "true": bins.true.tolist(),
            "queries": bins.queries.tolist(),
        }
    return points


def abstention(answered: AnsweredSplit, below: float) -> dict[str, float | None]:
    """What is left if nothing is answered that is less probable."""
    answered_Q = answered.top1[OURS] >= below
    right_Q = answered.rank_Q == 1
    return {
        "below": below,
        "answered": float(answered_Q.mean()),
        "right_of_answered": float(right_Q[answered_Q].mean()) if answered_Q.any() else None,
        "right_of_all": float(right_Q.mean()),
    }
