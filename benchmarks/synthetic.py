"""A store of random features with the shapes of the field's data sets, written like any other."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import disk_usage

import numpy as np
import torch
from numpy.typing import NDArray

from holmes.data.store import Store
from holmes.data.writer import Catalogue, StoreWriter
from holmes.records import CLIPS, TOKENS

RAM_DISK = Path("/dev/shm")
CHUNK_VIDEOS, CHUNK_QUERIES = 512, 8192


@dataclass(frozen=True)
class Shape:
    """Sizes of a collection: training and evaluation splits together."""

    name: str
    train_videos: int
    train_queries: int
    test_videos: int
    test_queries: int
    frames: int
    video_width: int
    text_width: int
    most_queries: int

    def scaled(self, share: float) -> Shape:
        """A smaller collection of the same kind."""

        def part(count: int) -> int:
            return max(8, int(count * share))

        return replace(
            self,
            train_videos=part(self.train_videos),
            train_queries=part(self.train_queries),
            test_videos=part(self.test_videos),
            test_queries=part(self.test_queries),
        )

    @property
    def bytes(self) -> int:
        """About how much the store of this shape takes."""
        videos, queries = self.train_videos + self.test_videos, self.train_queries + self.test_queries
        return 2 * (videos * (self.frames + CLIPS) * self.video_width + queries * TOKENS * self.text_width)


ACTIVITYNET = Shape("activitynet", 10_009, 37_421, 4_430, 15_753, 128, 1024, 1024, 27)
TVR = Shape("tvr", 17_435, 87_175, 2_179, 10_895, 51, 3072, 768, 5)
SHAPES = {"activitynet": ACTIVITYNET, "tvr_dual": TVR}


@contextmanager
def synthetic_store(shape: Shape, device: torch.device, seed: int = 0) -> Iterator[Store]:
    """The store in a temporary folder, on a RAM disk where it fits."""
    in_memory = RAM_DISK.is_dir() and disk_usage(RAM_DISK).free > 1.2 * shape.bytes
    with tempfile.TemporaryDirectory(dir=RAM_DISK if in_memory else None) as folder:
        yield write_store(Path(folder) / shape.name, shape, device, seed)


def write_store(target: Path, shape: Shape, device: torch.device, seed: int = 0) -> Store:
    """Random unit rows, drawn on the device."""
    rng, generator = np.random.default_rng(seed), torch.Generator(device).manual_seed(seed)
    splits = {
        "train": queries_per_video(shape.train_videos, shape.train_queries, shape.most_queries, rng),
        "test": queries_per_video(shape.test_videos, shape.test_queries, shape.most_queries, rng),
    }
    catalogue = describe(shape, splits, rng)

    def unit_rows(*size: int) -> NDArray[np.float32]:
        values = torch.randn(size, device=device, generator=generator)
        made: NDArray[np.float32] = torch.nn.functional.normalize(values, dim=-1).cpu().numpy()
        return made

    recipe = {"synthetic": shape.name, "seed": seed}
    with StoreWriter(target, recipe) as writer:
        writer.start(catalogue, shape.video_width, shape.text_width, from_the_beginning=True)
        for first in range(0, len(catalogue.video_ids), CHUNK_VIDEOS):
            videos = min(CHUNK_VIDEOS, len(catalogue.video_ids) - first)
            frames = unit_rows(videos * shape.frames, shape.video_width)
            writer.add_videos(frames, unit_rows(videos, CLIPS, shape.video_width))
        lengths_Q = catalogue.token_lengths_Q
        for first in range(0, len(lengths_Q), CHUNK_QUERIES):
            some = lengths_Q[first : first + CHUNK_QUERIES]
            writer.add_queries(unit_rows(int(some.sum()), shape.text_width), len(some))
        writer.finish(recipe)
    return Store.open(target)


def describe(shape: Shape, splits: dict[str, NDArray[np.int64]], rng: np.random.Generator) -> Catalogue:
    counts_V = np.concatenate([*splits.values()])
    owner_Q = np.repeat(np.arange(len(counts_V)), counts_V)
    ends_V = np.cumsum(counts_V)
    slot_Q = np.arange(len(owner_Q)) - (ends_V - counts_V)[owner_Q]
    names, places, first = list[str](), dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]](), 0
    for split, counts in splits.items():
        videos = np.arange(first, first + len(counts))
        places[split] = (videos, np.flatnonzero(np.isin(owner_Q, videos)))
        names += [f"{split}{number}" for number in range(len(counts))]
        first += len(counts)
    return Catalogue(
        collection=shape.name,
        visual="synthetic",
        text="synthetic",
        video_ids=names,
        query_ids=[f"{names[video]}#enc#{slot}" for video, slot in zip(owner_Q, slot_Q, strict=True)],
        captions=["words"] * len(owner_Q),
        owner_Q=owner_Q,
        frame_lengths_V=np.full(len(names), shape.frames),
        token_lengths_Q=rng.integers(6, TOKENS + 1, len(owner_Q)),
        splits=places,
    )


def queries_per_video(videos: int, queries: int, most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Random counts, at least one and at most `most` each, whose sum is exactly the total if that can be."""
    counts = np.ones(videos, np.int64)
    while (missing := queries - counts.sum()) > 0 and counts.min() < most:
        free = np.flatnonzero(counts < most)
        counts[rng.choice(free, min(missing, len(free)), replace=False)] += 1
    return counts
