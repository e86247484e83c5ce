"""kill -9 while an index changes: nothing acknowledged is lost, nothing is half there."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np

from holmes.index.storage.manifest import Manifest
from holmes.index.storage.segments import StoredVideo
from holmes.index.storage.store import IndexStore
from holmes.index.storage.writer import IndexWriter, create_index
from killing import die_before
from packed import pack_video

KILLS = 40
MOST_OPERATIONS = 60  # file operations before a writer is killed; a change takes about ten


def video(name: str, stamp: int) -> StoredVideo:
    rng = np.random.default_rng([stamp, int(name)])
    frames = rng.normal(size=(1 + stamp % 100, 8))
    frame_spans, clip_spans = np.zeros((len(frames), 2)), np.zeros((32, 2))
    return pack_video(name, 1.0, frames, frames[:1].repeat(32, 0), frame_spans, clip_spans, stamp=stamp)


def change_for_ever(index: Path, seed: int, say: Callable[..., None]) -> None:
    """Says what it is about to do, does it, says that it is done."""
    chance = random.Random(seed)
    with IndexWriter(index) as writer:
        say("ready")
        while True:
            kind = chance.choice(["add", "add", "remove", "compact"])
            if kind == "add":
                names = [str(n) for n in chance.sample(range(60), chance.randint(1, 20))]
                stamp = chance.randrange(10**6)
                say("add", names, stamp)
                writer.add([video(name, stamp) for name in names])
            elif kind == "remove" and writer.store.positions:
                most = min(8, len(writer.store))
                names = chance.sample(sorted(writer.store.positions), chance.randint(1, most))
                say("remove", names)
                writer.remove(names)
            else:
                say("compact")
                writer.compact()
            say("done")


def after(state: dict[str, int], change: list) -> dict[str, int]:
    """Which videos the index holds, and of which stamp, after a change."""
    if change[0] == "add":
        return state | dict.fromkeys(change[1], change[2])
    if change[0] == "remove":
        return {name: stamp for name, stamp in state.items() if name not in change[1]}
    return state


def test_killing_writers_loses_nothing_acknowledged(tmp_path: Path) -> None:
    index = tmp_path / "index"
    create_index(index, Manifest({}, {}, 8, 32))
    state, changes = dict[str, int](), 0
    for kill in range(KILLS):
        said = _run_and_kill(index, kill, random.Random(kill))
        pending = None
        for words in said:
            if words == ["done"]:
                state, pending, changes = after(state, pending), None, changes + 1
            elif words != ["ready"]:
                pending = words
        store = IndexStore.open(index)
        found = {name: store[name].stamp for name in store.positions}
        possible = [state] if pending is None else [state, after(state, pending)]
        assert found in possible, f"kill {kill}: {pending}"
        assert store.faults() == []
        for name, stamp in found.items():
            rng = np.random.default_rng([stamp, int(name)])
            frames = rng.normal(size=(1 + stamp % 100, 8))
            unit = frames / np.linalg.norm(frames, axis=1, keepdims=True)
            np.testing.assert_allclose(store[name].rows_SPD[0, : len(frames)], unit, atol=1e-3)
        state = found
    assert changes > KILLS, "the writers must have been killed amid real work"
    with IndexWriter(index) as writer:  # and what they left behind is swept away
        assert {folder.name for folder in (index / "segments").iterdir()} == {
            entry.name for entry in writer.store.manifest.segments
        }
    assert list(index.glob(".*")) == []


def _run_and_kill(index: Path, seed: int, chance: random.Random) -> list[list]:
    """What a writer said before it was killed amid its work, at an operation that the seed decides.

    The writer is a fork of this process: it need not import everything first.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            die_before(chance.randint(1, MOST_OPERATIONS), index)
            change_for_ever(index, seed, lambda *words: os.write(writing, json.dumps(words).encode() + b"\n"))
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, "the writer ended by itself"
    return [json.loads(line) for line in said.splitlines()]
