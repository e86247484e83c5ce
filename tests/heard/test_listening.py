"""Films with known words, heard by the real recognisers."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from holmes.errors import HolmesError
from holmes.heard import listen
from holmes.heard.audio import RATE, Piece, read_sound
from holmes.heard.folder import HeardFolder, set_transcript
from holmes.heard.hearing import Hearing
from holmes.heard.listen import Listener
from holmes.heard.passages import WordSource
from holmes.heard.screen import Screen
from holmes.heard.speech import Recogniser, doubt, model_folder
from holmes.media.encode_video import Sign
from holmes.worlds.rendered.film import RATE as SPOKEN_RATE
from holmes.worlds.rendered.film import spoken
from spoken_films import SpokenLine, film

SENTENCE = "We found a silver key under the floor of the library."


@pytest.fixture(scope="module")
def recogniser() -> Recogniser:
    return Recogniser()


@pytest.fixture(scope="module")
def listener(tmp_path_factory: pytest.TempPathFactory) -> Listener:
    return Listener(HeardFolder(tmp_path_factory.mktemp("heard")), Hearing())


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("films")
    return film(folder / "talk.mp4", 9.0, said=[(4.0, SENTENCE)], signs=[(1.0, 5.0, "HARBOUR CLOSED")])


def sound_of(text: str, voice: str) -> Piece:
    whole = spoken([SpokenLine(0.0, text, voice)], 6.0).astype(np.float32) / 32768
    at = np.arange(int(6.0 * RATE)) * SPOKEN_RATE / RATE
    return Piece(0.0, np.interp(at, np.arange(len(whole)), whole).astype(np.float32))


def test_what_is_said_and_written_is_found_with_its_times(listener: Listener, talk: Path) -> None:
    kept = listener(talk)
    (said,) = [p for p in kept.passages if p.source is WordSource.SPEECH]
    (written,) = [p for p in kept.passages if p.source is WordSource.SCREEN]
    words = said.text.lower()
    assert "silver key" in words and "library" in words
    assert 3.3 <= said.start <= 4.8 and 6.0 <= said.end <= 8.5
    assert written.text == "HARBOUR CLOSED"
    assert 0.5 <= written.start <= 2.0 and 4.0 <= written.end <= 6.0
    assert set(kept.sources) == {"speech", "screen"} and not kept.notes
    again = listener(talk)  # from what was kept
    assert again == kept


def test_subtitles_are_trusted_more_than_speech(tmp_path: Path, talk: Path) -> None:
    video = tmp_path / "talk.mp4"
    video.write_bytes(talk.read_bytes())
    (tmp_path / "talk.srt").write_text(
        "1\n00:00:04,000 --> 00:00:06,000\nThe right words\n\n2\n00:05:00,000 --> 00:05:02,000\nlate\n"
    )
    kept = Listener(HeardFolder(tmp_path / "heard"), Hearing(screen=False))(video)
    assert [(p.source, p.text) for p in kept.passages] == [(WordSource.SUBTITLES, "The right words")]
    assert kept.sources == {"subtitles": "talk.srt"}
    assert any("after the film ends" in note for note in kept.notes)


@pytest.mark.parametrize("what", ["silence", "noise", "music"])
def test_no_words_are_invented(recogniser: Recogniser, what: str) -> None:
    time = np.arange(20 * RATE) / RATE
    rng = np.random.default_rng(0)
    tones = sum(np.sin(2 * np.pi * f * time * (1 + 0.002 * np.sin(3 * time))) for f in (220.0, 277.2, 329.6))
    sounds = {
        "silence": 0 * time,
        "noise": rng.normal(0, 0.1, len(time)),
        "music": 0.15 * tones * (time % 0.5 < 0.4),
    }
    heard = recogniser(Piece(0.0, sounds[what].astype(np.float32)))
    assert heard.passages == []


@pytest.mark.parametrize(
    ("voice", "text"),
    [
        ("fr", "Le moteur du tracteur rouge ne voulait pas démarrer lundi matin."),
        ("de", "Der Motor des roten Traktors wollte am Montag nicht anspringen."),
    ],
)
def test_other_languages_are_left_out_and_noted(recogniser: Recogniser, voice: str, text: str) -> None:
    heard = recogniser(sound_of(text, voice))
    assert heard.passages == []
    note = doubt(recogniser.identity, heard.speech, heard.dropped, heard.language)
    assert "doubtful" in note and "another language" in note


def test_a_multilingual_model_asks_for_the_language_again_and_again(recogniser: Recogniser) -> None:
    """Half a minute of English may be followed by German; a doubt names what was heard."""
    asked: dict[str, object] = {}

    def transcribe(sound: object, **settings: object) -> tuple[list[object], SimpleNamespace]:
        asked.update(settings)
        return [], SimpleNamespace(duration_after_vad=5.0, language="de", language_probability=0.4)

    model = SimpleNamespace(model=SimpleNamespace(is_multilingual=True), transcribe=transcribe)
    other = copy(recogniser)
    other.__dict__["_model"] = model
    heard = other(Piece(0.0, np.zeros(RATE, np.float32)))
    assert asked["multilingual"] is True and asked["language"] is None
    assert "heard as 'de'" in doubt("base", heard.speech, heard.dropped, heard.language)


def test_a_film_without_sound_is_noted(tmp_path: Path) -> None:
    signs: list[Sign] = []
    mute = film(tmp_path / "mute.mp4", 2.0)
    kept = Listener(HeardFolder(tmp_path / "heard"), Hearing(screen=False))(mute, signs.append)
    assert signs[-1].share == 1 and signs[-1].seconds == pytest.approx(2, abs=0.1)
    assert kept.passages == () and kept.notes == ("it has no sound",) and kept.complete


def test_a_killed_hearing_continues_where_it_was(
    tmp_path: Path, talk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sound comes in pieces; after each, what was heard is saved."""
    monkeypatch.setattr(listen, "SAVE_EVERY", 0.0)
    pieces = [Piece(0.0, np.zeros(3 * RATE, np.float32)), *read_sound(talk, 3.0)]
    asked: list[float] = []

    def sound(video: Path, begin: float = 0.0) -> list[Piece]:
        asked.append(begin)
        return [piece for piece in pieces if piece.start >= begin]

    monkeypatch.setattr(listen, "read_sound", sound)
    folder = HeardFolder(tmp_path)
    first = Listener(folder, Hearing(screen=False))
    hear = first._recogniser

    def dies(piece: Piece) -> object:
        if piece.start >= 3.0:
            raise KeyboardInterrupt
        return hear(piece)  # type: ignore[misc]

    dies.identity = "fake"  # type: ignore[attr-defined]
    first._recogniser = dies  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        first(talk)
    left = folder.read(talk)
    assert left is not None and not left.complete and left.heard_to == 3.0
    kept = Listener(folder, Hearing(screen=False))(talk)
    assert asked == [0.0, 3.0] and kept.complete and "silver key" in kept.passages[0].text.lower()


