"""Progress of long work: a display on standard error, or callbacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Report = Callable[[str, int, int], None]  # what is being done, how much of it is done, of how much
_report: ContextVar[Report | None] = ContextVar("report", default=None)


@contextmanager
def reported_to(report: Report) -> Iterator[None]:
    """Inside the block, progress is reported instead of displayed."""
    token = _report.set(report)
    try:
        yield
    finally:
        _report.reset(token)


def listener() -> Report | None:
    """The function that asked for reports, if any."""
    return _report.get()


@contextmanager
def progress_bar(
    what: str, total: int, done: int = 0, progress: bool = True
) -> Iterator[Callable[[int], None]]:
    """Gives `advance(count)`. `done` is what an earlier attempt left: it counts, but not for the rate."""
    if not progress:
        yield lambda count: None
        return
    if (report := _report.get()) is not None:
        yield _counting(report, what, total, done)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as display:
        task = display.add_task(what, total=total, completed=done, rate="")

        def advance(count: int) -> None:
            display.advance(task, count)
            elapsed = display.tasks[task].elapsed or 0.0
            if elapsed:
                rate = (display.tasks[task].completed - done) / elapsed
                display.update(task, rate=f"{rate:,.{0 if rate >= 10 else 1}f}/s")

        yield advance


def _counting(report: Report, what: str, total: int, done: int) -> Callable[[int], None]:
    def advance(count: int) -> None:
        nonlocal done
        done += count
        report(what, done, total)

    advance(0)
    return advance
