"""What a run does and leaves behind: stages, protocols, seeds, stopping, and what it says when it breaks."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from holmes.base.files import read_json
from holmes.config import ablations
from holmes.data.bank import FeatureBank
from holmes.data.store import Store
from holmes.encoders.checkpoint import load_checkpoint
from holmes.errors import HolmesError
from holmes.evaluation.recall import retrieval_metrics
from holmes.training.experiments import Study, ablate, grid, run_rows, sweep, train_seeds
from holmes.training.logbook import Logbook, read_metrics
from holmes.training.optimizer import FlatAdam
from holmes.training.protocol import Protocol, choose_splits
from holmes.training.resume import Progress, StateKeeper, read_result
from holmes.training.run import RunOptions, train
from tiny_runs import QUIET, logged, tiny_settings, tiny_world


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return tiny_world(tmp_path_factory.mktemp("run") / "world")


@pytest.fixture(scope="module")
def honest(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("honest")
    train(store, tiny_settings(), out, options=QUIET)
    return out


@pytest.fixture(scope="module")
def published(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("published")
    train(store, tiny_settings(), out, protocol=Protocol.PUBLISHED, options=QUIET)
    return out


# The logbook

STAGE_1 = {
    *("total", "triplet_frame", "triplet_clip", "contrastive_frame", "contrastive_clip", "diversity"),
    *("inter_frame", "inter_clip", "inter_fused"),
}


def test_every_part_of_the_loss_is_in_the_logbook(honest):
    epochs = logged(honest)
    assert [entry["epoch"] for entry in epochs] == [1, 2, 3, 4], "as on the screen"
    assert [entry["stage"] for entry in epochs] == [1, 1, 2, 2]
    for entry in epochs:
        assert set(entry["loss"]) == STAGE_1 | ({"intra"} if entry["stage"] == 2 else set())
        assert all(math.isfinite(value) for value in entry["loss"].values())
        assert sum(entry["kinds"].values()) == pytest.approx(1)
        assert set(entry["kinds"]) == {"precise", "polysemous", "underdetermined"}
        assert 0 < entry["gradient_norm"]["mean"] <= entry["gradient_norm"]["max"]
        assert set(entry["select"]) == {"R@1", "R@5", "R@10", "R@100", "SumR"}


def test_the_total_is_the_weighted_sum_of_its_parts(honest):
    """The weights of the TVR preset, written by hand."""
    weights = {"contrastive_clip": 0.05, "contrastive_frame": 0.04, "diversity": 8e-5, "intra": 0.8}
    weights |= {
        "triplet_frame": 1,
        "triplet_clip": 1,
        "inter_frame": 0.2,
        "inter_clip": 0.2,
        "inter_fused": 0.2,
    }
    for entry in logged(honest):
        parts = {name: value for name, value in entry["loss"].items() if name != "total"}
        total = sum(weights[name] * value for name, value in parts.items())
        assert entry["loss"]["total"] == pytest.approx(total, rel=1e-4)


def test_parts_left_out_are_not_logged(store, tmp_path):
    train(store, tiny_settings(intra=0.0, inter=0.0, epochs=3), tmp_path, options=QUIET)
    for entry in logged(tmp_path):
        assert set(entry["loss"]) == STAGE_1 - {"inter_frame", "inter_clip", "inter_fused"}


def test_the_logbook_drops_what_will_be_done_again(tmp_path):
    book = Logbook(tmp_path, 0)
    for epoch in (1, 2, 3):
        book.write({"epoch": epoch})
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"epoch": 4, "lo')  # cut short by a kill
    assert [entry["epoch"] for entry in read_metrics(tmp_path)] == [1, 2, 3]
    Logbook(tmp_path, 2).write({"epoch": 3, "again": True})
    assert read_metrics(tmp_path) == [{"epoch": 1}, {"epoch": 2}, {"epoch": 3, "again": True}]


def test_every_flipped_bit_of_a_logbook_is_noticed_or_harmless(tmp_path):
    book = Logbook(tmp_path, 0)
    for epoch in (1, 2, 3):
        book.write({"epoch": epoch, "select": {"SumR": 100.25 + epoch}, "loss": {"total": 1 / epoch}})
    path, entries = tmp_path / "metrics.jsonl", read_metrics(tmp_path)
    content, refused = path.read_bytes(), 0
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            assert read_metrics(tmp_path) == entries, (bit // 8, bytes(flipped[bit // 8 - 9 : bit // 8 + 9]))
        except HolmesError as error:
            assert "delete the line to continue without that epoch" in str(error)
            refused += 1
    assert refused > 7.8 * len(content)


def test_a_logbook_without_checksums_is_read_and_sealed_when_it_is_gone_on_with(tmp_path):
    old = [{"epoch": 1, "select": {"SumR": 99.5}}, {"epoch": 2, "select": {"SumR": 101.0}}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in old))
    assert read_metrics(tmp_path) == old
    Logbook(tmp_path, 2).write({"epoch": 3})
    assert read_metrics(tmp_path) == [*old, {"epoch": 3}]
    text = (tmp_path / "metrics.jsonl").read_text()
    assert text.count('"checksum"') == 3
    (tmp_path / "metrics.jsonl").write_text(text.replace("99.5", "98.5"))
    with pytest.raises(HolmesError, match=r"line 1 is damaged \(its checksum does not match\)"):
        read_metrics(tmp_path)


def test_a_logbook_that_counted_from_0_is_read_as_from_1(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"epoch": 0}\n{"epoch": 1}\n')
    assert [entry["epoch"] for entry in read_metrics(tmp_path)] == [1, 2]


def test_every_epoch_is_told_and_what_the_listener_raises_stops_the_run(store, tmp_path):
    heard = []

    def listen(entry):
        heard.append(entry)
        assert read_metrics(tmp_path)[-1] == entry, "it is logged before it is told"
        if len(heard) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(store, tiny_settings(), tmp_path, options=QUIET, on_epoch=listen)
    assert [entry["epoch"] for entry in heard] == [1, 2]
    heard.clear()
    train(store, tiny_settings(), tmp_path, options=QUIET, on_epoch=lambda entry: heard.append(entry))
    assert heard[-1]["epoch"] == 4 and {"loss", "select", "kinds", "speed"} <= heard[-1].keys()


def test_tensorboard_files_are_written(store, tmp_path):
    pytest.importorskip("tensorboard")
    from dataclasses import replace

    train(store, tiny_settings(epochs=1), tmp_path, options=replace(QUIET, tensorboard=True))
    assert list((tmp_path / "tensorboard").glob("events*"))


# Protocols


def test_what_each_protocol_fits_selects_and_reports(store):
    train_videos, test_videos = (set(store.split(name).videos.tolist()) for name in ("train", "test"))
    splits = choose_splits(store, Protocol.PUBLISHED, 0.25, seed=0)
    assert set(splits.fit.videos) == train_videos
    assert set(splits.select.videos) == set(splits.report.videos) == test_videos
    splits = choose_splits(store, Protocol.HONEST, 0.25, seed=0)
    assert set(splits.report.videos) == test_videos
    assert set(splits.fit.videos) | set(splits.select.videos) == train_videos
    assert not set(splits.fit.videos) & set(splits.select.videos)
    assert len(splits.select.videos) == round(0.25 * len(train_videos))


def test_a_store_without_a_split_is_refused(store):
    with pytest.raises(HolmesError, match="has no split 'dev'; it has train, val, test"):
        choose_splits(store, Protocol.HONEST, 0.1, seed=0, report="dev")


@pytest.mark.parametrize("protocol", list(Protocol))
def test_the_best_epoch_is_the_protocols(store, honest, published, protocol):
    run = {Protocol.HONEST: honest, Protocol.PUBLISHED: published}[protocol]
    totals = [entry["select"]["SumR"] for entry in logged(run)]
    result, checkpoint = read_json(run / "result.json"), load_checkpoint(run / "best")
    assert result["epoch"] == checkpoint.extras["epoch"] == int(np.argmax(totals)) + 1
    assert checkpoint.extras["select_SumR"] == max(totals)
    # The saved model, evaluated anew, has the figures it was selected for and those reported.
    bank, splits = FeatureBank(store), choose_splits(store, protocol, checkpoint.config.training.held_out, 0)
    seconds = store.durations_V[splits.fit.videos]
    assert checkpoint.extras["training_seconds"] == pytest.approx(np.quantile(seconds, 0.9))
    again = retrieval_metrics(checkpoint.model, bank, splits.select, checkpoint.config.score)
    assert again["SumR"] == pytest.approx(max(totals))
    assert result["split"] == "test" and result["protocol"] == protocol.value
    test = retrieval_metrics(checkpoint.model, bank, store.split("test"), checkpoint.config.score)
    assert result["metrics"] == pytest.approx(test)


def test_the_published_protocol_reports_what_it_selected(published):
    totals = [entry["select"]["SumR"] for entry in logged(published)]
    assert read_json(published / "result.json")["metrics"]["SumR"] == pytest.approx(max(totals))


# Seeds, stopping, stages


def test_seeds_differ_and_a_seed_does_not(store, honest, tmp_path):
    train(store, tiny_settings(), tmp_path / "same", seed=0, options=QUIET)
    train(store, tiny_settings(epochs=1), tmp_path / "other", seed=1, options=QUIET)
    assert logged(tmp_path / "same") == logged(honest)
    assert logged(tmp_path / "other")[0]["loss"] != logged(honest)[0]["loss"]


def test_a_run_stops_when_patience_is_at_its_end(store, tmp_path):
    """Without learning nothing gets better: after the first epoch two more may fail, the third ends it."""
    changes = {"learning_rate": 0.0, "epochs": 9}
    result = train(store, tiny_settings(patience=2, **changes), tmp_path / "two", options=QUIET)
    assert (result.epoch, result.epochs_done, len(logged(tmp_path / "two"))) == (1, 4, 4)
    state = StateKeeper(tmp_path / "two").load()
    assert state is not None and state[0].stopped_early
    (tmp_path / "two" / "result.json").unlink()  # killed just before: the run must not go on
    assert train(store, tiny_settings(patience=2, **changes), tmp_path / "two", options=QUIET) == result
    changes["epochs"] = 4
    result = train(store, tiny_settings(patience=0, **changes), tmp_path / "never", options=QUIET)
    assert result.epochs_done == 4


def test_the_learning_rate_rises_and_falls(store, tmp_path):
    train(store, tiny_settings(lr_warm_up=0.5, epochs=4), tmp_path, options=QUIET)
    steps = 2  # an epoch: 14 videos in batches of 8
    share = [min(s / 4, (8 - s) / 4) for s in range(8)]  # up to 1 at half of the 8 steps, then down
    expected = [3e-4 * share[steps * epoch + 1] for epoch in range(4)]
    assert [entry["learning_rate"] for entry in logged(tmp_path)] == pytest.approx(expected)


# What goes wrong


def test_a_loss_that_is_not_finite_stops_the_run(store, tmp_path):
    """One batch per epoch, the first of them at learning rate 0: the second update breaks the model."""
    config = tiny_settings(learning_rate=1e30, batch_videos=14, epochs=6, gradient_norm=1e30)
    with pytest.raises(HolmesError) as refused:
        train(store, config, tmp_path, options=QUIET)
    line = str(refused.value)
    assert "\n" not in line
    assert "not finite" in line and "at epoch 3, step 1" in line
    assert any(part in line for part in ("triplet", "contrastive", "inter"))
    assert "total" not in line, "a sum is not what went wrong"
    assert f"last good checkpoint: {tmp_path / 'best'}" in line
    good = load_checkpoint(tmp_path / "best")
    assert all(bool(torch.isfinite(value).all()) for value in good.model.state_dict().values())
    assert [entry["epoch"] for entry in logged(tmp_path)] == [1, 2], "a broken epoch is not logged"


def test_a_state_keeps_infinity_and_history(tmp_path):
    keeper = StateKeeper(tmp_path)
    assert keeper.load() is None and keeper.due()
    keeper.save(Progress(epochs_done=3, best_sum=float("-inf")), {"values": torch.arange(3.0)})
    progress, tensors = StateKeeper(tmp_path).load() or (None, {})
    assert progress == Progress(epochs_done=3, best_sum=float("-inf"))
    assert tensors["values"].tolist() == [0, 1, 2]
    keeper.save(Progress(epochs_done=4), {"values": torch.zeros(1)})
    assert [path.name for path in tmp_path.glob("*.safetensors")] == ["state-4.safetensors"]


# Many runs as one


def test_seeds_are_summed_up(store, tmp_path):
    study = Study(store, tiny_settings(epochs=1), tmp_path, (0, 2), tuple(Protocol), QUIET)
    summary = train_seeds(study)
    assert summary == read_json(tmp_path / "summary.json")
    for protocol in ("honest", "published"):
        runs = [read_result(tmp_path / f"{protocol}-seed{seed}" / "result.json") for seed in (0, 2)]
        assert summary["protocols"][protocol]["runs"] == [run.to_file() for run in runs]
        for name, value in summary["protocols"][protocol]["metrics"].items():
            figures = [run.metrics[name] for run in runs]
            assert value["mean"] == pytest.approx(np.mean(figures))
            assert value["deviation"] == pytest.approx(np.std(figures, ddof=1))


def test_ablations_go_on_row_by_row(store, tmp_path):
    said: list[str] = []
    study = Study(store, tiny_settings(epochs=3), tmp_path, options=QUIET)
    rows = ablate(study, "intra", said.append)
    assert [(row["row"], row["block"]) for row in rows] == [(0, None), (10, "intra")]
    assert said == ["row 1 of 2: Holmes", "row 2 of 2: w/o L_intra"]
    full, without = tmp_path / "full-seed0", tmp_path / "intra=0.0-seed0"
    assert "intra" in logged(full)[-1]["loss"] and "intra" not in logged(without)[-1]["loss"]
    assert rows[1]["metrics"]["SumR"]["mean"] == read_json(without / "result.json")["metrics"]["SumR"]
    before = (full / "metrics.jsonl").stat().st_mtime_ns
    assert ablate(study, "intra") == rows, "finished rows are read, not trained"
    assert (full / "metrics.jsonl").stat().st_mtime_ns == before


def test_a_table_of_both_protocols_trains_every_row_by_each(store, tmp_path):
    said: list[str] = []
    study = Study(store, tiny_settings(epochs=3), tmp_path, protocols=tuple(Protocol), options=QUIET)
    rows = ablate(study, "intra", said.append)
    assert [(row["row"], row["protocol"]) for row in rows] == [
        (0, "published"), (10, "published"), (0, "honest"), (10, "honest"),
    ]  # fmt: skip
    assert said[0] == "row 1 of 2: Holmes, published" and said[3] == "row 2 of 2: w/o L_intra, honest"
    for row in rows:
        folder = f"{row['protocol']}-{'full' if row['row'] == 0 else 'intra=0.0'}-seed0"
        result = read_result(tmp_path / folder / "result.json")
        assert result.protocol == row["protocol"]
        assert row["metrics"]["SumR"]["mean"] == result.metrics["SumR"]
    assert rows[0]["metrics"] != rows[2]["metrics"], "another epoch, of another training"


def test_a_sweep_has_the_presets_own_value_and_trains_it_once(store, tmp_path):
    settings = tiny_settings(epochs=1, warm_up_epochs=0, inter_temperature=0.3)
    study = Study(store, settings, tmp_path, options=QUIET)
    swept = sweep(study, {"tau": ablations.sweep("tau")})["tau"]
    assert [point["value"] for point in swept["points"]] == [0.02, 0.04, 0.06, 0.08, 0.1, 0.2, 0.3, 0.5]
    assert swept["default"] == 0.3 and swept["setting"] == "evidence.inter_temperature"
    folders = sorted(path.name for path in tmp_path.iterdir())
    assert len(folders) == 8 and "full-seed0" in folders
    assert run_rows(study, []) == []


def test_rows_that_could_not_differ_are_refused(store, tmp_path):
    study = Study(store, tiny_settings(epochs=2, warm_up_epochs=2), tmp_path, options=QUIET)
    with pytest.raises(HolmesError, match="stage 2 is never reached"):
        run_rows(study, [])
    both = Study(store, tiny_settings(), tmp_path, protocols=list(Protocol), options=QUIET)
    for refused in (partial(sweep, both, {}), partial(grid, both, {"loss.intra": [0.1]})):
        with pytest.raises(HolmesError, match="one protocol"):
            refused()


def test_broken_weights_are_not_saved(store, tmp_path, monkeypatch):
    """The last update of an epoch is followed by no loss that would show it."""
    step = FlatAdam.step

    def break_at_the_end(self, *args, **kwargs):
        norm = step(self, *args, **kwargs)
        break_at_the_end.calls += 1
        if break_at_the_end.calls == 4:  # the last of the second epoch
            self.values.fill_(math.nan)
        return norm

    break_at_the_end.calls = 0
    monkeypatch.setattr(FlatAdam, "step", break_at_the_end)
    with pytest.raises(HolmesError, match="the weights are not finite after epoch 2; last good checkpoint"):
        train(store, tiny_settings(epochs=3), tmp_path / "run", options=QUIET)
    weights = load_checkpoint(tmp_path / "run" / "best").model.state_dict().values()
    assert all(weight.isfinite().all() for weight in weights)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"config": "small"}, "config must be settings such as holmes.preset"),
        ({"seed": -1}, "seed -1 is not between"),
        ({"seed": 2**40}, "is not between 0 and"),
        ({"protocol": "onest"}, "unknown protocol 'onest'; did you mean 'honest'"),
        ({"options": RunOptions(device="mps")}, "unknown device 'mps'"),
        ({"options": RunOptions(device="cpu:7")}, "unknown device 'cpu:7'"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(store, tmp_path, changes, line):
    asked = {"config": tiny_settings(), "seed": 0, "protocol": "honest", "options": QUIET} | changes
    with pytest.raises(HolmesError, match=line):
        train(store, out=tmp_path / "run", **asked)
    assert not (tmp_path / "run").exists()
