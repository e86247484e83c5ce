"""Make text from files safe to print in one line, and format times."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

# Control characters, bytes that are not text, breaks of lines, and marks that reorder or hide what follows.
UNPRINTABLE = {"Cc", "Cs", "Cf", "Zl", "Zp"}
JOINERS = {"\u200c", "\u200d"}  # also of category Cf, but parts of words and of emoji
SHOWN = 60  # characters of a value in a message
TIME = re.compile(r"(\d{1,3}:)?(\d{1,2}:)?\d{1,7}(\.\d{1,6})?")


def printable(text: str) -> str:
    """`text` in one line, its unprintable characters as \\n, \\x1b, \\u202e and the like."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(char) if _is_unprintable(char) else char for char in text)


def printable_lines(text: str) -> str:
    """The same for text of several lines that are ours."""
    return "\n".join(printable(line) for line in text.split("\n"))


def shown(value: Any, quoted: bool = True) -> str:
    """A value as a message names it: short, in one line."""
    if isinstance(value, dict | list | tuple):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value):,}"
    if isinstance(value, int) and abs(value) >= 10**20:
        return "a huge number"
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    short = printable(text[:SHOWN] + "…" * (len(text) > SHOWN))
    return f"'{short}'" if quoted and isinstance(value, str) else short


def _is_unprintable(char: str) -> bool:
    return char not in JOINERS and unicodedata.category(char) in UNPRINTABLE


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode()


def clock(seconds: float) -> str:
    """Seconds as people write them: 0:07, 1:02:03."""
    whole = int(seconds + 1e-6)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def seconds_of(text: str) -> float | None:
    """The seconds of a time such as 90, 1:30 or 1:02:00; None where it is no time."""
    if not TIME.fullmatch(text):
        return None
    seconds = 0.0
    for part in text.split(":"):
        seconds = 60 * seconds + float(part)
    return seconds


def subtitle_time(seconds: float, point: str) -> str:
    """Seconds as subtitle files write them: 00:01:02.345, with this decimal point."""
    milliseconds = round(1000 * seconds)
    hours, minutes = milliseconds // 3_600_000, milliseconds // 60_000 % 60
    return f"{hours:02}:{minutes:02}:{milliseconds // 1000 % 60:02}{point}{milliseconds % 1000:03}"
