"""Scores from outside: every kind of file, what is refused, and that they are a run like any other."""

from __future__ import annotations

import json
import re
import resource
import struct
import zipfile
from dataclasses import replace

import h5py
import numpy as np
import pytest

import holmes
from holmes.base.feature_origin import EncoderRecord, FeatureOrigin
from holmes.base.files import read_json
from holmes.cli import main
from holmes.cli.evaluate import figure_tables
from holmes.data.store import Store
from holmes.encoders.tf_prvr import best_frame_scores, moment_scores, moments_of
from holmes.errors import HolmesError
from holmes.evaluation import score_files
from holmes.evaluation.confidence.readers import find_joint_model
from holmes.evaluation.runs.scores import evaluate_score_file, training_free_scores
from holmes.evaluation.score_files import read_scores, save_scores
from holmes.media import backbones
from holmes.worlds.planted import PlantSettings, plant


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("scores") / "world"
    plant(folder, PlantSettings(videos=4, val_videos=30, test_videos=20, video_width=8, text_width=8))
    return Store.open(folder)


def drawn(store: Store, name: str, seed: int = 0) -> np.ndarray:
    """Scores that find the right video more often than chance."""
    split, rng = store.split(name), np.random.default_rng(seed)
    scores = rng.normal(size=(len(split.queries), len(split.videos)))
    scores[np.arange(len(split.queries)), split.owner] += 2
    return scores.astype(np.float32)


def names(store: Store, name: str = "test") -> tuple[list[str], list[str]]:
    split = store.split(name)
    return [store.query_ids[q] for q in split.queries], [store.video_ids[v] for v in split.videos]


def by_hand(scores: np.ndarray, owner: np.ndarray, cutoff: int) -> float:
    hits = [sum(other >= row[own] for other in row) <= cutoff for row, own in zip(scores, owner, strict=True)]
    return 100 * float(np.mean(hits))


@pytest.mark.parametrize("ending", ["npy", "npz", "only.npz", "h5", "wide.parquet", "long.parquet"])
def test_every_kind_of_file_gives_the_same_matrix(store, tmp_path, ending):
    """Those with names are written in another order."""
    scores, split = drawn(store, "test"), store.split("test")
    queries, videos = names(store)
    rng = np.random.default_rng(1)
    rows, columns = rng.permutation(len(queries)), rng.permutation(len(videos))
    moved, path = scores[rows][:, columns], tmp_path / f"scores.{ending}"
    some, others = [queries[row] for row in rows], [videos[column] for column in columns]
    if ending == "npy":
        np.save(path, scores)
    elif ending == "only.npz":
        np.savez(path, anything=scores)
    elif ending == "npz":
        np.savez(path, scores=moved, queries=some, videos=others)
    elif ending == "h5":
        with h5py.File(path, "w") as file:
            file["scores"], file["queries"], file["videos"] = moved, some, others
    else:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        if ending.startswith("wide"):
            table = {"query": some} | {name: moved[:, place] for place, name in enumerate(others)}
        else:
            table = {
                "query": np.repeat(some, len(others)),
                "video": np.tile(others, len(some)),
                "score": moved.ravel(),
            }
        parquet.write_table(pyarrow.table(table), path)
    np.testing.assert_allclose(read_scores(path).aligned(store, split), scores, rtol=1e-6)


