"""Add and remove videos on request, one change at a time.

Videos are added in a child process, which keeps the server quick and ends when the server does.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from holmes.base.processes import Child, Message, Parent, Worker
from holmes.base.progress import reported_to
from holmes.errors import HolmesError
from holmes.heard.hearing import Hearing
from holmes.index.embedders.loading import recorded_embedder
from holmes.index.ingest.builder import BuildSummary, add_videos
from holmes.index.ingest.hearing import hear_index
from holmes.index.ingest.sync import sync_index
from holmes.index.storage.manifest import read_manifest
from holmes.index.storage.writer import IndexWriter
from holmes.media.extraction import Failure
from holmes.media.find import SUFFIXES
from holmes.serve import models
from holmes.serve.settings import ServeSettings

TARGET = "holmes.serve.jobs:start"
VAGUE = 2.0  # seconds of work after which it can be said how long the rest takes
COMPLETED = 50  # paths that are offered


class NotAllowedError(HolmesError):
    """The server was not told to allow this."""


class Job:
    """Videos that are being added: a process of its own, and how far it is."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.state = models.Job(state="running", what="starting", words="starting")
        self._began = time.monotonic()
        self.child = Child(TARGET, self._hear)
        self.child.send(order)

    def _hear(self, child: Worker, message: Message) -> None:
        """Called in the child's own thread."""
        if self.state.state != "running":
            return
        if message.kind == "report":
            _, done, total = message.value
            if share_of(done, total) < share_of(self.state.done, self.state.total):
                self._began = time.monotonic()  # of the next step: videos are seen, then heard
        self.state = after_message(self.state, message, time.monotonic() - self._began)
        if self.state.state != "running":
            child.stop()


class Jobs:
    """What is being added now, or was last."""

    def __init__(self, settings: ServeSettings, model: str | None = None) -> None:
        self.settings, self.model = settings, model
        self._jobs: list[Job] = []  # those whose process may still be there, and the last
        self._removing = asyncio.Lock()

    @property
    def current(self) -> models.Job:
        return self._jobs[-1].state if self._jobs else models.Job()

    def to_json(self) -> dict[str, Any]:
        return self.current.model_dump()

    def allow(self) -> None:
        if not self.settings.manage:
            raise NotAllowedError(
                "this server is only for searching; start it with --manage to add and remove videos."
            )

    def add(self, index: Path, paths: Iterable[str], known: Iterable[str], **how: Any) -> None:
        """Start adding files and folders; `known` are the folders the index holds videos of."""
        allowed = self._allowed(known)
        self.start(index, [check_path(path, allowed) for path in paths], **how)

    def start(self, index: Path, paths: list[str], **how: Any) -> Job:
        """Start adding files and folders that have been checked; see `add_to_index` for other work."""
        if self.current.state == "running":
            raise HolmesError("videos are already being added; wait until that is done.")
        job = Job({"index": str(index), "model": self.model, "paths": paths, **how})
        self._jobs = [*(job for job in self._jobs if job.child.alive), job]
        return job

    def complete(self, prefix: str, known: Iterable[str]) -> list[str]:
        """How a path may go on."""
        return completions(prefix, self._allowed(known))

    def _allowed(self, known: Iterable[str]) -> list[str]:
        return [os.path.realpath(str(folder)) for folder in (*self.settings.add_from, *known)]

    async def remove(self, index: Path, name: str) -> None:
        async with self._removing:
            await asyncio.to_thread(remove_video, index, name)

    async def close(self) -> None:
        """Stop what is running: what has been added stays, the rest can be added again."""
        for job in self._jobs:
            await asyncio.to_thread(job.child.stop)


def after_message(current: models.Job, message: Message, seconds: float = 0.0) -> models.Job:
    """The state of a job after a message of its process, so many seconds after its step began."""
    news = message.value
    if message.kind == "report":
        what, done, total = news
        left = seconds_left(seconds, share_of(done, total))
        videos = f"{done} of {total} videos" if what == "embedding videos" else what
        words = ", ".join(filter(None, (videos, in_words(left))))
        now = {"what": what, "done": done, "total": total, "words": words, "seconds_left": left}
        return current.model_copy(update=now)
    if message.kind == "failure":
        return current.model_copy(update={"state": "failed", "message": news})
    if message.kind == "ended":
        again = f"adding stopped before its end ({news}); add the videos again."
        return current.model_copy(update={"state": "failed", "message": again})
    return models.Job(**{**current.model_dump(), **news, "state": "done", "message": summary_of(news)})


