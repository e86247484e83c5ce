"""Figures that are made but not rendered, which takes longest: the tests of tests/report render them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

PICTURE = b"<svg xmlns='http://www.w3.org/2000/svg'/>"


def save(figure: Figure, file: Any, **how: object) -> None:
    if hasattr(file, "write"):
        file.write(PICTURE)
    else:
        Path(file).write_bytes(PICTURE)


@contextmanager
def no_rendering() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", save)
        yield


@pytest.fixture
def undrawn() -> Iterator[None]:
    with no_rendering():
        yield
