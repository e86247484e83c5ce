"""Clips and reels hold the frames they should: films of numbered frames, cut and decoded again."""

from __future__ import annotations

import errno
import os
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from typer.testing import CliRunner

import holmes
from holmes.cli.main import app
from holmes.editing.clips import slug
from holmes.editing.cut import clip_names, into_new_file
from holmes.errors import HolmesError
from holmes.evidence.judging import Diagnosis
from holmes.index.answer.answers import Answer, Hit
from holmes.media.pictures import title_picture
from holmes.moments import Moment
from index_fakes import FakeJoint, known_encoders
from media_files import moving_video
from rated_films import frames_in, rated_film, uneven_times
from serve_fakes import build

START, END = 1.3, 2.4
NAMES = ("23.976.mp4", "drop.mov", "film.mkv", "uneven.mp4", "noise.avi")


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("films")
    return {
        "23.976.mp4": rated_film(folder / "23.976.mp4", Fraction(24000, 1001), 110, sound=True),
        "drop.mov": rated_film(folder / "drop.mov", Fraction(30000, 1001), 120, sound=True, channels=1),
        "film.mkv": rated_film(folder / "film.mkv", Fraction(25), 110),
        "uneven.mp4": rated_film(folder / "uneven.mp4", times=uneven_times()),
        "noise.avi": moving_video(folder / "noise.avi", "mjpeg", {}, 100),
    }


def answer(*videos: Path | str, moments=((START, END),), probability: float | None = 0.8) -> Answer:
    found = tuple(Moment(start, end, 0.5) for start, end in moments)
    hits = tuple(Hit(str(video), 0.9, 0.5, probability, found) for video in videos)
    return Answer("a dog: runs/…", Diagnosis(beliefs=(), quantities={}), hits)


def numbers(film: Path) -> list[int]:
    return [number for _, number in sorted(frames_in(film))]


@pytest.mark.parametrize("name", NAMES[:4])
def test_exact_clips_begin_and_end_with_the_very_frame(films, name: str, tmp_path: Path) -> None:
    film = films[name]
    (file,) = holmes.cut(answer(film), tmp_path / "new" / "clips", exact=True).files
    first = [number for time, number in frames_in(film) if time <= START + 6e-4][-1]
    last = max(number for time, number in frames_in(film) if time < END - 6e-4)
    assert numbers(Path(file.file)) == [*range(first, last + 1)] and not file.copied
    source = dict((number, time) for time, number in frames_in(film))
    for time, number in frames_in(Path(file.file)):
        assert time == pytest.approx(source[number] - source[first], abs=6e-4), "frames keep their times"


@pytest.mark.parametrize("name", NAMES[:4])
def test_copied_clips_begin_at_the_key_frame_before(films, name: str, tmp_path: Path) -> None:
    film = films[name]
    (file,) = holmes.cut(answer(film), tmp_path).files
    with av.open(str(film)) as container:
        keys = [
            float(packet.pts * packet.time_base) for packet in container.demux(video=0) if packet.is_keyframe
        ]
    key = max(time for time in keys if time <= START)
    first = [number for time, number in frames_in(film) if time <= key + 1e-4][-1]
    last = max(number for time, number in frames_in(film) if time < END - 6e-4)
    found = numbers(Path(file.file))
    assert file.copied and file.start == pytest.approx(key, abs=1e-3)
    assert found == [*range(first, found[-1] + 1)] and last <= found[-1] <= last + 3
    with av.open(str(film)) as before, av.open(file.file) as after:
        assert [s.codec_context.name for s in after.streams] == [s.codec_context.name for s in before.streams]
        ours = {bytes(packet) for packet in after.demux(video=0)}
        assert ours - {b""} <= {bytes(packet) for packet in before.demux(video=0)}, "not encoded again"


def click_in(film: str) -> float:
    """When a film's sound first becomes loud."""
    with av.open(film) as container:
        for frame in container.decode(audio=0):
            loud = np.abs(frame.to_ndarray()).max(axis=0) > 0.5
            if loud.any():
                return float(frame.time) + int(loud.argmax()) / 48000
    raise AssertionError("there is no click")


def test_sound_goes_with_the_pictures(films, tmp_path: Path) -> None:
    """A click at 2 seconds of the film is at the same frame of the clip, copied or not."""
    film = tmp_path / "click.mp4"
    with av.open(str(films["23.976.mp4"])) as source, av.open(str(film), "w") as out:
        stream = out.add_stream_from_template(source.streams.video[0])
        voice = out.add_stream("aac", rate=48000)
        voice.layout = "mono"
        samples = np.zeros((1, 48000 * 4), np.float32)
        samples[:, 96000:96480] = 0.9
        frame = av.AudioFrame.from_ndarray(samples, "fltp", "mono")
        frame.sample_rate = 48000
        for packet in source.demux(video=0):
            if packet.size:
                packet.stream = stream
                out.mux(packet)
        out.mux([*voice.encode(frame), *voice.encode(None)])
    for exact in (True, False):
        (file,) = holmes.cut(answer(film), tmp_path / str(exact), exact=exact).files
        assert click_in(file.file) == pytest.approx(click_in(str(film)) - file.start, abs=0.003)


