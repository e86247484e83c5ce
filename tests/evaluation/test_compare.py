"""`holmes compare`, the results of single queries, and tables in every form."""

from __future__ import annotations

import csv
import json
import re
import unicodedata
from pathlib import Path

import numpy as np
import pytest

import holmes as package
from holmes.base.files import read_json
from holmes.cli import main
from holmes.data.bank import FeatureBank
from holmes.data.store import Store
from holmes.encoders.checkpoint import load_checkpoint
from holmes.errors import HolmesError
from holmes.evaluation.grid import Grid
from holmes.evaluation.latex import KEPT, SPECIAL, as_tex, escaped, points_of
from holmes.evaluation.recall import retrieval_metrics
from holmes.evidence.kinds import AnswerKind
from tex import compile_tables
from tiny_runs import set_options, tiny_world


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compare")


@pytest.fixture(scope="module")
def store(folder: Path) -> Store:
    return tiny_world(folder / "world", videos=24)


def holmes(*words: object) -> None:
    main.app([str(word) for word in words], standalone_mode=False)


@pytest.fixture(scope="module")
def runs(store: Store, folder: Path) -> Path:
    """Two margins with two seeds each: a sweep's folder."""
    words = ["sweep", store.path, "--preset", "tvr", "--out", folder / "runs", "--device", "cpu"]
    words += ["--set", "margin=.1,.3", "--seeds", "0,1", *set_options(epochs=1, warm_up_epochs=0)]
    words[words.index("--set") : words.index("--set")] = ["--set", "held_out=.25"]
    holmes(*words)
    return folder / "runs"


def test_groups_are_over_all_seeds(runs, folder, capsys):
    """The tables by group show means over the seeds of a setting, and the interval over videos and seeds."""
    holmes("evaluate", runs, "--json", folder / "seeds.json", "--device", "cpu")
    assert "full, honest, 2 seeds by group" in capsys.readouterr().out
    found = read_json(folder / "seeds.json")
    report = found["over_seeds"]["full, honest"]
    each = [one for one in found["reports"] if one["group"] == "full, honest"]
    assert report["seeds"] == len(each) == 2
    for name, groups in report["by"].items():
        for group, row in groups.items():
            recalls = [one["by"][name][group]["R@5"] for one in each]
            assert row["R@5"]["mean"] == pytest.approx(np.mean(recalls))
            assert row["R@5"]["deviation"] == pytest.approx(np.std(recalls, ddof=1))
            low, high = row["intervals"]["R@5"]
            assert low is None or low <= row["R@5"]["mean"] <= high
    sums = [np.sum(one["partition"]["confusion"]) for one in each]
    assert np.sum(report["partition"]["confusion"]) == sum(sums)


def test_settings_are_not_taken_for_seeds(runs, folder, capsys):
    """A sweep's folder has two settings; their figures must not be averaged together."""
    holmes("evaluate", runs, "--json", folder / "found.json", "--device", "cpu")
    summary = read_json(folder / "found.json")["summary"]
    assert set(summary) == {"full, honest", "margin=0.3, honest"}
    for name, stem in (("full, honest", "full"), ("margin=0.3, honest", "margin=0.3")):
        sums = [read_json(runs / f"{stem}-seed{seed}" / "result.json")["metrics"]["SumR"] for seed in (0, 1)]
        assert summary[name]["SumR"]["mean"] == pytest.approx(np.mean(sums))
        assert summary[name]["SumR"]["low"] <= np.mean(sums) <= summary[name]["SumR"]["high"]
    printed = capsys.readouterr().out
    assert "ours, margin=0.3, honest" in printed and "95%" in printed


def test_every_query_has_its_row(runs, store, folder):
    run = runs / "full-seed0"
    holmes("evaluate", run, "--queries", folder / "queries.jsonl", "--device", "cpu")
    rows = [json.loads(line) for line in (folder / "queries.jsonl").read_text().splitlines()]
    split = store.split("test")
    assert [row["id"] for row in rows] == [store.query_ids[query] for query in split.queries]
    checkpoint = load_checkpoint(run / "best")
    metrics = retrieval_metrics(checkpoint.model, FeatureBank(store), split, checkpoint.config.score)
    for cutoff in (1, 5, 10):
        assert 100 * np.mean([row["rank"] <= cutoff for row in rows]) == pytest.approx(metrics[f"R@{cutoff}"])
    score = checkpoint.config.score
    for row, query in zip(rows, split.queries, strict=True):
        assert row["text"] == store.captions[query]
        assert row["video"] == store.video_ids[store.owner_Q[query]]
        expected = score.frame_weight * row["frame_score"] + score.clip_weight * row["clip_score"]
        assert row["score"] == pytest.approx(expected, abs=1e-5)
        assert row["c"] == pytest.approx(max(0, row["score"]), abs=1e-6)
        assert (row["rank"] == 1) <= (row["best_video"] == row["video"])
        assert row["best_score"] >= row["score"] - 1e-6 and row["rank_fitting"] <= row["rank"]
        assert 0 <= row["u"] <= 1 and 0 <= row["xi"] <= 1 and 0 <= row["probability"] <= 1
        start, end = store.moments_Q2[query]
        assert row["moment_ratio"] == pytest.approx(end - start, abs=1e-6)
        assert 0 <= row["moment_start"] < row["moment_end"] <= 1
        shared = max(0, min(row["moment_end"], end) - max(row["moment_start"], start))
        joined = row["moment_end"] - row["moment_start"] + end - start - shared
        assert row["moment_iou"] == pytest.approx(shared / joined, abs=1e-5)
        assert row["kind"] in {kind.name.lower() for kind in AnswerKind} and 0 <= row["probability_here"] <= 1
        assert row["kind_known"] in ("precise", "polysemous", "underdetermined")
        assert row["words"] == len(row["text"].split())
    known = [row for row, query in zip(rows, split.queries, strict=True) if int(query) in store.also_fits]
    assert any(row["rank_fitting"] < row["rank"] for row in known)


