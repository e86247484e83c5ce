"""How fast search is, beside what the machine can do: one query and a batch over a large synthetic index.

Only finding the videos is timed: the scan of every embedding, and the exact scores of the best. Encoding the
sentences and growing the moments of the hits come on top. On a CPU the index is written to disk and opened as
`holmes search` does it, and searched in turn with a scan of the float16 rows and with a plain NumPy float32
scan of the same embeddings; what the mapped files keep in memory is read from the kernel. On a GPU the
embeddings are generated there.

    python benchmarks/search.py                          # 100,000 videos of 160 vectors of 384; 18.4 GB
    python benchmarks/search.py --videos 10000 --batch 100
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from common import machine, save_json, work_folder
from rich.console import Console
from rich.table import Table
from search_galleries import device_gallery, disk_gallery, float16_gallery
from search_rivals import (
    CLIP_WEIGHT,
    FRAME_WEIGHT,
    beside_float16,
    beside_numpy,
    cost_of_checksums,
    timed,
)

from holmes.base.devices import device_named
from holmes.index.engine.gallery import Gallery
from holmes.index.engine.nearest import nearest_videos
from holmes.index.engine.scan import make_probes, scan
from holmes.records import CLIPS, FRAMES, QueryEmbedding

console = Console()
CANDIDATES = 100  # parts that a calibrated index compares


def main(
    videos: Annotated[int, typer.Option(help="Videos in the index.")] = 100_000,
    width: Annotated[int, typer.Option(help="Width of the embeddings.")] = 384,
    batch: Annotated[int, typer.Option(help="Queries of the batch.")] = 1000,
    tokens: Annotated[int, typer.Option(help="Tokens per query of a dual model.")] = 12,
    top: Annotated[int, typer.Option(help="Hits asked for.")] = 10,
    repeats: Annotated[int, typer.Option(help="Number of timings; their median is reported.")] = 5,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    numpy: Annotated[bool, typer.Option(help="Compare with a NumPy scan too.")] = True,
    index: Annotated[Path | None, typer.Option(help="Keep the CPU's index here and use it again.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the JSON file.")] = Path("benchmarks/results"),
) -> None:
    name = str(device_named(device))
    torch.manual_seed(0)
    result: dict[str, Any] = {
        "machine": machine(torch.device(name)),
        "videos": videos,
        "rows_per_video": FRAMES + CLIPS,
        "width": width,
        "gigabytes": videos * (FRAMES + CLIPS) * width / 1e9,
        **ceilings(torch.device(name)),
    }
    with work_folder(None) as temporary:
        if name == "cpu":
            path = index or temporary / "index"
            gallery = disk_gallery(path, videos, width, result)
            measure(gallery, width, batch, tokens, top, repeats, result)
            result["resident"] = resident()
            result["share_of_checksums"] = cost_of_checksums(gallery, width, top, CANDIDATES, 20)
            compare(gallery, float16_gallery(path), width, batch, top, repeats, numpy, result)
        else:
            gallery = device_gallery(videos, width, torch.device(name))
            measure(gallery, width, batch, tokens, top, repeats, result)
        show(result)
    save_json(out / f"search-{name}.json", result)


def ceilings(device: torch.device) -> dict[str, float]:
    """How fast the machine copies and multiplies when it does nothing else."""
    size = 2**30 if device.type == "cpu" else 2**32
    source = torch.empty(size, dtype=torch.uint8, device=device).fill_(1)
    target = torch.empty_like(source)
    copy_seconds = timed(lambda: target.copy_(source), device, 10)
    side = 2048 if device.type == "cpu" else 8192
    rates = {}
    for dtype in (torch.bfloat16, torch.float32) if device.type == "cpu" else (torch.bfloat16, torch.float16):
        left, right = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
        seconds = timed(partial(torch.matmul, left, right), device, 10)
        rates[f"{str(dtype)[6:]}_tflops"] = 2 * side**3 / seconds / 1e12
    return {"copy_gb_per_s": 2 * size / copy_seconds / 1e9, **rates}


def measure(
    gallery: Gallery,
    width: int,
    batch: int,
    tokens: int,
    top: int,
    repeats: int,
    result: dict[str, Any],
) -> None:
    device = gallery.device
    queries = {
        "one query": QueryEmbedding(torch.randn(1, width, device=device)),
        f"batch of {batch}": QueryEmbedding(torch.randn(batch, width, device=device)),
        "one dual query": QueryEmbedding(
            torch.randn(1, width, device=device),
            torch.randn(1, tokens, width, device=device),
            torch.full((1, tokens), 1 / tokens, device=device),
        ),
    }
    began = time.perf_counter()
    nearest_videos(gallery, make_probes(queries["one query"], FRAME_WEIGHT, CLIP_WEIGHT), top)
    result["first_s"] = time.perf_counter() - began  # from the disk, and kernels are compiled
    result["searches"] = {}
    for name, query in queries.items():
        probes = make_probes(query, FRAME_WEIGHT, CLIP_WEIGHT)
        search = timed(partial(nearest_videos, gallery, probes, top), device, repeats)
        scanning = timed(partial(scan, gallery, probes, None), device, repeats)
        count, rows = len(query.query_QD), probes.rows_QTD.shape[0] * probes.rows_QTD.shape[1]
        flop = 2 * rows * sum(slab.codes_SPD.numel() for slab in gallery.slabs)
        result["searches"][name] = {
            "ms": 1e3 * search,
            "scan_ms": 1e3 * scanning,
            "queries_per_s": count / search,
            "gb_per_s": result["gigabytes"] / search,
            "share_of_copy_bandwidth": result["gigabytes"] / search / result["copy_gb_per_s"],
            "tflops": flop / search / 1e12,
            "share_of_bfloat16_rate": flop / search / 1e12 / result["bfloat16_tflops"],
        }


def compare(
    gallery: Gallery,
    kept: Gallery,
    width: int,
    batch: int,
    top: int,
    repeats: int,
    numpy: bool,
    result: dict[str, Any],
) -> None:
    """Our search beside scans of the float16 rows, which have them mapped for themselves and keep them."""
    one, many = (QueryEmbedding(torch.randn(count, width)) for count in (1, batch))
    beside_float16(gallery, kept, one, many, batch, top, repeats, result)
    if numpy:
        beside_numpy(gallery, kept, one, many, batch, top, result)


def resident() -> dict[str, float]:
    """GB of the index's mapped files that are in this process's memory."""
    sizes, file = {"codes.i8": 0.0, "rows.f16": 0.0}, ""
    for line in Path("/proc/self/smaps").read_text().splitlines():
        fields = line.split()
        if "-" in fields[0] and not fields[0].endswith(":"):
            file = Path(fields[-1]).name
        elif fields[0] == "Rss:" and file in sizes:
            sizes[file] += int(fields[1]) * 1024 / 1e9
    return sizes


def show(result: dict[str, Any]) -> None:
    console.print(
        f"{result['videos']:,} videos × {result['rows_per_video']} × {result['width']} "
        f"({result['gigabytes']:.2f} GB in int8, twice that in float16) on {result['machine']}: copies "
        f"{result['copy_gb_per_s']:.0f} GB/s, multiplies {result['bfloat16_tflops']:.2f} TFLOP/s in bf16."
    )
    if "open_s" in result:
        console.print(f"Opened in {1e3 * result['open_s']:.0f} ms.")
    console.print(f"The first search, with nothing cached, takes {result['first_s']:.1f} s.")
    table = Table(
        *("search", "ms", "scan ms", "per s", "GB/s", "of copy", "Top/s", "of bf16", "× float16", "× NumPy"),
        box=None,
    )
    for name, row in result["searches"].items():
        table.add_row(
            name,
            f"{row['ms']:.1f}",
            f"{row['scan_ms']:.1f}",
            f"{row['queries_per_s']:.1f}",
            f"{row['gb_per_s']:.1f}",
            f"{row['share_of_copy_bandwidth']:.0%}",
            f"{row['tflops']:.2f}",
            f"{row['share_of_bfloat16_rate']:.0%}",
            f"{row['times_float16']:.2f}" if "times_float16" in row else "",
            f"{row['times_numpy']:.1f}" if "times_numpy" in row else "",
        )
    console.print(table)
    if "share_of_checksums" in result:
        console.print(f"Checksums of the rows read: {result['share_of_checksums']:.1%} of a search.")
    if "resident" in result:
        codes, rows = result["resident"]["codes.i8"], result["resident"]["rows.f16"]
        console.print(
            f"In memory after these: {codes:.2f} GB of codes and {rows:.2f} GB of float16 rows; a scan "
            f"of the float16 rows keeps {2 * result['gigabytes']:.2f} GB."
        )
    for name, row in result["searches"].items():
        if "times_float16" in row:
            same = "the same results" if row["same_as_float16"] else "OTHER RESULTS"
            console.print(
                f"Beside the float16 scan, {name}: {row['times_float16']:.2f} times as fast by the clock, "
                f"{row['times_float16_cpu']:.2f} times in CPU time, {same}."
            )
        if "times_numpy" in row:
            same = "the same order" if row["same_order_as_numpy"] else "ANOTHER ORDER"
            console.print(
                f"Beside NumPy, {name}, {row['compared_on_videos']:,} videos: {row['times_numpy']:.1f} times "
                f"its queries/s, {same}, scores within {row['largest_score_difference']:.0e}."
            )


if __name__ == "__main__":
    typer.run(main)
