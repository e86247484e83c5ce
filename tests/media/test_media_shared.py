"""One encoder for all decoders: what is used on a GPU, here with an encoder that only says it has one."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("av")
from holmes.media import extraction as extraction
from holmes.media.extraction import extract
from holmes.media.feature_folder import video_id
from mean_colour import MeanColour
from media_files import gray_video


class OnGpu(MeanColour):
    """Lives in this process alone: a worker that tried to load it by its name would find nothing."""

    device = "cuda:0"

    def __init__(self) -> None:
        self.calls, self.threads = 0, set[int]()

    def frames(self, images: list[np.ndarray]) -> np.ndarray:
        self.calls += 1
        self.threads.add(threading.get_ident())
        if any(image.mean() > 240 for image in images):
            raise RuntimeError("CUDA out of memory")
        return super().frames(images)


def test_workers_decode_and_one_process_encodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    films = [
        gray_video(tmp_path / f"{n}.mp4", [20 * n + s for s in range(40)], [s / 2 for s in range(40)])
        for n in range(5)
    ]
    too_much = gray_video(tmp_path / "white.mp4", [255] * 4, [0.0, 0.5, 1.0, 1.5])
    encoder = OnGpu()
    monkeypatch.setattr(extraction, "load_visual", lambda name, **how: encoder)
    monkeypatch.setattr(extraction, "check_named", lambda *trial: None)  # it is tried in this thread
    summary = extract([*films, too_much], tmp_path / "shared", "mean", workers=2)
    assert sorted(summary.extracted) == films and encoder.calls > 10
    assert threading.get_ident() not in encoder.threads
    (failure,) = summary.failures
    assert failure.source == too_much and failure.reason == "RuntimeError: CUDA out of memory"
    alone = extract(films, tmp_path / "alone", MeanColour()).folder
    for film in films:
        np.testing.assert_array_equal(summary.folder[video_id(film)].rows, alone[video_id(film)].rows)
