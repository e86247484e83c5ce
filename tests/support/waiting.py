"""Wait for what will happen, however slow the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

LONG = 120.0  # seconds; more than anything takes that a test waits for


def wait_for(what: Callable[[], Any], seconds: float = LONG) -> Any:
    """The first true value of `what`."""
    deadline = time.monotonic() + seconds
    while not (value := what()):
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)
    return value
