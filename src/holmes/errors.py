"""Errors that a user can fix: one line with the problem, the value, and what to do next."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from textwrap import shorten

MOST_NAMES = 100  # in a message
LONGEST_NAME = 100
LONGEST_REASON = 200


class HolmesError(Exception):
    """A clear one-line message; the command line prints it and exits with code 2, without a traceback."""


def unknown(what: str, value: str, known: Iterable[str]) -> HolmesError:
    """An unknown name: says which names exist and which one was probably meant."""
    names = sorted(known)
    value = value[:LONGEST_NAME]
    close = get_close_matches(value, names, n=1)
    hint = f"; did you mean '{close[0]}'?" if close else "."
    listed = ", ".join(name[:LONGEST_NAME] for name in names[:MOST_NAMES])
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return HolmesError(f"unknown {what} '{value}'{hint} Known: {listed or 'none'}{more}.")


def first_sentence(error: Exception) -> str:
    """What an error of another library says, in short: its first sentence."""
    said = " ".join((str(error).strip().splitlines() or [type(error).__name__])[0].split())
    return shorten(said.split(". ")[0].rstrip("."), LONGEST_REASON, placeholder=" …")


def in_one_line(error: BaseException) -> str:
    """An unexpected error of another library: its kind and what it says."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:LONGEST_REASON]


def missing_packages(what: str, *packages: str) -> HolmesError:
    """Packages that a part of Holmes needs and that are not installed."""
    return HolmesError(f"{what} needs packages that are not installed: pip install {' '.join(packages)}")
