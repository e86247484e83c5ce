"""Search is exact: the order and scores of a float64 loop over the same embeddings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from holmes.errors import HolmesError
from holmes.index import scan as scanning
from holmes.index.gallery import Gallery, GallerySlab, open_gallery
from holmes.index.kernel import best_positions
from holmes.index.manifest import Manifest
from holmes.index.nearest import nearest_videos
from holmes.index.scan import Probes, ScanPlan, make_probes, scan, score_with
from holmes.index.segment import StoredVideo, pack_video, video_key
from holmes.index.store import IndexStore, IndexWriter, create_index
from holmes.index.threads import in_threads
from holmes.records import QueryEmbedding, VideoEmbedding
from holmes.similarity import branch_scores, combined_score

WIDTH, CLIPS, CPU = 24, 32, torch.device("cpu")
PRECISIONS = [torch.float16, torch.bfloat16, torch.float32]


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
    names = list(store.places)
    scores_QV = np.stack([slow_scores(query, store[name]) for name in names], axis=1)
    for q, row in enumerate(scores_QV):
        expected = [names[v] for v in np.argsort(-row, kind="stable")[:top]]
        places = gallery.places_S2[found.hit_QH[q].numpy()]
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


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
def test_every_precision_sorts_near_ties(
    tmp_path: Path, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores so close together that the scan alone gets most of the order wrong."""
    rng, path = np.random.default_rng(2), tmp_path / "index"
    create_index(path, Manifest({}, {}, WIDTH, CLIPS))
    with IndexWriter(path) as writer:
        writer.add([random_video(str(i), rng, likeness=0.99) for i in range(150)])
    monkeypatch.setattr(
        scanning, "scan_plan", lambda probes, device: ScanPlan(dtype, score_with(best_positions), 500)
    )
    query = QueryEmbedding(torch.ones(2, WIDTH) + 0.1 * torch.randn(2, WIDTH))
    assert_exact(path, query)
    gallery = open_gallery(IndexStore.open(path), CPU)
    scanned_QV, _, _ = scan(gallery, make_probes(query, 0.4, 0.6), None)
    if dtype != torch.float32:
        exact_QV = _in_float64(gallery, make_probes(query, 0.4, 0.6))
        assert (scanned_QV.argsort(1) != exact_QV.argsort(1)).any()


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("likeness", [0.0, 0.9])
def test_the_error_bound_holds(dtype: torch.dtype, likeness: float, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    rows = np.stack([random_video("x", rng, likeness).rows_SPD[0, -CLIPS:] for _ in range(600)])
    rows_SPD = torch.from_numpy(np.concatenate([rows, rows[::-1]], axis=1))
    numbers = torch.arange(600)
    gallery = Gallery(
        (GallerySlab(0, rows_SPD),), CLIPS, np.zeros((600, 2), int), numbers, numbers, numbers >= 0, CPU
    )
    probes = make_probes(random_query(50, dual=True), 0.4, 0.6)
    monkeypatch.setattr(
        scanning, "scan_plan", lambda probes, device: ScanPlan(dtype, score_with(best_positions), 999)
    )
    scanned_QV, error_Q, _ = scan(gallery, probes, None)
    exact_QV = _in_float64(gallery, probes)
    worst_Q = (scanned_QV - exact_QV).abs().amax(1)
    assert (worst_Q <= error_Q).all()
    if dtype != torch.float32:
        assert (worst_Q > error_Q / 200).all(), "a bound this loose would bound nothing"


def _in_float64(gallery: Gallery, probes: Probes) -> torch.Tensor:
    parts = []
    for slab in gallery.slabs:
        similarity = torch.einsum("qtd,vpd->qtvp", probes.rows_QTD.double(), slab.rows_SPD.double())
        frame, clip = similarity[..., :-CLIPS].amax(-1), similarity[..., -CLIPS:].amax(-1)
        weights = probes.frame_weight_QT[..., None] * frame + probes.clip_weight_QT[..., None] * clip
        parts.append(weights.sum(1))
    return torch.cat(parts, 1)


def test_one_scorer_for_training_and_search(index: Path) -> None:
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
        expected = combined_score(
            branch_scores(query, VideoEmbedding(frames, mask, rows[None, -CLIPS:])), 0.4, 0.6
        )
        at = next(i for i, place in enumerate(gallery.places_S2) if tuple(place) == store.places[name])
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
    allowed = torch.tensor([store.segments[s].names[p].startswith("b") for s, p in gallery.places_S2])
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
        places = gallery.places_S2[found.hit_QH[0].numpy()]
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
