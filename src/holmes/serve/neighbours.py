"""What the libraries of one server know of each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI


@dataclass
class Neighbours:
    """All libraries of a server; none where it has only one index."""

    names: tuple[str, ...] = ()
    why_separate: str | None = None  # why they are not searched as one
    apps: dict[str, FastAPI] = field(default_factory=dict)
    joined: FastAPI | None = None

    def about(self, library: str | None) -> dict[str, Any]:
        """For the page of one of them, or of all together (None)."""
        return {"library": library, "libraries": list(self.names), "why_separate": self.why_separate}
