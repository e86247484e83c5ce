"""An index of made-up videos, some of them long and some equal, and the same in shards."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from holmes.index.answer.answers import Answer
from holmes.index.embedders.zero_shot import ZeroShot
from holmes.index.ingest.builder import build_index
from holmes.media.feature_folder import video_id
from holmes.media.origin import Fingerprint
from index_fakes import FakeJoint, write_features

WORDS = (
    "dog cat car boat girl man tree bird ball rain snow fire",
    "runs jumps falls opens burns sleeps sings turns stops shines breaks floats",
)
THINGS, ACTIONS = (words.split() for words in WORDS)
SENTENCES = [f"{thing} {action}" for thing, action in zip(THINGS, ACTIONS, strict=True)] + [
    "dog",
    "rain falls",
]


def scenes_of(number: int) -> list[tuple[str, float]]:
    """Most videos are short; one in nine is so long that it is indexed in parts."""
    rng = np.random.default_rng(number)
    count = 12 if number % 9 == 4 else int(rng.integers(1, 4))
    return [(f"{rng.choice(THINGS)} {rng.choice(ACTIONS)}", float(rng.integers(3, 20))) for _ in range(count)]


def make_index(folder: Path, videos: int = 60, first: int = 0) -> Path:
    """Every tenth video is shown twice under two names: their scores are equal."""
    films = {f"film{number:03d}": scenes_of(number) for number in range(first, first + videos)}
    features = write_features(folder / "made", films)
    twins = [number for number in range(first, first + videos) if number % 10 == 0]
    write_features(folder / "made", {f"film{number:03d}": scenes_of(number) for number in twins})
    _twin(features, twins)
    build_index(folder / "index", [features.path], ZeroShot(FakeJoint()))  # type: ignore[arg-type]
    return folder / "index"


def _twin(features: Any, numbers: list[int]) -> None:
    for number in numbers:
        video = features[video_id(Path(f"/films/film{number:03d}.mp4"))]
        source = Path(f"/films/twin{zlib.crc32(str(number).encode()) % 1000:03d}-{number}.mp4")
        features.write(replace(video, id=video_id(source), source=source), Fingerprint(1, 1))


def bits(answer: Answer) -> str:
    """An answer to the last bit: a float that JSON writes reads back as the very same number."""
    diagnosis = answer.diagnosis
    return json.dumps(
        [answer.to_dict(), list(diagnosis.probabilities), list(diagnosis.beliefs)], sort_keys=True
    )
