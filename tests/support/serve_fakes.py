"""A small index of real files behind the application: a joint encoder without weights, films by PyAV."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

import holmes
from holmes.evidence.judging import Candidates, Diagnosis
from holmes.index.answer.searcher import Index
from holmes.index.embedders.zero_shot import ZeroShot
from holmes.index.ingest.builder import build_index
from holmes.index.storage.store import FEATURES
from holmes.media.backbones.base import Identity
from holmes.media.feature_folder import FeatureFolder, Fingerprint, Thumbnail, VideoFeatures, video_id
from holmes.media.pictures import thumbnail
from holmes.serve.app import create_app
from holmes.serve.settings import Limits, ServeSettings
from index_fakes import WIDTH, FakeJoint, known_encoders, meaning
from media_files import video

RATE = 2.0
PLENTY = Limits(rate=1e6, burst=10**6)  # tests ask quickly
# What is seen, for how many seconds, and the colour of the picture then.
FILMS: dict[str, list[tuple[str, float, tuple[int, int, int]]]] = {
    "beach/coast.mp4": [
        ("waves hit rocks", 4, (30, 60, 160)),
        ("dog runs beach", 3, (200, 170, 60)),
        ("sun sets", 5, (220, 90, 40)),
    ],
    "beach/pier.mp4": [("rain falls", 5, (90, 100, 110)), ("dog runs pier", 4, (150, 120, 90))],
    "home/kitchen.mkv": [
        ("woman cuts onions", 6, (240, 240, 230)),
        ("water boils", 2, (120, 160, 190)),
        ("man eats soup", 6, (190, 90, 60)),
    ],
    "home/<b>party & games.mp4": [
        ("children blow candles", 5, (240, 180, 200)),
        ("dog barks", 4, (70, 70, 60)),
    ],
}


def film(path: Path, scenes: list[tuple[str, float, tuple[int, int, int]]], codec: str = "libx264") -> Path:
    """Plain colours at 10 pictures per second."""
    path.parent.mkdir(parents=True, exist_ok=True)
    colours = [colour for _, seconds, colour in scenes for _ in range(int(10 * seconds))]
    images = [np.full((48, 64, 3), colour, np.uint8) for colour in colours]
    return video(path, images, [n / 10 for n in range(len(images))], codec)


def build(folder: Path, films: dict[str, list[tuple[str, float, tuple[int, int, int]]]] = FILMS) -> Path:
    """An index of films in `folder`/films, with kept thumbnails; `FakeJoint` stands in for real encoders."""
    index = folder / "index"
    features = FeatureFolder.create(
        folder / "features", Identity("fake", FakeJoint.digest, WIDTH, True), RATE
    )
    for name, scenes in films.items():
        source = film(folder / "films" / name, scenes) if name.endswith((".mp4", ".mkv")) else folder / name
        add_features(features, source, scenes)
    build_index(index, [features.path], ZeroShot(FakeJoint()))  # type: ignore[arg-type]
    (folder / "features").rename(index / FEATURES)
    return index


def add_features(
    features: FeatureFolder, source: Path, scenes: list[tuple[str, float, tuple[int, int, int]]]
) -> None:
    rng = np.random.default_rng(zlib.crc32(source.name.encode("utf-8", "surrogateescape")))
    seen = [(meaning(scene), colour) for scene, seconds, colour in scenes for _ in range(int(seconds * RATE))]
    rows = np.stack([row for row, _ in seen]) + 0.05 * rng.normal(size=(len(seen), WIDTH))
    times = ((np.arange(len(rows)) + 0.5) / RATE).astype(np.float32)
    pictures = [thumbnail(np.full((48, 64, 3), colour, np.uint8)) for _, colour in seen]
    kept = tuple(Thumbnail(float(time), jpeg) for time, jpeg in zip(times, pictures, strict=True))
    found = VideoFeatures(
        video_id(source), source, len(rows) / RATE, rows.astype(np.float32), times, kept[::2]
    )
    features.write(found, Fingerprint(1, 1))


def diagnosis(
    kind: str, words: str, explanation: str, probabilities: tuple[float, ...], group: int, here: float
) -> Diagnosis:
    """What a calibrated model might say, told by the scores of the fake encoder."""
    return Diagnosis(
        beliefs=(0.4, 0.2, 0.1),
        quantities={"vacuity": 0.2, "agreement": 0.7},
        kind=kind,
        words=words,
        explanation=explanation,
        advice="Add a detail.",
        probability=probabilities[0],
        probabilities=probabilities,
        group=group,
        here=here,
        fits=tuple("fits" if rank < group else "nearest" for rank in range(len(probabilities))),
    )


KINDS = {
    "precise": diagnosis("precise", "precise", "One video holds it.", (0.9, 0.04, 0.01), 1, 0.97),
    "several": diagnosis("several_fit", "several fit", "Two videos fit.", (0.45, 0.4, 0.05), 2, 0.95),
    "little": diagnosis(
        "too_little", "too little to go on", "No video leads.", (0.2, 0.19, 0.18, 0.1), 0, 0.8
    ),
    "absent": diagnosis("not_here", "not here, it seems", "Nothing comes near.", (0.1, 0.05, 0.04), 0, 0.2),
}


class FakeDiagnose:
    """Precise where one video fits well, several where two do, and so on."""

    candidates = 128

    def __call__(self, case: Candidates) -> list[Diagnosis]:
        score_QK = 0.4 * case.scores.frame_QV + 0.6 * case.scores.clip_QV
        return [KINDS[self.kind(score_K)] for score_K in score_QK.tolist()]

    def kind(self, scores: list[float]) -> str:
        best, second = (*scores, 0.0, 0.0)[:2]
        if best > 0.85:
            return "precise" if second < 0.75 else "several"
        return "little" if best > 0.4 else "absent"


def open_fake(index: Path, monkeypatch: pytest.MonkeyPatch, diagnose: FakeDiagnose | None = None) -> Index:
    known_encoders(monkeypatch, FakeJoint())
    return holmes.open_index(index, device="cpu", diagnose=diagnose)


@contextmanager
def client_of(index: Index, settings: ServeSettings | None = None, **headers: str) -> Iterator[TestClient]:
    settings = settings or ServeSettings(limits=PLENTY)
    with TestClient(
        create_app(index, settings), base_url=f"http://127.0.0.1:{settings.port}", headers=headers
    ) as client:
        yield client
