"""Training runs small enough for a test, in this process or in one that can be killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any
from unittest.mock import patch

from holmes.config.presets import preset
from holmes.config.schema import HolmesConfig, with_changes
from holmes.data.store import Store
from holmes.training.run import RunOptions
from holmes.worlds.planted import PlantSettings, generate, plant

QUIET = RunOptions(device="cpu", progress=False)
TINY: dict[str, Any] = {
    "width": 8,
    "gaussian_widths": "none,1",
    "batch_videos": 8,
    "epochs": 4,
    "warm_up_epochs": 2,
}


def tiny_world(folder: Path, seed: int = 0, videos: int = 16, frames: int = 24, clips: int = 8) -> Store:
    """Videos are pooled to fewer positions than usual, as by `holmes data pack --frames 24 --clips 8`."""
    sizes = {"videos": videos, "val_videos": 2, "test_videos": 8}
    with patch.multiple(
        generate,
        FRAMES=frames,
        video_frames=partial(generate.video_frames, frames=frames),
        video_clips=partial(generate.video_clips, clips=clips),
        Catalogue=partial(generate.Catalogue, frames=frames, clips=clips),
    ):
        plant(folder, PlantSettings(**sizes, seed=seed, video_width=16, text_width=12))
    return Store.open(folder)


def tiny_settings(name: str = "tvr", **changes: Any) -> HolmesConfig:
    return with_changes(preset(name), TINY | changes)


def set_options(**changes: Any) -> list[str]:
    """The same settings on a command line."""
    return [text for name, value in (TINY | changes).items() for text in ("--set", f"{name}={value}")]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def logged(run: Path) -> list[dict[str, Any]]:
    """What the logbook says of each epoch, all but the time it took."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    timed = ("speed", "checksum")
    return [{key: value for key, value in json.loads(line).items() if key not in timed} for line in lines]


# Importing torch takes longer than a tiny run. This process has done it and forks `holmes` after `holmes`.
FORKER = """
import json, os, resource, signal, sys
import holmes.cli.main, holmes.training.experiments, holmes.evaluation.tables
from holmes.training.run import Run

def kill_at(epoch, when):
    # Before or after it writes what an epoch has given.
    write_down = Run.write_down
    def killed(run, entry, logbook):
        if (entry["epoch"], when) != (epoch, "before"):
            write_down(run, entry, logbook)
        if entry["epoch"] == epoch:
            os.kill(os.getpid(), signal.SIGKILL)
    Run.write_down = killed

for line in sys.stdin:
    order = json.loads(line)
    child = os.fork()
    if child:
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
        continue
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(log, stream)
    if order["largest_file"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["largest_file"],) * 2)
    if order["killed"]:
        kill_at(*order["killed"])
    sys.argv = ["holmes", *order["arguments"]]
    code = 1
    try:
        holmes.cli.main.main()
    except SystemExit as end:
        code = end.code or 0
    except BaseException as error:
        print("crashed:", repr(error), flush=True)
    sys.stdout.flush()
    os._exit(code)
"""


@dataclass
class Child:
    """A `holmes` command under way."""

    pid: int
    forker: subprocess.Popen[str]
    log: Path

    def kill(self) -> int:
        os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def wait(self) -> int:
        """The exit code; negative for the signal that ended it."""
        assert self.forker.stdout is not None
        return int(self.forker.stdout.readline())

    @property
    def said(self) -> str:
        return self.log.read_text()


class Launcher:
    """Starts commands in processes of their own; one at a time."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log.txt"
        single = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
        self.forker = subprocess.Popen(
            [sys.executable, "-c", FORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | single,
        )

    def start(self, *arguments: str, largest_file: int = 0, killed: tuple[int, str] | None = None) -> Child:
        assert self.forker.stdin is not None and self.forker.stdout is not None
        order: dict[str, Any] = {"arguments": arguments, "log": str(self.log), "largest_file": largest_file}
        order["killed"] = killed
        self.forker.stdin.write(json.dumps(order) + "\n")
        self.forker.stdin.flush()
        return Child(int(self.forker.stdout.readline()), self.forker, self.log)

    def run(
        self, *arguments: str, largest_file: int = 0, killed: tuple[int, str] | None = None
    ) -> tuple[int, str]:
        """Exit code and what was printed; `killed` is an epoch, and "before" or "after" it is written."""
        child = self.start(*arguments, largest_file=largest_file, killed=killed)
        return child.wait(), child.said

    def __enter__(self) -> Launcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self.forker.stdin is not None
        self.forker.stdin.close()
        self.forker.wait(timeout=60)
