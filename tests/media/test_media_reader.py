from __future__ import annotations

import os
import random
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("av")
import av
from PIL import Image as Pillow

from holmes.media.containers import VideoError
from holmes.media.reader import LONGEST_HOLD, Scaler, VideoReader
from holmes.media.sampled_packets import SampledPackets
from media_files import gray_video, long_sound, moving_video, sound, turn_clockwise, video


def levels(samples: list) -> list[int]:
    return [round(float(sample.image.mean())) for sample in samples]


def near(found: list[int], wanted: list[int]) -> bool:
    return len(found) == len(wanted) and max(abs(f - w) for f, w in zip(found, wanted, strict=True)) <= 4


def count_decoded(reader: VideoReader) -> list[int]:
    """A list of one number: the frames that the reader has been given by the decoder."""
    count, decode = [0], reader._decode

    def counting(*arguments: object) -> Iterator[object]:
        for frame in decode(*arguments):
            count[0] += 1
            yield frame

    reader._decode = counting
    return count


def test_samples_are_what_is_on_the_screen_at_their_times(tmp_path: Path) -> None:
    shades = list(range(20, 220, 10))
    path = gray_video(tmp_path / "steady.mp4", shades, [i / 10 for i in range(20)])
    reader = VideoReader(path, rate=2.0)
    samples = list(reader)
    assert [sample.time for sample in samples] == [0.25, 0.75, 1.25, 1.75]
    assert near(levels(samples), [shades[2], shades[7], shades[12], shades[17]])
    assert reader.duration == pytest.approx(2.0, abs=0.11)
    assert reader.note == ""


def test_uneven_times_hold_the_last_picture(tmp_path: Path) -> None:
    path = gray_video(tmp_path / "uneven.mkv", [40, 80, 160, 200], [0.0, 0.1, 2.6, 2.7])
    samples = list(VideoReader(path, rate=1.0))
    assert [sample.time for sample in samples][:3] == [0.5, 1.5, 2.5]
    assert near(levels(samples)[:3], [80, 80, 80])


def test_a_long_pause_is_not_filled_without_end(tmp_path: Path) -> None:
    path = gray_video(tmp_path / "pause.mkv", [40, 200, 200], [0.0, 1000.0, 1001.0])
    samples = list(VideoReader(path, rate=1.0))
    assert len(samples) <= LONGEST_HOLD + 4
    assert samples[-1].time == pytest.approx(1000.5, abs=1.1)


def test_pictures_that_are_the_same_are_one(tmp_path: Path) -> None:
    """Slides: 20 frames a second of which only a few differ; an encoder sees each picture once."""
    shades = [40] * 60 + [160] * 60 + [40] * 20
    path = gray_video(tmp_path / "slides.mp4", shades, [i / 20 for i in range(140)])
    samples = list(VideoReader(path, rate=2.0))
    assert len(samples) == 14
    assert [id(sample.image) for sample in samples] == [
        id(samples[0].image) if at < 6 else id(samples[6].image) if at < 12 else id(samples[12].image)
        for at in range(14)
    ]
    assert near(levels(samples), [40] * 6 + [160] * 6 + [40] * 2)


def test_a_video_shorter_than_a_step_still_gives_a_sample(tmp_path: Path) -> None:
    path = gray_video(tmp_path / "blink.mp4", [90], [0.0])
    assert near(levels(list(VideoReader(path, rate=0.1))), [90])


def test_turned_videos_come_upright(tmp_path: Path) -> None:
    image = np.zeros((48, 64, 3), np.uint8)
    image[:, :32] = (255, 0, 0)  # red on the left as stored: on top when shown a quarter turn clockwise
    path = turn_clockwise(video(tmp_path / "phone.mp4", [image] * 10, [i / 10 for i in range(10)]))
    shown = next(iter(VideoReader(path, rate=2.0))).image
    assert shown.shape == (64, 48, 3)
    assert shown[:24, :, 0].mean() > 200 and shown[40:, :, 0].mean() < 50


def test_pixels_come_square_and_large_frames_small(tmp_path: Path) -> None:
    wide = gray_video(tmp_path / "disc.mp4", [90] * 5, [i / 5 for i in range(5)], pixel_aspect=Fraction(2))
    assert next(iter(VideoReader(wide, rate=2.0))).image.shape == (48, 128, 3)
    large = gray_video(tmp_path / "large.mp4", [90] * 5, [i / 5 for i in range(5)], size=(640, 320))
    assert next(iter(VideoReader(large, 2.0, largest_side=100))).image.shape == (100, 200, 3)


