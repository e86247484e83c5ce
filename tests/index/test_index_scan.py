"""Search is exact: the order and scores of a float64 loop over the same embeddings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from holmes.base.parallel import in_threads
from holmes.errors import HolmesError
from holmes.index.engine import nearest
from holmes.index.engine import rescoring as rescore
from holmes.index.engine import scan as scanning
from holmes.index.engine.gallery import Gallery, GallerySlab, open_gallery
from holmes.index.engine.nearest import nearest_videos
from holmes.index.engine.rescoring import score_pairs
from holmes.index.engine.scan import Probes, make_probes, scan
from holmes.index.storage.manifest import Manifest
from holmes.index.storage.segments import StoredVideo, pack_parts, video_key
from holmes.index.storage.store import IndexStore
from holmes.index.storage.writer import IndexWriter, create_index
from holmes.records import QueryEmbedding, VideoEmbedding
from holmes.similarity import reference_scores
from packed import pack_video

WIDTH, CLIPS, CPU = 24, 32, torch.device("cpu")


def random_video(name: str, rng: np.random.Generator, likeness: float = 0.0) -> StoredVideo:
    frames = int(rng.integers(1, 129))
    rows = rng.normal(size=(frames + CLIPS, WIDTH)) * (1 - likeness) + likeness
    spans = np.zeros((frames + CLIPS, 2))
    return pack_video(name, 1.0, rows[:frames], rows[frames:], spans[:frames], spans[frames:])


def random_query(queries: int, dual: bool, seed: int = 0) -> QueryEmbedding:
    torch.manual_seed(seed)
    if not dual:
        return QueryEmbedding(torch.randn(queries, WIDTH))
    weights = torch.rand(queries, 9).masked_fill(torch.arange(9) >= torch.randint(1, 10, (queries, 1)), 0)
    return QueryEmbedding(
        torch.randn(queries, WIDTH), torch.randn(queries, 9, WIDTH), weights / weights.sum(1, keepdim=True)
    )


def slow_scores(query: QueryEmbedding, video: StoredVideo) -> np.ndarray:
    """.4 · frame + .6 · clip of one video for every query, float64, straight from the equations."""
    frames = video.rows_SPD[0, : video.frames].astype(np.float64)
    clips = video.rows_SPD[0, -CLIPS:].astype(np.float64)
    scores = []
    for q in range(len(query.query_QD)):
        pooled = query.query_QD[q].double().numpy()
        pooled = pooled / np.linalg.norm(pooled)
        frame = (frames @ pooled).max()
        if query.tokens_QTD is not None and query.token_weights_QT is not None:
            tokens = query.tokens_QTD[q].double().numpy()
            best = (frames @ tokens.T).max(0) / np.linalg.norm(tokens, axis=1)
            frame = sum(query.token_weights_QT[q].double().numpy() * best)
        scores.append(0.4 * frame + 0.6 * (clips @ pooled).max())
    return np.array(scores)


def assert_exact(index: Path, query: QueryEmbedding, top: int = 10) -> None:
    store = IndexStore.open(index)
    gallery = open_gallery(store, CPU)
    found = nearest_videos(gallery, make_probes(query, 0.4, 0.6), top)
    names = list(store.positions)
    scores_QV = np.stack([slow_scores(query, store[name]) for name in names], axis=1)
    for q, row in enumerate(scores_QV):
        expected = [names[v] for v in np.argsort(-row, kind="stable")[:top]]
        places = gallery.positions_S2[found.hit_QH[q].numpy()]
        assert [store.segments[segment].names[at] for segment, at in places] == expected
        np.testing.assert_allclose(found.hit_score_QH[q], np.sort(row)[::-1][:top], atol=1e-5)
    combined = 0.4 * found.frame_QK + 0.6 * found.clip_QK
    torch.testing.assert_close(combined, found.score_QK.float(), atol=1e-5, rtol=0)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scan") / "index"
    rng = np.random.default_rng(0)
    create_index(path, Manifest({}, {}, WIDTH, CLIPS))
    with IndexWriter(path) as writer:
        writer.add([random_video(f"a{i}", rng) for i in range(90)])
        writer.add([random_video(f"b{i}", rng) for i in range(30)])
        writer.remove([f"a{i}" for i in range(0, 90, 7)])
    return path


@pytest.mark.parametrize("dual", [False, True])
@pytest.mark.parametrize("queries", [1, 9, 70])
def test_results_equal_exhaustive_scoring(index: Path, queries: int, dual: bool) -> None:
    assert_exact(index, random_query(queries, dual))


def test_results_stay_exact_through_every_change(tmp_path: Path) -> None:
    rng, path, query = np.random.default_rng(1), tmp_path / "index", random_query(3, False)
    create_index(path, Manifest({}, {}, WIDTH, CLIPS))
    with IndexWriter(path) as writer:
        writer.add([random_video(f"a{i}", rng) for i in range(40)])
        assert_exact(path, query)
        writer.add([random_video(f"b{i}", rng) for i in range(9)] + [random_video("a3", rng)])
        assert_exact(path, query)
        writer.remove([f"a{i}" for i in range(20)])
        assert_exact(path, query)
        writer.compact()
        assert_exact(path, query)


@pytest.mark.parametrize("queries", [2, 40])
def test_near_ties_are_sorted(tmp_path: Path, queries: int) -> None:
    """Scores so close together that the scan alone gets most of the order wrong."""
    rng, path = np.random.default_rng(2), tmp_path / "index"
    create_index(path, Manifest({}, {}, WIDTH, CLIPS))
    with IndexWriter(path) as writer:
        writer.add([random_video(str(i), rng, likeness=0.99) for i in range(150)])
    torch.manual_seed(1)
    query = QueryEmbedding(torch.ones(queries, WIDTH) + 0.1 * torch.randn(queries, WIDTH))
    assert_exact(path, query)
    gallery = open_gallery(IndexStore.open(path), CPU)
    bound_QS, _ = scan(gallery, make_probes(query, 0.4, 0.6), None)
    exact_QS = _in_float64(gallery, make_probes(query, 0.4, 0.6))
    assert (bound_QS.argsort(1) != exact_QS.argsort(1)).any()


@pytest.mark.parametrize(("caution", "expected"), [(-1.0, 2), (0.0, 2), (50.0, 1)])
@pytest.mark.parametrize("dual", [False, True])
def test_a_wrong_guess_of_what_the_last_scores_changes_nothing(
    index: Path, caution: float, expected: int, dual: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = []

    def counted(*order: Any) -> Any:
        passes.append(order)
        return score_pairs(*order)

    monkeypatch.setattr(nearest, "CAUTION", caution)
    monkeypatch.setattr(nearest, "score_pairs", counted)
    assert_exact(index, random_query(1, dual))
    assert len(passes) == expected, "where it was guessed too high, the others are scored later"


@pytest.mark.parametrize("width", [24, 256])
@pytest.mark.parametrize("likeness", [0.0, 0.9, 0.999])
@pytest.mark.parametrize("dual", [False, True])
def test_no_score_exceeds_its_bound(width: int, likeness: float, dual: bool) -> None:
    rng, gallery = np.random.default_rng(3), random_gallery(600, width, likeness)
    torch.manual_seed(0)
    spiky = torch.zeros(50, width).scatter_(1, torch.randint(width, (50, 2)), 1.0)  # hard to round
    query_QD = torch.cat([torch.randn(50, width), spiky, gallery.slabs[0].rows_SPD[:50, 3].float()])
    tokens_QTD = torch.randn(150, 5, width) if dual else None
    weights_QT = torch.from_numpy(rng.dirichlet(np.ones(5), 150)).float() if dual else None
    probes = make_probes(QueryEmbedding(query_QD, tokens_QTD, weights_QT), 0.4, 0.6)
    bound_QS, sums = scan(gallery, probes, None)
    exact_QS = _in_float64(gallery, probes)
    over_QS = bound_QS - exact_QS
    assert (over_QS >= 0).all()
    assert over_QS.max() < 0.08, "a bound this loose would bound nothing"
    # The scan's own scores lie in the middle, where rows do not all round alike: their mean is the exact one.
    if not likeness:
        mean_Q, deviation_Q = sums.background.mean_Q.double(), sums.background.deviation_Q.double()
        torch.testing.assert_close(mean_Q, exact_QS.mean(1), atol=2e-3, rtol=0)
        torch.testing.assert_close(deviation_Q, exact_QS.std(1, correction=0), atol=2e-3, rtol=0)


def random_gallery(parts: int, width: int, likeness: float) -> Gallery:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(parts, 16 + CLIPS, width)) * (1 - likeness) + likeness
    spans = np.zeros((parts, 16 + CLIPS, 2))
    video = pack_parts("x", 1.0, rows[:, :16], rows[:, 16:], spans[:, :16], spans[:, 16:])
    slab = GallerySlab(0, *map(torch.from_numpy, (video.codes_SPD, video.numbers_S3, video.rows_SPD)))
    numbers = torch.arange(parts)
    return Gallery((slab,), CLIPS, np.zeros((parts, 2), int), numbers, numbers, numbers >= 0, CPU)


def test_a_bound_that_claims_too_little_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    gallery = random_gallery(600, 256, 0.0)
    slab = gallery.slabs[0]
    slab.numbers_S3[:, 1:] = 0  # as if the codes were exact
    probes = make_probes(QueryEmbedding(torch.randn(50, 256)), 0.4, 0.6)
    monkeypatch.setattr(scanning, "LONGEST_ROW", 0.0)
    assert (scan(gallery, probes, None)[0] < _in_float64(gallery, probes)).any()


@pytest.mark.parametrize("likeness", [0.0, 0.999, 1.0], ids=["random", "alike", "still"])
@pytest.mark.parametrize("dual", [False, True])
def test_chosen_pairs_are_scored_exactly(likeness: float, dual: bool) -> None:
    """Also where every row of a part may be its best, and where probes have no weight in a branch."""
    gallery = random_gallery(40, 64, likeness)
    torch.manual_seed(2)
    tokens_QTD, weights_QT = (torch.randn(13, 5, 64), torch.rand(13, 5)) if dual else (None, None)
    probes = make_probes(QueryEmbedding(torch.randn(13, 64), tokens_QTD, weights_QT), 0.4, 0.6)
    pairs_N2 = (torch.rand(13, 40) < 0.7).nonzero()
    found = score_pairs(gallery, probes, *pairs_N2.unbind(1))
    exact_QS = _in_float64(gallery, probes)
    torch.testing.assert_close(found.score_N, exact_QS[tuple(pairs_N2.T)], atol=1e-7, rtol=0)
    assert torch.equal(torch.stack([found.query_N, found.part_N], 1), pairs_N2)


def test_rows_left_out_wrongly_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    gallery = random_gallery(300, 256, 0.0)
    gallery.slabs[0].numbers_S3[:, 1:] = 0  # as if the codes were exact
    monkeypatch.setattr(rescore, "SLACK", 0.0)
    probes = make_probes(QueryEmbedding(torch.randn(50, 256)), 0.4, 0.6)
    query_N, part_N = torch.ones(50, 300).nonzero().unbind(1)
    exact_N = _in_float64(gallery, probes).flatten()
    assert (rescore.score_pairs(gallery, probes, query_N, part_N).score_N < exact_N - 1e-6).any()


def test_shards_add_up_to_the_whole_bit_for_bit(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    videos = [random_video(f"v{i}", rng) for i in range(90)]
    probes = make_probes(random_query(20, dual=True), 0.4, 0.6)
    parts = {"whole": videos, "a": videos[::3], "b": [v for i, v in enumerate(videos) if i % 3]}
    found, keys = {}, {}
    for name, own in parts.items():
        create_index(tmp_path / name, Manifest({}, {}, WIDTH, CLIPS))
        with IndexWriter(tmp_path / name) as writer:
            writer.add(own)
        gallery = open_gallery(IndexStore.open(tmp_path / name), CPU)
        found[name] = nearest_videos(gallery, probes, 12)
        keys[name] = gallery.key_S[found[name].parts_QK]
    both, whole = found["a"].all_scores + found["b"].all_scores, found["whole"].all_scores
    assert both.count == whole.count
    assert torch.equal(both.sum_Q, whole.sum_Q) and torch.equal(both.squares_Q, whole.squares_Q)
    for q in range(20):
        merged = sorted(
            (-float(score), int(key))
            for name in "ab"
            for score, key in zip(found[name].score_QK[q], keys[name][q], strict=True)
        )[:12]
        expected = zip(found["whole"].score_QK[q].tolist(), keys["whole"][q].tolist(), strict=True)
        assert merged == [(-score, key) for score, key in expected]


def _in_float64(gallery: Gallery, probes: Probes) -> torch.Tensor:
    parts = []
    for slab in gallery.slabs:
        similarity = torch.einsum("qtd,vpd->qtvp", probes.rows_QTD.double(), slab.rows_SPD.double())
        frame, clip = similarity[..., :-CLIPS].amax(-1), similarity[..., -CLIPS:].amax(-1)
        weights = probes.frame_weight_QT[..., None] * frame + probes.clip_weight_QT[..., None] * clip
        parts.append(weights.sum(1))
    return torch.cat(parts, 1)


def test_search_scores_as_the_reference_does(index: Path) -> None:
    """The same numbers as holmes.similarity gives for padded, masked videos."""
    store = IndexStore.open(index)
    gallery = open_gallery(store, CPU)
    for dual in (False, True):
        query = random_query(4, dual)
        found = nearest_videos(gallery, make_probes(query, 0.4, 0.6), len(store))
        name = "b7"
        video = store[name]
        rows = torch.from_numpy(np.array(video.rows_SPD[0])).float()
        frames = torch.full((1, 128, WIDTH), 9.0)
        frames[0, : video.frames] = rows[: video.frames]
        mask = torch.arange(128)[None] < video.frames
        videos = VideoEmbedding(frames, mask, rows[None, -CLIPS:])
        expected = reference_scores(query, videos).combined(0.4, 0.6)
        at = next(i for i, place in enumerate(gallery.positions_S2) if tuple(place) == store.positions[name])
        own = found.score_QK[found.parts_QK == at].float()
        torch.testing.assert_close(own, expected[:, 0], atol=1e-3, rtol=0)


def test_one_query_equals_its_row_in_a_batch(index: Path) -> None:
    gallery, query = open_gallery(IndexStore.open(index), CPU), random_query(70, dual=False)
    together = nearest_videos(gallery, make_probes(query, 0.4, 0.6), 5)
    for q in (0, 33, 69):
        alone = nearest_videos(gallery, make_probes(QueryEmbedding(query.query_QD[q : q + 1]), 0.4, 0.6), 5)
        assert alone.parts_QK[0].tolist() == together.parts_QK[q].tolist()
        assert torch.equal(alone.score_QK[0], together.score_QK[q]), "exact, so equal bit for bit"


def test_more_than_there_is_nothing_and_a_filter(index: Path, tmp_path: Path) -> None:
    store = IndexStore.open(index)
    gallery, probes = open_gallery(store, CPU), make_probes(random_query(2, dual=False), 0.4, 0.6)
    everything = nearest_videos(gallery, probes, 10_000)
    assert everything.hit_QH.shape == (2, len(store))
    allowed = torch.tensor([store.segments[s].names[p].startswith("b") for s, p in gallery.positions_S2])
    some = nearest_videos(gallery, probes, 10, allowed_S=allowed)
    expected = [v for v in everything.hit_QH[0].tolist() if allowed[v]][:10]
    assert some.hit_QH[0].tolist() == expected
    assert nearest_videos(gallery, probes, 10, allowed_S=allowed & False).hit_QH.shape == (2, 0)
    create_index(tmp_path / "empty", Manifest({}, {}, WIDTH, CLIPS))
    empty = open_gallery(IndexStore.open(tmp_path / "empty"), CPU)
    assert nearest_videos(empty, probes, 10).hit_QH.shape == (2, 0)


def test_equal_videos_are_in_one_order_however_the_index_came_about(tmp_path: Path) -> None:
    video = random_video("x", np.random.default_rng(4))
    names, orders = [str(i) for i in range(60)], []
    for given in (names, names[::-1], names[30:] + names[:30]):
        path = tmp_path / f"index{len(orders)}"
        create_index(path, Manifest({}, {}, WIDTH, CLIPS))
        with IndexWriter(path) as writer:
            for start in (0, 40):
                writer.add([replace(video, name=name) for name in given[start : start + 40]])
        store = IndexStore.open(path)
        gallery = open_gallery(store, CPU)
        found = nearest_videos(gallery, make_probes(random_query(1, dual=False), 0.4, 0.6), 5)
        places = gallery.positions_S2[found.hit_QH[0].numpy()]
        orders.append([store.segments[segment].names[at] for segment, at in places])

    assert orders == [sorted(names, key=video_key)[:5]] * 3


def test_numbers_that_are_not_finite_are_reported(tmp_path: Path) -> None:
    create_index(tmp_path / "index", Manifest({}, {}, WIDTH, CLIPS))
    with IndexWriter(tmp_path / "index") as writer:
        writer.add([random_video("x", np.random.default_rng(5))])
    rows = next(tmp_path.rglob("rows.f16"))
    rows.write_bytes(b"\xff\x7f" * (rows.stat().st_size // 2))
    gallery = open_gallery(IndexStore.open(tmp_path / "index"), CPU)
    with pytest.raises(HolmesError, match="index check"):
        nearest_videos(gallery, make_probes(random_query(1, dual=False), 0.4, 0.6), 5)


def test_threads_change_nothing(index: Path) -> None:
    gallery, before = open_gallery(IndexStore.open(index), CPU), torch.get_num_threads()
    probes = make_probes(random_query(70, dual=True), 0.4, 0.6)
    results = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            results.append(nearest_videos(gallery, probes, 5))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0].parts_QK, results[1].parts_QK)
    assert torch.equal(results[0].score_QK, results[1].score_QK)


def test_a_mistake_in_a_thread_is_not_lost() -> None:
    def fail(piece: int) -> None:
        raise HolmesError(f"piece {piece}")

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with pytest.raises(HolmesError, match="piece 0"):
            in_threads(fail, [0, 1, 2], CPU)
    finally:
        torch.set_num_threads(before)
