"""Several runs at once: the same results as one after the other, resumable, failures named."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from forked_children import forked_children  # noqa: F401 - a fixture
from holmes.base.files import read_json
from holmes.base.processes import Child
from holmes.data.store import Store
from holmes.errors import HolmesError
from holmes.training import side_by_side
from holmes.training.display import StudyDisplay
from holmes.training.experiments import Study, grid
from holmes.training.protocol import Protocol
from holmes.training.side_by_side import QueuedRun, train_all
from tiny_runs import QUIET, logged, tiny_settings, tiny_world


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return tiny_world(tmp_path_factory.mktemp("side") / "world")


def jobs(store: Store, folder: Path, count: int, **changes) -> list[QueuedRun]:
    return [
        QueuedRun(f"run {seed}", store, tiny_settings(**changes), folder / str(seed), seed, Protocol.HONEST)
        for seed in range(count)
    ]


def test_two_at_once_are_the_same_as_one_after_the_other(store, tmp_path, monkeypatch):
    monkeypatch.setenv("MKL_NUM_THREADS", "1")
    together = train_all(jobs(store, tmp_path / "two", 3), QUIET, at_once=2)
    alone = train_all(jobs(store, tmp_path / "one", 3), QUIET)
    assert [result.seed for result in together] == [0, 1, 2]
    for ours, theirs, seed in zip(together, alone, range(3), strict=True):
        assert ours == theirs
        assert logged(tmp_path / "two" / str(seed)) == logged(tmp_path / "one" / str(seed))


def test_finished_runs_need_no_process(store, tmp_path, monkeypatch):
    first = train_all(jobs(store, tmp_path, 2, epochs=1), QUIET)

    def no_child(*order: object, **how: object) -> Child:
        raise AssertionError("nothing is left to do")

    monkeypatch.setattr(side_by_side, "Child", no_child)
    assert train_all(jobs(store, tmp_path, 2, epochs=1), QUIET, at_once=2) == first


@pytest.mark.usefixtures("forked_children")
def test_failures_and_kills_do_not_stop_the_others_and_are_named(store, tmp_path, monkeypatch):
    """Run 0 breaks in its third epoch, and the process of run 1 is killed when it reports its own."""
    broken = {"learning_rate": 1e30, "batch_videos": 14, "epochs": 6, "gradient_norm": 1e30}
    children: list[Child] = []
    ended: dict[str, str] = {}

    def remember(*order: object, **how: object) -> Child:
        children.append(Child(*order, **how))
        return children[-1]

    def kill_at_the_third(display: StudyDisplay, name: str, entry: dict) -> None:
        if (name, entry["epoch"]) == ("run 1", 3):
            os.kill(children[1].pid, signal.SIGKILL)

    monkeypatch.setattr(side_by_side, "Child", remember)
    monkeypatch.setattr(StudyDisplay, "epoch", kill_at_the_third)
    monkeypatch.setattr(StudyDisplay, "end", lambda display, name, how: ended.update({name: how}))
    runs = jobs(store, tmp_path, 4)
    runs[0] = jobs(store, tmp_path, 1, **broken)[0]
    runs[1] = jobs(store, tmp_path, 2, epochs=10_000)[1]
    with pytest.raises(HolmesError, match=r"2 of 4 runs failed; run 0: the loss is not finite") as told:
        train_all(runs, QUIET, at_once=2)
    assert "\n" not in str(told.value)
    assert ended["run 1"].startswith("failed: its process was ended by SIGKILL; if memory was short")
    assert not any(child.alive for child in children), "none is left behind"
    saved = read_json(tmp_path / "1" / "state.json")["progress"]
    assert saved["epochs_done"] >= 1, "the first epoch is always saved"
    found = [(tmp_path / str(seed) / "result.json").exists() for seed in range(4)]
    assert found == [False, False, True, True]


def test_a_grid_over_any_settings_has_every_combination(store, tmp_path):
    study = Study(store, tiny_settings(epochs=1, warm_up_epochs=0), tmp_path, options=QUIET)
    axes = {"evidence.beta": [0.2, 0.4], "loss.margin": [0.1, 0.3]}
    found = grid(study, axes)
    assert [tuple(point["values"].values()) for point in found["points"]] == [
        (0.2, 0.1), (0.2, 0.3), (0.4, 0.1), (0.4, 0.3),
    ]  # fmt: skip
    assert found["default"] == {"evidence.beta": 0.3, "loss.margin": 0.1}
    run = read_json(tmp_path / "beta=0.4-margin=0.3-seed0" / "run.json")
    assert run["config"]["evidence"]["beta"] == 0.4 and run["config"]["loss"]["margin"] == 0.3
    result = read_json(tmp_path / "beta=0.4-margin=0.3-seed0" / "result.json")
    assert found["points"][-1]["metrics"]["SumR"]["mean"] == result["metrics"]["SumR"]


def test_torchrun_and_several_jobs_exclude_each_other(store, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(HolmesError, match="leave it out with torchrun"):
        train_all(jobs(store, tmp_path, 2), QUIET, at_once=2)
