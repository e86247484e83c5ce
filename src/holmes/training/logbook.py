"""What happened, epoch by epoch: one JSON line each, and TensorBoard for those who want it."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from holmes.errors import HolmesError
from holmes.files import atomic_file


class Logbook:
    """Appends to `metrics.jsonl`; a resumed run first drops the epochs it will do again."""

    def __init__(self, folder: Path, epochs_done: int, tensorboard: bool = False) -> None:
        self.path = folder / "metrics.jsonl"
        kept = [entry for entry in read_metrics(folder) if entry["epoch"] < epochs_done]
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
    """The epochs logged so far; a last line cut short by a kill is left out."""
    path = folder / "metrics.jsonl"
    entries = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            break
        if not isinstance(entry, dict) or not isinstance(entry.get("epoch"), int):
            raise HolmesError(
                f"{path} is damaged: '{line[:40]}' is no epoch; restore it, or begin a new run."
            )
        entries.append(entry)
    return entries


def board(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise HolmesError(
            "--tensorboard needs the tensorboard package: pip install 'holmes[tensorboard]'."
        ) from None
    return SummaryWriter(str(folder / "tensorboard"))
