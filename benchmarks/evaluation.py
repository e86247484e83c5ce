"""How long a whole evaluation takes: encode videos and queries, score all pairs, rank, count.

python benchmarks/evaluation.py [--shape activitynet] [--device auto] [--share 1] [--json FILE]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from common import machine, print_table, save_json
from synthetic import SHAPES, synthetic_store

from holmes.base.devices import choose_device
from holmes.config.presets import preset
from holmes.config.schema import HolmesConfig, with_changes
from holmes.data.bank import FeatureBank
from holmes.data.store import Store
from holmes.encoders.model import HolmesModel
from holmes.evaluation.recall import rank_of_owner, recall, retrieval_metrics
from holmes.evaluation.scoring import encode_split, score_all
from holmes.training.setup import fit_to_store

CPU_SHARE, CPU_MODEL = 0.02, {"width": 64}


def timed(what: Callable[[], Any], device: torch.device, repeats: int) -> tuple[float, Any]:
    """The median of the seconds, after one run that does not count."""
    result, seconds = what(), []
    for _ in range(repeats):
        synchronize(device)
        start = time.perf_counter()
        result = what()
        synchronize(device)
        seconds.append(time.perf_counter() - start)
    return sorted(seconds)[len(seconds) // 2], result


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=SHAPES, default="activitynet")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--share", type=float, help="of the videos and queries; all, and 2%% on a CPU")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/evaluation.json"))
    options = parser.parse_args()

    device = choose_device(options.device)
    config = preset(options.shape)
    share = options.share or (CPU_SHARE if device.type == "cpu" else 1.0)
    if device.type == "cpu":
        config = with_changes(config, CPU_MODEL)
    else:
        torch.set_float32_matmul_precision("high")
    with synthetic_store(SHAPES[options.shape].scaled(share), device) as store:
        measure(store, config, device, share, options)


def measure(
    store: Store, config: HolmesConfig, device: torch.device, share: float, options: argparse.Namespace
) -> None:
    config = fit_to_store(config, store)
    split = store.split("test")
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    bank = FeatureBank(store, device, splits=[split], dtype=dtype)
    model = HolmesModel(config.model).to(device)

    whole, metrics = timed(
        lambda: retrieval_metrics(model, bank, split, config.score), device, options.repeats
    )
    encode, encoded = timed(lambda: encode_split(model, bank, split), device, options.repeats)
    score, scores = timed(lambda: score_all(encoded), device, options.repeats)
    scores_QV = scores.combined(config.score.frame_weight, config.score.clip_weight)
    rank, _ = timed(lambda: recall(rank_of_owner(scores_QV, encoded.owner_Q)), device, options.repeats)
    rows = [
        {"part": "encode", "seconds": encode},
        {"part": "score", "seconds": score},
        {"part": "rank and count", "seconds": rank},
        {"part": "whole evaluation", "seconds": whole},
    ]
    scaled = f", scaled down to {share:.1%} and width {CPU_MODEL['width']}" if device.type == "cpu" else ""
    title = f"{len(split.videos):,} videos × {len(split.queries):,} queries on {machine(device)}{scaled}"
    print_table(title, rows)
    save_json(
        options.json,
        {
            "machine": machine(device),
            "shape": options.shape,
            "scaled": scaled,
            "rows": rows,
            "metrics": metrics,
        },
    )


if __name__ == "__main__":
    main()
