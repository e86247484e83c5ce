"""Timelines hold the very frames of the film: read by others' parsers, decoded whole."""

from __future__ import annotations

import csv
import io
import random
import re
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree

import av
import opentimelineio as otio
import pycmx
import pytest
from timecode import Timecode

import holmes
from holmes.editing.clips import choose_clips
from holmes.editing.export import adapters, content_of
from holmes.editing.timeline import lay_out, parse_rate
from holmes.errors import HolmesError
from holmes.evidence.judging import Diagnosis
from holmes.index.answer.answers import Answer, Hit
from holmes.media.source_frames import choose_rate
from holmes.moments import Moment
from rated_films import frames_in, rated_film, uneven_times

NTSC_FILM, NTSC, PAL = Fraction(24000, 1001), Fraction(30000, 1001), Fraction(25)
MOMENTS = (
    (2.02, 3.0, 0.7),
    (1.0, 2.02, 0.9),
    (3.5, 99.0, 0.6),
)  # best first, out of order, one beyond the end
HOUR = {NTSC_FILM: 86400, NTSC: 107892, PAL: 90000, Fraction(60): 216000}  # frames before 01:00:00:00
NAMES = {NTSC_FILM: "23.976", NTSC: "29.97", PAL: "25", Fraction(60): "60"}


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("films")
    return {
        "23.976": rated_film(folder / "a b & <film>.mp4", NTSC_FILM, 110, sound=True),
        "23.976 mkv": rated_film(folder / "film.mkv", NTSC_FILM, 110),
        "29.97": rated_film(folder / "drop.mov", NTSC, 140, sound=True, channels=1, timecode="00:59:58;20"),
        "25": rated_film(folder / "pal.mp4", PAL, 120, sound=True),
        "uneven": rated_film(folder / "phone.mp4", times=uneven_times()),
    }


RATE_OF = {"23.976": NTSC_FILM, "23.976 mkv": NTSC_FILM, "29.97": NTSC, "25": PAL, "uneven": Fraction(60)}
FILM_START = {"29.97": 107892 - 40}  # the frame number of its first timecode


def hit(video: Path | str, probability: float | None = 0.8, moments=MOMENTS) -> Hit:
    found = tuple(Moment(start, end, score) for start, end, score in moments)
    return Hit(str(video), 0.9, 0.5, probability, found, "fits")


def answer(*hits: Hit, query: str = "a dog runs") -> Answer:
    return Answer(query, Diagnosis(beliefs=(), quantities={}), tuple(hits))


def on_screen(film: Path, seconds: Fraction | float) -> int:
    """The number of the frame on the screen, decoding everything; Matroska's clock has milliseconds."""
    slack = 6e-4 if film.suffix == ".mkv" else 1e-5
    return [number for time, number in frames_in(film) if time <= seconds + slack][-1]


def expected(film: Path, moments=MOMENTS) -> list[tuple[int, int]]:
    """First and last film frame of each moment, in its order; frames of two go to the first."""
    spans, used = [], -1
    for start, end, _ in sorted(moments):
        first = max(on_screen(film, start), used + 1)
        last = max(number for time, number in frames_in(film) if time < end - 6e-4)
        if last >= first:
            spans.append((first, last))
            used = last
    return spans


