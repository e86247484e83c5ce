"""Long videos in parts: where the parts lie, and one hit per video with the best part's score."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

import holmes
from holmes.evidence.calibration import Calibration
from holmes.evidence.distribution import Absence, Background, ScoreEvidence, background, gallery_distribution
from holmes.evidence.film_parts import best_by_video, count_videos, sum_by_video
from holmes.evidence.judging import CalibratedJudge, Candidates
from holmes.index.answer.duplicates import moment_frames
from holmes.index.answer.searcher import Index
from holmes.index.answer.timeline import frames_of
from holmes.index.embedders.zero_shot import ZeroShot
from holmes.index.engine.gallery import open_gallery
from holmes.index.engine.nearest import nearest_videos
from holmes.index.engine.scan import make_probes
from holmes.index.ingest.builder import build_index
from holmes.index.ingest.parts import part_bounds
from holmes.index.storage.manifest import Manifest
from holmes.index.storage.segments import StoredVideo, pack_parts
from holmes.index.storage.store import IndexStore
from holmes.index.storage.writer import IndexWriter, create_index
from holmes.moments import Moment
from holmes.records import QueryEmbedding, Scores
from index_fakes import FakeJoint, write_features

WIDTH, CLIPS, CPU = 24, 32, torch.device("cpu")
NAMES = ["/films/saga.mp4", "/films/short.mp4", "/films/walk.mp4"]
LONG = {
    "saga": [
        ("waves hit rocks", 100),
        ("dog runs beach", 7),
        ("sun sets", 400),
        ("bus stops", 70),
        ("man eats soup", 600),
    ],
    "short": [("woman cuts onions", 30), ("cat sleeps", 20)],
    "walk": [("car turns corner", 400), ("dog runs road", 8), ("rain falls", 300), ("boat drifts", 9)],
}


def test_a_single_picture_without_a_length_is_one_part() -> None:
    assert part_bounds(1, 0.0, longest=64.0) == [slice(0, 1)]


@pytest.mark.parametrize("rate", [0.05, 0.5, 2.0, 25.0])
@pytest.mark.parametrize("seconds", [1.0, 63.0, 64.0, 65.0, 112.0, 113.0, 600.0, 3600.0, 10_800.0])
def test_parts_cover_a_video_and_overlap(seconds: float, rate: float) -> None:
    rows = max(1, round(seconds * rate))
    parts = part_bounds(rows, seconds, longest=64.0)
    sizes = {part.stop - part.start for part in parts}
    assert parts[0].start == 0 and parts[-1].stop == rows and len(sizes) == 1
    row = seconds / rows
    longest = max(64.0, 32 * row)  # at least as many rows as clips
    assert sizes.pop() * row <= longest + row
    overlaps = [(before.stop - after.start) * row for before, after in pairwise(parts)]
    assert all(overlap >= longest / 4 - 2 * row for overlap in overlaps)
    assert (len(parts) == 1) == (seconds <= longest), "what the model sees well is not cut"
    assert len(parts) <= max(1, np.ceil(seconds / (0.75 * longest)))


def random_video(name: str, parts: int, rng: np.random.Generator) -> StoredVideo:
    frames = int(rng.integers(1, 40))
    rows, spans = rng.normal(size=(parts, frames + CLIPS, WIDTH)), np.zeros((parts, frames + CLIPS, 2))
    return pack_parts(name, 1.0, rows[:, :frames], rows[:, frames:], spans[:, :frames], spans[:, frames:])


def slow_score(query: np.ndarray, video: StoredVideo) -> float:
    """The best part's, straight from the definition in float64."""
    query = query.astype(np.float64) / np.linalg.norm(query)
    return max(
        0.4 * max(row @ query for row in part[: video.frames].astype(np.float64))
        + 0.6 * max(row @ query for row in part[-CLIPS:].astype(np.float64))
        for part in video.rows_SPD
    )


