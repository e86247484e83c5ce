"""What makes a better model than the published one? Candidates against the full method, seed by seed.

    python benchmarks/recipes.py [--data DATA] [--seeds 0,1,2] [--workers 8] [--device auto] [--json FILE]
    python benchmarks/recipes.py --final [...]

Every figure is measured on training videos that were held out (a quarter, a different one for each seed); the
test split is not looked at. `--final` looks at it: the full method and the `plus` recipe, calibrated on
held-out videos, with recall, calibration error and the area under the risk-coverage curve. Candidates that
needed code of their own and were dropped are in docs/log.md.
"""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from many_runs import Job, train_to_the_end
from method import study

from holmes.config.ablations import FULL, Ablation
from holmes.evaluation.confidence.answered import as_numpy
from holmes.evaluation.confidence.metrics import area_under_risk_coverage, calibration_error
from holmes.evaluation.intervals import bootstrap_counts
from holmes.evaluation.recall import rank_of_owner, recall
from holmes.evaluation.scoring import encode_split, score_all
from holmes.evidence.fitting import fit_calibration, judge_all
from holmes.training.protocol import Protocol

HELD_OUT = {"held_out": 0.25}
PLUS = {"contrastive_cosine": 0.25, "contrastive_temperature": 0.07}
CANDIDATES = {
    "InfoNCE on cosines, weight .25": PLUS,
    "InfoNCE on cosines, weight .5": PLUS | {"contrastive_cosine": 0.5},
    "InfoNCE on cosines, weight 1": PLUS | {"contrastive_cosine": 1.0},
    "dropout .4": {"dropout": 0.4},
    "InfoNCE on cosines, weight .5, dropout .4": PLUS | {"contrastive_cosine": 0.5, "dropout": 0.4},
}
ROWS = (
    Ablation(FULL.row, FULL.title, HELD_OUT),
    *(
        Ablation(-20 - place, title, HELD_OUT | changes)
        for place, (title, changes) in enumerate(CANDIDATES.items())
    ),
)
FINAL_ROWS = (ROWS[0], Ablation(-30, "plus", HELD_OUT | PLUS))


def measure_on_test(job: Job, device: str) -> dict[str, Any]:
    """Train, calibrate on the held-out videos, and answer the test queries."""
    run = train_to_the_end(job, device)
    held = encode_split(run.model, run.bank, run.splits.select)
    test = encode_split(run.model, run.bank, run.splits.report)
    weights = run.config.score
    calibration = fit_calibration(
        score_all(held), held.owner_Q, weights.frame_weight, weights.clip_weight, "this run"
    )
    assert calibration is not None, "too few videos are held out"
    held_rank_Q = rank_of_owner(calibration.score(score_all(held)), held.owner_Q)
    scores = score_all(test)
    rank_Q = rank_of_owner(calibration.score(scores), test.owner_Q)
    probability_Q = as_numpy(judge_all(scores, calibration).gallery.probability_top(1))
    right_Q = (rank_Q == 1).cpu().numpy()
    once = bootstrap_counts(test.owner_Q.cpu().numpy(), repeats=0)
    return {
        "metrics": recall(rank_Q),
        "held-out SumR": recall(held_rank_Q)["SumR"],
        "ECE": float(calibration_error(probability_Q, right_Q, once)[0]),
        "AURC": float(area_under_risk_coverage(probability_Q, right_Q, once)[0]),
    }


def main() -> None:
    first = ArgumentParser(add_help=False)
    first.add_argument("--final", action="store_true", help="the full method and `plus`, on the test split")
    if first.parse_known_args()[0].final:
        study(__doc__, FINAL_ROWS, "final_recipe.json", Protocol.HONEST, measure_on_test, [first])
    else:
        study(__doc__, ROWS, "recipes.json", Protocol.HONEST, more=[first])


if __name__ == "__main__":
    main()