def test_the_same_table_from_python_and_as_parquet(runs, folder):
    from pyarrow import parquet

    holmes("evaluate", runs / "full-seed0", "--queries", folder / "queries.parquet", "--device", "cpu")
    table = package.queries(runs / "full-seed0", device="cpu")
    saved = parquet.read_table(folder / "queries.parquet").to_pydict()
    assert saved == table.columns and len(table) == len(saved["id"])
    assert next(table.rows())["id"] == saved["id"][0]
    holmes("evaluate", runs, "--queries", folder / "all.jsonl", "--device", "cpu")
    names = {json.loads(line)["run"] for line in (folder / "all.jsonl").read_text().splitlines()}
    assert names == {path.name for path in runs.iterdir() if path.is_dir()}
    with pytest.raises(HolmesError, match=r"written as \.jsonl or \.parquet"):
        holmes("evaluate", runs, "--queries", folder / "queries.xlsx")


def test_compare_puts_settings_side_by_side_with_pictures(runs, folder, capsys):
    words = [
        "compare",
        runs,
        "--device",
        "cpu",
        "--json",
        folder / "compare.json",
        "--out",
        folder / "compare.html",
    ]
    holmes(*words)
    found = read_json(folder / "compare.json")
    assert [system["name"] for system in found["systems"]] == [
        "full, honest",
        "margin=0.3, honest",
    ]
    reference, other = found["systems"]
    assert (reference["seeds"], other["seeds"]) == (2, 2)
    gap = other["metrics"]["SumR"]["value"] - reference["metrics"]["SumR"]["value"]
    assert other["difference"]["SumR"]["value"] == pytest.approx(gap)
    assert other["difference"]["SumR"]["low"] <= gap <= other["difference"]["SumR"]["high"]
    assert {"kind", "length", "moment_ratio"} == set(other["by"])
    decided = found["decided"][0]
    for row in decided["won"]:
        assert np.mean(np.log(row["ranks"])) < np.mean(np.log(row["reference_ranks"]))
    for row in decided["lost"]:
        assert np.mean(np.log(row["ranks"])) > np.mean(np.log(row["reference_ranks"]))
    printed = capsys.readouterr().out
    for text in (
        "Difference to full, honest",
        "By kind",
        "By length",
        "won",
        "lost",
        "95%",
        "any video",
    ):
        assert text in printed
    page = (folder / "compare.html").read_text()
    assert "Queries won and lost" in page and page.count("data:image/svg+xml") == 2


def test_compare_refuses_what_cannot_be_compared(runs, folder):
    with pytest.raises(HolmesError, match="there is only one system, full-seed0"):
        holmes("compare", runs / "full-seed0")
    with pytest.raises(HolmesError, match="unknown format 'tex'"):
        holmes("compare", runs, "--format", "tex")
    other = tiny_world(folder / "elsewhere", seed=1)
    words = ["train", other.path, "--preset", "tvr", "--out", folder / "foreign", "--device", "cpu"]
    holmes(*words, *set_options(epochs=1, warm_up_epochs=0))
    with pytest.raises(HolmesError, match=r"trained on a different store .* say with --store"):
        holmes("compare", runs / "full-seed0", folder / "foreign", "--device", "cpu")
    holmes("compare", runs / "full-seed0", folder / "foreign", "--store", other.path, "--device", "cpu")


# Tables


GRID = Grid(
    "R@1 of a & b_c, 50%",
    ["", "R@1", "SumR"],
    [
        ["ours †", "1.0 ± 0.2", "–"],
        ["  95%", "[0.5, 1.5]", "[2, 3]"],
        ["block <τ>"],
        ["theirs †", "2.0", "3"],
    ],
    ["† a note with #1 {braces} ~ ^ \\ and ≥ 2"],
)


