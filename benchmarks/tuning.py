"""What tuning brings on small collections, and how much regularisation a collection needs.

    python benchmarks/tuning.py tuned --data DATA [--jobs 5] [--minutes 4] [--out FOLDER]
    python benchmarks/tuning.py videos --data DATA [--jobs 8] [--seconds 120] [--out FOLDER]
    python benchmarks/tuning.py everyone --data DATA [--rows Holmes,MS-SL] [--trials 12] [--at-once 2]

`tuned` searches settings on msvd and msrvtt from `charades_plus`, as `holmes tune` does, and meanwhile
trains the full method with its published settings. Both are trained with eight seeds and tested once: SumR,
paired differences, calibration error. `videos` trains on fewer and fewer videos at several dropouts and
InfoNCE weights and scores held-out training videos; the test split is not read. `everyone` tunes every row
of the ablation table and every baseline with the same budget and tests each with eight seeds: recall,
calibration error, area under the risk-coverage curve, and macro-F1 of kinds where they are known. Few rows
are tuned at once, each with several trainings at once, so that some are done when time is up. A row that is
done is a small JSON file in WORK/everyone; the same command goes on with the others.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import machine, print_table, save_json
from many_runs import paired
from matplotlib.figure import Figure
from worlds import REAL, world_stores

from holmes.base.devices import choose_device
from holmes.base.files import read_json
from holmes.base.parallel import ALONE
from holmes.base.processes import Child, Parent, run_jobs
from holmes.config.ablations import BASE_OBJECTIVE, CALIBRATION, FUSION, INTRA, SCALES, TRANSPORT
from holmes.config.ablations import FULL as METHOD
from holmes.config.baseline_presets import METHODS, TITLES
from holmes.config.presets import preset
from holmes.config.schema import HolmesConfig, from_dict, to_dict, with_changes
from holmes.config.search_space import SPACE, apply
from holmes.data.bank import FeatureBank
from holmes.data.store import Split, Store
from holmes.encoders.build import build_model
from holmes.encoders.checkpoint import Checkpoint, load_checkpoint
from holmes.evaluation.confidence.answered import as_numpy
from holmes.evaluation.confidence.metrics import area_under_risk_coverage, calibration_error
from holmes.evaluation.intervals import bootstrap_counts
from holmes.evaluation.recall import rank_of_owner, retrieval_metrics
from holmes.evaluation.scoring import encode_split, score_all
from holmes.evaluation.split_report import agreement, partition
from holmes.evidence.calibration import EXTRA, read_calibration
from holmes.evidence.fitting import judge_all
from holmes.report.figures.style import LIGHT, svg
from holmes.report.figures.tuning import over_folds, save_tuning
from holmes.results import plainly
from holmes.training.display import TrainingDisplay
from holmes.training.experiments import Study, train_seeds
from holmes.training.optimizer import FlatAdam
from holmes.training.protocol import Splits
from holmes.training.resume import StateKeeper
from holmes.training.run import Run, RunOptions
from holmes.training.setup import build_identifier, fit_to_store
from holmes.training.tuning.search import CHOSEN, TRIALS, tune
from holmes.training.tuning.trials import fold_splits, held_out_sum, release_memory

# As in the other tables of the documentation: the published settings, fitted to a few hundred videos.
FULL = {"batch_videos": 32, "epochs": 60, "patience": 0}
SCHEDULE = {"batch_videos": 32, "epochs": 40, "warm_up_epochs": 8}
DROPOUTS, WEIGHTS = (0.25, 0.4, 0.55, 0.7), (0.25, 1.0)
FIGURES = ("R@1", "R@5", "R@10", "SumR", "ECE", "AURC", "SumR, last epoch")
KINDS = "macro-F1"  # where the store knows the kinds of its queries
# Everyone who is tuned, in the order of what is asked first: title → preset and what it changes.
EVERYONE: dict[str, tuple[str, dict[str, Any]]] = {
    METHOD.title: ("charades", {}),
    BASE_OBJECTIVE.title: ("charades", BASE_OBJECTIVE.changes),
    "Holmes + InfoNCE": ("charades_plus", {}),
    "base objective + InfoNCE": ("charades_plus", BASE_OBJECTIVE.changes),
    **{TITLES[method]: (f"{method}_charades", {}) for method in METHODS},
    **{row.title: ("charades", row.changes) for row in (*CALIBRATION, *INTRA, *TRANSPORT, *FUSION, *SCALES)},
}


def tuned(stores: dict[str, Path], options: argparse.Namespace) -> None:
    """Search and train on every collection at once, each in a process of its own; then test."""
    start = time.monotonic()
    again = [sys.executable, __file__]
    shared = ["--work", str(options.work), "--data", str(options.data), "--device", options.device]
    shared += [word for change in options.set for word in ("--set", change)]
    shared += ["--seeds", options.seeds, *([] if options.worth else ["--no-worth"])]
    budget = ["--jobs", str(options.jobs), "--minutes", str(options.minutes), "--trials", str(options.trials)]
    parts = [[*again, "search", "--only", name, *shared, *budget] for name in stores]
    parts += [[*again, "full", "--only", name, *shared, "--jobs", "1"] for name in stores]
    processes = [subprocess.Popen(part) for part in parts]
    for process in processes:
        if process.wait():
            print(f"a part failed: {process.args!r}", flush=True)
    print(f"searched and trained in {time.monotonic() - start:.0f} s", flush=True)
    rows: list[dict[str, Any]] = []
    found: dict[str, Any] = {}
    for name, path in stores.items():
        held = TestSplit.of(path, options.device)
        trials = read_json(options.work / f"tuned-{name}" / TRIALS)
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
    text = "## What tuning brings\n\n`python benchmarks/tuning.py tuned --data DATA`. "
    text += "The full method has its published settings with batches of 32 and 60 epochs. "
    text += "Differences are paired by seed, with 95% intervals.\n\n" + markdown(title, rows)
    text += "".join(worth_markdown(name, found[name]["search"]) for name in found)
    (options.out / "tuned.md").write_text(text)
    print(text)


def everyone(stores: dict[str, Path], options: argparse.Namespace) -> None:
    """Every row on every collection, each in a process of its own; then one table of those that are done."""
    deadline = time.monotonic() + options.seconds
    rows = options.rows.split(",") if options.rows else [*EVERYONE]
    again = [sys.executable, __file__, "row", "--work", str(options.work), "--data", str(options.data)]
    again += ["--device", options.device, "--seeds", options.seeds, "--trials", str(options.trials)]
    again += ["--planted", str(options.planted), "--search", options.search, "--jobs", str(options.jobs)]
    again += [word for change in options.set for word in ("--set", change)]

    def carry_out(row: tuple[str, str]) -> None:
        title, name = row
        left = deadline - time.monotonic()
        if row_file(options, title, name).exists() or left <= 0:
            return
        try:
            ended = subprocess.run([*again, "--only", name, "--rows", title], timeout=left).returncode
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


def markdown(title: str, rows: list[dict[str, Any]]) -> str:
    """A table for the documentation."""
    lines = [
        [str(value) for value in row.values()] for row in (dict(zip(rows[0], rows[0], strict=True)), *rows)
    ]
    lines.insert(1, ["---"] * len(rows[0]))
    return f"{title}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


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


def rounded(figures: dict[str, float]) -> dict[str, str]:
    return {
        name: f"{value:.3f}" if name in ("ECE", "AURC") else f"{value:.1f}" for name, value in figures.items()
    }


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


def seeds_of(options: argparse.Namespace) -> tuple[int, ...]:
    return tuple(map(int, options.seeds.split(",")))


def changes_of(options: argparse.Namespace) -> dict[str, str]:
    return dict(change.split("=", 1) for change in options.set)


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


@dataclass(frozen=True)
class TestSplit:
    """The test split of a store, on the device once for all runs."""

    store: Store
    split: Split
    bank: FeatureBank

    @classmethod
    def of(cls, path: Path, device: str) -> TestSplit:
        store = Store.open(path)
        split = store.split("test")
        return cls(store, split, FeatureBank.of_splits(store, choose_device(device), [split]))


@torch.inference_mode()
def on_test(folder: Path, held: TestSplit, last_epoch: bool = False) -> dict[str, float]:
    """A finished run's recall, calibration error and area under the risk-coverage curve on the test split.

    `last_epoch` also reads the weights after the last epoch, which takes longer than everything else.
    """
    checkpoint = load_checkpoint(folder / "best", str(held.bank.device))
    encoded = encode_split(checkpoint.model, held.bank, held.split)
    scores = score_all(encoded)
    figures = {
        name: float(value)
        for name, value in read_json(folder / "result.json")["metrics"].items()
        if name in FIGURES
    }
    if last_epoch:
        figures["SumR, last epoch"] = after_last_epoch(folder, checkpoint, held)
    kinds_Q = partition(
        scores, encoded.owner_Q, build_identifier(checkpoint.config), checkpoint.config.training.batch_videos
    )
    if (kinds := agreement(kinds_Q, held.store.kinds_Q[held.split.queries])) is not None:
        figures[KINDS] = kinds["macro_F1"]
    calibration = read_calibration(checkpoint.extras.get(EXTRA), checkpoint.digest)
    if calibration is None:
        return figures | {"ECE": float("nan"), "AURC": float("nan")}
    rank_Q = rank_of_owner(calibration.score(scores), encoded.owner_Q)
    probability_Q = as_numpy(judge_all(scores, calibration).gallery.probability_top(1))
    right_Q = (rank_Q == 1).cpu().numpy()
    once = bootstrap_counts(encoded.owner_Q.cpu().numpy(), repeats=0)
    return figures | {
        "ECE": float(calibration_error(probability_Q, right_Q, once)[0]),
        "AURC": float(area_under_risk_coverage(probability_Q, right_Q, once)[0]),
    }


def after_last_epoch(folder: Path, checkpoint: Checkpoint, held: TestSplit) -> float:
    """SumR on test with the weights after the last epoch, which no held-out video has chosen."""
    saved = StateKeeper(folder).load()
    if saved is None:
        return float("nan")
    model = build_model(checkpoint.config.model).to(held.bank.device).eval()
    FlatAdam(model).values.copy_(saved[1]["values"])
    return float(retrieval_metrics(model, held.bank, held.split, checkpoint.config.score)["SumR"])


def videos(stores: dict[str, Path], options: argparse.Namespace) -> None:
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
        Child, "tuning:subset_worker", setup={"device": options.device}, environment={"OMP_NUM_THREADS": "1"}
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


def whole_run(store: Store, config: HolmesConfig, splits: Splits, device: torch.device, seed: int) -> Run:
    """A run of all its epochs that leaves nothing on disk."""
    options = RunOptions(device=str(device), progress=False)
    run = Run(store, splits, config, Path("/dev/null"), seed, ALONE, device, options)
    with TrainingDisplay(1, 0, False) as silent:
        for epoch in range(config.training.epochs):
            run.train_epoch(epoch, silent)
    return run


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("tuned", "search", "full", "videos", "everyone", "row"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("benchmarks/results/tuning"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--preset", default="charades_plus")
    parser.add_argument("--only")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="fix a setting")
    parser.add_argument("--rows", help="everyone: titles of rows, separated by commas; all by default")
    parser.add_argument(
        "--search",
        default="model.dropout,training.learning_rate,loss.contrastive_cosine",
        help="everyone: the settings that are searched (%(default)s)",
    )
    parser.add_argument("--planted", type=int, default=1100, help="videos of the planted world (%(default)s)")
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--seeds", default="0,1,2,3,4,5,6,7", help="of the final runs (%(default)s)")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--folds", type=int, default=2)
    parser.add_argument("--no-worth", dest="worth", action="store_false", help="as of holmes tune")
    parser.add_argument("--jobs", type=int, default=5, help="trainings at once (%(default)s)")
    parser.add_argument("--at-once", type=int, default=2, help="everyone: rows at once (%(default)s)")
    options = parser.parse_args()
    if unknown := {*(options.rows or "Holmes").split(",")} - EVERYONE.keys():
        parser.error(f"no row is called {unknown}; there are {', '.join(EVERYONE)}")
    options.work.mkdir(parents=True, exist_ok=True)
    planted = ["planted"] if options.what in ("videos", "everyone") else []
    names = [options.only] if options.only else [*REAL, *planted]
    stores: dict[str, Path] = {}
    for each in names:
        stores |= world_stores(options.work, options.data, options.planted, each)
    if options.what == "videos":
        videos(stores, options)
        return
    if options.what == "everyone":
        everyone(stores, options)
        return
    if options.what == "tuned":
        tuned(stores, options)
    for name, store in stores.items():
        if options.what == "search":
            search(name, store, options)
        if options.what == "full":
            full(name, store, options)
        if options.what == "row":
            tune_row(name, store, options)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