def test_what_an_mp4_cannot_hold_is_encoded(films, tmp_path: Path) -> None:
    (file,) = holmes.cut(answer(films["noise.avi"]), tmp_path).files
    assert not file.copied
    with av.open(file.file) as container:
        assert container.streams.video[0].codec_context.name == "h264"
        assert sum(1 for _ in container.decode(video=0)) == pytest.approx((END - START) * 25, abs=1.5)


def test_a_reel_has_every_clip_after_its_title(films, tmp_path: Path) -> None:
    found = answer(films["23.976.mp4"], films["film.mkv"])
    (file,) = holmes.cut(found, tmp_path, reel=True).files
    assert Path(file.file).name == "a-dog-runs-reel.mp4"
    with av.open(file.file) as container:
        pictures = [
            (float(frame.time), frame.to_ndarray(format="rgb24")) for frame in container.decode(video=0)
        ]
        assert (pictures[0][1] < 30).mean() > 0.5, "a title is mostly black"
        lengths = [float(stream.duration * stream.time_base) for stream in container.streams]
    assert lengths == pytest.approx([2 * 2 + 2 * (END - START)] * 2, abs=0.1), "pictures and sound"
    assert [time for time, _ in pictures] == sorted({time for time, _ in pictures})
    shown = numbers(Path(file.file))
    assert {*range(32, 57)} <= {*shown}


def test_titles_fit_into_the_picture() -> None:
    wide = title_picture(["a dog runs " * 30, "x"], 320, 180)
    assert wide.shape == (180, 320, 3) and wide.any() and not wide[:, :8].any() and not wide[:, -8:].any()


def test_no_file_is_replaced_and_nothing_is_left_half_written(films, tmp_path: Path) -> None:
    found = answer(films["film.mkv"], moments=((0.5, 1.0), (START, END)))
    holmes.cut(found, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert sorted(before) == ["01-film-0m00.mp4", "02-film-0m01.mp4"]
    (tmp_path / "01-film-0m00.mp4").unlink()
    with pytest.raises(HolmesError, match=r"02-film-0m01\.mp4 exists; choose another folder"):
        holmes.cut(found, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["02-film-0m01.mp4"]
    assert (tmp_path / "02-film-0m01.mp4").read_bytes() == before["02-film-0m01.mp4"]

    def late(path: str) -> None:
        (tmp_path / "late.mp4").write_bytes(b"another's")

    with pytest.raises(HolmesError, match=r"late\.mp4 exists"):
        into_new_file(tmp_path / "late.mp4", late)
    assert (tmp_path / "late.mp4").read_bytes() == b"another's" and len(os.listdir(tmp_path)) == 2


def test_damaged_films_are_named_and_the_others_are_cut(films, tmp_path: Path) -> None:
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(films["film.mkv"].read_bytes()[:300])
    summary = holmes.cut(answer(broken, films["film.mkv"], "/gone.mp4"), tmp_path / "clips")
    assert [Path(file.file).name for file in summary.files] == ["02-film-0m01.mp4"]
    assert [video for video, _ in summary.failures] == [str(broken), "/gone.mp4"]
    with pytest.raises(HolmesError, match=r"nothing could be cut; /gone\.mp4: it does not exist"):
        holmes.cut(answer("/gone.mp4"), tmp_path / "none")


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("../../etc/passwd", "etc-passwd"), ("-rf", "rf"), (".hidden", "hidden"), ("a\n\x1b[31mb", "a-31mb"),
        ("…", "clip"), ("Ünïcode été", "Ünïcode-été"), ("\udcff", "clip"), ("x" * 300, "x" * 40),
    ],
)  # fmt: skip
def test_hostile_names_become_plain_ones(name: str, file: str) -> None:
    assert slug(name) == file
    clips = [type("Clip", (), {"video": f"/films/{name}.mp4", "start": 3725.0})()]
    (made,) = clip_names(clips)
    assert "/" not in made and made.startswith("01-") and made.endswith("1m02m05.mp4")


def test_the_commands_say_how_sure_the_answer_is_and_name_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known_encoders(monkeypatch, FakeJoint())
    index = build(tmp_path)
    explanation = holmes.open_index(index, device="cpu").search("dog runs beach").diagnosis.explanation
    words = [str(index), "dog runs beach", "--at-least", "0", "--top", "1", "--out"]
    for command, out, made in (("cut", "clips", "1 file in"), ("export", "dogs.edl", "1 clip at")):
        told = CliRunner().invoke(app, [command, *words, str(tmp_path / out)], catch_exceptions=False).output
        assert explanation in told and made in told
    assert [path.name for path in (tmp_path / "clips").iterdir()] == ["01-coast-0m04.mp4"]

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("holmes.editing.cut.write_clip", full)
    error = CliRunner().invoke(app, ["cut", *words, str(tmp_path / "full")]).exception
    assert isinstance(error, OSError) and error.filename == str(tmp_path / "full/01-coast-0m04.mp4")
    assert list((tmp_path / "full").iterdir()) == []
