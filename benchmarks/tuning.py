"""What tuning brings on small collections.

    python benchmarks/tuning.py --data DATA [--jobs 5] [--minutes 4] [--out FOLDER]

Searches settings on msvd and msrvtt from `charades_plus`, as `holmes tune` does, and meanwhile trains the
full method with its published settings. Both are trained with eight seeds and tested once: SumR, paired
differences, calibration error.
"""

from __future__ import annotations

import argparse
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import machine, print_table, save_json
from many_runs import paired
from tested_runs import (
    FIGURES,
    SEEDS,
    TRIALS,
    TestSplit,
    again,
    changes_of,
    markdown,
    on_test,
    rounded,
    seeds_of,
    shared_options,
    stores_of,
)

from holmes.base.devices import choose_device
from holmes.base.files import read_json
from holmes.config.presets import preset
from holmes.config.schema import with_changes
from holmes.data.store import Store
from holmes.report.figures.tuning import over_folds, save_tuning
from holmes.training.experiments import Study, train_seeds
from holmes.training.run import RunOptions
from holmes.training.setup import fit_to_store
from holmes.training.tuning.search import CHOSEN, tune
from holmes.training.tuning.search import TRIALS as TRIALS_FILE

# As in the other tables of the documentation: the published settings, fitted to a few hundred videos.
FULL = {"batch_videos": 32, "epochs": 60, "patience": 0}


def tuned(stores: dict[str, Path], options: argparse.Namespace) -> None:
    """Search and train on every collection at once, each in a process of its own; then test."""
    start = time.monotonic()
    shared = [*again(__file__, options), "--seeds", options.seeds, "--trials", str(options.trials)]
    shared += ["--minutes", str(options.minutes), "--preset", options.preset]
    shared += [] if options.worth else ["--no-worth"]
    parts = [[*shared, "--only", name, "--part", "search"] for name in stores]
    parts += [[*shared, "--only", name, "--part", "full", "--jobs", "1"] for name in stores]
    processes = [subprocess.Popen(part) for part in parts]
    for process in processes:
        if process.wait():
            print(f"a part failed: {process.args!r}", flush=True)
    print(f"searched and trained in {time.monotonic() - start:.0f} s", flush=True)
    rows: list[dict[str, Any]] = []
    found: dict[str, Any] = {}
    for name, path in stores.items():
        held = TestSplit.of(path, options.device)
        trials = read_json(options.work / f"tuned-{name}" / TRIALS_FILE)
        chosen = options.work / f"tuned-{name}" / CHOSEN / f"trial{trials['best']}"
        runs = {"full method": options.work / f"full-{name}", "tuned": chosen}
        each = {
            row: {
                seed: on_test(folder / f"honest-seed{seed}", held, last_epoch=True)
                for seed in seeds_of(options)
                if (folder / f"honest-seed{seed}" / "result.json").exists()
            }
            for row, folder in runs.items()
        }
        for row, by_seed in each.items():
            means = {figure: float(np.mean([one[figure] for one in by_seed.values()])) for figure in FIGURES}
            rows.append({"collection": name, "row": row, "seeds": len(by_seed), **rounded(means)})
        against = {
            figure: paired(
                *({seed: one[figure] for seed, one in each[row].items()} for row in ("tuned", "full method"))
            )
            for figure in FIGURES
        }
        shown = {f: f"{d['difference']:+.3g} ± {d['half_width']:.2g}" for f, d in against.items()}
        rows.append({"collection": name, "row": "difference", "seeds": against["SumR"]["seeds"], **shown})
        save_tuning(trials, options.out / f"settings-{name}")
        found[name] = {"each": each, "against_full": against, "search": trials}
    title = f"test split, honest protocol, on {machine(choose_device(options.device))}"
    print_table(title, rows)
    save_json(options.out / "tuned.json", {"title": title, "rows": rows, "found": found})
    text = "## What tuning brings\n\n`python benchmarks/tuning.py --data DATA`. "
    text += "The full method has its published settings with batches of 32 and 60 epochs. "
    text += "Differences are paired by seed, with 95% intervals.\n\n" + markdown(title, rows)
    text += "".join(worth_markdown(name, found[name]["search"]) for name in found)
    (options.out / "tuned.md").write_text(text)
    print(text)


def worth_markdown(name: str, search: dict[str, Any]) -> str:
    """The best settings of a collection, and what each is worth."""
    best = next(trial for trial in search["trials"] if trial["number"] == search["best"])
    own = search["preset_values"]
    rows = []
    for setting in search["settings"]:
        mean, half_width = (
            over_folds(search["worth"][setting]) if setting in search["worth"] else (None, None)
        )
        worth = "–" if mean is None else f"{mean:+.1f} ± {half_width:.1f}"
        value = best["changes"].get(setting, own[setting])
        rows.append({"setting": setting, "preset": str(own[setting]), "best": str(value), "worth": worth})
    states = Counter(trial["state"] for trial in search["trials"])
    start: list[float] = next((each["sums"] for each in search["trials"] if not each["changes"]), [])
    title = (
        f"{name}: {len(search['trials'])} trials ({dict(states)}), "
        f"held-out SumR {np.mean(best['sums']):.1f}, preset {np.mean(start):.1f}"
    )
    return markdown(title, rows)


def search(name: str, store: Path, options: argparse.Namespace) -> None:
    """What `holmes tune STORE --preset charades_plus --seeds 0,…,7` does."""
    start, changes = time.monotonic(), changes_of(options)
    found = tune(
        store,
        with_changes(preset(options.preset), changes),
        options.work / f"tuned-{name}",
        trials=options.trials,
        minutes=options.minutes,
        jobs=options.jobs,
        seeds=seeds_of(options),
        fixed=changes,
        worth=options.worth,
        options=RunOptions(device=options.device, progress=False),
        say=lambda line: print(f"{name} {time.monotonic() - start:.0f} s: {line}", flush=True),
    )
    print(
        f"{name}: {len(found.trials)} trials, best {found.best}, {time.monotonic() - start:.0f} s", flush=True
    )


def full(name: str, store: Path, options: argparse.Namespace) -> None:
    start = time.monotonic()
    opened = Store.open(store)
    config = with_changes(fit_to_store(preset("charades"), opened), FULL | changes_of(options))
    quiet = RunOptions(device=options.device, progress=False)
    train_seeds(
        Study(
            opened, config, options.work / f"full-{name}", seeds_of(options), options=quiet, jobs=options.jobs
        )
    )
    print(f"{name}: full method trained in {time.monotonic() - start:.0f} s", flush=True)


def main() -> None:
    parser = shared_options(__doc__)
    parser.add_argument("--preset", default="charades_plus")
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--seeds", default=SEEDS, help="of the final runs (%(default)s)")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--no-worth", dest="worth", action="store_false", help="as of holmes tune")
    parser.add_argument("--part", choices=("search", "full"), help="one part of it, on one collection")
    options = parser.parse_args()
    stores = stores_of(options)
    part = {"search": search, "full": full}.get(options.part)
    if part is None:
        tuned(stores, options)
        return
    for name, store in stores.items():
        part(name, store, options)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
