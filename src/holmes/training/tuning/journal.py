"""The trials of a search in Optuna's journal, which continues after a kill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from holmes.config.search_space import Dimension, suggest
from holmes.errors import HolmesError, missing_packages
from holmes.training.tuning.trials import HALF_WAY, KEPT

OWN = "preset"  # marks the trial of the preset's own values: it is never stopped early
BEGUN = "begun"  # how many of the first trials were begun
AGAIN = "again"  # marks a trial whose process or node died once
COMPLETE, STOPPED, FAILED = "complete", "stopped", "failed"


@dataclass(frozen=True)
class Trial:
    """Some settings and how they did on held-out training videos."""

    number: int
    changes: dict[str, Any]  # setting → value; empty for the preset itself
    state: str  # complete, stopped early, or failed
    sums: tuple[float, ...]  # SumR of each fold that was trained to its end
    half: float | None = None  # SumR half way through the first fold
    reason: str = ""  # of a failure
    seconds: float = 0.0
    confirmed: tuple[float, ...] = ()  # SumR of each fold of another partition, for the best few

    @property
    def mean(self) -> float:
        return float(np.mean(self.sums)) if self.sums else float("-inf")

    @property
    def mean_of_all(self) -> float:
        return float(np.mean([*self.sums, *self.confirmed])) if self.sums else float("-inf")


def import_optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise missing_packages("a search for settings", "optuna") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def open_study(journal: Path) -> Any:
    """The study in a journal. Trials that a kill cut off will be trained again, from their last fold on."""
    optuna = import_optuna()
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend
    from optuna.trial import TrialState

    mend_journal(journal)
    try:
        storage = JournalStorage(JournalFileBackend(str(journal)))
        study = optuna.create_study(
            storage=storage, study_name="holmes", direction="maximize", load_if_exists=True
        )
        known = study.get_trials(deepcopy=False)
    except (ValueError, KeyError, TypeError) as error:
        raise HolmesError(f"{journal} is damaged ({str(error)[:80]}); use a new --out folder.") from None
    # Numbers drawn before are not drawn again.
    study.sampler = optuna.samplers.TPESampler(
        seed=len(known),
        multivariate=True,
        constant_liar=True,
        n_startup_trials=10,
        group=False,
    )
    study.pruner = optuna.pruners.SuccessiveHalvingPruner(HALF_WAY, KEPT)
    for trial in known:
        if trial.state == TrialState.RUNNING:
            study.tell(trial.number, state=TrialState.FAIL)
            study.enqueue_trial(trial.params, trial.user_attrs)
    return study


def mend_journal(journal: Path) -> None:
    """Cut off a line that a kill left unfinished, and remove the lock that it left behind."""
    for stale in journal.parent.glob(f"{journal.name}.lock*"):
        stale.unlink(missing_ok=True)
    if journal.exists():
        content = journal.read_bytes()
        if content and not content.endswith(b"\n"):
            with open(journal, "r+b") as file:
                file.truncate(content.rfind(b"\n") + 1)


def trial_of(found: Any, space: Sequence[Dimension]) -> Trial | None:
    """A trial of Optuna's as ours; None while it waits or runs, and for one that a kill cut off."""
    from optuna.trial import FixedTrial, TrialState

    reason = found.user_attrs.get("reason", "")
    states = {TrialState.COMPLETE: COMPLETE, TrialState.PRUNED: STOPPED}
    state = states.get(found.state, FAILED if reason else None)
    if state is None:
        return None
    seconds = (found.datetime_complete - found.datetime_start).total_seconds()
    changes = {} if found.user_attrs.get(OWN) else suggest(FixedTrial(found.params), space)
    sums = tuple(found.user_attrs.get("sums", ()))
    return Trial(found.number, changes, state, sums, found.intermediate_values.get(HALF_WAY), reason, seconds)


def last_value(trial: Any) -> float:
    values = trial.study.get_trials(deepcopy=False)[trial.number].intermediate_values
    return float(values[max(values)]) if values else float("nan")
