"""Answers: the right video, the right seconds, and what is said about them."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

import holmes
from holmes.errors import HolmesError
from holmes.evidence.judging import Candidates, Diagnosis
from holmes.index.answer.searcher import Index
from holmes.index.embedders.zero_shot import ZeroShot
from holmes.index.engine import gallery
from holmes.index.engine.nearest import nearest_videos
from holmes.index.ingest.builder import add_videos, build_index
from holmes.index.storage.store import IndexStore
from holmes.index.storage.writer import IndexWriter
from index_fakes import FILMS, FakeJoint, write_features
from shard_fakes import bits


@pytest.fixture
def index(tmp_path: Path) -> Index:
    features = write_features(tmp_path / "features", FILMS)
    build_index(tmp_path / "index", [features.path], ZeroShot(FakeJoint()))
    return holmes.open_index(tmp_path / "index", device="cpu", model=FakeJoint())


@pytest.mark.parametrize(
    ("sentence", "video", "start", "end"),
    [
        ("dog runs beach", "coast", 20, 30),
        ("water boils", "kitchen", 40, 46),
        ("man eats soup", "kitchen", 46, 80),
        ("bus stops", "street", 120, 129),
        ("rain falls", "street", 30, 120),
    ],
)
def test_a_sentence_finds_its_video_and_its_seconds(
    index: Index, sentence: str, video: str, start: float, end: float
) -> None:
    answer = index.search(sentence)
    hit = answer.hits[0]
    assert (answer.query, hit.video) == (sentence, f"/films/{video}.mp4")
    best = hit.moments[0]
    assert best.start == pytest.approx(start, abs=2.1) and best.end == pytest.approx(end, abs=2.1)
    assert hit.score > 0.9 > answer.hits[1].score
    assert 0 <= answer.hits[1].belief < hit.belief <= 1


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux says what is in memory")
def test_searches_keep_few_float16_rows_in_memory(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are mapped twice the size of the codes, and few of them are read."""
    index.search_many(["dog runs beach", "water boils"])
    segments, mapped = index.store.segments, index.gallery.mapped_rows
    assert all(in_memory(segment.folder / "codes.i8") for segment in segments)
    kept = 1024 * sum(in_memory(segment.folder / "rows.f16") for segment in segments)
    assert 0 < kept <= mapped.touched, "what a search may have left in memory is known"
    monkeypatch.setattr(gallery, "MOST_RESIDENT", 0)
    nearest_videos(index.gallery, index._probes(["bus stops"]), 1)
    assert not any(in_memory(segment.folder / "rows.f16") for segment in segments)
    assert mapped.touched == 0
    assert all(segment.rows_ND.any() for segment in segments), "they can still be read"


