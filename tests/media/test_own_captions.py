"""`holmes data caption`: a table of sentences about one's own videos becomes a store to train on."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from holmes.base.feature_origin import EncoderRecord
from holmes.cli import main
from holmes.data.store import Store
from holmes.errors import HolmesError
from holmes.media import backbones
from holmes.media.feature_folder import FeatureFolder
from holmes.media.own_captions import caption_videos
from index_fakes import FILMS, RATE, WIDTH, FakeJoint, write_features

ROWS = [
    {"video": "coast.mp4", "sentence": "dog runs beach", "split": "train", "start": 20, "end": 30},
    {"video": "coast", "sentence": "sun sets", "split": "train"},
    {"video": "/films/kitchen.mp4", "sentence": "water, boils", "split": "val", "start": "40", "end": "46.5"},
    {"video": "street.mp4", "sentence": "rain falls", "split": "test", "start": None, "end": ""},
]


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> FeatureFolder:
    return write_features(tmp_path_factory.mktemp("features") / "features", FILMS)


def as_csv(rows: list[dict], path: Path) -> Path:
    cells = [[str(row.get(name) or "") for name in ROWS[0]] for row in rows]
    quoted = [",".join(f'"{cell}"' if "," in cell else cell for cell in row) for row in cells]
    path.write_text("\n".join([",".join(ROWS[0]), *quoted]) + "\n")
    return path


def as_jsonl(rows: list[dict], path: Path) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


@pytest.mark.parametrize("write,ending", [(as_csv, "csv"), (as_jsonl, "jsonl")])
def test_a_table_becomes_a_store(features: FeatureFolder, tmp_path: Path, write, ending: str) -> None:
    table = write(ROWS, tmp_path / f"captions.{ending}")
    made = caption_videos(table, features, tmp_path / "store", FakeJoint())
    store = Store.open(tmp_path / "store")
    assert made.drawn_for_test is None
    # A store keeps its videos in an order of its own: look the sentences up by their words.
    at = {words: query for query, words in enumerate(store.captions)}
    assert set(at) == {row["sentence"] for row in ROWS}
    np.testing.assert_allclose(store.moments_Q2[at["dog runs beach"]], [20 / 60, 30 / 60], atol=1e-3)
    np.testing.assert_allclose(store.moments_Q2[at["water, boils"]], [40 / 80, 46.5 / 80], atol=1e-3)
    assert np.isnan(store.moments_Q2[[at["sun sets"], at["rain falls"]]]).all()
    splits = {name: [store.captions[q] for q in store.split(name).queries] for name in store.splits}
    assert set(splits["train"]) == {"dog runs beach", "sun sets"}
    assert (splits["val"], splits["test"]) == (["water, boils"], ["rain falls"])
    assert sorted(store.durations_V.round().tolist()) == [60.0, 80.0, 129.0]
    assert store.info.encoders.visual == EncoderRecord("fake", FakeJoint.digest, WIDTH)
    assert store.info.encoders.rate == RATE
    assert not list(tmp_path.glob(".store*")), "nothing is left beside it"


def test_without_a_split_videos_are_drawn(features: FeatureFolder, tmp_path: Path) -> None:
    rows = [{"video": row["video"], "sentence": row["sentence"]} for row in ROWS]
    table = as_jsonl(rows, tmp_path / "captions.jsonl")
    made = [caption_videos(table, features, tmp_path / name, FakeJoint()) for name in ("one", "two")]
    assert [each.drawn_for_test for each in made] == [1, 1]
    first, second = (each.store for each in made)
    assert len(first.split("train").videos) == 2 and len(first.split("test").videos) == 1
    assert first.info.digest == second.info.digest, "the same videos are drawn every time"


def test_the_feature_folder_in_between_can_be_kept(features: FeatureFolder, tmp_path: Path) -> None:
    table = as_csv(ROWS, tmp_path / "captions.csv")
    caption_videos(table, features, tmp_path / "store", FakeJoint(), folder=tmp_path / "folder")
    assert (tmp_path / "folder" / "FeatureData" / "fake" / "feature.hdf5").is_file()


@pytest.mark.parametrize(
    "change,reason",
    [
        ({"video": "nowhere.mp4"}, r"row 2 of .* names 'nowhere.mp4', which is not in .*holmes extract"),
        ({"video": ""}, r"row 2 of .* has no 'video' or no 'sentence'"),
        ({"sentence": " "}, r"row 2 of .* has no 'video' or no 'sentence'"),
        ({"split": "trian"}, r"split in row 2 .*'trian'; did you mean 'train'"),
        ({"split": ""}, r"row 2 of .* has no split, others have"),
        ({"start": 3}, r"row 2 of .* from '3' to ''; give both in seconds, or neither"),
        ({"start": "soon", "end": 9}, r"from 'soon' to '9'"),
        ({"start": 5, "end": 4}, r"not a start and a later end"),
        ({"start": 61, "end": 62}, r"begins at 61 s, but its video lasts 60.0 s"),
    ],
)
def test_a_wrong_row_is_named_and_nothing_is_written(
    features: FeatureFolder, tmp_path: Path, change: dict, reason: str
) -> None:
    rows = [ROWS[0], ROWS[1] | change, *ROWS[2:]]
    table = as_jsonl(rows, tmp_path / "captions.jsonl")
    with pytest.raises(HolmesError, match=reason):
        caption_videos(table, features, tmp_path / "store", FakeJoint())
    assert [path.name for path in tmp_path.iterdir()] == ["captions.jsonl"]


def test_a_name_that_two_videos_have_wants_the_path(tmp_path: Path) -> None:
    features = write_features(tmp_path / "features", {"a/film": [("dog", 9)], "b/film": [("cat", 9)]})
    table = as_jsonl([{"video": "film.mp4", "sentence": "dog"}], tmp_path / "captions.jsonl")
    with pytest.raises(HolmesError, match="which 2 videos are called; give its path"):
        caption_videos(table, features, tmp_path / "store", FakeJoint())


def test_the_command(features: FeatureFolder, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(backbones, "load_text", lambda name: FakeJoint())
    table = as_csv(
        [{k: v for k, v in row.items() if k != "split"} for row in ROWS], tmp_path / "captions.csv"
    )
    arguments = ["holmes", "data", "caption", str(features.path), str(table), str(tmp_path / "store")]
    for code, words in ((0, "1 videos were kept for testing"), (2, "already exists")):
        monkeypatch.setattr(sys, "argv", arguments)
        with pytest.raises(SystemExit) as ended:
            main.main()
        assert (ended.value.code or 0) == code
        said = capsys.readouterr()
        assert words in said.out + said.err


def test_a_table_without_sentences_is_refused(features: FeatureFolder, tmp_path: Path) -> None:
    table = as_csv([], tmp_path / "captions.csv")
    with pytest.raises(HolmesError, match=r"captions\.csv has no sentences; a CSV needs a header"):
        caption_videos(table, features, tmp_path / "store", FakeJoint())
    assert not (tmp_path / "store").exists()
