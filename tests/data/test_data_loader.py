"""Bank and loader against a plain per-item reference: padding, order, capacity, resuming, ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from data_layouts import random_store
from holmes.data import BatchLoader, FeatureBank, Store
from holmes.data.bank import choose
from holmes.errors import HolmesError
from holmes.records import Batch


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return random_store(tmp_path_factory.mktemp("data") / "store", videos=29)


GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
WAYS = [
    pytest.param(("cpu", True), id="cpu-resident"),
    pytest.param(("cpu", False), id="cpu-mapped"),
    pytest.param(("cuda", True), id="cuda-resident", marks=GPU),
    pytest.param(("cuda", False), id="cuda-mapped", marks=GPU),
]


@pytest.fixture(params=WAYS)
def bank(store: Store, request: pytest.FixtureRequest) -> FeatureBank:
    device, resident = request.param
    return FeatureBank(store, device, resident=resident)


def on_cpu(batch: Batch) -> Batch:
    moved = {name: value.cpu() for name, value in vars(batch).items() if isinstance(value, torch.Tensor)}
    return replace(batch, **moved)


def slow_video(store: Store, video: int) -> tuple[np.ndarray, int, np.ndarray]:
    rows = store.frames[store.frame_offsets[video] : store.frame_offsets[video + 1]]
    padded = np.zeros((128, rows.shape[1]), np.float32)
    padded[: len(rows)] = rows
    return padded, len(rows), store.clips[video].astype(np.float32)


def slow_query(store: Store, query: int) -> tuple[np.ndarray, int]:
    rows = store.tokens[store.token_offsets[query] : store.token_offsets[query + 1]]
    padded = np.zeros((30, rows.shape[1]), np.float32)
    padded[: len(rows)] = rows
    return padded, len(rows)


def test_the_bank_gathers_padded_rows(store: Store, bank: FeatureBank) -> None:
    index = [3, 28, -1, 0]
    frames, lengths, clips = (values.cpu() for values in bank.videos(torch.tensor(index)))
    tokens, token_lengths = (values.cpu() for values in bank.queries(torch.tensor(index)))
    assert frames.dtype == torch.float32 and frames.shape == (4, 128, 6) and tokens.shape == (4, 30, 5)
    for place, item in enumerate(index):
        if item < 0:
            assert lengths[place] == token_lengths[place] == 0
            assert not frames[place].any() and not clips[place].any() and not tokens[place].any()
            continue
        expected = slow_video(store, item)
        np.testing.assert_array_equal(frames[place], expected[0])
        assert lengths[place] == expected[1]
        np.testing.assert_array_equal(clips[place], expected[2])
        np.testing.assert_array_equal(tokens[place], slow_query(store, item)[0])
        assert token_lengths[place] == slow_query(store, item)[1]


def test_a_bank_of_some_splits_holds_only_their_rows(store: Store) -> None:
    test = store.split("test")
    some, whole = FeatureBank(store, resident=True, splits=[test]), FeatureBank(store, resident=True)
    index = torch.tensor([*test.videos.tolist()[::-1], -1])
    for ours, theirs in zip(some.videos(index), whole.videos(index), strict=True):
        assert torch.equal(ours, theirs)
    queries = torch.from_numpy(test.queries)
    assert torch.equal(some.queries(queries)[0], whole.queries(queries)[0])
    assert (
        len(some._frames.flat) == sum(slow_video(store, v)[1] for v in test.videos) < len(whole._frames.flat)
    )


def test_the_choice_is_made_by_size_and_said(store: Store) -> None:
    cpu = torch.device("cpu")
    assert choose(1 << 20, cpu, None)[0] and not choose(1 << 60, cpu, None)[0]
    assert not choose(1 << 20, cpu, False)[0]
    assert "features kept on" in FeatureBank(store).says
    assert "read from the store batch by batch" in FeatureBank(store, resident=False).says


def test_other_dtypes(store: Store) -> None:
    assert FeatureBank(store, dtype=torch.bfloat16).videos(torch.tensor([0]))[0].dtype == torch.bfloat16


def check_batch(store: Store, batch: Batch, members: list[int]) -> None:
    """Everything a batch says, recomputed item by item from the ids."""
    batch, column = on_cpu(batch), 0
    for place, video in enumerate(members):
        expected = slow_video(store, video)
        np.testing.assert_array_equal(batch.frames_VFD[place], expected[0])
        assert batch.frame_lengths_V[place] == expected[1]
        np.testing.assert_array_equal(batch.clips_VCD[place], expected[2])
        queries = [q for q, query_id in enumerate(store.query_ids) if query_id.split("#")[0] == f"v{video}"]
        for slot, query in enumerate(queries):
            np.testing.assert_array_equal(batch.tokens_QTD[column], slow_query(store, query)[0])
            assert batch.token_lengths_Q[column] == slow_query(store, query)[1]
            assert (batch.owner_Q[column], batch.slot_Q[column]) == (place, slot)
            column += 1
    assert not batch.token_lengths_Q[column:].any() and not batch.tokens_QTD[column:].any()
    assert not batch.owner_Q[column:].any() and not batch.slot_Q[column:].any()
    assert batch.query_mask_Q.sum() == column


def test_an_epoch_holds_every_video_with_all_its_queries(store: Store, bank: FeatureBank) -> None:
    train = store.split("train")  # 19 videos: 4 batches of 5, the last filled up with one
    loader = BatchLoader(bank, train, batch_videos=5, seed=1, epochs=3)
    shapes, orders = set(), []
    for epoch in range(3):
        members = loader.tables(epoch).videos_SV
        orders.append(members.tolist())
        assert members.shape == (4, 5) and all(len(set(row)) == 5 for row in members.tolist())
        assert set(members.flatten().tolist()) == set(train.videos.tolist())
        assert members.flatten()[19:].tolist() == members.flatten()[:1].tolist()
        batches = list(loader.epoch(epoch))
        assert len(batches) == loader.steps_per_epoch == 4
        for batch, row in zip(batches, members.tolist(), strict=True):
            check_batch(store, batch, row)
            shapes.add(
                (tuple(batch.frames_VFD.shape), tuple(batch.tokens_QTD.shape), batch.queries_per_video)
            )
    assert len(shapes) == 1 and orders[0] != orders[1]
    counts = np.bincount(store.owner_Q)
    needed = max(counts[row].sum() for order in orders for row in order)
    assert loader.query_capacity == -(-needed // 8) * 8
    assert loader.queries_per_video == counts[train.videos].max()


def test_the_order_is_a_function_of_seed_and_epoch(store: Store, bank: FeatureBank) -> None:
    train = store.split("train")
    first, same = (BatchLoader(bank, train, 4, seed=5, epochs=9).tables(7) for _ in range(2))
    assert (first.videos_SV == same.videos_SV).all() and (first.queries_SQ == same.queries_SQ).all()
    assert (first.videos_SV != BatchLoader(bank, train, 4, seed=6, epochs=9).tables(7).videos_SV).any()


def test_resuming_in_the_middle_is_exact(store: Store, bank: FeatureBank) -> None:
    loader = BatchLoader(bank, store.split("train"), batch_videos=4, epochs=2)
    rest = list(loader.epoch(1))[3:]
    resumed = list(loader.epoch(1, start_step=3))
    assert len(rest) == len(resumed) == 2
    for one, other in zip(rest, resumed, strict=True):
        assert torch.equal(one.tokens_QTD, other.tokens_QTD) and torch.equal(one.frames_VFD, other.frames_VFD)
        assert torch.equal(one.owner_Q, other.owner_Q)


def test_ranks_share_each_batch(store: Store, bank: FeatureBank) -> None:
    train = store.split("train")
    alone = BatchLoader(bank, train, batch_videos=6, seed=2, epochs=4)
    ranks = [BatchLoader(bank, train, batch_videos=6, seed=2, epochs=4, rank=r, world=3) for r in range(3)]
    assert len({(loader.query_capacity, loader.steps_per_epoch) for loader in ranks}) == 1
    for epoch in range(4):
        shares = np.concatenate([loader.tables(epoch).videos_SV for loader in ranks], axis=1)
        np.testing.assert_array_equal(shares, alone.tables(epoch).videos_SV)
    check_batch(store, next(iter(ranks[2].epoch(0))), alone.tables(0).videos_SV[0, 4:].tolist())


def test_batches_larger_than_the_split_are_capped(store: Store, bank: FeatureBank) -> None:
    loader = BatchLoader(bank, store.split("test"), batch_videos=128)
    (batch,) = loader.epoch(0)
    assert len(batch.frame_lengths_V) == 10
    assert len(BatchLoader(bank, store.split("test"), 128, rank=2, world=3).tables(0).videos_SV[0]) == 3


def test_refusals(store: Store, bank: FeatureBank) -> None:
    train = store.split("train")
    with pytest.raises(HolmesError, match="cannot be shared by 3 processes"):
        BatchLoader(bank, train, batch_videos=4, world=3)
    with pytest.raises(HolmesError, match="epoch 2 is outside"):
        next(iter(BatchLoader(bank, train, epochs=2).epoch(2)))


def test_a_walk_broken_off_stops_its_thread(store: Store) -> None:
    bank = FeatureBank(store, resident=False)
    walk = BatchLoader(bank, store.split("train"), batch_videos=2).epoch(0)
    next(walk)
    walk.close()
    with pytest.raises(StopIteration):
        next(walk)
