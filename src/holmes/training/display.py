"""The display of a run: settings, progress, speed, and the best SumR so far."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from holmes.base.printing import printable, printable_lines


class Display:
    """Bars and lines on standard error; nothing is shown if `progress` is false."""

    def __init__(self, progress: bool, *columns: str | ProgressColumn) -> None:
        self.console = Console(stderr=True, quiet=not progress)
        first = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
        self.bar = Progress(*first, *columns, console=self.console, transient=True)

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def say(self, line: str | Text) -> None:
        """Print a line; odd characters in a name from a file cannot act on the terminal."""
        text = line if isinstance(line, Text) else Text(printable_lines(line))
        self.console.print(text, highlight=False)


class TrainingDisplay(Display):
    """A line for every epoch and a bar for the run."""

    def __init__(self, steps: int, steps_done: int, progress: bool = True) -> None:
        left = TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()
        super().__init__(progress, TextColumn("steps"), *left)
        self.task = self.bar.add_task("starting", total=steps, completed=steps_done)

    def doing(self, what: str) -> None:
        self.bar.update(self.task, description=what)

    def advance(self) -> None:
        self.bar.advance(self.task)

    def epoch(self, entry: dict[str, Any], epochs: int, best: float, best_epoch: int) -> None:
        """An epoch's line, from its entry in the logbook."""
        epoch, found = entry["epoch"], entry["select"]["SumR"]
        line = Text(f"epoch {epoch:>3}/{epochs}  stage {entry['stage']}  loss {entry['loss']['total']:8.4f}")
        line.append(f"  SumR {found:6.1f} ").append("★" if epoch == best_epoch else " ", style="green")
        self.say(line.append(f" best {best:6.1f}  {entry['speed']['steps_per_second']:6.1f} steps/s"))


class StudyDisplay(Display):
    """Many runs at once: a bar for all, one for each that is under way, a line for each that has ended."""

    def __init__(self, total: int, progress: bool = True, done: int = 0, what: str = "runs") -> None:
        super().__init__(progress, TextColumn("{task.fields[state]}"), TimeElapsedColumn())
        self.all = self.bar.add_task(what, total=total, completed=done, state="")
        self.ended, self.total = done, total
        self.tasks: dict[str, TaskID] = {}

    def begin(self, name: str, epochs: int, done: int = 0) -> None:
        task = self.bar.add_task(escape(printable(name)), total=epochs, completed=done, state="starting")
        self.tasks[name] = task

    def show(self, name: str, epochs_done: int, state: str = "epochs") -> None:
        self.bar.update(self.tasks[name], completed=epochs_done, state=state)

    def epoch(self, name: str, entry: dict[str, Any]) -> None:
        """An epoch's entry in the logbook of a run."""
        self.show(name, entry["epoch"], f"epochs, SumR {entry['select']['SumR']:.1f}")

    def end(self, name: str, how: str) -> None:
        self.bar.remove_task(self.tasks.pop(name))
        self.ended += 1
        self.bar.update(self.all, completed=self.ended)
        self.say(f"{self.ended} of {self.total}  {name}  {how}")
