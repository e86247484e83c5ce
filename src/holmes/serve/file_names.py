"""Names of files that clients send: made safe below a folder of any file system, or refused."""

from __future__ import annotations

import os
import re
import unicodedata

from holmes.base.printing import JOINERS, shown
from holmes.media.find import SUFFIXES
from holmes.serve.state import BadRequestError

DEEPEST = 8  # folders in a name
LONGEST_PART = 200  # bytes of a part of a name
LONGEST_NAME = 1000  # characters
RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)  # on Windows shares
NOT_EVERYWHERE = frozenset('<>:"|?*\\')  # in names on Windows shares and memory cards


def safe_name(given: str) -> str:
    """A name for a file below a folder, of one part or more; what could lead out of it is refused."""
    parts = unicodedata.normalize("NFC", given[:LONGEST_NAME]).split("/")
    if len(given) > LONGEST_NAME or len(parts) > DEEPEST + 1:
        raise BadRequestError(
            f"the name {shown(given)} is too long; send the file with fewer folders around it."
        )
    if any(part.strip() in ("", ".", "..") for part in parts):
        raise BadRequestError(f"{shown(given)} is no name for a file; send the name alone, such as film.mp4.")
    name = "/".join(safe_part(part) for part in parts)
    if not name.lower().endswith(SUFFIXES):
        raise BadRequestError(
            f"{shown(given)} is not named like a video; its name must end in .mp4, .mkv, .mov, .webm or so."
        )
    return name


def safe_part(part: str) -> str:
    """One part of a name that every file system takes, and that hides and begins nothing."""
    text = "".join("_" if _is_odd(char) else char for char in part).strip().rstrip(".")
    text = re.sub(r"^[.]", "_", text) or "_"
    if RESERVED.fullmatch(text):
        text = f"_{text}"
    stem, suffix = os.path.splitext(text)
    if len(suffix.encode()) > 20:
        stem, suffix = text, ""
    short = stem.encode()[: LONGEST_PART - len(suffix.encode())].decode(errors="ignore")
    return short.rstrip(". ") + suffix


def _is_odd(char: str) -> bool:
    odd = unicodedata.category(char)[0] == "C" or unicodedata.category(char) in ("Zl", "Zp")
    return char in NOT_EVERYWHERE or (odd and char not in JOINERS)
