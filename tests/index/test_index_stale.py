"""An index that is replaced while a writer works on it: the writer notices, and leaves the new one alone."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from pathlib import Path

import pytest
from test_index_store import CLIPS, WIDTH, make_video

from holmes.errors import HolmesError
from holmes.index.storage import writer as index_writer
from holmes.index.storage.manifest import Manifest
from holmes.index.storage.store import IndexStore
from holmes.index.storage.writer import IndexWriter, create_index

FLOCK = fcntl.flock


def names_in(index: Path) -> set[str]:
    store = IndexStore.open(index)
    assert store.faults() == []
    return set(store.positions)


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


def lock_files_only(descriptor: int, how: int) -> None:
    """A network file system, which cannot lock folders."""
    if stat.S_ISDIR(os.fstat(descriptor if isinstance(descriptor, int) else descriptor.fileno()).st_mode):
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    FLOCK(descriptor, how)


def test_a_writer_that_lost_its_lock_removes_no_segment_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both write a segment of the same name; only one of them made it."""
    monkeypatch.setattr(fcntl, "flock", lock_files_only)
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


def test_deleting_the_lock_lets_no_second_writer_in(tmp_path: Path) -> None:
    """The folder itself is locked too."""
    index = tmp_path / "index"
    build_elsewhere(index, ["old"])
    with IndexWriter(index) as first:
        (index / "lock").unlink()
        with pytest.raises(HolmesError, match="another process is changing"), IndexWriter(index):
            pass
        with pytest.raises(HolmesError, match="was replaced"):  # and the first does not go on without it
            first.add([make_video("late", 5)])
    with IndexWriter(index) as later:
        later.add([make_video("new", 3)])
    assert names_in(index) == {"old", "new"}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("how", ["removed", "moved"])
def test_an_index_replaced_around_the_very_commit(
    tmp_path: Path, how: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Just before the manifest is renamed, when all checks are done, or just after."""
    index, moved = tmp_path / "index", tmp_path / "moved"
    build_elsewhere(index, ["old"])
    rename, before = os.replace, dict[Path, bytes]()

    def interrupted(source: str, target: str) -> None:
        monkeypatch.setattr(os, "replace", rename)
        if when == "after":
            rename(source, target)
        index.rename(moved)
        build_elsewhere(index, ["new"])
        if how == "removed":
            shutil.rmtree(moved)
        before.update({path: path.read_bytes() for path in index.rglob("*") if path.is_file()})
        if when == "before":
            rename(source, target)

    with IndexWriter(index) as stale:
        monkeypatch.setattr(os, "replace", interrupted)
        with pytest.raises(HolmesError, match="was replaced by another process"):
            stale.add([make_video("late", 5)])
    assert {path: path.read_bytes() for path in index.rglob("*") if path.is_file()} == before
    assert names_in(index) == {"new"}
    if how == "moved":
        assert names_in(moved) == ({"old"} if when == "before" else {"old", "late"})


def test_an_index_replaced_while_a_segment_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segment is there already when the index under it becomes another with a segment of that name."""
    index = tmp_path / "index"
    build_elsewhere(index, ["old"])
    write = index_writer.write_segment

    def slow(folder: Path, videos: list) -> object:
        monkeypatch.setattr(index_writer, "write_segment", write)
        entry = write(folder, videos)
        shutil.rmtree(index)
        build_elsewhere(index, ["new"])
        with IndexWriter(index) as other:
            other.remove(["new"])
            other.add([make_video("newer", 3)])
        return entry

    with IndexWriter(index) as stale:
        monkeypatch.setattr(index_writer, "write_segment", slow)
        with pytest.raises(HolmesError, match="was replaced by another process"):
            stale.add([make_video("late", 5)])
    assert names_in(index) == {"newer"}