def test_a_file_of_scores_is_evaluated_like_a_run(store, tmp_path, monkeypatch, capsys):
    split, scores = store.split("test"), drawn(store, "test")
    path, rows, report = tmp_path / "theirs.npz", tmp_path / "rows.jsonl", tmp_path / "found.json"
    save_scores(path, scores, store, split)
    words = ["holmes", "evaluate", "--scores", path, store.path, "--queries", rows, "--json", report]
    monkeypatch.setattr("sys.argv", [str(word) for word in words])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert not ended.value.code, capsys.readouterr().err
    printed = capsys.readouterr().out
    assert "R@100 ‡" in printed and "20 videos" in printed, "20 videos: R@100 says nothing"
    assert "│ theirs.npz, any video that fits" in printed and "No published figures" in printed
    whole = read_json(report)
    (found,) = whole["reports"]
    known = whole | {"reports": [found | {"collection": "tvr"}]}
    shown = {row[0]: row[1:] for row in next(figure_tables(known, path, "test")).rows}
    assert shown["MS-SL †"] == ["13.5", "32.1", "43.4", "83.4", "172.4"], "what is published on the data"
    assert shown["theirs.npz"][0] == f"{found['metrics']['R@1']:.1f}"
    for cutoff in (1, 5, 10):
        assert found["metrics"][f"R@{cutoff}"] == pytest.approx(by_hand(scores, split.owner, cutoff))
    low, high = found["intervals"]["R@1"]
    assert low <= found["metrics"]["R@1"] <= high
    assert set(found["by"]) >= {"kind", "length"} and "metrics_fitting" in found
    assert found["metrics_fitting"]["R@1"] >= found["metrics"]["R@1"]
    lines = [json.loads(line) for line in rows.read_text().splitlines()]
    assert [line["id"] for line in lines] == names(store)[0]
    assert [line["rank"] for line in lines] == [
        int((row >= row[own]).sum()) for row, own in zip(scores, split.owner, strict=True)
    ]
    assert lines[0]["moment_start"] is None and lines[0]["frame_score"] is None
    assert holmes.evaluate(path, store.path).reports[0].metrics == pytest.approx(found["metrics"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["RUN", "--held-out", "s.npz"], "--held-out goes with --scores"),
        (["RUN", "--save-scores", "s.npz"], "--save-scores goes with --method"),
        (["STORE", "--scores", "s.npz", "--uncertainty"], "for scores, --held-out FILE"),
        (["STORE", "--method", "tf_prvr", "--other", "STORE"], "for scores, --held-out FILE"),
    ],
)
def test_an_option_that_does_not_apply_is_refused(words, message):
    with pytest.raises(HolmesError, match=message):
        main.app(["evaluate", *words], standalone_mode=False)


def test_two_files_are_compared(store, tmp_path, capsys):
    for name, seed in (("one", 0), ("two", 1)):
        save_scores(tmp_path / f"{name}.npz", drawn(store, "test", seed), store, store.split("test"))
    words = ["compare", tmp_path / "one.npz", tmp_path / "two.npz", "--store", store.path]
    words += ["--out", tmp_path / "page.html"]
    main.app([str(word) for word in words], standalone_mode=False)
    assert "Difference to one.npz" in capsys.readouterr().out
    assert "Score files have no timelines" in (tmp_path / "page.html").read_text()


