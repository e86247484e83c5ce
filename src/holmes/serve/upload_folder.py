"""The folder of uploads: safe names, unfinished files, and the final rename.

Unfinished files lie in FOLDER/.holmes-uploads as ID.part, each with what was announced in ID.json. The id is
made from what was announced, so announcing the same file again continues it. A finished file appears under
its name at once and whole, and never in the place of another.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import shutil
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from holmes.base.files import (
    UMASK,
    inside,
    numbered,
    read_json,
    sha256_file,
    sync_folder,
    take_free_name,
    write_json,
)
from holmes.base.locks import hold
from holmes.base.printing import JOINERS, shown
from holmes.base.validation import Sha256, Size, build
from holmes.errors import HolmesError
from holmes.media.find import SUFFIXES
from holmes.serve.state import BadRequestError

log = logging.getLogger("holmes.serve")
PARTS = ".holmes-uploads"
DEEPEST = 8  # folders in a name
LONGEST_PART = 200  # bytes of a part of a name
LONGEST_NAME = 1000  # characters
RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)  # on Windows shares
NOT_EVERYWHERE = frozenset('<>:"|?*\\')  # in names on Windows shares and memory cards


class NoSpaceError(HolmesError):
    """The disk is full, or would be."""


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


class UploadFolder:
    """One folder for uploads, which one server holds. `spare` bytes of its disk stay free."""

    def __init__(self, path: Path, spare: int) -> None:
        self.path, self.spare = path, spare
        self._digests: dict[tuple[Path, int, int], str] = {}  # of files, by path, size and time of change

    def open(self) -> None:
        self._lock = lock_folder(self.path)

    def close(self) -> None:
        self._lock.release()

    def free(self) -> int:
        return shutil.disk_usage(self.path).free - self.spare

    def announced(self) -> Iterator[tuple[Announced, Path | os.stat_result]]:
        """What an earlier server left: each with its file if it is whole, else with how far it is."""
        for path in sorted((self.path / PARTS).glob("*.json")):
            try:
                told: Announced = build(Announced, read_json(path))
                if path.stem != told.id or safe_name(told.name) != told.name:
                    raise HolmesError(f"{path} is not an announcement.")
                yield told, self._found(told)
            except (HolmesError, OSError) as error:
                log.warning("an unfinished upload was dropped: %s", error)
                path.unlink(missing_ok=True)
                path.with_suffix(".part").unlink(missing_ok=True)

    def _found(self, told: Announced) -> Path | os.stat_result:
        part = self._part(told)
        try:
            info = os.lstat(part)
        except FileNotFoundError:  # it was whole, and not yet in the index
            if (file := self.present(told)) is None:
                raise HolmesError(f"{shown(told.name)} is gone.") from None
            return file
        if info.st_size > told.size:
            raise HolmesError(f"{part} is longer than announced.")
        if info.st_size < told.size:
            return info
        if self.hash_part(told).hexdigest() != told.sha256:
            raise HolmesError(f"{part} is not what was announced.")
        return self.finish(told)

    def _part(self, told: Announced) -> Path:
        return self.path / PARTS / f"{told.id}.part"

    def create(self, told: Announced) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with out_of_space(told.name):
            os.close(os.open(self._part(told), flags, 0o600))
            write_json(self._part(told).with_suffix(".json"), asdict(told))

    def append(self, told: Announced, data: bytes, wrote: Callable[[memoryview], None]) -> None:
        """Write to the end of an unfinished file; `wrote` is given what was written, also before an error."""
        with out_of_space(told.name):
            if self.free() < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(self._part(told), flags)
            try:
                rest = memoryview(data)
                while rest:
                    written = os.write(descriptor, rest)
                    wrote(rest[:written])
                    rest = rest[written:]
            finally:
                os.close(descriptor)

    def hash_part(self, told: Announced) -> Any:
        with open(self._part(told), "rb") as file:
            return hashlib.file_digest(file, "sha256")

    def forget(self, told: Announced) -> None:
        """Drop an announcement, and what has arrived unless the file has its name."""
        for suffix in (".part", ".json"):
            self._part(told).with_suffix(suffix).unlink(missing_ok=True)

    def present(self, told: Announced) -> Path | None:
        """The file, if it is there already under its name or a numbered one."""
        for path in numbered(inside(self.path, *told.name.split("/"))):
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

    def finish(self, told: Announced) -> Path:
        """Give a whole file its name, or the next numbered one that is free, and make that durable."""
        part = self._part(told)
        if (present := self.present(told)) is not None:
            part.unlink()
            return present
        wanted = inside(self.path, *told.name.split("/"))
        with out_of_space(told.name):
            wanted.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
                os.fchmod(descriptor, 0o666 & ~UMASK)
            finally:
                os.close(descriptor)
            file = take_free_name(part, wanted)
            sync_folder(file.parent)
        return file


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
