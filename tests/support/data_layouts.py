"""Small stores and feature folders for the data tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np

from holmes.data.store import Store
from holmes.data.writer import Catalogue, StoreWriter


def random_store(
    folder: Path, videos: int = 11, seed: int = 0, video_width: int = 6, text_width: int = 5
) -> Store:
    """Random rows; 1 to 4 queries per video, videos of 1 to 128 frames; val is test."""
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


@dataclass
class Miniature:
    """A collection of four videos and seven captions, and how to write it in each layout of the field."""

    folder: Path
    collection: str = "tiny"
    videos: dict[str, np.ndarray] = field(default_factory=dict)
    tokens: dict[str, np.ndarray] = field(default_factory=dict)
    captions: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def make(cls, folder: Path, video_width: int = 6, text_width: int = 5) -> Miniature:
        rng = np.random.default_rng(3)
        counts = {"cat_a": 3, "dog-b": 129, "v_Cc": 40, "d.d": 300}
        videos = {name: rng.normal(size=(n, video_width)).astype(np.float32) for name, n in counts.items()}
        held_out = ["d.d#enc#0 a drum, and a dog", "d.d#enc#1 ünïcode words"]
        train = [
            "v_Cc#enc#0 a kite flies",
            "cat_a#enc#0 a cat",
            "cat_a#enc#1 a  cat sits",
            "dog-b#enc#0 a dog",
        ]
        captions = {"train": [*train, "v_Cc#enc#1 wind"], "val": held_out, "test": held_out}
        ids = [line.split(" ")[0] for lines in captions.values() for line in lines]
        tokens = {
            name: rng.normal(size=(1 + 9 * i, text_width)).astype(np.float32) for i, name in enumerate(ids)
        }
        return cls(folder, videos=videos, tokens=tokens, captions=captions)

    def write_captions(self) -> None:
        for split, lines in self.captions.items():
            path = self.folder / "TextData" / f"{self.collection}{split}.caption.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes("".join(f"{line}\n" for line in lines).encode())

    def write_hdf5(self, path: str, rows: dict[str, np.ndarray]) -> Path:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        with h5py.File(self.folder / path, "w") as file:
            for name, table in rows.items():
                file[name] = table
        return self.folder / path

    def write_bigfile(self, name: str) -> Path:
        """Frames interleaved between videos, to see that ids and not positions are followed."""
        folder = self.folder / "FeatureData" / name
        folder.mkdir(parents=True)
        frames = {video: [f"{video}_{i}" for i in range(len(rows))] for video, rows in self.videos.items()}
        entries = [(f"{video}_{i}", row) for video, rows in self.videos.items() for i, row in enumerate(rows)]
        entries = [entries[i] for i in np.random.default_rng(0).permutation(len(entries))]
        np.stack([row for _, row in entries]).astype("<f4").tofile(folder / "feature.bin")
        (folder / "shape.txt").write_text(f"{len(entries)} {entries[0][1].shape[0]}\n")
        (folder / "id.txt").write_text(" ".join(frame for frame, _ in entries), "iso-8859-1")
        (folder / "video2frames.txt").write_text(repr(frames), "iso-8859-1")
        return folder

    def write(self, layout: str = "hdf5") -> Miniature:
        self.write_captions()
        if layout == "bigfile":
            self.write_bigfile("i3d")
        elif layout == "clip":
            self.write_hdf5(f"FeatureData/new_clip_vit_32_{self.collection}_vid_features.hdf5", self.videos)
        else:
            self.write_hdf5("FeatureData/i3d/feature.hdf5", self.videos)
        text = "clip_ViT_B_32" if layout == "clip" else "roberta"
        self.write_hdf5(f"TextData/{text}_{self.collection}_query_feat.hdf5", self.tokens)
        return self
