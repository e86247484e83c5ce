"""Adding and removing videos for those who may manage the index; one change at a time."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from holmes.errors import HolmesError
from holmes.index.storage.writer import IndexWriter
from holmes.serve.settings import ServeSettings

LONGEST_LINE = 16 * 2**20  # bytes of a line from the process
COMMAND = (sys.executable, "-m", "holmes.serve.adding")
PATIENCE = 5.0  # seconds a process has to end when told to


class NotAllowedError(HolmesError):
    """The server was not told to allow this."""


@dataclass(frozen=True)
class JobState:
    state: str = "idle"  # idle, running, done, failed
    what: str = ""
    done: int = 0
    total: int = 0
    added: int = 0
    unchanged: int = 0
    message: str = ""
    failures: list[dict[str, str]] = field(default_factory=list)


class Jobs:
    """What is being added now, or was last."""

    def __init__(self, settings: ServeSettings, model: str | None = None) -> None:
        self.settings, self.model = settings, model
        self.current = JobState()
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self.current)

    def allow(self) -> None:
        if not self.settings.manage:
            raise NotAllowedError(
                "this server is only for searching; start it with --manage to add and remove videos."
            )

    async def add(self, index: Path, paths: Iterable[str], known: Iterable[str]) -> None:
        """Start adding files and folders; `known` are the folders the index holds videos of."""
        self.allow()
        if self.current.state == "running":
            raise HolmesError("videos are already being added; wait until that is done.")
        allowed = [os.path.realpath(str(folder)) for folder in (*self.settings.add_from, *known)]
        checked = [check_path(path, allowed) for path in paths]
        self.current = JobState("running", "starting")
        order = {"index": str(index), "model": self.model, "paths": checked}
        self._process = await asyncio.create_subprocess_exec(
            *COMMAND,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=LONGEST_LINE,
        )
        self._task = asyncio.create_task(self._follow(self._process, json.dumps(order)))

    def remove(self, index: Path, name: str) -> None:
        self.allow()
        with IndexWriter(index) as writer:
            writer.remove([name])

    async def close(self) -> None:
        """Stop what is running: what has been added stays, the rest can be added again."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), PATIENCE)
            except TimeoutError:
                self._process.kill()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _follow(self, process: asyncio.subprocess.Process, order: str) -> None:
        assert process.stdin and process.stdout
        process.stdin.write(order.encode() + b"\n")
        with suppress(ConnectionError):
            await process.stdin.drain()
        while line := await process.stdout.readline():
            with suppress(ValueError):
                self.current = told(self.current, json.loads(line))
        await process.wait()
        if self.current.state == "running":
            self.current = replace(
                self.current, state="failed", message="the process ended unexpectedly; add the videos again."
            )


def told(current: JobState, news: dict[str, Any]) -> JobState:
    if "failed" in news:
        return replace(current, state="failed", message=news["failed"])
    if "added" in news:
        failures = news["failures"]
        message = f"{news['added']} added, {news['unchanged']} already there, {len(failures)} left out"
        return replace(
            current,
            state="done",
            added=news["added"],
            unchanged=news["unchanged"],
            message=message,
            failures=failures,
        )
    return replace(current, what=news["what"], done=news["done"], total=news["total"])


def check_path(path: str, allowed: Iterable[str]) -> str:
    """An absolute path that really lies in a folder from which videos may be added."""
    if "\0" in path or not os.path.isabs(path):
        raise NotAllowedError("write the full path of a file or folder, beginning with /.")
    real = os.path.realpath(path)
    if not any(real == folder or real.startswith(folder.rstrip("/") + "/") for folder in allowed):
        raise NotAllowedError(
            "that is outside the folders of this index; start the server with --add-from FOLDER."
        )
    if not os.path.exists(real):
        raise HolmesError("there is no such file or folder.")
    return path
