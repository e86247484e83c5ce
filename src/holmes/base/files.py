"""Write files atomically (temporary file, fsync, rename), and read regular files only.

POSIX only: a rename is made durable by syncing its folder, and modes are set by number.
"""

from __future__ import annotations

import csv
import ctypes
import errno
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

from holmes.base.printing import shown
from holmes.errors import HolmesError

JSON_LINES = (".jsonl", ".ndjson", ".json")  # suffixes of files with one JSON object per line
LARGEST_JSON = 256 << 20  # bytes; the captions of a million videos fit
NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL}
UMASK = os.umask(0)
os.umask(UMASK)  # the mask can only be read by setting it


@contextmanager
def atomic_file(path: Path, still_wanted: Callable[[], None] = lambda: None) -> Iterator[BinaryIO]:
    """A binary file that appears under its name only when the block ends well.

    `still_wanted` is called last, when all is written and synced; it raises if the file must not appear.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), 0o666 & ~UMASK)  # mkstemp's mode 0600 would hide it from everyone else
        still_wanted()
        os.replace(temporary, path)
        sync_folder(path.parent)
    except BaseException as error:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # a full disk does not say which file
        raise


def sync_folder(folder: Path) -> None:
    """Make a rename inside `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def exchange(first: Path, second: Path) -> bool:
    """Swap two names in one step; False where the system or the file system cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    current_folder, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if rename(current_folder, os.fsencode(first), current_folder, os.fsencode(second), swap) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), str(second))


def take_name(file: Path, wanted: Path) -> bool:
    """Rename a file; False if the name is taken, so no other file is replaced."""
    try:
        os.link(file, wanted, follow_symlinks=False)
        file.unlink()
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        try:  # a file system without links: reserve the name first
            os.close(os.open(wanted, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC))
        except FileExistsError:
            return False
        os.replace(file, wanted)
    return True


def numbered(wanted: Path) -> Iterator[Path]:
    """Names to try in turn: film.mp4, film (2).mp4, film (3).mp4 …"""
    yield wanted
    for number in count(2):
        yield wanted.with_name(f"{wanted.stem} ({number}){wanted.suffix}")


def take_free_name(file: Path, wanted: Path) -> Path:
    """Rename a file to the name it should have, or to the first numbered one that is free."""
    return next(name for name in numbered(wanted) if take_name(file, name))


def write_json(path: Path, value: Any, still_wanted: Callable[[], None] = lambda: None) -> None:
    text = json.dumps(value, indent=1, ensure_ascii=False)
    with atomic_file(path, still_wanted) as file:
        # A file name that is not valid text is kept as JSON's escapes of its bytes.
        file.write(text.encode(errors="backslashreplace") + b"\n")


def open_file(path: Path) -> BufferedReader:
    """Open a file to read. Pipes and devices, which may never end or never answer, are refused."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise HolmesError(f"{path} is {'a folder' if stat.S_ISDIR(mode) else 'not a regular file'}.")
    return open(descriptor, "rb")


@contextmanager
def spelt(path: Path) -> Iterator[Path]:
    """A path that is valid text: the file's own, or else that of an open descriptor.

    For libraries in other languages, which take no other paths.
    """
    if str(path).isascii() or os.fsencode(path).decode(errors="ignore") == str(path):
        yield path
        return
    with open_file(path) as file:
        yield Path(f"/dev/fd/{file.fileno()}")


def read_file(path: Path, most: int = LARGEST_JSON) -> bytes:
    """All of a file of at most this many bytes."""
    try:
        with open_file(path) as file:
            if os.fstat(file.fileno()).st_size > most:
                raise HolmesError(
                    f"{path} is larger than {most >> 20} MiB, the most that such a file may have."
                )
            return file.read()
    except FileNotFoundError:
        raise HolmesError(f"{path} does not exist.") from None


def inside(folder: Path, *names: str) -> Path:
    """The path of a file or folder in `folder`; names and links that lead out of the folder are refused."""
    path = folder.joinpath(*names)
    if "\0" in str(path) or not path.resolve().is_relative_to(folder.resolve()):
        name = shown("/".join(names))
        raise HolmesError(f"{name} leads out of {folder}; remove that link, or get the folder again.")
    return path


def read_json(path: Path) -> Any:
    """What a JSON file says; an object may not have a key twice."""
    try:
        return json.loads(read_file(path), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise HolmesError(f"{path} is not valid JSON ({str(error)[:120]}).") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that is there twice: two readers may see two different values."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"{shown(next(key for key in found if keys.count(key) > 1))} appears twice")
    return found


def sha256_file(path: Path) -> str:
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a CSV file with a header, or of JSON lines, by column. The caller checks the values."""
    try:
        text = path.read_text("utf-8-sig")
    except FileNotFoundError:
        raise HolmesError(f"{path} does not exist.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise HolmesError(f"{path} cannot be read as UTF-8 text ({type(error).__name__}).") from None
    if path.suffix.lower() not in JSON_LINES:
        return list(csv.DictReader(text.splitlines()))
    try:
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError:
        raise HolmesError(f"{path} does not contain one JSON object per line.") from None
    return [row if isinstance(row, dict) else {} for row in rows]  # only an object has columns
