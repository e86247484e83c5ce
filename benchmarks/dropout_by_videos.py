"""How much regularisation a collection needs: SumR by the number of training videos.

    python benchmarks/dropout_by_videos.py --data DATA [--jobs 8] [--seconds 120] [--out FOLDER]

Trains on fewer and fewer videos at several dropouts and InfoNCE weights and scores held-out training videos.
The test split is not read.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import print_table, save_json
from many_runs import whole_run
from matplotlib.figure import Figure
from tested_runs import changes_of, shared_options, stores_of

from holmes.base.devices import choose_device
from holmes.base.processes import Child, Parent, run_jobs
from holmes.config.presets import preset
from holmes.config.schema import from_dict, to_dict, with_changes
from holmes.data.store import Store
from holmes.report.figures.style import LIGHT, svg
from holmes.training.protocol import Splits
from holmes.training.setup import fit_to_store
from holmes.training.tuning.trials import fold_splits, held_out_sum, release_memory

SCHEDULE = {"batch_videos": 32, "epochs": 40, "warm_up_epochs": 8}
DROPOUTS, WEIGHTS = (0.25, 0.4, 0.55, 0.7), (0.25, 1.0)


def by_videos(stores: dict[str, Path], options: argparse.Namespace) -> None:
    """SumR of held-out training videos by number of videos, dropout and InfoNCE weight."""
    deadline = time.monotonic() + options.seconds
    results: list[dict[str, Any]] = []

    def jobs() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        for fold, (name, path) in product(range(options.folds), stores.items()):
            store = Store.open(path)
            base = fit_to_store(with_changes(preset("charades_plus"), SCHEDULE | changes_of(options)), store)
            for size, dropout, weight in product(sizes_of(store, name), DROPOUTS, WEIGHTS):
                if time.monotonic() > deadline:
                    return
                config = with_changes(base, {"dropout": dropout, "contrastive_cosine": weight})
                key = dict(collection=name, videos=size, dropout=dropout, weight=weight, fold=fold)
                yield key, {"store": str(path), "config": to_dict(config), **key}

    start: Callable[..., Child] = partial(
        Child,
        "dropout_by_videos:subset_worker",
        setup={"device": options.device},
        environment={"OMP_NUM_THREADS": "1"},
    )
    for finished in run_jobs(start, jobs(), options.jobs):
        if finished.failure:
            print(finished.job, finished.failure, flush=True)
        else:
            results.append({**finished.job, **finished.result})
    rows = []
    for name, size in dict.fromkeys((one["collection"], one["videos"]) for one in results):
        line: dict[str, Any] = {"collection": name, "videos": size}
        for weight in WEIGHTS:
            for dropout in DROPOUTS:
                sums = [one["SumR"] for one in results
                        if (one["collection"], one["videos"], one["dropout"], one["weight"])
                        == (name, size, dropout, weight)]  # fmt: skip
                line[f"{dropout}, {weight}"] = float(np.mean(sums)) if sums else float("nan")
        rows.append(line)
    draw_videos(results, options.out / "videos-and-dropout.svg")
    if rows:
        print_table("held-out SumR by videos, (dropout, InfoNCE weight)", rows)
    save_json(options.out / "videos.json", {"rows": rows, "results": results})


def draw_videos(results: list[dict[str, Any]], path: Path) -> None:
    """A panel for each collection, a line for each number of videos: SumR over dropout."""
    collections = list(dict.fromkeys(one["collection"] for one in results))
    with LIGHT.applied():
        figure = Figure(figsize=(2.4 * len(collections), 2.3), layout="constrained")
        panels = figure.subplots(1, len(collections), squeeze=False)[0]
        for axes, name in zip(panels, collections, strict=True):
            ours = [one for one in results if one["collection"] == name]
            for number, size in enumerate(sorted({one["videos"] for one in ours})):
                colour = LIGHT.series[number % len(LIGHT.series)]
                for weight, style in zip(WEIGHTS, (":", "-"), strict=True):
                    points = [(one["dropout"], one["SumR"]) for one in ours
                              if (one["videos"], one["weight"]) == (size, weight)]  # fmt: skip
                    at = sorted({dropout for dropout, _ in points})
                    means = [np.mean([found for dropout, found in points if dropout == each]) for each in at]
                    axes.plot(at, means, style, color=colour, marker="o", markersize=3)
                    if style == "-":
                        place = (at[-1] + 0.015, float(means[-1]))
                        axes.text(*place, f"{size} videos", color=colour, size=6.5, va="center")
            axes.set_title(name)
            axes.set_xlabel("dropout")
            axes.set_xlim(right=0.86)
        panels[0].set_ylabel("SumR, held out")
    path.write_bytes(svg(figure))


def sizes_of(store: Store, name: str) -> list[int]:
    most = len(fold_splits(store, 0).fit.videos)
    smaller = [size for size in (50, 100, 200, 400, 800, 1600, 3200) if size < 0.8 * most]
    return [*(smaller[::2] if name == "planted" else smaller), most]


def subset_worker(parent: Parent, device: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return partial(train_subset, device=choose_device(device))


def train_subset(job: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Train on some of a fold's videos and score those that it holds out."""
    start = time.monotonic()
    store, config = Store.open(job["store"]), from_dict(job["config"])
    splits = fold_splits(store, job["fold"])
    chosen = np.random.default_rng(job["fold"]).permutation(len(splits.fit.videos))[: job["videos"]]
    fewer = Splits(fit=splits.fit.take(chosen, "fewer"), select=splits.select, report=splits.select)
    run = whole_run(store, config, fewer, device, job["fold"])
    found = held_out_sum(run)
    del run
    release_memory(device)
    return {"SumR": found, "seconds": time.monotonic() - start}


def main() -> None:
    parser = shared_options(__doc__)
    parser.add_argument("--planted", type=int, default=1100, help="videos of the planted world (%(default)s)")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--folds", type=int, default=2)
    options = parser.parse_args()
    by_videos(stores_of(options, options.planted), options)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
