"""Manifests: JSON files with a format, a version and a checksum, read as typed records.

The three marks distinguish damage, another version and a foreign file before any value is used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from holmes.base.files import read_json, write_json
from holmes.base.printing import shown
from holmes.base.validation import Count, Sha256, build
from holmes.errors import HolmesError

T = TypeVar("T")
MARKS = {"format", "version", "checksum"}


@dataclass(frozen=True)
class FileEntry:
    """A file as it was written."""

    bytes: Count
    sha256: Sha256


@dataclass(frozen=True)
class FileFormat:
    """One kind of manifest."""

    format: str
    version: int  # the one that is written
    what: str  # such as "a store"
    remedy: str  # what to do about a file that is damaged or too old
    without_checksum: tuple[int, ...] = ()  # earlier versions that are read; version 0 has no format either

    def write(
        self, path: Path, body: dict[str, Any], still_wanted: Callable[[], None] = lambda: None
    ) -> None:
        """Write it; `still_wanted` is called just before the file is replaced and may raise."""
        body = {"format": self.format, "version": self.version, **body}
        write_json(path, {**body, "checksum": checksum(body)}, still_wanted)

    def read(self, path: Path, kind: type[T]) -> T:
        """The file as a record of `kind`; anything else is refused in one line."""
        body = self.load(path)
        if 0 in self.without_checksum and isinstance(body, dict) and body.keys().isdisjoint(MARKS):
            return self.parse(path, body, kind)
        if not isinstance(body, dict) or body.get("format") != self.format:
            raise HolmesError(f"{path} does not describe {self.what} (its format is not '{self.format}').")
        version = body.get("version")
        if isinstance(version, bool) or version not in (self.version, *self.without_checksum):
            raise self.outdated(path, shown(version))
        if version == self.version and body.pop("checksum", None) != checksum(body):
            raise self.damaged(path, f"{path} is damaged (its checksum does not match)")
        del body["format"], body["version"]
        return self.parse(path, body, kind)

    def load(self, path: Path) -> Any:
        return read_json(path)

    def parse(self, path: Path, body: dict[str, Any], kind: type[T]) -> T:
        try:
            return build(kind, body)
        except HolmesError as error:
            raise self.damaged(path, f"{path} is damaged: {str(error)[:-1]}") from None

    def damaged(self, path: Path, fault: str) -> HolmesError:
        return HolmesError(f"{fault}; {self.remedy}.")

    def outdated(self, path: Path, version: str) -> HolmesError:
        return HolmesError(
            f"{path} describes {self.what} of version {version}; this version of Holmes reads version "
            f"{self.version}: use the version that wrote it, or {self.remedy}."
        )


def checksum(body: dict[str, Any]) -> str:
    """SHA-256 of the canonical JSON of `body`."""
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
