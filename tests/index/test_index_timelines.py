"""What a page asks of an index besides answers: similarity along a video, and videos like a moment."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import torch

import holmes
from holmes.base.parallel import in_threads, one_thread_per_operation
from holmes.errors import HolmesError
from holmes.index.answer.searcher import Index
from holmes.index.embedders.zero_shot import ZeroShot
from holmes.index.ingest.builder import build_index
from index_fakes import FILMS, FakeJoint, meaning, write_features


@pytest.fixture
def index(tmp_path: Path) -> Index:
    films = {**FILMS, "pier": [("rain falls", 30), ("dog runs beach", 12)]}
    features = write_features(tmp_path / "features", films)
    build_index(tmp_path / "index", [features.path], ZeroShot(FakeJoint()))
    return holmes.open_index(tmp_path / "index", device="cpu", model=FakeJoint())


def test_a_timeline_covers_the_video_and_is_high_where_the_sentence_is_true(index: Index) -> None:
    coast, kitchen = index.timelines("dog runs beach", ["/films/coast.mp4", "/films/kitchen.mp4"])
    assert coast.spans_F2[0, 0] == 0 and coast.spans_F2[-1, 1] == pytest.approx(60)
    assert (coast.spans_F2[1:, 0] == coast.spans_F2[:-1, 1]).all()
    middle = coast.spans_F2.mean(axis=1)
    inside = (middle > 20) & (middle < 30)
    assert coast.similarity_F[inside].min() > coast.similarity_F[~inside].max()
    assert coast.similarity_F.max() > 0.9 > kitchen.similarity_F.max()
    assert coast.similarity_F.max() == pytest.approx(
        index.search("dog runs beach").hits[0].moments[0].score, abs=1e-5
    )


def test_a_timeline_is_the_weighted_sum_of_both_branches(index: Index) -> None:
    video = index.store["/films/coast.mp4"]
    (timeline,) = index.timelines("sun sets", [video.name])
    query = meaning("sun sets")
    frames, clips = video.rows_SPD[0, : video.frames] @ query, video.rows_SPD[0, -32:] @ query
    for at, (start, end) in enumerate(timeline.spans_F2):
        clip = min(31, int(np.searchsorted(video.spans_SP2[0, -32:, 1], (start + end) / 2)))
        assert timeline.similarity_F[at] == pytest.approx(0.4 * frames[at] + 0.6 * clips[clip], abs=2e-3)


def test_more_like_a_moment_finds_the_same_scene_elsewhere(index: Index) -> None:
    first, *others = index.like("/films/coast.mp4", 25.0, top=2)
    assert first.video == "/films/pier.mp4" and len(others) == 1
    assert first.moments[0].start == pytest.approx(30, abs=2.1) and first.probability is None
    assert index.like("/films/coast.mp4", 1e9, top=5)[-1].video != "/films/coast.mp4"
    with pytest.raises(HolmesError, match="contains no video named 'absent'"):
        index.like("absent", 1.0)


def test_names_restrict_a_search_as_a_pattern_does(index: Index) -> None:
    names = {"/films/kitchen.mp4", "/films/street.mp4", "/films/gone.mp4"}
    by_names = index.search("dog runs beach", filter=names)
    by_pattern = index.search("dog runs beach", filter="*[nt].mp4")
    assert {hit.video for hit in by_names.hits} == {"/films/kitchen.mp4", "/films/street.mp4"}
    both = zip(by_names.hits, [hit for hit in by_pattern.hits if "coast" not in hit.video], strict=True)
    assert all(hit.video == other.video for hit, other in both)
    assert index.search("dog", filter=frozenset()).hits == ()


def test_small_operations_keep_to_one_thread_and_pieces_of_work_do_not() -> None:
    allowed = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with one_thread_per_operation():
            assert torch.get_num_threads() == 1
            meet = threading.Barrier(3)  # three pieces wait for each other: they must run at the same time
            assert in_threads(lambda piece: meet.wait(20) >= 0, [1, 2, 3], torch.device("cpu")) == [True] * 3
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(allowed)
