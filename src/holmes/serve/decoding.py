"""Decode pictures and convert videos in child processes, so hostile files cannot harm the server.

Clients take turns; a few pictures are decoded at a time. A conversion has a process to itself.
"""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

from holmes.base.processes import ONE_THREAD, Child, Message, Worker
from holmes.errors import HolmesError
from holmes.media.backbones.base import Image
from holmes.media.cutting import FilmClip
from holmes.media.picture_file import picture_of
from holmes.media.playable import Plan
from holmes.media.source_frames import SourceMedia
from holmes.serve.settings import Limits
from holmes.serve.turns import BusyError, Caller, Turns

TARGET = "holmes.serve.decode_worker:start"
AT_ONCE = 2  # pictures decoded at the same time, and idle processes kept
PIECES = 2  # of a conversion that wait to be sent


class DecodeError(HolmesError):
    """A video could not be decoded."""


class Decoders:
    """The worker processes of one server."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._turns: Turns[tuple[dict[str, Any], asyncio.Future[Any]]] = Turns(limits.decoding)
        self._idle: list[_Worker] = []
        self.workers: set[_Worker] = set()
        self._busy: set[asyncio.Task[None]] = set()
        self._closed = False

    async def picture(self, path: Path, time: float, width: int, caller: Caller) -> bytes:
        """A JPEG of what is seen at `time`, at most so wide."""
        job = {"task": "picture", "path": str(path), "time": time, "width": width}
        return base64.b64decode(await self._wait(job, caller))

    async def upload(self, content: str, caller: Caller) -> Image:
        """A picture that a client has sent, from the content of its file in base64."""
        return picture_of(await self._wait({"task": "upload", "path": "", "content": content}, caller))

    async def plan(self, path: Path, start: float, caller: Caller) -> Plan:
        """How the video would be converted from `start` on."""
        copied, at = await self._wait({"task": "plan", "path": str(path), "start": start}, caller)
        return Plan(bool(copied), float(at))

    async def frames(self, path: Path, moments: Sequence[tuple[float, float]], caller: Caller) -> SourceMedia:
        """The film's rate, length and sound, and the frames of these moments."""
        job = {"task": "frames", "path": str(path), "moments": [list(moment) for moment in moments]}
        return SourceMedia.from_dict(await self._wait(job, caller))

    def convert(self, path: Path, plan: Plan) -> AsyncGenerator[bytes]:
        """The video as fragmented MP4, piece by piece; closing the iterator ends the process."""
        job = {"task": "convert", "path": str(path), "copied": plan.copied, "start": plan.start}
        return self._pieces(job)

    def cut(
        self, clips: Sequence[FilmClip], *, exact: bool = False, reel: bool = False
    ) -> AsyncGenerator[bytes]:
        """A clip, or a reel of several, as fragmented MP4, piece by piece."""
        chosen = [[str(clip.path), clip.start, clip.end, list(clip.title)] for clip in clips]
        job = {"task": "cut", "path": chosen[0][0], "clips": chosen, "exact": exact, "reel": reel}
        return self._pieces(job)

    async def _pieces(self, job: dict[str, Any]) -> AsyncGenerator[bytes]:
        worker = self._acquire()
        try:
            worker.send(job)
            while (message := await worker.message(self.limits.decode_seconds)).kind == "report":
                yield base64.b64decode(message.value)
        finally:
            await self._release(worker)

    async def close(self) -> None:
        """End all processes."""
        self._closed = True
        while self._turns:
            for _, future in self._turns.take():
                future.cancel()
        for worker in list(self.workers):
            await worker.stop()
        await asyncio.gather(*self._busy, return_exceptions=True)

    async def _wait(self, job: dict[str, Any], caller: Caller) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        dropped = self._turns.put(caller, (job, future), 1.0)
        if dropped is not None and not dropped[1].done():
            dropped[1].set_exception(BusyError("too many pictures are waiting; try again in a moment."))
        if len(self._busy) < AT_ONCE:
            running = asyncio.create_task(self._decode())
            self._busy.add(running)
            running.add_done_callback(self._busy.discard)
        return await future

    async def _decode(self) -> None:
        """Decode what waits, one after the other, until nothing does."""
        while self._turns and not self._closed:
            ((job, future),) = self._turns.take()
            if future.done():  # its client may be gone
                continue
            worker = self._acquire()
            try:
                worker.send(job)
                result = (await worker.message(self.limits.decode_seconds)).value
            except HolmesError as error:
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)
            finally:
                await self._release(worker)

    def _acquire(self) -> _Worker:
        alive = [worker for worker in self._idle if worker.child.alive]
        self._idle = alive[1:]
        self.workers &= {*alive, *(worker for worker in self.workers if worker.busy)}
        worker = alive[0] if alive else _Worker()
        self.workers.add(worker)
        return worker

    async def _release(self, worker: _Worker) -> None:
        if not worker.busy and worker.child.alive and len(self._idle) < AT_ONCE and not self._closed:
            self._idle.append(worker)
        else:
            self.workers.discard(worker)
            await worker.stop()


class _Worker:
    """One process, and whether it has a job."""

    def __init__(self) -> None:
        self.busy = False
        self._loop = asyncio.get_running_loop()
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self._unsent = threading.Semaphore(PIECES)  # so a process is as quick as the client that reads
        self._stopped = False
        self.child = Child(TARGET, self._hear, environment=ONE_THREAD)

    def send(self, job: dict[str, Any]) -> None:
        self.busy = True
        self.child.send(job)

    async def message(self, seconds: float) -> Message:
        """The next report, or the result; a failure is raised."""
        try:
            message = await asyncio.wait_for(self._messages.get(), seconds)
        except TimeoutError:
            await self.stop()
            raise DecodeError(f"the video could not be decoded within {seconds:g} seconds.") from None
        self._unsent.release()
        if message.kind == "report":
            return message
        self.busy = message.kind == "ended"
        if message.kind == "result":
            return message
        reason = message.value if message.kind == "failure" else f"{message.value}."
        raise DecodeError(str(reason))

    async def stop(self) -> None:
        self._stopped = True
        self._unsent.release(PIECES)
        await asyncio.to_thread(self.child.stop)

    def _hear(self, child: Worker, message: Message) -> None:
        """Hand a message over to the loop; called in the child's own thread."""
        if not self._stopped:
            self._unsent.acquire()
        if not self._stopped or message.kind == "ended":  # what waits for a result must not wait longer
            self._loop.call_soon_threadsafe(self._messages.put_nowait, message)
