"""Files that are whole or absent: write to a temporary neighbour, fsync, rename."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from holmes.errors import HolmesError

UMASK = os.umask(0)
os.umask(UMASK)  # it can only be read by setting it


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A binary file that appears under its name only when the block ends well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), 0o666 & ~UMASK)  # mkstemp's 0600 would hide it from everyone else
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


def write_json(path: Path, value: Any) -> None:
    with atomic_file(path) as file:
        file.write(json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n")


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise HolmesError(f"{path} does not exist.") from None
    except (ValueError, RecursionError) as error:
        raise HolmesError(f"{path} is not valid JSON ({error}).") from None


def sha256_file(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
