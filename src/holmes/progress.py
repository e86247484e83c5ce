"""The progress display of long work, on standard error: how much is done, how fast, how long still."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(what: str, total: int, done: int = 0, shown: bool = True) -> Iterator[Callable[[int], None]]:
    """Gives `advance(count)`. `done` is what an earlier attempt left: it counts, but not for the rate."""
    if not shown:
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
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
