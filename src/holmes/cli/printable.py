"""Text for the terminal: file names may hold line breaks, escape sequences or bytes that are no text."""

from __future__ import annotations

import unicodedata

UNPRINTABLE = {"Cc", "Cs", "Zl", "Zp"}  # control characters, bytes that are no text, breaks of lines


def printable(text: str) -> str:
    """`text` in one line, its unprintable characters as \\n, \\x1b and the like."""
    return "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char) in UNPRINTABLE else char
        for char in text
    )