def test_labels_of_further_right_videos_count_in_comparisons_and_reports(store, tmp_path, capsys):
    queries, videos = names(store)
    split, labels = store.split("test"), tmp_path / "fits.json"
    labels.write_text(json.dumps({query: videos for query in queries}))  # everything is right
    for name, seed in (("one", 0), ("two", 1)):
        save_scores(tmp_path / f"{name}.npz", drawn(store, "test", seed), store, split)
    where = ["--store", store.path, "--also-fits", labels]
    words = ["compare", tmp_path / "one.npz", tmp_path / "two.npz", *where, "--format", "json"]
    main.app([str(word) for word in words], standalone_mode=False)
    grids = {grid["title"]: grid for grid in json.loads(capsys.readouterr().out)}
    fitting = grids["Recall if any video that fits counts as right"]
    assert fitting["rows"][0] == ["one.npz", "1", *["100.0"] * 4, "400.0"]
    difference = grids["Difference to one.npz, if any video that fits counts as right"]
    assert difference["rows"][0] == ["two.npz", *["+0.0"] * 5]
    assert grids["Difference to one.npz (paired)"]["rows"][0] != difference["rows"][0]
    groups = grids["By kind: figures, and difference to one.npz"]["rows"]
    fitting = [row[1:6] for row in groups if row[0] == "  any video that fits"]
    assert {tuple(row[:4]) for row in fitting} == {("100.0", "100.0", "100.0", "400.0")}
    assert [row[4][:4] for row in fitting] == ["", "+0.0"] * (len(fitting) // 2)
    words = ["report", tmp_path / "one.npz", *where, "--out", tmp_path / "page.html"]
    main.app([str(word) for word in words], standalone_mode=False)
    page = (tmp_path / "page.html").read_text()
    assert page.count("any video that fits") > 3, "overall and by group"
    assert "<td>400.0</td>" in page.replace(' class="number"', "")
    main.app([*map(str, words), "--compare", str(tmp_path / "two.npz")], standalone_mode=False)
    page = (tmp_path / "page.html").read_text()
    assert "Difference to two.npz, scores, if any video that fits counts as right" in page


def test_held_out_scores_calibrate(store, tmp_path):
    """Scores that mean something get probabilities that are about right, and rows that hold them."""
    for name in ("test", "val"):
        save_scores(tmp_path / f"{name}.npz", drawn(store, name), store, store.split(name))
    tables = []
    found = evaluate_score_file(
        tmp_path / "test.npz", store.path, "test", tmp_path / "val.npz", "val", each=tables.append
    )
    figures = found["uncertainty"]["confidence"]
    assert figures["ece"]["value"] < 0.15 and figures["auroc_top1"]["value"] > 0.6
    assert figures["ece"]["low"] <= figures["ece"]["value"] <= figures["ece"]["high"]
    probabilities = tables[0].queries().columns["probability"]
    right = [rank == 1 for rank in tables[0].queries().columns["rank"]]
    assert np.mean(probabilities) == pytest.approx(np.mean(right), abs=0.15)
    with pytest.raises(HolmesError, match="the splits 'test' and 'test' share videos"):
        evaluate_score_file(tmp_path / "test.npz", store.path, "test", tmp_path / "test.npz", "test")


@pytest.mark.parametrize(("factor", "offset"), [(1e-6, 0.0), (1e-3, 1e6), (1e4, -3e6)])
def test_units_of_scores_change_nothing(store, tmp_path, factor, offset):
    """Ranks, probabilities and how far they are true: scores that differ by little are not equal."""

    def evaluated(folder, factor, offset):
        folder.mkdir()
        for name in ("test", "val"):
            np.save(folder / f"{name}.npy", drawn(store, name).astype(np.float64) * factor + offset)
        tables = []
        files = folder / "test.npy", folder / "val.npy"
        found = evaluate_score_file(
            files[0], store.path, "test", files[1], "val", each=lambda found: tables.append(found.queries())
        )
        return found, tables[0].columns

    (ours, theirs), (our_rows, their_rows) = zip(
        evaluated(tmp_path / "plain", 1.0, 0.0), evaluated(tmp_path / "other", factor, offset), strict=True
    )
    assert our_rows["rank"] == their_rows["rank"] and our_rows["kind"] == their_rows["kind"]
    np.testing.assert_allclose(our_rows["probability"], their_rows["probability"], rtol=1e-3)
    for name, figures in ours["uncertainty"].items():
        for figure, interval in figures.items():
            assert theirs["uncertainty"][name][figure]["value"] == pytest.approx(interval["value"], abs=2e-3)


def test_a_file_of_scores_has_a_page(store, tmp_path):
    """Without held-out scores the page says why no probability is known; two files are compared on it."""
    ours, held, base = (tmp_path / f"{name}.npz" for name in ("ours", "held", "base"))
    save_scores(ours, drawn(store, "test"), store, store.split("test"))
    save_scores(held, drawn(store, "val", 1), store, store.split("val"))
    save_scores(base, drawn(store, "test", 2), store, store.split("test"))
    where = ["--store", str(store.path)]
    main.app(["report", str(ours), *where], standalone_mode=False)
    plain = ours.with_suffix(".html").read_text()
    assert "Not measured: scores alone give no probability" in plain and "ours.npz" in plain
    assert "has no embeddings" in plain and "a file of scores has no training history" in plain
    page = tmp_path / "page.html"
    more = ["--compare", str(base), "--held-out", str(held), "--out", str(page)]
    main.app(["report", str(ours), *where, *more], standalone_mode=False)
    text = page.read_text()
    assert "our confidence" in text and "base.npz" in text and "Not measured" not in text
    with pytest.raises(HolmesError, match="a file of scores has none"):
        main.app(["report", str(ours), *where, "--query", names(store)[0][0]], standalone_mode=False)


def test_further_right_videos_from_a_file(store, tmp_path):
    queries, videos = names(store)
    split, scores = store.split("test"), drawn(store, "test")
    save_scores(tmp_path / "s.npz", scores, store, split)
    everything = tmp_path / "fits.json"
    everything.write_text(json.dumps({query: videos for query in queries}))
    found = evaluate_score_file(tmp_path / "s.npz", store.path, "test", also_fits=everything)
    assert found["reports"][0]["metrics_fitting"]["R@1"] == 100
    for text, message in {
        '{"nobody": []}': "names 'nobody', which",
        json.dumps({queries[0]: ["none"]}): "names 'none', which",
        json.dumps({queries[0]: "v"}): "must map queries to lists of videos",
        "{": "is not JSON",
    }.items():
        everything.write_text(text)
        with pytest.raises(HolmesError, match=message):
            evaluate_score_file(tmp_path / "s.npz", store.path, "test", also_fits=everything)


def test_labels_that_list_a_querys_own_video_or_one_twice_change_nothing(store, tmp_path):
    split, scores = store.split("test"), drawn(store, "test")
    queries, videos = names(store)
    save_scores(tmp_path / "s.npz", scores, store, split)
    labels = tmp_path / "fits.json"

    def report(fits):
        labels.write_text(json.dumps(dict(zip(queries, fits, strict=True))))
        return evaluate_score_file(tmp_path / "s.npz", store.path, "test", also_fits=labels)["reports"][0]

    own = [videos[owner] for owner in split.owner]
    other = [videos[(owner + 1) % len(videos)] for owner in split.owner]
    once = report([[name] for name in other])
    again = report([[name, mine, name] for mine, name in zip(own, other, strict=True)])
    assert again["metrics_fitting"] == once["metrics_fitting"] != once["metrics"]
    assert "metrics_fitting" not in report([[name] for name in own])


def refused(path, store, message):
    with pytest.raises(HolmesError, match=message) as told:
        read_scores(path).aligned(store, store.split("test"))
    assert "\n" not in str(told.value)


def test_what_does_not_fit_is_refused_in_one_line(store, tmp_path):
    scores, (queries, videos) = drawn(store, "test"), names(store)
    path = tmp_path / "s.npz"

    def saved(**arrays):
        np.savez(path, **arrays)
        return path

    refused(tmp_path / "none.npz", store, "does not exist")
    refused(tmp_path / "s.txt", store, "scores are read from .npy")
    path.write_bytes(b"nothing")
    refused(path, store, r"cannot be read as scores: File is not a zip file\.$")
    np.save(tmp_path / "s.npy", np.array([[object()]]))
    refused(tmp_path / "s.npy", store, r"cannot be read as scores: it is not a NumPy file of numbers\.$")
    refused(saved(scores=scores[:-1]), store, f"has {len(queries) - 1:,} queries, the split 'test' has")
    refused(saved(scores=scores[:, 1:]), store, "has 19 videos, the split 'test' has 20")
    refused(saved(scores=scores[0]), store, "not a matrix of numbers")
    refused(saved(scores=scores.astype(str)), store, "not a matrix of numbers")
    refused(saved(scores=scores, queries=queries[:-1], videos=videos), store, "names .* queries for")
    twice = [*videos[:-1], videos[0]]
    refused(saved(scores=scores, queries=queries, videos=twice), store, "has videos twice")
    other = [*videos[:-1], "other"]
    refused(
        saved(scores=scores, queries=queries, videos=other),
        store,
        re.escape(f"lacks 1 of the 20 videos of the split 'test', such as '{videos[-1]}'; it has others, ")
        + "such as 'other'",
    )
    broken = scores.copy()
    broken[3, 2] = np.nan
    refused(
        saved(scores=broken),
        store,
        f"1 scores that are not finite; the first is that of query '{queries[3]}'",
    )
    refused(saved(a=scores, b=scores), store, "it has no 'scores', but a, b")
    refused(saved(scores=np.array([[object()]])), store, "'scores' is not a whole array of numbers")
    unsafe = np.array(queries, object)  # as a column of a data frame is
    refused(
        saved(scores=scores, queries=unsafe, videos=videos), store, r"'queries' .* np\.array\(names, str\)"
    )


def test_methods_without_training(store, tmp_path, capsys):
    """They need one vector per query; a planted world has several tokens, so one is made."""
    with pytest.raises(HolmesError, match="needs one sentence vector each"):
        training_free_scores(store, store.split("test"), "tf_prvr")
    with pytest.raises(HolmesError, match="unknown method 'clip'"):
        training_free_scores(store, store.split("test"), "clip")
    joint = tmp_path / "joint"
    plant(joint, PlantSettings(videos=4, val_videos=3, test_videos=6, video_width=8, text_width=8))
    exported = tmp_path / "exported"
    from holmes.data.export import export_store
    from holmes.data.pack import Source, pack

    export_store(Store.open(joint), exported)
    (text,) = exported.glob("TextData/*.hdf5")
    with h5py.File(text, "r+") as file:
        for name in list(file):
            mean = file[name][()].mean(0, keepdims=True)
            del file[name]
            file[name] = mean
    pack(Source(exported), tmp_path / "packed")
    packed = Store.open(tmp_path / "packed")
    split = packed.split("test")
    queries = np.stack([packed.tokens[packed.token_offsets[q]] for q in split.queries]).astype(np.float32)
    frames = [
        packed.frames[packed.frame_offsets[v] : packed.frame_offsets[v + 1]].astype(np.float32)
        for v in split.videos
    ]
    expected = moment_scores(queries, [moments_of(video) for video in frames])
    np.testing.assert_allclose(training_free_scores(packed, split, "tf_prvr"), expected)
    np.testing.assert_allclose(
        training_free_scores(packed, split, "zero_shot"), best_frame_scores(queries, frames)
    )
    words = ["evaluate", "--method", "tf_prvr", packed.path, "--save-scores", tmp_path / "tf.npz"]
    main.app([str(word) for word in words], standalone_mode=False)
    assert "R@1" in capsys.readouterr().out
    np.testing.assert_allclose(read_scores(tmp_path / "tf.npz").aligned(packed, split), expected)
    narrow = tmp_path / "narrow"
    plant(narrow, PlantSettings(videos=4, val_videos=2, test_videos=2, video_width=8, text_width=9))
    with pytest.raises(HolmesError, match="frames of width 8 and text of width 9"):
        training_free_scores(Store.open(narrow), Store.open(narrow).split("test"), "zero_shot")


class Toy:
    """A joint model that knows sentences by their length."""

    digest = "0" * 64

    def sentences(self, sentences):
        return np.array([[len(each) % prime for prime in (2, 3, 5, 7, 11, 13, 17, 19)] for each in sentences])


def made_by(store, **digests):
    """The store, as if these encoders had made its features."""
    records = {kind: EncoderRecord("toy", digest, 8) for kind, digest in digests.items()}
    return Store(store.path, replace(store.info, encoders=FeatureOrigin(**records)))


def test_a_joint_model_with_several_tokens_reads_whole_sentences(store, monkeypatch):
    monkeypatch.setattr(backbones, "load_text", lambda name: Toy())
    split = store.split("test")
    joint = made_by(store, visual=Toy.digest, text=Toy.digest)
    frames = [
        store.frames[store.frame_offsets[v] : store.frame_offsets[v + 1]].astype(np.float32)
        for v in split.videos
    ]
    captions = [store.captions[query] for query in split.queries]
    np.testing.assert_allclose(
        training_free_scores(joint, split, "zero_shot", find_joint_model(joint)),
        best_frame_scores(Toy().sentences(captions).astype(np.float32), frames),
    )
    assert find_joint_model(made_by(store, visual="1" * 64, text=Toy.digest)) is None
    assert find_joint_model(store) is None
    other = made_by(store, visual="1" * 64, text="1" * 64)
    with pytest.raises(HolmesError, match="made with another version of 'toy'"):
        training_free_scores(other, split, "zero_shot", find_joint_model(other))


def npz_bomb(path):
    np.savez_compressed(path, scores=np.zeros((3000, 2000), np.float32))


def npz_claim(path):
    with zipfile.ZipFile(path, "w") as archive, archive.open("scores.npy", "w") as entry:
        header = {"descr": "<f4", "fortran_order": False, "shape": (10**7, 10**7)}
        np.lib.format.write_array_header_1_0(entry, header)


def npy_claim(path):
    text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999, 2), }"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + text.ljust(117) + b"\n")


