"""Moments, kinds and fits: each format in its own words, numbers worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from data_layouts import Miniature
from holmes.data.pack import Source, pack
from holmes.data.store import Store
from holmes.errors import HolmesError

UNKNOWN = [np.nan, np.nan]


@pytest.fixture
def tiny(tmp_path: Path) -> Miniature:
    return Miniature.make(tmp_path / "tiny").write()


def packed(tiny: Miniature, *annotations: Path, rows_per_second: float | None = None) -> Store:
    source = Source(tiny.folder, annotations=annotations, rows_per_second=rows_per_second)
    return pack(source, tiny.folder.parent / "store")


def moments(store: Store) -> dict[str, list[float]]:
    return {
        name: [round(float(x), 4) for x in m]
        for name, m in zip(store.query_ids, store.moments_Q2, strict=True)
    }


def written(tiny: Miniature, name: str, text: str) -> Path:
    path = tiny.folder.parent / name
    path.write_text(text)
    return path


def test_activitynet(tiny: Miniature) -> None:
    value = {
        "cat_a": {
            "duration": 20.0,
            "timestamps": [[0, 5], [10.0, 19.0]],
            "sentences": ["A cat.", " A cat sits. "],
        },
        "v_Cc": {"duration": 50, "timestamps": [[30, 10]], "sentences": ["Wind!"]},  # ends before it starts
        "v_other": {"duration": 1, "timestamps": [], "sentences": []},
    }
    store = packed(tiny, written(tiny, "train.json", json.dumps(value)))
    found = moments(store)
    assert found["cat_a#enc#0"] == [0, 0.25] and found["cat_a#enc#1"] == [0.5, 0.95]
    assert found["v_Cc#enc#1"] == [0.2, 0.6]
    np.testing.assert_equal(found["dog-b#enc#0"], UNKNOWN)
    np.testing.assert_equal(store.durations_V.tolist(), [50, 20, np.nan, np.nan])


def test_the_same_sentence_twice_takes_the_moments_in_order(tiny: Miniature) -> None:
    tiny.captions["train"][2] = "cat_a#enc#1 A CAT."
    tiny.write_captions()
    value = {"cat_a": {"duration": 10, "timestamps": [[0, 1], [2, 3]], "sentences": ["a cat", "a cat"]}}
    found = moments(packed(tiny, written(tiny, "a.json", json.dumps(value))))
    assert found["cat_a#enc#0"] == [0, 0.1] and found["cat_a#enc#1"] == [0.2, 0.3]


def test_tvr(tiny: Miniature) -> None:
    lines = [
        {
            "vid_name": "d.d",
            "duration": 60.0,
            "ts": [15, 30],
            "desc": "A drum, and a dog.",
            "type": "v",
            "desc_id": 1,
        },
        {
            "vid_name": "d.d",
            "duration": 60.0,
            "ts": [54, 66],
            "desc": "ünïcode words",
            "type": "t",
            "desc_id": 2,
        },
    ]
    store = packed(tiny, written(tiny, "tvr.jsonl", "\n".join(map(json.dumps, lines)) + "\n"))
    assert moments(store)["d.d#enc#0"] == [0.25, 0.5]
    assert moments(store)["d.d#enc#1"] == [0.9, 1]  # cut at the end of the video
    assert store.durations_V[3] == 60


def test_charades_needs_durations(tiny: Miniature) -> None:
    text = written(tiny, "sta.txt", "cat_a 1.0 4.0##a cat.\ndog-b 2.5 5.0##A dog\n")
    np.testing.assert_equal(moments(packed(tiny, text))["cat_a#enc#0"], UNKNOWN)
    table = written(tiny, "Charades_v1_train.csv", 'id,subject,length\ncat_a,"X,Y",10.0\n')
    source = Source(tiny.folder, annotations=(text, table))
    store = pack(source, tiny.folder.parent / "with_durations")
    assert moments(store)["cat_a#enc#0"] == [0.1, 0.4]
    np.testing.assert_equal(moments(store)["dog-b#enc#0"], UNKNOWN)
    # 129 rows at 12.9 per second are 10 seconds; the table's own durations win.
    source = Source(tiny.folder, annotations=(text, table), rows_per_second=12.9)
    store = pack(source, tiny.folder.parent / "with_rate")
    assert moments(store)["dog-b#enc#0"] == [0.25, 0.5] and moments(store)["cat_a#enc#0"] == [0.1, 0.4]


def test_what_lies_beside_the_features_is_taken(tiny: Miniature) -> None:
    (tiny.folder / "moments.json").write_text(
        json.dumps({"dog-b#enc#0": [10, 43, 129], "stranger#enc#0": [0, 1, 2]})
    )
    (tiny.folder / "also_fits.json").write_text(
        json.dumps({"dog-b#enc#0": ["v_Cc", "dog-b", "cat_a", "cat_a"], "v_Cc#enc#0": ["v_Cc"]})
    )
    (tiny.folder / "kinds.json").write_text(
        json.dumps({"dog-b#enc#0": "polysemous", "v_Cc#enc#0": "precise"})
    )
    store = packed(tiny)
    assert moments(store)["dog-b#enc#0"] == [round(10 / 129, 4), round(43 / 129, 4)]
    assert store.also_fits == {4: [0, 1]}
    assert store.kinds_Q.tolist() == [0, -1, -1, -1, 1, -1, -1]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "{", r"a.json is not valid JSON"),
        (
            "a.json",
            '{"cat_a": {"timestamps": []}}',
            r"a.json is not an annotation file we know \(KeyError: 'duration'",
        ),
        ("a.json", '{"cat_a": [1, 2]}', r"a.json is not an annotation file we know"),
        ("a.json", '{"cat_a": [0, 1, 0]}', r"a.json is not an annotation file we know"),
        (
            "a.json",
            '{"cat_a": {"duration": 0, "timestamps": [], "sentences": []}}',
            r"duration of 'cat_a' is 0",
        ),
        ("a.json", "[]", r"a.json is not an annotation file we know"),
        (
            "a.txt",
            "cat_a 1 2 a cat",
            r"a.txt is not an annotation file we know .*no '##' in 'cat_a 1 2 a cat'",
        ),
        ("a.txt", "cat_a 1##a cat", r"a.txt is not an annotation file we know"),
        ("a.jsonl", '{"vid_name": "x"}', r"a.jsonl is not an annotation file we know"),
        ("a.csv", "name,seconds\nx,1", r"a.csv is not an annotation file we know"),
    ],
)
def test_bad_annotations(tiny: Miniature, name: str, text: str, message: str) -> None:
    with pytest.raises(HolmesError, match=message):
        packed(tiny, written(tiny, name, text))
    assert {path.name for path in tiny.folder.parent.iterdir()} == {"tiny", name}


def test_bad_knowledge(tiny: Miniature) -> None:
    (tiny.folder / "also_fits.json").write_text(json.dumps({"dog-b#enc#0": ["ghost"]}))
    with pytest.raises(HolmesError, match=r"also_fits.json: 'dog-b#enc#0' names video 'ghost'"):
        packed(tiny)
    (tiny.folder / "also_fits.json").write_text("[]")
    with pytest.raises(HolmesError, match=r"also_fits.json: it is a list of 0, not an object"):
        packed(tiny)
    (tiny.folder / "also_fits.json").unlink()
    (tiny.folder / "kinds.json").write_text(json.dumps({"dog-b#enc#0": "vague"}))
    with pytest.raises(HolmesError, match=r"kinds.json: dog-b#enc#0 has the kind 'vague'; known: precise"):
        packed(tiny)
