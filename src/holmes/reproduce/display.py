"""One progress display for all runs: epochs, SumR and the time left."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holmes.reproduce.estimate import in_words
from holmes.reproduce.on_track import Watch, off_track_message
from holmes.reproduce.plan import PlannedRun
from holmes.reproduce.published import curves
from holmes.training.display import StudyDisplay


class PlanDisplay(StudyDisplay):
    """The runs of a plan, beside the published ones of the same preset."""

    def __init__(
        self,
        runs: Sequence[PlannedRun],
        remarks: Mapping[str, Sequence[str]],
        settings: Sequence[str],
        at_once: int = 1,
        progress: bool = True,
        after_run: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(len(runs), progress)
        self.after_run = after_run
        self.planned = {run.name: run for run in runs}
        self.remarks, self.settings, self.at_once = remarks, settings, max(1, at_once)
        self.watches = {run.name: Watch(run.preset, run.protocol) for run in runs}
        self.epochs_left = {run.name: run.config.training.epochs for run in runs}
        self.seconds: dict[str, float] = {}  # preset → an epoch with its evaluation

    def epoch(self, name: str, entry: dict[str, Any]) -> None:
        run = self.planned[name]
        standing, leaves = self.watches[name].note(entry)
        beside = "" if standing is None else f" ({standing.brief()})"
        state = f"epochs, SumR {entry['select']['SumR']:.1f}{beside}"
        self.show(name, entry["epoch"], state)
        self.epochs_left[name] = run.config.training.epochs - entry["epoch"]
        speed = entry["speed"]
        self.seconds[run.preset] = speed["train_seconds"] + speed.get("evaluate_seconds", 0.0)
        self.bar.update(self.all, state=f"about {in_words(self.time_left())} left")
        if leaves and standing is not None:
            self.say(off_track_message(name, standing, self.settings, self.remarks.get(run.collection, ())))

    def end(self, name: str, how: str) -> None:
        self.epochs_left[name] = 0
        curve = curves().get(self.planned[name].preset)
        super().end(name, how if curve is None else f"{how}, published {curve.best:.1f}")
        self.after_run()

    def time_left(self) -> float:
        """Epochs left, each at its preset's rate; presets not yet seen at the ratio of the published runs."""
        known, published = self.seconds, curves()
        reference = next(iter(known))

        def rate(preset: str) -> float:
            if preset in known:
                return known[preset]
            both = preset in published and reference in published
            return known[reference] * (
                published[preset].seconds / published[reference].seconds if both else 1
            )

        total = sum(left * rate(self.planned[name].preset) for name, left in self.epochs_left.items())
        return total / self.at_once
