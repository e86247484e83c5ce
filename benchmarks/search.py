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

import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import torch.nn.functional as F
import typer
from common import machine, save_json, work_folder
from float16_scan import float16_search
from rich.console import Console
from rich.table import Table
from search_galleries import device_gallery, disk_gallery, first_videos, float16_gallery

from holmes.index.gallery import Gallery
from holmes.index.nearest import nearest_videos
from holmes.index.scan import make_probes, scan
from holmes.records import CLIPS, FRAMES, QueryEmbedding

FRAME_WEIGHT, CLIP_WEIGHT = 0.4, 0.6
NUMPY_BLOCK = 64  # videos that a NumPy scan converts at once: the fastest of 8, 64 and 512 here
NUMPY_BATCH_VIDEOS = 20_000  # a batch is compared with NumPy on this many
LONG = 10.0  # seconds; what takes longer is timed once

console = Console()


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
    name = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
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


def beside_float16(
    gallery: Gallery,
    kept: Gallery,
    one: QueryEmbedding,
    many: QueryEmbedding,
    batch: int,
    top: int,
    repeats: int,
    result: dict[str, Any],
) -> None:
    """The scan of the float16 rows, in turn with ours, and the proof that both find the same."""
    for name, query in (("one query", one), (f"batch of {batch}", many)):
        probes = make_probes(query, FRAME_WEIGHT, CLIP_WEIGHT)
        if name == "one query":
            float16_search(kept, probes, top)  # brings the rows into memory
        ours: list[np.ndarray] = []
        theirs: list[np.ndarray] = []
        for number in range(max(repeats, 3) if len(query.query_QD) == 1 else 2):
            if number and ours[0][0] > LONG:
                break
            began = clocks()
            found = nearest_videos(gallery, probes, top)
            between = clocks()
            parts_QK, score_QK, *_ = float16_search(kept, probes, top)
            ours.append(between - began)
            theirs.append(clocks() - between)
        wall, cpu = np.median(np.array(theirs) / np.array(ours), axis=0).tolist()
        result["searches"][name] |= {
            "float16_ms": 1e3 * float(np.median(theirs, axis=0)[0]),
            "times_float16": wall,
            "times_float16_cpu": cpu,
            "same_as_float16": torch.equal(parts_QK, found.parts_QK)
            and torch.equal(score_QK, found.score_QK),
        }


def clocks() -> np.ndarray:
    """Seconds by the clock, and seconds of processor time, which is fair on a busy machine."""
    return np.array([time.perf_counter(), time.process_time()])


def beside_numpy(
    gallery: Gallery,
    kept: Gallery,
    one: QueryEmbedding,
    many: QueryEmbedding,
    batch: int,
    top: int,
    result: dict[str, Any],
) -> None:
    """The plain scan a NumPy user would write, in turn with ours, and the proof that both agree."""
    for name, query, videos in (
        ("one query", one, len(gallery)),
        (f"batch of {batch}", many, NUMPY_BATCH_VIDEOS),
    ):
        part = first_videos(gallery, videos)
        blocks = [slab.rows_SPD.numpy() for slab in first_videos(kept, videos).slabs]
        probes = make_probes(query, FRAME_WEIGHT, CLIP_WEIGHT)
        unit_QD = F.normalize(query.query_QD, dim=-1).numpy()
        ours, plain = [], []
        for _ in range(3):
            began = time.perf_counter()
            found = nearest_videos(part, probes, top)
            ours.append(time.perf_counter() - began)
            began = time.perf_counter()
            scores_QV = numpy_scan(blocks, unit_QD)
            order_QK = np.argsort(-scores_QV, axis=1, kind="stable")[:, :top]
            plain.append(time.perf_counter() - began)
        difference = np.abs(found.hit_score_QH.numpy() - np.take_along_axis(scores_QV, order_QK, 1)).max()
        result["searches"][name] |= {
            "numpy_ms": 1e3 * statistics.median(plain),
            "times_numpy": statistics.median(plain) / statistics.median(ours),
            "compared_on_videos": len(part),
            "same_order_as_numpy": found.hit_QH.tolist() == order_QK.tolist(),
            "largest_score_difference": float(difference),
        }


def numpy_scan(blocks: list[np.ndarray], query_QD: np.ndarray) -> np.ndarray:
    """float16 rows to float32, one product, the maximum of each branch."""
    scores = []
    for rows_SPD in blocks:
        for start in range(0, len(rows_SPD), NUMPY_BLOCK):
            block_SPD = rows_SPD[start : start + NUMPY_BLOCK].astype(np.float32)
            similarity_QN = query_QD @ block_SPD.reshape(-1, block_SPD.shape[-1]).T
            similarity_QVP = similarity_QN.reshape(len(query_QD), len(block_SPD), -1)
            frame_QV, clip_QV = similarity_QVP[..., :-CLIPS].max(-1), similarity_QVP[..., -CLIPS:].max(-1)
            scores.append(FRAME_WEIGHT * frame_QV + CLIP_WEIGHT * clip_QV)
    return np.concatenate(scores, axis=1)


def timed(work: Callable[[], Any], device: torch.device, repeats: int) -> float:
    """The median of the seconds, after one run that counts only if it takes long."""
    seconds = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
        if seconds[0] > LONG:
            return seconds[0]
    return statistics.median(seconds[1:])


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
