"""Chapters begin where scenes do, and carry a title only where one is sure."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import av
import numpy as np
import pytest

import holmes
from holmes.editing.chapters import (
    chapters,
    first_sentence,
    read_captions,
    said_in,
    written_chapters,
)
from holmes.editing.vocabulary import CAPTIONS
from holmes.errors import HolmesError
from holmes.evidence.judging import Candidates, Diagnosis
from holmes.index.answer.searcher import Index, open_single_index
from holmes.index.embedders.scenes import scene_times
from holmes.index.embedders.zero_shot import ZeroShot
from holmes.index.ingest.builder import build_index
from index_fakes import FILMS, FakeJoint, write_features

SEEN = ["dog barks cat", "rain falls", "car turns corner", "woman cuts onions", "two whales"]


class Judge:
    """Sure that a caption fits where its best frames are nearly the same."""

    candidates = 128

    def __call__(self, candidates: Candidates) -> list[Diagnosis]:
        score_QK = 0.4 * candidates.scores.frame_QV + 0.6 * candidates.scores.clip_QV
        return [
            Diagnosis(
                beliefs=(),
                quantities={},
                kind="precise",
                probability=0.9,
                probabilities=(0.9,),
                group=1,
                fits=tuple("fits" if score > 0.85 else "nearest" for score in row),
            )
            for row in score_QK.tolist()
        ]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("chapters")
    features = write_features(folder / "features", FILMS)
    build_index(folder / "index", [features.path], ZeroShot(FakeJoint()))
    return open_single_index(folder / "index", device="cpu", model=ZeroShot(FakeJoint()), diagnose=Judge())


def street(index: Index) -> str:
    return next(name for name in index.videos if "street" in name)


def test_chapters_are_the_scenes_with_what_is_seen(index: Index) -> None:
    found = chapters(index, street(index), captions=SEEN, shortest=5)
    assert [round(each.start) for each in found] == [0, 15, 30, 120] and round(found[-1].end) == 129
    assert [each.title for each in found] == ["car turns corner", "dog barks cat", "rain falls", "Scene 4"]
    assert [each.seen for each in found][3] is None, "nothing in the vocabulary fits the last scene"


def test_short_scenes_join_a_neighbour(index: Index) -> None:
    found = chapters(index, street(index), captions=SEEN)
    assert [round(each.start) for each in found] == [0, 15, 30] and min(e.end - e.start for e in found) >= 10
    assert len(chapters(index, street(index), captions=SEEN, shortest=1000)) == 1


def test_an_index_that_is_not_calibrated_names_nothing(index: Index) -> None:
    plain = open_single_index(index.store.path, device="cpu", model=ZeroShot(FakeJoint()))
    assert [each.title for each in chapters(plain, street(index), captions=SEEN)] == [
        "Scene 1",
        "Scene 2",
        "Scene 3",
    ]


def test_scenes_are_found_where_they_were_planted() -> None:
    """However many rows a film has: more than are looked at."""
    rng = np.random.default_rng(0)
    lengths = [700, 300, 1500, 900]
    centres = rng.normal(size=(4, 16))
    rows = np.concatenate(
        [centre + 0.1 * rng.normal(size=(n, 16)) for centre, n in zip(centres, lengths, strict=True)]
    )
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    starts = np.arange(len(rows)) / 2
    edges = scene_times(rows, starts, len(rows) / 2, 20.0, 10.0)
    assert edges == pytest.approx([0, 350, 500, 1250, 1700], abs=3)
    still = np.tile(rows[:1], (500, 1))
    assert scene_times(still, starts[:500], 250.0, 2.0, 10.0) == [0.0, 250.0]


def test_what_is_said_becomes_a_title_where_nothing_is_seen(index: Index) -> None:
    passages = [
        SimpleNamespace(start=2.0, source=SimpleNamespace(is_written=False),
                        text="Yes. Now we turn left, and then right again, until somebody finds it."),
        SimpleNamespace(start=3.0, text="TAXI", source=SimpleNamespace(is_written=True)),
    ]  # fmt: skip

    @dataclass
    class Talking:
        def transcript(self, video: str) -> SimpleNamespace:
            return SimpleNamespace(passages=passages)

    said = said_in(Talking(), "street", [0.0, 15.0, 30.0])  # type: ignore[arg-type]
    assert said == ["Now we turn left, and then right again, until somebody…", None]
    assert said_in(index, street(index), [0.0, 15.0]) == [None], "without a transcript"
    assert first_sentence("Stop.") == "Stop." and first_sentence("  ") is None


def test_every_format_says_the_same(index: Index) -> None:
    found = chapters(index, street(index), captions=SEEN)
    text = written_chapters(found, "street", "text").splitlines()
    assert text == ["0:00 car turns corner", "0:15 dog barks cat", "0:30 rain falls"]
    with av.open(io.BytesIO(written_chapters(found, "street", "vtt").encode()), format="webvtt") as container:
        cues = [(packet.pts / 1000, bytes(packet).decode()) for packet in container.demux() if packet.size]
    assert cues == [(0.0, "car turns corner"), (15.0, "dog barks cat"), (30.0, "rain falls")]
    plain = json.loads(written_chapters(found, "street", "json"))
    assert [each["title"] for each in plain["chapters"]] == [title for _, title in cues]
    assert holmes.Chapter(**plain["chapters"][0]) == found[0]


def test_captions_come_from_a_file(tmp_path: Path, index: Index) -> None:
    (tmp_path / "captions.txt").write_text("a dog\n\n  a cat \na dog\n")
    assert read_captions(tmp_path / "captions.txt") == ["a dog", "a cat"]
    (tmp_path / "bad").write_bytes(b"\xff\xfe")
    with pytest.raises(HolmesError, match="not valid UTF-8"):
        read_captions(tmp_path / "bad")
    with pytest.raises(HolmesError, match="no video named 'x'"):
        chapters(index, "x")
    assert len(set(CAPTIONS)) == len(CAPTIONS) > 100