def summary_of(news: dict[str, Any]) -> str:
    """What became of every file, in numbers that add up."""
    if "heard" in news:
        counts = f"{news['heard']} heard, {news['unchanged']} heard before, {len(news['failures'])} left out"
        return f"{counts}; {news['passages']} new passages"
    skipped, copies, moved = len(news["failures"]), len(news["copies"]), news["moved"]
    files = news["added"] + news["unchanged"] + moved + copies + skipped
    parts = [f"{news['added']} added", f"{news['unchanged']} already there"]
    parts += [f"{moved} moved"] if moved else []
    parts += [f"{len(news['removed'])} removed"] if news.get("removed") else []
    parts += [f"{copies} {'copy' if copies == 1 else 'copies'}"] if copies else []
    return f"{files} {'file' if files == 1 else 'files'} gave {', '.join(parts)}, {skipped} left out"


def share_of(done: int, total: int) -> float:
    return done / total if total else 0.0


def seconds_left(seconds: float, share: float) -> float | None:
    """How long the rest takes, from how long a share of the work took; None at first."""
    return seconds / share - seconds if seconds >= VAGUE and 0 < share < 1 else None


def in_words(left: float | None) -> str:
    """Such as "about 3 minutes left"."""
    if left is None:
        return ""
    for size, unit in ((3600, "hour"), (60, "minute"), (10, "second")):
        if left >= size:
            number = round(left / size) * (10 if unit == "second" else 1)
            return f"about {number} {unit}{'s' if number != 1 else ''} left"
    return "a few seconds left"


def start(parent: Parent) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """In the child process: what does one job."""

    def add(order: dict[str, Any]) -> dict[str, Any]:
        with reported_to(lambda what, done, total: parent.report([what, done, total])):
            return add_to_index(**order)

    return add


def add_to_index(
    index: str, model: str | None, paths: list[str], follow: bool = False, hear: bool = False, **how: Any
) -> dict[str, Any]:
    """Add videos, make the index match folders (`follow`) or add the words of its videos (`hear`)."""
    summary: BuildSummary
    try:
        if hear:
            words = hear_index(index, progress=True, **how)
            return {
                "heard": words.heard,
                "unchanged": words.unchanged,
                "passages": words.passages,
                "failures": reasons(words.failures),
                "notes": reasons(words.notes),
            }
        embedder = recorded_embedder(read_manifest(Path(index)).model, model)
        how["hearing"] = Hearing.default()
        if follow:
            summary = sync_index(index, paths, model=embedder, progress=True, **how)
        else:
            summary = add_videos(index, paths, embedder, progress=True, **how)
    except OSError as error:
        raise HolmesError(str(error)) from None
    same = [{"name": str(each.source), "same_as": str(each.same_as)} for each in summary.duplicates]
    return {
        "added": summary.added,
        "unchanged": summary.unchanged,
        "moved": len(summary.moved),
        "failures": reasons(summary.failures),
        "copies": same,
        "moves": [{"id": e.id, "before": str(e.before), "now": str(e.now)} for e in summary.moved],
        "removed": list(getattr(summary, "removed", ())),
        "away": list(getattr(summary, "away", ())),
    }


def reasons(failures: Iterable[Failure]) -> list[dict[str, str]]:
    return [{"name": str(each.source), "reason": each.reason} for each in failures]


def remove_video(index: Path, name: str) -> None:
    with IndexWriter(index) as writer:
        writer.remove([name])


def check_path(path: str, allowed: Iterable[str]) -> str:
    """An absolute path that really lies in a folder from which videos may be added."""
    if "\0" in path or not os.path.isabs(path):
        raise NotAllowedError("write the full path of a file or folder, beginning with /.")
    real = os.path.realpath(path)
    if not os.path.exists(real):
        raise HolmesError(f"there is no such file or folder: {path}.")
    if not is_within(real, allowed):
        raise NotAllowedError(
            "that is outside the folders of this index; start the server with --add-from FOLDER."
        )
    return path


def is_within(real: str, folders: Iterable[str]) -> bool:
    return any(real == folder or real.startswith(folder.rstrip("/") + "/") for folder in folders)


def completions(prefix: str, allowed: Sequence[str]) -> list[str]:
    """The folders (with a / at the end) and videos that may be added and whose paths begin with `prefix`."""
    if not prefix or "\0" in prefix:
        return sorted(folder.rstrip("/") + "/" for folder in allowed)[:COMPLETED]
    parent, begin = os.path.split(prefix)
    above = [folder.rstrip("/") + "/" for folder in allowed if folder.startswith(prefix)]
    if not os.path.isabs(prefix) or not is_within(os.path.realpath(parent), allowed):
        return sorted(above)[:COMPLETED]
    found = []
    try:
        with os.scandir(parent) as entries:
            for entry in entries:
                if not entry.name.startswith(begin) or (entry.name.startswith(".") and not begin):
                    continue
                if not is_within(os.path.realpath(entry.path), allowed):
                    continue
                if entry.is_dir():
                    found.append(entry.path + "/")
                elif entry.name.lower().endswith(SUFFIXES):
                    found.append(entry.path)
    except OSError:
        return []
    return sorted(found)[:COMPLETED]
