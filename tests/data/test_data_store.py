"""The store: opened lazily, whole or absent, splits that keep their promises."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import numpy as np
import pytest

from data_layouts import random_store
from holmes.data.store import Store
from holmes.data.writer import GrowingArray, StoreWriter
from holmes.errors import HolmesError


def test_what_was_written_is_read(tmp_path: Path) -> None:
    store = random_store(tmp_path / "s")
    assert isinstance(store.frames, np.memmap) and store.frames.dtype == np.float16
    assert store.frames.shape == (store.frame_offsets[-1], 6) and store.clips.shape == (11, 32, 6)
    assert store.tokens.shape == (store.token_offsets[-1], 5)
    assert store.info.frame_rows == len(store.frames) and store.info.token_rows == len(store.tokens)
    owners = [int(query_id.split("#")[0][1:]) for query_id in store.query_ids]
    assert store.owner_Q.tolist() == owners and store.owner_Q.dtype == np.int32
    for video in range(11):
        start, end = store.query_offsets[video : video + 2]
        assert set(owners[start:end]) == {video}
    assert np.isnan(store.moments_Q2).all() and np.isnan(store.durations_V).all()
    assert (store.kinds_Q == -1).all()
    assert store.also_fits == {}
    rng = np.random.default_rng(0)  # the same draws in the same order
    counts = rng.integers(1, 5, 11)
    lengths = rng.integers(1, 129, 11)
    lengths[0] = 128
    rng.integers(1, 31, counts.sum())
    np.testing.assert_array_equal(store.frames, rng.normal(size=(lengths.sum(), 6)).astype(np.float16))
    np.testing.assert_array_equal(store.clips, rng.normal(size=(11, 32, 6)).astype(np.float16))


def test_the_usual_length_is_what_nine_in_ten_are_not_longer_than(tmp_path: Path) -> None:
    store = random_store(tmp_path / "s", videos=40)
    train = store.split("train")
    assert store.usual_seconds(train) is None, "no length is known"
    store.__dict__["durations_V"] = np.full(40, 1e6, np.float32)
    store.durations_V[train.videos[:21]] = np.arange(21) * 10
    store.durations_V[train.videos[21:]] = np.nan
    assert store.usual_seconds(train) == 180


def test_splits_map_queries_to_positions(tmp_path: Path) -> None:
    store = random_store(tmp_path / "s")
    assert store.splits == ["train", "val", "test"]
    for name in store.splits:
        split = store.split(name)
        assert (split.videos[split.owner] == store.owner_Q[split.queries]).all()
        assert split.queries_of_video.sum() == len(split.queries)
        assert (np.diff(split.owner) >= 0).all()
    assert store.split("val").videos.tolist() == store.split("test").videos.tolist()
    with pytest.raises(HolmesError, match=r"unknown split.*'tets'.*did you mean 'test'"):
        store.split("tets")


def test_hold_out_divides_by_videos(tmp_path: Path) -> None:
    store = random_store(tmp_path / "s", videos=40)
    train = store.split("train")
    fit, held = train.hold_out(0.25, seed=3)
    assert sorted([*fit.videos, *held.videos]) == sorted(train.videos)
    assert len(held.videos) == round(0.25 * 26)
    assert sorted([*fit.queries, *held.queries]) == sorted(train.queries)
    for part in (fit, held):
        assert (part.videos[part.owner] == store.owner_Q[part.queries]).all()
    assert train.hold_out(0.25, seed=3)[1].videos.tolist() == held.videos.tolist()
    assert train.hold_out(0.25, seed=4)[1].videos.tolist() != held.videos.tolist()
    for fraction in (0, 0.001, 1, 1.5):
        with pytest.raises(HolmesError, match="leaves one side empty"):
            train.hold_out(fraction)


def test_same_content_same_digest(tmp_path: Path) -> None:
    first, again = random_store(tmp_path / "a"), random_store(tmp_path / "b")
    other = random_store(tmp_path / "c", seed=1)
    assert first.info.digest == again.info.digest != other.info.digest


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(HolmesError, match="no such folder"):
        Store.open(tmp_path / "nowhere")
    with pytest.raises(HolmesError, match=r"no store\.json"):
        Store.open(tmp_path)
    store = random_store(tmp_path / "s")
    manifest = json.loads((store.path / "store.json").read_text())
    (store.path / "store.json").write_text(json.dumps(manifest | {"version": 99}))
    with pytest.raises(HolmesError, match="version 99"):
        Store.open(store.path)
    (store.path / "store.json").write_text(json.dumps(manifest | {"format": "other"}))
    with pytest.raises(HolmesError, match="does not describe a store"):
        Store.open(store.path)
    (store.path / "store.json").write_text(json.dumps(manifest))
    Store.open(store.path)
    with open(store.path / "tokens.npy", "r+b") as file:
        file.truncate(200)
    with pytest.raises(HolmesError, match=r"tokens\.npy has 200 bytes instead of"):
        Store.open(store.path)
    (store.path / "tokens.npy").unlink()
    with pytest.raises(HolmesError, match=r"tokens\.npy is missing"):
        Store.open(store.path)


def test_an_existing_folder_is_never_lost(tmp_path: Path) -> None:
    random_store(tmp_path / "s")
    with pytest.raises(HolmesError, match="already exists"):
        random_store(tmp_path / "s")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "letter.txt").write_text("dear")
    with (
        pytest.raises(HolmesError, match="is not a store"),
        StoreWriter(tmp_path / "precious", {}, overwrite=True),
    ):
        pass
    assert (tmp_path / "precious" / "letter.txt").read_text() == "dear"


def test_a_mistake_leaves_nothing_and_a_second_writer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HolmesError, match="bad row"), StoreWriter(tmp_path / "s", {}):
        assert list(tmp_path.iterdir())
        raise HolmesError("bad row")
    assert list(tmp_path.iterdir()) == []
    with (
        StoreWriter(tmp_path / "s", {}),
        pytest.raises(HolmesError, match="being written by another"),
        StoreWriter(tmp_path / "s", {}),
    ):
        pass


def test_a_full_disk_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000}))
    with pytest.raises(OSError, match=r"still to be written and 0.0 MB are free") as caught:
        random_store(tmp_path / "s")
    assert caught.value.errno == errno.ENOSPC and list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_keeps_what_was_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = random_store(tmp_path / "whole")

    def full(self: GrowingArray, rows: np.ndarray) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    add_queries = StoreWriter.add_queries

    def stop(self: StoreWriter, tokens: np.ndarray, count: int) -> None:
        self.commit()
        monkeypatch.setattr(GrowingArray, "append", full)
        add_queries(self, tokens, count)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(StoreWriter, "add_queries", stop)
        random_store(tmp_path / "s")
    monkeypatch.undo()
    assert json.loads((tmp_path / ".s.building/journal.json").read_text())["videos"] == 11
    with open(tmp_path / ".s.building/frames.npy", "r+b") as file:
        file.truncate(300)
    with pytest.raises(HolmesError, match="shorter than its journal"):
        random_store(tmp_path / "s")
    assert random_store(tmp_path / "s").info.digest == whole.info.digest


def test_a_growing_array_goes_on_where_it_was_cut(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float16)
    array = GrowingArray(tmp_path / "a.npy", (9, 4), 0)
    array.append(rows[:5])
    array.append(np.full((2, 4), 7))  # written after the last commit: to be forgotten
    array.file.close()
    array = GrowingArray(tmp_path / "a.npy", (9, 4), 5)
    array.append(rows[5:])
    array.sync()
    array.file.close()
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), rows)
