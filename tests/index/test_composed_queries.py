"""Queries by picture, by a moment, with something left out, and in order."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("av")
pytest.importorskip("PIL")

import holmes
from holmes import extend
from holmes.errors import HolmesError
from holmes.index.answer.composed import Clip, best_order, parse_clip
from holmes.media.picture_file import decode_picture, read_picture
from media_files import video
from own_names import names_restored
from shell import Shell

COLOURS = {"red": (230, 20, 20), "green": (20, 230, 20), "blue": (20, 20, 230), "grey": (90, 90, 90)}
# Each film shows these colours, two seconds each.
FILMS = {
    "red_green": ("red", "green", "grey"),
    "green_red": ("green", "red", "grey"),
    "red_blue": ("red", "blue", "grey"),
    "blue": ("blue", "blue", "grey"),
    "grey": ("grey", "grey", "grey"),
}


def tint(images) -> np.ndarray:
    return np.array([image.mean((0, 1)) / 255 for image in images]) + 0.01


def word(sentences) -> np.ndarray:
    return (
        np.array([[name in sentence for name in ("red", "green", "blue")] for sentence in sentences]) + 0.01
    )


def square(colour: str) -> np.ndarray:
    return np.full((48, 64, 3), COLOURS[colour], np.uint8)


def encoded(image: np.ndarray, form: str = "PNG", **how) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, form, **how)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("composed")
    (folder / "films").mkdir()
    with names_restored():
        extend.visual_encoder("tint", tint, width=3, sentences=word)
        for name, colours in FILMS.items():
            images = [square(colour) for colour in colours for _ in range(4)]
            video(folder / "films" / f"{name}.mp4", images, [number / 2 for number in range(len(images))])
        holmes.build_index(folder / "index", folder / "films", "tint")
        yield holmes.open_index(folder / "index", device="cpu")


def names(answer: holmes.Answer) -> list[str]:
    return [Path(hit.video).stem for hit in answer]


def test_the_best_order_of_two_steps() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        first, after = rng.normal(size=(2, 7))
        wanted, i, j = max((first[i] + after[j], i, j) for i in range(7) for j in range(i + 1, 7))
        score, cut = best_order(first, after)
        assert score == pytest.approx(wanted) and i < cut <= j
    assert best_order(np.ones(1), np.ones(1)) == (-np.inf, 0)


def test_a_picture_finds_what_it_shows(index) -> None:
    answer = index.search_by(image=square("blue"), top=2)
    assert set(names(answer)) == {"blue", "red_blue"} and answer.diagnosis.probability is None
    second = next(hit for hit in answer if "red_blue" in hit.video).moments[0]
    assert 1.5 <= second.start <= 2.5 and second.end >= 3.5


def test_one_after_the_other_with_a_moment_that_covers_both(index) -> None:
    assert names(index.search_by("red", then="green", top=1)) == ["red_green"]
    assert names(index.search_by("green", then="red", top=1)) == ["green_red"]
    (hit,) = index.search_by("red", then="green", top=1)
    assert hit.moments[0].start < 1 and hit.moments[0].end >= 3.5
    assert len(hit.moments) == 1


def test_what_is_left_out_comes_later(index) -> None:
    assert "red_green" in names(index.search("red", top=3))
    left = names(index.search_by("red", leave_out=["green", "blue"]))
    assert left.index("green_red") < left.index("blue")


def test_a_picture_with_a_sentence(index) -> None:
    found = names(index.search_by("green", image=(square("red") // 2 + square("green") // 2), top=2))
    assert set(found) == {"red_green", "green_red"}


def test_a_moment_of_a_video(index) -> None:
    answer = index.search_by(like="red_blue.mp4@0:02.2-0:03.8", top=1)
    assert names(answer) == ["blue"] and answer.query == "like red_blue.mp4 at 2.2–3.8 s"
    assert names(index.search_by(like="red_blue.mp4@0:03", top=1)) == ["blue"]


def test_moments_are_read_as_people_write_them() -> None:
    assert parse_clip("a@b.mp4@1:02:03.5-1:02:04") == Clip("a@b.mp4", 3723.5, 3724)
    assert parse_clip("x.mp4@83") == Clip("x.mp4", 83, 83)
    for wrong in ("x.mp4", "@1:00", "x.mp4@", "x.mp4@1:2:3:4", "x.mp4@a-b", "x.mp4@-3"):
        with pytest.raises(HolmesError, match="write VIDEO@1:23-1:30"):
            parse_clip(wrong)
    with pytest.raises(HolmesError, match="ends before it begins"):
        parse_clip("x.mp4@0:05-0:02")


def test_what_cannot_be_asked_is_said(index) -> None:
    for how, said in (
        ({}, "name what to look for"),
        ({"image": square("red"), "like": "blue.mp4@0:01"}, "not both"),
        ({"sentence": " "}, "the sentence is empty"),
        ({"sentence": "red", "then": ""}, "the sentence is empty"),
        ({"like": "blue.mp4@9:00-9:10"}, "is not in it"),
        ({"like": "nothing.mp4@0:01"}, "no video"),
        ({"sentence": "red", "top": 0}, "top must be"),
        ({"image": np.zeros((4, 4), np.uint8)}, "height × width × 3"),
    ):
        with pytest.raises(HolmesError, match=said):
            index.search_by(**how)


def test_pictures_are_read_in_a_process_of_their_own(tmp_path: Path) -> None:
    red = square("red")
    (tmp_path / "red.png").write_bytes(encoded(red))
    np.testing.assert_array_equal(read_picture(tmp_path / "red.png"), red)
    hostile = tmp_path / "hostile.png"
    hostile.write_bytes(b"\x89PNG\r\n\x1a\n" + b"x" * 100)
    with pytest.raises(HolmesError, match="cannot be read as a picture"):
        read_picture(hostile)
    with pytest.raises(HolmesError, match="does not exist"):
        read_picture(tmp_path / "nothing.png")


def test_pictures_are_upright_small_and_bounded() -> None:
    from PIL import Image

    exif = Image.Exif()
    exif[274] = 6  # lies on its side
    wide = np.zeros((100, 2000, 3), np.uint8)
    assert decode_picture(encoded(wide, "JPEG", exif=exif)).shape[:2] == (768, 38)
    huge = encoded(np.zeros((1, 1, 3), np.uint8)).replace(
        b"IHDR\x00\x00\x00\x01\x00\x00\x00\x01", b"IHDR\x00\x00\xff\xff\x00\x00\xff\xff"
    )
    with pytest.raises(HolmesError):
        decode_picture(huge)
    with pytest.raises(HolmesError):
        decode_picture(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")  # a program
    with pytest.raises(
        HolmesError, match=r"^the picture's format is none of JPEG, PNG, WEBP, BMP, GIF, TIFF$"
    ):
        decode_picture(b"neither")


def test_on_the_command_line(index, tmp_path: Path, monkeypatch, capsys) -> None:
    with names_restored():
        extend.visual_encoder("tint", tint, width=3, sentences=word)
        shell, path = Shell(monkeypatch, capsys), index.store.path
        (tmp_path / "blue.png").write_bytes(encoded(square("blue")))
        code, said, _ = shell("search", path, "--image", tmp_path / "blue.png", "--top", "2", "--json")
        assert code == 0 and {Path(hit["video"]).stem for hit in json.loads(said)["hits"]} == {
            "blue",
            "red_blue",
        }
        code, said, _ = shell("search", path, "red", "--then", "green", "--not", "blue", "--top", "1")
        assert code == 0 and "red_green.mp4" in said and "no probability" in said
        code, _, said = shell("search", path, "--image", tmp_path / "no.png")
        assert code == 2 and len(said.splitlines()) == 1
        page = "http://127.0.0.1:8000"
        for option, value in (("--abstain-below", ".5"), ("--not-here-below", ".5"), ("--links", page)):
            code, out, said = shell("search", path, "red", "--not", "blue", option, value)
            assert (code, out) == (2, "") and said.startswith(f"holmes: {option} needs a single sentence")
        played: list[tuple[str, float]] = []
        monkeypatch.setattr("holmes.cli.search.play", lambda video, start: played.append((video, start)))
        code, _, _ = shell("search", path, "red", "--then", "green", "--top", "1", "--play")
        assert code == 0 and Path(played[0][0]).stem == "red_green"