def test_skipping_unneeded_frames_keeps_times_and_pictures(tmp_path: Path) -> None:
    """At 50 frames per second the decoder leaves out frames that no other needs."""
    count = 250
    path = gray_video(tmp_path / "fast.mp4", [i for i in range(count)], [i / 50 for i in range(count)])
    samples = list(VideoReader(path, rate=2.0))
    assert [s.time for s in samples] == [0.25 + i / 2 for i in range(10)]
    assert all(abs(level - 50 * s.time) <= 10 for level, s in zip(levels(samples), samples, strict=True))


@pytest.mark.parametrize("form", ["yuv420p", "yuvj420p", "yuv444p", "yuv420p10le", "gray", "nv12", "bgr24"])
@pytest.mark.parametrize("space", [1, 5])  # of high and of standard definition
def test_colours_stay_when_frames_are_scaled(form: str, space: int) -> None:
    """Scaled before they become RGB, pictures look as if scaled after."""
    rng = np.random.default_rng(0)
    image = rng.integers(0, 255, (9, 16, 3), dtype=np.uint8).repeat(40, 0).repeat(40, 1)
    frame = av.VideoFrame.from_ndarray(image, format="rgb24").reformat(format=form)
    frame.colorspace = space
    whole = Pillow.fromarray(frame.reformat(format="rgb24").to_ndarray())
    wanted = np.asarray(whole.resize((160, 90), Pillow.Resampling.BOX), np.float32)
    found = Scaler().rgb(frame, 160, 90)
    assert found.shape == (90, 160, 3)
    assert np.abs(found[5::10, 5::10] - wanted[5::10, 5::10]).max() <= 6  # in the middle of each colour
    assert np.abs(found - wanted).mean() <= 3


MOVING = [
    ("x264.mp4", "libx264", {"bf": "3", "b-pyramid": "normal", "g": "30"}),
    ("open.mkv", "libx264", {"bf": "3", "x264-params": "open-gop=1:keyint=25:scenecut=0"}),
    ("refresh.mp4", "libx264", {"x264-params": "intra-refresh=1:keyint=25"}),
    ("broadcast.ts", "libx264", {"bf": "2", "g": "25"}),
    ("x265.mp4", "libx265", {"x265-params": "keyint=30:log-level=none"}),
    ("layers.mkv", "libx265", {"x265-params": "temporal-layers=3:b-adapt=0:bframes=7:log-level=none"}),
    ("intra.mp4", "libx264", {"g": "1"}),
    ("stills.avi", "mjpeg", {}),
    ("web.webm", "libvpx-vp9", {"g": "20", "cpu-used": "8", "deadline": "realtime"}),
    ("old.mp4", "mpeg4", {"g": "12", "bf": "2"}),
]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("name", "codec", "options"), MOVING, ids=[name for name, *_ in MOVING])
def test_samples_are_those_of_full_decoding(
    tmp_path: Path, name: str, codec: str, options: dict[str, str], threads: int
) -> None:
    """What no sample shows need not be decoded; what they show is the same to the last bit."""
    path = moving_video(tmp_path / name, codec, options, frames=200)
    with av.open(str(path)) as container:
        every = [(float(frame.time), frame.to_ndarray(format="rgb24")) for frame in container.decode(video=0)]
        begin = float(container.start_time or 0) / 1_000_000
    for rate in (0.7, 2.0, 9.0, 60.0):
        reader = VideoReader(path, rate, threads=threads)
        decoded = count_decoded(reader)
        samples = list(reader)
        assert [s.time for s in samples] == pytest.approx([(k + 0.5) / rate for k in range(len(samples))])
        assert len(samples) >= int(7.9 * rate)
        for sample in samples:
            wanted = [image for time, image in every if time - begin <= sample.time + 1e-6][-1]
            assert (sample.image == wanted).all()
        assert reader.note == "" and reader.duration == pytest.approx(8.0, abs=0.1)
        if rate == 0.7 and name in ("x264.mp4", "x265.mp4", "intra.mp4", "stills.avi", "web.webm"):
            assert decoded[0] < 0.8 * len(every)


