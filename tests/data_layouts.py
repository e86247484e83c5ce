"""Small stores and feature folders for the data tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from holmes.data.store import Store
from holmes.data.writer import Catalogue, StoreWriter


def random_store(
    folder: Path, videos: int = 11, seed: int = 0, video_width: int = 6, text_width: int = 5
) -> Store:
    """Random rows; 1 to 4 queries a video, videos of 1 to 128 frames; val is test."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 5, videos)
    frame_lengths = rng.integers(1, 129, videos)
    frame_lengths[0] = 128
    token_lengths = rng.integers(1, 31, counts.sum())
    owner = np.repeat(np.arange(videos), counts)
    train = videos * 2 // 3
    parts = {"train": np.arange(train), "val": np.arange(train, videos), "test": np.arange(train, videos)}
    catalogue = Catalogue(
        collection="random",
        visual="noise",
        text="noise",
        video_ids=[f"v{i}" for i in range(videos)],
        query_ids=[f"v{o}#enc#{i}" for i, o in enumerate(owner)],
        captions=[f"caption {i}" for i in range(len(owner))],
        owner_Q=owner,
        frame_lengths_V=frame_lengths,
        token_lengths_Q=token_lengths,
        splits={name: (part, np.flatnonzero(np.isin(owner, part))) for name, part in parts.items()},
    )
    with StoreWriter(folder, {"seed": seed}) as writer:
        writer.start(catalogue, video_width, text_width)
        writer.add_videos(
            rng.normal(size=(frame_lengths.sum(), video_width)), rng.normal(size=(videos, 32, video_width))
        )
        writer.add_queries(rng.normal(size=(token_lengths.sum(), text_width)), len(owner))
        writer.finish({"seed": seed})
    return Store.open(folder)
