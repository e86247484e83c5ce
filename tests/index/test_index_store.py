"""The index on disk: what was added is there, exactly, after every kind of change."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

import numpy as np
import pytest

from holmes.errors import HolmesError
from holmes.index.storage import writer as index_writer
from holmes.index.storage.manifest import Manifest
from holmes.index.storage.segments import TILE, StoredVideo
from holmes.index.storage.store import IndexStore
from holmes.index.storage.writer import IndexWriter, create_index
from packed import pack_video

WIDTH, CLIPS = 8, 32


def make_video(name: str, frames: int, seed: int = 0) -> StoredVideo:
    rng = np.random.default_rng([seed, *os.fsencode(name)])
    times = np.sort(rng.uniform(0, 60, (frames, 2)))
    clips = rng.normal(size=(CLIPS, WIDTH))
    frames_FD, clip_spans = rng.normal(size=(frames, WIDTH)), np.zeros((CLIPS, 2))
    return pack_video(name, 60.0, frames_FD, clips, times, clip_spans, stamp=seed)


@pytest.fixture
def index(tmp_path: Path) -> Path:
    create_index(tmp_path / "index", Manifest({"digest": "m"}, {}, WIDTH, CLIPS))
    return tmp_path / "index"


def assert_holds(index: Path, expected: dict[str, StoredVideo]) -> None:
    store = IndexStore.open(index)
    assert set(store.positions) == set(expected) and len(store) == len(expected)
    for name, video in expected.items():
        found = store[name]
        assert (found.frames, found.duration, found.stamp) == (video.frames, video.duration, video.stamp)
        np.testing.assert_array_equal(found.rows_SPD, video.rows_SPD)
        np.testing.assert_array_equal(found.spans_SP2, video.spans_SP2)
    assert store.faults() == []


def test_packing_normalises_and_pads_with_the_last_frame() -> None:
    frames = np.array([[3.0, 4.0], [0.0, 2.0], [0.0, 0.0]])
    spans = np.array([[0, 1], [1, 2], [2, 3]], float)
    video = pack_video("a", 3.0, frames, np.eye(2).repeat(16, 0), spans, np.zeros((32, 2)))
    assert video.frames == 3 and video.rows_SPD.shape == (1, TILE + 32, 2)
    assert video.rows_SPD.dtype == np.float16
    np.testing.assert_allclose(video.rows_SPD[0, :3], [[0.6, 0.8], [0, 1], [0, 0]], atol=1e-3)
    np.testing.assert_array_equal(video.rows_SPD[0, 3:TILE], np.zeros((TILE - 3, 2)))
    np.testing.assert_array_equal(video.spans_SP2[0, 3:TILE], [[2, 3]] * (TILE - 3))
    for bad in ("", "a\0b"):
        with pytest.raises(HolmesError, match="cannot name"):
            pack_video(bad, 1.0, frames, frames, spans, spans)
    with pytest.raises(HolmesError, match="not finite"):
        pack_video("a", 1.0, frames * np.nan, frames, spans, spans)
    with pytest.raises(HolmesError, match="no frames"):
        pack_video("a", 1.0, frames[:0], frames, spans[:0], spans)


def test_add_reopen_remove_replace_compact(index: Path) -> None:
    expected: dict[str, StoredVideo] = {}
    with IndexWriter(index) as writer:
        for batch in range(6):  # ragged lengths, odd names, names that are not valid text
            odd = [os.fsdecode(bytes([128 + i])) for i in range(7)]
            videos = [make_video(f"v{batch}/{i} ü{odd[i]}", 1 + 21 * i) for i in range(7)]
            writer.add(videos)
            expected.update((video.name, video) for video in videos)
            assert_holds(index, expected)
        gone = sorted(expected)[::3]
        writer.remove(gone)
        for name in gone:
            del expected[name]
        assert_holds(index, expected)
        again = [make_video(name, 5, seed=1) for name in sorted(expected)[::4]]
        writer.add(again)
        expected.update((video.name, video) for video in again)
        assert_holds(index, expected)
        writer.compact()
        assert_holds(index, expected)
        assert len(writer.store.segments) == 1 and not writer.store.manifest.segments[0].removed
        writer.remove(list(expected))
        assert_holds(index, {})
        assert list((index / "segments").iterdir()) == []


def test_removing_frees_space_when_compacted(index: Path) -> None:
    def size() -> int:
        return sum(file.stat().st_size for file in index.rglob("*") if file.is_file())

    with IndexWriter(index) as writer:
        writer.add([make_video(str(i), 100) for i in range(50)])
        before = size()
        writer.remove([str(i) for i in range(40)])
        assert size() > 0.99 * before
        writer.compact()
    assert size() < 0.3 * before


def test_many_small_additions_leave_few_segments(index: Path) -> None:
    with IndexWriter(index) as writer:
        for i in range(33):
            writer.add([make_video(str(i), 1)])
        assert len(writer.store.segments) == 2
    assert_holds(index, {str(i): make_video(str(i), 1) for i in range(33)})


def test_a_reader_keeps_what_it_opened_and_survives_a_compaction(index: Path) -> None:
    videos = {str(i): make_video(str(i), 30) for i in range(5)}
    with IndexWriter(index) as writer:
        writer.add(list(videos.values()))
        reader = IndexStore.open(index)
        writer.remove(["1", "2"])
        writer.compact()
    assert len(IndexStore.open(index)) == 3
    assert len(reader) == 5
    np.testing.assert_array_equal(reader["1"].rows_SPD, videos["1"].rows_SPD)


def test_a_second_writer_is_told_who_holds_the_lock(index: Path) -> None:
    def said() -> str:
        """What a process of its own is told."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                with IndexWriter(index):
                    os.write(writing, b"in")
            except BaseException as error:
                os.write(writing, f"{type(error).__name__} {error}".encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        os.close(writing)
        with open(reading) as told:
            return told.read()

    with IndexWriter(index):
        assert said().startswith(f"HolmesError process {os.getpid()} is changing {index}")
    assert said() == "in"


def test_mistakes_are_refused_and_change_nothing(index: Path, tmp_path: Path) -> None:
    video = make_video("a", 3)
    with IndexWriter(index) as writer:
        writer.add([video])
        with pytest.raises(HolmesError, match="no video named 'b'"):
            writer.remove(["a", "b"])
        with pytest.raises(HolmesError, match="a was given twice"):
            writer.add([video, video])
        wide = pack_video("w", 1.0, np.ones((1, 9)), np.ones((32, 9)), np.zeros((1, 2)), np.zeros((32, 2)))
        with pytest.raises(HolmesError, match="w do not have"):
            writer.add([wide])
    assert_holds(index, {"a": video})
    with pytest.raises(HolmesError, match="is already an index"):
        create_index(index, Manifest({}, {}, WIDTH, CLIPS))
    for nothing in (tmp_path / "absent", tmp_path):
        with pytest.raises(HolmesError, match="is not an index"):
            IndexWriter(nothing).__enter__()
        assert not (nothing / "lock").exists()


def test_a_full_disk_changes_nothing(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(_: int) -> None:
        raise OSError(28, "No space left on device")

    video, other = make_video("a", 3), make_video("b", 3)
    with IndexWriter(index) as writer:
        writer.add([video])
        monkeypatch.setattr(os, "fsync", no_space)
        for change in (lambda: writer.add([other]), writer.compact, lambda: writer.remove(["a"])):
            with pytest.raises(OSError, match="No space") as caught:
                change()
            assert str(caught.value.filename).startswith(str(index))
        monkeypatch.undo()
        assert len(list((index / "segments").iterdir())) == 1
    assert_holds(index, {"a": video})


def test_check_finds_changed_bytes(index: Path) -> None:
    with IndexWriter(index) as writer:
        writer.add([make_video("a", 3)])
    rows = next(index.rglob("rows.f16"))
    flip_a_byte(rows)
    (fault,) = IndexStore.open(index).faults()
    assert str(rows) in fault


def flip_a_byte(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("file", ["rows.f16", "spans.f32"])
def test_damage_is_never_copied_under_a_new_checksum(index: Path, file: str) -> None:
    with IndexWriter(index) as writer:
        writer.add([make_video("a", 3), make_video("b", 3)])
        flip_a_byte(next(index.rglob(file)))
        merging = [make_video(name, 3) for name in "cde"]  # more than there are, so the old ones join them
        for change in (writer.compact, lambda: writer.add(merging)):
            with pytest.raises(HolmesError, match=rf"{file} is damaged .*Remove {index} and build it again"):
                change()
        writer.add([make_video("f", 3)])  # beside the damaged ones, nothing is copied
    (fault,) = IndexStore.open(index).faults()
    assert file in fault, "still there to be found"


def test_two_processes_cannot_both_make_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, manifest = tmp_path / "index", Manifest({}, {}, WIDTH, CLIPS)

    def overtaken(path: Path) -> IO[str]:
        """Another process makes the index, and fills it, just before this one gets the lock."""
        monkeypatch.setattr(index_writer, "lock_index", acquire)
        create_index(path, manifest)
        with IndexWriter(path) as writer:
            writer.add([make_video("a", 3)])
        return acquire(path)

    acquire = index_writer.lock_index
    monkeypatch.setattr(index_writer, "lock_index", overtaken)
    with pytest.raises(HolmesError, match="is already an index"):
        create_index(index, manifest)
    assert "a" in IndexStore.open(index)


def test_a_creation_cut_short_is_taken_up(tmp_path: Path) -> None:
    index, manifest = tmp_path / "index", Manifest({}, {}, WIDTH, CLIPS)
    (index / "segments").mkdir(parents=True)
    (index / "lock").touch()
    (index / ".manifest.json.x1y2.part").write_bytes(b"{")
    create_index(index, manifest)
    with IndexWriter(index) as writer:
        writer.add([make_video("a", 3)])
    assert list(index.glob(".*")) == []
    (index / "manifest.json").unlink()
    with pytest.raises(HolmesError, match="not empty"):
        create_index(index, manifest)  # what somebody kept there is not thrown away
