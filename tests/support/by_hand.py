"""Manifests changed by hand, as an attacker would: with a checksum that is right again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from holmes.base.manifests import checksum


def reseal(path: Path, **changes: Any) -> None:
    seal(path, json.loads(path.read_text()) | changes)


def seal(path: Path, body: dict[str, Any]) -> None:
    body = {key: value for key, value in body.items() if key != "checksum"}
    path.write_text(json.dumps(body | {"checksum": checksum(body)}))
