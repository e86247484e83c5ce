"""The progress display of long work: how many, how fast, how long still."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_display(total: int, what: str, shown: bool = True) -> Iterator[Callable[..., None]]:
    """Gives `advance(remark="")`, to be called once a finished piece; draws on standard error."""
    if not shown or not total:
        yield lambda remark="": None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(f"{what} · {{task.fields[speed]}}"),
        TimeRemainingColumn(),
        TextColumn("left {task.fields[remark]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as display:
        task = display.add_task("", total=total, speed="", remark="")

        def advance(remark: str = "") -> None:
            display.advance(task)
            elapsed = display.tasks[task].elapsed or 0.0
            speed = display.tasks[task].completed / elapsed if elapsed else 0.0
            display.update(task, speed=f"{speed:.1f}/s", remark=f"· {remark}" if remark else "")

        yield advance
