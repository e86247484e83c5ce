"""Receive uploads in pieces, check their hash, and add them to the index.

    announce ─ pieces ─ hash ─ FOLDER/name ─ job that adds it to the index

Announcing the same file again continues it, after a restart of either side too (`upload_folder.py`).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from holmes.base.printing import shown
from holmes.errors import HolmesError
from holmes.serve.catalogue import NotFoundError
from holmes.serve.jobs import Job, Jobs
from holmes.serve.settings import ServeSettings
from holmes.serve.state import ServerState
from holmes.serve.turns import BusyError
from holmes.serve.upload_folder import Announced, NoSpaceError, UploadFolder, safe_name

log = logging.getLogger("holmes.serve")
Result = TypeVar("Result")
BUFFER = 1 << 20  # bytes gathered before they are written
POLL_SECONDS = 0.2  # between two checks of the job
SWEEP_AGAIN = 60.0  # seconds between two searches for abandoned files
REMEMBERED = 10_000  # finished files whose outcome can be asked for
TRIES, TRY_AGAIN = 3, 10.0  # of a job that failed as a whole, such as by another writer's lock, and seconds


class NotNextError(HolmesError):
    """A piece that does not begin where the last one ended; the client asks where to continue."""


class TooLargeError(HolmesError):
    """More bytes than the server takes."""


@dataclass(eq=False)
class Upload:
    """One file, from its announcement until it is in the index, or is known not to go there."""

    told: Announced
    client: str
    offset: int = 0  # bytes received
    state: str = "sending"  # then waiting, adding; at last added, there, same or skipped
    file: Path | None = None  # where it lies when it is whole
    same_as: str | None = None
    reason: str | None = None
    tries: int = 0
    touched: float = field(default_factory=time.time)
    hash: Any = field(default_factory=hashlib.sha256)  # of `offset` bytes; None after a restart
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def is_over(self) -> bool:
        return self.state in ("added", "there", "same", "skipped")

    def to_json(self, folder: Path) -> dict[str, Any]:
        name = str(self.file.relative_to(folder)) if self.file else self.told.name
        return {
            "id": self.told.id,
            "name": name,
            "size": self.told.size,
            "offset": self.offset,
            "state": self.state,
            "same_as": self.same_as,
            "reason": self.reason,
        }


class Uploads:
    """The files that one server receives; opened when it starts, closed when it ends."""

    def __init__(self, settings: ServeSettings, state: ServerState, jobs: Jobs) -> None:
        assert settings.uploads is not None
        self.limits, self.state, self.jobs = settings.limits, state, jobs
        self.folder = settings.uploads.absolute()
        self.disk = UploadFolder(self.folder, settings.limits.spare)
        self.uploads: dict[str, Upload] = {}
        self._receiving: list[str] = []  # clients that are sending a piece now
        # One thread writes pieces, another hashes whole files; both give way to searches.
        self._writing, self._threads = (
            ThreadPoolExecutor(1, thread_name_prefix=name, initializer=give_way)
            for name in ("upload pieces", "uploads")
        )
        self._next_piece = 0.0  # when more bytes may be taken
        self._naming = asyncio.Lock()  # one file is announced or finished at a time
        self._job: tuple[Job, list[Upload]] | None = None
        self._next_try, self._next_sweep = 0.0, 0.0

    async def __aenter__(self) -> Uploads:
        await self._run(self._open)
        self._task = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._writing.shutdown(wait=True)
        self._threads.shutdown(wait=True)
        self.disk.close()

    def __getitem__(self, id: str) -> Upload:
        try:
            return self.uploads[id]
        except KeyError:
            raise NotFoundError("there is no such upload; announce the file again.") from None

    def to_json(self) -> dict[str, Any]:
        return {
            "uploads": [self.told(upload) for upload in self.uploads.values()],
            "largest": self.limits.upload,
            "piece": self.limits.piece,
            "free": max(0, self.disk.free()),
            "seconds_left": self._job[0].state.seconds_left if self._job else None,
        }

    def told(self, upload: Upload) -> dict[str, Any]:
        found = upload.file is not None and str(upload.file) in self.state.catalogue.by_name
        return {**upload.to_json(self.folder), "found": found}

    async def announce(self, name: str, size: int, sha256: str, client: str) -> Upload:
        """A new upload, or the one that this continues."""
        told = Announced(safe_name(name), size, sha256)
        if size > self.limits.upload:
            raise TooLargeError(f"{shown(name)} has {size:,} bytes; {self.limits.upload:,} are allowed.")
        async with self._naming:
            known = self.uploads.get(told.id)
            if known and (not known.is_over or self._is_held(known)):
                return known
            present = await self._run(self.disk.present, told)
            if present is not None:
                return self._wait_for_job(Upload(told, client, told.size), present)
            self._refuse_more(told, client)
            upload = Upload(told, client)
            await self._run(self.disk.create, told)
            self.uploads[told.id] = upload
            return upload

    def _is_held(self, upload: Upload) -> bool:
        """Whether a file that was sent is in the index and still there, so that nothing is to be done."""
        found = upload.state in ("added", "there") and upload.file is not None and upload.file.exists()
        return found and str(upload.file) in self.state.catalogue.by_name

    async def receive(
        self, id: str, offset: int, length: int | None, pieces: AsyncIterator[bytes], client: str
    ) -> Upload:
        """Take one piece. Whatever of it arrives is kept, also if the connection is lost in the middle."""
        upload = self[id]
        if upload.state != "sending":
            return upload
        if upload.busy.locked():
            raise NotNextError("another piece of this file is arriving; wait, then ask how far it is.")
        with self._admitted(client):
            async with upload.busy:
                if offset != upload.offset:
                    raise NotNextError(f"the next piece begins at byte {upload.offset}, not {offset}.")
                most = min(self.limits.piece, upload.told.size - offset)
                if length is not None and length > most:
                    raise self._too_much(upload, length)
                try:
                    await self._take(upload, pieces, most)
                finally:
                    upload.touched = time.time()
                if upload.offset == upload.told.size:
                    await self._finish(upload)
        return upload

    async def cancel(self, id: str) -> Upload:
        """Forget an unfinished file; a finished one stays."""
        upload = self[id]
        async with upload.busy:
            # Its last piece may have arrived meanwhile, or it was dropped and announced again.
            if upload.state == "sending" and self.uploads.get(id) is upload:
                await self._run(self._forget, upload)
        return upload

    async def _take(self, upload: Upload, pieces: AsyncIterator[bytes], most: int) -> None:
        if upload.hash is None:
            upload.hash = await self._run(self.disk.hash_part, upload.told)
        buffer, taken = bytearray(), 0
        try:
            async for piece in pieces:
                taken += len(piece)
                if taken > most:
                    raise self._too_much(upload, taken)
                buffer += piece
                if len(buffer) >= BUFFER:
                    data, buffer = bytes(buffer), bytearray()
                    await self._run_in(self._writing, self._write, upload, data)
                    await self._throttle(len(data))
        finally:
            if buffer and taken <= most:
                await asyncio.shield(self._run_in(self._writing, self._write, upload, bytes(buffer)))
        await self._throttle(len(buffer))

    async def _throttle(self, count: int) -> None:
        """Wait until all uploads together are within their rate."""
        now = time.monotonic()
        self._next_piece = max(self._next_piece, now) + count / self.limits.upload_rate
        await asyncio.sleep(self._next_piece - now)

    def _too_much(self, upload: Upload, length: int) -> HolmesError:
        left = upload.told.size - upload.offset
        if length > left:
            return TooLargeError(
                f"{length:,} bytes are more than the {left:,} left of the {upload.told.size:,} announced."
            )
        return TooLargeError(f"a piece may have {self.limits.piece:,} bytes at most, not {length:,}.")

    def _refuse_more(self, told: Announced, client: str) -> None:
        """Refuse a file for which there is no space, counting what others have announced."""
        open_ones = [upload for upload in self.uploads.values() if upload.state == "sending"]
        own = sum(upload.client == client for upload in open_ones)
        if own >= self.limits.unfinished_per_address or len(open_ones) >= self.limits.unfinished:
            raise BusyError("too many files are unfinished; finish or cancel some first.")
        expected = sum(upload.told.size - upload.offset for upload in open_ones)
        space = self.disk.free() - expected
        if told.size > space:
            raise NoSpaceError(
                f"{shown(told.name)} has {told.size:,} bytes; the folder for uploads has space for "
                f"{max(0, space):,}. Free some space, then send it again."
            )

    @contextmanager
    def _admitted(self, client: str) -> Iterator[None]:
        limits = self.limits
        if (
            len(self._receiving) >= limits.receiving
            or self._receiving.count(client) >= limits.receiving_per_address
        ):
            raise BusyError("too many files are arriving at once; send fewer at a time.")
        self._receiving.append(client)
        try:
            yield
        finally:
            self._receiving.remove(client)

    async def _finish(self, upload: Upload) -> None:
        """Compare the hash, and give the file its name."""
        async with self._naming:
            digest = upload.hash or await self._run(self.disk.hash_part, upload.told)
            if digest.hexdigest() != upload.told.sha256:
                await self._run(self._forget, upload)
                self.state.rates.spend(upload.client, self.limits.burst)  # all of it was received for nothing
                raise HolmesError(
                    f"what arrived of {shown(upload.told.name)} is not the file that was announced (its "
                    "SHA-256 differs); it was dropped. Send it again."
                )
            self._wait_for_job(upload, await self._run(self.disk.finish, upload.told))

    def _wait_for_job(self, upload: Upload, file: Path) -> Upload:
        upload.file, upload.state, upload.hash = file, "waiting", None
        self.uploads.pop(upload.told.id, None)
        self.uploads[upload.told.id] = upload  # the newest last
        over = [id for id, each in self.uploads.items() if each.is_over]
        for id in over[: max(0, len(self.uploads) - REMEMBERED)]:
            del self.uploads[id]
        return upload

    # In a thread: what touches the disk.

    async def _run(self, work: Callable[..., Result], *arguments: Any) -> Result:
        return await self._run_in(self._threads, work, *arguments)

    async def _run_in(self, threads: Executor, work: Callable[..., Result], *arguments: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(threads, work, *arguments)

    def _open(self) -> None:
        """Take up what an earlier server left unfinished."""
        self.disk.open()
        for told, unfinished in self.disk.announced():
            upload = Upload(told, "", hash=None)
            if isinstance(unfinished, Path):  # it was whole, and not yet in the index
                upload.offset = told.size
                self._wait_for_job(upload, unfinished)
            else:
                upload.offset, upload.touched = unfinished.st_size, unfinished.st_mtime
                self.uploads[told.id] = upload

    def _write(self, upload: Upload, data: bytes) -> None:
        def wrote(some: memoryview) -> None:
            upload.hash.update(some)
            upload.offset += len(some)

        self.disk.append(upload.told, data, wrote)

    def _forget(self, upload: Upload) -> None:
        self.uploads.pop(upload.told.id, None)
        self.disk.forget(upload.told)

    # Adding to the index.

    async def _follow(self) -> None:
        while True:
            try:
                if time.monotonic() >= self._next_sweep:
                    self._next_sweep = time.monotonic() + SWEEP_AGAIN
                    await self.sweep()
                await self._add()
            except (HolmesError, OSError) as error:
                log.warning("uploads: %s", error)
                self._next_try = time.monotonic() + TRY_AGAIN
            await asyncio.sleep(POLL_SECONDS)

    async def sweep(self) -> None:
        """Drop what was announced or begun, and then abandoned."""
        now = time.time()
        for upload in [each for each in self.uploads.values() if each.state == "sending"]:
            patience = self.limits.unfinished_seconds if upload.offset else self.limits.announced_seconds
            if now - upload.touched > patience and not upload.busy.locked():
                async with upload.busy:
                    await self._run(self._forget, upload)

    async def _add(self) -> None:
        """Start a job with every file that waits, or see what became of the one that runs."""
        if self._job is not None:
            job, uploads = self._job
            if job.state.state == "running":
                return
            self._job = None
            await self.state.reload_if_changed()
            if job.state.state == "done":
                for upload in uploads:
                    await self._run(self._conclude, upload, job)
            else:
                self._next_try = time.monotonic() + TRY_AGAIN
                for upload in uploads:
                    upload.tries += 1
                    upload.state, upload.reason = "waiting", job.state.message
                    if upload.tries >= TRIES:
                        upload.state = "skipped"
        waiting = [upload for upload in self.uploads.values() if upload.state == "waiting"]
        if waiting and self.jobs.current.state != "running" and time.monotonic() >= self._next_try:
            path = self.state.changeable_path()
            job = self.jobs.start(path, [str(upload.file) for upload in waiting])
            for upload in waiting:
                upload.state = "adding"
                upload.reason = "there" if str(upload.file) in self.state.catalogue.by_name else None
            self._job = job, waiting

    def _conclude(self, upload: Upload, job: Job) -> None:
        path, was_there = str(upload.file), upload.reason == "there"
        failed = {each.name: each.reason for each in job.state.failures}
        same = {each.name: each.same_as for each in job.state.copies}
        upload.reason, upload.same_as = failed.get(path), same.get(path)
        upload.state = "there" if was_there else "added"
        if path in same:
            upload.state = "same"
        elif path in failed:
            upload.state = "skipped"
        self.disk.forget(upload.told)


def give_way() -> None:
    """Let other threads of this process run first."""
    with suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
