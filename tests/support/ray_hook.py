"""What every worker of the test cluster does first: a toy encoder, and videos that wait or crash.

FOLDER is one that all nodes share. A task leaves a file in FOLDER/begun and one in FOLDER/done, with the name
of its video and of its node; while FOLDER/wait exists it waits in between.
"""

from __future__ import annotations

import os
import signal
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np

from index_fakes import WIDTH, FakeJoint

FOLDER = "HOLMES_TEST_FOLDER"
CRASHING = "crash"  # in the name of a video that its decoder does not survive


class Shades(FakeJoint):
    """A row is how bright a frame is, as a direction."""

    name = "shades"

    def frames(self, images: Any) -> np.ndarray:
        bright = np.array([image.mean() / 255 for image in images], np.float32)
        return np.cos(bright[:, None] * 2 + np.linspace(0, 3, WIDTH, dtype=np.float32))


def setup() -> None:
    import ray

    from holmes.cluster import extract as extracting

    shared, really = Path(os.environ[FOLDER]), extracting.extract_video

    def watched(source: Path, *how: Any, **more: Any) -> Any:
        note(shared / "begun", source, ray.get_runtime_context().get_node_id())
        if CRASHING in source.name:
            os.kill(os.getpid(), signal.SIGKILL)
        while (shared / "wait").exists():
            time.sleep(0.02)
        features = really(source, *how, **more)
        note(shared / "done", source, ray.get_runtime_context().get_node_id())
        return features

    extracting.extract_video = watched  # type: ignore[assignment]
    extracting.load_visual = lambda name, **how: Shades()  # type: ignore[assignment]


def note(folder: Path, source: Path, node: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{source.name} {node} {uuid.uuid4().hex}").touch()


def notes(folder: Path) -> list[tuple[str, str]]:
    """Videos and the nodes they were on, one for each time."""
    found = folder.iterdir() if folder.exists() else ()
    return sorted((path.name.split(" ")[0], path.name.split(" ")[1]) for path in found)


def node(actor: Any) -> str:
    """The node that an actor is on; this and the next two run in its process."""
    import ray

    return str(ray.get_runtime_context().get_node_id())


def process(actor: Any) -> int:
    return os.getpid()


def snapshots(actor: Any) -> list[str]:
    """The digests of the snapshots that a shard is open in."""
    return sorted(actor._open)
