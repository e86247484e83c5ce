"""Every method of the field side by side, without and with our evidence, trained alike.

    python benchmarks/baselines.py --data DATA --work FOLDER [--seeds 0,…,7] [--jobs 12] [--seconds 540]
    python benchmarks/baselines.py --data DATA --shrink FOLDER

On real spliced videos where `--data` has them, and on the planted world: R@1 … SumR over the seeds with 95%
intervals, differences to Holmes and what evidence adds (both paired, over videos and seeds), parameters, and
seconds an epoch of each method alone on the device. Both protocols read one training, on the videos that the
honest one does not hold out: after every epoch held-out and test queries are ranked; honest takes the epoch
that is best on the former, published the one that is best on the latter.

The same command with the same `--work` trains only what is left; `--seconds 0` prints what is there.
`--shrink` writes one small file per collection (features as bytes, half a percent off), which `--data` takes
in place of the folders.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from common import machine, save_json, work_folder
from worlds import REAL, study_parser, world_stores

from holmes.base.devices import choose_device
from holmes.base.files import atomic_file
from holmes.base.parallel import ALONE
from holmes.base.processes import Child, Parent, run_jobs
from holmes.config.ablations import BASELINES, FULL, Ablation
from holmes.config.presets import preset
from holmes.config.schema import HolmesConfig, from_dict, to_dict, with_changes
from holmes.data.export import export_store
from holmes.data.store import Store
from holmes.evaluation.grid import Grid
from holmes.evaluation.intervals import draw_videos, over_seeds, paired_differences
from holmes.evaluation.literature import DATA_SETS
from holmes.evaluation.recall import recall, retrieval_ranks
from holmes.evaluation.tables import INTERVAL_NOTE, bounds, number
from holmes.results import METRICS, summary_of
from holmes.training.display import TrainingDisplay
from holmes.training.experiments import folder_of
from holmes.training.protocol import Protocol, choose_splits
from holmes.training.run import Run, RunOptions
from holmes.training.setup import fit_to_store
from holmes.training.side_by_side import runs_that_fit
from holmes.training.tuning.trials import release_memory

EVIDENCE = " + evidence"
Runs = dict[int, dict[str, np.ndarray]]  # seed → arrays
SHOWN = ("R@1", "R@5", "R@10", "SumR")
SELECTED_ON = {Protocol.HONEST: "held-out training videos", Protocol.PUBLISHED: "the test split"}


@dataclass(frozen=True)
class Row:
    """A row of the table on one collection: its settings, and where its runs leave their ranks."""

    ablation: Ablation
    collection: str
    store: Store
    config: HolmesConfig
    folder: Path
    name: str

    def file(self, seed: int) -> Path:
        return self.folder / f"{self.name}-seed{seed}.npz"

    def order(self, seed: int) -> dict[str, Any]:
        """What a process is sent."""
        out = str(self.file(seed).resolve())
        return {"store": str(self.store.path), "config": to_dict(self.config), "seed": seed, "out": out}


def row_of(row: Ablation, collection: str, store: Store, config: HolmesConfig, work: Path) -> Row:
    changed = fit_to_store(row.apply(config), store)
    made_of = json.dumps([to_dict(changed), store.info.digest], sort_keys=True)
    digest = hashlib.sha256(made_of.encode()).hexdigest()[:8]  # other settings are other runs
    name = f"{folder_of(row, config)}-{digest}"
    return Row(row, collection, store, changed, work / "runs" / collection, name)


def worker(parent: Parent, device: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    torch.set_num_threads(1)
    return partial(train, device=choose_device(device))


def train(job: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Train to the last epoch; keep the test ranks of the epoch that each protocol selects."""
    start = time.monotonic()
    run = run_of(Store.open(job["store"]), from_dict(job["config"]), job["seed"], device)
    best: dict[Protocol, tuple[float, int, torch.Tensor]] = {}
    with TrainingDisplay(1, 0, False) as silent:
        for epoch in range(run.config.training.epochs):
            run.train_epoch(epoch, silent)
            held_Q, test_Q = (
                retrieval_ranks(run.model, run.bank, split, run.config.score)
                for split in (run.splits.select, run.splits.report)
            )
            for protocol, selecting_Q in ((Protocol.HONEST, held_Q), (Protocol.PUBLISHED, test_Q)):
                found = recall(selecting_Q)["SumR"]
                if protocol not in best or found > best[protocol][0]:
                    best[protocol] = found, epoch + 1, test_Q
    arrays: dict[str, Any] = {"video": run.splits.report.owner}
    for protocol, (_, epoch, test_Q) in best.items():
        arrays |= {protocol.value: test_Q.cpu().numpy(), f"{protocol.value}_epoch": epoch}
    out = Path(job["out"])
    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(out) as file:
        np.savez_compressed(file, **arrays)
    del run
    release_memory(device)
    return {"seconds": time.monotonic() - start, "SumR": recall(best[Protocol.HONEST][2])["SumR"]}


