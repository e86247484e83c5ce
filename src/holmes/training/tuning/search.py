"""Search for settings on held-out training videos, stopping poor trials early.

    trial: settings → four folds of the train split → mean SumR of the held-out videos
    search: Optuna suggests settings (TPE) and stops trials that fall behind (successive halving)
    choice: the best few trials are trained again on other folds, the best over all folds is chosen
    then: what each setting is worth → the chosen settings trained with every seed → test once

The test split is not touched before the last step. FOLDER has `tune.json` what is searched, `trials.journal`
every trial (Optuna's storage), `best.json` the best settings so far, `trials.json` the result of the search,
`chosen/` the final runs. The same call, made again, continues where it stopped.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from holmes.base.files import write_json
from holmes.base.locks import hold
from holmes.base.manifests import FileFormat
from holmes.base.processes import Finished
from holmes.base.validation import Sha256
from holmes.config.names import FILES
from holmes.config.presets import save_settings
from holmes.config.schema import HolmesConfig, to_dict
from holmes.config.search_space import Dimension, apply, first_trials, label, setting_of, space_for, suggest
from holmes.data.store import Store
from holmes.errors import HolmesError
from holmes.results import Json, plainly
from holmes.training.display import StudyDisplay
from holmes.training.experiments import Study, train_seeds
from holmes.training.protocol import Protocol, choose_splits
from holmes.training.run import RunOptions
from holmes.training.setup import fit_to_store
from holmes.training.side_by_side import runs_that_fit
from holmes.training.tuning.journal import (
    AGAIN,
    BEGUN,
    COMPLETE,
    FAILED,
    OWN,
    Trial,
    import_optuna,
    last_value,
    open_study,
    trial_of,
)  # fmt: skip
from holmes.training.tuning.trials import FOLDS, Jobs, Runner, run_here

SEARCH, JOURNAL, BEST, TRIALS, CHOSEN, LOCK = (
    "tune.json", "trials.journal", "best.json", "trials.json", "chosen", "lock",
)  # fmt: skip
SEARCH_FORMAT = FileFormat("holmes-search", 1, "a search for settings", "use a new --out folder")
CANDIDATES = 3  # trials that are compared again: the best of many is partly luck
MOST_AT_ONCE = 4  # they fill the gaps between runs; on an H200, 10 at once train no more runs a minute


@dataclass(frozen=True)
class SearchRecord:
    """What `tune.json` says: a folder continues only the search that began it."""

    store: Sha256
    config: HolmesConfig
    settings: tuple[str, ...]  # that are searched


@dataclass(frozen=True)
class Tuned:
    """What a search found."""

    preset: HolmesConfig
    config: HolmesConfig  # the best settings
    space: tuple[Dimension, ...]
    trials: tuple[Trial, ...]
    best: Trial
    store: str  # its name
    videos: int  # that were trained on or held out
    worth: dict[str, tuple[float, ...]] = field(default_factory=dict)  # setting → SumR lost in each fold
    collection: str = ""  # what the store calls its data set
    test: dict[str, dict[str, float | None]] | None = None  # figures of the final runs over their seeds
    test_fitting: dict[str, dict[str, float | None]] | None = (
        None  # of any video that fits, where it is known
    )

    @property
    def start(self) -> Trial | None:
        """The trial of the preset itself."""
        return next((trial for trial in self.trials if not trial.changes), None)

    def to_dict(self) -> Json:
        """As `trials.json` has it."""
        own = {each.setting: label(setting_of(self.preset, each.setting)) for each in self.space}
        return {
            "format": "holmes-trials",
            "version": 1,
            "preset": self.preset.name,
            "store": self.store,
            "videos": self.videos,
            "folds": FOLDS,
            "best": self.best.number,
            "settings": {each.setting: plainly(asdict(each)) for each in self.space},
            "preset_values": own,
            "worth": plainly(self.worth),
            "trials": [plainly(asdict(trial)) for trial in self.trials],
            "test": self.test,
            "test_fitting": self.test_fitting,
        }


def tune(
    store: Store | Path | str,
    config: HolmesConfig,
    out: Path | str,
    *,
    trials: int = 60,
    minutes: float | None = None,
    jobs: int = 0,
    seeds: Sequence[int] = (0,),
    fixed: Iterable[str] = (),
    worth: bool = True,
    options: RunOptions = RunOptions(),  # noqa: B008 - frozen
    runner: Runner | None = None,
    say: Callable[[str], None] | None = None,
) -> Tuned:
    """Search the best settings, and train and test them with every seed; without seeds, only search.

    `minutes` limits the search and not the final runs. `fixed` names settings that are not searched. `worth`
    also measures what each setting of the best trial is worth. `runner` trains the trials elsewhere.
    """
    import_optuna()
    store, out = store if isinstance(store, Store) else Store.open(store), Path(out)
    config = fit_to_store(config, store)
    refuse_before_searching(store, config, trials)
    deadline = time.monotonic() + 60 * minutes if minutes is not None else float("inf")
    at_once = jobs or (
        runs_that_fit([(store, config)], options.device, MOST_AT_ONCE) if runner is None else 1
    )
    out.mkdir(parents=True, exist_ok=True)
    lock = hold(
        out / LOCK,
        f"{out} is being searched by another process; wait until it is done, or give another --out.",
    )
    try:
        search = Search(store, config, out, tuple(fixed), options, runner or run_here, deadline, at_once, say)
        search.go(trials)
        search.confirm()
        if worth and search.complete():
            search.measure_worth()
        found = search.result()
        if not seeds:
            return found
        folder = out / CHOSEN / f"trial{found.best.number}"
        final = Study(store, found.config, folder, tuple(seeds), options=options, jobs=jobs)
        tested = train_seeds(final)["protocols"][Protocol.HONEST.value]
        return search.result(tested["metrics"], tested.get("metrics_fitting"))
    finally:
        lock.release()


def refuse_before_searching(store: Store, config: HolmesConfig, trials: int) -> None:
    """Say now what would otherwise end the search in its last step."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise HolmesError(
            "a search trains one trial per process; leave torchrun out, and use --jobs or --ray."
        )
    if trials < 1:
        raise HolmesError(f"trials must be at least 1, not {trials}.")
    choose_splits(store, Protocol.HONEST, config.training.held_out, 0)
    videos = len(store.split("train").videos)
    if videos < 2 * FOLDS:
        raise HolmesError(
            f"{store.path} has {videos} training videos; a search holds out a quarter and needs {2 * FOLDS}."
        )


