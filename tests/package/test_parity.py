"""Parity with the golden files: every quantity within 1e-4, and a tool that notices when it is not."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from holmes.config.baseline_presets import METHODS as BASELINE_PRESETS

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parents[1] / "golden"
sys.path.insert(0, str(ROOT / "tools"))


@pytest.fixture(scope="module")
def parity() -> ModuleType:
    return importlib.import_module("parity")


class Recorder:
    """An open golden file that remembers what was read from it."""

    def __init__(self, arrays: np.lib.npyio.NpzFile) -> None:
        self.arrays, self.files, self.read = arrays, arrays.files, set()

    def __getitem__(self, key: str) -> np.ndarray:
        self.read.add(key)
        return self.arrays[key]


def golden_files(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted(Path(folder).rglob("*.npz"))]


BASELINES = golden_files(str(GOLDEN / "baselines"))
FURTHER = golden_files(*filter(None, [os.environ.get("HOLMES_GOLDEN")]))  # not in the project


@pytest.mark.parametrize("path", BASELINES, ids=lambda path: path.stem)
def test_every_quantity_of_the_baselines_agrees(parity, monkeypatch, path):
    recorder = Recorder(np.load(path, allow_pickle=False))
    monkeypatch.setattr(parity.np, "load", lambda *_args, **_options: recorder)
    rows = parity.all_rows(path)
    assert len(rows) >= 12
    assert {row.quantity: (row.error, row.tolerance) for row in rows if not row.agrees} == {}
    assert max(row.tolerance for row in rows if not row.quantity.startswith("training: ")) <= 1e-4
    assert set(recorder.files) == recorder.read


def test_the_baselines_have_a_golden_file_each():
    found = {path.stem.removesuffix("_mixed") for path in BASELINES}
    assert found == {*BASELINE_PRESETS, "tf_prvr"}


@pytest.mark.skipif(not FURTHER, reason="HOLMES_GOLDEN names no folder of further golden files")
@pytest.mark.parametrize("path", FURTHER, ids=lambda path: path.stem)
def test_every_quantity_of_further_files_agrees(parity, path):
    rows = parity.all_rows(path)
    assert {row.quantity: (row.error, row.tolerance) for row in rows if not row.agrees} == {}


@pytest.mark.parametrize("name", ["single_mixed", "dual_full"])
def test_every_quantity_agrees(parity, monkeypatch, name):
    recorder = Recorder(np.load(GOLDEN / f"{name}.npz", allow_pickle=False))
    monkeypatch.setattr(parity.np, "load", lambda *_args, **_options: recorder)
    rows = parity.all_rows(GOLDEN / f"{name}.npz")
    assert len(rows) >= 54
    assert {row.quantity: row.error for row in rows if not row.error <= 1e-4} == {}
    # All queries of a golden batch are real, which is all that its mask of queries says.
    assert set(recorder.files) - recorder.read == {"out/intra_query_mask"}
    assert recorder["out/intra_query_mask"].all()


CHANGED = {
    "sampled_clips/0": "pooling: clips",
    "out/query": "encoder: query",
    "out/clip_scores": "scores: clip",
    "fot/plan": "transport: random plan",
    "loss_model/diversity": "loss_model: diversity",
    "loss_synth/stage2/total": "loss_synth: stage2/total",
    "loss_synth/partition_clip": "loss_synth: partition clip",
    "loss_model/uncertainty_fused": "loss_model: uncertainty fused",
    "metrics/recalls": "metrics: R@1, 5, 10, 100",
    "train/losses": "training: losses of eight steps",
    "train/after/clip_encoder.layer2.weight": "training: clip_encoder.layer2.weight",
}


def test_a_change_of_one_thousandth_is_noticed(parity, tmp_path, monkeypatch, capsys):
    arrays = dict(np.load(GOLDEN / "single_mixed.npz", allow_pickle=False))
    for key in CHANGED:
        value = arrays[key].copy()
        step = 1 if value.dtype.kind == "i" else 1e-3 * np.abs(value).max()
        value[np.unravel_index(0, value.shape)] += step
        arrays[key] = value
    path = tmp_path / "changed.npz"
    np.savez(path, **arrays)
    monkeypatch.setattr(sys, "argv", ["parity.py", str(path)])
    assert parity.main() == 1
    printed = capsys.readouterr().out
    assert f"Not: {', '.join(sorted(CHANGED.values(), key=printed.index))}" in printed.replace("\n", " ")


def test_exit_codes_of_good_and_missing_files(parity, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["parity.py", str(GOLDEN / "single_mixed.npz")])
    assert parity.main() == 0
    assert "54 of 54 quantities agree." in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["parity.py", "nowhere.npz"])
    assert parity.main() == 2
    assert "nowhere.npz does not exist" in capsys.readouterr().err


def test_a_damaged_golden_file_gets_one_line(parity, tmp_path, monkeypatch, capsys):
    whole = (GOLDEN / "dropout.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[:3000])
    arrays = dict(np.load(GOLDEN / "dropout.npz", allow_pickle=False))
    del arrays["batch/frames"], arrays["batch/query_tokens"]
    np.savez(tmp_path / "without.npz", **arrays)
    for name in ("cut.npz", "without.npz"):
        monkeypatch.setattr(sys, "argv", ["parity.py", str(tmp_path / name)])
        assert parity.main() == 2
        said = capsys.readouterr().err
        assert f"{name} is not a whole golden file" in said and said.count("\n") == 1
