"""What an index was asked to hold and does not, and why; kept beside it for whoever wonders.

    INDEX/left_out.json    {"left_out": [{"name", "reason"}], "partial": […]}

Nothing depends on it: a damaged or missing file counts as an empty one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from holmes.errors import HolmesError
from holmes.files import read_json, write_json
from holmes.index.store import LEFT_OUT
from holmes.media.extract import Failure

KINDS = ("left_out", "partial")
MOST = 10_000  # of each kind that are remembered

Notes = dict[str, list[dict[str, str]]]


def read_left_out(index: Path) -> Notes:
    try:
        found = read_json(index / LEFT_OUT)
    except (HolmesError, OSError):
        found = None
    found = found if isinstance(found, dict) else {}
    return {
        kind: [_plain(note) for note in _list(found.get(kind)) if isinstance(note, dict)] for kind in KINDS
    }


def note_left_out(
    index: Path, failures: Iterable[Failure], partial: Iterable[Failure], held: Collection[str]
) -> None:
    """Add what an attempt left out; what the index holds by now (`held`) is no longer left out."""
    notes = read_left_out(index)
    for kind, new in zip(KINDS, (failures, partial), strict=True):
        by_name = {note["name"]: note for note in notes[kind]}
        by_name |= {str(file.source): {"name": str(file.source), "reason": file.reason} for file in new}
        kept = [note for name, note in by_name.items() if (name in held) == (kind == "partial")]
        notes[kind] = kept[-MOST:]
    if any(notes.values()) or (index / LEFT_OUT).exists():
        write_json(index / LEFT_OUT, notes)


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _plain(note: dict[str, object]) -> dict[str, str]:
    """Lists and objects, which may be deep, say nothing here."""
    found = {key: note.get(key) for key in ("name", "reason")}
    return {key: str(text) if isinstance(text, str | int | float) else "" for key, text in found.items()}