class Search:
    """A search under way: Optuna's study, and the trials that are being trained."""

    def __init__(
        self,
        store: Store,
        config: HolmesConfig,
        out: Path,
        fixed: tuple[str, ...],
        options: RunOptions,
        runner: Runner,
        deadline: float,
        at_once: int,
        say: Callable[[str], None] | None,
    ) -> None:
        self.store, self.config, self.out, self.options, self.say = store, config, out, options, say
        self.deadline, self.at_once = deadline, at_once
        self.space = space_for(config, fixed)
        if not self.space:
            raise HolmesError("--set fixes every setting of the search space; leave some to be searched.")
        claim(out, SearchRecord(store.info.digest, config, tuple(each.setting for each in self.space)))
        self.study, self.first = open_study(out / JOURNAL), first_trials(config, self.space)
        self.running: dict[str, Any] = {}  # name of the job → Optuna's trial
        self.lock = threading.Lock()  # processes ask from threads of their own
        self.display: StudyDisplay | None = None
        use = [str(path) for path in FILES]
        self.run = partial(runner, {"store": str(store.path.resolve()), "device": options.device, "use": use})

    def go(self, trials: int) -> None:
        """Train trials until there are enough, or time is up."""
        done = len(self.ended())
        with StudyDisplay(trials, self.options.progress, done, "trials") as self.display:
            if done:
                self.display.say(f"continuing after {done} trials; {self.best_so_far()}")
            while time.monotonic() < self.deadline and len(self.ended()) < trials:
                self.work(self.new_trials(trials), self.end)

    def work(self, jobs: Jobs, end: Callable[[Finished[str]], None]) -> None:
        def report(name: str, epochs: Any) -> None:
            if time.monotonic() > self.deadline:
                raise OutOfTimeError
            if self.display is not None:
                self.display.show(name, epochs)

        with suppress(OutOfTimeError):  # what is being trained stays in the journal, and is taken up again
            for finished in self.run(jobs, self.at_once, self.answer, report):
                end(finished)

    def new_trials(self, trials: int) -> Iterator[tuple[str, dict[str, Any]]]:
        """One trial after another, each suggested when a process is free to train it."""
        while time.monotonic() < self.deadline:
            with self.lock:
                if len(self.ended()) + len(self.running) >= trials:
                    return
                trial = self.ask()
                changes = suggest(trial, self.space)
                own = trial.user_attrs.get(OWN, False)
                sums = list(trial.user_attrs.get("sums", ()))
                name = f"trial {trial.number}"
                self.running[name] = trial
            settings = apply(self.config, {} if own else changes)
            yield name, self.order(name, settings, sums)

    def ask(self) -> Any:
        """The next trial: one that was cut off, the preset, a known good start, then what Optuna suggests."""
        from optuna.trial import TrialState

        begun = self.study.user_attrs.get(BEGUN, 0)
        waiting = self.study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
        if not waiting and begun < len(self.first):
            self.study.enqueue_trial(self.first[begun], {OWN: True} if begun == 0 else None)
            self.study.set_user_attr(BEGUN, begun + 1)
        return self.study.ask()

    def order(
        self, name: str, config: HolmesConfig, sums: Sequence[float] = (), partition: int = 0
    ) -> dict[str, Any]:
        if self.display is not None:
            self.display.begin(name, FOLDS * config.training.epochs, len(sums) * config.training.epochs)
        return {"name": name, "config": to_dict(config), "sums": list(sums), "partition": partition}

    def answer(self, asked: Any, send: Callable[[Any], None]) -> None:
        """A process asks at a rung whether its trial is good enough to go on."""
        with self.lock:
            trial = self.running.get(asked["name"])
            if trial is None:  # not of the search: it is trained to its end
                send(True)
                return
            trial.set_user_attr("sums", asked["sums"])
            trial.report(asked["value"], asked["step"])
            send(bool(trial.user_attrs.get(OWN)) or not trial.should_prune())

    def end(self, finished: Finished[str]) -> None:
        from optuna.trial import TrialState

        with self.lock:
            trial = self.running.pop(finished.job)
            if finished.ending is not None and not trial.user_attrs.get(AGAIN):
                self.study.tell(trial, state=TrialState.FAIL)
                self.study.enqueue_trial(trial.params, {**trial.user_attrs, AGAIN: True})
                how = f"will be trained again: {finished.failure}"
            elif finished.failure:
                trial.set_user_attr("reason", finished.failure)
                self.study.tell(trial, state=TrialState.FAIL)
                how = f"failed: {finished.failure}"
            else:
                sums = finished.result["sums"]
                whole = len(sums) == FOLDS
                trial.set_user_attr("sums", sums)
                if whole:
                    self.study.tell(trial, float(np.mean(sums)))
                    self.save_best()
                    how = f"SumR {np.mean(sums):.1f}"
                else:
                    self.study.tell(trial, state=TrialState.PRUNED)
                    how = f"stopped at {last_value(trial):.1f}"
        line = f"{how}; {self.best_so_far()}"
        if self.display is not None:
            self.display.end(finished.job, line)
        if self.say is not None:
            self.say(f"{finished.job}: {line}")

    def ended(self) -> list[Trial]:
        """Every trial that was carried out; one that was cut off by a kill is carried out anew."""
        known = [trial_of(each, self.space) for each in self.study.get_trials(deepcopy=False)]
        confirmed = self.study.user_attrs
        return [
            replace(trial, confirmed=tuple(confirmed.get(confirmation_key(trial), ())))
            for trial in known
            if trial is not None
        ]

    def complete(self) -> list[Trial]:
        return [trial for trial in self.ended() if trial.state == COMPLETE]

    def best(self) -> Trial:
        """The best of the trials that were trained on the most folds, those of the confirmation included."""
        ended = self.ended()
        judged = [trial for trial in ended if trial.sums]
        if not judged:
            failed = [trial for trial in ended if trial.state == FAILED]
            raise HolmesError(
                f"all {len(failed)} trials failed; the first: {failed[0].reason}"
                if failed and len(failed) == len(ended)
                else "no trial has finished a fold in this time; run the same command again, with more "
                "--minutes, to continue."
            )
        most = max(len(trial.sums) + len(trial.confirmed) for trial in judged)
        finalists = (trial for trial in judged if len(trial.sums) + len(trial.confirmed) == most)
        return max(finalists, key=lambda trial: trial.mean_of_all)

    def best_so_far(self) -> str:
        found = self.complete()
        if not found:
            return "none is complete yet"
        best = max(found, key=lambda trial: trial.mean)
        return f"best {best.mean:.1f} (trial {best.number})"

    def chosen(self, best: Trial) -> HolmesConfig:
        return apply(self.config, best.changes, f"{self.config.name.removesuffix('_tuned')[:190]}_tuned")

    def save_best(self) -> None:
        save_settings(self.out / BEST, self.chosen(self.best()))

    def confirm(self) -> None:
        """Train the best few again, on the folds of another partition."""
        best = sorted(self.complete(), key=lambda trial: trial.mean, reverse=True)[:CANDIDATES]
        if len(best) < 2:
            return
        left = {f"trial {trial.number} again": trial for trial in best if not trial.confirmed}

        def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
            for name, trial in left.items():
                yield name, self.order(name, apply(self.config, trial.changes), partition=1)

        def end(finished: Finished[str]) -> None:
            how = finished.failure
            if not how:
                sums = finished.result["sums"]
                self.study.set_user_attr(confirmation_key(left[finished.job]), sums)
                how = f"SumR {np.mean(sums):.1f} on other folds"
            if self.display is not None:
                self.display.end(finished.job, how)
            if self.say is not None:
                self.say(f"{finished.job}: {how}")

        with StudyDisplay(len(left), self.options.progress, what="trials again") as self.display:
            self.work(jobs(), end)

    def measure_worth(self) -> None:
        """Put each setting of the best trial back to the preset's value, alone, and train all folds."""
        best = self.best()
        if not best.changes:
            return
        names = {
            f"without {name}": name
            for name in best.changes
            if self.worth_key(best, name) not in self.study.user_attrs
            and label(best.changes[name]) != label(setting_of(self.config, name))
        }

        def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
            for job, name in names.items():
                changes = {key: value for key, value in best.changes.items() if key != name}
                yield job, self.order(job, apply(self.config, changes))

        def end(finished: Finished[str]) -> None:
            if not finished.failure:
                key = self.worth_key(best, names[finished.job])
                self.study.set_user_attr(key, finished.result["sums"])
            if self.display is not None:
                how = finished.failure or f"SumR {np.mean(finished.result['sums']):.1f}"
                self.display.end(finished.job, how)

        with StudyDisplay(len(names), self.options.progress, what="settings") as self.display:
            self.work(jobs(), end)

    def worth_key(self, best: Trial, name: str) -> str:
        return f"worth:{best.number}:{name}"

    def result(
        self,
        test: dict[str, dict[str, float | None]] | None = None,
        test_fitting: dict[str, dict[str, float | None]] | None = None,
    ) -> Tuned:
        """What was found so far, also as `best.json` and `trials.json`."""
        best, known = self.best(), self.study.user_attrs
        worth = {
            name: tuple(float(d) for d in np.subtract(best.sums, known[self.worth_key(best, name)]))
            for name in best.changes
            if self.worth_key(best, name) in known
        }
        found = Tuned(
            preset=self.config,
            config=self.chosen(best),
            space=self.space,
            trials=tuple(self.ended()),
            best=best,
            store=self.store.path.name,
            videos=len(self.store.split("train").videos),
            worth=worth,
            collection=self.store.info.collection,
            test=test,
            test_fitting=test_fitting,
        )
        save_settings(self.out / BEST, found.config)
        write_json(self.out / TRIALS, found.to_dict())
        return found


def confirmation_key(trial: Trial) -> str:
    return f"confirmed:{trial.number}"


class OutOfTimeError(Exception):
    """The time for trials is over."""


def claim(out: Path, record: SearchRecord) -> None:
    """Write down what is searched here, or check that it is the same search."""
    path = out / SEARCH
    if path.exists():
        found = SEARCH_FORMAT.read(path, SearchRecord)
        for name, what in (("store", "store"), ("config", "settings"), ("settings", "search space")):
            if getattr(found, name) != getattr(record, name):
                raise HolmesError(f"{out} contains a search with another {what}; give another --out.")
        return
    others = sorted(each.name for each in out.glob("[!.]*") if each.name != LOCK)
    if others:
        raise HolmesError(
            f"{out} is not empty and contains no search (it has {others[0]!r}); give a new --out."
        )
    SEARCH_FORMAT.write(path, asdict(record))
