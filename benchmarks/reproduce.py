"""How long `holmes reproduce` takes at the field's real sizes: packing, and every run of the main table.

    python benchmarks/reproduce.py [--share 1] [--device cuda] [--protocols published] [--set epochs=2]

The features are random, in the field's folders (BigFile) and sizes: 26 GB at --share 1, and 17 GB of stores.
Nothing can be learnt from them, so runs would stop early: patience is set to 0, and every epoch is trained.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from common import machine, print_table

from holmes.base.devices import choose_device
from holmes.reproduce.finding import find
from holmes.reproduce.plan import Request, make_plan
from holmes.reproduce.published import COLLECTIONS, Collection
from holmes.reproduce.run import claim, packed_store, reproduce
from holmes.training.logbook import read_metrics

BLOCK = 4096  # random rows, written again and again: drawing all of them would take longer than packing
WORDS = 14  # tokens of a query


def write_collection(folder: Path, about: Collection, share: float) -> int:
    """The collection with random features, as the field has it; the bytes of its video features."""
    rng = np.random.default_rng(0)
    text, features = folder / "TextData", folder / "FeatureData" / about.visual
    text.mkdir(parents=True)
    features.mkdir(parents=True)
    frames: dict[str, list[str]] = {}
    with h5py.File(text / f"{about.text}.hdf5", "w") as file:
        tokens = rng.normal(size=(WORDS, about.text_width)).astype(np.float32)
        for split, sizes in about.sizes.items():
            videos, queries = (max(8, round(share * count)) for count in sizes)
            names = [f"{split}{number}" for number in range(videos)]
            ids = [f"{names[number % videos]}#enc#{number // videos}" for number in range(queries)]
            (text / f"{about.name}{split}.caption.txt").write_text("".join(f"{id} words\n" for id in ids))
            for id in ids:
                file[id] = np.roll(tokens, len(file), 1)
            frames |= {name: [f"{name}_{row}" for row in range(about.mean_rows)] for name in names}
    rows = len(frames) * about.mean_rows
    block = rng.normal(size=(BLOCK, about.video_width)).astype("<f4")
    with open(features / "feature.bin", "wb") as file:
        for start in range(0, rows, BLOCK):
            file.write(block[: min(BLOCK, rows - start)].tobytes())
    (features / "shape.txt").write_text(f"{rows} {about.video_width}\n")
    (features / "id.txt").write_text(" ".join(frame for each in frames.values() for frame in each))
    (features / "video2frames.txt").write_text(repr(frames))
    return 4 * rows * about.video_width


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of the videos and queries of each data set")
    parser.add_argument("--datasets", default=",".join(COLLECTIONS))
    parser.add_argument("--protocols", default="published", help="published, honest, or both with a comma")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--folder", type=Path, help="where to write; a temporary folder if not given")
    options = parser.parse_args()
    settings = {"patience": "0", **dict(pair.split("=", 1) for pair in options.set)}
    with tempfile.TemporaryDirectory(dir=options.folder) as made:
        measure(Path(made), options, settings)


def measure(folder: Path, options: argparse.Namespace, settings: dict[str, str]) -> None:
    names, device = tuple(options.datasets.split(",")), choose_device(options.device)
    data, out = folder / "data", folder / "out"
    sizes = {name: write_collection(data / name, COLLECTIONS[name], options.share) for name in names}
    request = Request(data, out, collections=names, settings=settings, device=options.device)
    findings, packing, runs = find(data), [], []
    claim(out)
    for name, found in findings.usable.items():
        start = time.perf_counter()
        packed_store(found, out, print, progress=False)
        seconds = time.perf_counter() - start
        rate = sizes[name] / 1e6 / seconds
        packing.append({"": name, "GB": sizes[name] / 1e9, "seconds": seconds, "MB/s": rate})
    plan = [run for run in make_plan(request, names) if run.protocol.value in options.protocols.split(",")]
    begun = time.perf_counter()
    for run in plan:
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        start = time.perf_counter()
        reproduce(request, findings, [run], print, progress=False)
        seconds = time.perf_counter() - start
        speeds = [entry["speed"] for entry in read_metrics(run.folder(out))]
        row: dict[str, Any] = {"": run.name, "epochs": len(speeds), "seconds": seconds}
        row["an epoch"] = float(np.median([speed["train_seconds"] for speed in speeds]))
        row["an evaluation"] = float(np.median([speed["evaluate_seconds"] for speed in speeds]))
        if device.type == "cuda":
            row["peak GiB"] = torch.cuda.max_memory_allocated(device) / 2**30
        runs.append(row)
    print(machine(device))
    print_table(f"Packing, {options.share:g} of the field's sizes", packing)
    print_table(f"Runs: {time.perf_counter() - begun:.0f} s in all", runs)


if __name__ == "__main__":
    main()
