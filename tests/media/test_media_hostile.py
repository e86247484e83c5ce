"""Files that cost more than they look, disks that are full, folders that vanish."""

from __future__ import annotations

import errno
import os
import shutil
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("av")
from holmes.errors import HolmesError
from holmes.media import encode_video, reader
from holmes.media.extraction import extract
from holmes.media.feature_folder import FeatureFolder, video_id
from holmes.media.reader import LARGEST_SHAPE, VideoReader
from mean_colour import MeanColour
from media_files import gray_video, video


class Counting(MeanColour):
    def __init__(self) -> None:
        self.encoded = 0

    def frames(self, images: list[np.ndarray]) -> np.ndarray:
        self.encoded += len(images)
        return super().frames(images)


def test_pictures_a_minute_apart_are_encoded_once_each(tmp_path: Path) -> None:
    levels = [0, 50, 100, 150, 200, 250]
    film = gray_video(tmp_path / "slow.mkv", levels, [60.0 * minute for minute in range(6)])
    assert film.stat().st_size < 3000
    encoder = Counting()
    folder = extract([film], tmp_path / "features", encoder).folder
    rows = folder[video_id(film)].rows
    assert len(rows) == 5 * 120 and encoder.encoded == 5  # the last is shown for an instant
    np.testing.assert_allclose(rows[:, 0], np.repeat(levels[:5], 120), atol=4)


def test_a_few_bytes_cannot_ask_for_rows_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MOST_SAMPLES", 200)
    film = gray_video(tmp_path / "slow.mkv", [0, 50, 100, 150], [0.0, 60.0, 120.0, 180.0])
    summary = extract([film], tmp_path / "features", MeanColour())
    assert len(summary.folder[video_id(film)].rows) == 200
    assert [partial.reason for partial in summary.partial] == ["only its first 0.0 hours were taken"]


@pytest.mark.parametrize("aspect", [Fraction(1), Fraction(63, 10), Fraction(10, 63)])
def test_no_shape_makes_a_picture_large(tmp_path: Path, aspect: Fraction) -> None:
    """Scaled by its short side alone, and by the shape of its pixels, one frame could fill the memory."""
    film = gray_video(tmp_path / "wide.mkv", [90] * 3, [0.0, 1.0, 2.0], size=(8192, 64), pixel_aspect=aspect)
    for sample in VideoReader(film, 2.0, largest_side=64):
        assert sample.image.size <= 3 * LARGEST_SHAPE * 64**2 * 1.02
        assert abs(int(sample.image.mean()) - 90) <= 3


def test_frames_held_at_once_are_bounded_by_their_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = [np.random.default_rng(n).integers(0, 255, (48, 64, 3), np.uint8) for n in range(12)]
    film = video(tmp_path / "film.mkv", noise, [n / 2 for n in range(12)])
    monkeypatch.setattr(encode_video, "BYTES_AT_ONCE", 3 * 48 * 64 * 3)

    class Watched(MeanColour):
        def frames(self, images: list[np.ndarray]) -> np.ndarray:
            assert sum(image.nbytes for image in images) <= encode_video.BYTES_AT_ONCE
            return super().frames(images)

    assert not extract([film], tmp_path / "features", Watched()).failures


def full_disk(path: object) -> SimpleNamespace:
    return SimpleNamespace(total=2**40, used=2**40, free=0)


def test_a_full_disk_stops_before_anything_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    films = [gray_video(tmp_path / f"{name}.mkv", [9, 9], [0.0, 1.0]) for name in "ab"]
    monkeypatch.setattr(shutil, "disk_usage", full_disk)
    encoder = Counting()
    with pytest.raises(HolmesError, match=f"No space left on device: {tmp_path / 'features'}"):
        extract(films, tmp_path / "features", encoder)
    assert encoder.encoded == 0
    monkeypatch.undo()
    assert len(extract(films, tmp_path / "features", encoder).extracted) == 2


def test_a_disk_that_fills_up_stops_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    films = [gray_video(tmp_path / f"{name}.mkv", [9, 9], [0.0, 1.0]) for name in "abc"]
    encoder, write = Counting(), FeatureFolder.write

    def fails(self: FeatureFolder, video: object, origin: object) -> None:
        if encoder.encoded > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        write(self, video, origin)  # type: ignore[arg-type]

    monkeypatch.setattr(FeatureFolder, "write", fails)
    with pytest.raises(HolmesError, match="No space left"):
        extract(films, tmp_path / "features", encoder)
    assert encoder.encoded == 2, "the third film is not read for nothing"
    assert len(FeatureFolder.open(tmp_path / "features")) == 1


@pytest.mark.parametrize("after", [0, 1])
def test_a_folder_that_vanishes_is_no_success(tmp_path: Path, after: int) -> None:
    films = [gray_video(tmp_path / f"{name}.mkv", [9, 9], [0.0, 1.0]) for name in "ab"]

    class Vandal(MeanColour):
        seen = 0

        def frames(self, images: list[np.ndarray]) -> np.ndarray:
            if self.seen == after:
                shutil.rmtree(tmp_path / "features")
            self.seen += 1
            return super().frames(images)

    with pytest.raises(HolmesError, match="features has vanished"):
        extract(films, tmp_path / "features", Vandal())
    assert not (tmp_path / "features" / "videos").exists(), "and does not come back without its manifest"


def test_a_file_that_changes_while_it_is_read_is_left_for_later(tmp_path: Path) -> None:
    film = gray_video(tmp_path / "film.mkv", [9, 9], [0.0, 1.0])

    class Writer(MeanColour):
        def frames(self, images: list[np.ndarray]) -> np.ndarray:
            with open(film, "ab") as file:
                file.write(b"more")
            return super().frames(images)

    (failure,) = extract([film], tmp_path / "features", Writer()).failures
    assert "changed while it was read" in failure.reason
