"""Child processes of a server in tests: its jobs with the fake encoder, and some that misbehave."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holmes.base.processes import Parent
from holmes.media.backbones.own import ENCODERS
from holmes.serve import decode_worker, jobs
from index_fakes import FakeJoint

Work = Callable[[dict[str, Any]], Any]


def start(parent: Parent) -> Work:
    ENCODERS["fake"] = FakeJoint()
    return jobs.start(parent)


def start_crashing(parent: Parent) -> Work:
    return lambda order: os.abort()


def start_sleeping(parent: Parent) -> Work:
    return lambda order: time.sleep(600)


def start_when_told(parent: Parent) -> Work:
    """A job that ends when the file `go` appears beside the index."""

    def work(order: dict[str, Any]) -> dict[str, Any]:
        while not Path(order["index"]).with_name("go").exists():
            time.sleep(0.01)
        return {"added": 0, "unchanged": 0, "failures": [], "copies": [], "moved": 0}

    return work


def start_endless_film(parent: Parent) -> Work:
    """A decoder whose films have no end."""

    def work(order: dict[str, Any]) -> Any:
        while order["task"] == "convert":
            parent.report(decode_worker.in_text(bytes(1 << 16)))

    return work


def start_crashing_on_large(parent: Parent) -> Work:
    """A decoder that a video crashes, if it is asked for a large picture."""
    real = decode_worker.start(parent)
    return lambda order: os.abort() if order.get("width", 0) > 900 else real(order)