def test_sound_is_read_in_pieces_however_long_it_is(talk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from holmes.heard import audio

    whole = list(read_sound(talk))
    assert len(whole) == 1 and abs(whole[0].end - 9.0) < 0.2
    monkeypatch.setattr(audio, "PIECE", 3.0)
    monkeypatch.setattr(audio, "SEARCHED", 1.0)
    pieces = list(read_sound(talk))
    assert len(pieces) >= 3 and max(len(piece.sound) for piece in pieces) <= 3.0 * RATE
    np.testing.assert_allclose(np.concatenate([p.sound for p in pieces]), whole[0].sound, atol=1e-6)
    later = next(iter(read_sound(talk, 5.0)))
    expected, second = whole[0].sound[round(5.0 * RATE) :], later.sound[RATE : 2 * RATE]
    shifts = range(-RATE // 50, RATE // 50, 8)  # within 20 ms of where it was
    assert max(np.corrcoef(second, expected[RATE + n : 2 * RATE + n])[0, 1] for n in shifts) > 0.95


def test_what_stands_everywhere_is_dropped_and_repeats_are_joined() -> None:
    shown = {t: ["CHANNEL NINE", *(["WELCOME"] if 20 <= t < 40 else [])] for t in range(90)}
    screen = Screen(lambda image: [(text, 0.99, n) for n, text in enumerate(shown[int(image[0, 0, 0])])])
    for time in range(90):
        screen.add(float(time), np.full((60, 80, 3), time, np.uint8) * 1)
        screen._blocks = None  # every sample counts as new
    passages, always = screen.passages(90.0)
    assert always == ["CHANNEL NINE"]
    (only,) = passages
    assert only.text == "WELCOME" and 19 <= only.start <= 21 and 38 <= only.end <= 41


def test_numbered_lines_are_apart_and_a_clock_is_one_line() -> None:
    def read(image: np.ndarray) -> list[tuple[str, float, float]]:
        time = int(image[0, 0, 0])
        return [(f"ROOM {time // 15 + 1}", 0.99, 0.0), (f"CAM 12:03:1{time % 10}", 0.99, 1.0)]

    screen = Screen(read)
    for time in range(90):
        screen.add(float(time), np.full((60, 80, 3), time, np.uint8))
        screen._blocks = None  # every sample counts as new
    passages, always = screen.passages(90.0)
    assert [passage.text for passage in passages] == [f"ROOM {number}" for number in range(1, 7)]
    assert len(always) == 1 and always[0].startswith("CAM")


def test_still_pictures_are_read_once() -> None:
    read: list[int] = []
    screen = Screen(lambda image: read.append(1) or [("SAME", 0.9, 0.0)])
    picture = np.random.default_rng(0).integers(0, 255, (120, 160, 3)).astype(np.uint8)
    for time in range(60):
        screen.add(float(time), picture)
    assert len(read) == 1


def test_a_missing_or_wrong_model_is_one_line(tmp_path: Path) -> None:
    for name in (str(tmp_path), str(tmp_path / "nowhere"), "no-such-model"):
        with pytest.raises(HolmesError) as told:
            model_folder(name)
        assert "\n" not in str(told.value) and name in str(told.value)
    (tmp_path / "model.bin").write_bytes(b"not a model")
    with pytest.raises(HolmesError, match="not a Whisper model"):
        Recogniser(str(tmp_path))(Piece(0.0, np.zeros(RATE, np.float32)))


def test_a_transcript_that_a_person_sets_is_kept(tmp_path: Path, talk: Path) -> None:
    folder, file = HeardFolder(tmp_path / "heard"), tmp_path / "right.srt"
    file.write_text("1\n00:00:01,000 --> 00:00:03,000\nThe right words\n")
    kept = set_transcript(folder, talk, file, 9.0)
    assert [p.source for p in kept.passages] == [WordSource.CORRECTED]
    assert folder.current(talk, Hearing(speech="", screen=False)) == kept  # whatever is listened for
    file.write_text("1\n01:00:01,000 --> 01:00:03,000\nfrom another film\n")
    with pytest.raises(HolmesError, match="another video"):
        set_transcript(folder, talk, file, 9.0)


def test_a_changed_subtitle_file_is_read_again(tmp_path: Path, talk: Path) -> None:
    video = tmp_path / "talk.mp4"
    video.write_bytes(talk.read_bytes())
    hearing, folder = Hearing(speech="", screen=False), HeardFolder(tmp_path / "heard")
    for words in ("one", "two words"):
        (tmp_path / "talk.srt").write_text(f"1\n00:00:01,000 --> 00:00:03,000\n{words}\n")
        assert folder.current(video, hearing) is None
        assert Listener(folder, hearing)(video).passages[0].text == words
    damaged = folder.file(video)
    damaged.write_text("{}")
    assert folder.read(video) is None  # and it is heard again


def test_settings_that_can_do_nothing_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from holmes.heard import speech

    monkeypatch.setattr(speech, "is_installed", lambda: False)
    assert Hearing.available().speech == ""
    with pytest.raises(HolmesError, match="pip install"):
        replace(Hearing(), speech="tiny.en").check()
