"""Extraction of an interrupted film continues where it was, and gives what an uninterrupted one gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("av")
from holmes.media import encode_video
from holmes.media.encode_video import Outcome, Sign
from holmes.media.extraction import extract
from holmes.media.feature_folder import FeatureFolder, video_id
from holmes.media.film_progress import FilmProgress
from mean_colour import MeanColour
from media_files import video


class Interrupted(MeanColour):
    """Works for a number of blocks, then is interrupted as if by Ctrl-C."""

    def __init__(self, blocks: int) -> None:
        self.left, self.encoded = blocks, 0

    def frames(self, images: list[np.ndarray]) -> np.ndarray:
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        self.encoded += len(images)
        return super().frames(images)


@pytest.fixture
def film(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Forty seconds in which every picture differs, with B-frames and few key frames."""
    monkeypatch.setattr(encode_video, "SAVE_EVERY", 0.0)
    rng = np.random.default_rng(0)
    images = [
        np.kron(rng.integers(0, 255, (6, 8, 3)), np.ones((8, 8, 1))).astype(np.uint8) for _ in range(400)
    ]
    return video(tmp_path / "film.mkv", images, [number / 10 for number in range(400)])


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_going_on_equals_never_having_stopped(tmp_path: Path, film: Path, blocks: int) -> None:
    whole = extract([film], tmp_path / "whole", MeanColour()).folder[video_id(film)]
    with pytest.raises(KeyboardInterrupt):
        extract([film], tmp_path / "features", Interrupted(blocks))
    assert FeatureFolder.open(tmp_path / "features").ids() == []
    rest = Interrupted(10**6)
    folder = extract([film], tmp_path / "features", rest).folder
    again = folder[video_id(film)]
    assert rest.encoded == 80 - 16 * blocks, "what was done is not done again"
    np.testing.assert_array_equal(again.rows, whole.rows)
    np.testing.assert_array_equal(again.times, whole.times)
    assert again.thumbnails == whole.thumbnails
    assert (again.start, again.duration, again.note) == (whole.start, whole.duration, whole.note)
    assert [file.name for file in folder.videos.iterdir()] == [f"{video_id(film)}.safetensors"]


@pytest.mark.parametrize("damage", ["cut", "flipped", "another film", "another encoder"])
def test_what_does_not_belong_is_begun_anew(tmp_path: Path, film: Path, damage: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        extract([film], tmp_path / "features", Interrupted(2))
    (kept,) = (tmp_path / "features" / "videos").iterdir()
    content = kept.read_bytes()
    if damage == "cut":
        kept.write_bytes(content[:-100])
    elif damage == "flipped":
        kept.write_bytes(content[:-100] + bytes([content[-100] ^ 1]) + content[-99:])
    elif damage == "another film":
        images = [np.full((48, 64, 3), number, np.uint8) for number in range(200)]
        video(film, images, [number / 10 for number in range(200)])
    whole = extract([film], tmp_path / "whole", MeanColour()).folder[video_id(film)]
    rest = Interrupted(10**6)
    if damage == "another encoder":
        rest.digest = "c" * 64
        kept.rename(kept.with_name("aside"))
        features = FeatureFolder.create(tmp_path / "other", *_identity(rest))
        (features.videos / kept.name).write_bytes(content)
        again = extract([film], features.path, rest).folder[video_id(film)]
    else:
        again = extract([film], tmp_path / "features", rest).folder[video_id(film)]
    assert rest.encoded == len(whole.rows)
    np.testing.assert_array_equal(again.rows, whole.rows)


def _identity(encoder: MeanColour) -> tuple[object, float]:
    from holmes.media.backbones.base import identify

    return identify(encoder), encoder.rate


def test_a_place_that_looks_different_is_begun_anew(
    tmp_path: Path, film: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyboardInterrupt):
        extract([film], tmp_path / "features", Interrupted(2))
    monkeypatch.setattr("holmes.media.reader.zlib.crc32", lambda data: 0)
    rest = Interrupted(10**6)
    assert len(extract([film], tmp_path / "features", rest).extracted) == 1
    assert rest.encoded == 80


def test_progress_is_told_within_a_film(tmp_path: Path, film: Path) -> None:
    signs: list[Sign] = []
    folder = FeatureFolder.create(tmp_path / "features", *_identity(MeanColour()))
    encode_video.extract_video(film, folder, MeanColour(), report=signs.append)
    shares = [sign.share for sign in signs if sign.seconds]
    assert len(shares) == 5 and shares == sorted(shares) and 0.15 < shares[0] < 0.25 and shares[-1] > 0.95


def test_hours_speed_and_time_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("holmes.media.extraction.time.monotonic", lambda: clock[0])
    short, long = tmp_path / "short", tmp_path / "long"
    short.write_bytes(bytes(1000))
    long.write_bytes(bytes(3000))
    progress = FilmProgress([short, long])
    assert progress.words() == ""
    clock[0] += 100
    progress.done(Outcome(short, seconds=1800.0))
    progress.sign(Sign(long, seconds=1800.0, share=1 / 3))
    assert progress.words() == "1.00 of about 2.00 h, 36× real time, 0:01:40 left"
    progress.done(Outcome(long, seconds=5400.0))
    assert progress.words() == "2.00 of about 2.00 h, 72× real time, 0:00:00 left"
    heard = FilmProgress([short])  # what hearing makes has no length of its own
    clock[0] += 100
    heard.sign(Sign(short, seconds=1800.0, share=1.0))
    heard.done(Outcome(short))
    assert heard.words() == "0.50 of about 0.50 h, 18× real time, 0:00:00 left"
