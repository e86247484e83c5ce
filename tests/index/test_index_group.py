"""Several hits as one group: copies of a moment count as one, and the others are named."""

from __future__ import annotations

from pathlib import Path

import pytest

import holmes
from holmes.evidence.calibration import Calibration
from holmes.evidence.judging import CalibratedJudge
from holmes.index.answer.searcher import Index
from holmes.index.embedders.zero_shot import ZeroShot
from holmes.index.ingest.builder import add_videos, build_index
from index_fakes import FILMS, FakeJoint, write_features

SURE = CalibratedJudge(
    Calibration(
        model=FakeJoint.digest,
        candidates=20,
        frame_weight=0.4,
        clip_weight=0.6,
        temperature=0.1,
        score_temperature=0.05,
        score_offset=0.3,
        videos=5,
        queries=100,
    )
)


def opened(folder: Path, films: dict[str, list[tuple[str, float]]]) -> Index:
    build_index(folder / "index", [write_features(folder / "features", films).path], ZeroShot(FakeJoint()))
    return holmes.open_index(folder / "index", device="cpu", model=FakeJoint(), diagnose=SURE)


def test_copies_of_one_moment_are_one_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = opened(tmp_path, FILMS)
    alone = index.search("dog runs beach")
    assert (alone.diagnosis.kind, alone.diagnosis.group) == ("precise", 1)

    # The same ten seconds in another film, between other scenes, and with other noise.
    again = {"album": [("cars stand still", 30), ("dog runs beach", 9), ("hens eat corn", 25)]}
    add_videos(index.store.path, [write_features(tmp_path / "more", again).path], index.embedder)
    assert index.refresh()
    both = index.search("dog runs beach")
    assert {hit.video for hit in both.group} == {"/films/coast.mp4", "/films/album.mp4"}
    assert max(hit.probability or 0 for hit in both.hits) < 0.7, "neither holds most of it alone"
    assert both.diagnosis.kind == "precise"
    assert both.diagnosis.explanation.startswith("Two videos show the same moment: ")
    assert both.diagnosis.copies == 2
    assert index.search_many(["rain falls", "dog runs beach"], top=1)[1].diagnosis.group == 2

    monkeypatch.setattr(ZeroShot, "compares_images", False)  # as for a trained model, which cannot tell
    assert index.search("dog runs beach").diagnosis.kind == "several_fit"


def test_what_fits_as_well_but_looks_different_is_no_copy(tmp_path: Path) -> None:
    films = FILMS | {"yard": [("ball dog", 20)], "lawn": [("ball rabbit", 20)]}
    answer = opened(tmp_path, films).search("ball dog rabbit")
    assert {hit.video for hit in answer.group} == {"/films/yard.mp4", "/films/lawn.mp4"}
    assert answer.diagnosis.kind == "several_fit"
    assert answer.diagnosis.advice.startswith("Is it ")
    assert "yard.mp4" in answer.diagnosis.advice and "lawn.mp4" in answer.diagnosis.advice
    assert answer.diagnosis.advice.endswith("Add a detail that tells them apart.")
