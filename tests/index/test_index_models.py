"""An index from another model, several indexes on the same sentences, embeddings as Parquet, and training."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("av")

import holmes
from holmes import extend
from holmes.errors import HolmesError
from holmes.index.embedders.loading import load_embedder
from holmes.index.ingest.hearing import set_words
from holmes.index.ingest.rebuild import rebuild_index
from holmes.index.storage.export import export_parquet
from holmes.index.storage.store import IndexStore
from media_files import video
from own_names import names_restored
from shell import Shell
from tex import compile_tables

COLOURS = ("red", "green", "blue")


def tint(images) -> np.ndarray:
    return np.array([image.mean((0, 1)) / 255 for image in images]) + 0.01


def word(sentences) -> np.ndarray:
    return np.array([[each in sentence for each in COLOURS] for sentence in sentences]) + 0.01


@pytest.fixture
def encoders() -> Iterator[None]:
    with names_restored():
        extend.visual_encoder("tint", tint, width=3, sentences=word)
        extend.visual_encoder("mute", lambda images: tint(images) ** 0.1, width=3, sentences=word)
        yield


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six films: two of each colour, each with its own shade."""
    folder = tmp_path_factory.mktemp("films")
    for number in range(6):
        colour = np.zeros(3, np.uint8)
        colour[number % 3] = 250 - 60 * (number // 3)
        images = [np.full((48, 64, 3), colour) for _ in range(8)]
        video(folder / f"film{number}.mp4", images, [second / 2 for second in range(8)])
    return folder


@pytest.fixture(scope="module")
def captions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("captions") / "captions.csv"
    places = ("", "here", "now", "there", "again", "once")
    rows = [f"film{n}.mp4,something {COLOURS[n % 3]} {place}" for n in range(6) for place in places]
    file.write_text("\n".join(["video,sentence", *rows]))
    return file


def rows_of(printed: str) -> list[dict[str, str]]:
    (grid,) = json.loads(printed)
    return [dict(zip(grid["columns"], row, strict=True)) for row in grid["rows"]]


def test_an_index_is_made_again_beside_the_old_one(
    encoders, films: Path, captions, tmp_path, monkeypatch, capsys
):
    shell, index = Shell(monkeypatch, capsys), tmp_path / "index"
    holmes.build_index(index, films, "tint")
    before = holmes.open_index(index).search("something red")
    code, _, said = shell("index", "rebuild", index, "--model", "mute")
    assert code == 0 and "6 videos encoded with mute" in said
    assert IndexStore.open(index).manifest.model["name"] == "mute"
    old = tmp_path / "index.before"
    assert [hit.video for hit in holmes.open_index(old).search("something red")] == [h.video for h in before]
    code, table, _ = shell("index", "compare", old, index, captions, "--format", "json")
    assert code == 0
    assert "with 95% intervals over videos" in table
    first, second = rows_of(table)
    assert float(first["R@5"].split()[0]) == 100 and float(second["R@1"].split()[0]) <= 50
    code, _, said = shell("index", "rebuild", index, "--model", "tint")
    assert code == 2 and "is still there from an earlier rebuild" in said
    _, table, _ = shell("index", "compare", old, index, captions, "--format", "latex")
    compile_tables(tmp_path, table)


def test_the_old_index_answers_until_the_new_one_is_complete(
    encoders, films: Path, tmp_path: Path, monkeypatch
):
    index = tmp_path / "index"
    own = [tmp_path / f"film{n}.mp4" for n in range(3)]
    for path in own:
        path.write_bytes((films / path.name).read_bytes())
    holmes.build_index(index, own, "tint")
    opened = holmes.open_index(index)
    own[0].rename(tmp_path / "elsewhere.mp4")
    done = rebuild_index(index, load_embedder("mute"))
    assert done.before is None and [failure.source for failure in done.build.failures] == [own[0]]
    assert IndexStore.open(index).manifest.model["name"] == "tint" and len(opened.search("red")) == 3
    assert len(IndexStore.open(done.new)) == 2
    with pytest.raises(HolmesError, match="was begun with 'mute'"):
        extend.visual_encoder("third", tint, width=3, sentences=word)
        rebuild_index(index, load_embedder("third"))
    (tmp_path / "elsewhere.mp4").rename(own[0])
    done = rebuild_index(index, load_embedder("mute"))  # continues
    assert (done.build.added, done.build.unchanged) == (1, 2) and done.before is not None
    assert opened.refresh() and opened.describe().model["name"] == "mute"
    assert not done.index.with_name("index.rebuilding").exists()


def test_videos_that_are_gone_can_be_left_behind(encoders, films: Path, tmp_path: Path):
    index, gone = tmp_path / "index", tmp_path / "gone.mp4"
    gone.write_bytes((films / "film0.mp4").read_bytes() + b"\0")
    holmes.build_index(index, [films / "film1.mp4", gone], "tint")
    os.unlink(gone)
    assert rebuild_index(index, load_embedder("mute"), without_missing=True).before is not None
    assert len(IndexStore.open(index)) == 1


def test_what_videos_say_is_taken_along(encoders, films: Path, tmp_path: Path):
    index, told = tmp_path / "index", tmp_path / "told.srt"
    holmes.build_index(index, films, "tint")
    told.write_text("1\n00:00:01,000 --> 00:00:02,000\nall aboard\n")
    name = str(films / "film2.mp4")
    set_words(index, name, told)
    before = IndexStore.open(index).heard(name)
    rebuild_index(index, load_embedder("mute"))
    assert IndexStore.open(index).heard(name) == before and before.passages[0].text == "all aboard"


def test_embeddings_as_one_table(encoders, films: Path, tmp_path: Path, monkeypatch, capsys):
    pandas, parquet = pytest.importorskip("pandas"), pytest.importorskip("pyarrow.parquet")
    index = tmp_path / "index"
    holmes.build_index(index, films, "tint")
    code, _, said = Shell(monkeypatch, capsys)("index", "export", index, "--to", "parquet")
    assert code == 0 and "vectors written" in said
    table = pandas.read_parquet(tmp_path / "index.parquet")
    assert list(table) == ["video", "part", "kind", "start", "end", "vector"]
    store = IndexStore.open(index)
    assert set(table.video) == set(store.positions)
    for name, rows in table.groupby("video"):
        stored = store[name]
        frames, clips = rows[rows.kind == "frame"], rows[rows.kind == "clip"]
        assert (len(frames), len(clips)) == (stored.frames, 32)
        np.testing.assert_array_equal(np.stack(frames.vector), stored.rows_SPD[0, : stored.frames])
        np.testing.assert_array_equal(np.stack(clips.vector), stored.rows_SPD[0, -32:])
        np.testing.assert_array_equal(frames[["start", "end"]], stored.spans_SP2[0, : stored.frames])
    red = np.stack(table.vector) @ holmes.open_index(index).encode(["red"])[0]
    assert "film0" in table.video[red.argmax()] or "film3" in table.video[red.argmax()]
    assert parquet.read_schema(tmp_path / "index.parquet").metadata[b"holmes.model"] == b"tint"
    with pytest.raises(HolmesError):
        export_parquet(tmp_path / "nothing", tmp_path / "x.parquet")
    assert not (tmp_path / "x.parquet").exists()


def test_a_model_as_it_is_calibrated_and_trained(encoders, films, captions, tmp_path, monkeypatch, capsys):
    """extract → caption → train → index, by one command; each step continues."""
    shell = Shell(monkeypatch, capsys)
    settings = (
        "--set",
        "width=16",
        "--set",
        "epochs=2",
        "--set",
        "warm_up_epochs=1",
        "--set",
        "held_out=0.3",
    )
    how = ("--captions", captions, "--model", "tint", "--preset", "clip_b32", "--test-share", "0.34")
    words = (
        "try",
        films,
        *how,
        "--out",
        tmp_path / "tried",
        "--device",
        "cpu",
        "--format",
        "json",
        *settings,
    )
    code, said, errors = shell(*words)
    assert code == 0, errors
    rows = {row[""]: row for row in rows_of(said)}
    assert list(rows) == ["as it is", "calibrated", "trained"], errors
    assert rows["as it is"]["R@1"] == rows["calibrated"]["R@1"]
    assert "without intervals: 2 videos are too few" in said and "95%" not in said
    assert rows["as it is"]["mean probability"] == "–" != rows["calibrated"]["mean probability"]
    config = json.loads((tmp_path / "tried" / "run" / "run.json").read_text())["config"]
    assert config["name"] == "clip_b32" and config["model"]["video_width"] == 3
    answer = holmes.open_index(tmp_path / "tried" / "trained").search("something red")
    assert len(answer) == 6
    assert shell(*words)[1] == said  # nothing is done twice
    new = tmp_path / "new"
    code, _, errors = shell("try", films, "--captions", tmp_path / "no.csv", "--model", "tint", "--out", new)
    assert code == 2 and "no.csv does not exist" in errors and not new.exists()
