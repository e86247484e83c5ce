"""Benchmarks run by hand; what they share is tried here, so that they still run when they are wanted."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib import import_module
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from forked_children import forked_children  # noqa: F401 - a fixture
from holmes.base.files import read_json
from holmes.config.ablations import Ablation
from holmes.config.schema import to_dict, with_changes
from holmes.data.bank import FeatureBank
from holmes.data.check import check_store
from holmes.data.store import Store
from holmes.encoders.checkpoint import load_checkpoint
from holmes.evidence.calibration import Calibration
from holmes.heard.hearing import Hearing
from holmes.media.backbones.text import TransformersText
from holmes.results import METRICS
from holmes.training.protocol import Protocol
from holmes.worlds.planted import PlantSettings, plant
from index_fakes import FakeJoint, meaning
from spoken_films import film

ROOT = Path(__file__).parents[2]
SMALL = {"val_videos": 4, "test_videos": 8, "video_width": 16, "text_width": 12}  # of planted worlds


def test_a_synthetic_store_is_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from synthetic import ACTIVITYNET, synthetic_store

    with synthetic_store(ACTIVITYNET.scaled(0.002), torch.device("cpu")) as store:
        check_store(store)
        train, test = store.split("train"), store.split("test")
        assert (len(train.videos), len(test.videos)) == (20, 8)
        assert (len(train.queries), len(test.queries)) == (74, 31)
        bank = FeatureBank(store, torch.device("cpu"), splits=[train, test])
        assert bank.store.frames.shape == (28 * 128, 1024)
        assert len(store.query_ids) == len({*store.query_ids}) == len(store.captions)
    assert not store.path.exists()
    sys.modules.pop("synthetic")


def test_training_and_evaluation_are_timed_with_every_flag(command: Any, tmp_path: Path) -> None:
    tiny = ["--device", "cpu", "--share", 0.0002, "--shape", "tvr_dual"]
    found = tmp_path / "training.json"
    more = ["--preset", "small_plus", "--steps", 1, "--whole", "--profile", "--json", found]
    command("training", *tiny, *more, "--only", "plain,streamed")
    rows, groups = read_json(found)["rows"], read_json(found)["groups"]
    assert [row["stage"] for row in rows] == 2 * ["stage 1", "stage 2", "whole run, 2 epochs"]
    assert [row["way"] for row in rows] == 3 * ["plain"] + 3 * ["streamed"]
    assert all(row["epoch_s"] > 0 for row in rows)
    assert groups["plain"]["matrix products"] > 0 and groups["plain"]["elementwise and sums"] > 0
    group_of = sys.modules["training"].group_of
    for name, group in {
        "nvjet_tst_256x128_64x4_2x1_v_bz_NNT": "matrix products",
        "sm90_xmma_gemm_bf16bf16_bf16f32": "matrix products",
        "backward_kernel": "attention",
        "norm_backward_kernel": "our fused kernels",
        "triton_red_fused_native_layer_norm_2": "elementwise and sums",
        "Memcpy DtoD (Device -> Device)": "copies",
    }.items():
        assert group_of(name, 50.0) == group, name
    assert group_of("vectorized_elementwise_kernel", 2.0) == "small kernels"
    with pytest.raises(SystemExit):
        command("training", *tiny, "--only", "kernels")
    command(
        "evaluation", *tiny, "--shape", "tvr_dual", "--repeats", 1, "--json", tmp_path / "evaluation.json"
    )
    assert read_json(tmp_path / "evaluation.json")["metrics"]["SumR"] >= 0


def test_searches_are_timed_with_every_flag(
    command: Any, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a synthetic index, of one whose steps are processes of their own, run here, and of passages."""
    command("heard_scale", tmp_path / "passages", "--hours", 10, "--measured", 1)
    assert "| a phrase |" in capsys.readouterr().out
    million = import_module("million")

    def check_output(words: list[str], text: bool) -> str:
        assert words[:3] == [sys.executable, million.__file__, "--step"]
        with redirect_stdout(io.StringIO()) as said:
            command("million", *words[2:])
        return said.getvalue()

    monkeypatch.setattr(million, "subprocess", SimpleNamespace(check_output=check_output))
    words = ["--videos", 120, "--width", 16, "--batch", 3, "--tokens", 2, "--top", 2, "--repeats", 1]
    words += ["--device", "cpu", "--numpy", "--index", tmp_path / "index", "--out", tmp_path]
    command("search", *words)
    command("million", "--sizes", 8, "--folder", tmp_path, "--out", tmp_path)
    assert read_json(tmp_path / "search-cpu.json")["videos"] == 120
    steps = {row["step"] for row in read_json(tmp_path / "million.json")["rows"]}
    assert {"build", "search", "compact"} <= steps