def test_key_frames_alone_stand_for_all_where_they_are_dense(tmp_path: Path) -> None:
    for spacing, dense in ((1.0, True), (1.8, True), (3.0, False)):
        options = {"g": str(round(25 * spacing)), "x264-params": "scenecut=0"}
        path = moving_video(tmp_path / f"{spacing}.mp4", "libx264", options, frames=200)
        whole, fast = VideoReader(path, 2.0), VideoReader(path, 2.0, fast=True)
        decoded = count_decoded(fast)
        wanted, found = list(whole), list(fast)
        assert [s.time for s in found] == [s.time for s in wanted] == [0.25 + k / 2 for k in range(16)]
        assert fast.duration == pytest.approx(whole.duration, abs=0.05) and not fast.note
        assert (decoded[0] <= 8.0 / spacing + 1) == dense
        for sample in found if dense else ():
            key = spacing * int(sample.time / spacing)
            assert (sample.image == VideoReader(path, 2.0).at(key + 0.01)).all()


def test_frames_of_lower_layers_are_kept(tmp_path: Path) -> None:
    """In H.265 with layers, what the frame's own layer does not need may be needed by a higher one."""
    marked = {}
    for name, codec, options in MOVING:
        path = moving_video(tmp_path / name, codec, options, frames=200)
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            packets = SampledPackets(container.demux(stream), stream, lambda start, end: False)
            marked[name] = [shown for _, shown in packets]
    assert all(marked["layers.mkv"]) and not all(marked["x265.mp4"])
    assert len(marked["intra.mp4"]) < 40  # independent frames that are not shown are dropped


ODD_NAMES = ["-", "a b.mp4", "frame%03d.mp4", "concat:x.mp4", "new\nline.mp4", "фильм 🎬.mp4", "[a]*.mp4"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_only_names(tmp_path: Path, name: str) -> None:
    path = gray_video(tmp_path / "plain.mp4", [90] * 5, [i / 5 for i in range(5)]).rename(tmp_path / name)
    assert near(levels(list(VideoReader(path, rate=1.0))), [90])


def test_names_that_are_no_text_and_links(tmp_path: Path) -> None:
    path = gray_video(tmp_path / "plain.mp4", [90] * 5, [i / 5 for i in range(5)])
    link = tmp_path / "link.mp4"
    link.symlink_to(path)
    assert near(levels(list(VideoReader(link, rate=1.0))), [90])
    strange = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe.mp4"))
    path.rename(strange)
    assert near(levels(list(VideoReader(strange, rate=1.0))), [90])
    with pytest.raises(VideoError, match="leads nowhere"):
        list(VideoReader(link, rate=1.0))


def test_what_is_no_video_has_a_reason(tmp_path: Path) -> None:
    (tmp_path / "empty.mp4").touch()
    (tmp_path / "text.mp4").write_text("not a video " * 100)
    os.mkfifo(tmp_path / "pipe.mp4")
    sound(tmp_path / "song.wav")
    reasons = {
        "absent.mp4": "does not exist",
        "empty.mp4": "empty",
        "text.mp4": "not a video file",
        "song.wav": "no video track, only sound",
        "pipe.mp4": "not a file",
        ".": "not a file",
    }
    for name, reason in reasons.items():
        with pytest.raises(VideoError, match=reason) as caught:
            list(VideoReader(tmp_path / name, rate=1.0))
        assert "\n" not in str(caught.value)


def test_a_file_cut_short_gives_what_it_has(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    noise = [rng.integers(0, 255, (48, 64, 3), np.uint8) for _ in range(100)]
    whole = video(tmp_path / "whole.mkv", noise, [i / 10 for i in range(100)])
    cut = tmp_path / "cut.mkv"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    reader = VideoReader(cut, rate=2.0)
    assert 5 <= len(list(reader)) <= 15
    assert f"pictures for {reader.duration:.1f} of its 9.9 seconds" in reader.note


def test_sound_that_outlasts_the_pictures_is_no_fault(tmp_path: Path) -> None:
    """The file lasts 8 s, its pictures 2 s, and their track says so."""
    path = long_sound(tmp_path / "film.mp4", pictures=2, seconds=8)
    reader = VideoReader(path, rate=1.0)
    assert len(list(reader)) == 2 and reader.note == ""


def sound_before_pictures(path: Path, times: list[float]) -> Path:
    """Silence from the start, in packets of a tenth of a second, and black pictures at these times."""
    coming = [round(10 * time) for time in times]
    with av.open(
        str(path), "w", options={"movflags": "faststart"} if path.suffix == ".mov" else {}
    ) as container:
        pictures, tones = (
            container.add_stream("libx264", rate=10),
            container.add_stream("pcm_s16le", rate=8000),
        )
        pictures.width = pictures.height = 64
        pictures.pix_fmt, tones.layout = "yuv420p", "mono"
        for tenth in range(coming[-1] + 1):
            silence = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), "s16", "mono")
            silence.sample_rate, silence.pts, silence.time_base = 8000, 800 * tenth, Fraction(1, 8000)
            container.mux(tones.encode(silence))
            if tenth in coming:
                frame = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), format="rgb24")
                frame.pts, frame.time_base = tenth, Fraction(1, 10)
                container.mux(pictures.encode(frame))
        container.mux(pictures.encode(None))
    return path