def in_memory(file: Path) -> int:
    """The kilobytes of a mapped file that are in this process' memory."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    starts = [at for at, line in enumerate(lines) if line.endswith(str(file))]
    assert starts, f"{file} is not mapped"
    return sum(next(int(line.split()[1]) for line in lines[at:] if line.startswith("Rss:")) for at in starts)


def test_json_has_the_documented_shape(index: Index) -> None:
    answer = json.loads(json.dumps(index.search("dog runs beach", top=2).to_dict()))
    assert list(answer) == ["query", "diagnosis", "hits"] and len(answer["hits"]) == 2
    assert {"kind", "words", "explanation", "uncertainty", "here", "group"} <= answer["diagnosis"].keys()
    for hit in answer["hits"]:
        assert list(hit) == ["video", "score", "belief", "probability", "fit", "moments", "gone"]
        assert hit["gone"] is True, "there is no such file here"
        assert all(list(moment) == ["start", "end", "score"] for moment in hit["moments"])
    with pytest.raises(dataclasses.FrozenInstanceError):
        index.search("dog").query = "cat"  # type: ignore[misc]


def test_many_sentences_give_what_each_gives_alone(index: Index) -> None:
    sentences = ["dog runs", "sun sets", "woman cuts", "dog"] * 80
    together = index.search_many(sentences, top=3)
    for at in (0, 1, 2, 3, 319):
        assert bits(together[at]) == bits(index.search(sentences[at], top=3))


def test_filters_keep_to_paths_and_names(index: Index) -> None:
    assert [hit.video for hit in index.search("dog", filter="st*.mp4").hits] == ["/films/street.mp4"]
    assert len(index.search("dog", filter="/films/*").hits) == 3
    assert [hit.video for hit in index.search("dog", filter="/films/coast.mp4").hits] == ["/films/coast.mp4"]
    with pytest.raises(HolmesError, match=r"no video of .* matches '\*.avi'"):
        index.search("dog", filter="*.avi")


def test_an_open_index_answers_as_it_was_until_refreshed(index: Index, tmp_path: Path) -> None:
    with IndexWriter(index.store.path) as writer:
        writer.remove(["/films/coast.mp4"])
    assert index.search("dog runs beach").hits[0].video == "/films/coast.mp4"
    assert index.refresh() and not index.refresh()
    assert "/films/coast.mp4" not in index.videos and len(index) == 2
    assert len(index.search("dog runs beach").hits) == 2
    more = write_features(tmp_path / "more", {"farm": [("dog runs beach", 9)]})
    add_videos(index.store.path, [more.path], index.embedder)
    assert index.refresh() and index.search("dog runs beach").hits[0].video == "/films/farm.mp4"


def test_an_index_that_was_built_anew_is_noticed(index: Index, tmp_path: Path) -> None:
    path, changes = index.store.path, index.store.manifest.generation
    shutil.rmtree(path)
    more = write_features(tmp_path / "more", {"farm": [("dog runs beach", 9)]})
    build_index(path, [more.path], ZeroShot(FakeJoint()))
    assert IndexStore.open(path).manifest.generation == changes
    assert index.refresh() and index.videos == ["/films/farm.mp4"]


class Judge:
    """Always 70% sure."""

    candidates = 2

    def __call__(self, candidates: Candidates) -> Sequence[Diagnosis]:
        self.judged = candidates
        said = Diagnosis((0.6, 0.3), {"u": 0.1}, "precise", "One fits.", "Say more.", 0.7, (0.7, 0.2))
        return [said for _ in candidates.scores.frame_QV]


def test_a_diagnosis_can_be_plugged_in_and_abstains(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ZeroShot, "part_seconds", 1000.0)  # every film in one piece
    build_index(tmp_path / "whole", [tmp_path / "features"], ZeroShot(FakeJoint()))
    index, judge = holmes.open_index(tmp_path / "whole", device="cpu", model=FakeJoint()), Judge()
    index.diagnose = judge
    answer = index.search("dog runs beach", top=3)
    assert judge.judged.scores.frame_QV.shape == judge.judged.scores.clip_QV.shape == (1, 2)
    assert judge.judged.videos == 3
    assert (answer.diagnosis.kind, answer.diagnosis.probability) == ("precise", 0.7)
    assert [hit.belief for hit in answer.hits] == [0.6, 0.3, 0.0]
    assert [hit.probability for hit in answer.hits] == [0.7, 0.2, None]
    scores = torch.tensor([hit.score for hit in answer.hits])
    assert judge.judged.all_scores.mean_Q.item() == pytest.approx(scores.mean().item(), abs=1e-3)
    assert judge.judged.all_scores.deviation_Q.item() == pytest.approx(
        scores.std(correction=0).item(), abs=1e-3
    )
    index.search("dog", filter="st*", not_here_below=0.3)
    assert judge.judged.not_here_below == 0.3 and judge.judged.expect_missing == 0.2
    assert judge.judged.videos == 1, "only what was compared counts"
    assert index.search("dog", abstain_below=0.6, expect_missing=0.4).hits
    assert judge.judged.expect_missing == 0.4
    abstained = index.search("dog", abstain_below=0.8)
    assert abstained.abstained and abstained.hits == () and abstained.to_dict()["diagnosis"]["abstained"]
    assert str(abstained).startswith("“dog”: I do not know. The likeliest video has 70%, less than the 80%")


def test_nothing_fits_a_sentence_that_the_model_cannot_read(index: Index) -> None:
    fits = ("fits", "may fit", "nearest")
    said = Diagnosis(
        (), {}, "several_fit", "60% …", "", 0.4, (0.4, 0.2, 0.1), "several fit", group=2, fits=fits
    )
    index.diagnose = lambda candidates: [said for _ in candidates.scores.frame_QV]
    index.diagnose.candidates = 3
    index.store.manifest.model["name"] = "pocket"
    answer = index.search("der Hund ist auf der Straße")
    assert answer.diagnosis.words == "too little to go on" and "reads English" in answer.diagnosis.explanation
    assert {hit.fit for hit in answer.hits} == {"nearest"} and answer.group == ()
    english = index.search("the dog is on the street")
    assert english.diagnosis.words == "several fit" and english.hits[0].fit == "fits"


def test_mistakes_are_one_line(index: Index, tmp_path: Path) -> None:
    for wrong, words in (
        (lambda: index.search("  "), "sentence is empty"),
        (lambda: index.search("dog", top=0), "at least 1"),
        (lambda: index.search("dog", top="3"), "at least 1, not '3'"),
        (lambda: index.search("dog", top=2.5), "at least 1, not 2.5"),
        (lambda: index.search(5), "must be text, not '5'"),
        (lambda: index.search_many(["dog", None]), "must be text, not 'None'"),
        (lambda: index.search_many("dog"), "a list of sentences"),
        (lambda: index.search("caf\udce9 bar"), r"'caf\\udce9 bar' is not valid UTF-8"),
        (lambda: index.search("dog", not_here_below=2), "a probability, 0 to 1, not 2"),
        (lambda: holmes.open_index(tmp_path / "nothing"), "is not an index"),
        (lambda: holmes.open_index(next(index.store.path.rglob("*.f32"))), "is a file, not an index"),
        (lambda: holmes.open_index(index.store.path, device="tpu"), "unknown device"),
    ):
        with pytest.raises(HolmesError, match=words):
            wrong()
    with IndexWriter(index.store.path) as writer:
        writer.remove(writer.store.positions)
    index.refresh()
    with pytest.raises(HolmesError, match="contains no videos"):
        index.search("dog")


def test_damaged_times_are_reported(index: Index) -> None:
    spans = next(index.store.path.rglob("spans.f32"))
    spans.write_bytes(b"\xff" * spans.stat().st_size)
    with pytest.raises(HolmesError, match="index check"):
        holmes.open_index(index.store.path, device="cpu", model=FakeJoint()).search("dog")


def test_importing_holmes_is_instant() -> None:
    program = "import holmes, sys; assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
    with pytest.raises(AttributeError):
        _ = holmes.nothing_of_the_kind
