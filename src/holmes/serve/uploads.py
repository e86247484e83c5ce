"""Files that browsers and programs send: received in pieces, checked by hash, then added to the index.

    announce ─ pieces ─ hash ─ FOLDER/name ─ job that adds it to the index

Unfinished files lie in FOLDER/.holmes-uploads as ID.part, each with what was announced in ID.json. The id is
made from what was announced, so announcing the same file again continues it, after a restart of either side
too. A finished file appears under its name at once and whole, and never in the place of another.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import logging
import os
import re
import shutil
import threading
import time
import unicodedata
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock

from holmes.base.files import UMASK, inside, read_json, sha256_file, sync_folder, write_json
from holmes.base.locks import hold
from holmes.base.printing import JOINERS, shown
from holmes.base.validation import Sha256, Size, build
from holmes.errors import HolmesError
from holmes.media.find import SUFFIXES
from holmes.serve.catalogue import NotFoundError
from holmes.serve.jobs import Job, Jobs, NotAllowedError
from holmes.serve.settings import ServeSettings
from holmes.serve.state import BadRequestError, ServerState
from holmes.serve.turns import BusyError

log = logging.getLogger("holmes.serve")
Result = TypeVar("Result")
PARTS = ".holmes-uploads"
BUFFER = 1 << 20  # bytes gathered before they are written
DEEPEST = 8  # folders in a name
LONGEST_PART = 200  # bytes of a part of a name
LONGEST_NAME = 1000  # characters
RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)  # on Windows shares
NOT_EVERYWHERE = frozenset('<>:"|?*\\')  # in names on Windows shares and memory cards
NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL}
POLL_SECONDS = 0.2  # between two checks of the job
SWEEP_AGAIN = 60.0  # seconds between two searches for abandoned files
REMEMBERED = 10_000  # finished files whose outcome can be asked for
TRIES, TRY_AGAIN = 3, 10.0  # of a job that failed as a whole, such as by another writer's lock, and seconds


class NoSpaceError(HolmesError):
    """The disk is full, or would be."""


class NotNextError(HolmesError):
    """A piece that does not begin where the last one ended; the client asks where to continue."""


class TooLargeError(HolmesError):
    """More bytes than the server takes."""


@dataclass(frozen=True)
class Announced:
    """What a client says of a file before it sends it; `name` is safe already."""

    name: str
    size: Size
    sha256: Sha256

    @property
    def id(self) -> str:
        told = f"{self.size} {self.sha256} {self.name}".encode()
        return hashlib.sha256(told).hexdigest()[:32]


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
        self.parts = self.folder / PARTS
        self.uploads: dict[str, Upload] = {}
        self._receiving: list[str] = []  # clients that are sending a piece now
        # One thread writes pieces, another hashes whole files; both give way to searches.
        self._writing, self._threads = (
            ThreadPoolExecutor(1, thread_name_prefix=name, initializer=give_way)
            for name in ("upload pieces", "uploads")
        )
        self._next_piece = 0.0  # when more bytes may be taken
        self._naming = asyncio.Lock()  # one file is announced or finished at a time
        self._digests: dict[tuple[Path, int, int], str] = {}  # of files, by path, size and time of change
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
        self._lock.release()

    def __getitem__(self, id: str) -> Upload:
        try:
            return self.uploads[id]
        except KeyError:
            raise NotFoundError("there is no such upload; announce the file again.") from None

    def to_json(self) -> dict[str, Any]:
        return {
            "uploads": [upload.to_json(self.folder) for upload in self.uploads.values()],
            "largest": self.limits.upload,
            "piece": self.limits.piece,
            "free": max(0, self._free()),
        }

    async def announce(self, name: str, size: int, sha256: str, client: str) -> Upload:
        """A new upload, or the one that this continues."""
        told = Announced(safe_name(name), size, sha256)
        if size > self.limits.upload:
            raise TooLargeError(f"{shown(name)} has {size:,} bytes; {self.limits.upload:,} are allowed.")
        async with self._naming:
            known = self.uploads.get(told.id)
            if known and (not known.is_over or self._is_held(known)):
                return known
            present = await self._run(self._present, told)
            if present is not None:
                return self._wait_for_job(Upload(told, client, told.size), present)
            self._refuse_more(told, client)
            upload = Upload(told, client)
            await self._run(self._create, told)
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
            upload.hash = await self._run(self._hash_part, upload)
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
        space = self._free() - expected
        if told.size > space:
            raise NoSpaceError(
                f"{shown(told.name)} has {told.size:,} bytes; the folder for uploads has space for "
                f"{max(0, space):,}. Free some space, then send it again."
            )

    def _free(self) -> int:
        return shutil.disk_usage(self.folder).free - self.limits.spare

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
            digest = upload.hash or await self._run(self._hash_part, upload)
            if digest.hexdigest() != upload.told.sha256:
                await self._run(self._forget, upload)
                raise HolmesError(
                    f"what arrived of {shown(upload.told.name)} is not the file that was announced (its "
                    "SHA-256 differs); it was dropped. Send it again."
                )
            self._wait_for_job(upload, await self._run(self._name_file, upload.told))

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
        self._lock = lock_folder(self.folder)
        for path in sorted(self.parts.glob("*.json")):
            try:
                told: Announced = build(Announced, read_json(path))
                if path.stem != told.id or safe_name(told.name) != told.name:
                    raise HolmesError(f"{path} is not an announcement.")
                self._restore(told)
            except (HolmesError, OSError) as error:
                log.warning("an unfinished upload was dropped: %s", error)
                path.unlink(missing_ok=True)
                path.with_suffix(".part").unlink(missing_ok=True)

    def _restore(self, told: Announced) -> None:
        upload, part = Upload(told, "", hash=None), self._part(told)
        try:
            info = os.lstat(part)
        except FileNotFoundError:  # it was whole, and not yet in the index
            if (file := self._present(told)) is None:
                raise HolmesError(f"{shown(told.name)} is gone.") from None
            upload.offset = told.size
            self._wait_for_job(upload, file)
            return
        if info.st_size > told.size:
            raise HolmesError(f"{part} is longer than announced.")
        upload.offset, upload.touched = info.st_size, info.st_mtime
        if upload.offset == told.size:
            if self._hash_part(upload).hexdigest() != told.sha256:
                raise HolmesError(f"{part} is not what was announced.")
            self._wait_for_job(upload, self._name_file(told))
            return
        self.uploads[told.id] = upload

    def _part(self, told: Announced) -> Path:
        return self.parts / f"{told.id}.part"

    def _create(self, told: Announced) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with out_of_space(told.name):
            os.close(os.open(self._part(told), flags, 0o600))
            body = {"name": told.name, "size": told.size, "sha256": told.sha256}
            write_json(self._part(told).with_suffix(".json"), body)

    def _write(self, upload: Upload, data: bytes) -> None:
        with out_of_space(upload.told.name):
            if self._free() < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self._part(upload.told), flags)
            try:
                rest = memoryview(data)
                while rest:
                    written = os.write(descriptor, rest)
                    upload.hash.update(rest[:written])
                    upload.offset += written
                    rest = rest[written:]
            finally:
                os.close(descriptor)

    def _hash_part(self, upload: Upload) -> Any:
        with open(self._part(upload.told), "rb") as file:
            return hashlib.file_digest(file, "sha256")

    def _forget(self, upload: Upload) -> None:
        self.uploads.pop(upload.told.id, None)
        for suffix in (".part", ".json"):
            self._part(upload.told).with_suffix(suffix).unlink(missing_ok=True)

    def _present(self, told: Announced) -> Path | None:
        """The file, if it is there already under its name or a numbered one."""
        for path in numbered(inside(self.folder, *told.name.split("/"))):
            try:
                info = os.lstat(path)
            except OSError:
                return None
            if info.st_size != told.size:
                continue
            key = path, info.st_size, info.st_mtime_ns
            with suppress(OSError, HolmesError):  # a link, a folder, or a file of somebody else's
                if key not in self._digests:
                    self._digests[key] = sha256_file(path)
                if self._digests[key] == told.sha256:
                    return path
        return None

    def _name_file(self, told: Announced) -> Path:
        """Give a whole file its name, or the next numbered one that is free, and make that durable."""
        part = self._part(told)
        if (present := self._present(told)) is not None:
            part.unlink()
            return present
        wanted = inside(self.folder, *told.name.split("/"))
        with out_of_space(told.name):
            wanted.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
                os.fchmod(descriptor, 0o666 & ~UMASK)
            finally:
                os.close(descriptor)
            file = next(path for path in numbered(wanted) if take_name(part, path))
            sync_folder(file.parent)
        return file

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
        failed = {each["name"]: each["reason"] for each in job.state.failures}
        same = {each["name"]: each["same_as"] for each in job.state.copies}
        upload.reason, upload.same_as = failed.get(path), same.get(path)
        upload.state = "there" if was_there else "added"
        if path in same:
            upload.state = "same"
        elif path in failed:
            upload.state = "skipped"
        self._part(upload.told).with_suffix(".json").unlink(missing_ok=True)


def give_way() -> None:
    """Let other threads of this process run first."""
    with suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


def lock_folder(folder: Path) -> FileLock:
    """The lock on a folder for uploads, which is made if there is none."""
    try:
        (folder / PARTS).mkdir(parents=True, exist_ok=True)
        refusal = f"another server takes files into {folder}; name another folder with --uploads."
        return hold(folder / PARTS / "lock", refusal)
    except OSError as error:
        raise HolmesError(f"{folder} cannot be used for uploads ({error.strerror}).") from None


@contextmanager
def out_of_space(name: str) -> Iterator[None]:
    """A full disk, a quota or a limit of the file system as one line."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoSpaceError(
                f"the disk is full; free some space, then go on sending {shown(name)}."
            ) from None
        raise HolmesError(f"{shown(name)} cannot be stored ({error.strerror}).") from None


