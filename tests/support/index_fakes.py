"""A joint encoder without weights: every word has a random direction, a frame is the words that it shows.

Workers of a test cluster import this: it needs neither torch nor pytest, which take longer than their work.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from holmes.media.backbones.base import Identity, Image, Matrix
from holmes.media.backbones.own import ENCODERS
from holmes.media.feature_folder import FeatureFolder, Fingerprint, VideoFeatures, video_id

if TYPE_CHECKING:
    import pytest

WIDTH, RATE = 32, 2.0


def word(text: str) -> np.ndarray:
    return np.random.default_rng(zlib.crc32(text.encode())).normal(size=WIDTH).astype(np.float32)


def meaning(sentence: str) -> np.ndarray:
    total = sum(word(part) for part in sentence.split())
    return np.asarray(total / np.linalg.norm(total), np.float32)


class FakeJoint:
    """Frames mean nothing, they only differ; features are written with `write_features`."""

    name, digest, width, joint, side, rate, window = "fake", "d1" * 32, WIDTH, True, 8, RATE, 1

    def frames(self, images: Sequence[Image]) -> Matrix:
        return np.stack([np.resize(image.mean((0, 1)), self.width) for image in images]).astype(np.float32)

    def sentences(self, sentences: Sequence[str]) -> Matrix:
        return np.stack([meaning(sentence) for sentence in sentences])

    def tokens(self, sentences: Sequence[str]) -> list[Matrix]:
        return [np.stack([word(part) for part in sentence.split()]) for sentence in sentences]


def write_features(folder: Path, videos: dict[str, list[tuple[str, float]]]) -> FeatureFolder:
    """Videos as scenes: what is seen, and for how many seconds. A name becomes the file /films/NAME.mp4."""
    identity = Identity(FakeJoint.name, FakeJoint.digest, WIDTH, True)
    features = FeatureFolder.create(folder, identity, RATE)
    for name, scenes in videos.items():
        rng = np.random.default_rng(zlib.crc32(os.fsencode(name)))
        seen = [meaning(scene) for scene, seconds in scenes for _ in range(int(seconds * RATE))]
        rows = np.stack(seen) + 0.05 * rng.normal(size=(len(seen), WIDTH))
        source = Path(f"/films/{name}.mp4")
        times = (np.arange(len(rows)) + 0.5) / RATE
        video = VideoFeatures(video_id(source), source, len(rows) / RATE, rows.astype(np.float32), times)
        features.write(video, Fingerprint(1, 1))
    return features


FILMS = {
    "coast": [("waves hit rocks", 20), ("dog runs beach", 10), ("sun sets", 30)],
    "kitchen": [("woman cuts onions", 40), ("water boils", 6), ("man eats soup", 34)],
    "street": [("car turns corner", 15), ("dog barks cat", 15), ("rain falls", 90), ("bus stops", 9)],
}


def known_encoders(monkeypatch: pytest.MonkeyPatch, *encoders: FakeJoint) -> None:
    """Let these be loaded by their names, as `holmes.extend.visual_encoder` does for a user's own."""
    for encoder in encoders:
        monkeypatch.setitem(ENCODERS, encoder.name, encoder)


def every_name_loads(monkeypatch: pytest.MonkeyPatch, encoder: FakeJoint) -> None:
    """Let any name load an encoder, also one that a damaged file gives."""
    from holmes.index.embedders import loading, trained

    for module in (loading, trained):
        for function in ("load_visual", "load_text"):
            monkeypatch.setattr(module, function, lambda name, **how: encoder, raising=False)
