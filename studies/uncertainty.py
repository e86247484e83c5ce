"""Does the confidence mean anything? The tables and figures of docs/uncertainty.md, in one go.

    PYTHONPATH=benchmarks python studies/uncertainty.py [--data DATA] [--docs docs/uncertainty.md]

On the planted world, and on real spliced videos where `--data` has them: models are trained and calibrated on
videos held out of training, then their confidence is measured on the test split beside the baselines. With
`--work FOLDER` models and measures are kept there, and the same command continues where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import machine, save_json, work_folder
from large_galleries import large_galleries
from uncertainty_page import tables, write_docs
from worlds import study_parser, world_stores

from holmes.base.devices import choose_device
from holmes.config.presets import preset
from holmes.config.schema import HolmesConfig, to_dict, with_changes
from holmes.data.bank import FeatureBank
from holmes.data.store import Store
from holmes.encoders.checkpoint import load_checkpoint
from holmes.evaluation.confidence.answered import OURS
from holmes.evaluation.confidence.readers import find_reader
from holmes.evaluation.runs.confidence import held_out_videos, run_uncertainty
from holmes.evaluation.runs.folders import find_runs
from holmes.evidence.calibration import EXTRA, read_calibration
from holmes.training.protocol import Protocol
from holmes.training.run import RunOptions, train

ABSTAIN = 0.2  # less probable hits are withheld
SIZES = (100, 250, 1_000, 3_000, 10_000, 30_000, 100_000)  # sizes of planted galleries


@dataclass(frozen=True)
class World:
    name: str
    store: Store
    config: HolmesConfig


def worlds(folder: Path, options: argparse.Namespace) -> list[World]:
    """Every world with the settings to train it with; the real ones are small and want small batches."""
    changes = dict(change.split("=", 1) for change in options.set)
    stages = {"epochs": options.epochs, "warm_up_epochs": options.epochs // 3, "patience": 0}
    config = with_changes(preset(options.preset), stages | changes)
    small = with_changes(config, {"batch_videos": min(64, config.training.batch_videos)})
    stores = world_stores(folder, options.data, options.videos, None)
    return [
        World(name, Store.open(path), config if name == "planted" else small) for name, path in stores.items()
    ]


def study(
    world: World, others: dict[str, Store], folder: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """Train with every seed and measure each run."""
    reports, galleries = [], []
    device = choose_device(options.device)
    for seed in options.seeds:
        start, out = time.perf_counter(), folder / "runs" / world.name / str(seed)
        quiet = RunOptions(device=options.device, progress=False)
        train(world.store, world.config, out, seed, Protocol.HONEST, quiet)
        trained = time.perf_counter()
        (run,) = find_runs(out)
        other = next((store for name, store in others.items() if name != world.name), None)
        reports.append(
            run_uncertainty(
                run, world.store, "test", device, other, find_reader, ABSTAIN, repeats=options.repeats
            )
        )
        if world.name == "planted" and seed == options.seeds[0]:
            checkpoint = load_checkpoint(run.checkpoint, str(device))
            calibration = read_calibration(checkpoint.extras[EXTRA], checkpoint.digest)
            test = world.store.split("test")
            held = held_out_videos(run, world.store, checkpoint.config.training.held_out)
            assert calibration is not None and held is not None
            bank = FeatureBank.of_splits(world.store, device, [test, held])
            sizes = [size for size in SIZES if size <= options.largest]
            galleries.append(large_galleries(checkpoint, bank, test, held, calibration, sizes))
        details = reports[-1]["uncertainty_details"]
        print(
            f"{world.name}, seed {seed}: R@1 {100 * details['top1']:.1f}, AURC and ECE of ours "
            f"{reports[-1]['uncertainty'][OURS]['aurc']['value']:.3f}, "
            f"{reports[-1]['uncertainty'][OURS]['ece']['value']:.3f}; "
            f"trained in {trained - start:.0f} s, measured in {time.perf_counter() - trained:.0f} s",
            flush=True,
        )
    return {"world": world.name, "reports": reports, "galleries": galleries}


def kept_study(
    world: World, others: dict[str, Store], folder: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """The study of a world, read again if it was made in this folder before with the same settings."""
    file = folder / f"{world.name}.json"
    asked = json.dumps(
        [to_dict(world.config), options.seeds, options.largest, options.repeats, world.store.info.digest]
    )
    if not file.exists() or json.loads(file.read_bytes())["asked"] != asked:
        save_json(file, {"asked": asked, "found": study(world, others, folder, options)})
    found: dict[str, Any] = json.loads(file.read_bytes())["found"]
    return found


def main() -> None:
    parser = study_parser(__doc__, 1250, ["held_out=0.2"], "uncertainty.json", epochs=30)
    parser.add_argument("--repeats", type=int, default=1000, help="of the bootstrap")
    parser.add_argument(
        "--largest", type=int, help="videos of the largest planted gallery (default 100000, 1000 on a CPU)"
    )
    parser.add_argument("--docs", type=Path, help="a page whose tables and figures to write anew")
    options = parser.parse_args()
    options.seeds = [int(seed) for seed in options.seeds.split(",")]
    if options.docs is not None and not options.docs.exists():
        raise SystemExit(f"uncertainty: {options.docs} does not exist; --docs takes the page to write anew.")
    device = choose_device(options.device)
    options.largest = options.largest or (1_000 if device.type == "cpu" else 100_000)
    with work_folder(options.work) as folder:
        every = worlds(folder, options)
        others = {world.name: world.store for world in every if world.name != "planted"}
        found = [
            kept_study(world, others, folder, options)
            for world in every
            if options.only in (None, world.name)
        ]
    changed = "".join(f", {change}" for change in options.set)
    seeds = ", ".join(map(str, options.seeds))
    title = f"{options.preset} preset{changed}, {options.epochs} epochs, seeds {seeds}, on {machine(device)}."
    made = tables(found)
    print("\n\n".join((title, *(f"## {name}\n\n{text}" for name, text in made.items()))))
    save_json(options.json, {"title": title, "found": found})
    if options.docs is not None:
        write_docs(options.docs, made, found, title)


if __name__ == "__main__":
    main()
