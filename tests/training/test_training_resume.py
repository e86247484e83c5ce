"""kill -9, full disks and changed minds: a run continues exactly, or says in one line why it does not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from holmes.base.files import read_json
from holmes.data.store import Store
from holmes.encoders.checkpoint import load_checkpoint
from holmes.errors import HolmesError
from holmes.training.resume import StateKeeper, sole_owner
from tiny_runs import Launcher, logged, set_options, tiny_world

EPOCHS = 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("resume")


@pytest.fixture(scope="module")
def store(folder: Path) -> Store:
    return tiny_world(folder / "world")


@pytest.fixture(scope="module")
def launcher(folder: Path) -> Iterator[Launcher]:
    with Launcher(folder) as launcher:
        yield launcher


def command(store: Store, out: Path, *more: str, epochs: int = EPOCHS, **changes: object) -> list[str]:
    options = set_options(epochs=epochs, **changes)
    return [
        "train",
        str(store.path),
        "--preset",
        "tvr",
        "--out",
        str(out),
        "--device",
        "cpu",
        *options,
        *more,
    ]


@pytest.fixture(scope="module")
def unbroken(launcher: Launcher, store: Store, folder: Path) -> Path:
    """A whole run, never interrupted."""
    code, said = launcher.run(*command(store, folder / "unbroken"))
    assert code == 0 and "ours, honest, seed 0" in said, said
    return folder / "unbroken"


def assert_same_run(one: Path, other: Path) -> None:
    """Losses, norms, kinds, recalls and weights, to the last bit."""
    assert len(logged(one)) == EPOCHS
    assert logged(one) == logged(other)
    assert read_json(one / "result.json") == read_json(other / "result.json")
    assert load_checkpoint(one / "best").digest == load_checkpoint(other / "best").digest
    progress, tensors = whole_state(one)
    other_progress, other_tensors = whole_state(other)
    assert progress == other_progress
    assert all(tensors[name].equal(other_tensors[name]) for name in ("values", "first", "second"))


def whole_state(run: Path):
    state = StateKeeper(run).load()
    assert state is not None
    return state


def assert_usable(run: Path) -> None:
    """Whatever was interrupted, what is on disk is whole."""
    state = StateKeeper(run).load()
    if state is not None:
        assert load_checkpoint(run / "best").extras["epoch"] >= 1
        assert len(logged_whole(run)) >= state[0].epochs_done


def logged_whole(run: Path) -> list[str]:
    return [line for line in (run / "metrics.jsonl").read_text().splitlines(True) if line.endswith("}\n")]


def unfinished(run: Path) -> list[str]:
    """Temporary files of the run and of its checkpoint."""
    found = []
    for folder in (run, run / "best"):
        with suppress(FileNotFoundError):
            found += [name for name in os.listdir(folder) if name.endswith(".part")]
    return found


def test_killed_runs_go_on_to_the_same_bits(
    launcher: Launcher, store: Store, folder: Path, unbroken: Path
) -> None:
    """Killed before and after an epoch is written, again and again, the run ends as if nothing had happened.

    `tests/attacks/test_killed.py` kills before every single file operation.
    """
    run = folder / "killed"
    for killed in (
        (1, "before"),
        (1, "after"),
        (3, "before"),
        (4, "after"),
        (EPOCHS, "before"),
        (EPOCHS, "after"),
    ):
        code, said = launcher.run(*command(store, run), killed=killed)
        assert code == -9, said
        assert_usable(run)
    code, said = launcher.run(*command(store, run))
    assert code == 0, said
    assert_same_run(run, unbroken)
    assert unfinished(run) == []


def killed_after_two_epochs(launcher: Launcher, store: Store, run: Path) -> None:
    code, said = launcher.run(*command(store, run), killed=(2, "after"))
    assert code == -9, said


def test_a_full_disk_leaves_the_last_checkpoint(
    launcher: Launcher, store: Store, folder: Path, unbroken: Path
) -> None:
    """Files may grow large enough for the logbook but not for tensors: saving fails as on a full disk."""
    run = folder / "full"
    killed_after_two_epochs(launcher, store, run)
    before, weights = whole_state(run)[0], load_checkpoint(run / "best").digest
    code, said = launcher.run(*command(store, run), largest_file=20_000)
    assert code == 2
    assert last_line(said) == (
        f"holmes: cannot write to {run}: File too large; earlier saves are intact. "
        "Fix this and run the same command again."
    )
    assert whole_state(run)[0] == before
    assert load_checkpoint(run / "best").digest == weights
    assert unfinished(run) == []
    code, said = launcher.run(*command(store, run))
    assert code == 0, said
    assert_same_run(run, unbroken)


def test_a_disk_too_full_to_begin(launcher: Launcher, store: Store, folder: Path) -> None:
    run = folder / "fuller"
    code, said = launcher.run(*command(store, run), largest_file=100)
    assert code == 2
    assert last_line(said) == f"holmes: File too large: {run / 'run.json'}."
    assert not (run / "run.json").exists()


def last_line(said: str) -> str:
    return said.splitlines()[-1]


def one_line(code: int, said: str) -> str:
    """What a refusal said: a line and nothing else."""
    assert code == 2, said
    assert said.count("\n") == 1 and said.startswith("holmes: "), said
    return said


def test_unwritable_folders(launcher: Launcher, store: Store, folder: Path) -> None:
    (folder / "file").write_text("not a folder")
    refused = one_line(*launcher.run(*command(store, folder / "file" / "run")))
    assert "Not a directory" in refused and str(folder / "file") in refused
    locked = folder / "locked"
    locked.mkdir()
    locked.chmod(0o555)
    target = locked / "run" if os.geteuid() else Path("/proc/run")  # nothing is locked for root but /proc
    refused = one_line(*launcher.run(*command(store, target)))
    assert str(target) in refused


def test_other_runs_are_not_mixed(launcher: Launcher, store: Store, folder: Path, unbroken: Path) -> None:
    other = tiny_world(folder / "other world", seed=1)
    before = {path: path.read_bytes() for path in sorted(unbroken.rglob("*")) if path.is_file()}
    cases = {
        "config.training.epochs is 8, not 9": command(store, unbroken, epochs=9),
        "config.model.width is 8, not 16": command(store, unbroken, width=16),
        "seed is 0, not 1": command(store, unbroken, "--seed", "1"),
        "data.protocol is 'honest', not 'published'": command(store, unbroken, "--protocol", "published"),
        "data.store is": command(other, unbroken),
        "config.name is 'tvr', not 'charades'": [
            {"tvr": "charades"}.get(word, word) for word in command(store, unbroken)
        ],
        "contains a single run": command(store, unbroken, "--seeds", "0,1"),
    }
    for message, words in cases.items():
        refused = one_line(*launcher.run(*words))
        assert message in refused and "give another --out" in refused
    assert {path: path.read_bytes() for path in before} == before


def test_wrong_words_are_refused_before_anything_is_written(
    launcher: Launcher, store: Store, folder: Path
) -> None:
    run = folder / "never"
    replaced = lambda old, new: [{old: new}.get(word, word) for word in command(store, run)]  # noqa: E731
    cases = {
        "unknown preset 'tvrr'; did you mean 'tvr'?": replaced("tvr", "tvrr"),
        "no such folder": replaced(str(store.path), str(folder / "nowhere")),
        "unknown setting 'widht'": replaced("width=8", "widht=8"),
        "setting epochs: 'ten' is not a valid int": command(store, run, "--set", "epochs=ten"),
        "write NAME=VALUE": command(store, run, "--set", "epochs"),
        "unknown protocol 'fair'": command(store, run, "--protocol", "fair"),
        "torch sees no GPU": command(store, run, "--device", "cuda"),
        "unknown device 'gpu'": command(store, run, "--device", "gpu"),
        "seeds must differ": command(store, run, "--seeds", "1,1"),
        "not both": command(store, run, "--seeds", "1,2", "--seed", "3"),
    }
    for message, words in cases.items():
        assert message in one_line(*launcher.run(*words))
        assert not run.exists()


def test_a_finished_run_is_not_repeated_and_its_store_may_move(
    launcher: Launcher, store: Store, folder: Path, unbroken: Path
) -> None:
    moved = folder / "moved"
    shutil.copytree(store.path, moved / "world")
    before = (unbroken / "metrics.jsonl").stat().st_mtime_ns
    code, said = launcher.run(*command(Store.open(moved / "world"), unbroken))
    assert code == 0 and "ours, honest, seed 0" in said
    assert (unbroken / "metrics.jsonl").stat().st_mtime_ns == before
    assert read_json(unbroken / "run.json")["store"] == str((moved / "world").resolve())


def test_two_processes_cannot_train_one_run(store: Store, folder: Path, launcher: Launcher) -> None:
    run = folder / "shared"
    with sole_owner(run):
        assert "another process" in one_line(*launcher.run(*command(store, run)))
    with sole_owner(run), pytest.raises(HolmesError, match="another process"), sole_owner(run):
        pass


def test_a_damaged_state_is_named(launcher: Launcher, store: Store, folder: Path) -> None:
    run = folder / "damaged"
    killed_after_two_epochs(launcher, store, run)
    tensors = run / read_json(run / "state.json")["tensors"]
    tensors.write_bytes(tensors.read_bytes()[:1000])
    refused = one_line(*launcher.run(*command(store, run)))
    assert "is damaged" in refused and "cannot be resumed; use a new --out" in refused
