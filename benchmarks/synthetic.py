"""A store of random features in memory, with the shapes of the field's data sets."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import DTypeLike

from holmes.base.manifests import FileEntry
from holmes.data.manifest import CATALOGUE, FEATURES, StoreInfo
from holmes.data.store import Split, Store
from holmes.records import CLIPS, TOKENS


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

        return Shape(
            self.name,
            part(self.train_videos),
            part(self.train_queries),
            part(self.test_videos),
            part(self.test_queries),
            self.frames,
            self.video_width,
            self.text_width,
            self.most_queries,
        )


ACTIVITYNET = Shape("activitynet", 10_009, 37_421, 4_430, 15_753, 128, 1024, 1024, 27)
TVR = Shape("tvr", 17_435, 87_175, 2_179, 10_895, 51, 3072, 768, 5)
SHAPES = {"activitynet": ACTIVITYNET, "tvr_dual": TVR}


class SyntheticStore(Store):
    """Behaves like a store on disk; features are random unit rows, made on the device."""

    def __init__(self, shape: Shape, device: torch.device, seed: int = 0) -> None:
        self.shape, self.rng, self.device = shape, np.random.default_rng(seed), device
        self.generator = torch.Generator(device).manual_seed(seed)
        counts = np.concatenate(
            [
                self._queries_per_video(shape.train_videos, shape.train_queries),
                self._queries_per_video(shape.test_videos, shape.test_queries),
            ]
        )
        videos, queries = len(counts), int(counts.sum())
        lengths_V = np.full(videos, shape.frames)
        lengths_Q = self.rng.integers(6, TOKENS + 1, queries)
        self._made = {
            "frames": self._unit_rows(int(lengths_V.sum()), shape.video_width),
            "clips": self._unit_rows(videos * CLIPS, shape.video_width).reshape(videos, CLIPS, -1),
            "tokens": self._unit_rows(int(lengths_Q.sum()), shape.text_width),
            "frame_offsets": np.concatenate([[0], lengths_V.cumsum()]),
            "token_offsets": np.concatenate([[0], lengths_Q.cumsum()]),
            "query_offsets": np.concatenate([[0], counts.cumsum()]),
            "kinds": np.full(queries, -1, np.int8),
            "moments": np.full((queries, 2), np.nan, np.float32),
        }
        splits: dict[str, dict[Literal["videos", "queries"], int]] = {
            "train": {"videos": shape.train_videos, "queries": int(counts[: shape.train_videos].sum())},
            "test": {"videos": shape.test_videos, "queries": int(counts[shape.train_videos :].sum())},
        }
        parts = (f"split.{name}.{what}.npy" for name in splits for what in ("videos", "queries"))
        nothing = FileEntry(0, sha256(b"").hexdigest())  # a store lists its files; this one has none
        files = dict.fromkeys((*FEATURES, *CATALOGUE, *parts), nothing)
        info = StoreInfo(
            shape.name,
            "synthetic",
            "synthetic",
            shape.video_width,
            shape.text_width,
            videos,
            queries,
            int(lengths_V.sum()),
            int(lengths_Q.sum()),
            splits,
            {"made": "synthetic"},
            files,
        )
        super().__init__(Path(f"synthetic-{shape.name}"), info)

    def _array(self, name: str, dtype: DTypeLike, *shape: int) -> np.ndarray:
        array = self._made[name]
        assert array.dtype == dtype and array.shape == shape
        return array

    def split(self, name: str) -> Split:
        first = 0 if name == "train" else self.shape.train_videos
        videos = np.arange(first, first + self.info.splits[name]["videos"])
        ends = self.query_offsets[[videos[0], videos[-1] + 1]]
        return self.make_split(name, videos, np.arange(*ends))

    def _queries_per_video(self, videos: int, queries: int) -> np.ndarray:
        """Random counts, at least one and at most `most_queries` each, whose sum is exactly the total."""
        counts = np.ones(videos, np.int64)
        while (missing := queries - counts.sum()) > 0:
            open_videos = np.flatnonzero(counts < self.shape.most_queries)
            chosen = self.rng.choice(open_videos, min(missing, len(open_videos)), replace=False)
            counts[chosen] += 1
            if counts.min() == self.shape.most_queries:
                break
        return counts

    def _unit_rows(self, rows: int, width: int) -> np.ndarray:
        made = np.empty((rows, width), np.float16)
        for start in range(0, rows, 1 << 18):
            stop = min(rows, start + (1 << 18))
            values = torch.randn(stop - start, width, device=self.device, generator=self.generator)
            made[start:stop] = torch.nn.functional.normalize(values, dim=1).half().cpu().numpy()
        return made