def test_a_reproduction_is_timed_and_continued(command: Any, tmp_path: Path, capsys: Any) -> None:
    words = ["--share", 0.001, "--datasets", "charades", "--protocols", "published,honest", "--jobs", 1]
    words += ["--device", "cpu", "--folder", tmp_path, "--set", "epochs=1", "--set", "warm_up_epochs=0"]
    words += ["--set", "width=8", "--set", "gaussian_widths=none,1", "--set", "batch_videos=8"]
    for _ in range(2):
        command("reproduce", *words)
    assert "2 of 2 runs" in capsys.readouterr().out
    assert len(read_json(tmp_path / "attempts.json")) == 2
    assert (tmp_path / "data/charades/TextData/roberta_charades_query_feat.hdf5").stat().st_size == 0


TINY_RUNS = ("width=8", "gaussian_widths=none", "batch_videos=16", "epochs=1", "warm_up_epochs=0")


@pytest.mark.usefixtures("forked_children")
def test_published_settings_and_dropouts_are_trained(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a planted world in the place of msvd."""
    world = PlantSettings(videos=16, val_videos=4, test_videos=6, video_width=16, text_width=12)
    plant(tmp_path / "data" / "msvd", world)
    words = ["--data", tmp_path / "data", "--work", tmp_path / "work", "--out", tmp_path, "--device", "cpu"]
    words += ["--only", "msvd", "--jobs", 1, *(word for change in TINY_RUNS for word in ("--set", change))]
    more = ["--preset", "charades_plus", "--trials", 2, "--minutes", 5, "--no-worth", "--seeds", "0,1"]
    command("tuning", *words, *more, "--part", "full")
    tested = sys.modules["tested_runs"]
    held = tested.TestSplit.of(tmp_path / "data" / "msvd", "cpu")
    for seed in (0, 1):
        figures = tested.on_test(
            tmp_path / "work" / "full-msvd" / f"honest-seed{seed}", held, last_epoch=True
        )
        assert figures["SumR, last epoch"] == pytest.approx(figures["SumR"])  # of one epoch
    script = import_module("dropout_by_videos")
    monkeypatch.setattr(script, "SCHEDULE", {})
    monkeypatch.setattr(script, "DROPOUTS", (0.25, 0.4))
    command("dropout_by_videos", *words, "--planted", 8, "--seconds", 500, "--folds", 1)
    found = read_json(tmp_path / "videos.json")
    sums = {(one["videos"], one["dropout"], one["weight"]): one["SumR"] for one in found["results"]}
    assert sums.keys() == set(product([12], script.DROPOUTS, script.WEIGHTS))
    assert found["rows"][0]["0.4, 1.0"] == sums[12, 0.4, 1.0]
    assert (tmp_path / "videos-and-dropout.svg").stat().st_size > 1000


def test_encoders_are_timed_beside_their_libraries(
    command: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("sentence_transformers", reason="pip install '.[encoders]'")
    benchmark = import_module("encoders")
    monkeypatch.setattr(benchmark, "B16", benchmark.SMALL)
    monkeypatch.setattr(benchmark.pretrained, "_multiplies_bfloat16", lambda: True)  # and back again
    words = ["--device", "cpu", "--frames", 2, "--only", "transformers, ViT", "--rounds", 3, "--float32"]
    command("encoders", *words, "--work", tmp_path, "--json", tmp_path / "found.json")
    assert not benchmark.pretrained._multiplies_bfloat16()
    rows = read_json(tmp_path / "found.json")["rows"]
    names = ["transformers, ViT-B/16", "sentence-transformers, ViT-B/16"]
    assert [row["loader and model"] for row in rows] == names
    assert all(row["agreement"] > 0.999 for row in rows)
    assert all(0 < row["lowest"] <= row["times as fast"] <= row["highest"] for row in rows)


@pytest.mark.usefixtures("forked_children")
def test_several_models_are_tested_as_one(command: Any, tmp_path: Path, capsys: Any) -> None:
    """The mean of two is theirs, a student follows its teachers, and nothing is trained twice."""
    world = PlantSettings(videos=32, val_videos=4, test_videos=8, video_width=16, text_width=12)
    plant(tmp_path / "data" / "msvd", world)
    words = ["--data", tmp_path / "data", "--work", tmp_path / "work", "--json", tmp_path / "found.json"]
    words += ["--only", "msvd", "--device", "cpu", "--jobs", 2, "--epochs", 2, "--set", "width=8"]
    words += ["--set", "gaussian_widths=none", "--set", "batch_videos=16", "--set", "warm_up_epochs=0"]
    words += ["--set", "held_out=0.3", "--preset", "charades_plus", "--weight", 1, "--seconds", 500]
    words += ["--videos", 16]
    command("members", *words, "--seeds", "0,1,2,3")
    rows = read_json(tmp_path / "found.json")["collections"]["msvd"]
    assert [row["row"] for row in rows] == [
        "one model",
        "mean of 2",
        "mean of 4",
        "one model, distilled from 4",
    ]
    assert [row["cost"] for row in rows] == [1, 2, 4, 1]
    assert all(row["ECE"] is not None and row["gain"]["low"] <= row["gain"]["value"] for row in rows[1:])
    command("members", *words, "--seeds", "0,1,2,3")
    assert capsys.readouterr().out.count("member-seed0") == 1  # the second time nothing is trained
    members = sys.modules["members"]
    saved = tmp_path / "work" / "members" / "msvd"
    pair = [saved / f"member-seed{seed}.npz" for seed in (0, 1)]
    first, second = (np.load(file)["test/clip"] for file in pair)
    np.testing.assert_allclose(members.mean_scores(pair, "test").clip_QV, (first + second) / 2, atol=1e-6)
    job = {"store": str(tmp_path / "data" / "msvd"), "out": str(tmp_path / "taught.npz"), "seed": 0}
    taught = with_changes(
        load_checkpoint(saved / "member-seed1").config, {"epochs": 20, "learning_rate": 0.003}
    )
    job |= {"config": to_dict(taught), "teachers": [str(saved / "member-seed1")]}
    found = {
        weight: members.train_model(job | {"weight": weight}, torch.device("cpu"))["loss"]["distilled"]
        for weight in (0.0, 30.0)
    }
    assert 0 < found[30.0] < 0.8 * found[0.0]


@pytest.mark.usefixtures("forked_children")
def test_everyone_is_tuned_with_the_same_budget(
    command: Any, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A baseline and our method on a planted world: one small file each, one table, nothing done twice."""
    pytest.importorskip("optuna")
    plant(tmp_path / "work" / "planted-16", PlantSettings(videos=16, **SMALL))

    script = import_module("everyone_tuned")

    def run(words: list[str], timeout: float) -> Any:
        """In this process, which has imported torch."""
        assert words[:2] == [sys.executable, script.__file__] and "--one" in words and 0 < timeout <= 3000
        command("everyone_tuned", *words[2:])
        return SimpleNamespace(returncode=0)

    found = SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr(script, "subprocess", found)
    words = ["--data", tmp_path, "--work", tmp_path / "work", "--out", tmp_path, "--device", "cpu"]
    words += ["--only", "planted", "--planted", 16, "--trials", 1, "--seeds", "0,1", "--jobs", 1]
    words += ["--at-once", 1, "--rows", "Holmes,MS-SL", "--search", "model.dropout", "--seconds", 3000]
    for change in (*TINY_RUNS[:-1], "held_out=0.5"):
        words += ["--set", change]
    command("everyone_tuned", *words)
    found = {path.stem: read_json(path) for path in (tmp_path / "work" / "everyone").glob("*.json")}
    assert found.keys() == {"planted-holmes", "planted-ms-sl"}
    assert all(entry["trials"] == 1 and len(entry["each"]) == 2 for entry in found.values())
    rows = {row["row"]: row for row in read_json(tmp_path / "everyone.json")["rows"]}
    assert rows["Holmes"]["SumR against Holmes"] == "" and "±" in rows["MS-SL"]["SumR against Holmes"]
    assert 0 <= float(rows["MS-SL"]["macro-F1 of kinds"]) <= 1
    means = [entry["SumR"] for entry in found["planted-ms-sl"]["each"].values()]
    assert float(rows["MS-SL"]["SumR"]) == pytest.approx(np.mean(means), abs=0.05)
    capsys.readouterr()
    command("everyone_tuned", *words)
    assert ": done" not in capsys.readouterr().out


def test_passages_are_searched_at_scale(command: Any, tmp_path: Path, capsys: Any) -> None:
    command("heard_scale", tmp_path / "scale", "--measured", 2, "--json", tmp_path / "scale.json")
    rows = {row["query"]: row for row in read_json(tmp_path / "scale.json")["rows"]}
    assert len(rows) == 7 and all(row["seconds"] > 0 for row in rows.values())
    assert rows["a phrase"]["all"] == pytest.approx(50_000 * rows["a phrase"]["seconds"])
    assert "for 100,000 hours" in capsys.readouterr().out


def test_the_cost_of_hearing_is_measured(command: Any, tmp_path: Path) -> None:
    clip = film(tmp_path / "key.mp4", 4.0, said=[(0.3, "We found a silver key.")])
    (tmp_path / "right.json").write_text('{"key.mp4": "we found a silver key"}')
    words = ["--transcripts", tmp_path / "right.json", "--speech", Hearing().speech]
    command("heard_speed", clip, *words, "--json", tmp_path / "speed.json")
    rows = {row["source"]: row for row in read_json(tmp_path / "speed.json")}
    assert set(rows) == {"subtitles", "speech", "screen"} and all(row["ratio"] > 0 for row in rows.values())
    assert rows["speech"]["errors"] == "0 of 5"
    assert sys.modules["heard_speed"].errors(["a", "b", "c"], ["a", "x", "c", "d"]) == 2


@pytest.fixture
def each_sentence_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence that is asked in many galleries is encoded for the first of them."""
    encode, known = TransformersText.sentences, dict[str, Any]()

    def sentences(model: TransformersText, texts: Sequence[str]) -> Any:
        new = [text for text in dict.fromkeys(texts) if text not in known]
        known.update(zip(new, encode(model, new), strict=True))
        return np.array([known[text] for text in texts])

    monkeypatch.setattr(TransformersText, "sentences", sentences)


@pytest.mark.usefixtures("forked_children", "each_sentence_once")
def test_fused_sources_are_measured_beside_each_alone(
    command: Any, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The smallest world whose films can share facts, seen by the model that needs no training."""
    monkeypatch.setattr("fact_films.SIZE", (128, 96))
    small = ["--films", 15, "--seed", 2, "--given-words", "--model", "pocket", "--fit"]
    command("heard", tmp_path / "worlds", *small, "--json", tmp_path / "heard.json")
    found = read_json(tmp_path / "heard.json")
    assert found["R@1"]["written"]["written"] == 1.0 and found["R@1"]["written"]["fused"] == 1.0
    assert 0 <= found["ECE of fused"][0] <= 1 and found["ECE of a true probability"][0] < 0.15
    printed = capsys.readouterr().out
    assert "1 worlds of 15 films, 198 queries each" in printed and "said and written" in printed


def test_the_calibration_error_is_that_of_bins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against bins that are gone through one by one; true probabilities have only what chance makes."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    heard = import_module("heard")
    rng = np.random.default_rng(1)
    probability = rng.random(4000)
    right = rng.random(4000) < probability**2
    expected = 0.0
    for low in np.arange(10) / 10:
        inside = (probability >= low) & (probability < low + 0.1)
        expected += abs(probability[inside].mean() - right[inside].mean()) * inside.mean()
    assert heard.calibration_error(probability, right) == pytest.approx(expected)
    assert 0.005 < heard.least_error(probability) < 0.03
    assert heard.least_error(probability[:40]) > 2 * heard.least_error(probability)


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


def differences_by_hand(baselines: Any, folder: Path) -> None:
    """A method that finds every second query first, beside Holmes that finds all, in the seed both have."""
    folder.mkdir()
    video, found = np.arange(40) // 2, {"Holmes": [1, 1], "MS-SL": [1, 200]}
    rows = [baselines.Row(Ablation(0, title), "planted", None, None, folder, title) for title in found]
    for row, seeds in zip(rows, ((0, 1), (1, 2)), strict=True):
        for seed in seeds:
            ranks = np.tile(found[row.name], 20)
            np.savez(row.file(seed), video=video, honest=ranks, honest_epoch=1)
    holmes, other = baselines.measured(rows, (0, 1, 2), Protocol.HONEST)
    assert holmes["less_holmes"] is None and other["seeds"] == [1, 2]
    total = other["less_holmes"]["SumR"]
    assert (total["value"], total["low"], total["high"]) == (-200, -200, -200)
    grid = baselines.collection_grid("planted", [holmes, other], 20)
    cells = {row[0]: dict(zip(grid.columns, row, strict=True)) for row in grid.rows if len(row) > 1}
    assert cells["MS-SL"]["SumR less Holmes'"] == "-200.0 [-200.0, -200.0]"
    assert cells["Holmes"]["SumR less Holmes'"] == ""


@pytest.mark.usefixtures("forked_children")
def test_all_baselines_side_by_side(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    """One method on a small planted world, both protocols, and a collection shrunk and restored."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import baselines

    plant(tmp_path / "work" / "planted-16", PlantSettings(videos=16, **SMALL))
    words = ["--data", tmp_path / "none", "--work", tmp_path / "work", "--json", tmp_path / "found.json"]
    words += ["--videos", 16, "--epochs", 2, "--seeds", "0,1", "--jobs", 2, "--device", "cpu"]
    words += ["--rows", "GMMFormerV2", "--set", "warm_up_epochs=0", "--set", "width=8", "--only", "planted"]
    words += ["--preset", "charades"]
    words += ["--set", "batch_videos=8", "--set", "gaussian_widths=none,1"]
    texts = [str(word) for word in words]
    assert baselines.main([*texts, "--seconds", "0"]) == 0  # nothing is trained, nothing is there
    assert read_json(tmp_path / "found.json")["collections"]["planted"] == []
    assert baselines.main(texts) == 0
    said = capsys.readouterr().out
    assert said.count("GMMFormerV2, seed 0: SumR") == 1 and "published protocol" in said
    assert "| GMMFormerV2 | 0.0" in said and "189.1" in said  # its parameters, and what its paper prints
    rows = read_json(tmp_path / "found.json")["collections"]["planted"]
    assert [(row["row"], row["protocol"]) for row in rows] == [
        (name, protocol)
        for protocol in ("published", "honest")
        for name in ("GMMFormerV2", "GMMFormerV2 + evidence")
    ]
    assert all(row["seeds"] == [0, 1] for row in rows)
    assert rows[0]["evidence_adds"] is None and set(rows[1]["evidence_adds"]) == set(METRICS)
    plain, evidence = (row["metrics"]["SumR"]["mean"] for row in rows[:2])
    assert rows[1]["evidence_adds"]["SumR"]["value"] == pytest.approx(evidence - plain)
    assert all(row["less_holmes"] is None for row in rows), "Holmes is not among these rows"
    differences_by_hand(baselines, tmp_path / "by hand")
    for published, honest in zip(rows[:2], rows[2:], strict=True):  # of the same training
        assert published["metrics"]["SumR"]["mean"] >= honest["metrics"]["SumR"]["mean"]
    next((tmp_path / "work" / "runs").rglob("gmmformer_v2-*-seed1.npz")).unlink()
    assert baselines.main(texts) == 0  # only what is missing is trained again, to the same figures
    said = capsys.readouterr().out
    assert "runs left: 1," in said and said.count(": SumR") == 1
    assert read_json(tmp_path / "found.json")["collections"]["planted"] == rows

    planted = next((tmp_path / "work").glob("planted-*"))
    monkeypatch.setattr(baselines, "REAL", {"msvd": ("", "")})
    monkeypatch.setattr(baselines, "world_stores", lambda *_: {"msvd": planted})
    assert baselines.main([*texts, "--shrink", str(tmp_path / "small")]) == 0
    worlds = sys.modules["worlds"]
    monkeypatch.setattr(worlds, "REAL", {"msvd": (None, None)})
    (packed,) = worlds.world_stores(tmp_path / "again", tmp_path / "small", 2, "msvd").values()
    assert Store.open(packed).query_ids == Store.open(planted).query_ids
    before, after = tmp_path / "work" / "msvd-exported", tmp_path / "again" / "data" / "msvd"
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
    from long_films import Film, Piece

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
    for way in ("parts", "whole", "oracle", "tf_prvr", "frames"):
        found = long_films.measure(way, films, captions, Calibrated())
        assert found["first"].tolist() == [1, 1], way
        if way in long_films.MOMENTS_OF:  # without an index nothing is said of how sure it is
            assert np.isnan(found["sure"]).all() and not found["inside"].any(), "moments of a few frames"
            continue
        assert (found["sure"] > 0.5).all() and (found["sure"] <= 1).all(), way
        if way == "parts":
            assert found["inside"].tolist() == [1, 1]
        summary = long_films.summary(found)
        assert summary["R@1"] == 100 and summary["sentences"] == 2
        assert summary["calibration error"] == pytest.approx(1 - found["sure"].mean())
    sys.modules.pop("long_films")
