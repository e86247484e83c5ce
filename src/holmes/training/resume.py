"""Save the state of a run between epochs, atomically, and resume from it.

`state.json` names the file with the tensors and is replaced last. Random numbers need no saving: every
epoch seeds them from (seed, epoch, rank).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from holmes.base.files import atomic_file, read_file, read_json
from holmes.base.locks import hold
from holmes.base.manifests import FileFormat
from holmes.base.validation import AtMost, Count, Infinite, Matching, Sha256, Within
from holmes.config.schema import HolmesConfig, to_dict
from holmes.errors import HolmesError
from holmes.results import TrainingResult
from holmes.training.protocol import Protocol

RUN, RESULT, STATE, LOCK = "run.json", "result.json", "state.json", "lock"
RANKS = "ranks.npz"
TRAINED_BY = "run"  # among the extras of a run's checkpoint: the run it is of
RUN_FORMAT = FileFormat(
    "holmes-run", 2, "a run", "restore the file, or begin another run", without_checksum=(1,)
)
STATE_FORMAT = FileFormat(
    "holmes-state", 1, "where a run stands", "use a new --out folder", without_checksum=(0,)
)
RESULT_FORMAT = FileFormat(
    "holmes-result", 1, "a run's result", "remove it and run the same command again", without_checksum=(0,)
)
LARGEST_STATE = 64 << 30  # bytes
TENSORS = Matching(r"state-[0-9]{1,9}\.safetensors", "the name of a file of tensors")
OVERHEAD = 0.05  # the share of the time that saving may take


@dataclass
class Progress:
    """Where a run stands after an epoch."""

    epochs_done: Count = 0
    steps_done: Count = 0
    best_epoch: Count = 0  # counted from 1
    best_sum: Annotated[float, Infinite()] = float("-inf")
    stopped_early: bool = False
    history: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SavedState:
    """What `state.json` says."""

    tensors: Annotated[str, TENSORS]
    progress: Progress
    sha256: Sha256 | None = None  # of the tensors; none in the files of earlier versions


@dataclass(frozen=True)
class RunData:
    """What a run was trained on, and how its best epoch is chosen."""

    store: Sha256
    protocol: Protocol
    start: Sha256 | None = None  # the digest of the weights it started from; none if they were random


@dataclass(frozen=True)
class RunRecord:
    """What `run.json` says."""

    seed: Annotated[int, Within(0, 2**31 - 1)]
    data: RunData
    config: HolmesConfig
    store: Annotated[str, AtMost(1 << 14)]


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
        content = save({key: value.detach().cpu().contiguous() for key, value in tensors.items()})
        with atomic_file(self.folder / name) as file:
            file.write(content)
        saved = SavedState(name, progress, hashlib.sha256(content).hexdigest())
        STATE_FORMAT.write(self.folder / STATE, asdict(saved))
        self._sweep(name)
        self.last_save = time.monotonic()
        self.save_seconds = self.last_save - start

    def _sweep(self, named: str) -> None:
        for stale in self.folder.glob("state-*.safetensors"):
            if stale.name != named:
                stale.unlink(missing_ok=True)

    def load(self) -> tuple[Progress, dict[str, Tensor]] | None:
        """The last saved state, or None for a run that has none yet."""
        if not (self.folder / STATE).exists():
            return None
        state = STATE_FORMAT.read(self.folder / STATE, SavedState)
        content = read_file(self.folder / state.tensors, LARGEST_STATE)
        try:
            if state.sha256 not in (None, hashlib.sha256(content).hexdigest()):
                raise ValueError("its checksum does not match")
            self._sweep(state.tensors)
            return state.progress, load(content)
        except (ValueError, SafetensorError) as error:
            raise HolmesError(
                f"{self.folder / state.tensors} is damaged ({str(error)[:100]}), and {self.folder} cannot be "
                f"resumed; {STATE_FORMAT.remedy}."
            ) from None


@contextmanager
def sole_owner(folder: Path) -> Iterator[None]:
    """Hold the lock of a run: two processes must not write it."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = hold(
        folder / LOCK,
        f"{folder} is being trained by another process; wait until it is done, or give another --out.",
    )
    try:
        for unfinished in folder.rglob(".*.part"):  # what a killed process was writing
            unfinished.unlink(missing_ok=True)
        yield
    finally:
        lock.release()


def refuse_foreign_folder(folder: Path) -> None:
    """Refuse a folder with other files: a run goes into a new or empty folder, or into one that has a run."""
    others = (
        sorted(path.name for path in folder.glob("[!.]*") if path.name != LOCK) if folder.is_dir() else []
    )
    if others and RUN not in others:
        raise HolmesError(
            f"{folder} is not empty and contains no run (it has {others[0]!r}"
            f"{' and others' if len(others) > 1 else ''}); give a new folder with --out."
        )


def claim_run(folder: Path, config: HolmesConfig, seed: int, data: dict[str, Any], store: Path) -> None:
    """Write down what this run is, or check that a run found here is the same one.

    The location of the store is recorded too, but a store may move.
    """
    identity = {"seed": seed, "data": data, "config": to_dict(config)}
    path = folder / RUN
    if path.exists():
        found = read_run(path)
        for key in identity:
            # Through JSON both sides have lists for tuples.
            if jsonable(found.get(key)) != jsonable(identity[key]):
                raise HolmesError(
                    f"{folder} contains another run (its {difference(found.get(key), identity[key], key)}); "
                    "give another --out, or the settings it was started with."
                )
    RUN_FORMAT.write(path, {**identity, "store": str(store.resolve())})


def read_run(path: Path) -> dict[str, Any]:
    """What a run says of itself; a foreign or damaged file is refused."""
    RUN_FORMAT.read(path, RunRecord)
    return dict(read_json(path))


def trained_by(about: dict[str, Any]) -> dict[str, Any]:
    """What a run's checkpoint remembers of the run, besides its settings."""
    return {"seed": about["seed"], "data": about["data"]}


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
    """Seed an epoch, so that its random numbers depend on nothing before it."""
    mixed = torch.Generator().manual_seed((seed * 1_000_003 + epoch) * 1_009 + rank)
    torch.manual_seed(int(torch.randint(2**62, (1,), generator=mixed)))


def write_result(folder: Path, result: TrainingResult) -> None:
    RESULT_FORMAT.write(folder / RESULT, result.to_file())


def read_result(path: Path) -> TrainingResult:
    """The figures of a finished run."""
    return replace(RESULT_FORMAT.read(path, TrainingResult), run=str(path.parent))
