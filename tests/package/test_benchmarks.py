"""Benchmarks run by hand; what they share is tried here, so that they still run when they are wanted."""

from __future__ import annotations

import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from holmes.base.files import read_json
from holmes.data.bank import FeatureBank
from holmes.evidence.calibration import Calibration
from holmes.results import METRICS
from index_fakes import FakeJoint, meaning

ROOT = Path(__file__).parents[2]


def test_a_synthetic_store_can_be_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from synthetic import ACTIVITYNET, SyntheticStore

    store = SyntheticStore(ACTIVITYNET.scaled(0.002), torch.device("cpu"))
    train, test = store.split("train"), store.split("test")
    assert (len(train.videos), len(test.videos)) == (20, 8)
    bank = FeatureBank(store, torch.device("cpu"), splits=[train, test])
    assert bank.store.frames.shape == (28 * 128, 1024)
    sys.modules.pop("synthetic")


def test_the_kinds_of_answers_stand_beside_the_planted_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four kinds are said, three are planted: each table has its own rows."""
    monkeypatch.syspath_prepend(str(ROOT / "studies"))
    from uncertainty_page import kinds_table

    shares = {"precise": 0.5, "several_fit": 0.25, "too_little": 0.15, "not_here": 0.1}
    agreement = {
        "kinds": ["precise", "polysemous", "underdetermined"],
        "confusion": [[5, 1, 0], [0, 2, 1], [1, 0, 1000]],
        "macro_F1": 0.6,
        "chance_macro_F1": 0.3,
    }
    seeds = [
        {"shares": shares, "right": {"precise": right, "several_fit": 0.2}, "agreement": agreement}
        for right in (0.7, 0.9)
    ]
    found = {"reports": [{"uncertainty_details": {"kinds": kinds}} for kinds in seeds]}
    lines = kinds_table(found).splitlines()
    assert lines[0] == "macro-F1 .600, .600 (one per seed), by chance .300"
    assert "| precise | 50.0% | 80.0% |" in lines
    assert "| too little to go on | 15.0% | – |" in lines
    assert "| underdetermined | 2 | 0 | 2,000 |" in lines
    for kinds in seeds:
        kinds["agreement"] = None
    assert "planted" not in kinds_table(found)
    sys.modules.pop("uncertainty_page")


def test_all_baselines_side_by_side(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two methods on a small planted world, both protocols, and a collection shrunk and restored."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import baselines

    words = ["--data", tmp_path / "none", "--work", tmp_path / "work", "--json", tmp_path / "found.json"]
    words += ["--videos", 16, "--epochs", 1, "--seeds", "0", "--jobs", 1, "--device", "cpu"]
    words += ["--rows", "HLFormer,GMMFormerV2", "--set", "warm_up_epochs=0", "--set", "width=8"]
    words += ["--set", "lorentz_width=8", "--set", "batch_videos=8"]
    assert baselines.main([str(word) for word in words]) == 0
    rows = read_json(tmp_path / "found.json")["collections"]["planted"]
    assert [(row["row"], row["protocol"]) for row in rows] == [
        (name, protocol)
        for protocol in ("published", "honest")
        for name in ("GMMFormerV2", "GMMFormerV2 + evidence", "HLFormer", "HLFormer + evidence")
    ]
    assert all(row["parameters"] > 1000 and row["seconds_per_epoch"] > 0 for row in rows)
    assert rows[0]["evidence_adds"] is None and set(rows[1]["evidence_adds"]) == set(METRICS)
    plain, evidence = (row["metrics"]["SumR"]["mean"] for row in rows[:2])
    assert rows[1]["evidence_adds"]["SumR"]["value"] == pytest.approx(evidence - plain)

    planted = next((tmp_path / "work").glob("planted-*"))
    monkeypatch.setattr(baselines, "REAL", {"msvd": ("", "")})
    monkeypatch.setattr(baselines, "world_stores", lambda *_: {"msvd": planted})
    baselines.shrink(tmp_path, tmp_path / "small", tmp_path / "work")
    baselines.restore(tmp_path / "small" / "msvd.npz", tmp_path / "restored")
    before, after = tmp_path / "work" / "msvd-exported", tmp_path / "restored"
    names = sorted(str(path.relative_to(before)) for path in before.rglob("*") if path.is_file())
    assert names == sorted(str(path.relative_to(after)) for path in after.rglob("*") if path.is_file())
    for name in names:
        if not name.endswith(".hdf5"):
            assert (before / name).read_bytes() == (after / name).read_bytes()
            continue
        with h5py.File(before / name) as old, h5py.File(after / name) as new:
            for key in old:
                exact = np.asarray(old[key], np.float32)
                assert np.abs(exact - new[key][()]).max() <= np.abs(exact).max() / 127
    for module in ("baselines", "common", "worlds"):
        sys.modules.pop(module)


def test_films_that_hold_a_scene_are_found_whichever_way_they_are_indexed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two films of two minutes: the right one comes first, with a probability, at the right moment."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import long_films
    from spliced_films import Film, Piece

    class Calibrated(FakeJoint):
        calibration = Calibration(
            model=FakeJoint.digest, candidates=20, frame_weight=0.4, clip_weight=0.6, temperature=0.1,
            score_temperature=0.05, score_offset=0.3, videos=8, queries=20,
        ).to_dict()  # fmt: skip

    def piece(scene: str, seconds: int, name: str = "") -> Piece:
        noise = np.random.default_rng(len(scene)).normal(size=(2 * seconds, FakeJoint.width))
        return Piece((meaning(scene) + 0.02 * noise).astype(np.float32), name)

    scenes = (("waves hit rocks", "dog runs beach"), ("water boils", "man eats soup"))
    films = [
        Film((piece("sun sets", 50), piece(one, 12, f"{one}.mp4"), piece("rain falls", 40), piece(other, 14)))
        for one, other in scenes
    ]
    captions = {f"{one}.mp4": [one] for one, _ in scenes}
    for way in ("parts", "whole", "oracle"):
        found = long_films.measure(way, films, captions, Calibrated())
        assert found["first"].tolist() == [1, 1], way
        assert (found["sure"] > 0.5).all() and (found["sure"] <= 1).all(), way
        if way == "parts":
            assert found["inside"].tolist() == [1, 1]
        summary = long_films.summary(found)
        assert summary["R@1"] == 100 and summary["sentences"] == 2
        assert summary["calibration error"] == pytest.approx(1 - found["sure"].mean())
    for name in ("long_films", "spliced_films"):
        sys.modules.pop(name)
