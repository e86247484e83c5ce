"""What an index was asked to hold and does not, and why; kept beside it for whoever wonders.

    INDEX/left_out.json    {"left_out": [{"name", "reason"}], "partial": […]}

Nothing depends on it: a damaged or missing file counts as an empty one, and a damaged note is dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holmes.base.files import read_json, write_json
from holmes.base.validation import build
from holmes.errors import HolmesError
from holmes.index.storage.store import LEFT_OUT
from holmes.media.extraction import Failure

KINDS = ("left_out", "partial")
MOST = 10_000  # of each kind that are remembered

Notes = dict[str, list[dict[str, str]]]


@dataclass(frozen=True)
class Note:
    """A video, and why it was left out or read only in part."""

    name: str
    reason: str


def read_left_out(index: Path) -> Notes:
    try:
        found: dict[str, Any] = build(dict[str, Any], read_json(index / LEFT_OUT))
    except (HolmesError, OSError):
        found = {}
    return {kind: [asdict(note) for note in _sound_notes(found.get(kind))] for kind in KINDS}


def _sound_notes(values: Any) -> Iterator[Note]:
    for value in values if isinstance(values, list) else ():
        try:
            yield build(Note, value)
        except HolmesError:
            continue


def note_left_out(
    index: Path, failures: Iterable[Failure], partial: Iterable[Failure], held: Collection[str]
) -> None:
    """Add what an attempt left out; what the index holds by now (`held`) is no longer left out."""
    notes = read_left_out(index)
    for kind, new in zip(KINDS, (failures, partial), strict=True):
        by_name = {note["name"]: note for note in notes[kind]}
        by_name |= {str(file.source): asdict(Note(str(file.source), file.reason)) for file in new}
        kept = [note for name, note in by_name.items() if (name in held) == (kind == "partial")]
        notes[kind] = kept[-MOST:]
    if any(notes.values()) or (index / LEFT_OUT).exists():
        write_json(index / LEFT_OUT, notes)
