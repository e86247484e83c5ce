"""What a test adds with `holmes.extend` is removed after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holmes import extend
from holmes.config import names
from holmes.encoders import build
from holmes.media.backbones import own
from holmes.training import setup


@contextmanager
def names_restored() -> Iterator[None]:
    tables: list[dict] = [setup.EVIDENCE_FORMS, setup.EXTRA_ALIGNMENTS, setup.EXTRA_LOSSES, build.ENCODERS]
    tables.append(own.ENCODERS)
    before = [dict(table) for table in tables]
    known = {setting: list(values) for setting, values in names.NAMES.items()}
    try:
        yield
    finally:
        for table, kept in zip(tables, before, strict=True):
            table.clear()
            table.update(kept)
        for setting, values in known.items():
            names.NAMES[setting][:] = values
            extend.OWN[setting].clear()
        names.FILES.clear()
