"""Every row of the ablation table and every baseline, tuned with the same budget.

    python benchmarks/everyone_tuned.py --data DATA [--rows Holmes,MS-SL] [--trials 12] [--at-once 2]

Each is tested with eight seeds: recall, calibration error, area under the risk-coverage curve, and macro-F1
of kinds where they are known. Few rows are tuned at once, each with several trainings at once, so that some
are done when time is up. A row that is done is a small JSON file in WORK/everyone; the same command goes on
with the others.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import machine, print_table, save_json
from many_runs import paired
from tested_runs import (
    FIGURES,
    KINDS,
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
from holmes.config.ablations import BASE_OBJECTIVE, CALIBRATION, FUSION, INTRA, SCALES, TRANSPORT
from holmes.config.ablations import FULL as METHOD
from holmes.config.baseline_presets import METHODS, TITLES
from holmes.config.presets import preset
from holmes.config.schema import with_changes
from holmes.config.search_space import SPACE, apply
from holmes.results import plainly
from holmes.training.run import RunOptions
from holmes.training.tuning.search import CHOSEN, tune

# Everyone who is tuned, in the order of what is asked first: title → preset and what it changes.
EVERYONE: dict[str, tuple[str, dict[str, Any]]] = {
    METHOD.title: ("charades", {}),
    BASE_OBJECTIVE.title: ("charades", BASE_OBJECTIVE.changes),
    "Holmes + InfoNCE": ("charades_plus", {}),
    "base objective + InfoNCE": ("charades_plus", BASE_OBJECTIVE.changes),
    **{TITLES[method]: (f"{method}_charades", {}) for method in METHODS},
    **{row.title: ("charades", row.changes) for row in (*CALIBRATION, *INTRA, *TRANSPORT, *FUSION, *SCALES)},
}


def everyone(stores: dict[str, Path], options: argparse.Namespace) -> None:
    """Every row on every collection, each in a process of its own; then one table of those that are done."""
    deadline = time.monotonic() + options.seconds
    rows = options.rows.split(",") if options.rows else [*EVERYONE]
    words = [*again(__file__, options), "--seeds", options.seeds, "--trials", str(options.trials), "--one"]
    words += ["--planted", str(options.planted), "--search", options.search]

    def carry_out(row: tuple[str, str]) -> None:
        title, name = row
        left = deadline - time.monotonic()
        if row_file(options, title, name).exists() or left <= 0:
            return
        try:
            ended = subprocess.run([*words, "--only", name, "--rows", title], timeout=left).returncode
            print(f"{name}, {title}: {f'failed with code {ended}' if ended else 'done'}", flush=True)
        except subprocess.TimeoutExpired:
            print(f"{name}, {title}: out of time; the same command continues", flush=True)

    with ThreadPoolExecutor(options.at_once) as pool:
        list(pool.map(carry_out, product(rows, stores)))
    lines = [
        everyones_line(read_json(row_file(options, title, name)), against_file(options, name))
        for name, title in product(stores, rows)
        if row_file(options, title, name).exists()
    ]
    if not lines:
        print("no row is done yet")
        return
    title = f"everyone tuned, {options.trials} trials each, on {machine(choose_device(options.device))}"
    print_table(title, lines)
    save_json(options.out / "everyone.json", {"title": title, "search": options.search, "rows": lines})
    (options.out / "everyone.md").write_text(markdown(title, lines))


def row_file(options: argparse.Namespace, title: str, name: str) -> Path:
    folder: Path = options.work / "everyone"
    return folder / f"{name}-{re.sub('[^a-z0-9]+', '-', title.lower()).strip('-')}.json"


def against_file(options: argparse.Namespace, name: str) -> dict[str, Any] | None:
    """The tuned full method of a collection, which the other rows are compared with."""
    path = row_file(options, METHOD.title, name)
    return read_json(path) if path.exists() else None


def everyones_line(found: dict[str, Any], full: dict[str, Any] | None) -> dict[str, str]:
    """A line of the table: means over seeds, differences to the full method, the chosen settings."""
    each, others = (
        {int(seed): one for seed, one in entry["each"].items()} if entry else {} for entry in (found, full)
    )
    means = {
        figure: float(np.mean([one[figure] for one in each.values()]))
        for figure in (*FIGURES, KINDS)
        if all(figure in one for one in each.values())
    }
    line = {"collection": found["collection"], "row": found["row"], "seeds": str(len(each))}
    line |= rounded({name: means[name] for name in ("R@1", "R@5", "R@10", "SumR")})
    for figure in ("SumR", "ECE", "AURC"):
        against = paired(*({seed: one[figure] for seed, one in some.items()} for some in (each, others)))
        known = others and found["row"] != METHOD.title
        shown = f"{against['difference']:+.3g} ± {against['half_width']:.2g}" if known else ""
        if figure == "SumR":
            line["SumR against Holmes"] = shown
        else:
            line[figure] = f"{means[figure]:.3f} {shown}".strip()
    line["macro-F1 of kinds"] = f"{means[KINDS]:.2f}" if KINDS in means else "–"
    line["settings"] = ", ".join(
        f"{name.split('.')[1]} {value:.2g}" if isinstance(value, float) else f"{name.split('.')[1]} {value}"
        for name, value in found["changes"].items()
    )
    return line


def tune_row(name: str, store: Path, options: argparse.Namespace) -> None:
    """Tune one row as `holmes tune` does, test the final runs, and write down what came out."""
    called, changes = EVERYONE[options.rows]
    config = with_changes(apply(preset(called), changes_of(options)), changes)
    searched = options.search.split(",")
    out = row_file(options, options.rows, name)
    found = tune(
        store,
        config,
        out.with_suffix(""),
        trials=options.trials,
        jobs=options.jobs,
        seeds=seeds_of(options),
        fixed=[each.setting for each in SPACE if each.setting not in searched],
        worth=False,
        options=RunOptions(device=options.device, progress=False),
        say=lambda line: print(f"{name}, {options.rows}: {line}", flush=True),
    )
    runs = out.with_suffix("") / CHOSEN / f"trial{found.best.number}"
    held = TestSplit.of(store, options.device)
    each = {str(seed): on_test(runs / f"honest-seed{seed}", held) for seed in seeds_of(options)}
    held_out = {"preset": found.start.mean if found.start else None, "best": found.best.mean}
    entry = {"collection": name, "row": options.rows, "changes": plainly(found.best.changes)}
    save_json(out, entry | {"trials": len(found.trials), "held_out_SumR": held_out, "each": each})


def main() -> None:
    parser = shared_options(__doc__)
    parser.add_argument("--rows", help="titles of rows, separated by commas; all by default")
    parser.add_argument(
        "--search",
        default="model.dropout,training.learning_rate,loss.contrastive_cosine",
        help="the settings that are searched (%(default)s)",
    )
    parser.add_argument("--planted", type=int, default=1100, help="videos of the planted world (%(default)s)")
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--seeds", default=SEEDS, help="of the final runs (%(default)s)")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--at-once", type=int, default=2, help="rows at once (%(default)s)")
    parser.add_argument("--one", action="store_true", help="tune the row here, and make no table")
    options = parser.parse_args()
    if unknown := {*(options.rows or METHOD.title).split(",")} - EVERYONE.keys():
        parser.error(f"no row is called {unknown}; there are {', '.join(EVERYONE)}")
    stores = stores_of(options, options.planted)
    if not options.one:
        everyone(stores, options)
        return
    for name, store in stores.items():
        tune_row(name, store, options)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
