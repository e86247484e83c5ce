"""The galleries that the benchmark of search looks through: written to disk, or generated on the GPU."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import typer
from rich.progress import track
from synthetic_index import build_index

from holmes.index.engine.gallery import Gallery, GallerySlab, MappedRows, open_gallery
from holmes.index.storage.codes import LARGEST, SLACK, rotation
from holmes.index.storage.store import IndexStore
from holmes.records import CLIPS, FRAMES

CHUNK = 2048  # videos generated at once


def first_videos(gallery: Gallery, count: int) -> Gallery:
    slabs = tuple(
        GallerySlab(
            slab.first,
            *(array[: count - slab.first] for array in (slab.codes_SPD, slab.numbers_S3, slab.rows_SPD)),
        )
        for slab in gallery.slabs
        if slab.first < count
    )
    described = {
        name: getattr(gallery, name)[:count] for name in ("positions_S2", "video_S", "key_S", "live_S")
    }
    return replace(gallery, slabs=slabs, **described)


def disk_gallery(path: Path, videos: int, width: int, result: dict[str, Any]) -> Gallery:
    """An index on disk, written if it is not there, then opened."""
    if not path.exists():
        build_index(path, videos, FRAMES, CLIPS, width)
    began = time.perf_counter()
    store = IndexStore.open(path)
    gallery = open_gallery(store, torch.device("cpu"))
    result["open_s"] = time.perf_counter() - began
    if len(store) != videos or store.manifest.width != width:
        raise typer.BadParameter(f"{path} holds {len(store)} videos of width {store.manifest.width}.")
    return gallery


def float16_gallery(path: Path) -> Gallery:
    """The same index once more, for scans of all its float16 rows, which then stay in memory."""
    return replace(open_gallery(IndexStore.open(path), torch.device("cpu")), mapped_rows=MappedRows())


def device_gallery(videos: int, width: int, device: torch.device) -> Gallery:
    rows_SPD = torch.empty((videos, FRAMES + CLIPS, width), dtype=torch.float16, device=device)
    codes_SPD = torch.empty_like(rows_SPD, dtype=torch.int8)
    numbers_S3 = torch.empty((videos, 3), device=device)
    for first, chunk_SPD in chunks(videos, width, device, "generating embeddings"):
        at = slice(first, first + len(chunk_SPD))
        rows_SPD[at] = chunk_SPD
        codes_SPD[at], numbers_S3[at] = encode_on_device(chunk_SPD)
    positions_S2 = np.stack([np.zeros(videos, np.int64), np.arange(videos)], axis=1)
    numbers = torch.arange(videos, device=device)
    slab = GallerySlab(0, codes_SPD, numbers_S3, rows_SPD)
    return Gallery((slab,), CLIPS, positions_S2, numbers, numbers, numbers >= 0, device)


def encode_on_device(rows_SPD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`holmes.index.storage.codes.encode_parts`, without leaving the GPU."""
    turn_DD = torch.from_numpy(rotation(rows_SPD.shape[2])).float().to(rows_SPD.device)
    rotated_SPD = rows_SPD.float() @ turn_DD.T
    scale_S11 = rotated_SPD.abs().amax((1, 2), keepdim=True) / LARGEST
    codes_SPD = (rotated_SPD / scale_S11).round()
    error_SP = (rotated_SPD - scale_S11 * codes_SPD).norm(dim=2) + SLACK
    numbers = (scale_S11[:, 0, 0], error_SP[:, :-CLIPS].amax(1), error_SP[:, -CLIPS:].amax(1))
    return codes_SPD.to(torch.int8), torch.stack(numbers, 1)


def chunks(videos: int, width: int, device: torch.device, what: str) -> Iterator[tuple[int, torch.Tensor]]:
    for first in track(range(0, videos, CHUNK), what, transient=True):
        count = min(CHUNK, videos - first)
        yield first, F.normalize(torch.randn(count, FRAMES + CLIPS, width, device=device), dim=-1).half()
