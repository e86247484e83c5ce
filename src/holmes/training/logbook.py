"""What happened, epoch by epoch: one JSON line each, and TensorBoard for those who want it."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from holmes.errors import HolmesError
from holmes.files import atomic_file, read_file
from holmes.typed import Count, build


class Logbook:
    """Appends to `metrics.jsonl`; a resumed run first drops the epochs it will do again."""

    def __init__(self, folder: Path, epochs_done: int, tensorboard: bool = False) -> None:
        self.path = folder / "metrics.jsonl"
        kept = [entry for entry in read_metrics(folder) if entry["epoch"] <= epochs_done]
        with atomic_file(self.path) as file:
            file.write("".join(json.dumps(entry) + "\n" for entry in kept).encode())
        self.board = board(folder) if tensorboard else None

    def write(self, entry: dict[str, Any]) -> None:
        with open(self.path, "a") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())
        if self.board is not None:
            for group in ("loss", "kinds", "select", "speed"):
                for name, value in entry.get(group, {}).items():
                    if isinstance(value, int | float) and math.isfinite(value):
                        self.board.add_scalar(f"{group}/{name}", value, entry["epoch"])

    def close(self) -> None:
        if self.board is not None:
            self.board.close()


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The epochs logged so far, counted from 1.

    A last line that a kill cut short is left out; any other damage is refused: what follows it would be lost.
    """
    path = folder / "metrics.jsonl"
    lines = read_file(path).split(b"\n") if path.exists() else [b""]
    entries = []
    for number, line in enumerate(lines[:-1], start=1):  # what follows the last line break was cut short
        try:
            entry: dict[str, Any] = build(dict[str, Any], json.loads(line))
            build(Count, entry.get("epoch"), "epoch")
        except (ValueError, RecursionError, HolmesError) as error:
            raise HolmesError(
                f"{path}: line {number} is damaged ({str(error)[:80]}); restore the file, or delete the line "
                "to go on without that epoch."
            ) from None
        entries.append(entry)
    if entries and entries[0]["epoch"] == 0:  # an earlier version counted from 0
        entries = [entry | {"epoch": entry["epoch"] + 1} for entry in entries]
    return entries


def board(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise HolmesError(
            "--tensorboard needs the tensorboard package: pip install 'holmes[tensorboard]'."
        ) from None
    return SummaryWriter(str(folder / "tensorboard"))
