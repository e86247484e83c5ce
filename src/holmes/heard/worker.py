"""A process that hears videos; see `holmes.base.processes`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from holmes.base.processes import Parent
from holmes.heard.listen import HeardFolder, Hearing, Listener
from holmes.media.encode_video import Sign


def hearing_worker(
    parent: Parent, folder: str, hearing: dict[str, Any], threads: int
) -> Callable[[str], dict[str, Any]]:
    """What hears one video in a worker: its path → how many passages it has, and the seconds of film."""
    listener = Listener(HeardFolder(Path(folder)), Hearing(**hearing), threads)

    def report(sign: Sign) -> None:
        parent.report({"seconds": sign.seconds, "share": sign.share} if sign.seconds else {})

    def hear(source: str) -> dict[str, Any]:
        kept = listener(Path(source), report)
        return {"passages": len(kept.passages), "seconds": max((p.end for p in kept.passages), default=0.0)}

    return hear
