"""How long `holmes reproduce` takes at the field's real sizes: packing, and every run of the main table.

    python benchmarks/reproduce.py [--share 1] [--device cuda] [--jobs 0] [--folder FOLDER] [--set epochs=2]

The features are random, in the field's folders (BigFile) and sizes: 34 GB at --share 1, and 20 GB of stores.
Nothing can be learnt from them, so runs would stop early: patience is set to 0, and every epoch is trained.
With --folder the same command continues after an interruption, and the times of all attempts are added.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from common import machine, print_table, work_folder

from holmes.base.devices import choose_device
from holmes.base.files import read_json, write_json
from holmes.reproduce.finding import find
from holmes.reproduce.plan import PlannedRun, Request, make_plan
from holmes.reproduce.published import COLLECTIONS, Collection
from holmes.reproduce.run import claim, packed_store, reproduce
from holmes.training.logbook import read_metrics

BLOCK = 4096  # random rows, written again and again: drawing all of them would take longer than packing
WORDS = 14  # tokens of a query


def write_collection(folder: Path, about: Collection, share: float) -> int:
    """The collection with random features, as the field has it; the bytes of its features."""
    rng = np.random.default_rng(0)
    text, features = folder / "TextData", folder / "FeatureData" / about.visual
    text.mkdir(parents=True)
    features.mkdir(parents=True)
    frames: dict[str, list[str]] = {}
    queries: list[str] = []
    for split, sizes in about.sizes.items():
        videos, asked = (max(8, round(share * count)) for count in sizes)
        names = [f"{split}{number}" for number in range(videos)]
        ids = [f"{names[number % videos]}#enc#{number // videos}" for number in range(asked)]
        (text / f"{about.name}{split}.caption.txt").write_text("".join(f"{id} words\n" for id in ids))
        frames |= {name: [f"{name}_{row}" for row in range(about.mean_rows)] for name in names}
        queries += ids
    rows, width = len(frames) * about.mean_rows, about.text_width
    tokens = np.tile(rng.normal(size=(WORDS, width)).astype("<f4"), 2)
    with h5py.File(text / f"{about.text}.hdf5", "w") as file:
        space, kind = h5py.h5s.create_simple((WORDS, width)), h5py.h5t.IEEE_F32LE
        for number, id in enumerate(queries):  # h5py's own way takes three times as long
            some = np.ascontiguousarray(tokens[:, number % width :][:, :width])
            h5py.h5d.create(file.id, id.encode(), kind, space).write(h5py.h5s.ALL, h5py.h5s.ALL, some)
    block = rng.normal(size=(BLOCK, about.video_width)).astype("<f4")
    with open(features / "feature.bin", "wb") as file:
        for start in range(0, rows, BLOCK):
            file.write(block[: min(BLOCK, rows - start)].data)
    (features / "shape.txt").write_text(f"{rows} {about.video_width}\n")
    (features / "id.txt").write_text(" ".join(frame for each in frames.values() for frame in each))
    (features / "video2frames.txt").write_text(repr(frames))
    return 4 * (rows * about.video_width + len(queries) * WORDS * width)


def note_of(name: str, folder: Path) -> Path:
    return folder / f"packed-{name}.json"


def prepare(name: str, folder: Path, share: float) -> dict[str, Any]:
    """Write a data set and pack it; how long packing took.

    Then its feature files are emptied: the store has all of them, and disks are small.
    """
    note, data = note_of(name, folder), folder / "data" / name
    if not note.exists():
        shutil.rmtree(data, ignore_errors=True)
        size = write_collection(data, COLLECTIONS[name], share)
        start = time.perf_counter()
        store = packed_store(find(data).usable[name], folder / "out", print, progress=False)
        seconds = time.perf_counter() - start
        row = {"": name, "GB": size / 1e9, "of the store": store.info.bytes / 1e9, "seconds": seconds}
        for path in (*data.rglob("feature.bin"), *data.rglob("*.hdf5")):
            os.truncate(path, 0)
        write_json(note, {**row, "MB/s": size / 1e6 / seconds})
    found: dict[str, Any] = read_json(note)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--share", type=float, default=1.0, help="of the videos and queries of each data set")
    parser.add_argument("--datasets", default=",".join(COLLECTIONS))
    parser.add_argument("--protocols", default="published", help="published, honest, or both with a comma")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=0, help="runs at once; 0 takes as many as fit")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--folder", type=Path, help="where to work; kept, and continued by the next call")
    options = parser.parse_args()
    with work_folder(options.folder) as folder:
        measure(folder, options)


def measure(folder: Path, options: argparse.Namespace) -> None:
    names, out = tuple(options.datasets.split(",")), folder / "out"
    settings = {"patience": "0", **dict(pair.split("=", 1) for pair in options.set)}
    request = Request(
        folder / "data", out, collections=names, settings=settings, device=options.device, jobs=options.jobs
    )
    claim(out)
    start = time.perf_counter()
    prepared = partial(prepare, folder=folder, share=options.share)
    if len(names) == 1 or all(note_of(name, folder).exists() for name in names):
        packing = [*map(prepared, names)]
    else:
        with ProcessPoolExecutor(len(names), multiprocessing.get_context("spawn")) as pool:
            packing = [*pool.map(prepared, names)]
    print(f"written and packed in {time.perf_counter() - start:.0f} s", flush=True)
    plan = [run for run in make_plan(request, names) if run.protocol.value in options.protocols.split(",")]
    start, note = time.perf_counter(), folder / "attempts.json"
    before = read_json(note) if note.exists() else []
    try:
        reproduce(request, find(request.data), plan, print, progress=False)
    finally:
        attempts = [*before, time.perf_counter() - start]
        write_json(note, attempts)
        show(request, plan, packing, attempts)


def show(
    request: Request, plan: list[PlannedRun], packing: list[dict[str, Any]], attempts: list[float]
) -> None:
    print(machine(choose_device(request.device)))
    print_table("Packing, all data sets at once", packing)
    rows = [about(run, request.out) for run in plan if read_metrics(run.folder(request.out))]
    done = sum(run.done(request.out) for run in plan)
    parts = " + ".join(f"{seconds:.0f}" for seconds in attempts)
    if rows:
        print_table(f"{done} of {len(plan)} runs: {sum(attempts):.0f} s in all ({parts})", rows)


def about(run: PlannedRun, out: Path) -> dict[str, Any]:
    """A run as its logbook tells it."""
    speeds = [entry["speed"] for entry in read_metrics(run.folder(out))]
    trained, evaluated = ([speed[f"{what}_seconds"] for speed in speeds] for what in ("train", "evaluate"))
    return {
        "": run.name,
        "epochs": len(speeds),
        "seconds": sum(trained) + sum(evaluated),
        "first epoch": trained[0],
        "an epoch": float(np.median(trained)),
        "an evaluation": float(np.median(evaluated)),
        "peak GiB": max(speed.get("peak_gib", float("nan")) for speed in speeds),
    }


if __name__ == "__main__":
    main()
