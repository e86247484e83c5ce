"""Rows that people write: a CSV with a header, or one JSON object per line."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from holmes.errors import HolmesError

JSON_LINES = (".jsonl", ".ndjson", ".json")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Every row by the names of its columns. The caller checks what is in them."""
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
