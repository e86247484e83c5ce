"""Subtitle files of every kind and state, and text streams inside video files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holmes.errors import HolmesError
from holmes.heard.passages import Passage, WordSource, clean, joined, within
from holmes.heard.subtitles import beside, read_embedded, read_subtitles

SRT = """1
00:00:01,000 --> 00:00:02,500
The engine would
not start.

2
00:00:04,000 --> 00:00:05,000
<i>Good</i> {\\an8}evening
"""
VTT = """WEBVTT

00:01.000 --> 00:02.500
The engine would not start.

00:04.000 --> 00:05.000
Good evening
"""
ASS = """[Script Info]
ScriptType: v4.00+

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
Dialogue: 0,0:00:01.00,0:00:02.50,Default,,0,0,0,,The engine would\\Nnot start.
Dialogue: 0,0:00:04.00,0:00:05.00,Default,,0,0,0,,{\\b1}Good{\\b0} evening
Comment: 0,0:00:06.00,0:00:07.00,Default,,0,0,0,,not shown
"""
WHISPER = {
    "segments": [
        {"start": 1.0, "end": 2.5, "text": " The engine would not start."},
        {"start": 4.0, "end": 5.0, "text": " Good evening"},
    ]
}
CPP = {
    "transcription": [
        {"offsets": {"from": 1000, "to": 2500}, "text": "The engine would not start."},
        {"offsets": {"from": 4000, "to": 5000}, "text": "Good evening"},
    ]
}
EXPECTED = [(1.0, 2.5, "The engine would not start."), (4.0, 5.0, "Good evening")]


@pytest.mark.parametrize(
    ("suffix", "content"),
    [(".srt", SRT), (".vtt", VTT), (".ass", ASS), (".json", json.dumps(WHISPER)), (".json", json.dumps(CPP))],
)
def test_every_form_gives_the_same_passages(tmp_path: Path, suffix: str, content: str) -> None:
    path = tmp_path / f"film{suffix}"
    path.write_text(content)
    found = read_subtitles(path)
    assert [(p.start, p.end, p.text) for p in found] == EXPECTED
    assert {p.source for p in found} == {WordSource.SUBTITLES}


GERMAN, FRENCH = "Über den Café-Straßen führt ein Weg", "Le café était fermé à huit heures"
RUSSIAN, POLISH = "Двигатель трактора не завёлся утром", "Zażółć gęślą jaźń i co dalej"


@pytest.mark.parametrize(
    ("encoding", "words"),
    [
        ("utf-8", GERMAN),
        ("utf-8-sig", GERMAN),
        ("utf-16", GERMAN),
        ("cp1252", GERMAN),
        ("cp1252", FRENCH),  # which cp1250 decodes as well, with other letters
        ("cp1251", RUSSIAN),
        ("cp1250", POLISH),
    ],
)
def test_strange_encodings_are_recognised(tmp_path: Path, encoding: str, words: str) -> None:
    path = tmp_path / "film.srt"
    lines = [f"{n}\n00:00:{n:02},000 --> 00:00:{n:02},900\n{words}\n" for n in range(1, 30)]
    path.write_bytes("\n".join(lines).encode(encoding))
    assert read_subtitles(path)[0].text == words


def test_lines_out_of_order_are_sorted_and_bad_times_are_mended(tmp_path: Path) -> None:
    path = tmp_path / "film.json"
    lines = [(9.0, 9.5, "last"), (3.0, 1.0, "ends before it starts"), (0.5, 1.0, "first"), (5.0, 6.0, " … ")]
    path.write_text(json.dumps([{"start": s, "end": e, "text": t} for s, e, t in lines]))
    found = read_subtitles(path)
    assert [p.text for p in found] == ["first", "ends before it starts", "last"]
    assert found[1].end > found[1].start


def test_lines_after_the_end_of_the_film_are_left_out() -> None:
    said = [Passage(1, 2, "a", WordSource.SUBTITLES), Passage(9, 15, "b", WordSource.SUBTITLES)]
    said.append(Passage(20, 21, "c", WordSource.SUBTITLES))
    kept, outside = within(said, 10)
    assert [(p.text, p.end) for p in kept] == [("a", 2), ("b", 10)] and outside == 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("film.srt", b"\x00\x01\x02\x03" * 400),
        ("film.srt", b""),
        ("film.vtt", b"WEBVTT\n\n"),
        ("film.ass", b"[Events]\nnonsense"),
        ("film.json", b'{"segments": [{"start": "x"}]}'),
        ("film.json", b"[" * 100_000),
        ("film.txt", b"words without times"),
    ],
)
def test_what_is_no_subtitle_file_is_one_clear_line(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(HolmesError) as told:
        read_subtitles(path)
    assert name in str(told.value) and "\n" not in str(told.value)


def test_the_file_of_the_video_is_found_beside_it(tmp_path: Path) -> None:
    video = tmp_path / "film.mp4"
    for name in ("film2.srt", "film.info.json", "other.srt"):
        (tmp_path / name).write_text("{}")
    assert beside(video) is None
    for name in ("film.fr.srt", "film.en.vtt"):
        (tmp_path / name).write_text(SRT)
    assert beside(video) == tmp_path / "film.en.vtt"
    (tmp_path / "film.srt").write_text(SRT)
    assert beside(video) == tmp_path / "film.srt"


def test_markup_and_control_characters_are_dropped() -> None:
    assert (
        clean("<b>red</b> {\\an8}tractor\x1b[31m \u202eevil\u2028line\\Nnext")
        == "red tractor [31m evil line next"
    )
    assert clean("3 < 5 and 7 > 2") == "3 < 5 and 7 > 2"


def test_lines_of_a_sentence_are_joined_and_sentences_are_not() -> None:
    lines = ["The engine of", "the tractor broke.", "We walked home."]
    said = [Passage(2 * n, 2 * n + 1.5, text, WordSource.SUBTITLES) for n, text in enumerate(lines)]
    written = Passage(0, 9, "HARBOUR", WordSource.SCREEN)
    found = joined([*said, written])
    assert [p.text for p in found] == ["HARBOUR", "The engine of the tractor broke.", "We walked home."] or [
        p.text for p in found
    ] == ["The engine of the tractor broke.", "HARBOUR", "We walked home."]


def test_text_streams_inside_a_file_are_read(tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    subtitles = tmp_path / "film.srt"
    subtitles.write_text(SRT)
    video = tmp_path / "film.mkv"
    with av.open(str(subtitles)) as source, av.open(str(video), "w") as target:
        pictures = target.add_stream("libx264", rate=5)
        pictures.width, pictures.height, pictures.pix_fmt = 64, 48, "yuv420p"
        stream = source.streams.subtitles[0]
        copied = target.add_stream_from_template(stream)
        for _ in range(30):
            target.mux(pictures.encode(av.VideoFrame(64, 48, "yuv420p")))
        target.mux(pictures.encode(None))
        for packet in source.demux(stream):
            if packet.dts is not None:
                packet.stream = copied
                target.mux(packet)
    found, name = read_embedded(video)
    assert [(p.start, p.text) for p in found] == [(1.0, "The engine would not start."), (4.0, "Good evening")]
    assert found[0].source is WordSource.EMBEDDED and "stream" in name
