"""The search for settings: on training videos alone, poor trials stopped, continued after a kill."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
import torch

from forked_children import forked_children  # noqa: F401 - a fixture
from holmes.base.files import read_json
from holmes.base.processes import Ending, Finished
from holmes.config.presets import preset
from holmes.config.schema import from_dict
from holmes.data.store import Store
from holmes.errors import HolmesError
from holmes.training.tuning import search as tuning
from holmes.training.tuning.journal import COMPLETE, FAILED, STOPPED, mend_journal
from holmes.training.tuning.search import tune
from holmes.training.tuning.trials import FOLDS, HALF_WAY, fold_splits, run_trial, step_after
from shell import Shell
from tex import compile_tables
from tiny_runs import QUIET, TINY, set_options, tiny_settings, tiny_world

pytest.importorskip("optuna")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return tiny_world(tmp_path_factory.mktemp("tuning") / "world")


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(monkeypatch, capsys)


def quality(config) -> float:
    """A made-up SumR with its best at dropout .4 and learning rate 3e-4."""
    rate = np.log(config.training.learning_rate / 3e-4)
    return 200 - 300 * (config.model.dropout - 0.4) ** 2 - 10 * rate**2


class Trainings:
    """Trains nothing: answers at once with made-up figures, and remembers what it was asked."""

    def __init__(self, figures=quality, deaths=(), failures=(), stop_after=None):
        self.figures, self.deaths, self.failures = figures, set(deaths), set(failures)
        self.stop_after, self.orders, self.folds = stop_after, [], 0

    def __call__(self, setup, jobs, at_once, answer, report):
        for name, order in jobs:
            self.orders.append(order)
            if name in self.deaths:
                yield Finished(name, failure="its process was ended by SIGKILL", ending=Ending(-9, ""))
                continue
            if name in self.failures:
                yield Finished(name, failure="the loss is not finite")
                continue
            yield Finished(name, {"sums": self.train(order, answer, report)})

    def train(self, order, answer, report):
        figure, sums, said = self.figures(from_dict(order["config"])), list(order["sums"]), []

        def go_on(step, value):
            answer({"name": order["name"], "step": step, "value": value, "sums": list(sums)}, said.append)
            return said[-1]

        for fold in range(len(sums), FOLDS):
            self.folds += 1
            if self.stop_after is not None and self.folds > self.stop_after:
                raise KeyboardInterrupt
            report(order["name"], 1)
            if fold == 0 and not go_on(HALF_WAY, figure - 20):
                return sums
            sums.append(figure + fold)
            if fold + 1 < FOLDS and not go_on(step_after(len(sums)), float(np.mean(sums))):
                return sums
        return sums


def search(store, out, runner, **more):
    settings = {
        "trials": 30,
        "seeds": (),
        "fixed": ("width", "gaussian_widths", "epochs"),
        "options": QUIET,
    } | more
    return tune(store, tiny_settings("charades_plus"), out, runner=runner, **settings)


def test_folds_hold_out_every_training_video_once_and_no_other(store):
    train, test = (set(store.split(name).videos.tolist()) for name in ("train", "test"))
    held = [fold_splits(store, fold).select.videos.tolist() for fold in range(2 * FOLDS)]
    for partition in (held[:FOLDS], held[FOLDS:]):
        assert sorted(video for some in partition for video in some) == sorted(train)
    assert not set(map(tuple, held[:FOLDS])) & set(map(tuple, held[FOLDS:]))
    for fold in range(2 * FOLDS):
        splits = fold_splits(store, fold)
        used = {*splits.fit.videos.tolist(), *splits.select.videos.tolist(), *splits.report.videos.tolist()}
        assert used == train and used.isdisjoint(test)
        assert set(splits.fit.videos.tolist()).isdisjoint(splits.select.videos.tolist())


def test_the_search_finds_good_settings_and_stops_poor_trials(store, tmp_path):
    runner = Trainings()
    found = search(store, tmp_path / "out", runner, trials=40, worth=True)
    assert found.start is not None and found.start.state == COMPLETE  # the preset is trained to its end
    assert found.best.mean > found.start.mean + 3 and found.best.mean > 198
    states = [trial.state for trial in found.trials]
    assert len(states) == 40 and states.count(STOPPED) > 20
    assert sum(len(trial.sums) for trial in found.trials) < 0.4 * 40 * FOLDS
    stopped = [trial.half for trial in found.trials if trial.state == STOPPED and not trial.sums]
    assert np.median(stopped) < found.best.half
    # What a setting is worth: the made-up figure depends on two alone.
    assert np.mean(found.worth["model.dropout"]) > 0
    assert found.worth["loss.contrastive_cosine"] == (0.0,) * FOLDS
    assert preset(str(tmp_path / "out" / "best.json")) == found.config
    written = read_json(tmp_path / "out" / "trials.json")
    assert written["best"] == found.best.number and len(written["trials"]) == 40


def test_the_best_few_are_compared_again_on_other_folds(store, tmp_path):
    """A trial that was lucky on the first folds loses to one that is good on all of them."""
    lucky = {"trial 2": 30.0, "trial 2 again": -60.0}
    runner = Trainings()
    plain = runner.train
    runner.train = lambda order, *more: [each + lucky.get(order["name"], 0) for each in plain(order, *more)]
    found = search(store, tmp_path, runner, trials=8, worth=False)
    again = [order["name"] for order in runner.orders if order["partition"] == 1]
    confirmed = {f"trial {trial.number} again" for trial in found.trials if trial.confirmed}
    assert {*again} == confirmed and len(again) == 3 and "trial 2 again" in again
    complete = [trial for trial in found.trials if trial.state == COMPLETE]
    assert max(complete, key=lambda trial: trial.mean).number == 2 != found.best.number
    assert found.best.mean_of_all == max(trial.mean_of_all for trial in found.trials if trial.confirmed)
    assert preset(str(tmp_path / "best.json")) == found.config
    count = len(runner.orders)
    search(store, tmp_path, runner, trials=8, worth=False)
    assert len(runner.orders) == count  # nothing is done twice


def test_a_stopped_search_continues_from_its_last_fold(store, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        search(store, tmp_path, Trainings(stop_after=10))
    journal = tmp_path / "trials.journal"
    journal.write_bytes(journal.read_bytes() + b'{"op_code": 4, "tri')  # a kill in the middle of a line
    runner = Trainings()
    found = search(store, tmp_path, runner, worth=False)
    assert len(found.trials) == 30
    again = search(store, tmp_path, Trainings(stop_after=0), worth=False)  # nothing is left to train
    assert again.best == found.best


def test_folds_that_were_finished_are_not_trained_again(store, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        search(store, tmp_path, Trainings(stop_after=2))  # the first trial has two folds
    runner = Trainings()
    search(store, tmp_path, runner, trials=1, worth=False)
    assert len(runner.orders) == 1 and len(runner.orders[0]["sums"]) == 2 and runner.folds == FOLDS - 2


def test_a_trial_whose_process_dies_is_trained_once_more(store, tmp_path):
    runner = Trainings(deaths={"trial 2"})
    found = search(store, tmp_path, runner, trials=4, worth=False)
    configs = [order["config"] for order in runner.orders if not order["partition"]]
    assert len(found.trials) == 4 and configs.count(configs[2]) == 2


def test_failed_trials_count_and_are_named(store, tmp_path):
    found = search(store, tmp_path / "some", Trainings(failures={"trial 3"}), trials=6, worth=False)
    failed = [trial for trial in found.trials if trial.state == FAILED]
    assert [trial.reason for trial in failed] == ["the loss is not finite"]
    with pytest.raises(HolmesError, match="all 2 trials failed; the first: the loss is not finite"):
        search(store, tmp_path / "all", Trainings(failures={"trial 0", "trial 1"}), trials=2)


def test_time_limits_the_search(store, tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(tuning.time, "monotonic", lambda: now[0])

    def slow(config):
        now[0] += 20
        return quality(config)

    found = search(store, tmp_path / "out", Trainings(slow), minutes=3.1)
    assert 5 < len(found.trials) < 12 and not found.worth
    with pytest.raises(HolmesError, match="no trial has finished a fold"):
        search(store, tmp_path / "none", Trainings(), minutes=0)


def test_other_searches_and_other_folders_are_refused(store, tmp_path):
    search(store, tmp_path / "out", Trainings(), trials=2, worth=False)
    with pytest.raises(HolmesError, match="another search space"):
        search(store, tmp_path / "out", Trainings(), fixed=("dropout",))
    with pytest.raises(HolmesError, match="another settings"):
        tune(store, tiny_settings("charades_plus", margin=0.3), tmp_path / "out", runner=Trainings())
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "notes.txt").write_text("mine")
    with pytest.raises(HolmesError, match=r"contains no search \(it has 'notes.txt'\)"):
        search(store, tmp_path / "foreign", Trainings())
    with pytest.raises(HolmesError, match="trials must be at least 1"):
        search(store, tmp_path / "zero", Trainings(), trials=0)


def test_a_journal_without_its_end_is_mended(tmp_path):
    journal = tmp_path / "trials.journal"
    mend_journal(journal)
    journal.write_bytes(b'{"a": 1}\n{"b": 2}\n{"c"')
    (tmp_path / "trials.journal.lock").write_text("")
    mend_journal(journal)
    assert journal.read_bytes() == b'{"a": 1}\n{"b": 2}\n' and not (tmp_path / "trials.journal.lock").exists()


@pytest.mark.usefixtures("forked_children")
def test_a_real_search_in_processes_trains_and_tests_the_best(store, tmp_path):
    fixed = {"epochs": 2, "warm_up_epochs": 1}
    found = tune(
        store, tiny_settings(**fixed), tmp_path, trials=2, jobs=1, fixed=TINY, worth=False, options=QUIET
    )
    assert len(found.trials) == 2 and len(found.best.sums) == FOLDS
    assert found.test is not None and found.test_fitting is not None
    assert found.test["SumR"]["mean"] < found.test_fitting["SumR"]["mean"]
    run = tmp_path / "chosen" / f"trial{found.best.number}" / "honest-seed0"
    assert from_dict(read_json(run / "run.json")["config"]) == found.config
    # The same trial, in this process.
    device = torch.device("cpu")
    trial = run_trial(
        store, found.config, device, found.best.sums[:-1], lambda done: None, lambda *asked: True
    )
    assert trial == pytest.approx(list(found.best.sums), abs=3.0)


def test_a_killed_search_continues_with_the_command(store, tmp_path, shell):
    """SIGKILL in the third fold of the first trial: the folds before it are kept, and tables are printed."""
    settings = {"epochs": 2, "warm_up_epochs": 1}
    how = {"trials": 2, "fixed": TINY | settings, "worth": False, "seeds": (), "options": QUIET}

    def dies(setup, jobs, at_once, answer, report):
        for _, order in jobs:
            Trainings(stop_after=2).train(order, answer, report)
        yield from ()

    child = os.fork()
    if child == 0:
        try:
            tune(store, tiny_settings(**settings), tmp_path, runner=dies, **how)
        except KeyboardInterrupt:
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    rest = Trainings()
    tune(store, tiny_settings(**settings), tmp_path, runner=rest, **how)
    assert len(rest.orders[0]["sums"]) == 2
    code, printed, said = shell(
        "tune", store.path, "--preset", "tvr", "--out", tmp_path, "--trials", "2", "--no-worth",
        "--device", "cpu", "--seeds", "none", "--format", "latex", *set_options(**settings),
    )  # fmt: skip
    assert code == 0, said
    assert len(read_json(tmp_path / "trials.json")["trials"]) == 2
    assert (tmp_path / "settings.png").exists() and (tmp_path / "settings.svg").exists()
    assert r"\label{tab:best-trials}" in printed and str(tmp_path / "best.json") in said.replace("\n", "")
    assert (tmp_path / "best.json").exists()
    compile_tables(tmp_path, printed)
