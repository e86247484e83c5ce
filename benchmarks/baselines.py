"""Every method of the field side by side, without and with our evidence, trained alike.

    python benchmarks/baselines.py [--data DATA] [--seeds 0,1,2] [--jobs 0] [--work FOLDER] [--json FILE]
    python benchmarks/baselines.py --data DATA --shrink FOLDER

On the planted world, and on real spliced videos where `--data` has them, by both protocols: R@1 … SumR over
the seeds with 95% intervals, what evidence adds (paired, over videos and seeds), parameters and seconds an
epoch. The same command with the same `--work` trains only what is left. `--shrink` writes one small
file per collection (features as bytes, half a percent off), which `--data` takes in place of the folders.
"""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from common import machine, print_table, save_json, work_folder
from worlds import REAL, study_parser, world_stores

from holmes.base.devices import choose_device
from holmes.config.ablations import BASELINES, FULL, Ablation
from holmes.config.presets import preset
from holmes.config.schema import with_changes
from holmes.data.export import export_store
from holmes.data.store import Store
from holmes.encoders.build import build_model
from holmes.evaluation.intervals import draw_videos, paired_differences, read_ranks
from holmes.results import METRICS
from holmes.training.experiments import Study, folder_of, run_rows
from holmes.training.protocol import Protocol
from holmes.training.resume import RANKS
from holmes.training.run import RunOptions
from holmes.training.setup import fit_to_store

EVIDENCE = " + evidence"


def measured(study: Study, rows: list[Ablation]) -> list[dict[str, Any]]:
    """Train all rows and say what each reached, how large it is and how fast."""
    figures = run_rows(study, rows, print)
    return [
        {
            "row": row.title,
            "protocol": study.protocols[0].value,
            "metrics": metrics,
            "parameters": parameters(study, row),
            "seconds_per_epoch": epoch_seconds(study, row),
            "evidence_adds": evidence_adds(study, row, rows),
        }
        for row, metrics in zip(rows, figures, strict=True)
    ]


def parameters(study: Study, row: Ablation) -> int:
    with torch.device("meta"):
        model = build_model(fit_to_store(row.apply(study.config), study.store).model)
    return sum(parameter.numel() for parameter in model.parameters())


def runs_of(study: Study, row: Ablation) -> list[Path]:
    return [study.out / f"{folder_of(row, study.config)}-seed{seed}" for seed in study.seeds]


def epoch_seconds(study: Study, row: Ablation) -> float:
    """The median over all epochs; with runs side by side they share the device."""
    lines = [line for run in runs_of(study, row) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return float(statistics.median(json.loads(line)["speed"]["train_seconds"] for line in lines))


def evidence_adds(study: Study, row: Ablation, rows: list[Ablation]) -> dict[str, Any] | None:
    """The difference to the same method without evidence, on the same draws of videos."""
    plain = next((other for other in rows if other.title + EVIDENCE == row.title), None)
    if plain is None:
        return None
    known = [
        [found for run in runs_of(study, each) if (found := read_ranks(run / RANKS)) is not None]
        for each in (row, plain)
    ]
    ours_SQ, theirs_SQ = (np.stack([rank_Q for rank_Q, _ in some]) for some in known)
    differences = paired_differences(ours_SQ, theirs_SQ, draw_videos(known[0][0][1]))
    return {name: differences[name].to_json() for name in METRICS}


def shown(entry: dict[str, Any]) -> dict[str, Any]:
    cells: dict[str, Any] = {"method": entry["row"]}
    for name in ("R@1", "R@5", "R@10", "SumR"):
        value = entry["metrics"][name]
        spread = "" if value["deviation"] is None else f" ± {value['deviation']:.1f}"
        cells[name] = f"{value['mean']:.1f}{spread}"
    low, high = entry["metrics"]["SumR"]["low"], entry["metrics"]["SumR"]["high"]
    cells["SumR 95%"] = "–" if low is None else f"[{low:.1f}, {high:.1f}]"
    adds = entry["evidence_adds"]
    more = None if adds is None else adds["SumR"]
    cells["evidence adds"] = "" if more is None else f"{more['value']:+.1f}, p {more['p']:.3f}"
    cells["million parameters"] = f"{entry['parameters'] / 1e6:.2f}"
    cells["s/epoch"] = f"{entry['seconds_per_epoch']:.2f}"
    return cells


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
    description = __doc__ or ""
    parser = study_parser(description, 400, ["batch_videos=32", "warm_up_epochs=20"], "baselines.json")
    parser.add_argument("--jobs", type=int, default=0, help="trainings side by side; 0 takes as many as fit")
    parser.add_argument("--protocols", default="published,honest")
    parser.add_argument("--rows", help="only rows whose title contains one of these, separated by commas")
    parser.add_argument("--shrink", type=Path, metavar="FOLDER", help="write small files for another machine")
    options = parser.parse_args(arguments)
    device, start = choose_device(options.device), time.monotonic()
    with work_folder(options.work) as work:
        if options.shrink is not None:
            shrink(options.data, options.shrink, work)
            return 0
        stores = world_stores(work, options.data, options.videos, options.only)
        changes: dict[str, Any] = dict(change.split("=", 1) for change in options.set)
        config = with_changes(preset(options.preset), {"epochs": options.epochs} | changes)
        wanted = options.rows.split(",") if options.rows else [""]
        rows = [row for row in (FULL, *BASELINES) if any(part in row.title for part in wanted)]
        found: dict[str, list[dict[str, Any]]] = {}
        for name, path in stores.items():
            for protocol in options.protocols.split(","):
                study = Study(
                    Store.open(path),
                    config,
                    work / "runs" / f"{name}-{protocol}",
                    [int(seed) for seed in options.seeds.split(",")],
                    [Protocol(protocol)],
                    RunOptions(device=options.device, progress=False),
                    options.jobs,
                )
                entries = measured(study, rows)
                found.setdefault(name, []).extend(entries)
                print_table(f"{name}, {protocol} protocol", [shown(entry) for entry in entries])
                save_json(  # after every table: a machine may be taken away
                    options.json,
                    {
                        "machine": machine(device),
                        "preset": options.preset,
                        "epochs": options.epochs,
                        "changes": changes,
                        "seeds": options.seeds,
                        "seconds": time.monotonic() - start,
                        "collections": found,
                    },
                )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