def run_of(store: Store, config: HolmesConfig, seed: int, device: torch.device) -> Run:
    """A run by the honest protocol that leaves nothing on disk."""
    splits = choose_splits(store, Protocol.HONEST, config.training.held_out, seed)
    options = RunOptions(device=str(device), progress=False)
    return Run(store, splits, config, Path(os.devnull), seed, ALONE, device, options)


def cost(row: Row, device: torch.device) -> dict[str, float]:
    """Parameters, and seconds of an epoch of stage 2, alone on the device."""
    run = run_of(row.store, row.config, 0, device)
    with TrainingDisplay(1, 0, False) as silent:
        entries = [run.train_epoch(run.config.training.epochs - 1, silent) for _ in range(3)]
    seconds = min(entry["speed"]["train_seconds"] for entry in entries[1:])  # the first makes things ready
    parameters = sum(parameter.numel() for parameter in run.model.parameters())
    del run
    release_memory(device)
    return {"parameters": parameters, "seconds": seconds}


def costs(rows: Sequence[Row], device: torch.device, work: Path) -> dict[str, dict[str, float]]:
    """The cost of every row, measured once: other processes on the device would slow it."""
    file = work / f"costs-{device.type}.json"
    known: dict[str, dict[str, float]] = json.loads(file.read_text()) if file.exists() else {}
    for row in rows:
        if row.name not in known:
            known[row.name] = cost(row, device)
            print(f"{row.ablation.title}: {known[row.name]['seconds']:.2f} s an epoch", flush=True)
            with atomic_file(file) as out:
                out.write(json.dumps(known).encode())
    return {row.ablation.title: known[row.name] for row in rows}


def train_what_is_left(
    rows: Sequence[Row], seeds: Sequence[int], jobs: int, device: str, seconds: float
) -> list[str]:
    """One seed of everything after the other; what failed. No training begins after `seconds`."""
    began, failures = time.monotonic(), []
    left = [(row, seed) for seed in seeds for row in rows if not row.file(seed).exists()]
    at_once = jobs or runs_that_fit([(row.store, row.config) for row in rows], device)
    start: Callable[..., Child] = partial(
        Child, "baselines:worker", setup={"device": device}, environment={"OMP_NUM_THREADS": "1"}
    )
    in_time = ((job, job[0].order(job[1])) for job in left if time.monotonic() - began < seconds)
    print(f"runs left: {len(left)}, {at_once} at once", flush=True)
    for done, finished in enumerate(run_jobs(start, in_time, at_once), 1):
        (row, seed), result = finished.job, finished.result
        name = f"{row.collection}, {row.ablation.title}, seed {seed}"
        if finished.failure:
            failures.append(f"{name}: {finished.failure}")
        said = finished.failure or f"SumR {result['SumR']:.1f}, {result['seconds']:.0f} s"
        passed = time.monotonic() - began
        print(f"{passed:4.0f} s {done}/{len(left)} {name}: {said}", flush=True)
    return failures


def read(row: Row, seeds: Sequence[int]) -> Runs:
    """What is there of a row."""
    found = {}
    for seed in seeds:
        if row.file(seed).exists():
            with np.load(row.file(seed), allow_pickle=False) as arrays:
                found[seed] = {name: arrays[name] for name in arrays.files}
    return found


def measured(rows: Sequence[Row], seeds: Sequence[int], protocol: Protocol) -> list[dict[str, Any]]:
    """What the rows of one collection reached by a protocol, with the seeds that each of them has."""
    found = {row.ablation.title: read(row, seeds) for row in rows}
    entries = []
    for title, runs in found.items():
        if not runs:
            continue
        ranks = {seed: run[protocol.value] for seed, run in runs.items()}
        video_Q = next(iter(runs.values()))["video"]
        figures = [recall(torch.from_numpy(rank_Q)) for rank_Q in ranks.values()]

        def beside(others: Runs, runs: Runs = runs, video_Q: np.ndarray = video_Q) -> dict[str, Any] | None:
            """These runs less others, on the same videos and seeds."""
            both = sorted(runs.keys() & others.keys())
            if not both:
                return None
            ours_SQ, theirs_SQ = (
                np.stack([some[seed][protocol.value] for seed in both]) for some in (runs, others)
            )
            differences = paired_differences(ours_SQ, theirs_SQ, draw_videos(video_Q))
            return {name: differences[name].to_json() for name in METRICS}

        plain = found.get(title.removesuffix(EVIDENCE), {}) if title.endswith(EVIDENCE) else {}
        entries.append(
            {
                "row": title,
                "protocol": protocol.value,
                "seeds": sorted(runs),
                "epochs": [int(run[f"{protocol.value}_epoch"]) for run in runs.values()],
                "metrics": summary_of(over_seeds(figures, np.stack([*ranks.values()]), video_Q)),
                "evidence_adds": beside(plain),
                "less_holmes": None if title == FULL.title else beside(found.get(FULL.title, {})),
            }
        )
    return entries