@pytest.mark.parametrize("late", [3.0, 90.0])
def test_pictures_that_come_after_the_sound_keep_their_times(tmp_path: Path, late: float) -> None:
    path = sound_before_pictures(tmp_path / "late.mkv", [late + number / 10 for number in range(20)])
    reader = VideoReader(path, 2.0)
    assert [sample.time for sample in reader] == [late + 0.25, late + 0.75, late + 1.25, late + 1.75]
    assert reader.start == late and reader.duration == pytest.approx(late + 2, abs=0.11) and not reader.note


@pytest.mark.parametrize("suffix", [".mov", ".mkv"])
def test_late_pictures_that_are_cut_short_are_noted(tmp_path: Path, suffix: str) -> None:
    times = [90 + number / 10 for number in range(300)]
    path = sound_before_pictures(tmp_path / f"film{suffix}", times)
    path.write_bytes(path.read_bytes()[: round(0.85 * path.stat().st_size)])
    reader = VideoReader(path, 2.0)
    assert 10 <= len(list(reader)) <= 40
    assert f"it has pictures for {reader.duration - 90:.1f} of its" in reader.note


def test_pictures_between_two_samples_still_give_one(tmp_path: Path) -> None:
    path = sound_before_pictures(tmp_path / "rare.mkv", [55.0, 210.0])
    assert len(list(VideoReader(path, 0.01))) == 1


@pytest.mark.parametrize("kind", ["playlist", "list", "session"])
def test_a_file_that_names_others_opens_none(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gray_video(tmp_path / "film.mp4", [40] * 10, [i / 10 for i in range(10)])
    monkeypatch.chdir(tmp_path)
    lines = {
        "playlist": "#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\nfilm.mp4\n#EXT-X-ENDLIST\n",
        "list": "ffconcat version 1.0\nfile film.mp4\n",
        "session": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\n"
        "a=rtpmap:96 H264/90000\n",
    }
    other = tmp_path / ("other.m3u8" if kind == "playlist" else "other.mp4")
    other.write_text(lines[kind])
    with pytest.raises(VideoError, match="not a video file"):
        list(VideoReader(other, 2.0))


@pytest.mark.parametrize("suffix,codec", [(".mp4", "libx264"), (".mkv", "libx264"), (".avi", "mpeg4")])
def test_damaged_bytes_give_samples_or_one_line(tmp_path: Path, suffix: str, codec: str) -> None:
    chance = random.Random(0)
    whole = gray_video(tmp_path / f"whole{suffix}", range(40, 90), [i / 10 for i in range(50)], codec=codec)
    original = whole.read_bytes()
    read = 0
    for attempt in range(40):
        data = bytearray(original)
        if attempt % 4 == 0:
            del data[chance.randrange(len(data)) :]
        elif attempt % 4 == 1:  # a huge number in the headers
            place = chance.randrange(min(len(data), 600))
            data[place : place + 4] = b"\x7f\xff\xff\xff"
        else:
            for _ in range(chance.choice([1, 5, 50])):
                data[chance.randrange(len(data))] = chance.randrange(256)
        path = tmp_path / f"damaged{suffix}"
        path.write_bytes(data)
        try:
            samples = list(VideoReader(path, rate=2.0, largest_side=64))
        except VideoError as error:
            assert "\n" not in str(error)
        else:
            read += 1
            times = [sample.time for sample in samples]
            assert times == sorted(times)
    assert read > 5  # light damage does not cost the whole file
