"""Everything needed to go on after a kill: saved between epochs, whole or not at all.

`state.json` names the file with the tensors and is replaced last. Random numbers need no saving: every
epoch seeds them from (seed, epoch, rank).
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from holmes.config.schema import HolmesConfig, to_dict
from holmes.errors import HolmesError
from holmes.files import atomic_file, read_json, write_json

RUN, RESULT, LOCK = "run.json", "result.json", "lock"
OVERHEAD = 0.05  # saving may take this share of the time


@dataclass
class Progress:
    """Where a run stands after an epoch."""

    epochs_done: int = 0
    steps_done: int = 0
    best_epoch: int = -1
    best_sum: float = float("-inf")
    stopped_early: bool = False
    history: dict[str, Any] = field(default_factory=dict)


class StateKeeper:
    """Saves often enough to lose little, seldom enough to cost little."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.last_save = float("-inf")
        self.save_seconds = 0.0

    def due(self) -> bool:
        return time.monotonic() - self.last_save >= self.save_seconds / OVERHEAD

    def save(self, progress: Progress, tensors: dict[str, Tensor]) -> None:
        start = time.monotonic()
        name = f"state-{progress.epochs_done}.safetensors"
        with atomic_file(self.folder / name) as file:
            file.write(save({key: value.detach().cpu().contiguous() for key, value in tensors.items()}))
        write_json(self.folder / "state.json", {"tensors": name, "progress": asdict(progress)})
        for stale in self.folder.glob("state-*.safetensors"):
            if stale.name != name:
                stale.unlink(missing_ok=True)
        self.last_save = time.monotonic()
        self.save_seconds = self.last_save - start

    def load(self) -> tuple[Progress, dict[str, Tensor]] | None:
        """The last saved state, or None for a run that has none yet."""
        if not (self.folder / "state.json").exists():
            return None
        state = read_json(self.folder / "state.json")
        try:
            tensors = load_file(self.folder / Path(state["tensors"]).name)
            return Progress(**state["progress"]), tensors
        except (KeyError, TypeError, OSError, SafetensorError) as error:
            raise HolmesError(
                f"{self.folder} cannot be resumed: its state is damaged ({error}); use a new --out folder."
            ) from None


@contextmanager
def sole_owner(folder: Path) -> Iterator[None]:
    """Two processes must not write one run. The kernel lets go of the lock however a process ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / LOCK, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HolmesError(
                f"{folder} is being trained by another process; wait for it or give another --out."
            ) from None
        for unfinished in folder.rglob(".*.part"):  # what a killed process was writing
            unfinished.unlink(missing_ok=True)
        yield


def claim_run(folder: Path, config: HolmesConfig, seed: int, data: dict[str, Any], store: Path) -> None:
    """Write down what this run is, or check that a run found here is the same one.

    Where the store lies is remembered too, but a store may move.
    """
    identity = {"format": "holmes-run", "version": 1, "seed": seed, "data": data, "config": to_dict(config)}
    path = folder / RUN
    if path.exists():
        found = read_json(path)
        for key in identity:
            # Through JSON both sides have lists for tuples.
            if jsonable(found.get(key)) != jsonable(identity[key]):
                raise HolmesError(
                    f"{folder} holds another run (its {difference(found.get(key), identity[key], key)}); "
                    "give another --out, or the settings it was started with."
                )
    write_json(path, {**identity, "store": str(store.resolve())})


def jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: jsonable(item) for key, item in value.items()}
    return [jsonable(item) for item in value] if isinstance(value, list | tuple) else value


def difference(found: Any, wanted: Any, where: str) -> str:
    """The first setting in which two runs differ."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        for key in [*found, *wanted]:
            if jsonable(found.get(key)) != jsonable(wanted.get(key)):
                return difference(found.get(key), wanted.get(key), f"{where}.{key}")
    return f"{where} is {found!r}, not {wanted!r}"


def seed_epoch(seed: int, epoch: int, rank: int) -> None:
    """Random numbers of an epoch depend on nothing before it."""
    mixed = torch.Generator().manual_seed((seed * 1_000_003 + epoch) * 1_009 + rank)
    torch.manual_seed(int(torch.randint(2**62, (1,), generator=mixed)))


def read_result(path: Path) -> dict[str, Any]:
    """The figures of a finished run."""
    result = read_json(path)
    if not isinstance(result, dict) or "SumR" not in (result.get("metrics") or {}):
        raise HolmesError(f"{path} is damaged; remove it and run the same command again.")
    return result
