"""An index of small films whose encoder sees their colour, in this process: extraction without weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holmes.index.embedders.zero_shot import ZeroShot
from holmes.index.ingest import builder
from holmes.index.ingest.builder import build_index
from holmes.media.extraction import ExtractionSummary, extract
from index_fakes import WIDTH, FakeJoint, every_name_loads
from media_files import gray_video


class Colour(FakeJoint):
    """A row is how bright a frame is, as a direction; counts what it has encoded."""

    encoded = 0

    def frames(self, images: Any) -> np.ndarray:
        type(self).encoded += len(images)
        bright = np.array([image.mean() / 255 for image in images], np.float32)
        angles = np.linspace(0, 3, WIDTH, dtype=np.float32)
        return np.cos(bright[:, None] * 2 + angles)


class Library:
    """A folder of films and the index of it."""

    def __init__(self, root: Path) -> None:
        self.root, self.films, self.index = root, root / "films", root / "index"
        self.films.mkdir()

    def film(self, name: str, *levels: int) -> Path:
        path = self.films / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return gray_video(path, levels, [float(second) for second in range(len(levels))])

    def build(self) -> None:
        build_index(self.index, [self.films], ZeroShot(Colour()))


def see_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever encoder is named, it is `Colour`, in this process."""

    def in_process(files: Any, out: Path, name: str, *, workers: Any = None, **how: Any) -> ExtractionSummary:
        return extract(files, out, Colour(), **how)

    monkeypatch.setattr(builder, "extract", in_process)
    every_name_loads(monkeypatch, Colour())


def three_films(root: Path) -> Library:
    """Films a, b and c, indexed."""
    made = Library(root)
    for number, name in enumerate("abc"):
        made.film(f"{name}.mp4", 40 * number, 40 * number + 60)
    made.build()
    return made


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    see_colours(monkeypatch)
    return three_films(tmp_path)


def encoded_by(work: Callable[[], Any]) -> int:
    """How many frames the call encodes."""
    before = Colour.encoded
    work()
    return Colour.encoded - before
