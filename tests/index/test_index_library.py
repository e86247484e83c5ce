"""A library lives: files are moved, renamed, copied, changed, deleted, and away."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("av")
from colour_films import Colour, Library, encoded_by, library
from holmes.errors import HolmesError
from holmes.index.answer.searcher import open_single_index
from holmes.index.ingest.builder import FEATURES, PendingVideos, add_videos
from holmes.index.ingest.skipped import read_skipped
from holmes.index.ingest.sync import SyncSummary, sync_index, watch_folders
from holmes.index.storage.maintenance import compact_index
from holmes.index.storage.store import IndexStore
from holmes.media import origin
from holmes.media.feature_folder import FeatureFolder, video_id
from index_fakes import every_name_loads

__all__ = ["library"]


def names(library: Library) -> set[str]:
    return {os.path.relpath(name, library.root) for name in IndexStore.open(library.index).positions}


def rows(library: Library, name: str) -> bytes:
    store = IndexStore.open(library.index)
    video = store[str(library.root / name)]
    return next(part for part in vars(video).values() if hasattr(part, "tobytes")).tobytes()


def test_a_folder_that_moved_is_known_again(library: Library) -> None:
    before = rows(library, "films/a.mp4")
    moved = library.films.rename(library.root / "elsewhere")
    hit = open_single_index(library.index, device="cpu").search("dog").hits[0]
    assert hit.gone
    summaries: list[SyncSummary] = []
    assert encoded_by(lambda: summaries.append(sync_index(library.index, [moved]))) == 0
    (summary,) = summaries
    assert (summary.added, len(summary.moved), summary.removed) == (0, 3, ())
    assert names(library) == {f"elsewhere/{name}.mp4" for name in "abc"}
    assert rows(library, "elsewhere/a.mp4") == before
    assert not open_single_index(library.index, device="cpu").search("dog").hits[0].gone
    assert sync_index(library.index, [moved]).changes == 0
    assert len(FeatureFolder.open(library.index / FEATURES)) == 3, "the features moved along"


def test_adding_a_moved_folder_extracts_nothing_and_leaves_no_copies(library: Library) -> None:
    moved = library.films.rename(library.root / "elsewhere")
    assert encoded_by(lambda: add_videos(library.index, [moved])) == 0
    assert names(library) == {f"elsewhere/{name}.mp4" for name in "abc"}


def test_the_index_follows_the_folder(library: Library) -> None:
    other = library.root / "other"
    other.mkdir()
    shutil.copy(library.film("z.mp4", 250, 10, 250), other / "z.mp4")
    (library.films / "z.mp4").unlink()
    add_videos(library.index, [other])
    library.film("new.mp4", 200)
    library.film("b.mp4", 5, 250, 90)  # changed
    (library.films / "deep").mkdir()
    (library.films / "c.mp4").rename(library.films / "deep" / "renamed.mp4")
    (library.films / "a.mp4").unlink()
    shutil.copy(library.films / "b.mp4", library.films / "copy.mp4")
    summary = sync_index(library.index, [library.films])
    assert names(library) == {"films/new.mp4", "films/b.mp4", "films/deep/renamed.mp4", "other/z.mp4"}
    assert summary.added == 2 and summary.removed == (str(library.films / "a.mp4"),)
    assert [(move.before.name, move.now.name) for move in summary.moved] == [("c.mp4", "renamed.mp4")]
    (copy,) = summary.duplicates
    assert (copy.source.name, copy.same_as.name) == ("copy.mp4", "b.mp4")
    assert (
        IndexStore.open(library.index)[str(library.films / "b.mp4")].duration > 1.5
    )  # three frames, where there were two
    again = sync_index(library.index, [library.films])
    assert again.changes == 0 and again.unchanged == 3 and len(again.duplicates) == 1
    listed = [{"name": str(copy.source), "reason": f"the same as {copy.same_as}"}]
    assert read_skipped(library.index)["copies"] == listed
    (library.films / "b.mp4").unlink()  # then its copy takes its place
    third: list[SyncSummary] = []
    assert encoded_by(lambda: third.append(sync_index(library.index, [library.films]))) == 0
    assert [move.now.name for move in third[0].moved] == ["copy.mp4"] and not third[0].removed
    assert read_skipped(library.index)["copies"] == []


def test_files_that_changed_places_do_not_take_each_others_features(library: Library) -> None:
    a, b = rows(library, "films/a.mp4"), rows(library, "films/b.mp4")
    spare = library.films / "spare"
    (library.films / "a.mp4").rename(spare)
    (library.films / "b.mp4").rename(library.films / "a.mp4")
    spare.rename(library.films / "b.mp4")
    for file in library.films.iterdir():
        os.utime(file, ns=(1, 1))  # at the same time, so that only their content tells them apart
    sync_index(library.index, [library.films])
    assert (rows(library, "films/a.mp4"), rows(library, "films/b.mp4")) == (b, a) != (a, b)
    assert names(library) == {"films/a.mp4", "films/b.mp4", "films/c.mp4"}


def test_names_handed_on_in_a_chain(library: Library) -> None:
    a, b = rows(library, "films/a.mp4"), rows(library, "films/b.mp4")
    (library.films / "c.mp4").unlink()
    (library.films / "b.mp4").rename(library.films / "c.mp4")
    (library.films / "a.mp4").rename(library.films / "b.mp4")
    assert encoded_by(lambda: sync_index(library.index, [library.films])) == 0
    assert names(library) == {"films/b.mp4", "films/c.mp4"}
    assert (rows(library, "films/b.mp4"), rows(library, "films/c.mp4")) == (a, b)


def test_a_file_that_was_only_touched_is_not_extracted(library: Library) -> None:
    os.utime(library.films / "a.mp4", ns=(1, 1))
    summaries: list[SyncSummary] = []
    assert encoded_by(lambda: summaries.append(sync_index(library.index, [library.films]))) == 0
    assert summaries[0].changes == 0 and names(library) == {f"films/{name}.mp4" for name in "abc"}
    assert encoded_by(lambda: add_videos(library.index, [library.films])) == 0


def test_a_folder_that_is_away_loses_nothing(library: Library) -> None:
    away = library.films.rename(library.root / "away")
    with pytest.raises(HolmesError, match="does not exist; nothing was changed"):
        sync_index(library.index, [library.films])
    library.films.mkdir()  # as a mount point without its disk
    with pytest.raises(HolmesError, match=r"contains no videos now, but the index has 3.*index remove"):
        sync_index(library.index, [library.films])
    library.films.rmdir()
    away.rename(library.films)
    assert sync_index(library.index, [library.films]).unchanged == 3


@pytest.mark.parametrize("how", ["empty", "link", "mount", "closed"])
def test_a_disk_below_the_folder_may_be_away(
    library: Library, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    disk = library.films / "disk"
    library.film("disk/d.mp4", 130, 20)
    if how == "mount":
        monkeypatch.setattr("holmes.media.origin.mount_point", lambda path: str(Path(path).parent))
    sync_index(library.index, [library.films])
    monkeypatch.undo()
    every_name_loads(monkeypatch, Colour())
    if how == "closed":
        scan = os.scandir

        def guarded(path: str) -> Iterator[os.DirEntry[str]]:
            if os.fspath(path) == str(disk):
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(disk))
            return scan(path)

        monkeypatch.setattr(os, "scandir", guarded)
    disk.rename(library.root / "unplugged")
    if how in ("empty", "closed"):
        disk.mkdir()
    if how == "closed":
        (disk / "notes.txt").touch()
    elif how == "link":
        disk.symlink_to(library.root / "nowhere")
    summary = sync_index(library.index, [library.films])
    monkeypatch.undo()
    assert summary.away == (str(disk / "d.mp4"),) and summary.removed == ()
    assert "films/disk/d.mp4" in names(library)


def test_a_folder_that_was_really_deleted_is_removed(library: Library) -> None:
    shutil.rmtree(library.film("old/d.mp4", 130, 20).parent)
    library.film("old/d.mp4", 130, 20)
    sync_index(library.index, [library.films])
    shutil.rmtree(library.films / "old")
    assert sync_index(library.index, [library.films]).removed == (str(library.films / "old" / "d.mp4"),)


def test_a_copy_of_what_is_away_is_a_duplicate(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(library.films / "a.mp4", library.root / "kept.mp4")
    (library.films / "a.mp4").unlink()
    monkeypatch.setattr(origin, "is_disconnected", lambda origin: True)
    monkeypatch.setattr("holmes.index.ingest.file_identity.is_disconnected", lambda origin: True)
    summary = add_videos(library.index, [library.root / "kept.mp4"])
    assert [copy.same_as.name for copy in summary.duplicates] == ["a.mp4"]
    assert "films/a.mp4" in names(library)


@pytest.mark.parametrize("again", [False, True])
def test_an_interrupted_sync_is_finished_by_the_next(
    library: Library, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    moved = library.films.rename(library.root / "elsewhere")

    def stop(self: PendingVideos) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(PendingVideos, "commit", stop)
        with pytest.raises(KeyboardInterrupt):
            sync_index(library.index, [moved])
    assert names(library) == {f"films/{name}.mp4" for name in "abc"}
    if again:  # before anybody looks
        moved = moved.rename(library.root / "elsewhere again")
    assert encoded_by(lambda: sync_index(library.index, [moved])) == 0
    assert names(library) == {f"{moved.name}/{name}.mp4" for name in "abc"}, "no old copies beside the new"


def test_features_under_the_short_ids_of_earlier_days_are_used(library: Library) -> None:
    folder = FeatureFolder.open(library.index / FEATURES)
    for name in "abc":
        source = library.films / f"{name}.mp4"
        folder.file(video_id(source)).rename(folder.file(video_id(source, digits=10)))
    compact_index(library.index)
    assert encoded_by(lambda: add_videos(library.index, [library.films])) == 0
    assert sorted(folder.ids()) == sorted(video_id(library.films / f"{name}.mp4") for name in "abc")
    assert all(len(id.rpartition("-")[2]) == 32 for id in folder.ids())


def test_watching_waits_until_files_are_at_rest(library: Library) -> None:
    told: list[SyncSummary | str] = []
    naps = iter(
        [
            lambda: library.film("d.mp4", 10),  # being copied
            lambda: library.film("d.mp4", 10, 20, 30),  # still
            lambda: None,  # at rest
            lambda: None,
            lambda: library.films.rename(library.root / "away"),
            lambda: None,
            lambda: (library.root / "away").rename(library.films),
            lambda: None,
            lambda: None,
        ]
    )
    seen: list[int] = []

    def sleep(seconds: float) -> None:
        seen.append(len(told))
        act = next(naps, None)
        if act is None:
            raise KeyboardInterrupt
        act()

    with pytest.raises(KeyboardInterrupt):
        for news in watch_folders(
            lambda: sync_index(library.index, [library.films]), [library.films], 5.0, sleep
        ):
            told.append(news)
    assert seen[:4] == [1, 1, 1, 2], "nothing is taken in while it grows"
    summaries = [news for news in told if isinstance(news, SyncSummary)]
    assert [summary.added for summary in summaries] == [0, 1]
    assert any("does not exist" in news for news in told if isinstance(news, str))
    assert names(library) == {f"films/{name}.mp4" for name in "abcd"}
