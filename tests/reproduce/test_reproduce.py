"""The whole command on tiny collections: from folders and zip files to the page, through kills."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from field_collections import TINY, write_collection, zipped
from forked_children import forked_children  # noqa: F401 - a fixture
from holmes.cli import main
from holmes.data.export import export_store
from holmes.data.pack import Source, pack
from holmes.data.store import Store
from holmes.errors import HolmesError
from holmes.evaluation.intervals import save_ranks
from holmes.evaluation.runs.evaluate import evaluate_run
from holmes.evaluation.runs.folders import RunFolder
from holmes.reproduce import checkpoints
from holmes.reproduce import run as running
from holmes.reproduce.finding import find, refuse_data_as_results
from holmes.reproduce.plan import TABLES, Request, make_plan
from holmes.reproduce.published import COLLECTIONS
from holmes.reproduce.run import reproduce
from holmes.reproduce.tables import Reproduction, ablation_grid, main_grid
from holmes.results import METRICS, TrainingResult
from holmes.training.protocol import Protocol
from holmes.training.resume import RANKS
from holmes.worlds.planted import PlantSettings, plant
from killing import die_before
from tex import compile_tables

GOLDEN = Path(__file__).parents[1] / "golden"


def request(data, out, **changes):
    return Request(data, out, **{"settings": TINY, "device": "cpu", "collections": ("charades",), **changes})


def go(asked):
    said = []
    findings = find(asked.data)
    plan = make_plan(asked, findings.usable)
    grids = reproduce(asked, findings, plan, said.append, progress=False)
    return grids, said


@pytest.fixture(scope="module")
def charades(tmp_path_factory):
    data = tmp_path_factory.mktemp("data")
    zipped(write_collection(data / "charades", "charades", "bigfile"), data / "charades.zip")
    return data


@pytest.fixture(scope="module")
def pages():
    """What the page of `results` said each time it was written."""
    return []


@pytest.fixture(scope="module")
def results(charades, pages, tmp_path_factory):
    out, original = tmp_path_factory.mktemp("results") / "out", running.write_results

    def write(*inputs):
        grids = original(*inputs)
        pages.append(re.search(r"\d of \d runs", (out / "index.html").read_text()).group())
        return grids

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "write_results", write)
        grids, _ = go(request(charades, out))
    return out, grids


def test_the_plan_has_every_run_once():
    plan = make_plan(Request("data", "out", TABLES, seeds=(0, 1)), COLLECTIONS)
    assert len({run.name for run in plan}) == len(plan)
    count = {table: sum(table in run.tables for run in plan) for table in TABLES}
    # 4 presets × 2 protocols; 12 rows of 3 data sets; 7 + 6 + 6 values, one full run for all; 4 methods once.
    assert count == {"main": 16, "figures": 16, "ablation": 72, "sweeps": 34, "efficiency": 4}
    assert len(plan) == 16 + (72 - 6) + (34 - 2) + 4  # full runs are shared
    only = make_plan(Request("data", "out"), ["tvr"])
    assert {run.preset for run in only} == {"tvr", "tvr_dual"}


def test_plus_and_baselines_add_rows():
    plan = make_plan(Request("data", "out", plus=True, baselines=True), ["charades"])
    assert {run.preset for run in plan} == {
        "charades", "charades_plus", "ms_sl_charades", "gmmformer_charades", "gmmformer_v2_charades",
        "hlformer_charades", "dreamprvr_charades",
    }  # fmt: skip


def test_a_schedule_without_stage_2_is_refused_for_ablations():
    asked = Request("data", "out", ("ablation",), settings={"epochs": "2"})
    with pytest.raises(HolmesError, match="stage 2 is never reached"):
        make_plan(asked, ["charades"])


def test_the_plan_touches_nothing(charades, tmp_path, capsys, monkeypatch):
    out = tmp_path / "out"
    settings = [part for name, value in TINY.items() for part in ("--set", f"{name}={value}")]
    command = [
        "holmes",
        "reproduce",
        str(charades),
        "--out",
        str(out),
        "--plan",
        "--device",
        "cpu",
        *settings,
    ]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as ended:
        main.main()
    printed = capsys.readouterr()
    assert ended.value.code in (0, None) and not out.exists()
    assert "charades.zip" in printed.out and "12,408" in printed.out
    assert "TVR is not in" in printed.err and "HuiGuanLab/ms-sl" in printed.err


def test_from_a_zip_file_to_the_page(results):
    out, grids = results
    assert sorted(path.name for path in out.iterdir()) == [
        "index.html", "lock", "provenance.json", "reproduce.json", "runs", "stores", "tables",
    ]  # fmt: skip
    page = (out / "index.html").read_text()
    for text in ("Summary", "GMMFormerV2", "left the published run", "SHA-256", "holmes train"):
        assert text in page
    result = json.loads((out / "runs" / "charades-published-seed0" / "result.json").read_text())
    row = next(row for row in grids["main-charades"].rows if "published protocol" in row[0])
    assert row[1:6] == [f"{result['metrics'][name]:.1f}" for name in METRICS]
    assert row[-1] == f"{result['metrics']['SumR'] - 80.6:+.1f}"
    assert r"\toprule" in (out / "tables" / "main-charades.tex").read_text()


def test_the_page_appears_while_the_plan_runs(results, pages):
    assert pages == ["0 of 2 runs", "1 of 2 runs", "2 of 2 runs", "2 of 2 runs"]


@pytest.mark.parametrize("place", [".", "charades/FeatureData/results"])
def test_results_among_the_features_are_refused(tmp_path, place):
    with pytest.raises(HolmesError, match="is a folder of features"):
        refuse_data_as_results(tmp_path, tmp_path / place)
    assert "not searched" in refuse_data_as_results(tmp_path, tmp_path / "results")
    assert refuse_data_as_results(tmp_path / "data", tmp_path / "data-results") is None


def test_better_recipes_and_baselines_are_trained_to_the_page(charades, tmp_path):
    few = {**TINY, "epochs": "1", "warm_up_epochs": "0"}
    asked = request(charades, tmp_path / "out", settings=few, plus=True, baselines=True)
    findings = find(asked.data)
    plan = [each for each in make_plan(asked, findings.usable) if each.protocol is Protocol.PUBLISHED]
    grids = reproduce(asked, findings, plan, lambda line: None, progress=False)
    page = (tmp_path / "out" / "index.html").read_text()
    for name in (
        "Holmes",
        "Holmes, better recipe",
        "MS-SL",
        "GMMFormer",
        "GMMFormerV2",
        "HLFormer",
        "DreamPRVR",
    ):
        assert f"ours: {name}, published protocol" in page
    assert len([row for row in grids["summary"].rows if row[3] != "–"]) == 7
    compile_tables(
        tmp_path, *(path.read_text() for path in sorted((tmp_path / "out" / "tables").glob("*.tex")))
    )


def test_widths_that_only_the_store_tells_are_remarked(results):
    page = (results[0] / "index.html").read_text()
    assert "text features are 6 wide, the field&#x27;s 1024" in page


def planted_as_charades(folder):
    """A collection that can be learnt, but is another one, under the names of Charades-STA."""
    plant(
        folder / "world",
        PlantSettings(videos=16, val_videos=2, test_videos=60, video_width=16, text_width=12),
    )
    export_store(Store.open(folder / "world"), folder / "data")
    text = folder / "data" / "TextData"
    for path in [*text.iterdir()]:
        path.rename(text / path.name.replace("planted", "charades"))
    return folder / "data"


def test_planted_data_under_the_name_of_charades_is_off_track(tmp_path, capsys, monkeypatch):
    data = planted_as_charades(tmp_path)
    parts = [part for name, value in TINY.items() for part in ("--set", f"{name}={value}")]
    command = ["reproduce", str(data), "--out", str(tmp_path / "out"), "--device", "cpu", *parts]
    monkeypatch.setattr(sys, "argv", ["holmes", *command])
    with pytest.raises(SystemExit) as ended:
        main.main()
    said = " ".join(capsys.readouterr().err.split())
    assert ended.value.code in (0, None)
    assert "charades-published-seed0 left the published run at epoch" in said
    assert "test has 60 videos" in said and "the field's 1,334" in said


@pytest.mark.usefixtures("forked_children")
def test_runs_side_by_side_give_the_same_results(charades, results, tmp_path):
    go(request(charades, tmp_path / "out", jobs=2))
    whole, both = (
        json.loads((each / "provenance.json").read_text()) for each in (results[0], tmp_path / "out")
    )
    assert [run["metrics"] for run in both["runs"].values()] == [
        run["metrics"] for run in whole["runs"].values()
    ]


def test_provenance_has_a_command_for_every_run(results):
    out, _ = results
    found = json.loads((out / "provenance.json").read_text())
    assert [*found["runs"]] == ["charades-published-seed0", "charades-honest-seed0"]
    command = found["runs"]["charades-honest-seed0"]["command"]
    assert "--preset charades --protocol honest --seed 0" in command and "--set width=8" in command
    assert all(len(digest) == 64 for digest in found["stores"]["charades"]["features"].values())


def test_again_repeats_nothing_and_other_settings_are_refused(charades, results):
    out, _ = results
    before = {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("metrics.jsonl")}
    go(request(charades, out))
    assert {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("metrics.jsonl")} == before
    with pytest.raises(HolmesError, match="contains another run"):
        go(request(charades, out, settings={**TINY, "width": "16"}))


def test_a_folder_with_other_files_is_refused(charades, tmp_path):
    (tmp_path / "thesis.tex").write_text("words")
    with pytest.raises(HolmesError, match=r"thesis\.tex"):
        go(request(charades, tmp_path))


def test_killed_again_and_again_it_ends_with_the_same_results(charades, results, tmp_path):
    out = tmp_path / "out"
    killed = 0
    for operation in (2, 8, 20, 45, 70, 30):  # counted anew in each attempt
        child = os.fork()
        if child == 0:
            die_before(operation, tmp_path)
            try:
                go(request(charades, out))
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        killed += os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    assert killed >= 4
    go(request(charades, out))
    whole, mended = (json.loads((each / "provenance.json").read_text()) for each in (results[0], out))
    assert mended["stores"] == whole["stores"]
    assert {name: run["metrics"] for name, run in mended["runs"].items()} == {
        name: run["metrics"] for name, run in whole["runs"].items()
    }
    assert not (out / "unpacked").exists()


def test_efficiency_is_measured_for_the_methods_of_the_paper(tmp_path):
    write_collection(tmp_path / "data", "activitynet", "hdf5")
    asked = request(tmp_path / "data", tmp_path / "out", tables=("efficiency",), collections=("activitynet",))
    grid = go(asked)[0]["efficiency"]
    ours = {row[0]: row[1:] for row in grid.rows if row[0].startswith("ours")}
    assert [*ours] == ["ours: GMMFormer", "ours: HLFormer", "ours: GMMFormerV2", "ours: Holmes"]
    assert next(row for row in grid.rows if row[0] == "HLFormer")[1:] == [
        "52,866", "28.43", "6,547", "17,001", "154.9",
    ]  # fmt: skip


def test_ablations_say_whether_the_sign_agrees(tmp_path):
    asked = request(tmp_path, tmp_path, tables=("ablation",))
    outcome = Reproduction(asked, make_plan(asked, ["charades"]))
    for place, run in enumerate(outcome.plan):
        total = 80.0 if place == 0 else 80.0 + (-1) ** place
        metrics = {name: total for name in METRICS}
        outcome.results[run.name] = TrainingResult(
            run=str(tmp_path / run.name), protocol="published", seed=0, epoch=1, epochs_done=1, split="test",
            metrics=metrics,
        )  # fmt: skip
    grid = ablation_grid(outcome, "charades")
    signs = [row[-1] for row in grid.rows if row[0].startswith("(")][1:]
    assert signs == ["yes", "no"] * 5 + ["yes"]
    assert "Both agree on the sign in 6 of 11 rows." in grid.notes


def test_tables_show_recall_of_any_right_video_where_others_are_known(tmp_path):
    asked = request(tmp_path, tmp_path, tables=("main", "ablation"))
    outcome = Reproduction(asked, make_plan(asked, ["charades"]))
    for run in outcome.plan:
        folder = tmp_path / run.name
        folder.mkdir()
        save_ranks(folder / RANKS, [3, 7, 200], [0, 1, 2], [1, 1, 1])
        outcome.results[run.name] = TrainingResult(
            run=str(folder), protocol="published", seed=0, epoch=1, epochs_done=1, split="test",
            metrics=dict.fromkeys(METRICS, 20.0),
        )  # fmt: skip
    for grid in (main_grid(outcome, "charades"), ablation_grid(outcome, "charades")):
        ours = [place for place, row in enumerate(grid.rows) if row[0].startswith(("ours", "("))]
        assert ours and all(len(row) in (1, len(grid.columns)) for row in grid.rows)
        for place in ours:
            assert grid.rows[place + 1][:6] == ["  any video that fits", *["100.0"] * 4, "400.0"]


def test_a_published_checkpoint_is_told_by_its_temperatures(tmp_path):
    from holmes.config.presets import preset

    for name in ("activitynet", "charades", "tvr", "tvr_dual"):
        assert checkpoints.preset_of(preset(name), tmp_path) == name
    with pytest.raises(HolmesError, match="none of the four"):
        checkpoints.preset_of(preset("hlformer_tvr"), tmp_path)


def test_a_published_checkpoint_is_evaluated_before_anything_is_trained(tmp_path):
    arrays = np.load(GOLDEN / "dual_full.npz", allow_pickle=False)
    state = {key[6:]: torch.from_numpy(arrays[key]) for key in arrays.files if key.startswith("state/")}
    places = state["query_pos_embed.position_embeddings.weight"]
    state["query_pos_embed.position_embeddings.weight"] = torch.cat([places] * 3)[:30]  # as many as published
    settings = json.loads(str(arrays["config"])) | {"edl_tau": 0.2, "edl_intra_video_tau": 0.04}
    data = write_collection(tmp_path / "data", "tvr", "hdf5", video_width=20, text_width=24)
    (data / "multi-tvr").mkdir()
    torch.save({"state_dict": state, "config": settings, "epoch": 134}, data / "multi-tvr" / "best.ckpt")
    (data / "other.pt").write_bytes(bytes(1 << 17))
    store = pack(Source(data, "tvr"), tmp_path / "store")
    findings, said = find(data), []
    assert [path.name for path in findings.checkpoints] == ["other.pt", "best.ckpt"]
    for _ in range(2):  # the second time from the file of the first
        (found,) = checkpoints.evaluate_released(
            findings.checkpoints, {"tvr": store}, tmp_path / "kept", "cpu", said.append
        )
        assert (found.preset, found.collection) == ("tvr_dual", "tvr")
    expected = evaluate_run(
        RunFolder(data / "multi-tvr" / "best.ckpt", None), store, "test", torch.device("cpu")
    )
    assert found.metrics == pytest.approx(expected.report["metrics"])
    assert (
        "not evaluated" in said[0] and "published 198.6" in said[1] and "differ from the field's" in said[1]
    )


def test_protocols_of_the_main_table():
    plan = make_plan(Request("data", "out"), ["charades"])
    assert [run.protocol for run in plan] == [Protocol.PUBLISHED, Protocol.HONEST]
