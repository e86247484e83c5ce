"""The list of files that were skipped, or read only in part, with reasons.

    INDEX/left_out.json    {"left_out": [{"name", "reason"}], "partial": […], "copies": […]}

The file only informs: a damaged or missing file counts as empty, and a damaged note is dropped.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holmes.base.files import read_json, write_json
from holmes.base.validation import build
from holmes.errors import HolmesError
from holmes.index.ingest.file_identity import Duplicate
from holmes.index.storage.store import SKIPPED
from holmes.media.extraction import Failure

KINDS = ("left_out", "partial", "copies")
MOST = 10_000  # notes kept of each kind

Notes = dict[str, list[dict[str, str]]]


@dataclass(frozen=True)
class Note:
    """A video, and why it was skipped or read only in part."""

    name: str
    reason: str


def read_skipped(index: Path) -> Notes:
    try:
        found: dict[str, Any] = build(dict[str, Any], read_json(index / SKIPPED))
    except (HolmesError, OSError):
        found = {}
    return {kind: [asdict(note) for note in _sound_notes(found.get(kind))] for kind in KINDS}


def _sound_notes(values: Any) -> Iterator[Note]:
    for value in values if isinstance(values, list) else ():
        try:
            yield build(Note, value)
        except HolmesError:
            continue


def record_skipped(
    index: Path,
    failures: Iterable[Failure],
    partial: Iterable[Failure],
    held: Collection[str],
    copies: Iterable[Duplicate] = (),
) -> None:
    """Add what an attempt skipped.

    Videos that the index holds by now (`held`) are no longer listed as skipped, nor are files that are gone.
    """
    notes = read_skipped(index)
    news = {
        "left_out": [Note(str(file.source), file.reason) for file in failures],
        "partial": [Note(str(file.source), file.reason) for file in partial],
        "copies": [Note(str(copy.source), f"the same as {copy.same_as}") for copy in copies],
    }
    skipped = {note.name for kind in ("left_out", "copies") for note in news[kind]}
    for kind, new in news.items():
        by_name = {note["name"]: note for note in notes[kind]}
        if kind != "partial":  # a file is left out or a copy, not both
            by_name = {
                name: note for name, note in by_name.items() if not (name in skipped or _is_gone(name))
            }
        by_name |= {note.name: asdict(note) for note in new}
        kept = [note for name, note in by_name.items() if (name in held) == (kind == "partial")]
        notes[kind] = kept[-MOST:]
    if any(notes.values()) or (index / SKIPPED).exists():
        write_json(index / SKIPPED, notes)


def _is_gone(name: str) -> bool:
    """Whether a file was deleted or moved; where its folder is missing too, its disk may only be away."""
    return os.path.isdir(os.path.dirname(name)) and not os.path.lexists(name)