def shown(film: Path, rate: Fraction, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """First and last film frame that a clip of these steady frames shows."""
    return [(on_screen(film, first / rate), on_screen(film, (after - 1) / rate)) for first, after in ranges]


@pytest.fixture(scope="module", params=RATE_OF)
def case(request, films) -> tuple[str, Path, Fraction, list[tuple[int, int]]]:
    film = films[request.param]
    return request.param, film, RATE_OF[request.param], expected(film)


def written(found: Answer, format: str, **how) -> bytes:
    return content_of(lay_out(choose_clips(found), found.query, **how), format)


def test_otio_holds_the_frames_of_the_film(case) -> None:
    name, film, rate, frames = case
    timeline = otio.adapters.read_from_string(written(answer(hit(film)), "otio").decode(), "otio_json")
    start = FILM_START.get(name, 0)
    pictures = next(track for track in timeline.tracks if track.kind == "Video")
    ranges = [clip.source_range for clip in pictures]
    assert all(each.start_time.rate == pytest.approx(float(rate)) for each in ranges)
    found = [
        (int(each.start_time.value) - start, int(each.end_time_exclusive().value) - start) for each in ranges
    ]
    assert shown(film, rate, found) == frames
    assert timeline.global_start_time.value == HOUR[rate]
    for clip in pictures:
        available = clip.media_reference.available_range
        assert available.start_time.value == start
        assert available.end_time_exclusive() >= clip.source_range.end_time_exclusive()
        assert clip.media_reference.target_url == film.as_uri()
        assert (
            clip.metadata["holmes"]["query"] == "a dog runs"
            and clip.markers[0].marked_range.duration.value == 1
        )
    sound = [track for track in timeline.tracks if track.kind == "Audio"]
    with av.open(str(film)) as container:
        assert bool(sound) == bool(container.streams.audio)
    if sound:
        assert [clip.source_range for clip in sound[0]] == ranges
    assert [clip.metadata["holmes"]["score"] for clip in pictures] == [0.9, 0.7, 0.6], (
        "of the moment, in film order"
    )


def test_an_edl_holds_the_same_frames_end_to_end(case) -> None:
    name, film, rate, frames = case
    text = written(answer(hit(film)), "edl").decode()
    events = list(pycmx.parse_cmx3600(io.StringIO(text)).events)
    edits = [event.edits[0] for event in events]

    def number(code: str) -> int:
        return Timecode(NAMES[rate], code).frames - 1

    found = [(number(edit.source_in), number(edit.source_out)) for edit in edits]
    start = FILM_START.get(name, 0)
    assert shown(film, rate, [(first - start, after - start) for first, after in found]) == frames
    at = HOUR[rate]
    for edit, (first, after) in zip(edits, found, strict=True):
        assert (number(edit.record_in), number(edit.record_out)) == (at, at + after - first)
        at += after - first
    assert ("FCM: DROP FRAME" in text) == (rate == NTSC) == (";" in text)
    channels = {"23.976": (True, {1, 2}), "29.97": (True, {1}), "25": (True, {1, 2})}.get(name, (True, set()))
    for edit in edits:
        assert (edit.channels.video, {*edit.channels.channels}) == channels
    read = otio.adapters.read_from_string(text, "cmx_3600", rate=float(rate))
    clips = [clip for track in read.tracks if track.kind == "Video" for clip in track.find_clips()]
    assert [clip.media_reference.target_url for clip in clips] == [film.as_uri()] * 3, "linked"
    assert [clip.name for clip in clips] == [film.name] * 3


def seconds(text: str) -> Fraction:
    """A time of FCPXML."""
    assert re.fullmatch(r"\d+(/\d+)?s", text), text
    return Fraction(text[:-1])


def test_fcpxml_holds_the_same_frames_as_exact_fractions(case) -> None:
    _, film, rate, frames = case
    root = ElementTree.fromstring(written(answer(hit(film)), "fcpxml"))
    formats = {each.get("id"): seconds(each.get("frameDuration")) for each in root.iter("format")}
    (asset,) = root.iter("asset")
    sequence = root.find("./library/event/project/sequence")
    assert formats[asset.get("format")] == formats[sequence.get("format")] == 1 / rate
    assert asset.find("media-rep").get("src") == film.as_uri()
    assert sequence.get("tcFormat") == ("DF" if rate == NTSC else "NDF")
    at, found = seconds(sequence.get("tcStart")), []
    assert at * rate == HOUR[rate]
    for clip in sequence.find("spine"):
        first = (seconds(clip.get("start")) - seconds(asset.get("start"))) * rate
        length = seconds(clip.get("duration")) * rate
        assert first.denominator == length.denominator == 1 and seconds(clip.get("offset")) == at
        found.append((int(first), int(first + length)))
        at += seconds(clip.get("duration"))
    assert shown(film, rate, found) == frames
    assert at == seconds(sequence.get("tcStart")) + seconds(sequence.get("duration"))
    with av.open(str(film)) as container:
        sound = [stream.channels for stream in container.streams.audio]
    assert asset.get("audioChannels") == (str(sound[0]) if sound else None)
    if rate == PAL:  # the adapter knows whole rates only
        read = otio.adapters.read_from_string(written(answer(hit(film)), "fcpxml").decode(), "fcpx_xml")
        clips = [clip for timeline in read for clip in timeline.find_clips()]
        values = [clip.source_range for clip in clips]
        assert [(each.start_time.value, each.end_time_exclusive().value) for each in values] == found


def read_by_others(found: Answer, rate: Fraction) -> dict[str, list[tuple[int, int]]]:
    """The frames of each clip in its film, by format, as libraries that are not ours read them.

    FCPXML is read by an XML parser and exact fractions: opentimelineio's adapter cuts floats (29/25 s is
    frame 28 to it) and knows whole rates only.
    """
    otio_text, edl, fcpxml = (written(found, format).decode() for format in ("otio", "edl", "fcpxml"))
    timeline = otio.adapters.read_from_string(otio_text, "otio_json")
    pictures = next(track for track in timeline.tracks if track.kind == "Video")
    ranges = [clip.source_range for clip in pictures]
    edits = [event.edits[0] for event in pycmx.parse_cmx3600(io.StringIO(edl)).events]
    codes = [[Timecode(NAMES[rate], code) for code in (edit.source_in, edit.source_out)] for edit in edits]
    assets = ElementTree.fromstring(fcpxml).iter("asset-clip")
    clips = [(seconds(each.get("start")), seconds(each.get("duration"))) for each in assets]
    read = {
        "otio": [(each.start_time.value, each.end_time_exclusive().value) for each in ranges],
        "edl": [(first.frames - 1, after.frames - 1) for first, after in codes],
        "fcpxml": [(start * rate, (start + length) * rate) for start, length in clips],
    }
    return read


def test_random_timelines_hold_the_frames_of_the_film(case) -> None:
    name, film, rate, _ = case
    rng, start = random.Random(7), FILM_START.get(name, 0)
    times = [time for time, _ in frames_in(film)]
    for _ in range(25):
        edges = sorted(rng.uniform(0, times[-1]) for _ in range(2 * rng.randint(1, 5)))
        while any(
            abs(edge - time) < 1e-3 for edge in edges for time in times
        ):  # Matroska counts milliseconds
            edges = sorted(rng.uniform(0, times[-1]) for _ in edges)
        moments = [(*pair, rng.random()) for pair in zip(edges[::2], edges[1::2], strict=True)]
        rng.shuffle(moments)
        wanted = expected(film, moments)
        for format, found in read_by_others(answer(hit(film, moments=moments)), rate).items():
            own = [(int(first) - start, int(after) - start) for first, after in found]
            assert shown(film, rate, own) == wanted, (format, moments)
            assert all(value == int(value) for pair in found for value in pair), "whole frames"


def test_markers_and_chapters_are_at_the_clips(case) -> None:
    _, film, rate, _ = case
    found = answer(hit(film))
    rows = list(csv.DictReader(io.StringIO(written(found, "markers").decode())))
    edl = [
        event.edits[0] for event in pycmx.parse_cmx3600(io.StringIO(written(found, "edl").decode())).events
    ]
    columns = ("Source In", "Source Out", "Record In", "Record Out")
    assert [[row[column] for column in columns] for row in rows] == [
        [edit.source_in, edit.source_out, edit.record_in, edit.record_out] for edit in edl
    ]
    markers = written(found, "markers-edl").decode()
    assert re.findall(r"^\d{3}  001 +V +C +(\S+)", markers, re.M) == [row["Record In"] for row in rows]
    lengths = [after - first for first, after in read_source_ranges(film)]
    assert [int(length) for length in re.findall(r"\|D:(\d+)$", markers, re.M)] == lengths
    with av.open(io.BytesIO(written(found, "vtt")), format="webvtt") as container:
        cues = [(packet.pts, packet.pts + packet.duration) for packet in container.demux() if packet.size]
    at, edges = 0, []
    for length in lengths:
        edges.append((round(1000 * at / rate), round(1000 * (at + length) / rate)))
        at += length
    assert cues == edges
    listed = written(found, "youtube").decode().splitlines()
    assert [line.split()[0] for line in listed] == [f"0:{start // 1000:02}" for start, _ in edges]


def read_source_ranges(film: Path) -> list[tuple[int, int]]:
    edits = lay_out(choose_clips(answer(hit(film))), "x").edits
    return [(edit.source_in, edit.source_out) for edit in edits]


def test_a_table_has_the_query_and_the_score_of_each_moment(films, tmp_path: Path) -> None:
    found = answer(hit(films["25"]), hit("/films/=cmd|' /C calc'!A0.mp4"), query="=a dog")
    rows = list(csv.DictReader(io.StringIO(written(found, "csv").decode())))
    assert [row["score"] for row in rows] == ["0.9", "0.7", "0.6"] * 2 and {row["query"] for row in rows} == {
        "'=a dog"
    }
    assert rows[3]["probability"] == "0.8" and rows[0]["video_score"] == "0.9"


def test_improbable_hits_are_left_out_unless_asked_for(films) -> None:
    found = answer(hit(films["25"], 0.8), hit(films["23.976"], 0.09), hit(films["29.97"], 0.005))
    assert {clip.rank for clip in choose_clips(found)} == {1}
    assert {clip.rank for clip in choose_clips(found, at_least=0.01)} == {1, 2}
    assert {clip.rank for clip in choose_clips(found, at_least=0, top=2)} == {1, 2}
    assert {clip.rank for clip in choose_clips(found, at_least=None)} == {1, 2, 3}
    partly = answer(hit(films["25"], 0.8), hit(films["23.976"], None))
    assert {clip.rank for clip in choose_clips(partly)} == {1}, "beyond the calibrated candidates"
    assert {clip.rank for clip in choose_clips(answer(hit(films["25"], None)))} == {1}, "never calibrated"


def test_padding_joins_what_then_overlaps(films) -> None:
    clips = choose_clips(answer(hit(films["25"])), pad=0.1)
    assert [(clip.start, clip.end) for clip in clips] == [(0.9, 3.1), (3.4, 99.1)]
    assert clips[0].score == 0.9
    _, last = lay_out(clips, "x").edits
    assert last.source_out == 120, "never beyond the film"


def test_films_of_several_rates_share_a_timeline(films) -> None:
    one, two = [(1.0, 2.0, 0.5)], [(1.0, 2.0, 0.5), (3.0, 4.0, 0.4)]
    found = answer(hit(films["25"], moments=two), hit(films["23.976"], moments=one))
    edits = lay_out(choose_clips(found), "x")
    assert edits.rate == 25 and [edit.record_out - edit.record_in for edit in edits.edits] == [25, 25, 26]
    root = ElementTree.fromstring(content_of(edits, "fcpxml"))
    conformed = [clip.find("conform-rate") for clip in root.iter("asset-clip")]
    assert [each is not None and each.get("srcFrameRate") for each in conformed] == [False, False, "23.98"]
    assert lay_out(choose_clips(found), "x", parse_rate("29.97")).rate == NTSC


@pytest.mark.parametrize(
    ("given", "rate"),
    [
        ("25", PAL),
        ("29.97", NTSC),
        ("23.976", NTSC_FILM),
        ("23.98", NTSC_FILM),
        ("30000/1001", NTSC),
        ("24", Fraction(24)),
    ],
)
def test_rates_as_people_write_them(given: str, rate: Fraction) -> None:
    assert parse_rate(given) == rate


@pytest.mark.parametrize("given", ["0", "26", "x", "1/0", "-25", "nan"])
def test_rates_without_timecodes_are_refused(given: str) -> None:
    with pytest.raises(HolmesError, match=r"has no timecodes; write 23\.976"):
        parse_rate(given)


def test_frames_are_counted_at_the_rate_that_fits_them() -> None:
    times = [n / 29.97002997 for n in range(50)]
    assert choose_rate(times, [NTSC]) == (NTSC, False)
    assert choose_rate([round(time, 3) for time in times], [NTSC], 0.001) == (NTSC, False)
    assert choose_rate([0, 0.04, 0.05, 0.2], [PAL]) == (Fraction(100), True)
    assert choose_rate([0, 0.016, 0.05], [Fraction(30)], 0.001) == (Fraction(60000, 1001), True)


def test_export_writes_what_the_name_says_and_replaces_nothing(films, tmp_path: Path) -> None:
    found = answer(hit(films["25"]), hit("/gone/film.mp4", 0.05))
    summary = holmes.export(found, tmp_path / "dogs.markers.csv")
    assert (summary.format, summary.clips, summary.improbable, summary.rate) == ("markers", 3, 1, 25.0)
    with pytest.raises(HolmesError, match="exists; choose another name"):
        holmes.export(found, tmp_path / "dogs.markers.csv")
    before = (tmp_path / "dogs.markers.csv").read_bytes()
    holmes.export(found, tmp_path / "dogs.markers.csv", replace=True)
    assert (tmp_path / "dogs.markers.csv").read_bytes() == before
    gone = holmes.export(found, tmp_path / "all.txt", at_least=0)
    assert "1 of the films cannot be read" in gone.notes[0] and "YouTube" in gone.notes[1]
    with pytest.raises(HolmesError, match=r"the format of .* is unknown; use .* \.otio"):
        holmes.export(found, tmp_path / "dogs.doc")
    with pytest.raises(HolmesError, match=r"has a probability of at least 90% \(best: 80%\)"):
        holmes.export(found, tmp_path / "x.edl", at_least=0.9)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.txt", "dogs.markers.csv"]
    assert "edl" not in adapters(), "ours has sound and drop frames"


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    """Line breaks, markup and bytes that are not text neither break a file nor reach another place."""
    name = "/films/a\n* FROM CLIP: x|M:<b>&\udcff]]>.mp4"
    found = answer(hit(name), query="x --> y\n<v>|D:9")
    for format in ("otio", "edl", "fcpxml", "markers", "markers-edl", "vtt", "youtube"):
        text = written(found, format).decode()
        assert "\n* FROM CLIP: x" not in text
    assert len(list(csv.reader(io.StringIO(written(found, "csv").decode())))) == 4
    assert len(list(ElementTree.fromstring(written(found, "fcpxml")).iter("asset-clip"))) == 3
    assert len(list(pycmx.parse_cmx3600(io.StringIO(written(found, "edl").decode())).events)) == 3
    assert written(found, "vtt").decode().count("-->") == 3
    assert written(found, "markers-edl").decode().count("|D:") == 3
