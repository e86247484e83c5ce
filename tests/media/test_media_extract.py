from __future__ import annotations

import errno
import io
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("av")
from PIL import Image as Pillow
from safetensors.numpy import save_file

from holmes.errors import HolmesError
from holmes.media.extraction import extract
from holmes.media.feature_folder import FeatureFolder, video_id
from holmes.media.find import find_videos
from holmes.media.pictures import ThumbnailStrip
from mean_colour import MeanColour, seconds_of_gray
from media_files import sound


class OtherColour(MeanColour):
    name, digest = "other", "e" * 64


class Windows(MeanColour):
    digest, window = "f" * 64, 4


def test_rows_times_and_thumbnails(tmp_path: Path) -> None:
    source = seconds_of_gray(tmp_path / "a film.mp4", 40, 120, 200)
    summary = extract([source], tmp_path / "features", MeanColour())
    assert summary.extracted == (source,) and not summary.failures
    folder = FeatureFolder.open(tmp_path / "features")
    (video,) = list(folder)
    assert (len(folder), folder.backbone.name, folder.rate) == (1, "mean", 2.0)
    assert video.source == source and video.duration == pytest.approx(3.0, abs=0.11)
    np.testing.assert_allclose(video.times, [0.25, 0.75, 1.25, 1.75, 2.25, 2.75])
    np.testing.assert_allclose(video.rows[:, 0], [40, 40, 120, 120, 200, 200], atol=4)
    assert video.rows.dtype == np.float32
    for thumbnail in video.thumbnails:
        assert len(thumbnail.jpeg) <= 10_000
        shown = np.asarray(Pillow.open(io.BytesIO(thumbnail.jpeg)))
        assert shown.mean() == pytest.approx({0: 40, 1: 120, 2: 200}[int(thumbnail.time)], abs=6)


def test_windows_of_frames_make_one_row(tmp_path: Path) -> None:
    source = seconds_of_gray(tmp_path / "film.mp4", 40, 120, 200)  # six samples: a window of 4, and one of 2
    extract([source], tmp_path / "features", Windows())
    (video,) = FeatureFolder.open(tmp_path / "features")
    np.testing.assert_allclose(video.rows[:, 0], [80, 200], atol=4)
    np.testing.assert_allclose(video.times, [1.0, (2.25 + 3 * 2.75) / 4])


def test_bad_files_stop_nothing(tmp_path: Path) -> None:
    good = seconds_of_gray(tmp_path / "good.mp4", 40)
    (tmp_path / "empty.mp4").touch()
    song = sound(tmp_path / "song.wav")
    summary = extract([tmp_path, song, tmp_path / "absent.mp4"], tmp_path / "features", MeanColour())
    assert summary.extracted == (good,)
    assert {f.source.name: f.reason for f in summary.failures} == {
        "empty.mp4": "it is empty",
        "song.wav": "it has no video track, only sound",
        "absent.mp4": "it does not exist",
    }


def test_names_of_which_none_exists_are_refused(tmp_path: Path) -> None:
    with pytest.raises(HolmesError, match=r"absent.mp4 does not exist; name video files"):
        extract([tmp_path / "absent.mp4"], tmp_path / "features", MeanColour())
    assert not (tmp_path / "features").exists()


def test_a_video_read_in_part_is_told(tmp_path: Path) -> None:
    whole = seconds_of_gray(tmp_path / "whole.mkv", *range(20, 220, 10))
    cut = tmp_path / "cut.mkv"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    summary = extract([whole, cut], tmp_path / "features", MeanColour())
    assert summary.extracted == (whole, cut) and not summary.failures
    (partial,) = summary.partial
    assert partial.source == cut and partial.reason == summary.folder[video_id(cut)].note
    assert "of its 19.9 seconds" in partial.reason


def test_running_again_does_what_is_left(tmp_path: Path) -> None:
    first = seconds_of_gray(tmp_path / "first.mp4", 40)
    extract([first], tmp_path / "features", MeanColour())
    second = seconds_of_gray(tmp_path / "second.mp4", 80)
    again = extract([first, second], tmp_path / "features", MeanColour())
    assert again.extracted == (second,) and again.reused == (first,)
    changed = seconds_of_gray(tmp_path / "first.mp4", 200, 200)
    third = extract([changed, second], tmp_path / "features", MeanColour())
    assert third.extracted == (changed,)
    assert third.folder[video_id(changed)].rows.mean() == pytest.approx(200, abs=4)


def test_a_folder_of_another_encoder_is_refused(tmp_path: Path) -> None:
    source = seconds_of_gray(tmp_path / "film.mp4", 40)
    extract([source], tmp_path / "features", MeanColour())
    with pytest.raises(HolmesError, match="was made by 'mean'"):
        extract([source], tmp_path / "features", OtherColour())
    with pytest.raises(HolmesError, match="sampled 2 times per second"):
        extract([source], tmp_path / "features", MeanColour(), rate=1.0)
    with pytest.raises(HolmesError, match="not a feature folder"):
        extract([source], tmp_path, MeanColour())


def test_a_folder_that_a_kill_left_unfinished_is_gone_on_with(tmp_path: Path) -> None:
    source = seconds_of_gray(tmp_path / "film.mp4", 40)
    (tmp_path / "features" / "videos").mkdir(parents=True)
    (tmp_path / "features" / ".features.json.x1y2.part").write_text('{"format"')
    assert len(extract([source], tmp_path / "features", MeanColour()).folder) == 1
    for name in ("videos/mine.txt", "mine.part", "videos"):
        folder = tmp_path / f"with {Path(name).name}"
        (folder / name).parent.mkdir(parents=True)
        (folder / name).touch()
        with pytest.raises(HolmesError, match="not a feature folder"):
            extract([source], folder, MeanColour())