def h5_claim(path):
    with h5py.File(path, "w") as file:
        file.create_dataset("scores", (10**6, 10**6), "f4", chunks=(1000, 1000))


def h5_elsewhere(path):
    (path.parent / "secret").write_bytes(bytes(64))
    with h5py.File(path, "w") as file:
        file.create_dataset("scores", (4, 4), "f4", external=[(str(path.parent / "secret"), 0, 64)])


def h5_link(path):
    h5_elsewhere(path.parent / "other.h5")
    with h5py.File(path, "w") as file:
        file["scores"] = h5py.ExternalLink(str(path.parent / "other.h5"), "scores")


def parquet_of(path, **columns):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table(columns), path)


def parquet_bomb(path):
    parquet_of(path, query=np.zeros(10**6, np.int8), a=np.zeros(10**6), b=np.zeros(10**6))


def parquet_long_names(path):
    """A gigabyte of names in a small file: a name that repeats is kept once."""
    pyarrow = pytest.importorskip("pyarrow")
    codes = pyarrow.array(np.zeros(10**4, np.int32))
    parquet_of(path, query=pyarrow.DictionaryArray.from_arrays(codes, pyarrow.array(["q" * 10**5])))


@pytest.mark.parametrize(
    ("make", "ending"),
    [
        (npz_bomb, "npz"),
        (npz_claim, "npz"),
        (npy_claim, "npy"),
        (h5_claim, "h5"),
        (h5_elsewhere, "h5"),
        (h5_link, "h5"),
        (parquet_bomb, "parquet"),
        (parquet_long_names, "parquet"),
    ],
)
def test_hostile_files_are_refused_and_take_little_memory(store, tmp_path, monkeypatch, make, ending):
    path = tmp_path / f"hostile.{ending}"
    make(path)
    monkeypatch.setattr(score_files, "LARGEST", 1 << 24)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(HolmesError) as told:
        read_scores(path).aligned(store, store.split("test"))
    assert "\n" not in str(told.value) and str(path) in str(told.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KiB
