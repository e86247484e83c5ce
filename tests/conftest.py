"""Settings that every test shares."""

from __future__ import annotations

import os

# The tensors of the tests are tiny: more threads would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings

from browser import chromium

settings.register_profile("holmes", max_examples=30, deadline=None, derandomize=True)
settings.load_profile("holmes")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was not tested, instead of only counting it."""
    if chromium() is None:
        terminalreporter.section("the page was not tested", yellow=True)
        terminalreporter.write_line(
            "There is no chromium here: 'apt-get install chromium', or HOLMES_CHROMIUM=PATH."
        )