def test_one_hit_per_video_with_the_best_parts_score(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    create_index(tmp_path / "index", Manifest({}, {}, WIDTH, CLIPS))
    videos = [random_video(f"v{i}", int(parts), rng) for i, parts in enumerate(rng.integers(1, 30, 40))]
    with IndexWriter(tmp_path / "index") as writer:
        writer.add(videos[:25])
        writer.add(videos[25:])
        writer.remove(["v3", "v30"])
        for _ in range(2):
            store = IndexStore.open(tmp_path / "index")
            assert_exact(store, [video for video in videos if video.name in store], rng)
            writer.compact()


def assert_exact(store: IndexStore, videos: list[StoredVideo], rng: np.random.Generator) -> None:
    gallery = open_gallery(store, CPU)
    assert gallery.live == sum(len(video.rows_SPD) for video in videos) and gallery.in_parts
    queries = rng.normal(size=(5, WIDTH)).astype(np.float32)
    found = nearest_videos(gallery, make_probes(QueryEmbedding(torch.from_numpy(queries)), 0.4, 0.6), 12, 50)
    assert found.parts_QK.shape == (5, 50) and found.all_scores.count == gallery.live
    for q, query in enumerate(queries):
        expected = sorted(((slow_score(query, video), video.name) for video in videos), reverse=True)[:12]
        names = [store.segments[s].names[at] for s, at in gallery.positions_S2[found.hit_QH[q].numpy()]]
        assert names == [name for _, name in expected]
        np.testing.assert_allclose(found.hit_score_QH[q], [score for score, _ in expected], atol=1e-6)


def test_a_film_full_of_good_parts_does_not_crowd_the_others_out(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    query = rng.normal(size=WIDTH).astype(np.float32)
    videos = [random_video(f"v{i}", 2, rng) for i in range(6)]
    for name in ("film a", "film b"):  # every one of 300 parts fits better than any other video
        rows = query + 0.3 * rng.normal(size=(300, 1 + CLIPS, WIDTH))
        spans = np.zeros((300, 1 + CLIPS, 2))
        videos.append(pack_parts(name, 1.0, rows[:, :1], rows[:, 1:], spans[:, :1], spans[:, 1:]))
    create_index(tmp_path / "index", Manifest({}, {}, WIDTH, CLIPS))
    with IndexWriter(tmp_path / "index") as writer:
        writer.add(videos)
    store = IndexStore.open(tmp_path / "index")
    gallery, queries = open_gallery(store, CPU), torch.from_numpy(np.stack([query, -query]))
    probes = make_probes(QueryEmbedding(queries), 0.4, 0.6)
    for top in (1, 5, 8, 20):
        found = nearest_videos(gallery, probes, top, 20)
        assert found.hit_QH.shape == (2, min(top, 8))
        for q, asked in enumerate((query, -query)):
            expected = sorted(((slow_score(asked, video), video.name) for video in videos), reverse=True)
            names = [store.segments[s].names[at] for s, at in gallery.positions_S2[found.hit_QH[q].numpy()]]
            assert names == [name for _, name in expected[:top]]


@pytest.fixture
def index(tmp_path: Path) -> Index:
    features = write_features(tmp_path / "features", LONG)
    build_index(tmp_path / "index", [features.path], ZeroShot(FakeJoint()))
    return holmes.open_index(tmp_path / "index", device="cpu", model=FakeJoint())


@pytest.mark.parametrize(
    ("sentence", "video", "start", "end"),
    [
        ("dog runs beach", "saga", 100, 107),
        ("sun sets", "saga", 107, 507),  # over many parts
        ("bus stops", "saga", 507, 577),
        ("boat drifts", "walk", 708, 717),
        ("woman cuts onions", "short", 0, 30),
    ],
)
def test_a_moment_of_a_long_film_keeps_its_seconds(
    index: Index, sentence: str, video: str, start: float, end: float
) -> None:
    hit = index.search(sentence).hits[0]
    assert hit.video == f"/films/{video}.mp4" and len(index.search(sentence).hits) == 3
    best = hit.moments[0]
    assert best.start == pytest.approx(start, abs=3) and best.end == pytest.approx(end, abs=3)
    assert hit.score > 0.9, "five seconds of an hour are not averaged away"


def test_the_timeline_of_a_long_film_has_no_gaps_and_no_second_twice(index: Index) -> None:
    for name, timeline in zip(NAMES, index.timelines("dog runs beach", NAMES), strict=True):
        length = index.store[name].duration
        assert timeline.spans_F2[0, 0] == 0 and timeline.spans_F2[-1, 1] == pytest.approx(length)
        np.testing.assert_array_equal(timeline.spans_F2[1:, 0], timeline.spans_F2[:-1, 1])
        assert len(timeline.similarity_F) == 2 * length  # as often as it was sampled


def test_more_like_a_moment_of_a_late_part(index: Index) -> None:
    (hit, *_) = index.like("/films/walk.mp4", 404.0, top=1)
    assert hit.video == "/films/saga.mp4" and 95 < hit.moments[0].start < 108


@pytest.mark.parametrize("start", [0.0, 3.0, 600.0, 1170.0])
def test_a_view_of_a_long_film_is_what_surrounds_its_moment(index: Index, start: float) -> None:
    """However long the film, so that a thousand sentences can be compared; a short one is there whole."""
    film, short = index.store["/films/saga.mp4"], index.store["/films/short.mp4"]
    view = moment_frames(film, Moment(start, start + 7, 1.0))
    assert view.rows_FD.shape == (256, film.rows_SPD.shape[2]) and view.rows_FD.base is None
    frames_ND, first = frames_of(film), round(2 * start)  # two per second
    np.testing.assert_array_equal(view.rows_FD[view.inside_F], frames_ND[first : first + 14])
    begins = min(max(first + 7 - 128, 0), len(frames_ND) - 256)
    assert abs(int(view.inside_F.argmax()) - (first - begins)) <= 1
    np.testing.assert_array_equal(moment_frames(short, Moment(3, 9, 1.0)).rows_FD, frames_of(short))


def calibration(**changes: float) -> Calibration:
    numbers = {"candidates": 8, "frame_weight": 0.4, "clip_weight": 0.6, "temperature": 0.05}
    numbers |= {"score_temperature": 0.05, "score_offset": 0.5}
    numbers |= {"videos": 100, "queries": 50}
    return Calibration(model="m", **(numbers | changes))


def test_a_videos_probability_is_the_sum_of_its_parts() -> None:
    score = torch.tensor([[0.9, 0.85, 0.8, 0.7, 0.6, 0.5]])
    video = torch.tensor([[7, 3, 7, 7, 3, 4]])
    compared, background = 500, Background(torch.tensor([0.3]), torch.tensor([0.1]))
    evidence = ScoreEvidence(0.05, 0.5)
    parts = gallery_distribution(score, compared, evidence, Absence(), background).probability_QK[0].tolist()
    expected = [parts[0] + parts[2] + parts[3], parts[1] + parts[4], parts[5]]
    judge = CalibratedJudge(calibration())
    (said,) = judge(Candidates(Scores(score, score), compared, background, video_QK=video))
    assert said.probabilities == pytest.approx(expected, rel=1e-5)
    assert said.probability == said.probabilities[0] and len(said.beliefs) == 3
    alone = judge(Candidates(Scores(score, score), compared, background))[0]
    assert sum(said.beliefs) == pytest.approx(sum(alone.beliefs)) and alone.beliefs[0] < said.beliefs[0]
    assert said.quantities["margin"] == pytest.approx(0.05)


def test_many_parts_of_one_film_are_not_many_videos_that_fit() -> None:
    score = torch.tensor([[0.8, 0.8, 0.8, 0.8, 0.3, 0.2]])
    background = Background(torch.tensor([0.2]), torch.tensor([0.05]))
    judge = CalibratedJudge(calibration())
    (film,) = judge(
        Candidates(Scores(score, score), 300, background, video_QK=torch.tensor([[0, 0, 0, 0, 1, 2]]))
    )
    (videos,) = judge(
        Candidates(Scores(score, score), 300, background, video_QK=torch.tensor([[0, 1, 2, 3, 4, 5]]))
    )
    assert (film.kind, film.quantities["about_equal"]) == ("precise", 1)
    assert (videos.kind, videos.quantities["about_equal"]) == ("several_fit", 4)
    assert videos == judge(Candidates(Scores(score, score), 300, background))[0]


def test_parts_that_are_no_candidates_count_for_their_films() -> None:
    """Three films hold all parts there are: their probabilities are those of every part, and add up to 1."""
    rng = np.random.default_rng(0)
    score = torch.from_numpy(np.sort(rng.normal(0.3, 0.05, (1, 300)))[:, ::-1].copy())
    film = torch.from_numpy(rng.permutation(np.repeat([0, 1, 2], [40, 100, 160])))[None]
    evidence, parts = ScoreEvidence(0.05, 0.5), torch.tensor([40, 100, 160])[film]
    every = (
        gallery_distribution(score, 300, evidence, Absence(), expect_missing=0)
        .merged(film)
        .probability_QK[0, :3]
    )
    best = gallery_distribution(score[:, :20], 300, evidence, Absence(), background(score), expect_missing=0)
    assert len(set(film[0, :20].tolist())) == 3
    told = best.merged(film[:, :20], parts[:, :20]).probability_QK[0, :3]
    torch.testing.assert_close(told, every, atol=0.02, rtol=0)
    assert told.sum() == pytest.approx(1, abs=1e-3)
    assert best.merged(film[:, :20]).probability_QK.sum() < 0.5, "which is what the candidates alone hold"


def test_the_other_clips_of_a_films_parts_are_rivals_too() -> None:
    """Films get .2 of the mean evidence for each part, short videos nothing; the sum stays S."""
    score = torch.tensor([[0.95, 0.8, 0.75, 0.6, 0.55, 0.5, 0.4]], dtype=torch.float64)
    video, parts = torch.tensor([[4, 7, 7, 5, 7, 9, 5]]), torch.tensor([[1, 3, 3, 2, 3, 1, 2]])
    plain = gallery_distribution(score, 7, ScoreEvidence(0.05, 0.5), Absence(), expect_missing=0.2)
    told = plain.merged(video, parts, 0.2)
    alpha = {name: 0.0 for name in (4, 7, 5, 9)}
    for name, one in zip(video[0].tolist(), plain.log_alpha_QK[0].exp().tolist(), strict=True):
        alpha[name] += one
    total = sum(alpha.values())
    for name, count in ((7, 3), (5, 2)):
        alpha[name] += 0.2 * count * total / 7
    expected = [each / sum(alpha.values()) * 0.8 for each in alpha.values()]
    assert told.probability_QK[0, :4].tolist() == pytest.approx(expected, rel=1e-6)
    assert told.probability_QK.sum().item() == pytest.approx(0.8) and torch.equal(told.none_Q, plain.none_Q)
    torch.testing.assert_close(plain.merged(video, parts).log_alpha_QK, plain.merged(video).log_alpha_QK)
    short = torch.arange(7)[None]
    torch.testing.assert_close(
        plain.merged(short, torch.ones_like(short), 0.2).log_alpha_QK, plain.log_alpha_QK
    )


def test_a_calibration_says_how_much_the_other_clips_count() -> None:
    score = torch.tensor([[0.9, 0.7, 0.69, 0.68, 0.67]])
    video, parts = torch.tensor([[1, 2, 2, 2, 2]]), torch.tensor([[1, 4, 4, 4, 4]])
    asked = Candidates(Scores(score, score), 5, video_QK=video, video_parts_QK=parts)
    plain, told = (CalibratedJudge(calibration(part_rest=rest))(asked)[0] for rest in (0.0, 0.2))
    assert plain.here == told.here and sum(told.probabilities) == pytest.approx(sum(plain.probabilities))
    shares = [each / sum(plain.probabilities) for each in plain.probabilities]
    expected = [shares[0] / 1.16, (shares[1] + 0.16) / 1.16]
    assert told.probabilities == pytest.approx([each * told.here for each in expected], rel=1e-5)


def test_parts_that_nobody_knows_never_make_more_than_one() -> None:
    """Of 300 parts the best 20 are candidates: their videos' other parts are known, the rest is not."""
    rng = np.random.default_rng(1)
    score = torch.from_numpy(np.sort(rng.normal(0.3, 0.05, (1, 300)))[:, ::-1].copy())
    sizes = np.array([1] * 60 + [40, 80, 120])
    video = torch.from_numpy(rng.permutation(np.repeat(np.arange(63), sizes)))[None]
    best = gallery_distribution(
        score[:, :20], 300, ScoreEvidence(0.05, 0.5), Absence(), background(score), expect_missing=0
    )
    parts = torch.from_numpy(sizes)[video]
    told = best.merged(video[:, :20], parts[:, :20], 0.3).probability_QK[0]
    every = gallery_distribution(score, 300, ScoreEvidence(0.05, 0.5), Absence(), expect_missing=0)
    true = every.merged(video, parts, 0.3).probability_QK[0]
    assert told.sum() <= 1 + 1e-6
    films = len(set(video[0, :20].tolist()))
    torch.testing.assert_close(told[:films], true[:films], atol=0.02, rtol=0)


def test_merging_rows_of_candidates() -> None:
    video = torch.tensor([[5, 5, 2, 9, 2], [1, 2, 3, 4, 5]])
    value = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0], [5.0, 4.0, 3.0, 2.0, 1.0]])
    assert sum_by_video(value, video).tolist() == [[3, 8, 4, 0, 0], [5, 4, 3, 2, 1]]
    falling = value.sort(1, descending=True).values
    assert best_by_video(falling, video)[0, :3].tolist() == [5, 3, 2]
    assert count_videos(video).tolist() == [3, 5]


def test_the_hits_of_a_calibrated_index_carry_their_videos_probabilities(index: Index) -> None:
    index.diagnose = CalibratedJudge(calibration(candidates=128))
    answer = index.search("dog runs beach")
    assert answer.hits[0].probability == answer.diagnosis.probability > 0.5
    shares = [hit.probability for hit in answer.hits]
    assert sum(shares) <= answer.diagnosis.here + 1e-6 and shares == sorted(shares, reverse=True)