def collection_grid(name: str, entries: Sequence[dict[str, Any]], videos: int) -> Grid:
    """Recall on one collection, by both protocols."""
    columns = ["method", *SHOWN, "SumR, 95%", "SumR less Holmes'", "evidence adds to SumR", "seeds"]
    grid = Grid(f"{name}: test split of {videos} videos", columns, notes=[INTERVAL_NOTE])
    for protocol, where in SELECTED_ON.items():
        grid.rows.append([f"{protocol.value} protocol: the epoch is selected on {where}"])
        for entry in entries:
            if entry["protocol"] != protocol.value:
                continue
            metrics = entry["metrics"]
            cells = [number(metrics[metric]) for metric in SHOWN]
            cells.append(bounds(metrics["SumR"]["low"], metrics["SumR"]["high"]))
            for difference in (entry["less_holmes"], entry["evidence_adds"]):
                total = None if difference is None else difference["SumR"]
                shown = (
                    "" if total is None else f"{total['value']:+.1f} {bounds(total['low'], total['high'])}"
                )
                cells.append(shown)
            grid.rows.append([entry["row"], *cells, str(len(entry["seeds"]))])
    return grid


def method_grid(found: dict[str, dict[str, float]], where: str) -> Grid:
    """What every method costs, and what its paper prints."""
    columns = ["method", "million parameters", "s/epoch", *(data.title for data in DATA_SETS)]
    grid = Grid(f"Cost on {where}, alone on the device, and the SumR that the papers print", columns)
    for title, costs_ in found.items():
        printed = [data.methods[title][-1] if title in data.methods else None for data in DATA_SETS]
        cells = [f"{costs_['parameters'] / 1e6:.2f}", f"{costs_['seconds']:.3f}", *map(number, printed)]
        grid.rows.append([title, *cells])
    return grid


def shrink(data: Path, folder: Path, work: Path) -> None:
    """One file per real collection: features as bytes with a scale per row, everything else as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    stores = {name: path for each in REAL for name, path in world_stores(work, data, 2, each).items()}
    for name, path in stores.items():
        exported = work / f"{name}-exported"
        arrays: dict[str, Any] = {}
        export_store(Store.open(path), exported)
        for file in sorted(path for path in exported.rglob("*") if path.is_file()):
            key = str(file.relative_to(exported))
            if file.suffix != ".hdf5":
                arrays[f"file/{key}"] = np.frombuffer(file.read_bytes(), np.uint8)
                continue
            with h5py.File(file) as features:
                names = sorted(features)
                rows = [np.asarray(features[each], np.float32) for each in names]
            joined = np.concatenate(rows)
            scale = np.abs(joined).max(1, keepdims=True).clip(1e-12)
            arrays[f"rows/{key}"] = np.round(joined / scale * 127).astype(np.int8)
            arrays[f"scale/{key}"] = scale.astype(np.float32)
            arrays[f"lengths/{key}"] = np.array([len(each) for each in rows])
            arrays[f"names/{key}"] = np.array(names)
        np.savez_compressed(folder / f"{name}.npz", **arrays)
        print(f"{folder / name}.npz: {(folder / f'{name}.npz').stat().st_size / 2**20:.1f} MiB")


def main(arguments: list[str] | None = None) -> int:
    parser = study_parser(__doc__, 400, ["batch_videos=32", "warm_up_epochs=20"], "baselines.json", epochs=40)
    parser.set_defaults(seeds="0,1,2,3,4,5,6,7")
    parser.add_argument("--jobs", type=int, default=0, help="trainings side by side; 0 takes as many as fit")
    parser.add_argument("--rows", help="only rows whose title contains one of these, separated by commas")
    parser.add_argument("--seconds", type=float, default=1e9, help="after which no training begins")
    parser.add_argument("--shrink", type=Path, metavar="FOLDER", help="write small files for another machine")
    options = parser.parse_args(arguments)
    device, seeds = choose_device(options.device), [int(seed) for seed in options.seeds.split(",")]
    with work_folder(options.work) as work:
        if options.shrink is not None:
            shrink(options.data, options.shrink, work)
            return 0
        opened = {
            name: Store.open(path)
            for name, path in world_stores(work, options.data, options.videos, options.only).items()
        }
        changes: dict[str, Any] = dict(change.split("=", 1) for change in options.set)
        config = with_changes(preset(options.preset), {"epochs": options.epochs} | changes)
        wanted = options.rows.split(",") if options.rows else [""]
        chosen = [row for row in (FULL, *BASELINES) if any(part in row.title for part in wanted)]
        rows = {
            name: [row_of(row, name, store, config, work) for row in chosen] for name, store in opened.items()
        }
        first = next(iter(rows))
        method_costs = costs(rows[first], device, work)
        everything = [row for some in rows.values() for row in some]
        failures = train_what_is_left(everything, seeds, options.jobs, options.device, options.seconds)
        found = {
            name: [entry for protocol in Protocol for entry in measured(some, seeds, protocol)]
            for name, some in rows.items()
        }
        grids = [method_grid(method_costs, first)]
        grids += [
            collection_grid(name, entries, len(opened[name].split("test").videos))
            for name, entries in found.items()
        ]
        print("\n" + "\n".join(grid.written("md") for grid in grids))
        save_json(
            options.json,
            {
                "machine": machine(device),
                "preset": options.preset,
                "epochs": options.epochs,
                "changes": changes,
                "seeds": seeds,
                "costs": method_costs,
                "collections": found,
            },
        )
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
