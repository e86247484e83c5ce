"""An index that becomes another one under a writer's hands: the writer notices, and touches nothing of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from holmes.errors import HolmesError
from holmes.index import store as index_store
from holmes.index.manifest import Manifest
from holmes.index.store import IndexStore, IndexWriter, create_index
from test_index_store import CLIPS, WIDTH, make_video


def names_in(index: Path) -> set[str]:
    store = IndexStore.open(index)
    assert store.faults() == []
    return set(store.places)


def build_elsewhere(index: Path, names: list[str]) -> None:
    """Another process makes an index here and says that it is done."""
    create_index(index, Manifest({"digest": "m"}, {}, WIDTH, CLIPS))
    with IndexWriter(index) as other:
        other.add([make_video(name, 3) for name in names])


@pytest.mark.parametrize("how", ["removed", "moved"])
@pytest.mark.parametrize("change", ["add", "remove", "compact"])
def test_a_writer_whose_index_was_replaced_touches_nothing(tmp_path: Path, how: str, change: str) -> None:
    index = tmp_path / "index"
    build_elsewhere(index, ["old", "older"])
    with IndexWriter(index) as stale:
        if how == "moved":
            index.rename(tmp_path / "moved")
        else:
            shutil.rmtree(index)
        build_elsewhere(index, ["new", "newer"])
        before = {path: path.read_bytes() for path in index.rglob("*") if path.is_file()}
        with pytest.raises(HolmesError, match="was replaced by another process"):
            match change:
                case "add":
                    stale.add([make_video("late", 5)])
                case "remove":
                    stale.remove(["old"])
                case "compact":
                    stale.compact()
    assert {path: path.read_bytes() for path in index.rglob("*") if path.is_file()} == before
    assert names_in(index) == {"new", "newer"}
    if how == "moved":
        assert names_in(tmp_path / "moved") == {"old", "older"}


def test_a_writer_that_lost_its_lock_removes_no_segment_of_another(tmp_path: Path) -> None:
    """Both write a segment of the same name; only one of them made it."""
    index = tmp_path / "index"
    build_elsewhere(index, ["old"])
    with IndexWriter(index) as stale:
        (index / "lock").unlink()
        with IndexWriter(index) as other:
            other.add([make_video("new", 3)])
            with pytest.raises(HolmesError, match="was replaced by another process"):
                stale.add([make_video("late", 5)])
            assert names_in(index) == {"old", "new"}
            other.add([make_video("newer", 3)])
    assert names_in(index) == {"old", "new", "newer"}


def test_an_index_replaced_while_a_segment_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segment is there already when the index under it becomes another with a segment of that name."""
    index = tmp_path / "index"
    build_elsewhere(index, ["old"])
    write = index_store.write_segment

    def slow(folder: Path, videos: list) -> object:
        monkeypatch.setattr(index_store, "write_segment", write)
        entry = write(folder, videos)
        shutil.rmtree(index)
        build_elsewhere(index, ["new"])
        with IndexWriter(index) as other:
            other.remove(["new"])
            other.add([make_video("newer", 3)])
        return entry

    with IndexWriter(index) as stale:
        monkeypatch.setattr(index_store, "write_segment", slow)
        with pytest.raises(HolmesError, match="was replaced by another process"):
            stale.add([make_video("late", 5)])
    assert names_in(index) == {"newer"}
