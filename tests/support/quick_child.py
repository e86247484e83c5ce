"""A job of a server that adds nothing, and starts at once: it only says what it would have added."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from holmes.base.processes import Parent


def start(parent: Parent) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Names decide: broken… is left out, copy… is the same as another."""

    def work(order: dict[str, Any]) -> dict[str, Any]:
        paths: list[str] = order["paths"]
        broken = [path for path in paths if os.path.basename(path).startswith("broken")]
        copies = [path for path in paths if os.path.basename(path).startswith("copy")]
        for done in range(len(paths)):
            parent.report(["embedding videos", done + 1, len(paths)])
        return {
            "added": len(paths) - len(broken) - len(copies),
            "unchanged": 0,
            "moved": 0,
            "failures": [{"name": path, "reason": "it is broken"} for path in broken],
            "copies": [{"name": path, "same_as": "/films/first.mp4"} for path in copies],
        }

    return work


def start_failing(parent: Parent) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def work(order: dict[str, Any]) -> dict[str, Any]:
        raise OSError("the index is locked")

    return work
