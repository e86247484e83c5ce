"""What tuning brings, and what it costs.

python benchmarks/tuning.py throughput --data DATA        runs a minute by processes at once
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections import Counter
from pathlib import Path

from common import print_table
from worlds import world_stores

from holmes.base.processes import Child, run_jobs
from holmes.config.presets import preset
from holmes.config.schema import to_dict, with_changes
from holmes.data.store import Store
from holmes.training.run import RunOptions
from holmes.training.setup import fit_to_store
from holmes.training.tuning import FOLDS, TRIALS, WORKER, tune


def throughput(store: Path, device: str, counts: list[int]) -> None:
    """Seconds for one fold of each of several processes at once."""
    opened = Store.open(store)
    config = with_changes(
        fit_to_store(preset("charades_plus"), opened),
        {"batch_videos": 32, "epochs": 60, "warm_up_epochs": 20},
    )
    setup = {"store": str(store.resolve()), "device": device, "use": []}
    rows = []
    for count in counts:
        ends: list[float] = []
        start = time.monotonic()
        jobs = [
            (f"{number}", {"name": f"{number}", "config": to_dict(config), "sums": [0.0] * (FOLDS - 1)})
            for number in range(2 * count)  # the first of each process also starts it
        ]
        for finished in run_jobs(
            lambda listener: Child(
                WORKER,
                listener,
                setup,
                environment={"OMP_NUM_THREADS": "1"},
                answer=lambda _, send: send(True),
            ),
            jobs,
            count,
        ):
            assert not finished.failure, finished.failure
            ends.append(time.monotonic() - start)
        first, last = ends[count - 1], ends[-1]
        rows.append(
            {
                "at once": count,
                "first s": first,
                "next s": last - first,
                "runs a minute": 60 * count / (last - first),
            }
        )
    print_table(f"one fold of 60 epochs, {store.name}", rows)


def search(store: Path, options: argparse.Namespace) -> None:
    """A search alone, without the final runs: its trials as JSON."""
    config = preset(options.preset)
    out = options.work / f"search-{store.name}"
    start = time.monotonic()
    found = tune(
        store,
        config,
        out,
        trials=options.trials,
        minutes=options.minutes,
        jobs=options.jobs,
        seeds=(),
        worth=False,
        options=RunOptions(device=options.device, progress=False),
    )
    seconds = time.monotonic() - start
    options.out.mkdir(parents=True, exist_ok=True)
    shutil.copy(out / TRIALS, options.out / f"{store.name}.json")
    states = Counter(trial.state for trial in found.trials)
    print(f"{store.name}: {len(found.trials)} trials in {seconds:.0f} s, {dict(states)}")
    print("preset", found.start and found.start.sums, "best", found.best)
    print({trial.reason for trial in found.trials if trial.reason})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("throughput", "search"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("/tmp/tuning"))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--counts", default="1,8,12,16")
    parser.add_argument("--preset", default="charades_plus")
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--only")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/tuning"))
    options = parser.parse_args()
    if options.what == "search":
        for store in world_stores(options.work, options.data, 400, options.only).values():
            search(store, options)
        return
    for store in world_stores(options.work, options.data, 400, "msvd").values():
        throughput(store, options.device, [int(count) for count in options.counts.split(",")])


if __name__ == "__main__":
    main()
