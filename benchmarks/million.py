"""What a million videos cost: building, opening, searching, changing and compacting an index.

Each step runs in a process of its own, so that its memory is its own. The index lies in a new folder and is
removed at the end.

    python benchmarks/million.py --folder DISK      # 16 frames and 16 clips of 256 numbers per video: 25 GB
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from common import machine, print_table, save_json
from synthetic_index import build_index, synthetic_videos

from holmes.index.engine.gallery import open_gallery
from holmes.index.engine.nearest import nearest_videos
from holmes.index.engine.scan import make_probes
from holmes.index.storage.store import IndexStore
from holmes.index.storage.writer import IndexWriter
from holmes.records import QueryEmbedding

FRAMES, CLIPS, WIDTH = 16, 16, 256
STEPS = ("build", "open", "search", "batch", "add", "remove", "compact")


def main(
    sizes: Annotated[
        str, typer.Option(help="Numbers of videos; for each, an index is built, one after the other.")
    ] = "100000,1000000",
    folder: Annotated[Path | None, typer.Option(help="A folder with room for the index.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the JSON file.")] = Path("benchmarks/results"),
    step: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    if step:
        assert folder is not None
        print(json.dumps(STEP[step](folder, int(sizes)) | memory()))
        return
    rows = []
    for videos in (int(size) for size in sizes.split(",")):
        path = Path(tempfile.mkdtemp(dir=folder)) / "index"
        try:
            for name in STEPS:
                rows.append({"videos": videos, "step": name} | run(name, path, videos))
                print(rows[-1], flush=True)
        finally:
            shutil.rmtree(path.parent)
    print_table(f"{FRAMES} + {CLIPS} rows of {WIDTH}, {machine(torch.device('cpu'))}", rows)
    save_json(out / "million.json", {"machine": machine(torch.device("cpu")), "rows": rows})


def run(step: str, path: Path, videos: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--step", step, "--folder", str(path), "--sizes", str(videos)]
    said = json.loads(subprocess.check_output(command, text=True).splitlines()[-1])
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return {
        "seconds": said["seconds"],
        "of CPU": said["cpu"],
        "own MB": said["own"],
        "peak MB": said["peak"],
        "disk GB": size / 1e9,
    }


def memory() -> dict[str, float]:
    """MB that the process holds of its own, and its peak with mapped files, which the kernel takes back."""
    status = Path("/proc/self/status").read_text()
    own = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))
    return {"own": own / 1e3, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3}


def timed(work: Any) -> dict[str, float]:
    began, cpu = time.perf_counter(), time.process_time()
    work()
    return {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}


def build(path: Path, videos: int) -> dict[str, float]:
    return timed(lambda: build_index(path, videos, FRAMES, CLIPS, WIDTH))


def open_it(path: Path, videos: int) -> dict[str, float]:
    return timed(lambda: open_gallery(IndexStore.open(path), torch.device("cpu")))


def search(path: Path, videos: int, queries: int = 1) -> dict[str, float]:
    """The second search: the first reads the codes from the disk."""
    gallery = open_gallery(IndexStore.open(path), torch.device("cpu"))
    torch.manual_seed(0)
    probes = make_probes(QueryEmbedding(torch.randn(queries, WIDTH)), 0.4, 0.6)
    if queries == 1:
        nearest_videos(gallery, probes, 10, 128)
    return timed(lambda: nearest_videos(gallery, probes, 10, 128))


def batch(path: Path, videos: int) -> dict[str, float]:
    return search(path, videos, 64)


def add(path: Path, videos: int) -> dict[str, float]:
    """Add a hundred videos, half of which replace others."""
    (chunk,) = synthetic_videos(100, FRAMES, CLIPS, WIDTH, seed=1)
    more = [replace(video, name=f"/videos/{videos - 50 + i:07d}.mp4") for i, video in enumerate(chunk)]
    with IndexWriter(path) as writer:
        return timed(lambda: writer.add(more))


def remove(path: Path, videos: int) -> dict[str, float]:
    """Remove every second video."""
    names = [f"/videos/{number:07d}.mp4" for number in np.arange(0, videos, 2)]
    with IndexWriter(path) as writer:
        return timed(lambda: writer.remove(names))


def compact(path: Path, videos: int) -> dict[str, float]:
    with IndexWriter(path) as writer:
        return timed(writer.compact)


STEP = {
    "build": build,
    "open": open_it,
    "search": search,
    "batch": batch,
    "add": add,
    "remove": remove,
    "compact": compact,
}

if __name__ == "__main__":
    typer.run(main)
