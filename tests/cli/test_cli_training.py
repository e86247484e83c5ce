"""The commands of a researcher: train over seeds, evaluate, ablate, sweep."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from typer.main import get_command

from by_hand import reseal, seal
from holmes.base.files import read_json, write_json
from holmes.cli import demo, main, options
from holmes.cli import train as train_command
from holmes.config import ablations
from holmes.config.presets import PRESETS
from holmes.data.store import Store
from holmes.encoders.checkpoint import load_checkpoint
from holmes.errors import HolmesError
from tiny_runs import set_options, tiny_world


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("commands")


@pytest.fixture(scope="module")
def store(folder: Path) -> Store:
    return tiny_world(folder / "world")


def holmes(*words: object) -> None:
    main.app([str(word) for word in words], standalone_mode=False)


@pytest.fixture(scope="module")
def runs(store: Store, folder: Path) -> Path:
    """Two seeds under both protocols."""
    words = ["train", store.path, "--preset", "tvr", "--out", folder / "runs", "--device", "cpu"]
    holmes(*words, "--seeds", "0,1", "--protocol", "both", *set_options(epochs=2, warm_up_epochs=1))
    return folder / "runs"


def test_training_over_seeds_prints_both_protocols(runs, store, capsys):
    holmes(
        *("train", store.path, "--preset", "tvr", "--out", runs, "--device", "cpu", "--seeds", "0,1"),
        *("--protocol", "both", *set_options(epochs=2, warm_up_epochs=1)),
    )
    printed = capsys.readouterr().out
    summary = read_json(runs / "summary.json")
    for protocol in ("honest", "published"):
        total = summary["protocols"][protocol]["metrics"]["SumR"]
        row = re.search(rf"ours, {protocol}, 2 seeds .*", printed)
        assert row and f"{total['mean']:.1f} ± {total['deviation']:.1f}" in row[0]
        fitting = summary["protocols"][protocol]["metrics_fitting"]["SumR"]
        row = re.search(rf"ours, {protocol}, 2 seeds, any video that fits .*", printed)
        assert row and f"{fitting['mean']:.1f} ± {fitting['deviation']:.1f}" in row[0]
    assert re.search(r"Holmes, dual query\W+18\.4\W+40\.7\W+52\.0\W+87\.5\W+198\.6", printed)
    assert "'planted', not TVR" in printed


def test_evaluate_reports_the_figures_of_training(runs, folder, capsys):
    holmes("evaluate", runs, "--json", folder / "found.json", "--device", "cpu")
    found = read_json(folder / "found.json")
    assert found["format"] == "holmes-evaluation" and len(found["reports"]) == 4
    for report in found["reports"]:
        run = runs / f"{report['protocol']}-seed{report['seed']}"
        assert report["metrics"] == pytest.approx(read_json(run / "result.json")["metrics"])
        assert report["checkpoint"] == load_checkpoint(run / "best").digest
        assert report["trained_on_this_store"]
        assert {"by", "localisation", "aligned_mass", "partition"} <= set(report)
        kinds = report["by"]["kind"].values()
        hits = sum(kind["queries"] * kind["metrics_fitting"]["R@10"] for kind in kinds)
        assert hits / report["queries"] == pytest.approx(report["metrics_fitting"]["R@10"])
    kinds = found["over_seeds"]["honest"]["by"]["kind"].values()
    of_seeds = sum(kind["queries"] * kind["metrics_fitting"]["R@10"]["mean"] for kind in kinds)
    both = found["summary_fitting"]["honest"]["R@10"]["mean"] * found["reports"][0]["queries"]
    assert of_seeds == pytest.approx(both)
    summary = read_json(runs / "summary.json")["protocols"]
    for protocol in ("honest", "published"):
        assert found["summary"][protocol]["SumR"] == pytest.approx(summary[protocol]["metrics"]["SumR"])
        fitting = summary[protocol]["metrics_fitting"]
        assert found["summary_fitting"][protocol]["SumR"] == pytest.approx(fitting["SumR"])
        assert fitting["SumR"]["mean"] > summary[protocol]["metrics"]["SumR"]["mean"]
    printed = capsys.readouterr().out
    for text in ("by kind", "polysemous", "by moment ratio", "mean IoU", "spread evenly", "macro-F1"):
        assert text in printed


def test_tables_of_several_settings_have_labels_of_their_own(runs, capsys):
    holmes("evaluate", runs, "--format", "latex", "--device", "cpu")
    labels = re.findall(r"\\label{(.*?)}", capsys.readouterr().out)
    assert len(labels) > 6 and len(set(labels)) == len(labels)


def test_evaluate_one_protocol_split_or_checkpoint(runs, store, folder, capsys):
    holmes("evaluate", runs, "--protocol", "honest", "--split", "val", "--json", folder / "val.json")
    found = read_json(folder / "val.json")
    assert [report["protocol"] for report in found["reports"]] == ["honest", "honest"]
    assert {report["split"] for report in found["reports"]} == {"val"}
    checkpoint = runs / "honest-seed0" / "best"
    holmes("evaluate", checkpoint, "--store", store.path, "--json", folder / "lone.json")
    (report,) = read_json(folder / "lone.json")["reports"]
    assert report["protocol"] is None and not report["trained_on_this_store"]
    with pytest.raises(HolmesError, match="remembers no store; give one with --store"):
        holmes("evaluate", checkpoint)


def test_evaluate_refuses_what_it_cannot_do(runs, store, folder):
    run = runs / "honest-seed0"
    with pytest.raises(HolmesError, match="no run of the protocol 'published', only honest"):
        holmes("evaluate", run, "--protocol", "published")
    with pytest.raises(HolmesError, match="contains neither a run nor a checkpoint"):
        holmes("evaluate", folder / "nothing")
    with pytest.raises(HolmesError, match=r"unknown split in .*: 'tset'; did you mean 'test'"):
        holmes("evaluate", run, "--split", "tset")
    other = folder / "wider"
    holmes("data", "plant", other, "--videos", 4, "--video-width", 24, "--text-width", 12)
    with pytest.raises(HolmesError, match=r"widths 16 \(video\) and 12 \(text\), .* has 24 and 12"):
        holmes("evaluate", run, "--store", other)


def test_evaluate_knows_when_a_store_has_moved_or_changed(runs, store, folder):
    run, moved = folder / "copy", folder / "moved"
    shutil.copytree(runs / "honest-seed0", run)
    about = read_json(run / "run.json")
    assert about["store"] == str(store.path.resolve())
    reseal(run / "run.json", store=str(moved))
    with pytest.raises(HolmesError, match="moved, which is gone; say with --store where it is now"):
        holmes("evaluate", run)
    tiny_world(moved, seed=1)
    with pytest.raises(HolmesError, match="has changed since"):
        holmes("evaluate", run)
    holmes("evaluate", run, "--store", moved, "--json", folder / "moved.json")
    assert not read_json(folder / "moved.json")["reports"][0]["trained_on_this_store"]


def test_one_seed_and_several_do_not_share_a_folder(runs, store):
    with pytest.raises(HolmesError, match="contains runs of several seeds"):
        holmes("train", store.path, "--preset", "tvr", "--out", runs, "--device", "cpu")


def test_ablate_prints_and_saves_the_papers_layout(store, folder, capsys):
    out = folder / "ablation"
    words = ["ablate", store.path, "--preset", "charades", "--out", out, "--device", "cpu"]
    holmes(*words, "--table", "transport", *set_options(epochs=1, warm_up_epochs=0))
    rows = read_json(out / "table.json")["rows"]
    assert [row["row"] for row in rows] == [0, 11, 12]
    printed, saved = capsys.readouterr().out, (out / "table.md").read_text()
    assert "Efficacy of flexible optimal transport" in printed
    assert "| (11) w/ softmax |" in saved
    fitting = [f"{row['metrics_fitting']['SumR']['mean']:.1f} |" for row in rows]
    lines = [line for line in saved.splitlines() if line.startswith("|   any video that fits |")]
    assert [line.endswith(total) for line, total in zip(lines, fitting, strict=True)] == [True] * 3
    assert "| published † | 2.3 | 8.6 | 14.2 | 53.5 | 78.6 |" in saved, "row 11 of the paper, Charades-STA"
    with pytest.raises(HolmesError, match="unknown ablation table 'transports'"):
        holmes(*words, "--table", "transports")


def test_ablate_gives_a_table_for_each_protocol(store, folder, capsys):
    out = folder / "both"
    words = ["ablate", store.path, "--preset", "charades", "--out", out, "--device", "cpu"]
    holmes(*words, "--protocol", "both", "--table", "intra", *set_options(epochs=1, warm_up_epochs=0))
    printed = capsys.readouterr().out
    for text in (printed, (out / "table.md").read_text(), (out / "table.tex").read_text()):
        assert text.count("protocol honest") == text.count("protocol published") == 1
    honest, published = printed.split("protocol published", 1)
    assert "(0) Holmes †" in published and "(0) Holmes †" not in honest, "selected on test"
    rows = read_json(out / "table.json")["rows"]
    assert [row["protocol"] for row in rows] == ["honest", "honest", "published", "published"]


def test_sweep_adds_its_curve_to_those_before(store, folder, monkeypatch, capsys):
    short = {name: (setting, values[:2]) for name, (setting, values) in ablations.SWEEPS.items()}
    monkeypatch.setattr(ablations, "SWEEPS", short)
    out = folder / "sweep"
    words = ["sweep", store.path, "--preset", "tvr", "--out", out, "--device", "cpu"]
    settings = set_options(epochs=1, warm_up_epochs=0)
    holmes(*words, "--parameter", "dustbin", *settings)
    assert list(read_json(out / "sweep.json")["sweeps"]) == ["dustbin"]
    small = (out / "sweep.svg").stat().st_size
    holmes(*words, "--parameter", "beta", *settings)
    sweeps = read_json(out / "sweep.json")["sweeps"]
    assert list(sweeps) == ["beta", "dustbin"]
    assert [point["value"] for point in sweeps["beta"]["points"]] == [0.1, 0.2, 0.3]
    assert (out / "sweep.svg").stat().st_size > small
    assert (out / "sweep.png").read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert "0.3 (preset)" in printed and printed.count("any video that fits") == 3 + 3, "values of both"
    assert "metrics_fitting" in sweeps["beta"]["points"][0]
    write_json(out / "sweep.json", {"sweeps": {"beta": None}, "grids": 3})  # not worth losing what is trained
    holmes(*words, "--parameter", "dustbin", *settings)
    assert "sweep.json is damaged; it is written anew" in capsys.readouterr().err
    assert list(read_json(out / "sweep.json")["sweeps"]) == ["dustbin"]
    with pytest.raises(HolmesError, match="unknown sweep parameter 'gamma'"):
        holmes(*words, "--parameter", "gamma")


def test_the_help_names_every_preset():
    hint = get_type_hints(train_command.train, vars(options) | vars(train_command), include_extras=True)[
        "preset"
    ]
    assert all(re.search(rf"\b{name}\b", get_args(hint)[1].help) for name in PRESETS)


def test_commands_in_the_document_have_their_options():
    text = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
    names = "train|evaluate|compare|ablate|sweep|demo"
    lines = re.findall(rf"^    .*\bholmes ({names})\b(.*)$", text, re.MULTILINE)
    commands = get_command(main.app).commands
    assert {name for name, _ in lines} == set(names.split("|"))
    for name, words in lines:
        known = {option for parameter in commands[name].params for option in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", words)) <= known, f"holmes {name}{words}"
    assert all(re.search(rf"`{name}`", text) for name in PRESETS)


def test_the_demo_trains_a_model_that_exists():
    config = demo.settings()
    assert config.name == demo.PRESET
    assert config.training.epochs == demo.SETTINGS["epochs"]
    assert config.model.gaussian_widths == (None, 1.0, 8.0)


def test_a_damaged_run_is_refused(runs, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(runs / "honest-seed0", copy)
    sound = read_json(copy / "run.json")
    for damage in ({}, [], {"seed": 0}):
        write_json(copy / "run.json", damage)
        with pytest.raises(HolmesError, match="does not describe a run"):
            holmes("evaluate", copy)
    for damage in ({"data": {}}, {"seed": -1}, {"store": 7}, {"data": {"store": "x", "protocol": "honest"}}):
        seal(copy / "run.json", sound | damage)
        with pytest.raises(HolmesError, match=r"run\.json is damaged: "):
            holmes("evaluate", copy)
