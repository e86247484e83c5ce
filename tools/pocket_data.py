"""The data of `train_pocket.py`: pictures, clips and spliced videos with their captions as MiniLM vectors.

Shapes: B items of a batch, F frames and C captions drawn of each.
"""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import torch
from torch import Tensor

from holmes.base.progress import progress_bar
from holmes.errors import HolmesError
from holmes.media.backbones.text import load_minilm

CLIPS_A_SPLICE = 4


@dataclass(frozen=True)
class Items:
    """Pictures or clips or spliced videos: ragged frames and ragged sentences."""

    frames: Tensor
    frame_offsets: Tensor
    sentences: Tensor
    sentence_offsets: Tensor

    def __len__(self) -> int:
        return len(self.frame_offsets) - 1

    @classmethod
    def of(cls, parts: list[tuple[np.ndarray, np.ndarray]]) -> Items:
        frames, sentences = zip(*parts, strict=True)
        return cls(*_ragged(frames), *_ragged(sentences))

    def draw(self, index_B: Tensor, frames: int, captions: int) -> tuple[Tensor, Tensor]:
        """Random frames (B × F) and captions (B × C) of some items."""

        def pick(rows: Tensor, offsets: Tensor, count: int) -> Tensor:
            lengths_B = offsets[index_B + 1] - offsets[index_B]
            return rows[
                offsets[index_B, None] + (torch.rand(len(index_B), count) * lengths_B[:, None]).long()
            ]

        return (
            pick(self.frames, self.frame_offsets, frames),
            pick(self.sentences, self.sentence_offsets, captions),
        )


class Sentences:
    """MiniLM sentence vectors, computed once and kept in the cache file."""

    def __init__(self, cache: Path | None) -> None:
        self.cache, self.known = cache, dict[str, np.ndarray]()
        if cache is not None and cache.exists():
            with np.load(cache, allow_pickle=False) as kept:
                self.known = dict(zip(kept["texts"].tolist(), kept["vectors"], strict=True))

    def of(self, texts: list[str]) -> np.ndarray:
        return np.stack([self.known[text] for text in texts])

    def learn(self, texts: list[str]) -> None:
        new = sorted(set(texts) - set(self.known))
        if not new:
            return
        encoder = load_minilm()
        with progress_bar("reading captions", len(new)) as advance:
            for start in range(0, len(new), 2048):
                some = new[start : start + 2048]
                self.known.update(zip(some, encoder.sentences(some), strict=True))
                advance(len(some))
        if self.cache is not None:
            texts = list(self.known)
            np.savez(self.cache, texts=np.array(texts), vectors=np.stack([self.known[t] for t in texts]))


def read_joint(
    folder: Path, name: str, sentences: Sentences, split: str
) -> list[tuple[np.ndarray, np.ndarray]]:
    """(frames, sentence vectors) of each picture or clip of a split."""
    records = json.loads((folder / f"{name}.json").read_bytes())
    sentences.learn([caption for record in records.values() for caption in record["captions"]])
    with np.load(folder / f"{name}_lite2_pca512.npz", allow_pickle=False) as file:
        rows, ids = file["features"].astype(np.float32), file["ids"].tolist()
        lengths = file["lengths"] if "lengths" in file else np.ones(len(ids), np.int64)
    frames = np.split(rows, np.cumsum(lengths)[:-1])
    return [
        (own, sentences.of(records[id]["captions"]))
        for id, own in zip(ids, frames, strict=True)
        if records[id]["split"] == split
    ]


def read_spliced_test(folder: Path, sentences: Sentences) -> Items:
    lines = (folder / "TextData" / "msrvtttest.caption.txt").read_text().splitlines()
    captions: dict[str, list[str]] = {}
    for line in lines:
        id, text = line.split(" ", 1)
        captions.setdefault(id.split("#")[0], []).append(text)
    sentences.learn([text for texts in captions.values() for text in texts])
    with h5py.File(folder / "FeatureData" / "lite2_pca512" / "feature.hdf5") as file:
        return Items.of([(file[id][:].astype(np.float32), sentences.of(t)) for id, t in captions.items()])


def splice(clips: list[tuple[np.ndarray, np.ndarray]]) -> Items:
    groups = [clips[i : i + CLIPS_A_SPLICE] for i in range(0, len(clips), CLIPS_A_SPLICE)]
    return Items.of([tuple(np.concatenate(part) for part in zip(*group, strict=True)) for group in groups])  # type: ignore[misc]


def class_sentences() -> list[list[str]]:
    """For each ImageNet class its names, its first name, what it is, and both; from timm's data files.

    timm itself is not imported.
    """
    spec = importlib.util.find_spec("timm")
    if spec is None or spec.origin is None:
        raise HolmesError("ImageNet's class names come with timm: pip install --no-deps timm")
    folder = Path(spec.origin).parent / "data" / "_info"
    lemmas, definitions = (
        dict(
            line.split("\t") for line in (folder / f"imagenet_synset_to_{what}.txt").read_text().splitlines()
        )
        for what in ("lemma", "definition")
    )
    found = []
    for synset in (folder / "imagenet_synsets.txt").read_text().split():
        names, meaning = lemmas[synset], definitions[synset]
        first = names.split(",")[0]
        found.append([names, f"a {first}", meaning, f"there is a {first}, {meaning}"])
    return found


def _ragged(parts: tuple[np.ndarray, ...]) -> tuple[Tensor, Tensor]:
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    return torch.from_numpy(np.concatenate(parts)), torch.from_numpy(offsets)