def take_name(part: Path, path: Path) -> bool:
    """Rename `part` to `path`; False if that name is taken."""
    try:
        os.link(part, path, follow_symlinks=False)
        part.unlink()
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        try:  # a file system without links: reserve the name first
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC))
        except FileExistsError:
            return False
        os.replace(part, path)
    return True


def numbered(path: Path) -> Iterator[Path]:
    """film.mp4, film (2).mp4, film (3).mp4 …"""
    yield path
    for number in count(2):
        yield path.with_name(f"{path.stem} ({number}){path.suffix}")


def safe_name(given: str) -> str:
    """A name for a file below a folder, of one part or more; what could lead out of it is refused."""
    parts = unicodedata.normalize("NFC", given[:LONGEST_NAME]).split("/")
    if len(given) > LONGEST_NAME or len(parts) > DEEPEST + 1:
        raise BadRequestError(
            f"the name {shown(given)} is too long; send the file with fewer folders around it."
        )
    if any(part.strip() in ("", ".", "..") for part in parts):
        raise BadRequestError(f"{shown(given)} is no name for a file; send the name alone, such as film.mp4.")
    name = "/".join(safe_part(part) for part in parts)
    if not name.lower().endswith(SUFFIXES):
        raise BadRequestError(
            f"{shown(given)} is not named like a video; its name must end in .mp4, .mkv, .mov, .webm or so."
        )
    return name


def safe_part(part: str) -> str:
    """One part of a name that every file system takes, and that hides and begins nothing."""
    text = "".join("_" if _is_odd(char) else char for char in part).strip().rstrip(".")
    text = re.sub(r"^[.]", "_", text) or "_"
    if RESERVED.fullmatch(text):
        text = f"_{text}"
    stem, suffix = os.path.splitext(text)
    if len(suffix.encode()) > 20:
        stem, suffix = text, ""
    short = stem.encode()[: LONGEST_PART - len(suffix.encode())].decode(errors="ignore")
    return short.rstrip(". ") + suffix


def _is_odd(char: str) -> bool:
    odd = unicodedata.category(char)[0] == "C" or unicodedata.category(char) in ("Zl", "Zp")
    return char in NOT_EVERYWHERE or (odd and char not in JOINERS)


def no_uploads() -> NotAllowedError:
    return NotAllowedError("this server takes no files; start it with --uploads FOLDER.")
