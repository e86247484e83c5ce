"""Does the method do what it says? Full method against the base objective, with known answers to check.

    python benchmarks/method.py [--data DATA] [--seeds 0,1,2] [--device auto] [--json FILE]

On the planted world, and on real spliced videos where `--data` has them: SumR of both objectives over seeds;
how far the partition agrees with the planted kinds; how much aligned mass falls inside the true moment.
"""

from __future__ import annotations

import argparse
from argparse import ArgumentParser
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import machine, print_table, save_json, work_folder

from holmes.config.ablations import BASE_OBJECTIVE, BEST_CLIP, FULL, INTRA, TRANSPORT, Ablation
from holmes.config.presets import preset
from holmes.config.schema import HolmesConfig, with_changes
from holmes.data.pack import Source, pack
from holmes.data.planted import PlantSettings, plant
from holmes.data.store import Store
from holmes.training.device import choose_device
from holmes.training.protocol import Protocol
from holmes.training.revisit import evaluate_run, find_runs
from holmes.training.run import RunOptions, train

REAL = {
    "msvd": ("vgg16_pca512", "minilm_msvd_query_feat.hdf5"),
    "msrvtt": ("lite2_pca512", "minilm_msrvtt_query_feat.hdf5"),
}


@dataclass(frozen=True)
class World:
    name: str
    store: Store
    config: HolmesConfig
    rows: tuple[Ablation, ...]


def worlds(folder: Path, data: Path, options: argparse.Namespace) -> list[World]:
    """The planted world, and the real ones that are there."""
    target = folder / f"planted-{options.videos}"
    if not target.exists():  # a folder that is used again has it
        plant(target, PlantSettings(videos=options.videos, seed=0))
    config = with_changes(
        preset(options.preset),
        {
            "epochs": options.epochs,
            "warm_up_epochs": options.epochs // 3,
            "patience": 0,
            **dict(change.split("=", 1) for change in options.set),
        },
    )
    others = () if options.brief else (*INTRA, *TRANSPORT, BEST_CLIP)
    found = [World("planted", Store.open(target), config, (FULL, BASE_OBJECTIVE, *others))]
    for name, (visual, text) in REAL.items():
        if not (data / name).is_dir():
            print(f"{data / name} is not there: {name} is left out.")
            continue
        packed = data / name if (data / name / "store.json").exists() else folder / name
        if not packed.exists():
            pack(Source(data / name, visual=visual, text=text), packed)
        store = Store.open(packed)
        small = with_changes(config, {"batch_videos": min(64, config.training.batch_videos)})
        found.append(World(name, store, small, (FULL, BASE_OBJECTIVE)))
    return found


def study(world: World, folder: Path, seeds: list[int], device: str) -> list[dict[str, Any]]:
    """Every row with every seed: one dictionary of mean figures a row."""
    rows = []
    for row in world.rows:
        reports = []
        for seed in seeds:
            out = folder / "runs" / world.name / f"{row.row}-{seed}"
            train(
                world.store,
                row.apply(world.config),
                out,
                seed,
                Protocol.HONEST,
                RunOptions(device=device, compiled=False, shown=False),
            )
            reports.append(evaluate_run(find_runs(out)[0], world.store, "test", choose_device(device)))
        rows.append(summary(world, row, reports))
        print(
            f"{world.name}: {row.title}: SumR {rows[-1]['SumR']:.1f} ± {rows[-1]['SumR_deviation']:.1f}",
            flush=True,
        )
    return rows


def summary(world: World, row: Ablation, reports: list[dict[str, Any]]) -> dict[str, Any]:
    def mean(*path: str) -> float:
        values = []
        for report in reports:
            value: Any = report
            for key in path:
                value = value.get(key, {}) if isinstance(value, dict) else {}
            values.append(value if isinstance(value, int | float) else float("nan"))
        return float(np.mean(values))

    sums = [report["metrics"]["SumR"] for report in reports]
    partitions = [report["partition"] for report in reports if "partition" in report]
    return {
        "world": world.name,
        "row": row.title,
        **{name: mean("metrics", name) for name in ("R@1", "R@5", "R@10", "R@100", "SumR")},
        "SumR_deviation": float(np.std(sums, ddof=1)) if len(sums) > 1 else float("nan"),
        "SumR_seeds": sums,
        "macro_F1": mean("partition", "macro_F1"),
        "chance_F1": mean("partition", "chance_macro_F1"),
        "confusion": np.sum([p["confusion"] for p in partitions], axis=0).tolist() if partitions else None,
        "mass": {
            name: mean("aligned_mass", name) for name in ("even", "flexible", "plain", "softmax", "best_clip")
        },
        "hit@1": mean("localisation", "clip_hit@1"),
        "localisation": reports[0].get("localisation"),
    }


def study_parser(description: str | None, videos: int, changes: list[str], result: str) -> ArgumentParser:
    """The options of a study that trains models with several seeds on every world."""
    parser = ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder with the real data")
    parser.add_argument("--preset", default="charades")
    parser.add_argument(
        "--videos", type=int, default=videos, help="training videos of the planted world (%(default)s)"
    )
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument(
        "--set", action="append", default=changes, metavar="NAME=VALUE", help="change a setting"
    )
    parser.add_argument("--only", help="one world: planted, msvd or msrvtt")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--work", type=Path, help="keep stores and runs here, to go on later")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results") / result)
    return parser


def main() -> None:
    parser = study_parser(__doc__, 1200, [], "method.json")
    parser.add_argument("--brief", action="store_true", help="only the full method and the base objective")
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    device = choose_device(options.device)
    with work_folder(options.work) as folder:
        rows = [
            row
            for world in worlds(folder, options.data, options)
            if options.only in (None, world.name)
            for row in study(world, folder, seeds, options.device)
        ]
    changed = "".join(f", {change}" for change in options.set)
    title = f"{options.preset}{changed}, {options.epochs} epochs, seeds {options.seeds}, on {machine(device)}"
    plain = [{k: v for k, v in row.items() if isinstance(v, str | float)} for row in rows]
    print_table(title, plain)
    print_table(
        "Aligned mass inside the true moment, percent",
        [{"world": row["world"], "row": row["row"], **row["mass"]} for row in rows],
    )
    for row in rows:
        if row["confusion"] is not None and row["row"] == FULL.title:
            print(f"{row['world']}: kinds, rows planted, columns found: {row['confusion']}")
    save_json(options.json, {"title": title, "seeds": seeds, "rows": rows})


if __name__ == "__main__":
    main()