def test_damaged_feature_files_are_named_and_mended(tmp_path: Path) -> None:
    source = seconds_of_gray(tmp_path / "film.mp4", 40)
    folder = extract([source], tmp_path / "features", MeanColour()).folder
    file = folder.file(video_id(source))
    whole = file.read_bytes()
    chance = random.Random(0)
    damages = [whole[: chance.randrange(len(whole))] for _ in range(10)]
    damages += [bytes(chance.randrange(256) for _ in range(100)), b"\xff" * 8 + whole[8:]]
    for damage in damages:
        file.write_bytes(damage)
        with pytest.raises(HolmesError, match="is damaged"):
            folder[video_id(source)]
    summary = extract([source], tmp_path / "features", MeanColour())
    assert summary.extracted == (source,)
    assert len(folder[video_id(source)].rows) == 2


@pytest.mark.parametrize("record", ["[]", "5", "null", "[" * 100_000], ids=["list", "number", "null", "deep"])
def test_a_record_of_another_kind_is_damage(tmp_path: Path, record: str) -> None:
    source = seconds_of_gray(tmp_path / "film.mp4", 40)
    folder = extract([source], tmp_path / "features", MeanColour()).folder
    save_file({"rows": np.zeros((2, 3), np.float16)}, folder.file(video_id(source)), {"video": record})
    with pytest.raises(HolmesError, match="is damaged"):
        folder[video_id(source)]
    assert extract([source], tmp_path / "features", MeanColour()).extracted == (source,)


FLOATS_TO_WHOLE = (b'"F16"', b'"I16"')
ANOTHER_SHAPE = (b'"shape":[4,3]', b'"shape":[3,4]')
ANOTHER_NAME = (b'"rows"', b'"rowz"')
LONGER = (b'\\"duration\\": 1', b'\\"duration\\": 9')


def test_what_changed_on_the_disk_is_damage(tmp_path: Path) -> None:
    source = seconds_of_gray(tmp_path / "film.mp4", 40, 120)
    folder = extract([source], tmp_path / "features", MeanColour()).folder
    whole, file = folder[video_id(source)].rows, folder.file(video_id(source))
    kept = file.read_bytes()
    place = kept.index(whole.astype(np.float16).tobytes())
    one_bit = kept[:place] + bytes([kept[place] ^ 1]) + kept[place + 1 :]  # still a finite number
    edits = [
        one_bit,
        *(kept.replace(*edit) for edit in (FLOATS_TO_WHOLE, ANOTHER_SHAPE, ANOTHER_NAME, LONGER)),
    ]
    for edited in edits:
        assert edited != kept and len(edited) == len(kept)
        file.write_bytes(edited)
        with pytest.raises(HolmesError, match="is damaged"):
            folder[video_id(source)]
        assert extract([source], tmp_path / "features", MeanColour()).extracted == (source,)
        np.testing.assert_array_equal(folder[video_id(source)].rows, whole)


def test_a_folder_that_cannot_be_searched_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "films" / "secret"
    secret.mkdir(parents=True)
    source = seconds_of_gray(tmp_path / "films" / "a.mp4", 40)
    scan = os.scandir

    def guarded(path: str) -> Iterator[os.DirEntry[str]]:
        if os.fspath(path) == str(secret):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(secret))
        return scan(path)

    monkeypatch.setattr(os, "scandir", guarded)
    summary = extract([tmp_path / "films"], tmp_path / "features", MeanColour())
    assert summary.extracted == (source,)
    assert [failure.source for failure in summary.failures] == [secret]
    with pytest.raises(HolmesError, match=f"{secret} cannot be searched .Permission denied"):
        find_videos([secret])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        '{"format": "x"}',
        '{"format": "holmes-features", "version": 9}',
        '{"format": "holmes-features", "rate": ' + "9" * 5000 + "}",
    ],
    ids=["nothing", "cut", "a list", "deep", "another format", "another version", "a huge number"],
)
def test_damaged_manifests_are_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "features.json").write_text(text)
    with pytest.raises(HolmesError) as caught:
        FeatureFolder.open(tmp_path)
    assert "\n" not in str(caught.value)


def test_folders_are_searched_and_links_followed(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for name in ("b.MP4", "a.mkv", "notes.txt", "deep/er/c.webm"):
        (tmp_path / name).touch()
    (tmp_path / "deep" / "loop").symlink_to(tmp_path)
    found = [path.relative_to(tmp_path).as_posix() for path in find_videos([tmp_path])]
    assert found == ["a.mkv", "b.MP4", "deep/er/c.webm"]
    assert find_videos([tmp_path / "notes.txt", tmp_path / "notes.txt"]) == [tmp_path / "notes.txt"]
    with pytest.raises(HolmesError, match="no videos were found"):
        find_videos([])


def test_ids_differ_for_paths_that_look_alike() -> None:
    ids = {video_id(Path(path)) for path in ("/a/x y.mp4", "/a/x_y.mp4", "/b/x y.mp4", "/a/x y.mkv")}
    assert len(ids) == 4 and all("/" not in id and " " not in id for id in ids)
    assert all(re.search(r"-[0-9a-f]{32}$", id) for id in ids), "128 bits: no two of millions are the same"


def test_thumbnails_stay_few_and_evenly_spread() -> None:
    strip = ThumbnailStrip(most=8)
    for second in range(1000):
        strip.offer(float(second), np.zeros((9, 16, 3), np.uint8))
    times = [time for time, _ in strip.thumbnails()]
    assert 4 <= len(times) <= 8
    assert len(set(np.diff(times))) == 1 and times[-1] > 800