def test_latex_has_the_structure_of_booktabs():
    text = GRID.latex()
    lines = text.splitlines()
    order = [r"\begin{table}[t]", r"\toprule", r"\midrule", r"\bottomrule", r"\end{tabular}", r"\end{table}"]
    places = [lines.index(line) for line in order]
    assert places == sorted(places) and r"\begin{tabular}{lrr}" in lines
    assert r"R@1 of a \& b\_c, 50\%" in text and r"1.0 $\pm$ 0.2" in text
    assert r"\multicolumn{3}{l}{\emph{block $<$$\tau$$>$}} \\" in lines
    body = [line for line in lines if line.endswith(r"\\") and "multicolumn" not in line]
    assert all(len(re.findall(r"(?<!\\)&", line)) == 2 for line in body)
    assert r"\quad 95\% & {[0.5, 1.5]} & {[2, 3]} \\" in lines, "a bracket may not follow a line break"
    assert escaped("\\") == r"\textbackslash{}"
    assert escaped("IoU>=0.5") == r"IoU$\geq$0.5" and escaped("[-0.5, 1-2]") == r"[$-$0.5, 1-2]"
    assert r"\label{tab:r-1-of-a-b-c-50}" in lines
    long = Grid("t", ["", "a"], [["a sentence that is far too long for a line of its own " * 2, "1"]]).latex()
    assert r"p{0.90\linewidth}r}" in long
    wide = Grid("t", ["", *"abcdef"], [["  95%", *["[100.0, 100.0]"] * 6]]).latex()
    assert r"\scriptsize\setlength{\tabcolsep}{2pt}" in wide and r"{lrrrrrr}" in wide
    assert all(ord(char) < 128 for char in text)


def test_every_character_of_a_caption_or_a_name_can_be_set(tmp_path):
    """Folders of the same name are told apart by a prime; captions are in any language."""
    known = [chr(code) for code in range(0x3000) if unicodedata.category(chr(code)) != "Cn"]
    written = {char: as_tex(char) for char in [*known, "日", "🎉", "ﬁ", "＆", "\u200b"]}
    assert [written[char] for char in "′日🎉é½ﬁ＆ą\u2009\u200b\x0b"] == [
        "$'$", "?", "?", "é", "12", "fi", r"\&", "a", " ", " ", " ",
    ]  # fmt: skip
    assert {char for text in written.values() for char in text if ord(char) >= 0x180} == {*"‘’“”•"}
    set_all = [*known[:0x180], *SPECIAL, *KEPT]
    rows = [["x".join(set_all[start : start + 10]), "1"] for start in range(0, len(set_all), 10)]
    compile_tables(tmp_path, Grid("t", ["", "R@1"], rows).latex())


def test_a_minus_sign_is_as_wide_as_it_is_written():
    assert points_of("[-11.3, -5.2]") == points_of("[±11.3, ±5.2]") > points_of("[111.3, 15.2]")


def test_csv_and_json_and_markdown_hold_the_same_cells():
    rows = list(csv.reader(line for line in GRID.csv().splitlines() if not line.startswith("#")))
    assert rows[0] == ["block", "row", "R@1", "SumR"]
    assert rows[1] == ["", "ours †", "1.0 ± 0.2", "–"] and rows[3] == ["block <τ>", "theirs †", "2.0", "3"]
    assert json.loads(GRID.json())["rows"][0] == ["ours †", "1.0 ± 0.2", "–"]
    assert "| theirs † | 2.0 | 3 |" in GRID.markdown()


@pytest.mark.parametrize("form", ["md", "latex", "csv", "json"])
def test_commands_print_tables_in_every_form(form, runs, store, folder, capsys):
    holmes("evaluate", runs, "--format", form, "--device", "cpu")
    evaluated = capsys.readouterr().out
    holmes("compare", runs, "--format", form, "--device", "cpu")
    compared = capsys.readouterr().out
    settings = set_options(epochs=1, warm_up_epochs=0)
    common = ["--preset", "tvr", "--device", "cpu", "--format", form]
    holmes("ablate", store.path, *common, "--out", folder / "ablation", "--table", "intra", *settings)
    ablated = capsys.readouterr().out
    holmes("sweep", store.path, *common, "--out", folder / "runs", "--set", "held_out=.25",
           "--set", "margin=.1,.3", "--seeds", "0,1", *settings)  # fmt: skip
    swept = capsys.readouterr().out
    for text in (evaluated, compared, ablated, swept):
        if form == "json":
            assert all({"title", "columns", "rows", "notes"} == set(table) for table in json.loads(text))
        elif form == "latex":
            assert text.count(r"\begin{table}") == text.count(r"\bottomrule") >= 1
        else:
            assert ("| --- |" if form == "md" else "block,") in text
            gap = " | " if form == "md" else ","
            assert f"R@10 ‡{gap}R@100 ‡" in text and f"R@10{gap}R@100" not in text, "8 videos: all are marked"
    if form == "latex":
        assert r"TRACE $^\dagger$" in evaluated and r"194.6 \\" in evaluated, (
            "published rows stand beside ours"
        )
        assert "published & 17.3 & 39.2" in ablated.replace(r" $^\dagger$", ""), "row 10 of the paper, TVR"
        compile_tables(folder, evaluated, compared, ablated, swept, GRID.latex())
