"""Videos that could not be added to an index, or only in part, and why.

    INDEX/left_out.json    {"left_out": [{"name", "reason"}], "partial": […]}

The file only informs: a damaged or missing file counts as empty, and a damaged note is dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holmes.base.files import read_json, write_json
from holmes.base.validation import build
from holmes.errors import HolmesError
from holmes.index.storage.store import SKIPPED
from holmes.media.extraction import Failure

KINDS = ("left_out", "partial")
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
    index: Path, failures: Iterable[Failure], partial: Iterable[Failure], held: Collection[str]
) -> None:
    """Add what an attempt skipped; videos that the index holds by now (`held`) are no longer listed."""
    notes = read_skipped(index)
    for kind, new in zip(KINDS, (failures, partial), strict=True):
        by_name = {note["name"]: note for note in notes[kind]}
        by_name |= {str(file.source): asdict(Note(str(file.source), file.reason)) for file in new}
        kept = [note for name, note in by_name.items() if (name in held) == (kind == "partial")]
        notes[kind] = kept[-MOST:]
    if any(notes.values()) or (index / SKIPPED).exists():
        write_json(index / SKIPPED, notes)
