"""The log of a run: one JSON line per epoch with a checksum, and TensorBoard on request."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from torch import Tensor

from holmes.base.files import atomic_file, read_file
from holmes.base.manifests import checksum
from holmes.base.validation import Count, build
from holmes.errors import HolmesError, missing_packages
from holmes.records import Stage

CHECKSUM = "checksum"


class Logbook:
    """Appends to `metrics.jsonl`; a resumed run first drops the epochs it will do again."""

    def __init__(self, folder: Path, epochs_done: int, tensorboard: bool = False) -> None:
        self.path = folder / "metrics.jsonl"
        kept = [entry for entry in read_metrics(folder) if entry["epoch"] <= epochs_done]
        with atomic_file(self.path) as file:
            file.write("".join(map(line_of, kept)).encode())
        self.board = board(folder) if tensorboard else None

    def write(self, entry: dict[str, Any]) -> None:
        with open(self.path, "a") as file:
            file.write(line_of(entry))
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


def line_of(entry: dict[str, Any]) -> str:
    """The line of an epoch, with its checksum."""
    body = json.loads(json.dumps(entry))  # as it will be read
    return json.dumps({**body, CHECKSUM: checksum(body)}) + "\n"


def epoch_entry(
    epoch: int,
    stage: Stage,
    values_SN: Tensor,
    names: tuple[str, ...],
    learning_rate: float,
    seconds: float,
) -> dict[str, Any]:
    """The means of an epoch's steps: losses, shares of kinds, gradient norm, speed."""
    means = dict(zip(names, values_SN.double().mean(0).tolist(), strict=True))
    kinds = {name.removeprefix("share_"): means.pop(name) for name in names if name.startswith("share_")}
    norm = {
        "mean": means.pop("gradient_norm"),
        "max": values_SN[:, names.index("gradient_norm")].max().item(),
    }
    return {
        "epoch": epoch + 1,
        "stage": stage.value,
        "loss": means,
        "gradient_norm": norm,
        "kinds": kinds,
        "learning_rate": learning_rate,
        "speed": {"train_seconds": seconds, "steps_per_second": len(values_SN) / seconds},
    }


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The epochs logged so far, counted from 1.

    A last line that a kill cut short is ignored. Any other damage is an error: later epochs would be lost.
    """
    path = folder / "metrics.jsonl"
    *lines, rest = read_file(path).split(b"\n") if path.exists() else [b""]
    entries: list[dict[str, Any]] = []
    for number, line in enumerate([*lines, *whole(rest)], start=1):
        try:
            entry: dict[str, Any] = build(dict[str, Any], json.loads(line))
            build(Count, entry.get("epoch"), "epoch")
            if CHECKSUM in entry and entry[CHECKSUM] != checksum(without(entry)):
                raise ValueError("its checksum does not match")
        except (ValueError, RecursionError, HolmesError) as error:
            raise damaged(path, number, str(error)[:80]) from None
        entries.append(entry)
    without_checksum = [number for number, entry in enumerate(entries, start=1) if CHECKSUM not in entry]
    if 0 < len(without_checksum) < len(entries):  # a log of an earlier version has none at all
        raise damaged(path, without_checksum[0], "it has no checksum")
    entries = [without(entry) for entry in entries]
    if entries and entries[0]["epoch"] == 0:  # an earlier version counted from 0
        entries = [entry | {"epoch": entry["epoch"] + 1} for entry in entries]
    return entries


def whole(rest: bytes) -> list[bytes]:
    """The line at the end of a file, if it lacks only its break; nothing if it was cut short."""
    try:
        end = json.JSONDecoder().raw_decode(rest.decode(errors="replace"))[1]
    except (ValueError, RecursionError):
        return []
    return [rest.decode(errors="replace")[:end].encode()]


def without(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != CHECKSUM}


def damaged(path: Path, number: int, why: str) -> HolmesError:
    return HolmesError(
        f"{path}: line {number} is damaged ({why}); restore the file, or delete the line to continue without "
        "that epoch."
    )


def board(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise missing_packages("--tensorboard", "tensorboard") from None
    return SummaryWriter(str(folder / "tensorboard"))
