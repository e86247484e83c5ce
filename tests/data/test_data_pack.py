"""Packing: each layout in miniature is read back exactly; a killed pack continues; mistakes get one line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from test_data_pooling import slow_pool, slow_unit
from typer.testing import CliRunner

from data_layouts import Miniature
from holmes.cli.data import app
from holmes.data import feature_files
from holmes.data.check import check_store
from holmes.data.pack import Source, pack
from holmes.data.store import Store
from holmes.errors import HolmesError


def assert_float16_of(found: np.ndarray, exact: np.ndarray) -> None:
    """Equal to the exact value rounded to float16, or to its neighbour where float32 sums land on an edge."""
    np.testing.assert_array_less(
        np.abs(found - exact), np.spacing(np.abs(exact).astype(np.float16)) * 0.51 + 1e-7
    )


@pytest.mark.parametrize("layout", ["hdf5", "bigfile", "clip"])
def test_each_layout_is_read_back_exactly(tmp_path: Path, layout: str) -> None:
    tiny = Miniature.make(tmp_path / "tiny").write(layout)
    store = pack(Source(tmp_path / "tiny"), tmp_path / "store")
    check_store(store)
    assert store.info.collection == "tiny" and (store.info.video_width, store.info.text_width) == (6, 5)
    # Videos in order of first appearance; a video's captions together, in file order.
    assert store.video_ids == ["v_Cc", "cat_a", "dog-b", "d.d"]
    expected = [
        "v_Cc#enc#0",
        "v_Cc#enc#1",
        "cat_a#enc#0",
        "cat_a#enc#1",
        "dog-b#enc#0",
        "d.d#enc#0",
        "d.d#enc#1",
    ]
    assert store.query_ids == expected
    assert store.captions[3] == "a  cat sits" and store.captions[-1] == "ünïcode words"
    assert {name: store.split(name).queries.tolist() for name in store.splits} == {
        "train": [0, 1, 2, 3, 4],
        "val": [5, 6],
        "test": [5, 6],
    }
    assert store.split("train").videos.tolist() == [0, 1, 2] and store.split("test").videos.tolist() == [3]
    for index, name in enumerate(store.video_ids):
        rows = tiny.videos[name]
        frames = store.frames[store.frame_offsets[index] : store.frame_offsets[index + 1]]
        assert_float16_of(frames, slow_unit(rows if len(rows) <= 128 else slow_pool(rows, 128)))
        assert_float16_of(store.clips[index], slow_unit(slow_pool(rows, 32)))
    for index, name in enumerate(store.query_ids):
        tokens = store.tokens[store.token_offsets[index] : store.token_offsets[index + 1]]
        assert_float16_of(tokens, slow_unit(tiny.tokens[name][:30]))


def test_feature_sets_are_chosen_by_name(tmp_path: Path) -> None:
    tiny = Miniature.make(tmp_path / "tiny").write("bigfile")
    other = {name: -rows[:, :4] for name, rows in tiny.videos.items()}
    tiny.write_hdf5("FeatureData/other/feature.hdf5", other)
    tiny.write_hdf5("TextData/minilm_tiny_query_feat.hdf5", {n: t[:, :3] for n, t in tiny.tokens.items()})
    with pytest.raises(HolmesError, match=r"several: i3d, other; choose with --visual"):
        pack(Source(tiny.folder), tmp_path / "store")
    with pytest.raises(HolmesError, match=r"several: .*; choose with --text"):
        pack(Source(tiny.folder, visual="other"), tmp_path / "store")
    with pytest.raises(HolmesError, match=r"unknown visual feature set .*'i3'"):
        pack(Source(tiny.folder, visual="i3"), tmp_path / "store")
    store = pack(Source(tiny.folder, visual="other", text="minilm_tiny_query_feat.hdf5"), tmp_path / "store")
    assert (store.info.visual, store.info.video_width, store.info.text_width) == ("other", 4, 3)
    elsewhere = tiny.write_hdf5("../elsewhere/feats.hdf5", tiny.tokens)
    pack(Source(tiny.folder, visual="i3d", text=str(elsewhere)), tmp_path / "store2")


def test_a_sentence_vector_is_one_token(tmp_path: Path) -> None:
    tiny = Miniature.make(tmp_path / "tiny")
    tiny.tokens = {name: rows[0] for name, rows in tiny.tokens.items()}
    store = pack(Source(tiny.write("clip").folder), tmp_path / "store")
    assert np.diff(store.token_offsets).tolist() == [1] * 7


def test_features_without_captions_are_left_out(tmp_path: Path) -> None:
    tiny = Miniature.make(tmp_path / "tiny")
    tiny.videos["stranger"] = np.full((2, 6), np.nan, np.float32)
    store = pack(Source(tiny.write().folder), tmp_path / "store")
    assert "stranger" not in store.video_ids


# --- mistakes --------------------------------------------------------------------------------------------


def nan_video(tiny: Miniature) -> None:
    tiny.videos["dog-b"][77, 2] = np.nan


def inf_token(tiny: Miniature) -> None:
    tiny.tokens["cat_a#enc#1"][2, 0] = np.inf


def no_features(tiny: Miniature) -> None:
    del tiny.videos["dog-b"]


def no_tokens(tiny: Miniature) -> None:
    del tiny.tokens["d.d#enc#1"]


def empty_tokens(tiny: Miniature) -> None:
    tiny.tokens["d.d#enc#1"] = np.zeros((0, 5), np.float32)


def zero_frames(tiny: Miniature) -> None:
    tiny.videos["cat_a"] = np.zeros((0, 6), np.float32)


def no_width(tiny: Miniature) -> None:
    tiny.tokens = {name: rows[:, :0] for name, rows in tiny.tokens.items()}


def wide_tokens(tiny: Miniature) -> None:
    tiny.tokens["dog-b#enc#0"] = np.ones((3, 7), np.float32)


def twice(tiny: Miniature) -> None:
    tiny.captions["train"].append("cat_a#enc#0 another cat")


def in_train_too(tiny: Miniature) -> None:
    tiny.captions["test"] = [*tiny.captions["test"], tiny.captions["train"][0]]


def other_text(tiny: Miniature) -> None:
    tiny.captions["test"] = ["d.d#enc#0 something else"]


def no_caption(tiny: Miniature) -> None:
    tiny.captions["train"].append("cat_a#enc#2")


@pytest.mark.parametrize("layout", ["hdf5", "bigfile"])
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (no_features, r"i3d/feature.*: video 'dog-b' is missing; extract"),
        (no_tokens, r"roberta_tiny_query_feat.hdf5: caption 'd.d#enc#1' is missing; extract"),
        (empty_tokens, r"roberta_tiny_query_feat.hdf5: caption 'd.d#enc#1' has zero tokens"),
        (nan_video, r"i3d/feature.*: video 'dog-b', row 77, holds NaN or Inf"),
        (inf_token, r"query_feat.hdf5: caption 'cat_a#enc#1', row 2, holds NaN or Inf"),
        (zero_frames, r"i3d/feature.*: video 'cat_a' has zero frames"),
        (no_width, r"query_feat.hdf5: caption 'v_Cc#enc#0' has zero tokens"),
        (wide_tokens, r"query_feat.hdf5: caption 'dog-b#enc#0' is 7 wide, 'v_Cc#enc#0' 5"),
        (twice, r"tinytrain.caption.txt: line 6: caption id 'cat_a#enc#0' appears twice"),
        (in_train_too, r"tinytest.caption.txt: caption id 'v_Cc#enc#0' is also in train"),
        (other_text, r"tinytest.caption.txt: caption id 'd.d#enc#0' appears with two different texts"),
        (no_caption, r"tinytrain.caption.txt: line 6, 'cat_a#enc#2', is not '<video>#enc#<number> caption'"),
    ],
)
def test_bad_content(tmp_path: Path, layout: str, spoil: Callable[[Miniature], None], message: str) -> None:
    tiny = Miniature.make(tmp_path / "tiny")
    spoil(tiny)
    assert_refused(tiny.write(layout).folder, message)


def assert_refused(source: Path, message: str) -> None:
    """One line, and nothing left where the store would have been."""
    home = source.parent / "home"
    home.mkdir()
    with pytest.raises(HolmesError, match=message) as caught:
        pack(Source(source), home / "store")
    assert "\n" not in str(caught.value) and list(home.iterdir()) == []


def rewrite(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = folder / name
        path.write_bytes(change(path.read_bytes()))

    return spoil


IN = "FeatureData/i3d/"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            rewrite(IN + "feature.bin", lambda b: b[:-10]),
            r"feature.bin is truncated: it has 11318 bytes, but",
        ),
        (rewrite(IN + "feature.bin", lambda b: b + b"1234"), r"feature.bin is too long"),
        (rewrite(IN + "shape.txt", lambda b: b"471 6"), r"feature.bin is too long.* shape.txt says 471 × 6"),
        (rewrite(IN + "shape.txt", lambda b: b"472"), r"shape.txt says '472' instead of 'rows width'"),
        (rewrite(IN + "shape.txt", lambda b: b"-472 -6"), r"shape.txt says '-472 -6' instead"),
        (rewrite(IN + "id.txt", lambda b: b + b" extra"), r"id.txt has 473 ids and shape.txt says 472"),
        (
            rewrite(IN + "id.txt", lambda b: b.replace(b"cat_a_1", b"cat_a_9")),
            r"id.txt lacks frame 'cat_a_1' of",
        ),
        (
            rewrite(IN + "video2frames.txt", lambda b: b"__import__('os').system('touch /tmp/owned')"),
            r"video2frames.txt is not a plain literal",
        ),
        (
            rewrite(IN + "video2frames.txt", lambda b: b"{'a': [open('x')]}"),
            r"video2frames.txt is not a plain",
        ),
        (rewrite(IN + "video2frames.txt", lambda b: b[:50]), r"video2frames.txt is not a plain literal"),
        (
            rewrite(IN + "video2frames.txt", lambda b: b"{'cat_a': 'cat_a_0'}"),
            r"video2frames.txt is not a plain",
        ),
        (
            rewrite(IN + "video2frames.txt", lambda b: b"[" * 100_000),
            r"video2frames.txt is not a plain literal",
        ),
        (lambda folder: (folder / IN / "id.txt").unlink(), r"id.txt does not exist; a BigFile needs it"),
        (
            rewrite("TextData/roberta_tiny_query_feat.hdf5", lambda b: b"not HDF5 at all" * 99),
            r"roberta_tiny_query_feat.hdf5 is not a readable HDF5 file",
        ),
        (
            rewrite("TextData/roberta_tiny_query_feat.hdf5", lambda b: b[: len(b) // 2]),
            r"roberta_tiny_query_feat.hdf5 is not a readable HDF5 file",
        ),
        (
            rewrite("TextData/tinytrain.caption.txt", lambda b: b.replace(b"a dog", b"a d\xf6g")),
            r"tinytrain.caption.txt: line 4, 'dog-b#enc#0', is not UTF-8; convert",
        ),
        (
            rewrite("TextData/tinytest.caption.txt", lambda b: b"\n"),
            r"tinytest.caption.txt contains no captions",
        ),
    ],
)
def test_bad_files(tmp_path: Path, spoil: Callable[[Path], None], message: str) -> None:
    folder = Miniature.make(tmp_path / "tiny").write("bigfile").folder
    spoil(folder)
    assert_refused(folder, message)
    assert not Path("/tmp/owned").exists()


def test_wrong_folders(tmp_path: Path) -> None:
    with pytest.raises(HolmesError, match="is not a folder"):
        pack(Source(tmp_path / "nowhere"), tmp_path / "store")
    with pytest.raises(HolmesError, match=r"has no TextData/<collection>train.caption.txt"):
        pack(Source(tmp_path), tmp_path / "store")
    tiny = Miniature.make(tmp_path / "tiny")
    tiny.write_captions()
    with pytest.raises(HolmesError, match=r"FeatureData contains no visual feature set"):
        pack(Source(tiny.folder), tmp_path / "store")


def test_an_hdf5_of_something_else(tmp_path: Path) -> None:
    tiny = Miniature.make(tmp_path / "tiny").write()
    with h5py.File(tiny.folder / "FeatureData/i3d/feature.hdf5", "r+") as file:
        del file["cat_a"]
        file["cat_a/frames"] = np.ones((3, 6))
    assert_refused(tiny.folder, r"feature.hdf5: 'cat_a' is not a table of floats")


def test_the_command_exits_2_with_one_line(tmp_path: Path) -> None:
    tiny = Miniature.make(tmp_path / "tiny")
    nan_video(tiny)
    command = [
        sys.executable,
        "-m",
        "holmes",
        "data",
        "pack",
        str(tiny.write().folder),
        str(tmp_path / "store"),
    ]
    result = subprocess.run(command, capture_output=True, text=True)
    last = result.stderr.strip().splitlines()[-1]
    assert result.returncode == 2 and "Traceback" not in result.stderr
    assert last.startswith("holmes: ") and "video 'dog-b', row 77" in result.stderr.replace("\n", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny"]


# --- stopping and going on -------------------------------------------------------------------------------


@pytest.mark.parametrize("after", ["videos", "queries"])
def test_a_killed_pack_goes_on(tmp_path: Path, after: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = Miniature.make(tmp_path / "tiny").write()
    whole = pack(Source(tiny.folder), tmp_path / "whole")
    journal = tmp_path / ".store.building" / "journal.json"
    read = feature_files.HDF5Features.rows
    monkeypatch.setattr("holmes.data.pack.COMMIT_VIDEOS", 2)
    monkeypatch.setattr("holmes.data.pack.COMMIT_QUERIES", 3)
    if (child := os.fork()) == 0:

        def killed(self: feature_files.HDF5Features, name: str) -> feature_files.Array:
            if journal.is_file() and json.loads(journal.read_text())[after] > 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return read(self, name)

        feature_files.HDF5Features.rows = killed  # type: ignore[method-assign]
        pack(Source(tiny.folder), tmp_path / "store")
        os._exit(1)  # it was not killed
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    done = json.loads(journal.read_text())
    assert not (tmp_path / "store").exists() and done["queries"] < 7

    read_again: list[str] = []
    monkeypatch.setattr(
        feature_files.HDF5Features, "rows", lambda self, name: (read_again.append(name), read(self, name))[1]
    )
    store = pack(Source(tiny.folder), tmp_path / "store")
    assert store.info.digest == whole.info.digest
    assert read_again == whole.video_ids[done["videos"] :] + whole.query_ids[done["queries"] :]
    assert not journal.parent.exists()


def test_a_stopped_pack_of_other_files_starts_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = Miniature.make(tmp_path / "tiny").write()
    monkeypatch.setattr("holmes.data.pack.pack_queries", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        pack(Source(tiny.folder), tmp_path / "store")
    assert (tmp_path / ".store.building" / "journal.json").is_file()
    (tmp_path / ".store.building" / ".queries.json.x1.part").write_text("half")  # left by a kill
    monkeypatch.undo()
    tiny.videos["cat_a"] = -tiny.videos["cat_a"]
    tiny.write_hdf5("FeatureData/i3d/feature.hdf5", tiny.videos)
    store = pack(Source(tiny.folder), tmp_path / "store")
    assert store.info.digest == pack(Source(tiny.folder), tmp_path / "fresh").info.digest


# --- check, info, export ---------------------------------------------------------------------------------


def test_check_finds_one_changed_byte(tmp_path: Path) -> None:
    store = pack(Source(Miniature.make(tmp_path / "tiny").write().folder), tmp_path / "store")
    for name in store.info.files:
        path = store.path / name
        original = path.read_bytes()
        path.write_bytes(original[:-2] + bytes([original[-2] ^ 1]) + original[-1:])
        with pytest.raises(HolmesError, match="changed or damaged"):
            check_store(Store.open(store.path))
        path.write_bytes(original)
    check_store(store)


def test_commands(tmp_path: Path) -> None:
    folder = Miniature.make(tmp_path / "tiny").write("bigfile").folder
    runner, store = CliRunner(), str(tmp_path / "store")
    packed = runner.invoke(app, ["pack", str(folder), store])
    assert packed.exit_code == 0 and "1.7, at most 2" in packed.output  # 5 queries on 3 videos
    assert "i3d, 6 wide" in runner.invoke(app, ["info", store]).output
    assert "is intact" in runner.invoke(app, ["check", store]).output
    result = runner.invoke(app, ["pack", str(folder), store])
    assert result.exit_code != 0 and isinstance(result.exception, HolmesError)
    assert runner.invoke(app, ["pack", str(folder), store, "--overwrite"]).exit_code == 0
