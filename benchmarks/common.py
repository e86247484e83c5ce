"""What every benchmark does: say which machine, print a table, write JSON."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from holmes.base.files import write_json


def machine(device: torch.device) -> str:
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    return f"{platform.machine()} CPU, {os.cpu_count()} cores, torch {torch.__version__}"


def print_table(title: str, rows: list[dict[str, Any]]) -> None:
    """One row for each dict; numbers to three digits."""
    table = Table(title=title, title_justify="left")
    for name in rows[0]:
        table.add_column(name, justify="left" if isinstance(rows[0][name], str) else "right")
    for row in rows:
        table.add_row(*(value if isinstance(value, str) else f"{value:,.4g}" for value in row.values()))
    Console(width=140).print(table)


def save_json(path: Path, value: Any) -> None:
    write_json(path, value)
    print(f"written to {path}")


def by_group(values: np.ndarray, groups: np.ndarray) -> tuple[float, float]:
    """The mean of all, and how far it can be off (95%) if groups are independent and their members not."""
    mean = float(values.mean())
    _, number = np.unique(groups, return_inverse=True)
    sums, counts = np.bincount(number, values - mean), np.bincount(number)
    return mean, 1.96 * float(np.sqrt((sums**2).sum())) / float(counts.sum())


@contextmanager
def work_folder(given: Path | None) -> Iterator[Path]:
    """The folder to work in: the given one, which is kept, or one that is removed at the end."""
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        yield given
    else:
        with tempfile.TemporaryDirectory() as temporary:
            yield Path(temporary)
