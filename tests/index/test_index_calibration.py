"""An index that is taught how sure to be, one that was not, and what stands in its folder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from holmes.errors import HolmesError
from holmes.index.answer.calibration import FILE, read_captions, write_values
from holmes.index.answer.languages import is_foreign
from holmes.index.answer.searcher import Index, open_single_index
from holmes.index.embedders.zero_shot import ZeroShot
from holmes.index.ingest.builder import build_index
from index_fakes import FILMS, FakeJoint, meaning, write_features

SCENES = [(scene, name) for name, scenes in FILMS.items() for scene, _ in scenes]


@pytest.fixture
def index(tmp_path: Path) -> Index:
    build_index(
        tmp_path / "index", [write_features(tmp_path / "features", FILMS).path], ZeroShot(FakeJoint())
    )
    return open_single_index(tmp_path / "index", device="cpu", model=FakeJoint())


def test_every_score_is_the_best_match_over_the_stored_rows(index: Index) -> None:
    sentences = [scene for scene, _ in SCENES]
    found = index.every_score(sentences)
    for place, name in enumerate(index.videos):
        video = index.store[name]
        rows = np.asarray(video.rows_SPD, np.float32)
        clips = index.store.manifest.clips
        for which, part in ((found.frame_QV, rows[:, : video.frames]), (found.clip_QV, rows[:, -clips:])):
            expected = [(part.reshape(-1, rows.shape[2]) @ meaning(s)).max() for s in sentences]
            np.testing.assert_allclose(which[:, place], expected, atol=2e-3)


def test_a_model_without_calibration_gives_no_probability(index: Index) -> None:
    answer = index.search("dog runs beach")
    assert answer.diagnosis.kind == "unknown" and answer.diagnosis.probability is None
    assert [hit.probability for hit in answer.hits] == [None] * 3
    assert not (index.store.path / FILE).exists()


def test_a_guess_that_an_earlier_version_kept_is_not_used(index: Index) -> None:
    index.calibrate([(scene, f"{name}.mp4") for scene, name in SCENES] * 3)
    values = json.loads((index.store.path / FILE).read_bytes())
    del values["checksum"]
    write_values(index.store.path / FILE, {**values, "rough": True})
    opened = open_single_index(index.store.path, device="cpu", model=FakeJoint())
    assert opened.search("dog").diagnosis.probability is None


def test_few_sentences_change_little_of_what_the_model_knew(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    captions = [(scene, f"{name}.mp4") for scene, name in SCENES] * 3
    index.calibrate(captions)
    first = json.loads((index.store.path / FILE).read_bytes())
    digest = index.embedder.record["digest"]
    before = {key: value for key, value in first.items() if key != "checksum"}
    before |= {"model": digest, "absence_slope": 3.0, "lead_power": 2.0}
    index.calibrate(captions)
    assert json.loads((index.store.path / FILE).read_bytes()) == first, "what it was taught counts once"
    monkeypatch.setattr(ZeroShot, "calibration", before)
    index.calibrate(captions)
    taught = json.loads((index.store.path / FILE).read_bytes())
    assert taught["lead_power"] > first["lead_power"] + 0.5
    assert taught["absence_slope"] > first["absence_slope"] + 0.5


def test_own_sentences_teach_an_index(index: Index) -> None:
    captions = [(scene, f"{name}.mp4") for scene, name in SCENES] * 3
    taught = index.calibrate(captions)
    assert (taught.sentences, taught.videos, taught.found_first) == (30, 3, 1.0)
    assert taught.mean_probability > 0.8
    answer = open_single_index(index.store.path, device="cpu", model=FakeJoint()).search("dog runs beach")
    assert answer.diagnosis.kind == "precise"


def test_what_cannot_teach_is_one_line(index: Index, tmp_path: Path) -> None:
    with pytest.raises(HolmesError, match="no video 'nowhere'"):
        index.calibrate([("a dog", "nowhere")] * 30)
    with pytest.raises(HolmesError, match="at least 20"):
        index.calibrate([("a dog", "coast")] * 5)
    for text, name in (("words,film\na,b\n", "a.csv"), ('{"sentence": "a"}\n', "a.jsonl"), ("[]", "b.jsonl")):
        (tmp_path / name).write_text(text)
        with pytest.raises(HolmesError, match=r"row 1 of .* lacks a 'sentence' or a 'video'"):
            read_captions(tmp_path / name)
    (index.store.path / FILE).write_text("{")
    with pytest.raises(HolmesError, match=r"calibration\.json is damaged"):
        open_single_index(index.store.path, device="cpu", model=FakeJoint()).search("dog")


def test_captions_are_read_from_csv_and_jsonl(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('sentence,video\n"a dog, running",coast.mp4\n')
    (tmp_path / "a.jsonl").write_text('{"sentence": "a dog, running", "video": "coast.mp4"}\n\n')
    assert read_captions(tmp_path / "a.csv") == read_captions(tmp_path / "a.jsonl")
    assert read_captions(tmp_path / "a.csv") == [("a dog, running", "coast.mp4")]


@pytest.mark.parametrize(
    ("sentence", "foreign"),
    [
        ("a dog runs into the sea", False),
        ("guitar", False),
        ("dogs slide down stairs", False),
        ("ein Hund läuft in das Meer", True),
        ("un chien court dans la mer", True),
        ("un perro corre por la playa", True),
        ("собака бежит по пляжу", True),
        ("犬が海に走る", True),
    ],
)
def test_another_language_is_noticed(sentence: str, foreign: bool) -> None:
    assert is_foreign(sentence) == foreign
