"""Do the kinds of answers mean what they say? On the test split of a store, with a trained model.

    python benchmarks/kinds.py RUN STORE [RUN STORE …]

The model is calibrated as training would do it on that store: on its val split where kinds are known, or on
the videos that were held out; never on test. Where kinds are planted, the macro-F1 of the fixed rules is
given beside .69, which rules learned from known kinds reached: they called answers precise below half.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from common import print_table, save_json

from holmes.data.bank import FeatureBank
from holmes.data.store import Store
from holmes.encoders.checkpoint import load_checkpoint
from holmes.evaluation.runs.folders import find_runs
from holmes.evaluation.scoring import encode_split, score_all
from holmes.evaluation.split_report import agreement
from holmes.evidence.fitting import fit_calibration, judge_all
from holmes.evidence.kinds import AnswerKind
from holmes.records import QueryKind
from holmes.training.calibrate import fitting_videos
from holmes.training.protocol import Protocol, calibration_split

LEARNED_RULES = 0.69  # macro-F1 of the rules that were fitted to known kinds


def measure(run_folder: Path, store: Store) -> dict[str, Any]:
    (run,) = find_runs(run_folder)
    checkpoint = load_checkpoint(run.checkpoint, "cpu")
    held = calibration_split(store, Protocol.HONEST, checkpoint.config.training.held_out, 0)
    test = store.split("test")
    assert held is not None
    bank = FeatureBank(store, torch.device("cpu"), splits=[held, test], dtype=torch.float32)
    told, asked = (encode_split(checkpoint.model, bank, split) for split in (held, test))
    weights = checkpoint.config.score
    calibration = fit_calibration(
        score_all(told),
        told.owner_Q,
        weights.frame_weight,
        weights.clip_weight,
        checkpoint.digest,
        fitting_videos(store, held),
    )
    assert calibration is not None
    scores = score_all(asked)
    judged = judge_all(scores, calibration)
    right_Q = calibration.score(scores).argmax(1) == asked.owner_Q
    first_Q = judged.gallery.probability_QK[:, 0]
    found: dict[str, Any] = {
        "run": run_folder.name,
        "R@1": share(right_Q),
        "held-out videos": len(held.videos),
        "precise below half": int(((judged.kinds_Q == AnswerKind.PRECISE) & (first_Q < 0.5)).sum()),
    }
    for kind in AnswerKind:
        said_Q = judged.kinds_Q == kind
        found |= {f"{kind.words}, share": share(said_Q), f"{kind.words}, R@1": share(right_Q[said_Q])}
    planted_Q = store.kinds_Q[test.queries]
    if (planted_Q >= 0).any():
        agreed = agreement(judged.kinds_Q.clamp(max=int(QueryKind.UNDERDETERMINED)).numpy(), planted_Q)
        assert agreed is not None
        found |= {
            "macro-F1": agreed["macro_F1"],
            "macro-F1 of learned rules": LEARNED_RULES,
            "chance": agreed["chance_macro_F1"],
        }
    return found


def share(chosen_Q: torch.Tensor) -> float:
    return chosen_Q.double().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs", nargs="+", type=Path, metavar="RUN STORE")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/kinds.json"))
    options = parser.parse_args()
    pairs = zip(options.pairs[::2], options.pairs[1::2], strict=True)
    found = [measure(run, Store.open(store)) for run, store in pairs]
    for row in found:
        print_table(
            row["run"], [{"figure": name, "value": value} for name, value in row.items() if name != "run"]
        )
    save_json(options.json, found)


if __name__ == "__main__":
    main()
