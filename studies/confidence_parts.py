"""What each quantity adds to the probability, and what it is worth alone.

A logistic model starts from the probability's log-odds and may correct them by a quantity; its strength is
chosen by cross-validation over the held-out videos. Its gain on the test split is what the quantity adds.

Q queries, X inputs
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from holmes.evaluation.confidence.answered import OURS, AnsweredSplit, as_numpy
from holmes.evaluation.confidence.baselines import sigmoid
from holmes.evaluation.confidence.metrics import area_under_risk_coverage, auroc, calibration_error
from holmes.evaluation.intervals import Counts, bootstrap_counts, estimate
from holmes.evidence.calibration import Calibration
from holmes.evidence.distribution import background
from holmes.evidence.logistic import fit_logistic

Floats = NDArray[np.float64]
FOLDS = 5
SHRINKAGES = (1e9, 300.0, 100.0, 30.0, 10.0, 3.0)  # the first leaves the probability as it is
FURTHEST = 3.0  # deviations
REPEATS = 300


def quantities(asked: AnsweredSplit, calibration: Calibration) -> dict[str, Floats]:
    """The quantities, larger where the answer is surer; the spread is that of the scores over the gallery."""
    judged, all_scores = asked.judged, background(calibration.score(asked.scores))
    of_ours = {
        "u": -judged.quantities.uncertainty_Q.log(),
        "ξ": -judged.quantities.entropy_Q,
        "δ": -judged.quantities.conflict_Q,
        "belief": judged.quantities.fused.belief_QV[:, 0],
        "belief gap": judged.quantities.belief_gap_Q,
        "vacuity": -judged.gallery.vacuity_Q.log(),
        "spread": all_scores.deviation_Q,
    }
    found = {name: as_numpy(values_Q) for name, values_Q in of_ours.items()}
    return found | {"score": asked.top1["top1_score"], "margin": asked.top1["margin"]}


def parts_table(
    held: AnsweredSplit, asked: AnsweredSplit, calibration: Calibration, seed: int = 0
) -> list[dict[str, Any]]:
    """Each quantity alone, added to the probability, and all of them added."""
    counts_BQ = bootstrap_counts(asked.split.owner, REPEATS, seed)
    ours, of_held, of_test = asked.top1[OURS], quantities(held, calibration), quantities(asked, calibration)
    base = measures(ours, asked, counts_BQ)
    rows = [{"part": "probability", "kind": "shipped", **shown(base)}]
    for name, values_Q in of_test.items():
        rows.append({"part": name, "kind": "alone", **shown(measures(values_Q, asked, counts_BQ, False))})
    for name in (*of_test, "all"):
        used = list(of_test) if name == "all" else [name]
        corrected_Q = corrected(held, asked, [of_held[n] for n in used], [of_test[n] for n in used])
        found = measures(corrected_Q, asked, counts_BQ)
        change = {f"Δ {figure}": estimate(found[figure] - base[figure]).to_json() for figure in base}
        rows.append({"part": f"+ {name}", "kind": "added", **shown(found), **change})
    return rows


def measures(
    confidence_Q: Floats, asked: AnsweredSplit, counts_BQ: Counts, said: bool = True
) -> dict[str, Floats]:
    right_Q = asked.rank_Q == 1
    found = {
        "aurc": area_under_risk_coverage(confidence_Q, right_Q, counts_BQ),
        "auroc_top1": auroc(confidence_Q, right_Q, counts_BQ),
    }
    return found | ({"ece": calibration_error(confidence_Q, right_Q, counts_BQ)} if said else {})


def shown(found: dict[str, Floats]) -> dict[str, float]:
    return {figure: float(values_B[0]) for figure, values_B in found.items()}


def corrected(
    held: AnsweredSplit, asked: AnsweredSplit, held_inputs: list[Floats], test_inputs: list[Floats]
) -> Floats:
    """The test split's probabilities, corrected as the held-out queries suggest."""
    odds_Q, right_Q = log_odds(held.top1[OURS]), (held.rank_Q == 1).astype(float)
    mean_X = np.array([x_Q.mean() for x_Q in held_inputs])
    deviation_X = np.array([max(x_Q.std(), 1e-9) for x_Q in held_inputs])

    def inputs(columns: list[Floats]) -> Floats:
        x_QX = ((np.stack(columns, 1) - mean_X) / deviation_X).clip(-FURTHEST, FURTHEST)
        return np.concatenate([np.ones((len(x_QX), 1)), x_QX], 1)

    x_QX, fold_Q = inputs(held_inputs), held.split.owner % FOLDS

    def loss(shrinkage: float) -> float:
        total = 0.0
        for fold in range(FOLDS):
            inside_Q = fold_Q != fold
            weights_X = shrunk_logistic(x_QX[inside_Q], odds_Q[inside_Q], right_Q[inside_Q], shrinkage)
            logit_Q = odds_Q[~inside_Q] + x_QX[~inside_Q] @ weights_X
            total += np.logaddexp(0, np.where(right_Q[~inside_Q] == 1, -logit_Q, logit_Q)).sum()
        return total

    weights_X = shrunk_logistic(x_QX, odds_Q, right_Q, min(SHRINKAGES, key=loss))
    return sigmoid(log_odds(asked.top1[OURS]) + inputs(test_inputs) @ weights_X)


def shrunk_logistic(x_QX: Floats, odds_Q: Floats, right_Q: Floats, shrinkage: float) -> Floats:
    """argmin_w Σ -log P(right | odds + x · w) + λ/2 |w|²."""
    tensors = (torch.from_numpy(values) for values in (x_QX, right_Q, odds_Q))
    inputs_QX, is_right_Q, offset_Q = tensors
    return fit_logistic(inputs_QX, is_right_Q, shrinkage, offset_Q=offset_Q).numpy()


def log_odds(p_Q: Floats) -> Floats:
    p_Q = p_Q.clip(1e-6, 1 - 1e-6)
    return np.log(p_Q / (1 - p_Q))
