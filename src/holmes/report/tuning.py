"""A search for settings as tables: the chosen settings, how much each matters, the best trials."""

from __future__ import annotations

import numpy as np

from holmes.config.search_space import label, setting_of
from holmes.evaluation.grid import Grid
from holmes.report.figures.style import value_text
from holmes.report.figures.tuning import over_folds
from holmes.training.tuning.journal import COMPLETE, Trial
from holmes.training.tuning.search import Tuned
from holmes.training.tuning.trials import FOLDS

BEST_TRIALS = 10
HELD_OUT_NOTE = f"SumR of held-out training videos, mean of {FOLDS} folds; the test split was not used."
WORTH_NOTE = "gain: SumR lost if only this setting is set back to the preset's value, with a 95% interval."


def settings_table(tuned: Tuned) -> Grid:
    """Every searched setting: the preset's value, the best one, and the gain of the change."""
    grid = Grid(f"Settings, {summary_line(tuned)}", ["", "preset", "best", "gain"])
    for dimension in tuned.space:
        name = dimension.setting
        own, best = (label(setting_of(config, name)) for config in (tuned.preset, tuned.config))
        worth = difference(tuned.worth[name]) if name in tuned.worth else "–"
        grid.rows.append([name, rounded(own), rounded(best), worth])
    grid.notes = [HELD_OUT_NOTE, *([WORTH_NOTE] if tuned.worth else [])]
    return grid


def summary_line(tuned: Tuned) -> str:
    start, best = tuned.start, tuned.best
    if start is None or len(start.sums) != len(best.sums) or start == best:
        return f"best trial {best.number}: {best.mean:.1f}"
    gain = difference(tuple(np.subtract(best.sums, start.sums)))
    return f"best trial {best.number}: {best.mean:.1f}, preset {start.mean:.1f}, difference {gain}"


def trials_table(tuned: Tuned) -> Grid:
    """The best trials, and how many ended in which way."""
    judged = [trial for trial in tuned.trials if trial.sums]
    best = sorted(judged, key=lambda trial: (len(trial.sums), trial.mean), reverse=True)[:BEST_TRIALS]
    grid = Grid("Best trials", ["settings", "trial", "folds", "SumR", "on other folds", "seconds"])
    for trial in best:
        again = f"{np.mean(trial.confirmed):.1f}" if trial.confirmed else "–"
        figures = [f"{len(trial.sums)}", f"{trial.mean:.1f}", again, f"{trial.seconds:.0f}"]
        grid.rows.append([changes(trial, tuned), f"{trial.number}", *figures])
    states = [trial.state for trial in tuned.trials]
    ended = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys((COMPLETE, *states)))
    grid.notes = [f"{len(states)} trials: {ended}."]
    return grid


def changes(trial: Trial, tuned: Tuned) -> str:
    """What the trial changes in the preset."""
    values = {name: label(value) for name, value in trial.changes.items()}
    changed = [name for name, value in values.items() if value != label(setting_of(tuned.preset, name))]
    return ", ".join(f"{name.split('.')[1]} {rounded(values[name])}" for name in changed) or "the preset"


def difference(values: tuple[float, ...]) -> str:
    mean, half_width = over_folds(values)
    return f"{mean:+.1f}" if half_width is None else f"{mean:+.1f} ± {half_width:.1f}"


def rounded(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else value_text(value)
